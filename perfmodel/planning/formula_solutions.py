"""Where a formula comes to a target, or two of them to the same: closed where one branch counts, else bracketed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import sympy

from perfmodel.errors import ArgumentError
from perfmodel.planning.formula import checked_point, known_symbol
from perfmodel.planning.formula_symbols import FREE
from perfmodel.planning.formula_values import AtPoint, NoPolynomial, left_of, single_values
from perfmodel.planning.formula_words import changed_branches

if TYPE_CHECKING:
    from perfmodel.planning.formula import Formula

WIDEST: Final = 1000.0
"""How far from the stated value a solution is looked for unless said, either way. [1]"""

GRID: Final = 400
"""Places at which a formula is tried between the ends. [1]"""

NEAR: Final = 1e-6
"""How close around a solution one branch must count for a closed one. [1]"""

MOST_WHOLE: Final = 4096
"""Largest count that is looked at unless said. [1]"""

TARGET: Final = sympy.Symbol("T", real=True)
"""Stands for the target in a closed solution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """Where a formula comes to a target, or two quantities cross.

    Parameters
    ----------
    symbol : str
        What was looked for. [-]
    value : float
        The smallest such value; of a count the first whole number at which the target is reached or passed. [unit of
        the symbol]
    before, after : float
        The quantity, or the first less the second, just below and at that value. [unit of the quantity]
    method : str
        ``closed``, ``bracketed``, ``jump`` where it passes the target without coming to it, or ``whole numbers``. [-]
    expression : sympy.Expr or None
        The closed solution, with ``T`` for the target. [unit of the symbol]
    branches : tuple of str
        Branches that change between the two places that bracket the value; none where it is closed. [-]
    sentence : str
        All of it in words. [-]
    """

    symbol: str
    value: float
    before: float
    after: float
    method: str
    expression: sympy.Expr | None
    branches: tuple[str, ...]
    sentence: str

    def __float__(self) -> float:
        return float(self.value)

    def __str__(self) -> str:
        return "\n".join([self.sentence, *(f"  {branch}" for branch in self.branches)])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """What is solved: where the first less the second, or less a target, changes its sign."""

    first: Formula
    second: Formula | None
    name: str
    target: float
    at: Mapping[str, float]

    def of(self, side: Formula, values: Any) -> Any:
        own = {name: value for name, value in self.at.items() if name in side.symbols}
        return side(**own, **{self.name: values})

    def difference(self, values: Any) -> Any:
        other = self.target if self.second is None else self.of(self.second, values)
        return self.of(self.first, values) - other

    def points(self, value: float) -> list[tuple[Formula, AtPoint]]:
        sides = [self.first] if self.second is None else [self.first, self.second]
        return [
            (side, side.point({name: v for name, v in self.at.items() if name in side.symbols} | {self.name: value}))
            for side in sides
        ]


def solved(
    first: Formula,
    second: Formula | None,
    symbol: str | sympy.Symbol,
    *,
    target: float,
    at: Mapping[str, float] | None,
    between: tuple[float, float] | None,
) -> Solution:
    """Return where the first less the second, or less a target, changes its sign.

    Parameters
    ----------
    first, second : Formula or None
        What is set against one another; without a second, the first against the target. [-]
    symbol : str or sympy.Symbol
        What is looked for. [-]
    target : float
        What the first shall be. [unit of the first]
    at : mapping of str to float or None
        Values of the other symbols. [unit of each]
    between : tuple of float or None
        Where to look. [unit of the symbol]

    Returns
    -------
    Solution
        The smallest value at which that is so.

    Raises
    ------
    ArgumentError
        If there is none in between, or a value is not allowed.
    """
    name = known_symbol(first, symbol)
    if second is not None:
        known_symbol(second, symbol)
    if second is not None and first.unit != second.unit:
        raise ArgumentError("second", second.quantity, f"a quantity in {first.unit}, as {first.quantity} is")
    if second is None and not (isinstance(target, int | float | np.number) and np.isfinite(target)):
        raise ArgumentError("target", target, f"a finite number [{first.unit}]")
    sides = [first] if second is None else [first, second]
    given: dict[str, float] = {}
    for key, value in (at or {}).items():
        owner = next((side for side in sides if str(key) in side.symbols or key in side.symbols.values()), first)
        given |= single_values(checked_point(owner, {key: value}))
    if name in given:
        raise ArgumentError("at", dict(at or {}), f"the other symbols only, as {name} is looked for")
    question = _Question(first=first, second=second, name=name, target=float(target), at=given)
    places = _places(first, name, between)
    differences = question.difference(places)
    if second is not None and not differences.any():
        raise ArgumentError(
            "second", second.quantity, f"another than {first.quantity}, to which it is equal everywhere"
        )
    turns = np.flatnonzero((np.sign(differences[:-1]) != np.sign(differences[1:])) | (differences[:-1] == 0))
    if not len(turns):
        raise _nowhere(question, places, differences)
    low, high = float(places[turns[0]]), float(places[turns[0] + 1])
    if _is_whole(name):
        return _whole(question, low, high)
    return _real(question, low, high)


def _is_whole(name: str) -> bool:
    return name in FREE and FREE[name].whole


