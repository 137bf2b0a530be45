"""How good intervals are: what they hold, how wide they are, and one score of both. Pure functions of arrays."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.errors import ArgumentError

Floats = NDArray[np.float64]

LEVEL: Final = 0.8
"""Share of measured times that the intervals should hold. [1]"""


def coverage(low: ArrayLike, high: ArrayLike, *, measured: ArrayLike) -> float:
    """Share of measured values that lie within their intervals.

    Parameters
    ----------
    low, high, measured : array_like of float, shape (n,)
        Ends, and what was measured, in the same unit. [s]

    Returns
    -------
    float
        Share. [1]

    Raises
    ------
    ArgumentError
        If the shapes differ, nothing is there, or a low end is above its high end.

    Examples
    --------
    >>> coverage([1.0, 1.0], [2.0, 2.0], measured=[1.5, 3.0])
    0.5
    """
    lows, highs, values = _checked(low, high, measured)
    return float(np.mean((lows <= values) & (values <= highs)))


def median_ratio(low: ArrayLike, high: ArrayLike) -> float:
    """Median of high over low: how sharp intervals are.

    Parameters
    ----------
    low, high : array_like of float, shape (n,)
        Positive ends in the same unit. [s]

    Returns
    -------
    float
        At least 1. [1]

    Raises
    ------
    ArgumentError
        If the shapes differ, nothing is there, or a low end is above its high end.

    Examples
    --------
    >>> median_ratio([1.0, 2.0, 4.0], [2.0, 3.0, 16.0])
    2.0
    """
    lows, highs, _ = _checked(low, high, low)
    return float(np.median(highs / lows))


def interval_score(low: ArrayLike, high: ArrayLike, *, measured: ArrayLike, level: float = LEVEL) -> float:
    r"""Mean interval score: the width, and what a miss costs. Lower is better, and only the true quantiles are best.

    .. math:: S = (u - l) + \frac{2}{\alpha} (l - y)^+ + \frac{2}{\alpha} (y - u)^+, \quad \alpha = 1 - p

    Parameters
    ----------
    low, high, measured : array_like of float, shape (n,)
        Ends l and u, and what was measured, y: times, or logarithms of times. [s or 1]
    level : float
        Share p that the intervals should hold. [1]

    Returns
    -------
    float
        Mean score. [unit of the values]

    Raises
    ------
    ArgumentError
        If the shapes differ, nothing is there, or a low end is above its high end.

    References
    ----------
    .. [1] T. Gneiting, A. E. Raftery, Strictly proper scoring rules, prediction, and estimation, JASA 102, 2007,
       equation 43; R. L. Winkler, JASA 67, 1972.

    Examples
    --------
    >>> interval_score([1.0, 1.0], [2.0, 2.0], measured=[1.5, 2.2])
    2.0
    """
    lows, highs, values = _checked(low, high, measured)
    missed = np.maximum(lows - values, 0.0) + np.maximum(values - highs, 0.0)
    return float(np.mean(highs - lows + 2 / (1 - level) * missed))


def _checked(low: ArrayLike, high: ArrayLike, measured: ArrayLike) -> tuple[Floats, Floats, Floats]:
    lows, highs, values = (np.asarray(each, dtype=np.float64) for each in (low, high, measured))
    if not lows.shape == highs.shape == values.shape or lows.size == 0:
        argument, allowed = "low", "as many low and high ends as measured values, at least one"
        raise ArgumentError(argument, [each.shape for each in (lows, highs, values)], allowed)
    if not bool(np.all(lows <= highs)):  # a NaN is no end either
        argument, allowed = "low", "ends that are numbers, the low one not above the high one"
        given: Any = [lows[~(lows <= highs)][0], highs[~(lows <= highs)][0]]
        raise ArgumentError(argument, given, allowed)
    return lows, highs, values
