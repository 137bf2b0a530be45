"""A formula as people read it: part by part, with names for what each kernel takes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import sympy

from perfmodel.planning.formulas.branches import leading_terms
from perfmodel.planning.formulas.places import where_of
from perfmodel.planning.formulas.symbols import FREE, latex_of, words_of
from perfmodel.prediction.step_time import PARTS, TOTALS

if TYPE_CHECKING:
    from perfmodel.planning.formulas.formula import Formula

SHOWN_TERMS: Final = 8
"""Terms of a sum that are written. [1]"""

SHOWN_NAMES: Final = 12
"""Names that are explained. [1]"""


def _parts(formula: Formula) -> dict[str, sympy.Expr]:
    """Return the parts that are not zero, and the quantity itself where it is another one."""
    found = {name: formula.named_parts[name] for name in PARTS if not formula.named_parts[name].is_zero}
    return {formula.quantity: formula.named_parts[formula.quantity]} if formula.quantity in PARTS else found


def _opened(formula: Formula, expression: Any) -> Any:
    """Return what a name stands for, if the expression is a name alone."""
    while expression in formula.definitions.expressions:
        expression = formula.definitions.expressions[expression]
    return expression


def _shortened(expression: sympy.Expr) -> tuple[sympy.Expr, int]:
    """Return a sum with its first terms, and how many are left out."""
    terms = sympy.Add.make_args(expression)
    if len(terms) <= SHOWN_TERMS:
        return expression, 0
    return sympy.Add(*terms[:SHOWN_TERMS], evaluate=False), len(terms) - SHOWN_TERMS


def _text_of(expression: sympy.Expr, names: dict[Any, str]) -> str:
    return str(sympy.latex(expression.xreplace(_rounded(expression)), symbol_names=names, min=-3, max=4))


def _rounded(expression: sympy.Expr) -> dict[sympy.Float, sympy.Float]:
    return {each: sympy.Float(each, 4) for each in expression.atoms(sympy.Float)}


def _label(quantity: str) -> str:
    if quantity == "samples_per_s":
        return r"R_{\text{samples}}"
    return r"T_{\text{" + quantity.removesuffix("_s").replace("_", " ") + "}}"


def _quantities(formula: Formula) -> dict[Any, str]:
    """Return the names that stand for a whole quantity, which are written as that."""
    found = {}
    for symbol, each in formula.definitions.expressions.items():
        for quantity in ("step_s", *PARTS):
            if formula.named_parts[quantity] in (symbol, each):
                found[symbol] = quantity
    return found


def _on_branch(formula: Formula, parts: dict[str, sympy.Expr], names: dict[Any, str]) -> list[str]:
    """Return a line for each part with what it is while the branches of the stated values count."""
    point = formula.point()
    there = ", ".join(f"{names[symbol]} = {point.at[symbol]:.4g}" for symbol in formula.symbols.values())
    lines = [rf"&\text{{while the branches that count at }} {there} \text{{ do:}}"]
    for name, each in parts.items():
        leading = leading_terms(point, each)
        written = [_text_of(term, names) for term in leading.terms]
        if leading.others:
            what = "others" if written else "terms that cancel one another"
            written.append(rf"\underbrace{{{leading.value_of_others:.3g}}}_{{\text{{{leading.others} {what}, there}}}}")
        lines.append(f"{_label(name)} &= {' + '.join(written)}")
    return lines


def _told_of(formula: Formula, written: list[str], symbols: list[Any]) -> str:
    """Return a line on names that are used but not written out: of what kind they are, and where they stand."""
    kinds = Counter(formula.definitions.meanings[symbol].name for symbol in symbols)
    told = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()).replace("_", r"\_")
    first = [*written[:SHOWN_TERMS], *([r"\ldots"] if len(written) > SHOWN_TERMS else [])]
    return rf"{', '.join(first)} &: \text{{all other names, in definitions: {told}}}"


def latex(formula: Formula) -> str:
    """Return the formula in LaTeX, grouped by part, for a notebook."""
    names: dict[Any, str] = {symbol: latex_of(name) for name, symbol in formula.symbols.items()}
    names |= {symbol: f"x_{{{place}}}" for place, symbol in enumerate(formula.definitions.expressions, start=1)}
    parts = _parts(formula)

    quantities = _quantities(formula)
    names |= {symbol: _label(quantity) for symbol, quantity in quantities.items()}
    lines = [f"{_label('step_s')} &= {' + '.join(map(_label, parts))}"] if formula.quantity not in PARTS else []
    lines += [*_on_branch(formula, parts, names), r"&\text{with all branches:}"]
    explained: dict[Any, None] = {}
    with sympy.evaluate(False):
        own = (
            {} if formula.quantity in ("step_s", *parts) else {formula.quantity: formula.named_parts[formula.quantity]}
        )
        for name, each in (own | parts).items():
            short, left_out = _shortened(_opened(formula, each))
            more = rf" + \cdots\ (\text{{{left_out} more terms}})" if left_out else ""
            lines.append(f"{_label(name)} &= {_text_of(short, names)}{more}")
            explained |= dict.fromkeys(each for each in _in_order(formula, short))
        shown = [symbol for symbol in explained if symbol not in quantities][:SHOWN_NAMES]
        for symbol in shown:
            short, left_out = _shortened(formula.definitions.expressions[symbol])
            more = rf" + \cdots\ ({left_out})" if left_out else ""
            what = where_of(formula, symbol).replace("_", r"\_")
            lines.append(rf"{names[symbol]} &= {_text_of(short, names)}{more} && \text{{{what}}}")
            explained |= dict.fromkeys(_in_order(formula, short))
    if further := [symbol for symbol in explained if symbol not in shown and symbol not in quantities]:
        lines.append(_told_of(formula, [names[each] for each in further], further))
    for name, symbol in formula.symbols.items():
        unit = FREE[name].unit if name in FREE else "as its file states it"
        told = f"{words_of(name)} [{unit}]" if name in FREE else f"{name} [{unit}]".replace("_", r"\_")
        lines.append(rf"{names[symbol]} &: \text{{{told}}}")
    return "$$\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}$$"


def _in_order(formula: Formula, expression: sympy.Expr) -> list[Any]:
    free = expression.free_symbols
    return [symbol for symbol in formula.definitions.expressions if symbol in free]


def plain_text(formula: Formula) -> str:
    """Return the formula in plain text, part by part, at the values that its symbols stand for."""
    point = formula.point()
    lines = [repr(formula)]
    own = {formula.quantity: formula.named_parts[formula.quantity]}
    for name, each in (own | _parts(formula)).items():
        count = len(sympy.Add.make_args(_opened(formula, each)))
        terms = "1 term" if count == 1 else f"{count} terms"
        unit = formula.unit if name == formula.quantity else "s"
        lines.append(f"  {name}: {terms}, {point.value(each):.6g} {unit} where nothing else is said")
        leading = leading_terms(point, each) if name in (*PARTS, *TOTALS) else None
        if leading is not None and leading.terms:
            written = [str(term.xreplace(_rounded(term))) for term in leading.terms]
            rest = [f"{leading.value_of_others:.3g} of {leading.others} others"] if leading.others else []
            lines.append(f"    there: {' + '.join([*written, *rest])}")
    lines += [f"  {name} = {value:.6g}" for name, value in formula.stated.items()]
    return "\n".join(lines)
