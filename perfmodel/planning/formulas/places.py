"""Where a name of a formula stands: the layer, and the algorithm that is chosen there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import sympy

from perfmodel.planning.formulas.values import AtPoint

if TYPE_CHECKING:
    from perfmodel.framework.kernel_table import KernelTable
    from perfmodel.planning.formulas.definitions import Meaning
    from perfmodel.planning.formulas.formula import Formula

OF_ROWS: Final = frozenset(
    ("arithmetic", "traffic", "kernel", "launch", "exposed dispatch", "longer of kernel and dispatch")
)
"""Names of expressions of which there is one for each kernel."""

OF_GROUPS: Final = frozenset(("chosen", "shortest", "operation"))
"""Names of expressions of which there is one for each operation."""

OF_ALTERNATIVES: Final = frozenset(("alternative", "allowed alternative"))
"""Names of expressions of which there is one for each algorithm of an operation."""


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
def _alternatives_of_rows(table: KernelTable) -> dict[int, tuple[int, ...]]:
    """Return the algorithms that a kernel is part of, by its row."""
    ends = [*table.alternative_starts[1:].tolist(), len(table.row_order)]
    found: dict[int, tuple[int, ...]] = {}
    for each, (start, end) in enumerate(zip(table.alternative_starts.tolist(), ends, strict=True)):
        for row in table.row_order[start:end].tolist():
            found[row] = (*found.get(row, ()), each)
    return found


@dataclass(frozen=True, slots=True)
class Chosen:
    """Algorithms that are chosen at a point.

    Parameters
    ----------
    of_group : tuple of int
        Place among the alternatives of what each unique operation takes. [1]
    counts : Counter of int
        How many operations of the step take each. [1]
    """

    of_group: tuple[int, ...]
    counts: Counter[int]


def chosen_at(formula: Formula, point: AtPoint) -> Chosen:
    """Return the algorithms that are chosen at a point, as the numbers behind the formula tell.

    Parameters
    ----------
    formula : Formula
        The formula. [-]
    point : AtPoint
        The point. [-]

    Returns
    -------
    Chosen
        By operation. [-]
    """
    basis, opened = formula.prediction.basis, formula.opened
    assert basis is not None
    size: Any = point.value(opened.prepared.batch_size)
    factors = {name: point.value(factor) for name, factor in opened.factors.items()}
    of_group = tuple(replace(basis.prepared, batch_size=size).step(factors).groups.chosen.tolist())
    counts: Counter[int] = Counter()
    for alternative, count in zip(of_group, opened.prepared.plan.table.multiplicity.tolist(), strict=True):
        counts[alternative] += int(count)
    return Chosen(of_group, counts)


def _alternatives(table: KernelTable, meanings: Iterable[Meaning]) -> Iterator[int]:
    """Yield the algorithms that a name is a kernel of, or the time of; a kernel that one runs twice, twice."""
    for meaning in meanings:
        if meaning.name in OF_ROWS:
            yield from _alternatives_of_rows(table).get(meaning.place, ())
        elif meaning.name in OF_ALTERNATIVES:
            yield meaning.place


def where_of(formula: Formula, symbol: sympy.Symbol, chosen: Chosen | None = None) -> str:
    """Return what a name of a formula is, with the layer that it belongs to.

    Parameters
    ----------
    formula : Formula
        The formula. [-]
    symbol : sympy.Symbol
        The name. [-]
    chosen : Chosen or None
        Algorithms at a point: of kernels that take the same time, one that runs is told. [-]

    Returns
    -------
    str
        In words. [-]
    """
    definitions, table = formula.definitions, formula.opened.prepared.plan.table
    meaning, layers = definitions.meanings[symbol], _layers_of_groups(table)
    if meaning.name in OF_GROUPS and meaning.place < len(layers):
        what = "algorithm" if meaning.name == "chosen" else meaning.name
        return f"{what} of {layers[meaning.place]}"
    groups = _groups_of_alternatives(table)
    met = [each for each in _alternatives(table, definitions.alike[symbol]) if each in groups]
    if not met:
        return meaning.name
    alternative = next((each for each in met if chosen is not None and each in chosen.counts), met[0])
    return f"{meaning.name} of {layers[groups[alternative]]} ({table.alternative_names[alternative]})"


def kernels_of(formula: Formula, symbol: sympy.Symbol, chosen: Chosen) -> int:
    """Return how many kernels of a step take what a name says, by the algorithms that are chosen.

    Parameters
    ----------
    formula : Formula
        The formula. [-]
    symbol : sympy.Symbol
        The name. [-]
    chosen : Chosen
        The algorithms. [-]

    Returns
    -------
    int
        Kernels, of all layers. [1]
    """
    table = formula.opened.prepared.plan.table
    of_kernels = [each for each in formula.definitions.alike[symbol] if each.name == "kernel"]
    return sum(chosen.counts[each] for each in _alternatives(table, of_kernels))
