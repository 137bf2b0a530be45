"""The interval of a prediction: uncertain constants, what physics leaves out, and how far it extrapolates."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from perfmodel.cost.interval import (
    Exposure,
    SpreadParameters,
    interval_ends,
    log_half_width,
    log_spread,
    regime_of,
    variance_parts,
)
from perfmodel.errors import ArgumentError
from perfmodel.hardware.interval_scale import ExchangeSpreads, IntervalScale, Seen, load_interval_scale
from perfmodel.prediction.certainty.variance import Doubt, KnownConstants, doubt_of, known_constants

if TYPE_CHECKING:
    from perfmodel.hardware.fit_file import FittedOn
    from perfmodel.prediction.certainty.basis import Basis
    from perfmodel.prediction.job.prepared import Prepared, TimedStep


NOTHING_SEEN: Final = Seen(devices=(), architectures=(), frameworks=(), dtypes=(), mixes=())
"""What a calibration tells about that does not say on what it was fitted."""

PRIOR_CELLS: Final = 20
"""Cells with the usual residual that a calibration's own cells are held against: few cells fit too well. [1]"""


def mix_of(prepared: Prepared, timed: TimedStep) -> dict[str, float]:
    """Return the shares of a step's kernels, their gaps and their dispatch by kind of operation."""
    groups, table = timed.groups, timed.shown.stage.plan.table
    seconds = groups.compute_s + groups.memory_s + groups.exposed_dispatch_s + groups.launches * timed.numbers.launch_s
    seconds = seconds * table.multiplicity
    shares: dict[str, float] = {}
    for kind, of_group in zip(table.operation_kinds, (seconds / seconds.sum()).tolist(), strict=True):
        shares[kind] = shares.get(kind, 0.0) + of_group
    return shares


def parameters_of(scale: IntervalScale) -> SpreadParameters:
    """Return the plain numbers of a scale."""
    return SpreadParameters(
        structural=scale.structural,
        constants_weight=scale.constants_weight,
        unseen=scale.unseen.model_dump(),
        other_slope=scale.other_slope,
        mean_other_share=scale.mean_other_share,
    )


def exposure_of(
    prepared: Prepared,
    timed: TimedStep,
    *,
    doubt: Doubt,
    seen: Seen,
    measured_architectures: Collection[str],
    residual_ratio: float | None = None,
    exchange: ExchangeSpreads | None = None,
) -> Exposure:
    """Say what makes a timed step more or less certain."""
    target = prepared.target
    return Exposure(
        constants_variance=doubt.variance,
        other_share=float(1 - timed.parts.compute_s / timed.parts.step_s),
        residual_ratio=1.0 if residual_ratio is None else residual_ratio,
        exchange_variance=exchange_variance(prepared, timed, spreads=exchange),
        unfitted=float(residual_ratio is None),
        device=float(target.processor_spec.identity not in seen.devices),
        framework=float(prepared.profile.stem not in seen.frameworks),
        operations=seen.distance_to(mix_of(prepared, timed)),
        dtype=float(prepared.dtype not in seen.dtypes),
        oversubscription=float(target.is_oversubscribed),
        architecture=float(target.architecture not in {*seen.architectures, *measured_architectures}),
    )


def residual_ratio_of(fitted_on: FittedOn, scale: IntervalScale) -> float:
    """Return the residual of a fit over that of the fits which a scale was found with, shrunk where cells are few."""
    return shrunk_ratio(
        fitted_on.mean_abs_log_ratio, usual=scale.found_on.fitted_mean_abs_log_ratio, count=fitted_on.row_count
    )


def shrunk_ratio(residual: float, *, usual: float, count: int) -> float:
    """Return a residual over the usual one, as if ``PRIOR_CELLS`` more cells had the usual one.

    Examples
    --------
    >>> shrunk_ratio(0.05, usual=0.1, count=20)
    0.75
    """
    return (count * residual + PRIOR_CELLS * usual) / ((count + PRIOR_CELLS) * usual)


