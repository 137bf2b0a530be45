"""Numbers and lists of times that a user gives: what is one, and what is none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfmodel.errors import ArgumentError


def is_number(given: object) -> bool:
    """Return whether a value is one real number; a truth value is none."""
    return isinstance(given, int | float | np.integer | np.floating) and not isinstance(given, bool)


def checked_times(given: object, *, allowed: str) -> tuple[float, ...]:
    """Return times as a tuple.

    Parameters
    ----------
    given : object
        What stands for a list of numbers: a sequence, an array or a column. [any one unit]
    allowed : str
        What is allowed, in words. [-]

    Returns
    -------
    tuple of float
        At least one, each finite and above zero. [unit of ``given``]

    Raises
    ------
    ArgumentError
        If it is no list of such numbers.
    """
    listed = given.tolist() if hasattr(given, "tolist") else given
    entries = tuple(listed) if isinstance(listed, Sequence) and not isinstance(listed, str | bytes) else ()
    if not entries or not all(is_number(each) and 0 < each < np.inf for each in entries):
        raise ArgumentError("times", given, allowed)
    return tuple(float(each) for each in entries)
