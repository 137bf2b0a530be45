"""Errors of predicted times: pure functions of arrays.

Errors are relative: |predicted / measured - 1|. Because that ratio can be arbitrarily large for high predictions but at
most 100 % for low ones, rankings use the mean absolute logarithm of the ratio, which treats both alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.errors import ArgumentError

Floats = NDArray[np.float64]


def absolute_percentage_errors(predicted: ArrayLike, *, measured: ArrayLike) -> Floats:
    r"""Relative error of each prediction.

    >>> absolute_percentage_errors([1.1, 0.5], measured=[1.0, 1.0])
    array([10., 50.])
    """
    predictions, measurements = _checked(predicted, measured)
    errors: Floats = 100 * np.abs(predictions / measurements - 1)
    return errors


def mape(predicted: ArrayLike, *, measured: ArrayLike) -> float:
    """Mean absolute percentage error.

    >>> mape([1.1, 0.5], measured=[1.0, 1.0])
    30.0
    """
    return float(np.mean(absolute_percentage_errors(predicted, measured=measured)))


def median_ape(predicted: ArrayLike, *, measured: ArrayLike) -> float:
    """Median absolute percentage error.

    >>> median_ape([1.1, 0.5, 1.0], measured=[1.0, 1.0, 1.0])
    10.0
    """
    return float(np.median(absolute_percentage_errors(predicted, measured=measured)))


def p90_ape(predicted: ArrayLike, *, measured: ArrayLike) -> float:
    """90th percentile of the absolute percentage error.

    >>> p90_ape([1.0, 1.1], measured=[1.0, 1.0])
    9.0
    """
    return float(np.percentile(absolute_percentage_errors(predicted, measured=measured), 90))


def mean_abs_log_ratio(predicted: ArrayLike, *, measured: ArrayLike) -> float:
    """Mean absolute natural logarithm of predicted / measured: the figure that ranks models.

    >>> mean_abs_log_ratio([2.0, 0.5], measured=[1.0, 1.0])
    0.6931
    """
    return float(np.mean(np.abs(_log_ratios(predicted, measured))))


def typical_factor_percent(predicted: ArrayLike, *, measured: ArrayLike) -> float:
    r"""Mean absolute log ratio as a percentage: the typical factor between prediction and measurement.

    >>> typical_factor_percent([2.0, 0.5], measured=[1.0, 1.0])
    100.0
    """
    return 100 * math.expm1(mean_abs_log_ratio(predicted, measured=measured))


def geometric_mean_ratio(predicted: ArrayLike, *, measured: ArrayLike) -> float:
    """Geometric mean of predicted / measured: the bias of a model.

    >>> geometric_mean_ratio([2.0, 0.5, 8.0], measured=[1.0, 1.0, 1.0])
    2.0
    """
    return math.exp(float(np.mean(_log_ratios(predicted, measured))))


def share_within(predicted: ArrayLike, *, measured: ArrayLike, percent: float) -> float:
    """Share of the predictions whose error is at most ``percent``.

    >>> share_within([1.05, 1.5], measured=[1.0, 1.0], percent=10)
    0.5
    """
    return float(np.mean(absolute_percentage_errors(predicted, measured=measured) <= percent))


def pair_order(predicted: ArrayLike, *, measured: ArrayLike, groups: Sequence[Any]) -> tuple[float, int]:
    """Share of pairs within a group that the predictions put in the right order.

    With one row for each framework and a group for each network, device and thread count, this is how often
    the model knows which of two frameworks is faster.

    >>> pair_order([1.0, 2.0, 3.0], measured=[1.0, 3.0, 2.0], groups=["a", "a", "a"])
    (0.6666, 3)
    """
    predictions, measurements = _checked(predicted, measured)
    labels = _codes(groups, count=len(measurements))
    first, second = np.nonzero(np.triu(labels[:, None] == labels[None, :], k=1))
    truth = np.sign(measurements[first] - measurements[second])
    guess = np.sign(predictions[first] - predictions[second])
    ordered = truth != 0
    pair_count = int(np.count_nonzero(ordered))
    if pair_count == 0:
        return math.nan, 0
    agreement = 0.5 * (1 + truth[ordered] * guess[ordered])
    return float(np.mean(agreement)), pair_count


def rank_correlation(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """Return Spearman's rank correlation of two lists, equal numbers with their mean rank; NaN if one is constant. [1]

    >>> rank_correlation([1.0, 2.0, 3.0], [10.0, 30.0, 20.0])
    0.5
    """
    from scipy.stats import spearmanr  # takes long to import

    if 1 in (len(set(predicted)), len(set(measured))):
        return math.nan  # as scipy returns, which warns
    return float(spearmanr(predicted, measured).statistic)


def factor_of_least_mape(predicted: ArrayLike, *, measured: ArrayLike) -> float:
    """Factor on all predictions that makes their mean absolute percentage error smallest.

    >>> factor_of_least_mape([1.0, 1.0], measured=[2.0, 8.0])
    2.0
    """
    predictions, measurements = _checked(predicted, measured)
    factors = measurements / predictions
    order = np.argsort(factors)
    weights = np.cumsum(1 / factors[order])
    return float(factors[order][np.searchsorted(weights, weights[-1] / 2)])


def factor_of_least_log_error(predicted: ArrayLike, *, measured: ArrayLike) -> float:
    """Factor on all predictions that makes the mean of |ln(predicted / measured)| smallest.

    >>> factor_of_least_log_error([1.0, 1.0, 1.0], measured=[2.0, 3.0, 8.0])
    3.0
    """
    predictions, measurements = _checked(predicted, measured)
    return float(np.median(measurements / predictions))


RESAMPLES: Final = 1000
"""Tables that a bootstrap draws. [1]"""


def bootstrap_interval(
    statistic: Callable[..., float],
    predicted: ArrayLike,
    *,
    measured: ArrayLike,
    rows: Sequence[Any],
    seed: int = 0,
) -> tuple[float, float]:
    """90 % interval of a metric when whole rows of the table are drawn again with replacement.

    Cells of one row (a framework and network on one device, at all its thread counts) err together, so they
    are drawn together; drawing cells alone would give too narrow an interval.

    >>> bootstrap_interval(mape, [1.1, 1.2, 1.3], measured=[1.0, 1.0, 1.0], rows=["a", "b", "c"])
    (13.333333, 26.666667)
    """
    predictions, measurements = _checked(predicted, measured)
    labels = _codes(rows, count=len(measurements))
    cells_of_row = [np.nonzero(labels == label)[0] for label in range(labels.max() + 1)]
    generator = np.random.default_rng(seed)
    values = np.empty(RESAMPLES)
    for draw in range(RESAMPLES):
        chosen = generator.integers(len(cells_of_row), size=len(cells_of_row))
        cells = np.concatenate([cells_of_row[row] for row in chosen])
        values[draw] = statistic(predictions[cells], measured=measurements[cells])
    low, high = np.quantile(values, [0.05, 0.95])
    return float(low), float(high)


def _log_ratios(predicted: ArrayLike, measured: ArrayLike) -> Floats:
    predictions, measurements = _checked(predicted, measured)
    ratios: Floats = np.log(predictions / measurements)
    return ratios


def _checked(predicted: ArrayLike, measured: ArrayLike) -> tuple[Floats, Floats]:
    """Return both as equally long arrays of positive finite numbers."""
    predictions = np.atleast_1d(np.asarray(predicted, dtype=np.float64))
    measurements = np.atleast_1d(np.asarray(measured, dtype=np.float64))
    if predictions.shape != measurements.shape or predictions.ndim != 1 or predictions.size == 0:
        shapes = f"{predictions.shape} and {measurements.shape}"
        allowed = "two lists of the same length with at least one value"
        raise ArgumentError(argument="predicted, measured", given=f"shapes {shapes}", allowed=allowed)
    for name, numbers in (("predicted", predictions), ("measured", measurements)):
        wrong = ~(np.isfinite(numbers) & (numbers > 0))
        if wrong.any():
            place = int(np.argmax(wrong))
            allowed = "positive finite numbers"
            raise ArgumentError(argument=f"{name}[{place}]", given=float(numbers[place]), allowed=allowed)
    return predictions, measurements


def _codes(labels: Sequence[Any], *, count: int) -> NDArray[np.int64]:
    """Return the labels as whole numbers from 0 in order of first appearance."""
    if len(labels) != count:
        allowed = f"one label for each of the {count} rows"
        raise ArgumentError(argument="labels", given=f"{len(labels)} labels", allowed=allowed)
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(label, len(numbers)) for label in labels], dtype=np.int64)


LEVEL: Final = 0.8
"""Share of measured times that the intervals should hold. [1]"""


def coverage(low: ArrayLike, high: ArrayLike, *, measured: ArrayLike) -> float:
    """Share of measured values that lie within their intervals.

    >>> coverage([1.0, 1.0], [2.0, 2.0], measured=[1.5, 3.0])
    0.5
    """
    lows, highs, values = _checked_ends(low, high, measured)
    return float(np.mean((lows <= values) & (values <= highs)))


def median_ratio(low: ArrayLike, high: ArrayLike) -> float:
    """Median of high over low: how sharp intervals are.

    >>> median_ratio([1.0, 2.0, 4.0], [2.0, 3.0, 16.0])
    2.0
    """
    lows, highs, _ = _checked_ends(low, high, low)
    return float(np.median(highs / lows))


def interval_score(low: ArrayLike, high: ArrayLike, *, measured: ArrayLike, level: float = LEVEL) -> float:
    r"""Mean interval score: width plus a penalty for misses. Lower is better; only the true quantiles are best.

    .. math:: S = (u - l) + \frac{2}{\alpha} (l - y)^+ + \frac{2}{\alpha} (y - u)^+, \quad \alpha = 1 - p

    Parameters
    ----------
    low, high, measured : array_like of float, shape (n,)
        Ends l and u, and measured values y: times, or logarithms of times. [s or 1]
    level : float
        Share p that the intervals should hold. [1]

    Returns
    -------
    float
        Mean score. [unit of the values]

    Raises
    ------
    ArgumentError
        If shapes differ, there are no values, or a low end is above its high end.

    References
    ----------
    .. [1] T. Gneiting, A. E. Raftery, Strictly proper scoring rules, prediction, and estimation, JASA 102, 2007,
       equation 43; R. L. Winkler, JASA 67, 1972.

    Examples
    --------
    >>> interval_score([1.0, 1.0], [2.0, 2.0], measured=[1.5, 2.2])
    2.0
    """
    lows, highs, values = _checked_ends(low, high, measured)
    missed = np.maximum(lows - values, 0.0) + np.maximum(values - highs, 0.0)
    return float(np.mean(highs - lows + 2 / (1 - level) * missed))


def _checked_ends(low: ArrayLike, high: ArrayLike, measured: ArrayLike) -> tuple[Floats, Floats, Floats]:
    lows, highs, values = (np.asarray(values, dtype=np.float64) for values in (low, high, measured))
    if not lows.shape == highs.shape == values.shape or lows.size == 0:
        argument, allowed = "low", "as many low and high ends as measured values, at least one"
        raise ArgumentError(argument, [ends.shape for ends in (lows, highs, values)], allowed)
    if not bool(np.all(lows <= highs)):  # NaN is rejected too
        argument, allowed = "low", "ends that are numbers, the low one not above the high one"
        crossed: Any = [lows[~(lows <= highs)][0], highs[~(lows <= highs)][0]]
        raise ArgumentError(argument, crossed, allowed)
    return lows, highs, values
