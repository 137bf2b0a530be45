"""Values, derivatives and bounds of named expressions, from one walk over their nodes.

``Values`` computes numbers and arrays. ``Bounded`` is interval arithmetic for many intervals of one symbol at once:
Max, Min and Piecewise keep only the branches that may be active somewhere in the interval; if there is only one, and no
ceiling steps, the expression is smooth and its derivative is bounded too. An expression that divides by zero, as
branches not taken may, and a node without a rule have infinite bounds. ``AtPoint`` is the same at one point, where both
bounds are the value, with a derivative by each symbol.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, Final, NamedTuple

import numpy as np
import sympy

from perfmodel.derived import derived_property
from perfmodel.planning.formulas.named_expressions import Definitions, Hidden, Leading, Taken, number_of, without_mod
from perfmodel.symbolic import expression_of, substituted


class Bounds(NamedTuple):
    """Bounds of an expression over each of several intervals.

    ``low`` and ``high`` bound its values [unit of the expression], ``slope_low`` and ``slope_high`` its derivative
    if it has one [unit of the expression over that of the symbol]; ``jumps`` tells where it may jump [-].
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
    value = np.float64(value)  # so that division by zero works as for arrays
    return Bounds(value, value, 0.0, 0.0, np.False_)


UNKNOWN: Final = Bounds(np.float64(-np.inf), np.float64(np.inf), -np.inf, np.inf, np.True_)
"""Bounds of an unknown value: everything."""


def _widened(bounds: Bounds) -> Bounds:
    """Replace NaN bounds by infinite ones."""
    ends = zip(bounds[:4], UNKNOWN[:4], strict=True)
    sure: list[Any] = [np.where(np.isnan(end), widest, end) if np.isnan(end).any() else end for end, widest in ends]
    return Bounds(sure[0], sure[1], sure[2], sure[3], bounds.jumps)


def _is_number(bounds: Bounds) -> bool:
    return np.ndim(bounds.low) == 0 and bool(bounds.low == bounds.high)


def _span(corners: Sequence[Any]) -> tuple[Any, Any]:
    return reduce(np.minimum, corners), reduce(np.maximum, corners)


