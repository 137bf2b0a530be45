"""What an expression comes to all over an interval of one symbol: bounds that hold for every value in it.

Interval arithmetic, forward through the named expressions, for many intervals at once. Of Max, Min and Piecewise only
the branches that may count somewhere in the interval are kept; where only one may, and no ceiling steps, the expression
is smooth and its derivative is bounded too.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Final, NamedTuple

import numpy as np
import sympy

from perfmodel.planning.formulas.definitions import Definitions


class Bounds(NamedTuple):
    """Of an expression over each of several intervals.

    ``low`` and ``high`` bound its values [unit of the expression], ``slope_low`` and ``slope_high`` its derivative
    where it has one [unit of the expression over that of the symbol]; ``jumps`` tells where it may jump [-].
    """

    low: Any
    high: Any
    slope_low: Any
    slope_high: Any
    jumps: Any

    def __neg__(self) -> Bounds:
        return Bounds(-self.high, -self.low, -self.slope_high, -self.slope_low, self.jumps)

    def __add__(self, other: Any) -> Bounds:
        return _add([self, other])


def constant(value: float) -> Bounds:
    """Return the bounds of a number."""
    return Bounds(value, value, 0.0, 0.0, False)


def _span(corners: Sequence[Any]) -> tuple[Any, Any]:
    return reduce(np.minimum, corners), reduce(np.maximum, corners)


def _times(one: tuple[Any, Any], other: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return the bounds of a product; nothing times anything is nothing, even times what has no bound."""
    return _span([np.where((a == 0) | (b == 0), 0.0, a * b) for a in one for b in other])


def _add(terms: Sequence[Bounds]) -> Bounds:
    low, high, slope_low, slope_high = (sum(each[place] for each in terms) for place in range(4))
    return Bounds(low, high, slope_low, slope_high, reduce(operator.or_, (each.jumps for each in terms)))


def _product(one: Bounds, other: Bounds) -> Bounds:
    slopes = [_times((a.low, a.high), (b.slope_low, b.slope_high)) for a, b in ((one, other), (other, one))]
    low, high = _times((one.low, one.high), (other.low, other.high))
    return Bounds(low, high, slopes[0][0] + slopes[1][0], slopes[0][1] + slopes[1][1], one.jumps | other.jumps)


def _multiply(factors: Sequence[Bounds]) -> Bounds:
    numbers = [each for each in factors if np.ndim(each.low) == 0]
    moving = [each for each in factors if np.ndim(each.low)]
    scale = float(np.prod([each.low for each in numbers]))
    if not moving:
        return constant(scale)
    found = reduce(_product, moving)
    if scale < 0:
        found, scale = -found, -scale
    low, high, slope_low, slope_high = (scale * each for each in found[:4])
    return Bounds(low, high, slope_low, slope_high, found.jumps)


def _powers(base: Bounds, exponent: float) -> tuple[Any, Any]:
    ends = base.low**exponent, base.high**exponent
    low, high = ends if exponent > 0 else ends[::-1]
    # of what is below zero nothing is told
    return np.where(base.low < 0, -np.inf, low), np.where(base.low < 0, np.inf, high)


def _power(arguments: Sequence[Bounds]) -> Bounds:
    base, exponent = arguments
    if np.ndim(exponent.low):
        return _exponential([_product(exponent, _logarithm([base]))])
    power = float(exponent.low)
    if power == 1:
        return base
    if power == 0:
        return constant(1.0)
    low, high = _powers(base, power)
    steepness = _times((power, power), _powers(base, power - 1))
    slope_low, slope_high = _times(steepness, (base.slope_low, base.slope_high))
    return Bounds(low, high, slope_low, slope_high, base.jumps)


def _exponential(arguments: Sequence[Bounds]) -> Bounds:
    (inner,) = arguments
    low, high = np.exp(inner.low), np.exp(inner.high)
    return Bounds(low, high, *_times((low, high), (inner.slope_low, inner.slope_high)), inner.jumps)


def _logarithm(arguments: Sequence[Bounds]) -> Bounds:
    (inner,) = arguments
    slopes = _times((1 / inner.high, 1 / inner.low), (inner.slope_low, inner.slope_high))
    return Bounds(np.log(inner.low), np.log(inner.high), *slopes, inner.jumps)


def _ceiling(arguments: Sequence[Bounds]) -> Bounds:
    above, below = arguments
    low, high = _times((above.low, above.high), (1 / below.high, 1 / below.low))
    low, high = np.ceil(low), np.ceil(high)
    return Bounds(low, high, 0.0 * low, 0.0 * low, low != high)


def _hull(pieces: Sequence[tuple[Any, Bounds]]) -> tuple[Any, Any, Any]:
    """Return bounds of the slopes of those that may count, and whether one of them may jump."""
    slope_low = reduce(np.minimum, (np.where(may, each.slope_low, np.inf) for may, each in pieces))
    slope_high = reduce(np.maximum, (np.where(may, each.slope_high, -np.inf) for may, each in pieces))
    return slope_low, slope_high, reduce(operator.or_, (may & each.jumps for may, each in pieces))


def _largest(arguments: Sequence[Bounds]) -> Bounds:
    low, high = (reduce(np.maximum, (each[place] for each in arguments)) for place in (0, 1))
    return Bounds(low, high, *_hull([(each.high >= low, each) for each in arguments]))


def _smallest(arguments: Sequence[Bounds]) -> Bounds:
    return -_largest([-each for each in arguments])


