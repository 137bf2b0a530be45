"""Checks of single values; each returns the value in the form that the library uses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from perfmodel.errors import ArgumentError, UnknownNameError, whole_numbers_text
from perfmodel.numeric import is_real
from perfmodel.plain_text import plain
from perfmodel.records import ELEMENT_BYTES, Phase

HOST_MEMORY: Final = "memory"
"""Value of ``input_from`` for examples already decoded in memory."""

MERGED: Final = "merged"
"""Message size that merges gradients whenever this shortens the step."""

NO_SYNC = "none"
"""Value of ``sync`` for workers that exchange nothing, as in inference or hyper-parameter search."""


def of_type(name: str, value: Any, types: tuple[type, ...], allowed: str) -> None:
    """Raise unless a value has one of the given types."""
    if value is not None and not isinstance(value, types):
        raise ArgumentError(name, value, allowed)


MOST_COUNT: Final = 2**63 - 1
"""Largest whole number of an argument: what arrays of numbers hold. [1]"""


def is_finite_number(value: Any) -> bool:
    """Tell whether a value is a number that a float holds; a Boolean is none.

    >>> is_finite_number(2), is_finite_number(10**400), is_finite_number(True)
    (True, False, False)
    """
    try:
        return is_real(value) and math.isfinite(value)
    except OverflowError:
        return False


MOST_ENTRIES: Final = 1_000_000
"""Longest list of an argument, of a verb or of an axis of a sweep: a longer one is a typing error. [1]"""


def is_huge(value: Any) -> bool:
    """Tell whether a value is a range with more numbers than memory should hold.

    >>> is_huge(range(10**30)), is_huge(range(100)), is_huge([1, 2])
    (True, False, False)
    """
    return isinstance(value, range) and bool(value[MOST_ENTRIES:])


def has(value: Any, attribute: str) -> bool:
    """Tell whether an object has an attribute; if looking for it raises any error, it has not."""
    try:
        return hasattr(value, attribute)
    except Exception:
        return False


def entries_of(name: str, value: Any) -> Iterator[Any]:
    """Yield the entries of a list; refuse a list that raises an error before its end."""
    try:
        yield from value.tolist() if isinstance(value, np.ndarray) else value
    except Exception as error:
        if isinstance(value, np.ndarray):  # of no dimension
            raise ArgumentError(name, value, "a list of at least one entry") from None
        raise ArgumentError(name, value, f"a list that can be read to its end, which raised {error!r}") from error


def bounded_entries(name: str, value: Any) -> Iterator[Any]:
    """Yield the entries of a list; one that cannot be read to its end, or has more than a million, is refused."""
    for number, entry in enumerate(entries_of(name, value)):
        if number == MOST_ENTRIES:
            raise ArgumentError(name, value, f"a list of at most {MOST_ENTRIES:,} entries")
        yield entry


def whole_number(name: str, value: Any, *, minimum: int = 1, maximum: int | None = None) -> int:
    """Check a whole number; 2.0 counts as one."""
    if type(value) is int and minimum <= value <= MOST_COUNT and maximum is None:  # as most are
        return value
    is_whole = (
        is_finite_number(value)
        and value == int(value)
        and value >= minimum
        and value <= (MOST_COUNT if maximum is None else maximum)
    )
    if not is_whole:
        is_huge = type(value) is int and value > MOST_COUNT
        most = MOST_COUNT if maximum is None and is_huge else maximum
        allowed = f"a whole number >= {minimum}" if most is None else whole_numbers_text(minimum, most)
        raise ArgumentError(name, value, allowed)
    return int(value)


def positive(name: str, value: Any) -> float:
    """Check a finite number above zero."""
    if not is_finite_number(value) or not value > 0:
        raise ArgumentError(name, value, "a finite number above 0")
    return float(value)


def from_zero_to(most: float, name: str, value: Any) -> float:
    """Check a number from zero to a limit."""
    if type(value) is float and 0 <= value <= most:
        return value
    if not (is_finite_number(value) and 0 <= value <= most):
        raise ArgumentError(name, value, f"a number from 0 to {most:g}")
    return float(value)


def one_of(name: str, value: Any, known: tuple[str, ...]) -> str:
    """Check one of a few names."""
    if not isinstance(value, str) or value not in known:
        raise UnknownNameError(name, value, known)
    return plain(value)  # type: ignore[no-any-return]


def flag(name: str, value: Any) -> bool:
    """Check True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ArgumentError(name, value, "true or false")
    return bool(value)


PREDICTED_PHASES = (Phase.STEP, Phase.FORWARD_BACKWARD, Phase.FORWARD)
"""Phases that predict supports."""

DTYPES = tuple(ELEMENT_BYTES)
"""Data types of a prediction, if the device states a peak for them."""


def resolved_batch_size(batch_size: Any, global_batch_size: Any, *, workers: int = 1) -> int:
    """Batch size per worker, from itself or from the global batch size."""
    if batch_size is None and global_batch_size is None:
        raise ArgumentError("batch_size", None, "given as a whole number >= 1, or global_batch_size= in its place")
    if batch_size is None:
        whole = whole_number("global_batch_size", global_batch_size)
        if whole % workers:
            raise ArgumentError("global_batch_size", global_batch_size, f"a multiple of the {workers} workers")
        return whole // workers
    if global_batch_size is not None and global_batch_size != batch_size * workers:
        asked = f"{batch_size!r} with one worker" if workers == 1 else f"{batch_size!r} times {workers} workers"
        raise ArgumentError("global_batch_size", global_batch_size, f"the same as batch_size={asked}")
    return whole_number("batch_size", batch_size)
