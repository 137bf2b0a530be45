"""Symbols instead of numbers: recognise them, keep them exact, and name expressions of them.

sympy itself is imported only when a symbol is met.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

Quantity = Any
"""A float, an ndarray, a sympy expression, or an object array of sympy expressions."""

NUMBER_TYPES = frozenset({float, int, bool, np.float64, np.bool_})
"""Types of most operands, which are not symbols."""


def is_symbolic(*operands: Quantity) -> bool:
    """Tell whether any operand is a sympy expression or an object array."""
    if "sympy" not in _LOADED:  # without sympy there are no symbols
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


def expression_of(value: Any) -> Any:
    """Return a number as a sympy expression, and an expression unchanged; text is refused, since sympy would run it."""
    import sympy

    return sympy.sympify(value, strict=True)


def substituted(expression: Any, values: Mapping[Any, Any]) -> Any:
    """Return an expression with numbers or expressions for its symbols; text is refused, since sympy would run it."""
    return expression.subs({symbol: expression_of(value) for symbol, value in values.items()})


def elementwise(function: Callable[..., Any], *operands: Quantity) -> Quantity:
    """Apply a scalar sympy function over operands, broadcasting where any of them is an array."""
    if any(isinstance(operand, np.ndarray) for operand in operands):
        return np.frompyfunc(function, len(operands), 1)(*operands)
    return function(*operands)


def exact(value: Quantity) -> Quantity:
    """Convert numbers to the exact fractions of their bits, for exact symbolic counts.

    >>> exact(0.75), exact(np.array([2.0, 96.0]))
    (3/4, array([2, 96], dtype=object))
    """

    def fraction(number: Any) -> Any:
        import sympy

        return number if isinstance(number, sympy.Basic) else sympy.Rational(Fraction(number))

    return elementwise(fraction, value)


Namer = Callable[..., Any]
"""Function from an expression, its name, its place in an array and the ``part`` it belongs to, to its symbol."""

_NAMER: ContextVar[Namer | None] = ContextVar("namer", default=None)
_NO_NAMES = nullcontext()


@contextmanager
def naming(namer: Namer) -> Iterator[None]:
    """Let a function name intermediate expressions inside the block."""
    token = _NAMER.set(namer)
    try:
        yield
    finally:
        _NAMER.reset(token)


def naming_of(part: object) -> AbstractContextManager[None]:
    """Assign the names made inside the block to a part of the formula, such as a stage.

    >>> with naming_of("first stage"):
    ...     named(3.0, "kernel")
    3.0
    """
    namer = _NAMER.get()
    return _NO_NAMES if namer is None else naming(partial(namer, part=part))


def named(value: Quantity, name: str) -> Quantity:
    """Replace an intermediate expression by a name, so that later ones do not repeat it; return numbers unchanged.

    Otherwise the time of a kernel would be written out wherever it is used, and a step's expression would grow with
    the square of the number of kernels. It has an effect only inside :func:`naming`.

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
