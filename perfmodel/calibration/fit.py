r"""Few positive constants per kernel class, fitted to the points of one calibration.

A class's time is :math:`t = \sum_i c_i f_i`. The logarithms of the constants are fitted to the logarithms of the times:
so all stay positive, and a small kernel counts as much as a large one. Points far off count less (soft L1). Every
constant is drawn to that of its pooled class, more the fewer points tell of it.

The interval of a constant says how far it moves from one calibration of a machine to the next: by noise of the
times, and by the few shapes that are drawn elsewhere (the sandwich estimator [1]_). How far points lie off
their curve is another thing, the residual of the class: the same shapes lie off it the second time too.

References
----------
.. [1] H. White, Maximum likelihood estimation of misspecified models, Econometrica 50 (1982); with the correction for
   few points of J. G. MacKinnon, H. White, Some heteroskedasticity-consistent covariance matrix estimators with
   improved finite sample properties, Journal of Econometrics 29 (1985).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.hardware.fit_file import Z_80

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.calibration.classes import Columns

PRIOR_SPREAD: Final = 0.7
"""Standard deviation of the logarithm of a constant around that of its pooled class: a factor of 2 [1]."""

LOOSE_SPREAD: Final = 3.0
"""The same where there is no pooled class, around a rough guess [1]."""

LEAST_SIGMA: Final = 0.02
"""Least spread of points about their curve [1]."""

LEAST_SHARE: Final = 0.02
"""Share of a point's time below which a constant cannot be known and is left out [1]."""

PROPORTIONAL: Final = 1.15
"""Largest over smallest ratio of two features that points cannot separate; the later one is left out [1]."""

REPEAT_SPREAD: Final = 0.05
"""Standard deviation of a time from one run to the next, where no point was taken twice [1]."""

OTHER_POINTS: Final = 0.1
"""Share of the points that a second calibration takes elsewhere, with other distances from the curve: 5 to 20 % of five
pairs of calibrations of one machine, whose constants agreed within 80 % intervals in nine of ten with it [1]."""

FEWEST_REPEATS: Final = 10
"""Points taken twice below which their scatter says too little [1]."""

QUANTILE_80: Final = 0.8
"""Share of the differences of repeated points that their interval must hold [1]."""

FIT_ROUNDS: Final = 2
"""Times the spread about the curve is estimated and the fit repeated [1]."""


@dataclass(frozen=True, slots=True, eq=False)
class FittedCurve:
    """Constants of one class with their covariance."""

    constants: Mapping[str, float]
    log_spread: Mapping[str, float]
    residuals: NDArray[np.float64]

    def times(self, columns: Columns) -> NDArray[np.float64]:
        """Return the times of other operations of the class [s]."""
        constants = np.array([self.constants.get(name, 0.0) for name in columns.names])
        times: NDArray[np.float64] = columns.features @ constants
        return times

    def sensitivities(self, columns: Columns) -> NDArray[np.float64]:
        """Return derivatives of log times to log constants, shape (operations, constants) [1]."""
        constants = np.array([self.constants.get(name, 0.0) for name in columns.names])
        shares: NDArray[np.float64] = columns.features * constants / self.times(columns)[:, None]
        return shares

    @property
    def low(self) -> dict[str, float]:
        """Lower ends of the 80 % intervals."""
        return {name: value * float(np.exp(-Z_80 * self.log_spread[name])) for name, value in self.constants.items()}

    @property
    def high(self) -> dict[str, float]:
        """Upper ends of the 80 % intervals."""
        return {name: value * float(np.exp(Z_80 * self.log_spread[name])) for name, value in self.constants.items()}

    @property
    def residual_percent(self) -> float:
        """Mean of abs ln(fitted / measured). [%]"""
        return 100 * float(np.mean(np.abs(self.residuals)))


def _distinct(features: NDArray[np.float64]) -> list[int]:
    """Return the columns that are above zero somewhere and not proportional to an earlier one."""
    kept: list[int] = []
    for index in range(features.shape[1]):
        column = features[:, index]
        if not (column > 0).any():
            continue
        if (column > 0).all() and any(_proportional(features[:, other], column) for other in kept):
            continue
        kept.append(index)
    return kept


def _proportional(first: NDArray[np.float64], second: NDArray[np.float64]) -> bool:
    if not (first > 0).all() or len(first) == 1:
        return False
    ratio = second / first
    return bool(ratio.max() <= PROPORTIONAL * ratio.min())


def fit_curve(
    columns: Columns,
    seconds: Sequence[float],
    *,
    spread: Sequence[float] = (),
    pooled: FittedCurve | None = None,
    repeat_spread: float = REPEAT_SPREAD,
) -> FittedCurve:
    """Fit the constants of one class."""
    times = np.log(np.asarray(seconds, dtype=np.float64))
    noise = np.asarray(spread, dtype=np.float64) if len(spread) else np.zeros_like(times)
    kept = _distinct(columns.features)
    curve = None
    while True:
        names = [columns.names[index] for index in kept]
        features = columns.features[:, kept]
        prior = _prior(names, features, times, pooled)
        centre_spread = _centre_spread(names, pooled)
        log_constants, covariance = _solve(features, times, noise, *prior, centre_spread, repeat_spread=repeat_spread)
        constants = np.exp(log_constants)
        fitted = features @ constants
        curve = FittedCurve(
            constants=dict(zip(names, constants.tolist(), strict=True)),
            log_spread=dict(zip(names, np.sqrt(np.diag(covariance)).tolist(), strict=True)),
            residuals=np.log(fitted) - times,
        )
        shares = (features * constants / fitted[:, None]).max(axis=0)
        if len(kept) == 1 or shares.min() >= LEAST_SHARE:
            return curve
        kept.pop(int(np.argmin(shares)))


