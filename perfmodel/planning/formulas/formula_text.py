"""Formulas as text: active branches in words, part by part, and equations in LaTeX."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import sympy

from perfmodel.planning.formulas.evaluation import AtPoint
from perfmodel.planning.formulas.named_expressions import Meaning, leading_terms
from perfmodel.planning.formulas.symbols import FREE, latex_of, words_of
from perfmodel.prediction.device.step_time import PARTS, TOTALS
from perfmodel.presentation.quantities import seconds_text
from perfmodel.presentation.results import Result
from perfmodel.presentation.tables import Table
from perfmodel.symbolic import expression_of

if TYPE_CHECKING:
    from perfmodel.framework.kernel_table import KernelTable
    from perfmodel.planning.formulas.formula import Formula

OF_ROWS: Final = frozenset(
    ("arithmetic", "traffic", "kernel", "launch", "exposed dispatch", "longer of kernel and dispatch")
)
"""Names of expressions that exist once per kernel."""
OF_GROUPS: Final = frozenset(("chosen", "shortest", "operation"))
"""Names of expressions that exist once per operation."""
OF_ALTERNATIVES: Final = frozenset(("alternative", "allowed alternative"))
"""Names of expressions that exist once per algorithm of an operation."""


@lru_cache(maxsize=16)
def _layers_of_groups(table: KernelTable) -> tuple[str, ...]:
    layers: dict[int, list[str]] = {}
    for occurrence in table.occurrences:
        layers.setdefault(occurrence.group, []).append(f"{occurrence.layer} {occurrence.phase.value}")
    return tuple(
        layers[group][0] + (f" (and {len(layers[group]) - 1} alike)" if len(layers[group]) > 1 else "")
        for group in range(len(table.multiplicity))
    )


@lru_cache(maxsize=16)
def _groups_of_alternatives(table: KernelTable) -> dict[int, int]:
    return {int(place): group for choices in table.choices for group, place in reversed(list(enumerate(choices)))}


@lru_cache(maxsize=16)
def _alternatives_of_rows(table: KernelTable) -> dict[int, tuple[int, ...]]:
    """Return the algorithms that a kernel belongs to, by its row."""
    ends = [*table.alternative_starts[1:].tolist(), len(table.row_order)]
    alternatives: dict[int, tuple[int, ...]] = {}
    for alternative, (start, end) in enumerate(zip(table.alternative_starts.tolist(), ends, strict=True)):
        for row in table.row_order[start:end].tolist():
            alternatives[row] = (*alternatives.get(row, ()), alternative)
    return alternatives


class Chosen:
    """Algorithms chosen at a point, stage by stage."""

    def __init__(self, formula: Formula, point: AtPoint) -> None:
        basis, opened = formula.prediction.basis, formula.opened
        assert basis is not None
        size: Any = point.value(opened.prepared.batch_size)
        factors = {name: point.value(factor) for name, factor in opened.factors.items()}
        self._of_groups: dict[int, list[int]] = {}
        self._counts: dict[int, Counter[int]] = {}
        for timed in replace(basis.prepared, batch_size=size).step(factors).stages:
            table, of_groups = timed.stage.lowered.table, timed.groups.chosen.tolist()
            self._of_groups[id(table)], counts = of_groups, Counter[int]()
            for alternative, count in zip(of_groups, table.multiplicity.tolist(), strict=True):
                counts[alternative] += int(count)
            self._counts[id(table)] = counts

    def of_group(self, meaning: Meaning) -> str:
        """Return the name of the algorithm that is chosen for an operation of a stage."""
        assert meaning.part is not None
        return meaning.part.alternative_names[self._of_groups[id(meaning.part)][meaning.place]]

    def count(self, table: KernelTable, alternative: int) -> int:
        """Return the number of operations of a stage that use an algorithm. [1]"""
        of_stage = self._counts.get(id(table))
        # a table without alternatives adds up gradients; each of its operations runs once in a micro-batch
        return int(table.multiplicity[alternative]) if of_stage is None else of_stage[alternative]


def _alternatives(meaning: Meaning) -> Iterable[int]:
    """Return every algorithm to which a name belongs, as a kernel or total time, once per launch."""
    if meaning.part is not None and meaning.name in OF_ROWS:
        return _alternatives_of_rows(meaning.part).get(meaning.place, ())
    return (meaning.place,) if meaning.name in OF_ALTERNATIVES else ()


def where_of(formula: Formula, symbol: sympy.Symbol, chosen: Chosen | None = None) -> str:
    """Return the meaning of a named expression, with the layer that it belongs to."""
    definitions = formula.definitions
    meaning = definitions.meanings[symbol]
    if meaning.part is not None and meaning.name in OF_GROUPS:
        layers = _layers_of_groups(meaning.part)
        if meaning.place < len(layers):
            what = "algorithm" if meaning.name == "chosen" else meaning.name
            return f"{what} of {layers[meaning.place]}"
    uses = [
        (definition.part, alternative)
        for definition in definitions.alike[symbol]
        if definition.part is not None
        for alternative in _alternatives(definition)
        if alternative in _groups_of_alternatives(definition.part)
    ]
    if not uses:
        return meaning.name
    table, alternative = next((pair for pair in uses if chosen is not None and chosen.count(*pair)), uses[0])
    layer = _layers_of_groups(table)[_groups_of_alternatives(table)[alternative]]
    return f"{meaning.name} of {layer} ({table.alternative_names[alternative]})"


def kernels_of(formula: Formula, symbol: sympy.Symbol, chosen: Chosen) -> int:
    """Return the number of kernels to which a named expression applies, for the chosen algorithms."""
    count = 0
    for definition in formula.definitions.alike[symbol]:
        if definition.name == "kernel" and definition.part is not None:
            count += sum([chosen.count(definition.part, alternative) for alternative in _alternatives(definition)])
    return count


SHOWN_TERMS: Final = 8
"""Terms of a sum that are printed. [1]"""
SHOWN_NAMES: Final = 12
"""Names that are explained. [1]"""


def _parts(formula: Formula) -> dict[str, sympy.Expr]:
    """Return the parts that are not zero, and the quantity itself unless it is one of them."""
    parts = {name: formula.named_parts[name] for name in PARTS if not formula.named_parts[name].is_zero}
    return {formula.quantity: formula.named_parts[formula.quantity]} if formula.quantity in PARTS else parts


def _opened(formula: Formula, expression: Any) -> Any:
    """Return the definition of a name; other expressions are returned unchanged."""
    while expression in formula.definitions.expressions:
        expression = formula.definitions.expressions[expression]
    return expression


def _shortened(expression: sympy.Expr) -> tuple[sympy.Expr, int]:
    """Return a sum with its first terms, and the number of terms left out."""
    terms = sympy.Add.make_args(expression)
    if len(terms) <= SHOWN_TERMS:
        return expression, 0
    return sympy.Add(*terms[:SHOWN_TERMS], evaluate=False), len(terms) - SHOWN_TERMS


def _text_of(expression: sympy.Expr, names: dict[Any, str]) -> str:
    return str(sympy.latex(expression.xreplace(_rounded(expression)), symbol_names=names, min=-3, max=4))


def _rounded(expression: sympy.Expr) -> dict[sympy.Float, sympy.Float]:
    return {number: sympy.Float(number, 4) for number in expression.atoms(sympy.Float)}


def _label(quantity: str) -> str:
    if quantity == "samples_per_s":
        return r"R_{\text{samples}}"
    return r"T_{\text{" + quantity.removesuffix("_s").replace("_", " ") + "}}"


def _quantities(formula: Formula) -> dict[Any, str]:
    """Return the names that are whole quantities and are printed as such."""
    quantities = {}
    for symbol, expression in formula.definitions.expressions.items():
        for quantity in ("step_s", *PARTS):
            if formula.named_parts[quantity] in (symbol, expression):
                quantities[symbol] = quantity
    return quantities


def _on_branch(formula: Formula, parts: dict[str, sympy.Expr], names: dict[Any, str]) -> list[str]:
    """Return a line for each part: its expression on the branch that is active at the stated values."""
    point = formula.stated_point
    there = ", ".join(f"{names[symbol]} = {point.at[symbol]:.4g}" for symbol in formula.symbols.values())
    lines = [rf"&\text{{on the branches active at }} {there} \text{{:}}"]
    for name, expression in parts.items():
        leading = leading_terms(point, expression)
        written = [_text_of(term, names) for term in leading.terms]
        if leading.others:
            what = "others" if written else "terms that cancel one another"
            written.append(rf"\underbrace{{{leading.value_of_others:.3g}}}_{{\text{{{leading.others} {what}, there}}}}")
        lines.append(f"{_label(name)} &= {' + '.join(written)}")
    return lines


def _line_on_names(formula: Formula, written: list[str], symbols: list[Any]) -> str:
    """Return a line on the names that are used but not defined: their kinds and layers."""
    kinds = Counter(formula.definitions.meanings[symbol].name for symbol in symbols)
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()).replace("_", r"\_")
    first = [*written[:SHOWN_TERMS], *([r"\ldots"] if len(written) > SHOWN_TERMS else [])]
    return rf"{', '.join(first)} &: \text{{all other names, in definitions: {counted}}}"


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
        quantity_of_formula = (
            {} if formula.quantity in ("step_s", *parts) else {formula.quantity: formula.named_parts[formula.quantity]}
        )
        for name, expression in (quantity_of_formula | parts).items():
            short, left_out = _shortened(_opened(formula, expression))
            more = rf" + \cdots\ (\text{{{left_out} more terms}})" if left_out else ""
            lines.append(f"{_label(name)} &= {_text_of(short, names)}{more}")
            explained |= dict.fromkeys(explained_symbol for explained_symbol in _in_order(formula, short))
        shown = [symbol for symbol in explained if symbol not in quantities][:SHOWN_NAMES]
        for symbol in shown:
            short, left_out = _shortened(formula.definitions.expressions[symbol])
            more = rf" + \cdots\ ({left_out})" if left_out else ""
            what = where_of(formula, symbol).replace("_", r"\_")
            lines.append(rf"{names[symbol]} &= {_text_of(short, names)}{more} && \text{{{what}}}")
            explained |= dict.fromkeys(_in_order(formula, short))
    if further := [symbol for symbol in explained if symbol not in shown and symbol not in quantities]:
        lines.append(_line_on_names(formula, [names[further_symbol] for further_symbol in further], further))
    for name, symbol in formula.symbols.items():
        unit = FREE[name].unit if name in FREE else "as its file states it"
        meaning = f"{words_of(name)} [{unit}]" if name in FREE else f"{name} [{unit}]".replace("_", r"\_")
        lines.append(rf"{names[symbol]} &: \text{{{meaning}}}")
    return "$$\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}$$"


def _in_order(formula: Formula, expression: sympy.Expr) -> list[Any]:
    free = expression.free_symbols
    return [symbol for symbol in formula.definitions.expressions if symbol in free]


def plain_text(formula: Formula) -> str:
    """Return the formula in plain text, part by part, at the stated values of its symbols."""
    point = formula.stated_point
    lines = [repr(formula)]
    quantity_of_formula = {formula.quantity: formula.named_parts[formula.quantity]}
    for name, expression in (quantity_of_formula | _parts(formula)).items():
        count = len(sympy.Add.make_args(_opened(formula, expression)))
        terms = "1 term" if count == 1 else f"{count} terms"
        unit = formula.unit if name == formula.quantity else "s"
        lines.append(f"  {name}: {terms}, {point.value(expression):.6g} {unit} at the stated values")
        leading = leading_terms(point, expression) if name in (*PARTS, *TOTALS) else None
        if leading is not None and leading.terms:
            written = [str(term.xreplace(_rounded(term))) for term in leading.terms]
            rest = [f"{leading.value_of_others:.3g} of {leading.others} others"] if leading.others else []
            lines.append(f"    there: {' + '.join([*written, *rest]).replace('+ -', '- ')}")
    lines += [f"  {name} = {value:.6g}" for name, value in formula.stated.items()]
    return "\n".join(lines)


BOUNDS: Final = ("arithmetic", "traffic")
"""The two bounds of a kernel, the longer of which counts."""
LONGEST: Final = 8.0
"""Numbers at or above this are printed as extents or counts, not as times of a kernel. [s]"""
SHOWN: Final = 6
"""Branches of a part that are printed, the longest times first. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """The winner of one Max, Min or choice."""

    part: str
    where: str
    kind: str
    wins: str
    value: float
    others: tuple[float, ...]
    kernel_count: int = 0

    def __str__(self) -> str:
        others = ", ".join(_shown(other) for other in self.others[:3])
        more = f" and {len(self.others) - 3} more" if len(self.others) > 3 else ""
        return f"{self.where}: {self.wins} ({_shown(self.value)}, not {others}{more})"


