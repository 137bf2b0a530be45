"""Answers of ``predict`` written as closed forms of a few terms, where what a system gives is composed of none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import sympy

from perfmodel.errors import ArgumentError
from perfmodel.numeric import maximum
from perfmodel.planning.formulas.exchange import TOLERANCE

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROUNDING: Final = 1e-10
"""How far a line through two answers far apart may be from the others. [1]"""


def in_workers(symbol: sympy.Symbol, counts: Sequence[int]) -> Callable[[NDArray[np.float64]], Any]:
    """Return what writes answers at all numbers of workers as sums of 1, p and 1 / p, stretch by stretch."""
    p = np.asarray(counts, dtype=float)
    basis = np.stack([np.ones_like(p), p, 1 / p], axis=1)

    def line(answers: NDArray[np.float64], start: int, end: int) -> NDArray[np.float64] | None:
        found = np.linalg.lstsq(basis[start:end], answers[start:end], rcond=None)[0]
        close = np.abs(basis[start:end] @ found - answers[start:end]) <= TOLERANCE * np.abs(answers[start:end])
        return found if close.all() else None

    def written(answers: NDArray[np.float64]) -> Any:
        pieces, start = [], 0
        while start < len(p):
            end = next(end for end in range(len(p), start, -1) if line(answers, start, end) is not None)
            factors = line(answers, start, end)
            assert factors is not None
            scale = np.abs(factors).max()
            one, rising, falling = (float(each) if abs(each) > TOLERANCE * scale else 0 for each in factors)
            pieces.append((one + rising * symbol + falling / symbol, symbol <= int(p[end - 1])))
            start = end
        return pieces[0][0] if len(pieces) == 1 else sympy.Piecewise(*pieces[:-1], (pieces[-1][0], True))

    return written


def in_links(symbol: sympy.Symbol, amount: Any, amounts: NDArray[np.float64]) -> Callable[[NDArray[np.float64]], Any]:
    """Return what writes answers as max(a + b x, c), where x is a latency or an inverse bandwidth.

    Parameters
    ----------
    symbol : sympy.Symbol
        The number of the links that is free. [unit of the symbol]
    amount : sympy.Expr
        Latency, or inverse bandwidth, over the stated one, x. [1]
    amounts : ndarray
        The same where it was asked about. [1]

    Returns
    -------
    callable
        Turns answers at these into a closed form, or raises ArgumentError.
    """
    order = np.argsort(-amounts)
    x = amounts[order]

    def written(answers: NDArray[np.float64]) -> Any:
        answers = answers[order]
        slope = (answers[0] - answers[1]) / (x[0] - x[1])
        constant, least = answers[0] - slope * x[0], answers[-1]
        if abs(constant) <= 1e-9 * answers[0]:  # what is left of it is rounding; proved below either way
            constant = float(min((answers - slope * x).min(), 0.0) if answers.min() <= 0 else max(constant, 0.0))
        found = np.maximum(constant + slope * x, least)
        if (np.abs(found - answers) > ROUNDING * np.abs(answers)).any():
            allowed = (
                "with device=, or links that alone limit what is exchanged: here others share in it, "
                "or their speed decides which way messages take"
            )
            raise ArgumentError("free", symbol.name, allowed)
        if slope == 0:
            return float(least)
        return maximum(float(constant) + float(slope) * amount, float(least))

    return written


def in_several(symbols: Sequence[sympy.Symbol]) -> Callable[[NDArray[np.float64]], Any]:
    """Return what refuses answers that depend on several numbers of a system, unless they are all the same."""

    def written(answers: NDArray[np.float64]) -> Any:
        if np.ptp(answers) <= TOLERANCE * np.abs(answers).max():
            return float(answers[0])
        names = " and ".join(symbol.name for symbol in symbols)
        allowed = "one of them: here messages differ in their ways, and no single expression holds for all of them"
        raise ArgumentError("free", names, allowed)

    return written