def _times(one: tuple[Any, Any], other: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return the bounds of a product; zero times an unbounded factor is zero."""
    return _span([np.where((a == 0) | (b == 0), 0.0, a * b) for a in one for b in other])


def _over(one: tuple[Any, Any], other: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return the bounds of a quotient, each end rounded like the quotient itself; infinite if it may divide by zero."""
    low, high = _span([a / b for a in one for b in other])
    has_pole = (other[0] <= 0) & (other[1] >= 0)
    return np.where(has_pole, -np.inf, low), np.where(has_pole, np.inf, high)


def _add(terms: Sequence[Bounds]) -> Bounds:
    low, high, slope_low, slope_high = (sum(term[place] for term in terms) for place in range(4))
    return Bounds(low, high, slope_low, slope_high, reduce(operator.or_, (term.jumps for term in terms)))


def _product(one: Bounds, other: Bounds) -> Bounds:
    slopes = [_times((a.low, a.high), (b.slope_low, b.slope_high)) for a, b in ((one, other), (other, one))]
    low, high = _times((one.low, one.high), (other.low, other.high))
    return Bounds(low, high, slopes[0][0] + slopes[1][0], slopes[0][1] + slopes[1][1], one.jumps | other.jumps)


def _multiply(factors: Sequence[Bounds]) -> Bounds:
    numbers = [factor for factor in factors if _is_number(factor)]
    moving = [factor for factor in factors if not _is_number(factor)]
    scale = float(np.prod([factor.low for factor in numbers]))
    if not moving or scale == 0:
        return constant(scale)
    product = reduce(_product, moving)
    if scale < 0:
        product, scale = -product, -scale
    low, high, slope_low, slope_high = (scale * end for end in product[:4])
    return Bounds(low, high, slope_low, slope_high, product.jumps)


def _powers(base: Bounds, exponent: float) -> tuple[Any, Any]:
    ends = (
        (base.low + 0.0) ** exponent,
        (base.high + 0.0) ** exponent,
    )  # adding 0.0 makes zero positive, so that 1/0 is +inf
    low, high = ends if exponent > 0 else ends[::-1]
    # an interval that begins below zero has unknown results
    is_unknown = (base.low < 0) & (base.low != base.high)
    return np.where(is_unknown, -np.inf, low), np.where(is_unknown, np.inf, high)


def _power(arguments: Sequence[Bounds]) -> Bounds:
    base, exponent = arguments
    if not _is_number(exponent):
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
    steepness = 1 / inner.high, np.where(inner.low > 0, 1 / inner.low, np.inf)
    slopes = _times(steepness, (inner.slope_low, inner.slope_high))
    return Bounds(np.log(inner.low), np.log(inner.high), *slopes, inner.jumps)


def _steps(rounded: Callable[[Any], Any]) -> Callable[[Sequence[Bounds]], Bounds]:
    """Return the rule for a quotient that is rounded to whole numbers."""

    def rule(arguments: Sequence[Bounds]) -> Bounds:
        above, below = arguments
        low, high = (rounded(end) for end in _over((above.low, above.high), (below.low, below.high)))
        flat = np.zeros_like(low)
        return Bounds(low, high, flat, flat, ~(low == high))

    return rule


def _hull(pieces: Sequence[tuple[Any, Bounds]]) -> tuple[Any, Any, Any]:
    """Return slope bounds of the branches that may be active, and whether one of them may jump."""
    slope_low = reduce(np.minimum, (np.where(may, piece.slope_low, np.inf) for may, piece in pieces))
    slope_high = reduce(np.maximum, (np.where(may, piece.slope_high, -np.inf) for may, piece in pieces))
    return slope_low, slope_high, reduce(operator.or_, (may & piece.jumps for may, piece in pieces))


def _largest(arguments: Sequence[Bounds]) -> Bounds:
    low, high = (reduce(np.maximum, (argument[place] for argument in arguments)) for place in (0, 1))
    return Bounds(low, high, *_hull([(argument.high >= low, argument) for argument in arguments]))


def _smallest(arguments: Sequence[Bounds]) -> Bounds:
    return -_largest([-argument for argument in arguments])


Sureness = tuple[Any, Any]
"""Whether a condition may hold somewhere in an interval, and whether it must hold everywhere in it."""


def _more(compare: Callable[[Any, Any], Any]) -> Callable[[Bounds, Bounds], Sureness]:
    return lambda left, right: (compare(left.high, right.low), compare(left.low, right.high))


def _equal(left: Bounds, right: Bounds) -> Sureness:
    single = (left.low == left.high) & (right.low == right.high)
    return (left.low <= right.high) & (right.low <= left.high), single & (left.low == right.low)


def _not(sureness: Sureness) -> Sureness:
    may, must = sureness
    return ~np.asarray(must), ~np.asarray(may)


_COMPARED: Final[dict[str, Callable[[Bounds, Bounds], Sureness]]] = {
    ">": _more(operator.gt),
    ">=": _more(operator.ge),
    "<": lambda left, right: _more(operator.gt)(right, left),
    "<=": lambda left, right: _more(operator.ge)(right, left),
    "==": _equal,
    "!=": lambda left, right: _not(_equal(left, right)),
}
"""Comparison -> its test of where it may and must hold."""
_JOINED: Final[dict[type, Callable[[Sequence[Sureness]], Sureness]]] = {
    sympy.And: lambda inner: reduce(lambda one, other: (one[0] & other[0], one[1] & other[1]), inner),
    sympy.Or: lambda inner: reduce(lambda one, other: (one[0] | other[0], one[1] | other[1]), inner),
    sympy.Not: lambda inner: _not(inner[0]),
}
"""Logical operator -> its rule for where the joined conditions may and must hold."""


def _condition(node: Any, sides: list[Any]) -> Callable[[Sequence[Bounds]], Sureness]:
    """Return a test of where a condition holds; the sides of its comparisons are appended to a list."""
    if node in (sympy.true, sympy.false):
        holds = np.bool_(bool(node))
        return lambda bounds: (holds, holds)
    if type(node) in _JOINED:
        inner, joined = [_condition(part, sides) for part in node.args], _JOINED[type(node)]
        return lambda bounds: joined([condition(bounds) for condition in inner])
    if getattr(node, "rel_op", None) not in _COMPARED:
        return lambda bounds: (np.True_, np.False_)
    place, compared = len(sides), _COMPARED[node.rel_op]
    sides += [node.lhs, node.rhs]
    return lambda bounds: compared(bounds[place], bounds[place + 1])


def _chosen(conditions: Sequence[Callable[[Sequence[Bounds]], Sureness]], arguments: Sequence[Bounds]) -> Bounds:
    """Return the bounds of a Piecewise from those of its values, followed by those of its conditions' sides."""
    values, sides = arguments[: len(conditions)], arguments[len(conditions) :]
    open_still: Any = np.True_
    pieces = []
    for value, condition in zip(values, conditions, strict=True):
        may, must = condition(sides)
        pieces.append((open_still & may, value))
        open_still = open_still & ~np.asarray(must)
    pieces.append((open_still, UNKNOWN))
    low = reduce(np.minimum, (np.where(may, piece.low, np.inf) for may, piece in pieces))
    high = reduce(np.maximum, (np.where(may, piece.high, -np.inf) for may, piece in pieces))
    slope_low, slope_high, jumps = _hull(pieces)
    several = sum(np.asarray(may).astype(int) for may, _ in pieces) > 1
    return Bounds(low, high, slope_low, slope_high, jumps | several)


_RULES: Final[dict[type, Callable[[Sequence[Bounds]], Bounds]]] = {
    sympy.Add: _add,
    sympy.Mul: _multiply,
    sympy.Pow: _power,
    sympy.exp: _exponential,
    sympy.log: _logarithm,
    sympy.ceiling: _steps(np.ceil),
    sympy.floor: _steps(np.floor),
    sympy.Max: _largest,
    sympy.Min: _smallest,
}
"""Kind of node -> the rule for its bounds; other nodes are unbounded."""


def _where(conditions: Sequence[Callable[[Sequence[Bounds]], Sureness]], arguments: Sequence[Any]) -> Any:
    """Return a Piecewise from its values, followed by those of its conditions' sides."""
    values, sides = arguments[: len(conditions)], arguments[len(conditions) :]
    points = [Bounds(side, side, 0.0, 0.0, np.False_) for side in sides]
    chosen = values[-1]
    for value, condition in reversed(list(zip(values[:-1], conditions, strict=False))):
        chosen = np.where(condition(points)[1], value, chosen)
    return chosen


_VALUES: Final[dict[type, Callable[[Sequence[Any]], Any]]] = {
    sympy.Add: partial(reduce, operator.add),
    sympy.Mul: partial(reduce, operator.mul),
    sympy.Pow: lambda inner: inner[0] ** inner[1],
    sympy.exp: lambda inner: np.exp(inner[0]),
    sympy.log: lambda inner: np.log(inner[0]),
    sympy.ceiling: lambda inner: np.ceil(inner[0] / inner[1]),
    sympy.floor: lambda inner: np.floor(inner[0] / inner[1]),
    sympy.Max: partial(reduce, np.maximum),
    sympy.Min: partial(reduce, np.minimum),
}
"""Kind of node -> its value from those of its arguments; sympy computes other nodes. A ceiling takes numerator and
denominator of its fraction, so that rounding cannot lift a whole ratio above its value."""


class _Nodes:
    """Nodes of expressions, each after the nodes of its arguments; a subclass decides what it keeps for each."""

    rules: Mapping[type, Callable[[Sequence[Any]], Any]] = _RULES
    choose: Callable[..., Any] = staticmethod(_chosen)

    def __init__(
        self, definitions: Definitions, symbols: Iterable[sympy.Symbol], known: Mapping[int, Any] | None = None
    ) -> None:
        self.definitions = definitions
        self._places: dict[Any, int] = {symbol: place for place, symbol in enumerate(symbols)}
        self._known: dict[int, Any] = dict(known or {})

    def _put(self, node: Any, rule: Any, arguments: tuple[int, ...], known: Any = None) -> int:
        """Keep a node and return its index; it follows from its arguments unless it is known."""
        raise NotImplementedError

    def _number(self, value: float) -> Any:
        return _widened(constant(value))

    def _put_without_rule(self, node: Any) -> int:
        return self._put(node, None, (), UNKNOWN)

    def _place_of(self, expression: Any) -> int:
        """Return the index of an expression, after the definitions that it needs."""
        node = expression_of(expression)
        if node not in self._places:
            with np.errstate(all="ignore"):  # branches that are not taken may divide by zero
                for name, definition in self.definitions.needed_for([node]).items():
                    if name not in self._places:
                        self._places[name] = self._placed(definition)
                return self._placed(node)
        return self._places[node]

    def _placed(self, node: Any) -> int:
        """Return the index of a node, after those of its arguments; constants are computed once."""
        if node in self._places:
            return self._places[node]
        if node.is_number:
            return self._put(node, None, (), self._number(number_of(node)))
        if isinstance(node, sympy.Piecewise):
            return self._piecewise(node)
        if isinstance(node, sympy.Mod):
            return self._placed(without_mod(node))
        if type(node) not in self.rules:
            return self._put_without_rule(node)
        inner = node.args[0].as_numer_denom() if isinstance(node, sympy.ceiling | sympy.floor) else node.args
        return self._put(node, self.rules[type(node)], tuple(self._placed(argument) for argument in inner))

    def _piecewise(self, node: Any) -> int:
        sides: list[Any] = []
        conditions = [_condition(condition, sides) for _, condition in node.args]
        inner = tuple(self._placed(argument) for argument in (*(value for value, _ in node.args), *sides))
        return self._put(node, partial(self.choose, conditions), inner)


class AtPoint(_Nodes):
    """Expressions at a point: values, derivatives by each symbol, and the branches that are taken."""

    def __init__(self, definitions: Definitions, at: Mapping[sympy.Symbol, float]) -> None:
        numbers = [np.full(len(at), float(value)) for value in at.values()]
        slopes = np.eye(len(at))
        known = {place: Bounds(n, n, slopes[place], slopes[place], np.False_) for place, n in enumerate(numbers)}
        super().__init__(definitions, at, known)
        self.at = at
        self.taken: dict[sympy.Expr, Taken] = {}
        self.on_branch: dict[sympy.Expr, sympy.Expr] = {}
        self.hidden = Hidden()
        self.leading: dict[sympy.Expr, Leading] = {}

    @staticmethod
    def _sum(terms: Sequence[Bounds]) -> Bounds:
        """Return a sum that is rounded once, so that it does not depend on the order of its terms."""
        total = _add(terms)
        try:
            exact = np.full(np.shape(total.low), math.fsum(_single(term.low) for term in terms))
        except (OverflowError, ValueError):  # terms of branches that are not taken may be infinite
            return total
        return total._replace(low=exact, high=exact)

    rules = _RULES | {sympy.Add: _sum}

    def value(self, expression: Any) -> float:
        """Return the value of an expression. [unit of the expression]"""
        return _single(self._known[self._place_of(expression)].low)

    def values(self, expressions: Sequence[Any]) -> list[float]:
        """Return the values of expressions in free symbols and in dummies of ``hidden``. [unit of each]"""
        known = Definitions(self.hidden.expressions, symbols_by_name=self.hidden.symbols)
        return [float(value) for value in Values(known, self.at, expressions)(*self.at.values())]

    def gradient(self, expression: Any) -> dict[sympy.Symbol, float]:
        """Return an expression's derivative by each free symbol. [unit of the expression over that of the symbol]"""
        slopes = np.broadcast_to(self._known[self._place_of(expression)].slope_low, len(self.at))
        return dict(zip(self.at, slopes.tolist(), strict=True))

    def _put(self, node: Any, rule: Any, arguments: tuple[int, ...], known: Bounds | None = None) -> int:
        inner = [self._known[argument] for argument in arguments]
        if known is None and isinstance(node, sympy.Max | sympy.Min | sympy.Piecewise):
            known = self._choose(node, rule, inner)
        place = self._places[node] = len(self._places)
        self._known[place] = _widened(rule(inner)) if known is None else known
        return place

    def _choose(self, node: Any, rule: Any, inner: Sequence[Bounds]) -> Bounds:
        """Note which argument a node takes, the first of equal ones, and return that argument's bounds."""
        if isinstance(node, sympy.Piecewise):
            (conditions,), count = rule.args, len(node.args)
            taken = next(place for place, holds in enumerate(conditions) if np.all(holds(inner[count:])[1]))
            values = tuple(_single(value.low) for value in inner[:count])
        else:  # unbounded arguments win nowhere
            extreme, end = (max, "low") if isinstance(node, sympy.Max) else (min, "high")
            values = tuple(_single(getattr(value, end)) for value in inner)
            taken = values.index(extreme(values))
        self.taken[node] = Taken(node, taken, values)
        return inner[taken]

    def _put_without_rule(self, node: Any) -> int:
        """Compute a node without a rule by sympy."""
        inner = [self._known[self._placed(argument)] for argument in node.args]
        dummies = [sympy.Dummy(real=True) for _ in inner]
        function, at = node.func(*dummies), {dummy: _single(of.low) for dummy, of in zip(dummies, inner, strict=True)}
        slopes = sum(
            number_of(substituted(function.diff(dummy), at)) * of.slope_low
            for dummy, of in zip(dummies, inner, strict=True)
        )
        value = np.full(len(self.at), number_of(substituted(function, at)))
        return self._put(node, None, (), Bounds(value, value, slopes, slopes, np.False_))


def _single(bound: Any) -> float:
    return float(np.ravel(bound)[0])


class _Steps(_Nodes):
    """Expressions as steps: a rule and the places of its arguments, each value dropped after its last use."""

    def __init__(
        self,
        definitions: Definitions,
        symbols: Iterable[sympy.Symbol],
        wanted: Iterable[Any],
        known: Mapping[int, Any] | None = None,
    ) -> None:
        super().__init__(definitions, symbols, known)
        self._steps: list[tuple[int, Callable[[Sequence[Any]], Any], tuple[int, ...]]] = []
        self._wanted = [self._place_of(expression) for expression in wanted]

    def _put(self, node: Any, rule: Any, arguments: tuple[int, ...], known: Any = None) -> int:
        place = self._places[node] = len(self._places)
        if known is None and all(argument in self._known for argument in arguments):
            known = self._folded(self._applied(rule, [self._known[argument] for argument in arguments]))
        if known is None:
            self._steps.append((place, rule, arguments))
        else:
            self._known[place] = known
        return place

    def _applied(self, rule: Callable[[Sequence[Any]], Any], inner: Sequence[Any]) -> Any:
        return rule(inner)

    def _folded(self, result: Any) -> Any:
        return result

    @derived_property
    def _dropped(self) -> list[list[int]]:
        """Places that no step after each one needs."""
        last = {argument: step for step, (_, _, arguments) in enumerate(self._steps) for argument in arguments}
        dropped: list[list[int]] = [[] for _ in self._steps]
        for argument in last.keys() - set(self._wanted):
            dropped[last[argument]].append(argument)
        return dropped

    def _results(self, values: Mapping[int, Any]) -> list[Any]:
        """Run all steps from the values of the symbols, and return the wanted results."""
        results = {**self._known, **values}
        with np.errstate(all="ignore"):
            for (place, rule, arguments), dropped in zip(self._steps, self._dropped, strict=True):
                results[place] = self._applied(rule, [results[argument] for argument in arguments])
                for argument in dropped:
                    del results[argument]
        return [results[place] for place in self._wanted]


class Values(_Steps):
    """A function of numbers or arrays that computes expressions; each named one is computed once."""

    rules = _VALUES
    choose = staticmethod(_where)

    def _number(self, value: float) -> Any:
        return np.float64(value)

    def _put_without_rule(self, node: Any) -> int:
        dummies = [sympy.Dummy() for _ in node.args]
        function = sympy.lambdify(dummies, node.func(*dummies))
        arguments = tuple(self._placed(argument) for argument in node.args)
        return self._put(node, lambda inner: function(*inner), arguments)

    def __call__(self, *values: Any) -> list[Any]:
        """Return the value of each expression, at values of the symbols in their order."""
        return self._results({place: np.asarray(value, dtype=float) for place, value in enumerate(values)})


class Bounded(_Steps):
    """An expression prepared for bounding over intervals of a symbol."""

    def __init__(
        self, definitions: Definitions, expression: Any, symbol: sympy.Symbol, at: Mapping[sympy.Symbol, float]
    ) -> None:
        known = {1 + place: constant(value) for place, value in enumerate(at.values())}
        super().__init__(definitions, (symbol, *at), [expression], known)

    def _applied(self, rule: Callable[[Sequence[Bounds]], Bounds], inner: Sequence[Bounds]) -> Bounds:
        return _widened(rule(inner))

    def _folded(self, result: Bounds) -> Bounds:
        return constant(float(result.low)) if result.low == result.high else UNKNOWN

    def __call__(self, low: Any, high: Any) -> Bounds:
        """Return the bounds over intervals. [unit of the expression]"""
        ones = np.ones_like(low)
        (bounds,) = self._results({0: Bounds(low, high, ones, ones, np.zeros(len(low), dtype=bool))})
        return Bounds(*(np.broadcast_to(end, np.shape(low)) for end in bounds))