def _shown(value: float) -> str:
    """Write a value: as a time below a limit that no kernel reaches, above it as an extent or count."""
    return seconds_text(value) if abs(value) < LONGEST else "not allowed" if math.isinf(value) else f"{value:.6g}"


@dataclass(frozen=True, slots=True)
class ActiveBranches(Result):
    """Branches of a formula at a point; ``rows`` has all; the most important are printed."""

    rows: Table[Branch]
    values: dict[str, float]

    def of(self, part: str) -> tuple[Branch, ...]:
        """Return the branches that decide a part."""
        return tuple(row for row in self.rows if row.part == part)

    def __iter__(self) -> Iterator[Branch]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        lines = []
        for part, value in self.values.items():
            in_part = self.of(part)
            if not value and not in_part:
                continue
            lines.append(f"{part} = {seconds_text(value)}")
            kernels: Counter[str] = Counter()
            for row in in_part:
                kernels[row.wins] += row.kernel_count
            lines += [f"  {count} kernels bound by {what}" for what, count in kernels.most_common() if count]
            first = sorted(in_part, key=lambda row: (not row.where.startswith("kernel"), abs(row.value) >= LONGEST))
            lines += [f"  {row}" for row in first[:SHOWN]]
            if len(in_part) > SHOWN:
                lines.append(f"  and {len(in_part) - SHOWN} more, in rows")
        return "\n".join(lines)


