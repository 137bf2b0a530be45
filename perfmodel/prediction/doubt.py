"""How far a step time follows its uncertain constants: sensitivities, what is known of the constants, and the sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.hardware.calibration import Unknown, load_fit_plan
from perfmodel.prediction.constants import StatedConstant, stated_constant
from perfmodel.prediction.covariance import extended_covariance, prior_covariance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.hardware.calibration import CalibrationFile
    from perfmodel.hardware.interval_scale import ConstantSpreads
    from perfmodel.prediction.prepared import Prepared
    from perfmodel.prediction.scaling import Factors

LEAST_STEP: Final = 0.02
"""How far a constant is lowered at least to see what the step makes of it, in ln(constant). [1]"""


@dataclass(frozen=True, eq=False, kw_only=True)
class KnownConstants:
    """What is known of the constants that a fit may change.

    Parameters
    ----------
    unknowns : tuple of Unknown
        Logarithms of factors. [-]
    covariance : ndarray, shape (unknowns, unknowns)
        Theirs: the plan's before a fit, the fit's after it. [1]
    """

    unknowns: tuple[Unknown, ...]
    covariance: NDArray[np.float64]


def known_constants(prepared: Prepared, calibration: CalibrationFile | None) -> KnownConstants:
    """Return what a plan, or a calibration, knows of the constants of a step.

    Parameters
    ----------
    prepared : Prepared
        The step. [-]
    calibration : CalibrationFile or None
        A fit; None for the spreads of the plan. [-]

    Returns
    -------
    KnownConstants
        Unknowns of the plan, after the fit where there is one; those the fit has not met follow their group.
    """
    planned = load_fit_plan(prepared.target.processor).unknowns(prepared.constant_names)
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
class Doubt:
    """What the uncertain constants contribute to the uncertainty of ln(step time).

    Parameters
    ----------
    constants : tuple of StatedConstant
        The constants of the step that are single numbers. [-]
    sensitivity : ndarray, shape (constants,)
        Derivative of ln(step time) by ln(constant). [1]
    spread : ndarray, shape (constants,)
        Standard deviation of ln(constant). [1]
    contribution : ndarray, shape (constants,)
        Part of each in the variance; they sum to it. [1]
    """

    constants: tuple[StatedConstant, ...]
    sensitivity: NDArray[np.float64]
    spread: NDArray[np.float64]
    contribution: NDArray[np.float64]

    @property
    def variance(self) -> float:
        """Variance of ln(step time) from the constants: J S J^T. [1]"""
        return max(float(self.contribution.sum()), 0.0)


def doubt_of(prepared: Prepared, factors: Factors, *, known: KnownConstants, spreads: ConstantSpreads) -> Doubt:
    """Propagate the uncertainty of a step's constants to its time, with one evaluation of many lowered constants.

    Parameters
    ----------
    prepared : Prepared
        The step. [-]
    factors : mapping of str to float
        Factors on its constants by full name. [1]
    known : KnownConstants
        What is known of those that a fit may change. [-]
    spreads : ConstantSpreads
        Spread of the others, by provenance. [1]

    Returns
    -------
    Doubt
        By constant.

    Notes
    -----
    Constants are lowered, not raised: many stand at the upper end of their range, where raising them shows nothing.
    Each is lowered by its own spread, so that a threshold that is crossed on the way counts once.
    """
    stated = [stated_constant(name, prepared.specs, dtype=prepared.dtype) for name in prepared.constant_names]
    constants = tuple(each for each in stated if each is not None and not isinstance(each.value, tuple))
    belongs = np.array([[unknown.matches(each.name) for unknown in known.unknowns] for each in constants], dtype=float)
    belongs = belongs.reshape(len(constants), len(known.unknowns))
    own = np.array([0.0 if row.any() else _spread(each, spreads) for each, row in zip(constants, belongs, strict=True)])
    covariance = belongs @ known.covariance @ belongs.T + np.diag(own**2)
    spread = np.sqrt(np.diag(covariance))
    sensitivity = _sensitivity(prepared, factors, [each.name for each in constants], np.maximum(spread, LEAST_STEP))
    return Doubt(
        constants=constants,
        sensitivity=sensitivity,
        spread=spread,
        contribution=sensitivity * (covariance @ sensitivity),
    )


def _spread(constant: StatedConstant, spreads: ConstantSpreads) -> float:
    kind = "estimate" if constant.source is None else constant.source.kind
    return float(getattr(spreads, kind))


def _sensitivity(
    prepared: Prepared, factors: Factors, names: Sequence[str], steps: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the change of ln(step time) by that of ln(constant), of each constant by itself."""
    lowered: dict[str, Any] = {name: np.full(len(names) + 1, factors.get(name, 1.0)) for name in names}
    for place, name in enumerate(names):
        lowered[name][place + 1] *= np.exp(-steps[place])
    times = np.log(_times(prepared, {**factors, **lowered}, len(names) + 1))
    derivative: NDArray[np.float64] = (times[0] - times[1:]) / steps
    return derivative


def _times(prepared: Prepared, factors: Factors, count: int) -> NDArray[np.float64]:
    """Return the step times of many configurations: at once, or one by one where a constant decides what runs."""
    try:
        return np.broadcast_to(prepared.step(factors).parts.step_s, count)
    except ValueError:  # numpy refuses to decide on an array
        each = (
            {name: value[place] if np.ndim(value) else value for name, value in factors.items()}
            for place in range(count)
        )
        return np.array([prepared.step(one).parts.step_s for one in each])
