"""How sure it is that one of two predicted jobs is faster: constants that both depend on cancel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from perfmodel.errors import ArgumentError
from perfmodel.hardware.interval_scale import IntervalScale, load_interval_scale
from perfmodel.prediction.certainty.prediction_interval import (
    covariance_of,
    exchange_uncertainty,
    known_constants_of,
    parameters_of,
    uncertainty_of,
)

if TYPE_CHECKING:
    from perfmodel.prediction.device.factors import StatedConstant
    from perfmodel.prediction.prediction import Prediction

LAYOUT_SPREAD: Final = 0.057
"""Standard deviation of ln(predicted / measured time) among layouts of one network: of the 139 of ``mpt_fsdp_a100``,
to which no constant was fitted, about the mean of each of nine networks. Range: language models, 8 to 128 A100. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """How sure it is that the first of two jobs takes less time, or less money or energy.

    Made by ``ranking_of``.

    Parameters
    ----------
    probability : float
        That the first takes less. [1]
    log_ratio : float
        ln(time, money or energy of the second / that of the first), as predicted. [1]
    spread : float
        Standard deviation of that. [1]
    shares : dict of str to float
        Share of its variance by cause. [1]
    """

    probability: float
    log_ratio: float
    spread: float
    shares: dict[str, float]


class Costs(NamedTuple):
    """Costs of two jobs, and d ln(cost) / d ln(step time) of each. [1]"""

    values: tuple[float, float]
    elasticities: tuple[float, float] = (1.0, 1.0)


def ranking_of(first: Prediction, second: Prediction, costs: Costs | None = None) -> Ranking:
    r"""Return how sure it is that the first of two predictions is faster, or costs less.

    .. math:: P = \Phi\left(\frac{\ln t_2 - \ln t_1}{\sigma}\right), \quad
        \sigma^2 = \kappa \, \Delta J S \Delta J^T + \tau^2 \sum_k (w_{1k} - w_{2k})^2 + (e_1 - e_2)^2 + 2 \lambda^2

    Notes
    -----
    ``costs`` are power laws of the times; without them the times themselves are compared.
    Valid for: errors small enough that ln(time) is about linear in them. J are sensitivities to the constants, S their
    covariance, so a constant on which both depend alike adds nothing. What the physics leaves out, tau, is taken as one
    unknown factor on each exclusive part of a step, whose shares of it are w; equal mixes of parts cancel. Exchanges
    are all off by one factor, which changes ln(time) by e. Layouts that differ each have an error of their own besides,
    of standard deviation lambda, found on measured layouts of other networks. Of a cost that goes with a power of the
    time, J, w, e and lambda of each job are multiplied by its exponent.
    """
    costs = Costs((first.step_s, second.step_s)) if costs is None else costs
    for name, p in (("first", first), ("second", second)):
        if p.basis.prepared.target.measured is not None:
            raise ArgumentError(name, p.target, "a device whose constants are in files, not a measured machine")
    scale = load_interval_scale(f"{first.basis.prepared.target.processor}_80")
    calibration = first.basis.calibration
    parts = []
    constants: dict[str, StatedConstant] = {}
    slopes: list[dict[str, float]] = []
    for p, power in zip((first, second), costs.elasticities, strict=True):
        prepared = p.basis.prepared
        known = known_constants_of(prepared.constant_names, prepared.target.processor, calibration)
        uncertainty = uncertainty_of(prepared, p.basis.factors, known=known, spreads=scale.spread)
        constants |= {constant.name: constant for constant in uncertainty.constants}
        names = [constant.name for constant in uncertainty.constants]
        slopes.append(dict(zip(names, (power * uncertainty.sensitivity).tolist(), strict=True)))
        parts.append(power * np.array(list(p.breakdown.values())) / p.step_s)
    change = np.array([slopes[0].get(name, 0.0) - slopes[1].get(name, 0.0) for name in constants])
    known = known_constants_of(tuple(constants), first.basis.prepared.target.processor, calibration)
    covariance = covariance_of(list(constants.values()), known=known, spreads=scale.spread)
    parameters = parameters_of(scale)
    exchanges = [
        {name: power * change for name, change in _exchange_changes(p, scale).items()}
        for p, power in zip((first, second), costs.elasticities, strict=True)
    ]
    variance = {
        "constants": parameters.constants_weight * float(change @ covariance @ change),
        "physics": parameters.structural**2 * float(((parts[0] - parts[1]) ** 2).sum()),
        "exchange": sum(
            (exchanges[0].get(name, 0.0) - exchanges[1].get(name, 0.0)) ** 2
            for name in exchanges[0].keys() | exchanges[1].keys()
        ),
        "layout": sum(power**2 for power in costs.elasticities)
        * LAYOUT_SPREAD**2
        * _is_laid_out_differently(first, second),
    }
    total = sum(variance.values())
    log_ratio = math.log(costs.values[1] / costs.values[0])
    spread = math.sqrt(max(total, 0.0))
    return Ranking(
        probability=probability_of(log_ratio, spread),
        log_ratio=log_ratio,
        spread=spread,
        shares={cause: part / total for cause, part in variance.items() if part > 0},
    )


def _is_laid_out_differently(first: Prediction, second: Prediction) -> bool:
    """Whether two jobs run other shapes of products, or exchange among other devices."""
    one, other = (p.basis.prepared for p in (first, second))
    return any(getattr(one, name) != getattr(other, name) for name in ("layout", "batch_size", "recompute", "dtype"))


def probability_of(log_ratio: float, spread: float) -> float:
    """Probability that a normal variable of a mean and a standard deviation is positive. [1]

    >>> probability_of(0.0, 0.0), probability_of(0.01, 0.0), round(probability_of(0.1, 0.1), 3)
    (0.5, 1.0, 0.841)
    """
    if spread == 0:
        return 0.5 if log_ratio == 0 else float(log_ratio > 0)
    return 0.5 * (1 + math.erf(log_ratio / spread / math.sqrt(2)))


def _exchange_changes(p: Prediction, scale: IntervalScale) -> dict[str, float]:
    """Change of ln(step time) when messages, or timed calls to servers, take one standard deviation longer. [1]

    Messages of libraries and of named algorithms take the same links, and so are off together.
    """
    exchange = exchange_uncertainty(p.basis.prepared, p.basis.timed, scale=scale)
    if not exchange.constants:
        return {}
    names = ("messages", *(constant.name for constant in exchange.constants[1:]))
    return dict(zip(names, (exchange.sensitivity * exchange.spread).tolist(), strict=True))