def words_of_argument(formula: Formula, argument: Any) -> str:
    """Return an argument of a Max, Min or choice in a few words."""
    if argument in formula.definitions.meanings:
        return formula.definitions.meanings[argument].name
    if argument.is_number:
        return "nothing" if argument == 0 else f"{float(argument):.6g}"
    for name, symbol in formula.symbols.items():
        if argument == symbol:
            return words_of(name)
    inner = [inner_symbol for inner_symbol in argument.free_symbols if inner_symbol in formula.definitions.meanings]
    text = str(argument)
    if len(text) <= 40 and not inner:
        return text
    names = dict.fromkeys(formula.definitions.meanings[inner_symbol].name for inner_symbol in sorted(inner, key=str))
    return f"by {' and '.join(list(names)[:3])}" if names else "the other side"


def live(point: AtPoint, expression: Any) -> Iterator[tuple[sympy.Symbol | None, Any]]:
    """Yield each Max, Min, choice and ceiling that an expression's value depends on at a point.

    Arguments that are not taken are not followed. Each comes with the name whose definition contains it.
    """
    point.value(expression)
    visited: set[Any] = set()
    open_ends: list[tuple[sympy.Symbol | None, Any]] = [(None, expression_of(expression))]
    while open_ends:
        owner, node = open_ends.pop()
        if node in visited:
            continue
        visited.add(node)
        if node in point.definitions.expressions:
            open_ends.append((node, point.definitions.expressions[node]))
        elif node in point.taken:
            yield owner, node
            open_ends.append((owner, _winner(point, node)[0]))
        elif isinstance(node, sympy.ceiling):
            yield owner, node
        else:
            # in a zero product only the zero factor counts: it excludes a kernel from other parts
            nothing = [inner for inner in node.args if point.value(inner) == 0] if isinstance(node, sympy.Mul) else []
            open_ends += [(owner, inner) for inner in reversed(nothing or node.args)]


