"""Interval of a prediction: uncertain constants, omitted physics, and extrapolation."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from perfmodel.cost.interval_width import (
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
from perfmodel.prediction.certainty.variance import KnownConstants, Uncertainty, known_constants, uncertainty_of

if TYPE_CHECKING:
    from perfmodel.hardware.fit_file import FittedOn
    from perfmodel.prediction.certainty.basis import Basis
    from perfmodel.prediction.job.prepared import Prepared, TimedStep


NOTHING_SEEN: Final = Seen(devices=(), architectures=(), frameworks=(), dtypes=(), mixes=())
"""Experience of a calibration that does not state which rows it was fitted on."""

AS_FAST: Final = {"bf16": "fp16"}
"""Data type -> one of as many bytes whose products every device does as fast; who has seen one knows the other. [-]"""

PRIOR_CELLS: Final = 20
"""Weight of the usual residual, in cells, because a calibration fits a few cells too well. [1]"""


def mix_of(prepared: Prepared, timed: TimedStep) -> dict[str, float]:
    """Share of each kind of operation in a step's time, with gaps and dispatch. [1]"""
    groups, table = timed.groups, timed.shown.stage.lowered.table
    seconds = groups.compute_s + groups.memory_s + groups.exposed_dispatch_s + groups.launches * timed.numbers.launch_s
    seconds = seconds * table.multiplicity
    shares: dict[str, float] = {}
    for kind, of_group in zip(table.operation_kinds, (seconds / seconds.sum()).tolist(), strict=True):
        shares[kind] = shares.get(kind, 0.0) + of_group
    return shares


def parameters_of(scale: IntervalScale) -> SpreadParameters:
    """Plain numbers of a scale."""
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
    uncertainty: Uncertainty,
    seen: Seen,
    measured_architectures: Collection[str],
    residual_ratio: float | None = None,
    exchange: ExchangeSpreads | None = None,
) -> Exposure:
    """Collect everything that makes a timed step more or less certain."""
    target = prepared.target
    return Exposure(
        constants_variance=uncertainty.variance,
        other_share=float(1 - timed.parts.compute_s / timed.parts.step_s),
        residual_ratio=1.0 if residual_ratio is None else residual_ratio,
        exchange_variance=exchange_variance(prepared, timed, spreads=exchange),
        unfitted=float(residual_ratio is None),
        device=float(target.processor_spec.identity not in seen.devices),
        framework=float(prepared.profile.stem not in seen.frameworks),
        operations=seen.distance_to(mix_of(prepared, timed)),
        dtype=float(AS_FAST.get(prepared.dtype, prepared.dtype) not in {*seen.dtypes, *map(AS_FAST.get, seen.dtypes)}),
        oversubscription=float(target.is_oversubscribed),
        architecture=float(target.architecture not in {*seen.architectures, *measured_architectures}),
    )


def residual_ratio_of(fitted_on: FittedOn, scale: IntervalScale) -> float:
    """Ratio of a fit's residual to the usual one of the scale, shrunk towards 1 if cells are few. [1]"""
    return shrunk_ratio(
        fitted_on.mean_abs_log_ratio, usual=scale.found_on.fitted_mean_abs_log_ratio, count=fitted_on.row_count
    )


def shrunk_ratio(residual: float, *, usual: float, count: int) -> float:
    """Ratio of a residual to the usual one, as if ``PRIOR_CELLS`` more cells had the usual residual. [1]

    Examples
    --------
    >>> shrunk_ratio(0.05, usual=0.1, count=20)
    0.75
    """
    return (count * residual + PRIOR_CELLS * usual) / ((count + PRIOR_CELLS) * usual)


@dataclass(frozen=True, eq=False, kw_only=True)
class Interval:
    """An interval around a predicted time, with the causes of its width.

    Parameters
    ----------
    low_s, high_s : float
        Ends. [s]
    level : float
        Share of measured times that such intervals hold. [1]
    shares : dict of str to float
        Share of the variance by cause: ``physics``, ``constants``, ``exchange`` and the ways to extrapolate. [1]
    uncertainty : Uncertainty
        Constant by constant. [1]
    exposure : Exposure or None
        Causes of the shares; None on a measured machine, where kernels cause them. [1]
    scale : IntervalScale or None
        The scale that made it, if any. [-]
    """

    low_s: float
    high_s: float
    level: float
    shares: dict[str, float]
    uncertainty: Uncertainty
    exposure: Exposure | None = None
    scale: IntervalScale | None = None

    @property
    def ratio(self) -> float:
        """High end over low end. [1]"""
        return self.high_s / self.low_s


def interval_of(basis: Basis, *, known: KnownConstants | None = None, scale: IntervalScale | None = None) -> Interval:
    """Compute the interval of a prediction."""
    prepared, timed, calibration = basis.prepared, basis.timed, basis.calibration
    step_s = timed.parts.step_s
    if np.ndim(step_s) or not isinstance(step_s, float | int | np.floating):
        argument, allowed = "step_s", "one number; ask each prediction for its own interval"
        raise ArgumentError(argument, f"{type(step_s).__name__} of shape {np.shape(step_s)}", allowed)
    scale = load_interval_scale(f"{prepared.target.processor}_80") if scale is None else scale
    known = known_constants(prepared, calibration) if known is None else known
    uncertainty = uncertainty_of(prepared, basis.factors, known=known, spreads=scale.spread)
    measured = scale.measured
    fitted_on = None if calibration is None else calibration.fitted_on
    exposure = exposure_of(
        prepared,
        timed,
        uncertainty=uncertainty,
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
        uncertainty=uncertainty,
        scale=scale,
    )


def exchange_variance(prepared: Prepared, timed: TimedStep, *, spreads: ExchangeSpreads | None) -> float:
    """Variance of ln(step time) due to exchange times. [1]

    Parameters
    ----------
    prepared : Prepared
        The step. [-]
    timed : TimedStep
        Its times. [s]
    spreads : ExchangeSpreads or None
        Standard deviation of ln(exchange time); None if no collective was measured. [1]

    Returns
    -------
    float
        Square of half the change of ln(step time) between exchanges one deviation shorter and one longer. [1]

    Notes
    -----
    Valid for: all exchanges of a step off by the same factor. An exchange that stays hidden adds nothing; one that
    becomes exposed adds its exposed part. Ignores: copies that longer exchanges would hide.
    """
    if spreads is None or not timed.parts.sync_s:
        return 0.0
    spread = spreads.library if prepared.exchanges_by_library else spreads.algorithm
    logs = [np.log(prepared.step_with_exchanges(timed, slower=float(np.exp(sign * spread)))) for sign in (-1, 1)]
    return float((logs[1] - logs[0]) / 2) ** 2
