"""The branches of a formula in words: what wins in each Max, Min and choice, part by part."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import sympy

from perfmodel.planning.formula_symbols import words_of
from perfmodel.planning.formula_values import AtPoint
from perfmodel.prediction.step_time import PARTS
from perfmodel.presentation.quantities import seconds_text

if TYPE_CHECKING:
    from perfmodel.framework.kernel_table import KernelTable
    from perfmodel.planning.formula import Formula

OF_ROWS: Final = frozenset(
    ("arithmetic", "traffic", "kernel", "launch", "exposed dispatch", "longer of kernel and dispatch")
)
"""Names of expressions of which there is one for each kernel."""

BOUNDS: Final = ("arithmetic", "traffic")
"""What a kernel is bound by, of which the longer one counts."""

OF_GROUPS: Final = frozenset(("chosen", "shortest", "operation"))
"""Names of expressions of which there is one for each operation."""

OF_ALTERNATIVES: Final = frozenset(("alternative", "allowed alternative"))
"""Names of expressions of which there is one for each algorithm of an operation."""

LONGEST: Final = 8.0
"""From here on a number is taken for an extent or a count, not for the time of a kernel. [s]"""

SHOWN: Final = 6
"""Branches of a part that are printed, the longest times first. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """What wins in one Max, Min or choice.

    Parameters
    ----------
    part : str
        The exclusive part of the step that it decides. [-]
    where : str
        What it is the time of. [-]
    kind : str
        ``Max``, ``Min`` or ``choice``. [-]
    wins : str
        The argument that counts, in words. [-]
    value : float
        What it comes to. [s, mostly]
    others : tuple of float
        What the other arguments come to. [s, mostly]
    """

    part: str
    where: str
    kind: str
    wins: str
    value: float
    others: tuple[float, ...]

    def __str__(self) -> str:
        others = ", ".join(_shown(each) for each in self.others[:3])
        more = f" and {len(self.others) - 3} more" if len(self.others) > 3 else ""
        return f"{self.where}: {self.wins} ({_shown(self.value)}, not {others}{more})"


def _shown(value: float) -> str:
    """Return a time, or an extent or count, which are far longer than any kernel."""
    return seconds_text(value) if abs(value) < LONGEST else "not allowed" if math.isinf(value) else f"{value:.6g}"


@dataclass(frozen=True, slots=True)
class Active:
    """Branches of a formula at a point; ``rows`` has all of them, printed are those that matter most."""

    rows: tuple[Branch, ...]
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
            own = self.of(part)
            if not value and not own:
                continue
            lines.append(f"{part} = {seconds_text(value)}")
            kernels = Counter(row.wins for row in own if row.where.startswith("kernel"))
            lines += [f"  {count} kernels bound by {what}" for what, count in kernels.most_common()]
            first = sorted(own, key=lambda row: (not row.where.startswith("kernel"), abs(row.value) >= LONGEST))
            lines += [f"  {row}" for row in first[:SHOWN]]
            if len(own) > SHOWN:
                lines.append(f"  and {len(own) - SHOWN} more, in rows")
        return "\n".join(lines)


@lru_cache(maxsize=16)
def _layers_of_groups(table: KernelTable) -> tuple[str, ...]:
    found: dict[int, list[str]] = {}
    for each in table.occurrences:
        found.setdefault(each.group, []).append(f"{each.layer} {each.phase.value}")
    return tuple(
        found[group][0] + (f" (and {len(found[group]) - 1} alike)" if len(found[group]) > 1 else "")
        for group in range(len(table.multiplicity))
    )


@lru_cache(maxsize=16)
def _groups_of_alternatives(table: KernelTable) -> dict[int, int]:
    return {int(each): group for choices in table.choices for group, each in reversed(list(enumerate(choices)))}


@lru_cache(maxsize=16)
def _alternatives_of_rows(table: KernelTable) -> dict[int, int]:
    ends = [*table.alternative_starts[1:].tolist(), len(table.row_order)]
    starts = table.alternative_starts.tolist()
    places = [(each, start, end) for each, (start, end) in enumerate(zip(starts, ends, strict=True))]
    return {int(row): each for each, start, end in reversed(places) for row in table.row_order[start:end]}


def where_of(formula: Formula, symbol: sympy.Symbol) -> str:
    """Return what a name of a formula is, with the layer it belongs to."""
    meaning, table = formula.definitions.meanings[symbol], formula.opened.prepared.plan.table
    layers = _layers_of_groups(table)
    if meaning.name in OF_GROUPS and meaning.place < len(layers):
        return f"{meaning.name} of {layers[meaning.place]}"
    alternative = None
    if meaning.name in OF_ROWS:
        alternative = _alternatives_of_rows(table).get(meaning.place)
    elif meaning.name in OF_ALTERNATIVES:
        alternative = meaning.place
    if alternative is None or alternative not in _groups_of_alternatives(table):
        return meaning.name
    name = table.alternative_names[alternative]
    return f"{meaning.name} of {layers[_groups_of_alternatives(table)[alternative]]} ({name})"


def words_of_argument(formula: Formula, argument: Any) -> str:
    """Return an argument of a Max, Min or choice in a few words."""
    if argument in formula.definitions.meanings:
        return formula.definitions.meanings[argument].name
    if argument.is_number:
        return "nothing" if argument == 0 else f"{float(argument):.6g}"
    for name, symbol in formula.symbols.items():
        if argument == symbol:
            return words_of(name)
    inner = [each for each in argument.free_symbols if each in formula.definitions.meanings]
    text = str(argument)
    if len(text) <= 40 and not inner:
        return text
    names = dict.fromkeys(formula.definitions.meanings[each].name for each in sorted(inner, key=str))
    return f"by {' and '.join(list(names)[:3])}" if names else "the other side"