def _arguments(node: Any) -> list[Any]:
    """Return the arguments that a node chooses from, with nested nodes of the same kind unfolded."""
    if isinstance(node, sympy.Piecewise):
        return [value for value, _ in node.args]
    arguments: list[Any] = []
    open_ends = [node]
    while open_ends:
        end = open_ends.pop()
        if isinstance(end, type(node)):
            open_ends += reversed(end.args)
        else:
            arguments.append(end)
    return arguments


def _winner(point: AtPoint, node: Any) -> tuple[Any, tuple[float, ...], int]:
    """Follow nested nodes of the same kind to the winning argument; return it with all values and its index."""
    taken = point.taken[node]
    if isinstance(node, sympy.Piecewise):
        return taken.argument, taken.values, taken.place
    arguments = _arguments(node)
    values = tuple(point.value(argument) for argument in arguments)
    place = values.index(taken.values[taken.place])
    return arguments[place], values, place


def _is_guard(node: Any) -> bool:
    """Tell whether a choice only guards a value against arguments at which it is undefined."""
    return isinstance(node, sympy.Piecewise) and any(value.is_number for value, _ in node.args)


def active_branches(formula: Formula, point: AtPoint) -> ActiveBranches:
    """Return every branch that the parts of a formula take at a point, longest times first."""
    rows, done = [], set()
    values = {part: point.value(formula.named_parts[part]) for part in PARTS}
    chosen = Chosen(formula, point)
    # last, because every kernel is also compared with its dispatch
    for part in sorted(PARTS, key=lambda part: part == "overhead_s"):
        for symbol, node in live(point, formula.named_parts[part]):
            # each algorithm is compared with the best before it, in every part: one choice, reported once
            group = _group_of(formula, symbol, node)
            if node in done or group in done or isinstance(node, sympy.ceiling) or (_is_guard(node) and group is None):
                continue
            done |= {node} if group is None else {node, group}
            weight = values[part] if symbol is None else abs(point.value(symbol))
            rows.append((weight, _branch(formula, point, part, symbol, node, chosen)))
    rows.sort(key=lambda row: -row[0])
    return ActiveBranches(Table([row for _, row in rows], row_type=Branch), values)


