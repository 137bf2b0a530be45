"""The branches of a formula in words: what wins in each Max, Min and choice, part by part."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import sympy

from perfmodel.planning.formulas.places import Chosen, kernels_of, where_of
from perfmodel.planning.formulas.symbols import words_of
from perfmodel.planning.formulas.values import AtPoint
from perfmodel.prediction.step_time import PARTS
from perfmodel.presentation.quantities import seconds_text

if TYPE_CHECKING:
    from perfmodel.planning.formulas.definitions import Meaning
    from perfmodel.planning.formulas.formula import Formula

BOUNDS: Final = ("arithmetic", "traffic")
"""What a kernel is bound by, of which the longer one counts."""

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
    kernel_count : int
        Kernels of the step's layers, by the algorithms that are chosen, whose branch this is; 0 where it is none of a
        kernel. [1]
    """

    part: str
    where: str
    kind: str
    wins: str
    value: float
    others: tuple[float, ...]
    kernel_count: int = 0

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
            kernels: Counter[str] = Counter()
            for row in own:
                kernels[row.wins] += row.kernel_count
            lines += [f"  {count} kernels bound by {what}" for what, count in kernels.most_common() if count]
            first = sorted(own, key=lambda row: (not row.where.startswith("kernel"), abs(row.value) >= LONGEST))
            lines += [f"  {row}" for row in first[:SHOWN]]
            if len(own) > SHOWN:
                lines.append(f"  and {len(own) - SHOWN} more, in rows")
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
    chosen = Chosen(formula, point)
    # last, as every kernel is also what dispatching it is set against
    for part in sorted(PARTS, key=lambda part: part == "overhead_s"):
        for symbol, node in live(point, formula.named_parts[part]):
            # an algorithm is chosen by setting each against the best before it, in every part: one choice, told once
            group = _group_of(formula, symbol, node)
            if node in met or group in met or isinstance(node, sympy.ceiling) or (_is_guard(node) and group is None):
                continue
            met |= {node} if group is None else {node, group}
            weight = values[part] if symbol is None else abs(point.value(symbol))
            rows.append((weight, _branch(formula, point, part, symbol, node, chosen)))
    rows.sort(key=lambda row: -row[0])
    return Active(tuple(row for _, row in rows), values)


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
    """Return the operation whose algorithm a node chooses; None for all other nodes."""
    if not isinstance(node, sympy.Piecewise) or node != formula.definitions.expressions.get(symbol):
        return None
    meaning = formula.definitions.meanings[symbol]
    if meaning.name != "chosen" or meaning.part is None:
        return None
    return meaning if len(set(meaning.part.choices[:, meaning.place].tolist())) > 1 else None


def _choice(formula: Formula, point: AtPoint, part: str, symbol: sympy.Symbol, node: Any, chosen: Chosen) -> Branch:
    """Return the choice of an algorithm: what is set against one another is the time of the whole operation."""
    condition = node.args[0][1]
    best, other = sorted(point.value(each) for each in (condition.lhs, condition.rhs))
    return Branch(
        part=part,
        where=where_of(formula, symbol, chosen),
        kind="choice",
        wins=chosen.of_group(formula.definitions.meanings[symbol]),
        value=best,
        others=(other,),
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
