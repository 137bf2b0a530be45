"""Which cells of a table each fitted constant moves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.hardware.fit_file import factors_by_constant
from perfmodel.presentation.tables import Table, row_table
from perfmodel.validation.protocols.protocols import ALL_FITTED, HeldOut, predict_subset
from perfmodel.validation.validate import scored_cells

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.measurements.table import MeasurementTable


CHANGE: Final = 0.10
"""By how much a constant is changed. [1]"""

MOVED: Final = 0.01
"""Relative change of a predicted time from which a cell counts as moved. [1]"""


def sensitivity(
    table: str | Path | MeasurementTable = "shi2016",
    *,
    only: str = "gpu",
    progress: Callable[[int, int], None] | None = None,
) -> Table[Any]:
    """List for every fitted constant the cells that it moves by more than 1 % when it changes by 10 % up or down."""
    loaded, cells = scored_cells(table, only)
    fitted = predict_subset(cells, subset=only, protocol=ALL_FITTED, progress=progress)
    return row_table(
        [_row(fitted, index) for index in range(len(fitted.unknowns))],
        title=f"{loaded.key}, {only}: cells that a change of {CHANGE:.0%} moves by more than {MOVED:.0%}",
    )


def _row(fitted: HeldOut, unknown: int) -> dict[str, Any]:
    fit = fitted.only_fit
    moves = _moves(fitted, unknown)
    pairs = _pairs(fitted, moves)
    kinds = {_kind(name) for cell in range(len(fitted.cells)) for name in _names(fitted, cell, unknown=unknown)}
    of_kinds = [_pairs(fitted, _moves(fitted, unknown, kind=kind)) for kind in kinds] if len(kinds) > 1 else [pairs]
    frameworks = dict.fromkeys(framework for framework, _ in pairs)
    families = "; ".join(
        f"{framework}: {', '.join(family for other, family in pairs if other == framework)}" for framework in frameworks
    )
    return {
        "unknown": fit.names[unknown],
        "factor": float(np.exp(fit.log_factors[unknown])),
        "cells": int(np.sum(moves > MOVED)),
        "most_percent": 100 * float(moves.max()),
        "moves": families or "none",
        "is_pair": bool(pairs) and all(len(kinds) <= 1 for kinds in of_kinds),
    }


def _kind(name: str) -> str:
    """Reduce a full name to its constant, without file and entry."""
    return name.rsplit("/", 1)[-1].split(".")[1]


def _names(fitted: HeldOut, cell: int, *, unknown: int) -> list[str]:
    """Return the constants of a cell that an unknown scales."""
    assert fitted.problem is not None
    scaling = fitted.problem.parts[cell].scaling
    return [name for name, (indices, _) in scaling.items() if unknown in indices]


def _moves(fitted: HeldOut, unknown: int, *, kind: str | None = None) -> NDArray[np.float64]:
    """Return the relative change of each cell's time when an unknown, or one kind of its constants, changes."""
    moves = np.zeros(len(fitted.cells))
    for index, cell in enumerate(fitted.cells):
        names = [name for name in _names(fitted, index, unknown=unknown) if kind in (None, _kind(name))]
        if not names:
            continue
        prepared = cell.prepared
        factors = factors_by_constant(fitted.unknowns, fitted.only_fit.factors, prepared.constant_names)
        # a constant at a bound, or behind another one, moves cells one way only: the larger change counts
        ways = np.array([1.0, 1 + CHANGE, 1 - CHANGE])
        times = prepared.step(factors | {name: factors[name] * ways for name in names}).parts.step_s
        times = np.broadcast_to(times, len(ways))
        moves[index] = np.abs(times[1:] / times[0] - 1).max()
    return moves


def _pairs(fitted: HeldOut, moves: NDArray[np.float64]) -> list[tuple[str, str]]:
    """Return the frameworks and families of the cells that move."""
    moved = (cell for cell, move in zip(fitted.cells, moves, strict=True) if move > MOVED)
    return sorted({(cell.row.framework, cell.family) for cell in moved})