def live(point: AtPoint, expression: Any) -> Iterator[tuple[sympy.Symbol | None, Any]]:
    """Yield what an expression comes through at a point: each Max, Min, choice and ceiling that its value depends on.

    Arguments that lose are not followed. Each comes with the name in whose definition it stands.
    """
    point.value(expression)
    seen: set[Any] = set()
    open_ends: list[tuple[sympy.Symbol | None, Any]] = [(None, sympy.sympify(expression))]
    while open_ends:
        owner, node = open_ends.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in point.definitions.expressions:
            open_ends.append((node, point.definitions.expressions[node]))
        elif node in point.taken:
            yield owner, node
            open_ends.append((owner, _winner(point, node)[0]))
        elif isinstance(node, sympy.ceiling):
            yield owner, node
        else:
            # of a product that is nothing, only what makes it so counts: a kernel is no part of where it does not lie
            nothing = [each for each in node.args if point.value(each) == 0] if isinstance(node, sympy.Mul) else []
            open_ends += [(owner, each) for each in reversed(nothing or node.args)]


def _arguments(node: Any) -> list[Any]:
    """Return what a node chooses from: of nested nodes of one kind, the arguments of all of them."""
    if isinstance(node, sympy.Piecewise):
        return [value for value, _ in node.args]
    arguments: list[Any] = []
    open_ends = [node]
    while open_ends:
        each = open_ends.pop()
        if isinstance(each, type(node)):
            open_ends += reversed(each.args)
        else:
            arguments.append(each)
    return arguments


def _winner(point: AtPoint, node: Any) -> tuple[Any, tuple[float, ...], int]:
    """Follow nested nodes of one kind down to the argument that wins; with what all of them come to, and its place."""
    taken = point.taken[node]
    if isinstance(node, sympy.Piecewise):
        return taken.argument, taken.values, taken.place
    arguments = _arguments(node)
    values = tuple(point.value(each) for each in arguments)
    place = values.index(taken.values[taken.place])
    return arguments[place], values, place


def _is_guard(node: Any) -> bool:
    """Tell whether a choice is between a value and a number that stands where it would mean nothing."""
    return isinstance(node, sympy.Piecewise) and any(value.is_number for value, _ in node.args)


def active_branches(formula: Formula, point: AtPoint) -> Active:
    """Return every branch that the parts of a formula come through at a point, those of longest times first."""
    rows, met = [], set()
    values = {part: point.value(formula.named_parts[part]) for part in PARTS}
    # last, as every kernel is also what dispatching it is set against
    for part in sorted(PARTS, key=lambda part: part == "overhead_s"):
        for symbol, node in live(point, formula.named_parts[part]):
            if node in met or isinstance(node, sympy.ceiling) or _is_guard(node):
                continue
            met.add(node)
            weight = values[part] if symbol is None else abs(point.value(symbol))
            rows.append((weight, _branch(formula, point, part, symbol, node)))
    rows.sort(key=lambda row: -row[0])
    return Active(tuple(row for _, row in rows), values)


def _branch(formula: Formula, point: AtPoint, part: str, symbol: sympy.Symbol | None, node: Any) -> Branch:
    _, values, place = _winner(point, node)
    kind = "choice" if isinstance(node, sympy.Piecewise) else type(node).__name__
    is_menu = kind == "Min" and len(values) > 2
    return Branch(
        part=part,
        where=part if symbol is None else where_of(formula, symbol),
        kind=kind,
        wins=f"entry {place + 1} of the {len(values)} tiles"
        if is_menu
        else _words_of_winner(formula, symbol, node, place),
        value=values[place],
        others=(*values[:place], *values[place + 1 :]),
    )


def _words_of_winner(formula: Formula, symbol: sympy.Symbol | None, node: Any, place: int) -> str:
    """Return the winning argument in words; of a kernel's two bounds the one without a symbol is told by the other."""
    argument = _arguments(node)[place]
    if symbol is not None and formula.definitions.meanings[symbol].name == "kernel" and argument.is_number:
        named = {formula.definitions.meanings[each].name for each in node.args if each in formula.definitions.meanings}
        for one, other in (BOUNDS, BOUNDS[::-1]):
            if named == {one}:
                return other
    return words_of_argument(formula, argument)


def changed_branches(formula: Formula, one: AtPoint, other: AtPoint) -> list[str]:
    """Return in words which branches that count differ between two points, and how many ceilings do.

    Parameters
    ----------
    formula : Formula
        The formula. [-]
    one, other : AtPoint
        The points. [-]

    Returns
    -------
    list of str
        One line for each branch, and one for all ceilings. [-]
    """
    wanted = formula.named_parts[formula.quantity]
    sides = [{node: symbol for symbol, node in live(point, wanted)} for point in (one, other)]
    found: dict[str, None] = {}
    stepped = 0
    for node, symbol in (sides[0] | sides[1]).items():
        for point in (one, other):
            point.value(node)
        if isinstance(node, sympy.ceiling):
            stepped += one.value(node) != other.value(node)
        elif one.taken[node].place != other.taken[node].place:
            place = formula.quantity if symbol is None else where_of(formula, symbol)
            words = [words_of_argument(formula, _winner(point, node)[0]) for point in (one, other)]
            if words[0] != words[1]:
                found[f"{place}: {words[0]} below, {words[1]} above"] = None
            else:
                found[f"{place}: another entry"] = None
    return [*found, *([f"{stepped} ceilings, of tiles and of units that share them, step"] if stepped else [])]
