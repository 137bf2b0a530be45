"""What a formula is while the branches of a point count: no choice is left in it, ceilings are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import sympy

if TYPE_CHECKING:
    from perfmodel.planning.formulas.values import AtPoint

SHOWN_TERMS: Final = 5
"""Terms of a sum that are shown. [1]"""

MOST_STEPS: Final = 24
"""Operations of the longest term that is shown. [1]"""

CANCELLING: Final = 1.5
"""Sum of the magnitudes of terms over their sum from which on they tell nothing one by one. [1]"""


def on_branch(point: AtPoint, expression: Any, *, only: sympy.Symbol | None = None) -> sympy.Expr:
    """Return what an expression is while the branches that count at a point do.

    Parameters
    ----------
    point : AtPoint
        Whose branches are taken. [-]
    expression : sympy.Expr
        What counts. [-]
    only : sympy.Symbol or None
        The one symbol that stays open, where all others and all ceilings are what they come to there. [-]

    Returns
    -------
    sympy.Expr
        Without names, minima, maxima and choices, in free symbols and ceilings, as a sum of products. [unit of it]
    """
    expression = sympy.sympify(expression)
    point.value(expression)
    known: dict[Any, Any] = {}
    if only is not None:
        known = {symbol: sympy.Float(value) for symbol, value in point.at.items() if symbol != only}
    for name, each in point.definitions.needed_for([expression]).expressions.items():
        known[name] = _taken(point, each, known, keep_ceilings=only is None)
    found = _taken(point, expression, known, keep_ceilings=only is None)
    return sympy.expand(found, power_base=False, power_exp=False)


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
            arguments = [_taken(point, each, known, keep_ceilings=keep_ceilings) for each in node.args]
            known[node] = node.func(*arguments, evaluate=False) if rounded else node.func(*arguments)
    return known[node]


class Leading(NamedTuple):
    """The terms of a sum that matter most at a point.

    Parameters
    ----------
    terms : tuple of sympy.Expr
        The largest first. [unit of the sum]
    others : int
        Terms left out, as they are smaller or too long to be read. [1]
    value_of_others : float
        What these come to at the point. [unit of the sum]
    """

    terms: tuple[sympy.Expr, ...]
    others: int
    value_of_others: float


def leading_terms(point: AtPoint, expression: Any) -> Leading:
    """Return the terms that matter most at a point of what an expression is there. [unit of the expression]"""
    value = point.value(sympy.sympify(expression))
    terms = sympy.Add.make_args(on_branch(point, expression))
    values = {term: float(term.xreplace(dict(point.at))) for term in terms}
    if sum(map(abs, values.values())) > CANCELLING * abs(value):
        return Leading((), len(terms), value)
    readable = [term for term in sorted(values, key=lambda term: -abs(values[term])) if term.count_ops() <= MOST_STEPS]
    shown = tuple(readable[:SHOWN_TERMS])
    return Leading(shown, len(terms) - len(shown), sum(values[term] for term in terms if term not in shown))
