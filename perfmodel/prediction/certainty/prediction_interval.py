"""Interval of a prediction: uncertain constants with their sources, omitted physics, and extrapolation."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

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
from perfmodel.hardware.fit_file import FitFile, Unknown, load_fit_plan
from perfmodel.hardware.interval_scale import ConstantSpreads, IntervalScale, Seen, load_interval_scale
from perfmodel.prediction.device.factors import Factors, StatedConstant, stated_constant
from perfmodel.presentation.tables import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.hardware.source import Source
    from perfmodel.prediction.certainty.basis import Basis
    from perfmodel.prediction.job.prepared import Prepared
    from perfmodel.prediction.job.stage import TimedStep
    from perfmodel.prediction.prediction import Prediction


LEAST_STEP: Final = 0.02
"""Smallest change of ln(constant) by which sensitivity is measured. [1]"""


@dataclass(frozen=True, eq=False, kw_only=True)
class KnownConstants:
    """Constants that a fit may change, with their covariance."""

    unknowns: tuple[Unknown, ...]
    covariance: NDArray[np.float64]


def known_constants(prepared: Prepared, calibration: FitFile | None) -> KnownConstants:
    """Uncertainty of a step's constants, from the fit plan and any calibration."""
    return known_constants_of(prepared.constant_names, prepared.target.processor, calibration)


