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
CANCELLING: Final = 1.5
"""Ratio of the sum of magnitudes to the sum, above which single terms are meaningless. [1]"""


def on_branch(point: AtPoint, expression: Any, *, only: sympy.Symbol | None = None) -> sympy.Expr:
    """Return an expression with every Max, Min and choice replaced by the branch that is active at a point."""
    expression = expression_of(expression)
    point.value(expression)
    known: dict[Any, Any] = {}
    if only is not None:
        known = {symbol: sympy.Float(value) for symbol, value in point.at.items() if symbol != only}
    for name, expression_of_symbol in point.definitions.needed_for([expression]).items():
        known[name] = _taken(point, expression_of_symbol, known, keep_ceilings=only is None)
    taken = _taken(point, expression, known, keep_ceilings=only is None)
    return sympy.expand(taken, power_base=False, power_exp=False)


def _taken(point: AtPoint, node: Any, known: dict[Any, Any], *, keep_ceilings: bool) -> Any:
    if node not in known:
        rounded = isinstance(node, sympy.ceiling | sympy.floor)
        if node in point.taken:
            known[node] = _taken(point, point.taken[node].argument, known, keep_ceilings=keep_ceilings)
        elif not node.args:
            known[node] = node
        elif rounded and not keep_ceilings:
            known[node] = sympy.Float(point.value(node))
        else:
            arguments = [_taken(point, argument, known, keep_ceilings=keep_ceilings) for argument in node.args]
            known[node] = node.func(*arguments, evaluate=False) if rounded else node.func(*arguments)
    return known[node]


class Leading(NamedTuple):
    """The largest terms of a sum at a point."""

    terms: tuple[sympy.Expr, ...]
    others: int
    value_of_others: float


def leading_terms(point: AtPoint, expression: Any) -> Leading:
    """Return the largest terms of an expression at a point. [unit of the expression]"""
    value = point.value(expression_of(expression))
    terms = sympy.Add.make_args(on_branch(point, expression))
    values = {term: float(term.xreplace(dict(point.at))) for term in terms}
    if sum(map(abs, values.values())) > CANCELLING * abs(value):
        return Leading((), len(terms), value)
    readable = [term for term in sorted(values, key=lambda term: -abs(values[term])) if term.count_ops() <= MOST_STEPS]
    shown = tuple(readable[:SHOWN_TERMS])
    return Leading(shown, len(terms) - len(shown), sum(values[term] for term in terms if term not in shown))