def _branch(
    formula: Formula, point: AtPoint, part: str, symbol: sympy.Symbol | None, node: Any, chosen: Chosen
) -> Branch:
    if symbol is not None and _group_of(formula, symbol, node) is not None:
        return _choice(formula, point, part, symbol, node, chosen)
    _, values, place = _winner(point, node)
    kind = "choice" if isinstance(node, sympy.Piecewise) else type(node).__name__
    is_menu = kind == "Min" and len(values) > 2
    return Branch(
        part=part,
        where=part if symbol is None else where_of(formula, symbol, chosen),
        kind=kind,
        wins=f"entry {place + 1} of the {len(values)} tiles"
        if is_menu
        else _words_of_winner(formula, symbol, node, place),
        value=values[place],
        others=(*values[:place], *values[place + 1 :]),
        kernel_count=0 if symbol is None else kernels_of(formula, symbol, chosen),
    )


def _group_of(formula: Formula, symbol: sympy.Symbol | None, node: Any) -> Meaning | None:
    """Return the operation whose algorithm a node chooses; None for other nodes."""
    if not isinstance(node, sympy.Piecewise) or node != formula.definitions.expressions.get(symbol):
        return None
    meaning = formula.definitions.meanings[symbol]
    if meaning.name != "chosen" or meaning.part is None:
        return None
    return meaning if len(set(meaning.part.choices[:, meaning.place].tolist())) > 1 else None


def _choice(formula: Formula, point: AtPoint, part: str, symbol: sympy.Symbol, node: Any, chosen: Chosen) -> Branch:
    """Return the choice of an algorithm, which compares times of the whole operation."""
    condition = node.args[0][1]
    best, other = sorted(point.value(side) for side in (condition.lhs, condition.rhs))
    return Branch(
        part=part,
        where=where_of(formula, symbol, chosen),
        kind="choice",
        wins=chosen.of_group(formula.definitions.meanings[symbol]),
        value=best,
        others=(other,),
    )


def _words_of_winner(formula: Formula, symbol: sympy.Symbol | None, node: Any, place: int) -> str:
    """Return the winning argument in words; a kernel bound without a symbol is named after the other bound."""
    argument = _arguments(node)[place]
    if symbol is not None and formula.definitions.meanings[symbol].name == "kernel" and argument.is_number:
        meanings = formula.definitions.meanings
        named = {meanings[argument].name for argument in node.args if argument in meanings}
        for one, other in (BOUNDS, BOUNDS[::-1]):
            if named == {one}:
                return other
    return words_of_argument(formula, argument)


def changed_branches(formula: Formula, one: AtPoint, other: AtPoint) -> list[str]:
    """Return the branches that differ between two points, in words, and the number of ceilings that differ."""
    wanted = formula.named_parts[formula.quantity]
    sides = [{node: symbol for symbol, node in live(point, wanted)} for point in (one, other)]
    chosen = [Chosen(formula, point) for point in (one, other)]
    changes: dict[str, None] = {}
    stepped = 0
    for node, symbol in (sides[0] | sides[1]).items():
        for point in (one, other):
            point.value(node)
        if isinstance(node, sympy.ceiling):
            stepped += one.value(node) != other.value(node)
        elif one.taken[node].place != other.taken[node].place:
            place = formula.quantity if symbol is None else where_of(formula, symbol)
            group = _group_of(formula, symbol, node)
            if group is not None:
                words = [side.of_group(group) for side in chosen]
            else:
                words = [words_of_argument(formula, _winner(point, node)[0]) for point in (one, other)]
            if words[0] != words[1]:
                changes[f"{place}: {words[0]} below, {words[1]} above"] = None
            elif group is None:
                changes[f"{place}: another entry"] = None
    return [*changes, *([f"{stepped} ceilings change: of tiles, and of units that share them"] if stepped else [])]
