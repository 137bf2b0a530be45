"""Checks of quantities that are given to methods of loaded files, as schemas check those in the files."""

from __future__ import annotations

import math

import numpy as np

from perfmodel.errors import ArgumentError
from perfmodel.symbolic import Quantity, is_symbolic


def check_quantity(name: str, given: Quantity, *, low: float, high: float, allowed: str) -> None:
    """Raise unless a quantity lies in a range; symbols may stand for anything.

    Parameters
    ----------
    name : str
        Argument it was given for. [-]
    given : float, ndarray or sympy.Expr
        What was given. [as ``low``]
    low, high : float
        Smallest and largest value allowed, in every element of an array. [any]
    allowed : str
        How a sentence calls that. [-]

    Raises
    ------
    ArgumentError
        If it lies elsewhere, is NaN, or is no number, as texts and truth values are none.

    Examples
    --------
    >>> check_quantity("size_gib", 20, low=1, high=1000, allowed="from 1 to 1000 GiB")
    """
    if is_symbolic(given):
        return
    is_array = isinstance(given, np.ndarray) and given.dtype.kind in "iuf"
    is_number = isinstance(given, int | float | np.integer | np.floating) and not isinstance(given, bool)
    within = is_array and bool(((given >= low) & (given <= high)).all())
    if not (within or (is_number and not math.isnan(given) and low <= given <= high)):
        raise ArgumentError(name, given, allowed)
