"""Where a name of a formula stands: the layer, and the algorithm that is chosen there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
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


class Chosen:
    """Algorithms that are chosen at a point, stage by stage, as the numbers behind a formula tell.

    Parameters
    ----------
    formula : Formula
        The formula. [-]
    point : AtPoint
        The point. [-]
    """

    def __init__(self, formula: Formula, point: AtPoint) -> None:
        basis, opened = formula.prediction.basis, formula.opened
        assert basis is not None
        size: Any = point.value(opened.prepared.batch_size)
        factors = {name: point.value(factor) for name, factor in opened.factors.items()}
        self._of_groups: dict[int, list[int]] = {}
        self._counts: dict[int, Counter[int]] = {}
        for timed in replace(basis.prepared, batch_size=size).step(factors).stages:
            table, of_groups = timed.stage.plan.table, timed.groups.chosen.tolist()
            self._of_groups[id(table)], counts = of_groups, Counter[int]()
            for alternative, count in zip(of_groups, table.multiplicity.tolist(), strict=True):
                counts[alternative] += int(count)
            self._counts[id(table)] = counts

    def of_group(self, meaning: Meaning) -> str:
        """Return the name of the algorithm that an operation of a stage takes."""
        assert meaning.part is not None
        return meaning.part.alternative_names[self._of_groups[id(meaning.part)][meaning.place]]

    def count(self, table: KernelTable, alternative: int) -> int:
        """Return how many operations of a stage take an alternative. [1]"""
        return self._counts[id(table)][alternative]


def _alternatives(meaning: Meaning) -> Iterable[int]:
    """Return every algorithm that a name is a kernel or the total time of, once per launch."""
    if meaning.part is not None and meaning.name in OF_ROWS:
        return _alternatives_of_rows(meaning.part).get(meaning.place, ())
    return (meaning.place,) if meaning.name in OF_ALTERNATIVES else ()


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
    definitions = formula.definitions
    meaning = definitions.meanings[symbol]
    if meaning.part is not None and meaning.name in OF_GROUPS:
        layers = _layers_of_groups(meaning.part)
        if meaning.place < len(layers):
            what = "algorithm" if meaning.name == "chosen" else meaning.name
            return f"{what} of {layers[meaning.place]}"
    met = [
        (each.part, alternative)
        for each in definitions.alike[symbol]
        if each.part is not None
        for alternative in _alternatives(each)
        if alternative in _groups_of_alternatives(each.part)
    ]
    if not met:
        return meaning.name
    table, alternative = next((each for each in met if chosen is not None and chosen.count(*each)), met[0])
    layer = _layers_of_groups(table)[_groups_of_alternatives(table)[alternative]]
    return f"{meaning.name} of {layer} ({table.alternative_names[alternative]})"


def kernels_of(formula: Formula, symbol: sympy.Symbol, chosen: Chosen) -> int:
    """Return how many kernels take what a name says, by the algorithms that are chosen.

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
        Kernels, of all layers and one micro-batch. [1]
    """
    count = 0
    for each in formula.definitions.alike[symbol]:
        if each.name == "kernel" and each.part is not None:
            count += sum([chosen.count(each.part, alternative) for alternative in _alternatives(each)])
    return count
