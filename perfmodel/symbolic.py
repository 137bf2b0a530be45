"""Symbols in place of numbers: recognise them, keep them exact, and name expressions of them.

sympy itself is imported only when a symbol is met.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

Quantity = Any
"""A float, an ndarray, a sympy expression, or an object array of sympy expressions."""

NUMBER_TYPES = frozenset({float, int, bool, np.float64, np.bool_})
"""Types that most operands have, none of them a symbol."""


def is_symbolic(*operands: Quantity) -> bool:
    """Tell whether any operand is a sympy expression or an object array.

    Examples
    --------
    >>> is_symbolic(1.0, 2.0)
    False
    """
    if "sympy" not in _LOADED:  # nobody can have made a symbol
        return False
    for operand in operands:
        kind = type(operand)
        if kind is np.ndarray:
            if operand.dtype.hasobject:
                return True
        elif kind not in NUMBER_TYPES and _is_expression(operand):
            return True
    return False


_LOADED = sys.modules


def _is_expression(operand: Any) -> bool:
    return operand.dtype.hasobject if isinstance(operand, np.ndarray) else isinstance(operand, _LOADED["sympy"].Basic)


def elementwise(function: Callable[..., Any], *operands: Quantity) -> Quantity:
    """Apply a scalar sympy function over operands, broadcasting where any of them is an array."""
    if any(isinstance(operand, np.ndarray) for operand in operands):
        return np.frompyfunc(function, len(operands), 1)(*operands)
    return function(*operands)


def exact(value: Quantity) -> Quantity:
    """Return a number, or an array of them, as the very fraction that its bits are, for exact symbolic counts.

    Examples
    --------
    >>> exact(0.75), exact(np.array([2.0, 96.0]))
    (3/4, array([2, 96], dtype=object))
    """

    def fraction(number: Any) -> Any:
        import sympy

        return number if isinstance(number, sympy.Basic) else sympy.Rational(Fraction(number))

    return elementwise(fraction, value)


Namer = Callable[..., Any]
"""Gets an expression, what it is, its place in its array, and ``part``, what it belongs to; returns its symbol."""

_NAMER: ContextVar[Namer | None] = ContextVar("namer", default=None)
_NO_NAMES = nullcontext()


@contextmanager
def naming(namer: Namer) -> Iterator[None]:
    """Let a function name intermediate expressions, for as long as a formula is written."""
    token = _NAMER.set(namer)
    try:
        yield
    finally:
        _NAMER.reset(token)


def naming_of(part: object) -> AbstractContextManager[None]:
    """Let names that are made meanwhile belong to a part of the formula, such as a stage; else nothing.

    Examples
    --------
    >>> with naming_of("first stage"):
    ...     named(3.0, "kernel")
    3.0
    """
    namer = _NAMER.get()
    return _NO_NAMES if namer is None else naming(partial(namer, part=part))


def named(value: Quantity, name: str) -> Quantity:
    """Return an intermediate under a name of its own, so that what follows does not repeat it; numbers as they are.

    Without this the time of a kernel would be written out wherever it counts, and that of a step would grow with the
    square of the kernels. Only inside :func:`naming` does it change anything.

    Examples
    --------
    >>> named(3.0, "kernel")
    3.0
    """
    if "sympy" not in _LOADED or (namer := _NAMER.get()) is None or not is_symbolic(value):
        return value
    if not isinstance(value, np.ndarray):
        return namer(value, name, 0)
    flat = [namer(entry, name, place) for place, entry in enumerate(value.ravel())]
    names = np.empty(len(flat), dtype=object)
    names[:] = flat
    return names.reshape(value.shape)