@dataclass(frozen=True, eq=False, kw_only=True)
class Interval:
    """An interval about a predicted time, and what it is made of.

    Parameters
    ----------
    low_s, high_s : float
        Ends. [s]
    level : float
        Share of measured times that such intervals hold. [1]
    shares : dict of str to float
        Share of the variance by cause: ``physics``, ``constants``, ``exchange`` and the ways to extrapolate. [1]
    doubt : Doubt
        Constant by constant. [1]
    exposure : Exposure or None
        What the shares follow from; None on a measured machine, where they follow from its kernels. [1]
    scale : IntervalScale or None
        The scale it was made with, if any. [-]
    """

    low_s: float
    high_s: float
    level: float
    shares: dict[str, float]
    doubt: Doubt
    exposure: Exposure | None = None
    scale: IntervalScale | None = None

    @property
    def ratio(self) -> float:
        """How many times the low end goes into the high one. [1]"""
        return self.high_s / self.low_s


def interval_of(basis: Basis, *, known: KnownConstants | None = None, scale: IntervalScale | None = None) -> Interval:
    """Make the interval of a prediction."""
    prepared, timed, calibration = basis.prepared, basis.timed, basis.calibration
    step_s = timed.parts.step_s
    if np.ndim(step_s) or not isinstance(step_s, float | int | np.floating):
        argument, allowed = "step_s", "one number: ask for the interval of each prediction by itself"
        raise ArgumentError(argument, f"{type(step_s).__name__} of shape {np.shape(step_s)}", allowed)
    scale = load_interval_scale(f"{prepared.target.processor}_80") if scale is None else scale
    known = known_constants(prepared, calibration) if known is None else known
    doubt = doubt_of(prepared, basis.factors, known=known, spreads=scale.spread)
    measured = scale.measured
    fitted_on = None if calibration is None else calibration.fitted_on
    exposure = exposure_of(
        prepared,
        timed,
        doubt=doubt,
        seen=measured if fitted_on is None else fitted_on.seen or NOTHING_SEEN,
        measured_architectures=measured.architectures,
        residual_ratio=None if fitted_on is None else residual_ratio_of(fitted_on, scale),
        exchange=scale.exchange,
    )
    parameters = parameters_of(scale)
    half_width = log_half_width(
        log_spread(exposure, parameters=parameters),
        quantile=getattr(scale.quantile, regime_of(exposure)),
        damping=scale.damping,
    )
    low_s, high_s = interval_ends(float(step_s), half_width=half_width)
    variance = variance_parts(exposure, parameters=parameters)
    return Interval(
        low_s=float(low_s),
        high_s=float(high_s),
        level=scale.level,
        shares={cause: part / sum(variance.values()) for cause, part in variance.items() if part},
        exposure=exposure,
        doubt=doubt,
        scale=scale,
    )


def exchange_variance(prepared: Prepared, timed: TimedStep, *, spreads: ExchangeSpreads | None) -> float:
    """Return the variance of ln(step time) that comes from how long exchanges take.

    Parameters
    ----------
    prepared : Prepared
        The step. [-]
    timed : TimedStep
        Its times. [s]
    spreads : ExchangeSpreads or None
        Standard deviation of ln(exchange time); None where no collective was measured. [1]

    Returns
    -------
    float
        Square of half the change of ln(step time) from exchanges that are one spread shorter to one spread longer. [1]

    Notes
    -----
    Valid for: all exchanges of a step off by one factor. A hidden exchange that stays hidden adds nothing; one that
    would not counts with what it would expose. Of a network that is spread as much stays hidden as is. Ignores: copies
    that would be hidden.
    """
    if spreads is None or not timed.parts.sync_s:
        return 0.0
    spread = spreads.library if prepared.exchanges_by_library else spreads.algorithm
    logs = [np.log(prepared.step_with_exchanges(timed, slower=float(np.exp(sign * spread)))) for sign in (-1, 1)]
    return float((logs[1] - logs[0]) / 2) ** 2