def _may_and_must(relation: str, left: Bounds, right: Bounds) -> tuple[Any, Any]:
    """Tell where a comparison may hold, and where it does all over the interval."""
    if relation in ("<", "<="):
        return _may_and_must({"<": ">", "<=": ">="}[relation], right, left)
    compare: Callable[[Any, Any], Any] = operator.gt if relation == ">" else operator.ge
    return compare(left.high, right.low), compare(left.low, right.high)


def _chosen(conditions: Sequence[str], arguments: Sequence[Bounds]) -> Bounds:
    """Return the bounds of a Piecewise from those of its values, and of both sides of each condition after them."""
    values, sides = arguments[: len(conditions)], arguments[len(conditions) :]
    open_still: Any = np.True_
    pieces = []
    for place, (value, relation) in enumerate(zip(values, conditions, strict=True)):
        may, must = (
            (np.True_, np.True_)
            if relation == "always"
            else _may_and_must(relation, sides[2 * place], sides[2 * place + 1])
        )
        pieces.append((open_still & may, value))
        open_still = open_still & ~np.asarray(must)
    low = reduce(np.minimum, (np.where(may, each.low, np.inf) for may, each in pieces))
    high = reduce(np.maximum, (np.where(may, each.high, -np.inf) for may, each in pieces))
    slope_low, slope_high, jumps = _hull(pieces)
    several = sum(np.asarray(may).astype(int) for may, _ in pieces) > 1
    return Bounds(low, high, slope_low, slope_high, jumps | several)


_RULES: Final[dict[type, Callable[[Sequence[Bounds]], Bounds]]] = {
    sympy.Add: _add,
    sympy.Mul: _multiply,
    sympy.Pow: _power,
    sympy.exp: _exponential,
    sympy.log: _logarithm,
    sympy.ceiling: _ceiling,
    sympy.Max: _largest,
    sympy.Min: _smallest,
}
"""Kind of node -> its bounds from those of its arguments."""


class Bounded:
    """An expression made ready to be bounded over intervals of a symbol.

    Parameters
    ----------
    definitions : Definitions
        Named expressions. [-]
    expression : sympy.Expr
        What is bounded. [-]
    symbol : sympy.Symbol
        What moves. [-]
    at : mapping of sympy.Symbol to float
        Values of all other symbols. [unit of each]
    """

    def __init__(
        self, definitions: Definitions, expression: Any, symbol: sympy.Symbol, at: Mapping[sympy.Symbol, float]
    ) -> None:
        self._steps: list[tuple[int, Callable[[Sequence[Bounds]], Bounds], tuple[int, ...]]] = []
        self._known: dict[int, Bounds] = {1 + place: constant(value) for place, value in enumerate(at.values())}
        self._places: dict[Any, int] = {symbol: 0} | {each: 1 + place for place, each in enumerate(at)}
        with np.errstate(all="ignore"):
            for name, each in definitions.needed_for([expression]).expressions.items():
                self._places[name] = self._placed(each)
            self._wanted = self._placed(sympy.sympify(expression))

    def _placed(self, node: Any) -> int:
        """Return the place of a node, after those of its arguments; what does not move is computed once."""
        if node in self._places:
            return self._places[node]
        if node.is_number:
            return self._put(node, None, (), constant(float(node)))
        if isinstance(node, sympy.Piecewise):
            return self._piecewise(node)
        inner = node.args[0].as_numer_denom() if isinstance(node, sympy.ceiling) else node.args
        return self._put(node, _RULES[type(node)], tuple(self._placed(each) for each in inner))

    def _piecewise(self, node: Any) -> int:
        always = (sympy.true, sympy.false)
        pieces = [(value, condition) for value, condition in node.args if condition != sympy.false]
        conditions = ["always" if condition in always else condition.rel_op for _, condition in pieces]
        sides = [
            side
            for value, condition in pieces
            for side in ((value, value) if condition in always else (condition.lhs, condition.rhs))
        ]
        inner = [*(value for value, _ in pieces), *sides]
        return self._put(
            node, lambda arguments: _chosen(conditions, arguments), tuple(self._placed(each) for each in inner)
        )

    def _put(self, node: Any, rule: Any, arguments: tuple[int, ...], known: Bounds | None = None) -> int:
        place = self._places[node] = len(self._places)
        if known is None and all(each in self._known for each in arguments):
            found = rule([self._known[each] for each in arguments])
            known = constant(float(found.low))
        if known is None:
            self._steps.append((place, rule, arguments))
        else:
            self._known[place] = known
        return place

    def __call__(self, low: Any, high: Any) -> Bounds:
        """Return the bounds over intervals.

        Parameters
        ----------
        low, high : ndarray, shape (intervals,)
            Their ends. [unit of the symbol]

        Returns
        -------
        Bounds
            Each of shape (intervals,). [unit of the expression]
        """
        ones = np.ones_like(low)
        values = {**self._known, 0: Bounds(low, high, ones, ones, np.zeros(len(low), dtype=bool))}
        last = {each: step for step, (_, _, arguments) in enumerate(self._steps) for each in arguments}
        with np.errstate(all="ignore"):
            for step, (place, rule, arguments) in enumerate(self._steps):
                values[place] = rule([values[each] for each in arguments])
                for each in set(arguments):
                    if last[each] == step and each != self._wanted:
                        values.pop(each)
        found = values[self._wanted]
        return Bounds(*(np.broadcast_to(each, np.shape(low)) for each in found))
