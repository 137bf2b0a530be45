"""Named expressions, and the formula on the branches that are active at a point.

A branch is the argument that a Max, Min or Piecewise takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import sympy
from sympy.functions.elementary.piecewise import ExprCondPair

from perfmodel.errors import ArgumentError
from perfmodel.symbolic import expression_of

if TYPE_CHECKING:
    from perfmodel.framework.kernel_table import KernelTable
    from perfmodel.planning.formulas.evaluation import AtPoint


class Meaning(NamedTuple):
    """Meaning of a named expression: ``name`` is its kind, ``place`` its row in an array. [-]

    ``part`` is the kernel table of its stage; None outside stages. [-]
    """

    name: str
    place: int
    part: KernelTable | None = None


@dataclass(eq=False)
class Definitions:
    """Named expressions; equal ones, e.g. of identical layers, share a name."""

    expressions: dict[sympy.Symbol, sympy.Expr] = field(default_factory=dict)
    meanings: dict[sympy.Symbol, Meaning] = field(default_factory=dict)
    alike: dict[sympy.Symbol, list[Meaning]] = field(default_factory=dict)
    symbols_by_name: dict[sympy.Symbol, set[sympy.Symbol]] = field(default_factory=dict)
    _known: dict[sympy.Expr, sympy.Symbol] = field(default_factory=dict)

    def __call__(self, expression: Any, name: str, place: int, part: KernelTable | None = None) -> Any:
        """Return the symbol that stands for an expression; numbers and symbols are returned unchanged."""
        expression = expression_of(expression)
        if expression.is_Atom:
            return expression
        if not (free := expression.free_symbols):
            return sympy.Float(float(expression))
        if expression not in self._known:
            symbol = sympy.Symbol(f"x_{len(self._known)}", real=True)
            self._known[expression] = symbol
            self.expressions[symbol], self.symbols_by_name[symbol] = expression, free
            self.meanings[symbol] = Meaning(name, place, part)
        self.alike.setdefault(self._known[expression], []).append(Meaning(name, place, part))
        return self._known[expression]

    def symbols_of(self, wanted: Iterable[Any]) -> set[sympy.Symbol]:
        """Return the names and free symbols that some expressions depend on, directly or indirectly."""
        needed: set[sympy.Symbol] = set().union(*(expression_of(expression).free_symbols for expression in wanted))
        for symbol in reversed(self.expressions):
            if symbol in needed:
                needed |= self.symbols_by_name[symbol]
        return needed

    def needed_for(self, wanted: Iterable[Any]) -> dict[sympy.Symbol, sympy.Expr]:
        """Return the named expressions that some expressions need, each after those that it needs itself."""
        needed = self.symbols_of(wanted)
        return {symbol: expression for symbol, expression in self.expressions.items() if symbol in needed}

    def written_out(self, expression: Any) -> sympy.Expr:
        """Return an expression with all names replaced by their definitions, unevaluated."""
        full: dict[sympy.Basic, sympy.Basic] = {}
        for symbol, expression_of_symbol in self.needed_for([expression]).items():
            full[symbol] = _rebuilt(expression_of_symbol, full)
        return _rebuilt(expression_of(expression), full)


def _rebuilt(node: Any, full: Mapping[sympy.Basic, sympy.Basic]) -> Any:
    """Return a node with names replaced, without evaluation: sympy would unfold choices inside conditions."""
    if node in full:
        return full[node]
    if not node.args:
        return node
    arguments = [_rebuilt(argument, full) for argument in node.args]
    if isinstance(node, sympy.Piecewise | ExprCondPair):
        return sympy.Basic.__new__(type(node), *arguments)
    return node.func(*arguments, evaluate=False)


def number_of(node: Any) -> float:
    """Return the value of an expression without symbols; NaN if it is not real."""
    try:
        return float(node)
    except TypeError:
        return math.nan


def without_mod(node: Any) -> Any:
    """Rewrite a remainder with the floor of its quotient."""
    dividend, divisor = node.args
    return dividend - divisor * sympy.floor(dividend / divisor)


class Taken(NamedTuple):
    """The argument that a Max, Min or Piecewise takes at a point.

    ``node`` is the expression [-], ``place`` the index of the argument that is taken [1], and ``values`` the
    values of all arguments [unit of the expression].
    """

    node: sympy.Expr
    place: int
    values: tuple[float, ...]

    @property
    def argument(self) -> sympy.Expr:
        """The argument that is taken. [-]"""
        argument = self.node.args[self.place]
        return argument[0] if isinstance(self.node, sympy.Piecewise) else argument


def single_values(point: Mapping[str, Any]) -> dict[str, float]:
    """Return the values of a point; each must be a single number."""
    for name, value in point.items():
        if np.ndim(value):
            raise ArgumentError(name, value, "one number; f() and lambdify() take arrays")
    return dict(point)


SHOWN_TERMS: Final = 5
"""Terms of a sum that are shown. [1]"""
MOST_STEPS: Final = 24
"""Operations of the longest term that is shown. [1]"""
ROUNDING: Final = 1e-12
"""Share of a sum at or below which a term is what is left of terms that cancel one another. [1]"""
CANCELLING: Final = 1.5
"""Ratio of the sum of magnitudes to the sum, above which single terms are meaningless. [1]"""


MOST_NODES: Final = 80
"""Nodes of a power or another function that is written out; no term that is shown has more. [1]"""
MOST_TERMS: Final = 5000
"""Terms to which a product is multiplied out. [1]"""


def on_branch(point: AtPoint, expression: Any, *, only: sympy.Symbol | None = None) -> sympy.Expr:
    """Return an expression with every Max, Min and choice replaced by the branch that is active at a point."""
    known, hidden = point.on_branch, point.hidden
    if only is not None:
        known, hidden = {symbol: sympy.Float(value) for symbol, value in point.at.items() if symbol != only}, Hidden()
    taken = _multiplied_out(point, expression, known, hidden, keep_ceilings=only is None)
    full: dict[sympy.Dummy, sympy.Expr] = {}
    for dummy, of_dummy in hidden.expressions.items():
        full[dummy] = of_dummy.xreplace(full)
    return _put_together(taken, hidden).xreplace(full)


def _put_together(expression: sympy.Expr, hidden: Hidden) -> sympy.Expr:
    """Return a sum in which terms that share hidden factors are one product: each would write all of them out."""
    long = hidden.expressions.keys() - hidden.short.keys()
    sums: dict[sympy.Expr, list[sympy.Expr]] = {}
    for term in sympy.Add.make_args(expression):
        factors: dict[bool, list[sympy.Expr]] = {True: [], False: []}
        for factor in sympy.Mul.make_args(term):
            factors[factor.free_symbols.isdisjoint(long)].append(factor)
        sums.setdefault(sympy.Mul(*factors[False]), []).append(sympy.Mul(*factors[True]))
    return sympy.Add(*[shared * sympy.Add(*terms) for shared, terms in sums.items()])


def _multiplied_out(
    point: AtPoint, expression: Any, known: dict[Any, Any], hidden: Hidden, *, keep_ceilings: bool
) -> sympy.Expr:
    """Return an expression on its branch as a sum of products, in which long powers are hidden behind dummies."""
    expression = expression_of(expression)
    point.value(expression)
    for name, expression_of_symbol in point.definitions.needed_for([expression]).items():
        if name not in known:
            taken = _taken(point, expression_of_symbol, known, hidden, keep_ceilings=keep_ceilings)
            known[name] = _Hiding(hidden)(taken)  # here, as each further step may use a name several times
    taken = _Hiding(hidden)(_taken(point, expression, known, hidden, keep_ceilings=keep_ceilings))
    return _expanded(taken).xreplace(hidden.short)


def _expanded(expression: sympy.Expr) -> sympy.Expr:
    return sympy.expand(expression, power_base=False, power_exp=False)


@dataclass
class Hidden:
    """Expressions that dummies stand for, each after those it needs; ``short`` lists bases of powers to show."""

    expressions: dict[sympy.Dummy, sympy.Expr] = field(default_factory=dict)
    short: dict[sympy.Dummy, sympy.Expr] = field(default_factory=dict)
    symbols: dict[sympy.Dummy, set[sympy.Symbol]] = field(default_factory=dict)
    _bases: dict[sympy.Expr, sympy.Dummy] = field(default_factory=dict)

    def dummy(self, node: sympy.Expr) -> sympy.Dummy:
        """Return a new dummy for a real expression."""
        return self._kept(sympy.Dummy(real=True), node)

    def _kept(self, dummy: sympy.Dummy, node: sympy.Expr) -> sympy.Dummy:
        self.expressions[dummy], self.symbols[dummy] = node, node.free_symbols
        return dummy

    def base(self, node: sympy.Add) -> sympy.Dummy:
        """Return the dummy of a sum that is raised to a broken power; equal sums share it.

        Such a power is never multiplied out, and sympy need not prove that the sum is finite, which takes it long.
        """
        if node not in self._bases:
            written = _expanded(node)
            self._bases[node] = dummy = self._kept(sympy.Dummy(), written)
            if _Hiding(self).size(written)[0] <= MOST_NODES:
                self.short[dummy] = written.xreplace(self.short)
        return self._bases[node]


@dataclass
class _Hiding:
    """Puts dummies for long nodes that are neither sums nor short products."""

    hidden: Hidden
    sizes: dict[int, tuple[int, int]] = field(default_factory=dict)
    made: dict[int, Any] = field(default_factory=dict)

    def __call__(self, node: Any) -> Any:
        nodes, terms = self.size(node)
        if nodes <= MOST_NODES and terms <= MOST_TERMS:
            return node
        if id(node) not in self.made:
            opened = isinstance(node, sympy.Add) or (isinstance(node, sympy.Mul) and terms <= MOST_TERMS)
            self.made[id(node)] = node.func(*map(self, node.args)) if opened else self.hidden.dummy(node)
        return self.made[id(node)]

    def size(self, node: Any) -> tuple[int, int]:
        """Return the nodes of an expression as a tree, and the terms of its sum when multiplied out. [1], [1]"""
        if id(node) not in self.sizes:
            inner = [self.size(argument) for argument in self.hidden.short.get(node, node).args]
            terms = 1
            if isinstance(node, sympy.Add):
                terms = sum(of_argument for _, of_argument in inner)
            elif isinstance(node, sympy.Mul):
                terms = math.prod(of_argument for _, of_argument in inner)
            elif isinstance(node, sympy.Pow) and node.exp.is_Integer and 0 < node.exp <= MOST_NODES:
                terms = inner[0][1] ** int(node.exp)
            self.sizes[id(node)] = 1 + sum(nodes for nodes, _ in inner), terms
        return self.sizes[id(node)]


def _taken(point: AtPoint, node: Any, known: dict[Any, Any], hidden: Hidden, *, keep_ceilings: bool) -> Any:
    if node not in known:
        rounded = isinstance(node, sympy.ceiling | sympy.floor)
        if node in point.taken:
            known[node] = _taken(point, point.taken[node].argument, known, hidden, keep_ceilings=keep_ceilings)
        elif not node.args:
            known[node] = node
        elif rounded and not keep_ceilings:
            known[node] = sympy.Float(point.value(node))
        else:
            arguments = [_taken(point, argument, known, hidden, keep_ceilings=keep_ceilings) for argument in node.args]
            if isinstance(node, sympy.Pow) and isinstance(arguments[0], sympy.Add) and arguments[1].is_Float:
                arguments[0] = hidden.base(arguments[0])
            known[node] = node.func(*arguments, evaluate=False) if rounded else node.func(*arguments)
    return known[node]


class Leading(NamedTuple):
    """The largest terms of a sum at a point."""

    terms: tuple[sympy.Expr, ...]
    others: int
    value_of_others: float


def leading_terms(point: AtPoint, expression: Any) -> Leading:
    """Return the largest terms of an expression at a point. [unit of the expression]"""
    if expression not in point.leading:
        point.leading[expression] = _leading_terms(point, expression)
    return point.leading[expression]


def _leading_terms(point: AtPoint, expression: Any) -> Leading:
    value = point.value(expression_of(expression))
    taken = _multiplied_out(point, expression, point.on_branch, point.hidden, keep_ceilings=True)
    terms = sympy.Add.make_args(taken)
    values = dict(zip(terms, point.values(terms), strict=True))
    size = sum(map(abs, values.values()))
    if size > CANCELLING * abs(value):
        return Leading((), len(terms), value)
    terms = [term for term in terms if abs(values[term]) > ROUNDING * size]
    whole = [term for term in terms if not term.has(sympy.Dummy)]
    readable = [term for term in sorted(whole, key=lambda term: -abs(values[term])) if term.count_ops() <= MOST_STEPS]
    shown = tuple(readable[:SHOWN_TERMS])
    return Leading(shown, len(terms) - len(shown), sum(values[term] for term in terms if term not in shown))
