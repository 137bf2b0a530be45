"""Checks of numbers and options given to a layer, an optimizer or a graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np

from perfmodel.errors import ArgumentError, is_one_of, meant, whole_numbers_text
from perfmodel.numeric import NO_NUMBERS
from perfmodel.plain_text import NO_CONTROL_CHARACTERS, is_plain_name
from perfmodel.symbolic import is_symbolic

Check = Callable[[str, Any], None]
"""Raises ArgumentError unless the option of that name may have that value."""


def refuse(argument: str, value: object, allowed: str) -> NoReturn:
    """Raise ArgumentError: the argument, the value given, and what is allowed instead."""
    raise ArgumentError(argument, value, allowed)


def is_open_size(value: object) -> bool:
    """Return whether a size is symbolic: a symbol, or an expression of symbols.

    Examples
    --------
    >>> import sympy
    >>> is_open_size(sympy.Symbol("S")), is_open_size(16)
    (True, False)
    """
    return is_symbolic(value) and bool(getattr(value, "free_symbols", ()))


MOST_COUNT: Final = 10**300
"""Largest number of anything: far beyond it no float holds it, and no refusal can print it. [1]"""


def check_count(argument: str, value: object, *, minimum: int = 1) -> None:
    """Raise ArgumentError unless a value is a whole number from ``minimum`` to 1e300, or a symbol for one.

    Examples
    --------
    >>> check_count("units", 10)
    """
    if is_open_size(value):
        return
    if isinstance(value, NO_NUMBERS) or not isinstance(value, Integral) or value < minimum:
        refuse(argument, value, f"must be a whole number >= {minimum}")
    if int(value) > MOST_COUNT:
        refuse(argument, value, f"must be a whole number from {minimum} to 1e300")


MOST_LOOPS: Final = 1_000_000
"""Largest number of things that are made one by one. [1]"""


def numbered(*, minimum: int = 1) -> Check:
    """Return the check that a value is a whole number of at least ``minimum`` and no symbol: something loops over it.

    Examples
    --------
    >>> numbered()("layers", 12)
    """

    def check(argument: str, value: object) -> None:
        if isinstance(value, NO_NUMBERS) or not isinstance(value, Integral) or not minimum <= int(value) <= MOST_LOOPS:
            allowed = f"must be a whole number from {minimum} to {MOST_LOOPS:,}, and not a symbol"
            refuse(argument, value, allowed)

    return check


def check_widths(argument: str, value: object, *, fewest: int = 1) -> None:
    """Raise ArgumentError unless a value is a sequence of whole numbers of at least 1, or symbols for them.

    Examples
    --------
    >>> check_widths("hidden", (64, 64))
    """
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) < fewest:
        refuse(argument, value, f"must be a sequence of at least {fewest} whole number(s) >= 1, e.g. (64, 64)")
    for width in value:
        check_count(argument, width)


def check_text(argument: str, value: object) -> None:
    """Raise ArgumentError unless a value is a non-empty text in one line, without control characters.

    Examples
    --------
    >>> check_text("name", "resnet50")
    """
    if not isinstance(value, str) or not value:
        refuse(argument, value, "must be a non-empty text")
    if not is_plain_name(value):
        refuse(argument, value, f"{NO_CONTROL_CHARACTERS}, and no line ends")


def check_texts(argument: str, value: object) -> None:
    """Raise ArgumentError unless a value is a list of texts.

    Examples
    --------
    >>> check_texts("layers", ["fc6", "fc7"])
    """
    if not isinstance(value, list | tuple | set | frozenset) or not all(isinstance(entry, str) for entry in value):
        refuse(argument, value, "must be a list of names")


def check_path(argument: str, value: object) -> None:
    """Raise ArgumentError unless a value names a file.

    Examples
    --------
    >>> check_path("path", "network.json")
    """
    try:
        names_file = isinstance(value, str | Path) and bool(Path(value).name)
    except Exception:  # a text of a type of its own
        names_file = False
    if not names_file:
        refuse(argument, value, "must be the path of a file")


def check_flag(argument: str, value: object) -> None:
    """Raise ArgumentError unless a value is true or false.

    Examples
    --------
    >>> check_flag("bias", True)
    """
    if not isinstance(value, bool):
        refuse(argument, value, "must be true or false")


def as_float(value: Any) -> float:
    """Return a number as a float; infinity for a whole number that no float holds.

    Examples
    --------
    >>> as_float(3), as_float(10**400)
    (3.0, inf)
    """
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def check_fraction(argument: str, value: object) -> None:
    """Raise ArgumentError unless a value is a number in [0, 1).

    Examples
    --------
    >>> check_fraction("rate", 0.5)
    """
    if isinstance(value, NO_NUMBERS) or not isinstance(value, Real) or not 0 <= as_float(value) < 1:
        refuse(argument, value, "must be a number in [0, 1)")


def check_number(argument: str, value: object) -> None:
    """Raise ArgumentError unless a value is a finite number.

    Examples
    --------
    >>> check_number("slope", 0.01)
    """
    if isinstance(value, NO_NUMBERS) or not isinstance(value, Real) or not math.isfinite(as_float(value)):
        refuse(argument, value, "must be a finite number")


def check_at_most(argument: str, value: int, *, maximum: int) -> None:
    """Raise ArgumentError if a count is above ``maximum``.

    Examples
    --------
    >>> check_at_most("bias_vectors", 2, maximum=2)
    """
    if not is_open_size(value) and value > maximum:
        refuse(argument, value, f"must be {whole_numbers_text(1, maximum)}")


def check_choice(argument: str, value: object, choices: Iterable[str]) -> None:
    """Raise ArgumentError unless a value is one of a few words; names the nearest.

    Examples
    --------
    >>> check_choice("over", "logits", ("logits", "probabilities"))
    """
    known = tuple(choices)
    if not is_one_of(value, known):
        hint = meant(value, known) if isinstance(value, str) else ""
        refuse(argument, value, f"must be one of {', '.join(map(repr, known))}{hint}")


def one_of(choices: Iterable[str]) -> Check:
    """Return the check that an option is one of a few words.

    Examples
    --------
    >>> one_of(("valid", "same"))("padding", "same")
    """
    return partial(check_choice, choices=tuple(choices))


def optional(check: Check) -> Check:
    """Return a check that lets None pass.

    Examples
    --------
    >>> optional(check_count)("heads", None)
    """
    return lambda argument, value: None if value is None else check(argument, value)


def checked_shape(name: str, shape: object) -> tuple[int, ...]:
    """Return the sample shape of a graph input; raise ArgumentError unless its extents are whole numbers >= 1.

    Examples
    --------
    >>> checked_shape("input", [3, 224, 224])
    (3, 224, 224)
    """
    check_text("name of an input", name)
    if not isinstance(shape, Sequence) or isinstance(shape, str):
        refuse(f"shape of input {name!r}", shape, "must be a sequence of whole numbers >= 1, e.g. (3, 224, 224)")
    for extent in shape:
        check_count(f"shape of input {name!r}", extent)
    return tuple(shape)


def checked_batch_size(batch_size: Any) -> Any:
    """Return a batch size for exact counting: an int, an array of 64-bit integers, or a symbol.

    Examples
    --------
    >>> checked_batch_size(16)
    16
    """
    if type(batch_size) is int and batch_size >= 1:
        return batch_size
    allowed = "must be a whole number >= 1, an array of them, or a symbol"
    is_of_objects = isinstance(batch_size, np.ndarray) and batch_size.dtype == object
    if is_of_objects and not all(is_symbolic(size) or isinstance(size, Real) for size in batch_size.flat):
        refuse("batch_size", batch_size, allowed)
    if is_symbolic(batch_size):
        is_number = getattr(batch_size, "is_number", False)
        if is_number and not (batch_size.is_integer and batch_size >= 1):
            refuse("batch_size", batch_size, allowed)
        return batch_size
    if isinstance(batch_size, np.ndarray):
        numeric = batch_size.dtype.kind in "iuf" and not isinstance(batch_size, np.ma.MaskedArray)
        if not numeric or not np.all(np.isfinite(batch_size) & (batch_size >= 1) & (batch_size % 1 == 0)):
            refuse("batch_size", batch_size, allowed)
        return batch_size.astype(np.int64)
    is_real = isinstance(batch_size, Real) and not isinstance(batch_size, NO_NUMBERS)
    if not is_real or not math.isfinite(as_float(batch_size)) or batch_size < 1 or batch_size % 1:
        refuse("batch_size", batch_size, allowed)
    return int(batch_size)


def check_shape(argument: str, value: object) -> None:
    """Raise ArgumentError unless a shape option is valid: a tuple of whole numbers >= 1, which may be empty.

    Examples
    --------
    >>> check_shape("shape", (64, 49))
    """
    if not isinstance(value, tuple):
        refuse(argument, value, "must be a tuple of whole numbers >= 1, e.g. (64, 49)")
    for extent in value:
        check_count(argument, extent)


def check_axes(argument: str, value: object) -> None:
    """Raise ArgumentError unless axes of a sample are valid: a tuple of whole numbers, each once.

    Examples
    --------
    >>> check_axes("axes", (1, 0))
    """
    allowed = "must be a tuple of whole numbers, each once, e.g. (1, 0)"
    if not isinstance(value, tuple):
        refuse(argument, value, allowed)
    for axis in value:
        check_axis(argument, axis)
    if len(set(value)) < len(value):
        refuse(argument, value, allowed)


def check_axis(argument: str, value: object) -> None:
    """Raise ArgumentError unless an axis of a sample is a whole number; it may count from the end.

    Examples
    --------
    >>> check_axis("axis", -1)
    """
    if isinstance(value, NO_NUMBERS) or not isinstance(value, Integral):
        refuse(argument, value, "must be a whole number, negative to count from the last axis")