def _places(formula: Formula, name: str, between: tuple[float, float] | None) -> Any:
    """Return the places at which a formula is tried: whole numbers of a count, else evenly apart in the logarithm."""
    stated = formula.stated[name]
    if between is not None and (
        np.shape(between) != (2,) or not all(isinstance(end, int | float | np.number) for end in between)
    ):
        raise ArgumentError("between", between, "two finite numbers above 0, the lower one first")
    low, high = between or ((1, MOST_WHOLE) if _is_whole(name) else (stated / WIDEST, stated * WIDEST))
    limits = formula.opened.ranges.get(name)
    if limits is not None and between is None:
        low, high = max(low, limits.smallest), min(high, limits.largest)
    if not 0 < low < high < np.inf:
        raise ArgumentError("between", between, "two finite numbers above 0, the lower one first")
    if limits is not None and not limits.holds(np.array([low, high])):
        raise ArgumentError("between", between, limits.allowed)
    if _is_whole(name):
        low, high = int(np.ceil(low)), int(np.floor(high))
        if low > high:
            raise ArgumentError("between", between, "ends with whole numbers between them")
        if high - low < MOST_WHOLE:
            return np.arange(low, high + 1, dtype=float)
        return np.unique(np.round(np.geomspace(low, high, MOST_WHOLE)))
    return np.geomspace(low, high, GRID)


def _nowhere(question: _Question, places: Any, differences: Any) -> ArgumentError:
    span = f"{question.name} from {places[0]:.6g} to {places[-1]:.6g}"
    if question.second is not None:
        sides = (question.first, question.second)
        larger, smaller = sides if differences[0] > 0 else sides[::-1]
        told = f"where they cross: {larger.quantity} of {larger.prediction.target} exceeds {smaller.quantity} all over "
        return ArgumentError("between", (float(places[0]), float(places[-1])), told + span)
    values = differences + question.target
    reached = f"from {np.min(values):.6g} to {np.max(values):.6g} {question.first.unit}, which it comes to for {span}"
    return ArgumentError("target", question.target, reached)


def _told(question: _Question, value: float, how: str) -> str:
    unit = FREE[question.name].unit.removeprefix("1") if question.name in FREE else ""
    shown = f"{question.name} = {value:.6g} {unit}".rstrip()
    if question.second is None:
        return f"{question.first.quantity} comes to {question.target:.6g} {question.first.unit} at {shown} ({how})"
    names = [
        side.quantity
        if question.first.opened is question.second.opened
        else f"{side.quantity} of {side.prediction.target}"
        for side in (question.first, question.second)
    ]
    return f"{names[0]} and {names[1]} cross at {shown} ({how})"


def _whole(question: _Question, low: float, high: float) -> Solution:
    """Bisect whole numbers: the first at which the sign is no longer what it was."""
    sign = np.sign(question.difference(low))
    if sign == 0:
        high = low
    while high - low > 1:
        middle = float(np.floor((low + high) / 2))
        low, high = (middle, high) if np.sign(question.difference(middle)) == sign else (low, middle)
    before, after = (float(question.difference(each)) + question.target for each in (low, high))
    return Solution(
        symbol=question.name,
        value=int(high),
        before=before,
        after=after,
        method="whole numbers",
        expression=None,
        branches=_changes(question, low, high),
        sentence=_told(
            question, high, f"the first whole number there; {before:.6g} at {low:g}, {after:.6g} at {high:g}"
        ),
    )


def _changes(question: _Question, low: float, high: float) -> tuple[str, ...]:
    """Return what branches change between two values of the symbol."""
    if low == high:
        return ()
    pairs = zip(question.points(low), question.points(high), strict=True)
    found = [change for (side, one), (_, other) in pairs for change in changed_branches(side, one, other)]
    return tuple(dict.fromkeys(found))


def _real(question: _Question, low: float, high: float) -> Solution:
    from scipy.optimize import brentq

    function: Callable[[float], float] = question.difference
    if function(low) == 0:
        root = low
    else:
        # relative to the stated scale: symbols run from microseconds to teraflops
        root = float(
            np.exp(brentq(lambda x: function(float(np.exp(x))), np.log(low), np.log(high), xtol=1e-15, rtol=1e-15))
        )
    beside = [min(max(root * factor, low), high) for factor in (1 - NEAR, 1 + NEAR)]
    expression, value = None, root
    if not _changes(question, *beside):
        expression, value = _closed(question, root, *beside)
    changes = () if expression is not None else _changes(question, low, high)
    method = "bracketed" if expression is None else "closed"
    how = "closed: one branch counts around it" if expression is not None else "bracketed"
    before, after = (float(function(each)) + question.target for each in (value * (1 - NEAR), value))
    if expression is None and question.second is None and abs(after - question.target) > NEAR * abs(question.target):
        # parts that a kernel enters or leaves as a whole do not come to what lies between
        before, after = (float(function(each)) + question.target for each in beside)
        method, how = "jump", f"jumps past it, from {before:.6g} to {after:.6g}"
    return Solution(
        symbol=question.name,
        value=value,
        before=before,
        after=after,
        method=method,
        expression=expression,
        branches=changes,
        sentence=_told(question, value, how),
    )


def _closed(question: _Question, root: float, low: float, high: float) -> tuple[sympy.Expr | None, float]:
    """Solve what is left of the difference where one branch counts, if it is a polynomial of the second degree."""
    x = sympy.Symbol(question.name, positive=True)
    left = -TARGET if question.second is None else sympy.Integer(0)
    try:
        for sign, (side, point) in zip((1, -1), question.points(root), strict=False):
            powers = left_of(point, side.named_parts[side.quantity], side.symbols[question.name])
            left += sign * sum(sympy.Float(factor) * x**power for power, factor in powers.items() if factor)
    except NoPolynomial:
        return None, root
    numerator = sympy.numer(sympy.together(left))
    if not numerator.has(x) or sympy.degree(numerator, x) > 2:
        return None, root
    for found in sympy.solve(numerator, x):
        value = found.subs(TARGET, question.target)
        if value.is_real and low * (1 - 1e-9) <= value <= high * (1 + 1e-9):
            return found, float(value)
    return None, root