def _prior(
    names: Sequence[str], features: NDArray[np.float64], times: NDArray[np.float64], pooled: FittedCurve | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return centre and spread of the logarithms of the constants."""
    centre, width = np.empty(len(names)), np.empty(len(names))
    for index, name in enumerate(names):
        column = features[:, index]
        guess = np.median(times[column > 0] - np.log(column[column > 0])) - np.log(len(names))
        known = None if pooled is None else pooled.constants.get(name)
        centre[index] = guess if known is None else np.log(known)
        width[index] = LOOSE_SPREAD if known is None else PRIOR_SPREAD
    return centre, width


def _centre_spread(names: Sequence[str], pooled: FittedCurve | None) -> NDArray[np.float64]:
    """Return the spread of the prior centres of constants between two calibrations."""
    known = {} if pooled is None else pooled.log_spread
    return np.array([known.get(name, 0.0) for name in names])


def _solve(
    features: NDArray[np.float64],
    times: NDArray[np.float64],
    noise: NDArray[np.float64],
    centre: NDArray[np.float64],
    width: NDArray[np.float64],
    centre_spread: NDArray[np.float64],
    *,
    repeat_spread: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the logarithms of the constants, and their covariance from one calibration to the next."""
    from scipy.optimize import least_squares

    sigma = np.sqrt(0.15**2 + noise**2)
    logs = centre.copy()
    for _ in range(FIT_ROUNDS):

        def residuals(at: NDArray[np.float64], sigma: NDArray[np.float64] = sigma) -> NDArray[np.float64]:
            off = (np.log(features @ np.exp(at)) - times) / sigma
            return np.concatenate([off, (at - centre) / width])

        def jacobian(at: NDArray[np.float64], sigma: NDArray[np.float64] = sigma) -> NDArray[np.float64]:
            parts = features * np.exp(at)
            shares = parts / parts.sum(axis=1, keepdims=True) / sigma[:, None]
            return np.vstack([shares, np.diag(1 / width)])

        solution = least_squares(residuals, logs, jac=jacobian, loss="soft_l1", max_nfev=200)
        logs = solution.x
        off = np.abs(residuals(logs)[: len(times)] * sigma)
        freedom = max(len(times) - len(logs), 1) / len(times)
        typical = max(LEAST_SIGMA, 1.4826 * float(np.median(off)) / np.sqrt(freedom))
        sigma = np.sqrt(typical**2 + noise**2)
    slopes = jacobian(logs, sigma)
    weight = 1 / np.sqrt(1 + residuals(logs, sigma) ** 2)  # of soft L1: half the slope of its loss
    bread = np.linalg.inv((slopes * weight[:, None]).T @ slopes)
    # both tell the same noise; a point's own few repeats may by chance lie closer together than it repeats
    squared_noise = np.maximum(repeat_spread**2, (repeat_spread**2 + noise**2) / 2)
    varies = squared_noise + OTHER_POINTS * (residuals(logs, sigma)[: len(times)] * sigma) ** 2
    noisy = (slopes * weight[:, None])[: len(times)] * (np.sqrt(varies) / sigma)[:, None]
    few = len(times) / max(len(times) - len(logs), 1)  # fewer points than constants want: HC1 of MacKinnon and White
    drawn = np.diag((centre_spread / width**2) ** 2)
    covariance: NDArray[np.float64] = (bread @ (few * noisy.T @ noisy + drawn) @ bread).astype(np.float64)
    return logs, covariance


def repeat_spread_of(first_s: Sequence[float], second_s: Sequence[float]) -> float:
    """Return the standard deviation of a time from one run to a later one.

    Examples
    --------
    >>> repeat_spread_of([1.0], [1.1])
    0.05
    >>> round(repeat_spread_of([1.0] * 20, [1.1, 1 / 1.1] * 10), 3)
    0.053
    """
    if len(first_s) < FEWEST_REPEATS:
        return REPEAT_SPREAD
    apart = np.abs(np.log(np.asarray(second_s) / np.asarray(first_s)))
    return max(LEAST_SIGMA, float(np.quantile(apart, QUANTILE_80)) / Z_80 / math.sqrt(2.0))


def agreement(
    first: Mapping[str, tuple[float, float, float]], second: Mapping[str, tuple[float, float, float]]
) -> dict[str, Any]:
    """Measure the agreement of two calibrations.

    Examples
    --------
    >>> agreement({"call": (1.0, 0.9, 1.1)}, {"call": (1.15, 1.05, 1.25)})["overlapping"]
    1.0
    >>> agreement({"call": (1.0, 0.9, 1.1)}, {"call": (1.15, 1.05, 1.25)})["inside"]
    0.0
    """
    shared = [name for name in first if name in second]
    overlapping = [first[name][1] <= second[name][2] and second[name][1] <= first[name][2] for name in shared]
    inside = [first[name][1] <= second[name][0] <= first[name][2] for name in shared]
    widths = [(high - low) / 2 / value for value, low, high in (first[name] for name in shared) if value > 0]
    return {
        "shared": len(shared),
        "overlapping": float(np.mean(overlapping)) if shared else 1.0,
        "inside": float(np.mean(inside)) if shared else 1.0,
        "half_width_percent": 100 * float(np.median(widths)) if widths else 0.0,
    }
