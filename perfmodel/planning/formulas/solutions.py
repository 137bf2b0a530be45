"""Solve for a symbol: a formula reaches a target or two formulas cross; in closed form or by bracketing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import sympy

from perfmodel.derived import derived_property
from perfmodel.errors import ArgumentError
from perfmodel.planning.formulas.evaluation import AtPoint, Bounded, Bounds, constant
from perfmodel.planning.formulas.formula_text import changed_branches
from perfmodel.planning.formulas.named_expressions import on_branch, single_values
from perfmodel.planning.formulas.symbols import FREE, by_names, checked_point, known_symbol
from perfmodel.prediction.arguments.checks import is_finite_number
from perfmodel.symbolic import substituted

if TYPE_CHECKING:
    from perfmodel.planning.formulas.formula import Formula

SAME: Final = 1e-13
"""Relative difference below which two numbers are equal except for rounding. [1]"""
NARROW: Final = 1e-9
"""Relative width below which cells are not split. [1]"""
PIECES: Final = 64
"""Most pieces that a cell is split into. [1]"""
AT_ONCE: Final = 1024
"""Cells that are bounded at once. [1]"""
MOST_CELLS: Final = 16 * AT_ONCE
"""Cells that are bounded before a search continues without proof. [1]"""


class Turn(NamedTuple):
    """The two neighbouring places between which a difference first changes sign.

    ``low`` and ``high`` are adjacent, and ``one_turn`` holds the ends of a wider stretch with no other turn in it
    [unit of the symbol]; ``certain`` tells whether it is proven to be the first [-].
    """

    low: float
    high: float
    one_turn: tuple[float, float]
    certain: bool


@dataclass(kw_only=True)
class Search:
    """A search for the sign changes of a difference.

    A cell is an interval of the symbol's values; a turn is a sign change.
    """

    difference: Callable[[Any], tuple[Any, Any]]
    bounds: Callable[[Any, Any], Bounds]
    unit: float
    certain: bool = field(default=True, init=False)

    def signs(self, places: Any) -> Any:
        """Return the sign of the difference at places; 0 within rounding. [1]"""
        difference, scale = self.difference(places)
        return np.where(np.abs(difference) <= SAME * scale, 0.0, np.sign(difference))

    def sign(self, place: float) -> float:
        """Return the sign of the difference at one place. [1]"""
        return float(self.signs(np.array([place]))[0])

    def first_turn(self, places: Any) -> Turn | None:
        """Return the first sign change, None if there is none."""
        start, self.certain = self.sign(places[0]), True
        lows, highs, turn = self._up_to_turn(places[:-1], places[1:], start)
        bounded, rounds = 0, 0
        while True:
            wide = ~self._is_narrow(lows, highs)
            lows, highs = lows[wide], highs[wide]
            if bounded + len(lows) > MOST_CELLS:
                self.certain, lows, highs = False, lows[:0], highs[:0]
            elif start == 0 and rounds:
                # two that are equal at every place tried in a cell count as equal throughout it
                lows, highs = lows[:0], highs[:0]
            bounded += len(lows)
            open_still = ~self._proven(lows, highs, start)
            lows, highs = lows[open_still], highs[open_still]
            is_single = turn is None or self._turns_once(*turn)
            if not len(lows) and is_single:
                break
            count = max(2, min(PIECES, AT_ONCE // (len(lows) + 1)))
            if turn is not None and not is_single:
                lows, highs = np.append(lows, turn[0]), np.append(highs, turn[1])
            lows, highs, earlier = self._up_to_turn(*self._split(lows, highs, count), start)
            turn, rounds = earlier or turn, rounds + 1
        return None if turn is None else Turn(*self._narrowed(*turn, start), turn, self.certain)

    def _up_to_turn(self, lows: Any, highs: Any, start: float) -> tuple[Any, Any, tuple[float, float] | None]:
        """Return the cells before the first whose upper end has another sign, and that cell."""
        turned = np.flatnonzero(self.signs(highs) != start)
        if not len(turned):
            return lows, highs, None
        first = turned[0]
        return lows[:first], highs[:first], (float(lows[first]), float(highs[first]))

    def _is_narrow(self, low: Any, high: Any) -> Any:
        return high - low <= (self.unit or NARROW * low)

    def _proven(self, low: Any, high: Any, start: float) -> Any:
        """Tell which cells provably have the starting sign throughout."""
        proven = np.zeros(len(low), dtype=bool)
        for first in range(0, len(low), AT_ONCE):
            part = slice(first, first + AT_ONCE)
            proven[part] = self._stays(low[part], high[part], start)
        return proven

    def _stays(self, low: Any, high: Any, start: float) -> Any:
        bounds = self.bounds(low, high)
        if start == 0:
            return (bounds.low == 0) & (bounds.high == 0)
        if start < 0:
            bounds = -bounds
        smooth = ~bounds.jumps.astype(bool)
        at_ends = [np.abs(self.difference(end)[0]) for end in (low, high)]
        monotone = (bounds.slope_low >= 0) | (bounds.slope_high <= 0)
        with np.errstate(invalid="ignore"):
            from_low = at_ends[0] + np.minimum(bounds.slope_low, 0) * (high - low) > 0
            from_high = at_ends[1] - np.maximum(bounds.slope_high, 0) * (high - low) > 0
        return (bounds.low > 0) | (smooth & (monotone | from_low | from_high))

    def _turns_once(self, low: float, high: float) -> bool:
        if bool(self._is_narrow(low, high)):
            return True
        bounds = self.bounds(np.array([low]), np.array([high]))
        rises = bool(bounds.slope_low[0] >= 0) or bool(bounds.slope_high[0] <= 0)
        return rises and not bool(bounds.jumps[0])

    def _split(self, lows: Any, highs: Any, count: int) -> tuple[Any, Any]:
        """Split each cell into ``count`` pieces, or one per multiple of the unit if there are fewer."""
        if not self.unit:
            ends = np.geomspace(lows, highs, count + 1)
            ends[0], ends[-1] = lows, highs
            return ends[:-1].T.ravel(), ends[1:].T.ravel()
        ends = self.unit * np.round(np.linspace(lows, highs, count + 1) / self.unit)
        below, above = ends[:-1].T.ravel(), ends[1:].T.ravel()
        return below[above > below], above[above > below]

    def _narrowed(self, low: float, high: float, start: float) -> tuple[float, float]:
        """Narrow a sign change to two neighbouring numbers."""
        while True:
            inner, outer = self._split(np.array([low]), np.array([high]), PIECES)
            keep = (outer > inner) & (inner >= low) & (outer <= high)
            _, _, turn = self._up_to_turn(inner[keep], outer[keep], start)
            if turn is None or turn == (low, high):
                return low, high
            low, high = turn


WIDEST: Final = 1000.0
"""By default search from 1/1000 to 1000 times the stated value. [1]"""

GRID: Final = 400
"""Number of places tried first between the ends. [1]"""

NEAR: Final = 1e-6
"""Relative distance around a solution within which one branch must be active for a closed form. [1]"""

MOST_WHOLE: Final = 4096
"""Largest count tried by default, and most counts that are tried exhaustively. [1]"""

TARGET: Final = sympy.Symbol("T", real=True)
"""Symbol of the target in a closed solution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The value at which a formula reaches a target, or two quantities cross."""

    symbol: str
    value: float
    before: float
    after: float
    method: str
    expression: sympy.Expr | None
    branches: tuple[str, ...]
    equal_between: tuple[float, float] | None
    proven: bool
    sentence: str

    def __float__(self) -> float:
        return float(self.value)

    def __str__(self) -> str:
        return "\n".join([self.sentence, *(f"  {branch}" for branch in self.branches)])


@dataclass(frozen=True, kw_only=True)
class _Question:
    """The equation to solve: the first quantity less the second, or less a target, is zero."""

    first: Formula
    second: Formula | None
    name: str
    target: float
    at: Mapping[str, float]

    @property
    def sides(self) -> list[Formula]:
        return [self.first] if self.second is None else [self.first, self.second]

    def others(self, side: Formula) -> dict[str, float]:
        """Return the values of the other symbols of a side, without the stated ones."""
        return {name: value for name, value in self.at.items() if name in side.symbols}

    @property
    def unit(self) -> int:
        return math.lcm(*(side.opened.unit_of(self.name) for side in self.sides))

    def difference(self, values: Any) -> Any:
        return self.scaled(values)[0]

    def scaled(self, values: Any) -> tuple[Any, Any]:
        """Return differences, and the scale that rounding is measured against."""
        one, *second = [side(**self.others(side), **{self.name: values}) for side in self.sides]
        other = second[0] if second else self.target
        return one - other, np.maximum(np.abs(one), np.abs(other))

    @derived_property
    def _bounded(self) -> list[Bounded]:
        def bounded(side: Formula, expression: Any) -> Bounded:
            values = side.stated | self.others(side)
            at = {side.symbols[name]: value for name, value in values.items() if name != self.name}
            return Bounded(side.definitions, expression, side.symbols[self.name], at)

        one, other = self.first, self.second
        quantity = one.named_parts[one.quantity]
        if other is None:
            return [bounded(one, quantity)]
        if one.opened is other.opened:  # common terms cancel
            return [bounded(one, quantity - one.named_parts[other.quantity])]
        return [bounded(one, quantity), bounded(other, other.named_parts[other.quantity])]

    def bounds(self, low: Any, high: Any) -> Bounds:
        """Return bounds of the difference over intervals of the symbol."""
        one, *other = (bounds_of(low, high) for bounds_of in self._bounded)
        if other:
            return one + -other[0]
        return one if self.second is not None else one + constant(-self.target)

    def points(self, value: float) -> list[tuple[Formula, AtPoint]]:
        return [(side, side.point(self.others(side) | {self.name: value})) for side in self.sides]


def solved(
    first: Formula,
    second: Formula | None,
    symbol: str | sympy.Symbol,
    *,
    target: float,
    at: Mapping[str, float] | None,
    between: tuple[float, float] | None,
) -> Solution:
    """Return the first sign change of the first quantity less the second, or less a target."""
    name = known_symbol(first, symbol)
    if second is not None:
        known_symbol(second, symbol)
    if second is not None and first.unit != second.unit:
        raise ArgumentError("second", second.quantity, f"a quantity in {first.unit}, like {first.quantity}")
    if second is None and not is_finite_number(target):
        raise ArgumentError("target", target, f"a finite number [{first.unit}]")
    sides = [first] if second is None else [first, second]
    point: dict[str, float] = {}
    for key, value in by_names(at).items():
        owner = next((side for side in sides if str(key) in side.symbols or key in side.symbols.values()), first)
        point |= single_values(checked_point(owner, {key: value}))
    if name in point:
        raise ArgumentError("at", dict(at or {}), f"values of the other symbols only: {name} is solved for")
    question = _Question(first=first, second=second, name=name, target=float(target), at=point)
    crossing = _first_crossing(question, _places(first, name, between, unit=question.unit))
    return _whole(question, crossing) if question.unit else _real(question, crossing)


class _Crossing(NamedTuple):
    """The first sign change, the signs around it, and the stretch on which both sides are equal, if any."""

    turn: Turn
    before: float
    after: float
    equal: tuple[float, float] | None
    ends: tuple[float, float]


def _first_crossing(question: _Question, places: Any) -> _Crossing:
    """Return the first sign change, and the stretch of equality there."""
    search = Search(difference=question.scaled, bounds=question.bounds, unit=float(question.unit))
    start, ends = search.sign(places[0]), (float(places[0]), float(places[-1]))
    turn = search.first_turn(places)
    if start == 0:
        until = ends[1] if turn is None else turn.low
        equal = (ends[0], until) if until > ends[0] * (1 + NEAR) else None
        if question.second is None:  # the quantity equals the target from the lower end
            at_once = Turn(ends[0], ends[0], (ends[0], ends[0]), certain=True)
            return _Crossing(at_once, 0.0, 0.0, equal, ends)
        if turn is None:
            allowed = f"a quantity that differs from {question.first.quantity}; the two are equal everywhere"
            raise ArgumentError("second", question.second.quantity, allowed)
        return _Crossing(turn, 0.0, search.sign(turn.high), equal, ends)
    if turn is None:
        raise _no_crossing(question, places, proven=search.certain)
    after = search.sign(turn.high)
    if after:
        return _Crossing(turn, start, after, None, ends)
    later = search.first_turn(np.append(turn.high, places[places > turn.high])) if turn.high < ends[1] else None
    until = ends[1] if later is None else later.low
    equal = (turn.high, until) if until > turn.high * (1 + NEAR) else None
    if later is None:
        return _Crossing(turn, start, 0.0, equal, ends)
    after = search.sign(later.high)
    return _Crossing(turn, start, after, equal, ends)


def _places(formula: Formula, name: str, between: tuple[float, float] | None, *, unit: int) -> Any:
    """Return the places to try: multiples of a unit, else evenly spaced on a logarithmic scale."""
    stated = formula.stated[name]
    ends = between.tolist() if isinstance(between, np.ndarray) else between
    is_pair = isinstance(ends, list | tuple) and len(ends) == 2 and all(map(is_finite_number, ends))
    if between is not None and not is_pair:
        raise ArgumentError("between", between, "two finite numbers above 0, smaller first")
    usual = (unit, unit * MOST_WHOLE) if unit else (stated / WIDEST, stated * WIDEST)
    low, high = map(float, usual if between is None else between)
    limits = formula.opened.ranges.get(name)
    if limits is not None and between is None:
        low, high = max(low, limits.smallest), min(high, limits.largest)
    if not 0 < low < high < np.inf:
        raise ArgumentError("between", between, "two finite numbers above 0, smaller first")
    if limits is not None and not limits.holds(np.array([low, high])):
        raise ArgumentError("between", between, limits.allowed)
    if unit:
        low, high = int(np.ceil(low / unit)), int(np.floor(high / unit))
        if low > high:
            raise ArgumentError("between", between, "a range with at least one whole number")
        if high - low < MOST_WHOLE:
            return unit * np.arange(low, high + 1, dtype=float)
        return unit * np.unique(np.round(np.geomspace(float(low), float(high), MOST_WHOLE)))
    return np.geomspace(low, high, GRID)


def _no_crossing(question: _Question, places: Any, *, proven: bool) -> ArgumentError:
    differences = question.difference(places)
    span = f"{question.name} from {places[0]:.6g} to {places[-1]:.6g}"
    unsure = "" if proven else " at all places tried"
    if question.second is not None:
        sides = (question.first, question.second)
        larger, smaller = sides if differences[0] > 0 else sides[::-1]
        allowed = (
            f"a wider range: there is no crossing for {span}{unsure}, where {larger.quantity} of "
            f"{larger.prediction.target} exceeds {smaller.quantity}"
        )
        return ArgumentError("between", (float(places[0]), float(places[-1])), allowed)
    values = differences + question.target
    reached = f"from {np.min(values):.6g} to {np.max(values):.6g} {question.first.unit}, its range for {span}"
    return ArgumentError("target", question.target, f"{reached}{unsure}; widen between= to look further")


def _in_words(question: _Question, crossing: _Crossing, value: float, how: str) -> str:
    """Return a solution in words; for two quantities, also which is larger on each side."""
    unit = FREE[question.name].unit.removeprefix("1") if question.name in FREE else ""

    def at(place: float) -> str:
        return f"{question.name} = {place:.6g} {unit}".rstrip()

    how = how if crossing.turn.certain else f"{how}; not proven to be the first"
    first, second = question.first, question.second
    if second is None:
        stays = "" if crossing.equal is None else f", and stays there up to {at(crossing.equal[1])}"
        return f"{first.quantity} comes to {question.target:.6g} {first.unit} at {at(value)} ({how}){stays}"
    names = [
        side.quantity if first.opened is second.opened else f"{side.quantity} of {side.prediction.target}"
        for side in (first, second)
    ]

    def larger(sign: float) -> str:
        return names[0] if sign > 0 else names[1]

    after = f"from there on {larger(crossing.after)} is larger{' again' if crossing.after == crossing.before else ''}"
    if crossing.equal is None:
        verb = "cross" if crossing.before * crossing.after < 0 else "are equal"
        return f"{names[0]} and {names[1]} {verb} at {at(value)} ({how})" + (f": {after}" if crossing.after else "")
    before = f"below, {larger(crossing.before)} is larger; " if crossing.before else ""
    beyond = after if crossing.after else "up to the end of the range"
    low, high = crossing.equal
    return f"{names[0]} and {names[1]} are equal from {at(low)} to {high:.6g}: {before}{beyond} ({how})"


def _whole(question: _Question, crossing: _Crossing) -> Solution:
    low, high = crossing.turn.low, crossing.turn.high
    before, after = (float(question.difference(end)) + question.target for end in (low, high))
    first = "whole number" if question.unit == 1 else f"multiple of {question.unit}"
    how = f"the first {first} there; {before:.6g} at {low:g}, {after:.6g} at {high:g}"
    return Solution(
        symbol=question.name,
        value=int(high),
        before=before,
        after=after,
        method="whole numbers",
        expression=None,
        branches=_changes(question, low, high),
        equal_between=crossing.equal,
        proven=crossing.turn.certain,
        sentence=_in_words(question, crossing, high, how),
    )


def _changes(question: _Question, low: float, high: float) -> tuple[str, ...]:
    """Return the branches that change between two values of the symbol."""
    if low == high:
        return ()
    pairs = zip(question.points(low), question.points(high), strict=True)
    changes = [change for (side, one), (_, other) in pairs for change in changed_branches(side, one, other)]
    return tuple(dict.fromkeys(changes))


def _real(question: _Question, crossing: _Crossing) -> Solution:
    root, (low, high) = crossing.turn.high, crossing.turn.one_turn
    beside = [min(max(root * factor, crossing.ends[0]), crossing.ends[1]) for factor in (1 - NEAR, 1 + NEAR)]
    expression, value = None, root
    if crossing.equal is None and not _changes(question, *beside):
        expression, value = _closed(question, root, *beside)
    method = "bracketed" if expression is None else "closed"
    how = "closed form: one branch is active around it" if expression is not None else "bracketed"
    before, after = (float(question.difference(end)) + question.target for end in (beside[0], value))
    if expression is None and question.second is None and abs(after - question.target) > NEAR * abs(question.target):
        # a kernel moves between parts as a whole, so values in between do not occur
        method, how = "jump", f"jumps past it, from {before:.6g} to {after:.6g}"
    return Solution(
        symbol=question.name,
        value=value,
        before=before,
        after=after,
        method=method,
        expression=expression,
        branches=() if expression is not None else _changes(question, low, high),
        equal_between=crossing.equal,
        proven=crossing.turn.certain,
        sentence=_in_words(question, crossing, value, how),
    )


def _closed(question: _Question, root: float, low: float, high: float) -> tuple[sympy.Expr | None, float]:
    """Solve the difference on its active branch, if it is a polynomial of at most the second degree there."""
    x = sympy.Symbol(question.name, positive=True)
    left = -TARGET if question.second is None else sympy.Integer(0)
    for sign, (side, point) in zip((1, -1), question.points(root), strict=False):
        symbol = side.symbols[question.name]
        left += sign * on_branch(point, side.named_parts[side.quantity], only=symbol).xreplace({symbol: x})
    left = sympy.expand(left)
    if not left.is_rational_function(x):  # e.g. dispatch and kernels overlap in part
        return None, root
    numerator = sympy.numer(sympy.together(left))
    if not numerator.has(x) or sympy.degree(numerator, x) > 2:
        return None, root
    for root_expression in sympy.solve(numerator, x):
        value = substituted(root_expression, {TARGET: question.target})
        if value.is_real and low * (1 - 1e-9) <= value <= high * (1 + 1e-9):
            return root_expression, float(value)
    return None, root
