"""Columns of measured tables, checked and coded, as naive rules and metrics want them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.errors import ArgumentError

Floats = NDArray[np.float64]
Labels = Sequence[Hashable]


def times_column(measured_s: ArrayLike) -> Floats:
    """Return measured times as a checked column.

    Parameters
    ----------
    measured_s : array_like of float, shape (n,)
        Positive times. [s]

    Returns
    -------
    ndarray, shape (n,)
        The times. [s]

    Raises
    ------
    ArgumentError
        If one is not positive and finite.
    """
    measured = np.atleast_1d(np.asarray(measured_s, dtype=np.float64))
    return column_like(measured, measured, "measured_s")


def column_like(values: ArrayLike, measured: Floats, argument: str) -> Floats:
    """Return positive finite values, one for each measured time.

    Parameters
    ----------
    values : array_like of float, shape (n,)
        A column. [any unit]
    measured : ndarray, shape (n,)
        Measured times. [s]
    argument : str
        What the column was given for. [-]

    Returns
    -------
    ndarray, shape (n,)
        The column. [its unit]

    Raises
    ------
    ArgumentError
        If the lengths differ or a value is not positive and finite.
    """
    numbers = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if numbers.shape != measured.shape or numbers.ndim != 1 or not np.all(np.isfinite(numbers) & (numbers > 0)):
        allowed = f"a list of {measured.size} positive finite numbers"
        raise ArgumentError(argument=argument, given=values, allowed=allowed)
    return numbers


def label_codes(labels: Labels, measured: Floats, argument: str) -> NDArray[np.int64]:
    """Return labels as whole numbers, one for each measured time.

    Parameters
    ----------
    labels : sequence, length n
        Hashable labels. [-]
    measured : ndarray, shape (n,)
        Measured times. [s]
    argument : str
        What the labels were given for. [-]

    Returns
    -------
    ndarray of int, shape (n,)
        The same number for the same label. [1]

    Raises
    ------
    ArgumentError
        If the lengths differ.
    """
    if len(labels) != len(measured):
        allowed = f"one label for each of the {len(measured)} rows"
        raise ArgumentError(argument=argument, given=f"{len(labels)} labels", allowed=allowed)
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(label, len(numbers)) for label in labels], dtype=np.int64)


def mean_over(values: Floats, mask: NDArray[np.bool_]) -> Floats:
    """Return the mean of the values that each row of a mask selects; NaN where it selects none.

    Parameters
    ----------
    values : ndarray, shape (n,)
        Values. [any unit]
    mask : ndarray of bool, shape (m, n)
        Rows of selections. [-]

    Returns
    -------
    ndarray, shape (m,)
        Means. [unit of the values]
    """
    count = mask.sum(axis=1)
    means: Floats = np.where(count > 0, mask @ values / np.maximum(count, 1), np.nan)
    return means
