"""What a formula is made of: expressions under names, each written once, in the order in which one needs another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import sympy
from sympy.functions.elementary.piecewise import ExprCondPair
from sympy.printing.numpy import NumPyPrinter

if TYPE_CHECKING:
    from perfmodel.framework.kernel_table import KernelTable


class Meaning(NamedTuple):
    """What a named expression is: ``name`` says of what kind, ``place`` which row of its array it is. [-]

    ``part`` is the kernel table of the stage that it belongs to, None for what belongs to no stage. [-]
    """

    name: str
    place: int
    part: KernelTable | None = None


@dataclass(eq=False)
class Definitions:
    """Expressions under names. Equal ones, as of identical layers, share a name.

    Parameters
    ----------
    expressions : dict of sympy.Symbol to sympy.Expr
        In order: each needs only free symbols and names before its own. [unit of each]
    meanings : dict of sympy.Symbol to Meaning
        What each is, where it was met first. [-]
    alike : dict of sympy.Symbol to list of Meaning
        All that each is: kernels of several layers and algorithms may take the same time. [-]
    """

    expressions: dict[sympy.Symbol, sympy.Expr] = field(default_factory=dict)
    meanings: dict[sympy.Symbol, Meaning] = field(default_factory=dict)
    alike: dict[sympy.Symbol, list[Meaning]] = field(default_factory=dict)
    _known: dict[sympy.Expr, sympy.Symbol] = field(default_factory=dict)

    def __call__(self, expression: Any, name: str, place: int, part: KernelTable | None = None) -> Any:
        """Return the symbol that stands for an expression; numbers and symbols stay themselves."""
        expression = sympy.sympify(expression)
        if expression.is_Atom:
            return expression
        if not expression.free_symbols:
            return sympy.Float(float(expression))
        if expression not in self._known:
            symbol = sympy.Symbol(f"x_{len(self._known)}", real=True)
            self._known[expression] = symbol
            self.expressions[symbol] = expression
            self.meanings[symbol] = Meaning(name, place, part)
        self.alike.setdefault(self._known[expression], []).append(Meaning(name, place, part))
        return self._known[expression]

    def needed_for(self, wanted: Iterable[Any]) -> Definitions:
        """Return those that some expressions need, directly or through others."""
        needed = set().union(*(sympy.sympify(each).free_symbols for each in wanted))
        for symbol in reversed(self.expressions):
            if symbol in needed:
                needed |= self.expressions[symbol].free_symbols
        kept = {symbol: each for symbol, each in self.expressions.items() if symbol in needed}
        return Definitions(kept, {symbol: self.meanings[symbol] for symbol in kept})

    def written_out(self, expression: Any) -> sympy.Expr:
        """Return an expression without names, unevaluated."""
        full: dict[sympy.Basic, sympy.Basic] = {}
        for symbol, each in self.needed_for([expression]).expressions.items():
            full[symbol] = _rebuilt(each, full)
        return _rebuilt(sympy.sympify(expression), full)

    def function(self, symbols: Sequence[sympy.Symbol], wanted: Sequence[Any]) -> Callable[..., list[Any]]:
        """Return a numpy function of free symbols that gives some expressions, each name computed once."""
        pairs = list(self.needed_for(wanted).expressions.items())
        reduced = [sympy.sympify(each) for each in wanted]

        def names_first(_: Any, **unused: Any) -> tuple[list[Any], list[Any]]:
            del unused
            return pairs, reduced

        dummies = {"printer": _Printer, "modules": "numpy", "cse": names_first}
        function: Callable[..., list[Any]] = sympy.lambdify(list(symbols), reduced, **dummies)
        return function


def _rebuilt(node: Any, full: Mapping[sympy.Basic, sympy.Basic]) -> Any:
    """Return a node with names replaced, evaluating nothing: sympy would unfold choices inside conditions."""
    if node in full:
        return full[node]
    if not node.args:
        return node
    arguments = [_rebuilt(each, full) for each in node.args]
    if isinstance(node, sympy.Piecewise | ExprCondPair):
        return sympy.Basic.__new__(type(node), *arguments)
    return node.func(*arguments, evaluate=False)


# The printer finds its methods by the names of sympy's classes.
# ruff: noqa: N802, N815
class _Printer(NumPyPrinter):  # type: ignore[misc]
    """Prints what broadcasts, and ceilings of one fraction, so that whole ratios are not exceeded by rounding."""

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__({"fully_qualified_modules": False, "inline": True, "allow_unknown_functions": True})
        del settings

    def _pairwise(self, function: str, arguments: Sequence[Any]) -> str:
        printed = [str(self._print(each)) for each in arguments]
        return reduce(lambda left, right: f"{function}({left}, {right})", printed)

    def _print_Max(self, expr: Any) -> str:
        return self._pairwise("maximum", expr.args)

    def _print_Min(self, expr: Any) -> str:
        return self._pairwise("minimum", expr.args)

    def _print_ceiling(self, expr: Any) -> str:
        numerator, denominator = expr.args[0].as_numer_denom()
        return f"ceil(({self._print(numerator)})/({self._print(denominator)}))"

    def _print_Piecewise(self, expr: Any) -> str:
        *pieces, (last, _) = expr.args
        printed = str(self._print(last))
        for value, condition in reversed(pieces):
            printed = f"where({self._print(condition)}, {self._print(value)}, {printed})"
        return printed

    def _print_Relational(self, expr: Any) -> str:
        return f"({self._print(expr.lhs)} {expr.rel_op} {self._print(expr.rhs)})"

    def _print_Infinity(self, expr: Any) -> str:
        del expr
        return "inf"

    _print_StrictGreaterThan = _print_GreaterThan = _print_StrictLessThan = _print_LessThan = _print_Relational