def known_constants_of(names: Collection[str], processor: str, calibration: FitFile | None) -> KnownConstants:
    """Uncertainty of some constants of a kind of processor, from the fit plan and any calibration."""
    planned = load_fit_plan(processor).unknowns(names)
    if calibration is None:
        return KnownConstants(unknowns=planned, covariance=prior_covariance(planned))
    fitted = tuple(
        Unknown(
            name=factor.name,
            scales=factor.scales,
            group=factor.group or factor.name,
            spread=float(np.sqrt(max(factor.prior_spread**2 - factor.shared_spread**2, 0.0))),
            shared_spread=factor.shared_spread,
        )
        for factor in calibration.factor
    )
    names = {unknown.name for unknown in fitted}
    further = tuple(unknown for unknown in planned if unknown.name not in names)
    return KnownConstants(
        unknowns=(*fitted, *further), covariance=extended_covariance(fitted, calibration.covariance, further=further)
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Uncertainty:
    """Contribution of uncertain constants to the uncertainty of ln(step time)."""

    constants: tuple[StatedConstant, ...]
    sensitivity: NDArray[np.float64]
    spread: NDArray[np.float64]
    contribution: NDArray[np.float64]

    @property
    def variance(self) -> float:
        """Variance of ln(step time) from the constants: J S J^T. [1]"""
        return max(float(self.contribution.sum()), 0.0)

    def with_(self, other: Uncertainty) -> Uncertainty:
        """Return both together."""
        columns = ("sensitivity", "spread", "contribution")
        return Uncertainty(
            constants=(*self.constants, *other.constants),
            **{name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in columns},
        )


NONE_UNCERTAIN: Final = Uncertainty(constants=(), sensitivity=np.zeros(0), spread=np.zeros(0), contribution=np.zeros(0))
"""Of a step that depends on no uncertain constant."""


def uncertainty_of(
    prepared: Prepared, factors: Factors, *, known: KnownConstants, spreads: ConstantSpreads
) -> Uncertainty:
    """Propagate the uncertainty of constants to the step time, by one evaluation with each constant lowered.

    Constants are lowered because many are at the upper end of their range, where raising them changes nothing. Each is
    lowered by its standard deviation, so that a threshold inside that step counts once.
    """
    stated = [stated_constant(name, prepared.specs, dtype=prepared.dtype) for name in prepared.constant_names]
    constants = tuple(constant for constant in stated if constant is not None and not isinstance(constant.value, tuple))
    names = [constant.name for constant in constants]
    covariance = covariance_of(constants, known=known, spreads=spreads)
    spread = np.sqrt(np.diag(covariance))
    sensitivity = _sensitivity(prepared, factors, names, np.maximum(spread, LEAST_STEP))
    return Uncertainty(
        constants=constants,
        sensitivity=sensitivity,
        spread=spread,
        contribution=sensitivity * (covariance @ sensitivity),
    )


def covariance_of(
    constants: Sequence[StatedConstant], *, known: KnownConstants, spreads: ConstantSpreads
) -> NDArray[np.float64]:
    """Covariance of the logarithms of constants: those of a fit together, any other by itself. [1]"""
    belongs = np.array(
        [[unknown.matches(constant.name) for unknown in known.unknowns] for constant in constants], dtype=float
    )
    belongs = belongs.reshape(len(constants), len(known.unknowns))
    own_spread = np.array(
        [0.0 if row.any() else _spread(constant, spreads) for constant, row in zip(constants, belongs, strict=True)]
    )
    covariance: NDArray[np.float64] = belongs @ known.covariance @ belongs.T + np.diag(own_spread**2)
    return covariance


def _spread(constant: StatedConstant, spreads: ConstantSpreads) -> float:
    kind = "estimate" if constant.source is None else constant.source.kind
    return float(getattr(spreads, kind))


def _sensitivity(
    prepared: Prepared, factors: Factors, names: Sequence[str], steps: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the derivative of ln(step time) by ln(constant), one constant at a time. [1]"""
    lowered: dict[str, Any] = {name: np.full(len(names) + 1, factors.get(name, 1.0)) for name in names}
    for place, name in enumerate(names):
        lowered[name][place + 1] *= np.exp(-steps[place])
    times = np.log(_times(prepared, {**factors, **lowered}, len(names) + 1))
    derivative: NDArray[np.float64] = (times[0] - times[1:]) / steps
    return derivative


def _times(prepared: Prepared, factors: Factors, count: int) -> NDArray[np.float64]:
    """Step times of many configurations, evaluated one by one if a constant decides which kernels run. [s]"""
    try:
        return np.broadcast_to(prepared.step(factors).parts.step_s, count)
    except ValueError:  # numpy raises when an array is used as a condition
        drawn_factors = (
            {name: value[place] if np.ndim(value) else value for name, value in factors.items()}
            for place in range(count)
        )
        return np.array([prepared.step(factors_of_one).parts.step_s for factors_of_one in drawn_factors])


def prior_covariance(unknowns: Sequence[Unknown]) -> NDArray[np.float64]:
    """Covariance of unknowns before any row is seen.

    Unknowns of one group share a common part, so that one without its own rows follows the group's mean.
    """
    groups = np.array([unknown.group for unknown in unknowns])
    shared = np.array([unknown.shared_spread for unknown in unknowns])
    own_spread = np.array([unknown.spread for unknown in unknowns])
    together = groups[:, None] == groups[None, :]
    covariance: NDArray[np.float64] = np.diag(own_spread**2) + together * shared[:, None] * shared[None, :]
    return covariance


def extended_covariance(
    fitted: Sequence[Unknown], covariance: NDArray[np.float64], *, further: Sequence[Unknown]
) -> NDArray[np.float64]:
    r"""Covariance of fitted unknowns together with further unknowns that were not in the fit.

    A further unknown keeps its own variance and follows the mean of its group as fitted, with covariance C. [1]

    .. math:: x_f = A x + r, \quad A = P_{fk} P_{kk}^{-1}, \quad \operatorname{cov} x_f = A C A^T + P_{ff} - A P_{kf}
    """
    if not further:
        return covariance
    prior, count = prior_covariance((*fitted, *further)), len(fitted)
    follow = np.linalg.solve(prior[:count, :count], prior[:count, count:]).T
    across = follow @ covariance
    further_covariance = across @ follow.T + prior[count:, count:] - follow @ prior[:count, count:]
    joint: NDArray[np.float64] = np.block([[covariance, across.T], [across, further_covariance]])
    return joint


LEAST_SENSITIVITY: Final = 1e-6
"""Sensitivity below which a constant is left out. [1]"""

WORDS_OF_NOTE: Final = 110
"""Characters of a source's note that are shown. [1]"""


@dataclass(frozen=True, slots=True)
class ConstantRow:
    """One constant of a prediction.

    Parameters
    ----------
    constant : str
        Full name: kind folder, file and place in the file. [-]
    value : float
        Value that timed the step, after any fit. [``unit``]
    unit : str
        Unit of the value; 1 for a fraction or a count. [-]
    provenance : str
        ``datasheet``, ``measured``, ``fitted``, ``calculation``, ``estimate`` or ``memory``. [-]
    source : str
        Document, measured table, or how it was estimated. [-]
    rows : int or None
        Measured rows it was fitted on. [1]
    residual_percent : float or None
        Median error on rows that the fit held out; for a calibration, mean error on its own rows. [%]
    verified : bool
        Whether somebody checked the value in the source itself. [-]
    spread_percent : float
        Standard deviation of the constant. [%]
    sensitivity : float
        Relative change of the step time per relative change of the constant. [1]
    share : float
        Its share of the variance due to uncertain constants and exchanges. [1]
    """

    constant: str
    value: float
    unit: str
    provenance: str
    source: str
    rows: int | None
    residual_percent: float | None
    verified: bool
    spread_percent: float
    sensitivity: float
    share: float

    def describe(self) -> str:
        """Value, provenance and source in one line."""
        unit = "" if self.unit == "1" else f" {self.unit}"
        evidence = [self.source]
        evidence += [] if self.rows is None else [f"{self.rows} rows"]
        evidence += [] if self.residual_percent is None else [f"residual {self.residual_percent:.3g} %"]
        unverified = "" if self.verified or self.provenance in ("estimate", "memory") else ", not verified"
        return f"{self.constant} {self.value:.3g}{unit}: {self.provenance}{unverified} ({', '.join(evidence)})"


def constant_table(p: Prediction) -> Table[ConstantRow]:
    """List the constants that move a prediction, largest uncertainty first."""
    uncertainty = p.interval.uncertainty.with_(p.interval.exchange)
    variance = uncertainty.variance or 1.0
    order = np.argsort(-uncertainty.contribution, kind="stable")
    moving = [place for place in order if abs(uncertainty.sensitivity[place]) >= LEAST_SENSITIVITY]
    rows = [_row(p.basis, uncertainty, place, variance=variance) for place in moving]
    return Table(rows, title="constants, the most uncertain first", row_type=ConstantRow)


def _row(basis: Basis, uncertainty: Uncertainty, place: int, *, variance: float) -> ConstantRow:
    constant, calibration = uncertainty.constants[place], basis.calibration
    factor = float(basis.factors.get(constant.name, 1.0))
    assert not isinstance(constant.value, tuple)
    value, source = constant.value * factor, constant.source
    if constant.described is not None:
        value = min(max(value, constant.described.valid_min), constant.described.valid_max)
    evidence: tuple[str, str, int | None, float | None, bool] = ("estimate", _title(source), None, None, False)
    if calibration is not None and factor != 1.0:
        fitted = calibration.fitted_on
        before = f"{calibration.name}; before: {_title(source)}"
        evidence = ("fitted", before, fitted.row_count, fitted.mape_percent, True)
    elif source is not None:
        evidence = (source.kind, _title(source), source.rows, source.residual_percent, source.is_verified)
    spread, sensitivity = float(uncertainty.spread[place]), float(uncertainty.sensitivity[place])
    share = float(uncertainty.contribution[place] / variance)
    return ConstantRow(constant.name, value, constant.unit, *evidence, 100 * spread, sensitivity, share)


def _title(source: Source | None) -> str:
    """Measured table or document of a source; for an estimate, how it was made."""
    if source is None:
        return "no source"
    if source.kind in ("estimate", "calculation") and source.note is not None:
        return textwrap.shorten(source.note, WORDS_OF_NOTE, placeholder=" ...")
    return source.table or source.title


NOTHING_SEEN: Final = Seen(devices=(), architectures=(), frameworks=(), dtypes=(), mixes=())
"""Experience of a calibration that does not state which rows it was fitted on."""

AS_FAST: Final = {"bf16": "fp16"}
"""Data type -> another of the same size and speed on every device: residuals of one hold for the other. [-]"""

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
    shared_attention_on: Collection[str] = (),
    residual_ratio: float | None = None,
    exchange: Uncertainty | None = None,
) -> Exposure:
    """Collect everything that makes a timed step more or less certain."""
    target, mix = prepared.target, mix_of(prepared, timed)
    is_narrow = AS_FAST.get(prepared.dtype, prepared.dtype) == "fp16"
    is_shared = is_narrow and prepared.trains and timed.parts.sync_s and mix.get("attention")
    is_shared = is_shared and target.architecture in shared_attention_on
    return Exposure(
        constants_variance=uncertainty.variance,
        other_share=float(1 - timed.parts.compute_s / timed.parts.step_s),
        residual_ratio=1.0 if residual_ratio is None else residual_ratio,
        exchange_variance=0.0 if exchange is None else exchange.variance,
        unfitted=float(residual_ratio is None),
        device=float(target.processor_spec.identity not in seen.devices),
        framework=float(prepared.profile.stem not in seen.frameworks),
        operations=seen.distance_to(mix),
        dtype=float(AS_FAST.get(prepared.dtype, prepared.dtype) not in {*seen.dtypes, *map(AS_FAST.get, seen.dtypes)}),
        oversubscription=float(target.is_oversubscribed),
        architecture=float(target.architecture not in {*seen.architectures, *measured_architectures}),
        shared_attention=float(bool(is_shared)),
    )


def shrunk_ratio(residual: float, *, usual: float, count: int) -> float:
    """Ratio of a residual to the usual one, as if ``PRIOR_CELLS`` more cells had the usual residual. [1]

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
    exchange : Uncertainty
        The same of exchanges between workers: the links' model, and constants of calls to a parameter server. [1]
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
    exchange: Uncertainty = NONE_UNCERTAIN
    exposure: Exposure | None = None
    scale: IntervalScale | None = None

    def __repr__(self) -> str:
        cause = max(self.shares, key=lambda name: self.shares[name], default="nothing")
        return f"<Interval {self.low_s:.6g} to {self.high_s:.6g} s, {100 * self.level:g} %, most by {cause}>"

    @property
    def ratio(self) -> float:
        """High end over low end. [1]"""
        return self.high_s / self.low_s


def interval_of(basis: Basis) -> Interval:
    """Compute the interval of a prediction."""
    prepared, timed, calibration = basis.prepared, basis.timed, basis.calibration
    step_s = timed.parts.step_s
    if np.ndim(step_s) or not isinstance(step_s, float | int | np.floating):
        argument, allowed = "step_s", "one number; ask each prediction for its own interval"
        raise ArgumentError(argument, f"{type(step_s).__name__} of shape {np.shape(step_s)}", allowed)
    scale = load_interval_scale(f"{prepared.target.processor}_80")
    known = known_constants(prepared, calibration)
    uncertainty = uncertainty_of(prepared, basis.factors, known=known, spreads=scale.spread)
    exchange = exchange_uncertainty(prepared, timed, scale=scale)
    measured = scale.measured
    fitted_on, residual_ratio = None if calibration is None else calibration.fitted_on, None
    if fitted_on is not None:
        usual, residual = scale.found_on.fitted_mean_abs_log_ratio, fitted_on.mean_abs_log_ratio
        residual_ratio = shrunk_ratio(residual, usual=usual, count=fitted_on.row_count)
    exposure = exposure_of(
        prepared,
        timed,
        uncertainty=uncertainty,
        seen=measured if fitted_on is None else fitted_on.seen or NOTHING_SEEN,
        measured_architectures=measured.architectures,
        shared_attention_on=scale.shared_attention_on,
        residual_ratio=residual_ratio,
        exchange=exchange,
    )
    parameters = parameters_of(scale)
    half_width = log_half_width(
        log_spread(exposure, parameters=parameters),
        quantile=scale.quantile.of(regime_of(exposure)),
        damping=scale.damping,
    )
    low_s, high_s = interval_ends(float(step_s), half_width=half_width)
    variance = variance_parts(exposure, parameters=parameters)
    return Interval(
        low_s=float(low_s),
        high_s=float(high_s),
        level=scale.level,
        shares={cause: float(part / sum(variance.values())) for cause, part in variance.items() if part},
        exposure=exposure,
        uncertainty=uncertainty,
        exchange=exchange,
        scale=scale,
    )


def exchange_uncertainty(prepared: Prepared, timed: TimedStep, *, scale: IntervalScale) -> Uncertainty:
    r"""Contribution of exchanges between workers to the uncertainty of ln(step time).

    .. math:: e = (J_l s_l)^2 + J_c^2 \left(s_t^2 + \sum_i s_i^2\right)

    with standard deviations of ln(time) of messages, s_l, and of timed calls to servers, s_t, and of processors'
    speeds, s_i, by provenance. [1]

    Notes
    -----
    Valid for: all messages of a step off by the same factor, and all its calls by another. J is half the change of
    ln(step time) between one deviation shorter and one longer, over the deviation. An exchange that stays hidden adds
    nothing; one that becomes exposed adds its exposed part. Ignores: copies that longer exchanges would hide, and that
    a processor's speed of calls times its other calls too.
    """
    spreads = scale.exchange
    if spreads is None or not timed.parts.sync_s:
        return NONE_UNCERTAIN
    kind = "library" if prepared.exchanges_by_library else "algorithm"
    field, spread = f"exchange.{kind}", float(getattr(spreads, kind))
    messages = StatedConstant(
        name=f"intervals/{scale.stem}/{field}", value=spread, unit="1", described=None, source=scale.source_of(field)
    )
    slope = _exchange_slope(prepared, timed, spread, which="slower")
    of_messages = Uncertainty(
        constants=(messages,),
        sensitivity=np.array([slope]),
        spread=np.array([spread]),
        contribution=np.array([(slope * spread) ** 2]),
    )
    calls = None if prepared.agreement is None else prepared.agreement.calls
    if calls is None or not calls.timed:
        return of_messages
    timed_once, speeds = calls.timed, calls.speeds
    constants = (*timed_once, *speeds)
    powers = np.array([*timed_once.values(), *speeds.values()])
    deviations = np.array([*(spreads.calls for _ in timed_once), *(_spread(speed, scale.spread) for speed in speeds)])
    together = np.diag(deviations**2)
    together[: len(timed_once), : len(timed_once)] = spreads.calls**2  # timed in one session, so off together
    whole = float(np.sqrt(powers @ together @ powers))
    sensitivity = powers * _exchange_slope(prepared, timed, whole, which="calls_slower")
    return of_messages.with_(
        Uncertainty(
            constants=constants,
            sensitivity=sensitivity,
            spread=deviations,
            contribution=sensitivity * (together @ sensitivity),
        )
    )


def _exchange_slope(prepared: Prepared, timed: TimedStep, spread: float, *, which: str) -> float:
    """Return d ln(step time) / d ln(exchange time), over one deviation to either side. [1]"""
    ends = {sign: {"slower": 1.0, which: float(np.exp(sign * spread))} for sign in (-1, 1)}
    shorter, longer = (prepared.step_with_exchanges(timed, **ends[sign]) for sign in (-1, 1))
    return float(np.log(longer / shorter) / (2 * spread))
