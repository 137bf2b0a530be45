"""Which cells each fitted constant moves: what moves one family of one framework only is a constant of neither."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from perfmodel.presentation.tables import Table
from perfmodel.validation.cells import prepare_cells
from perfmodel.validation.fitted import FittedSubset, predict_subset
from perfmodel.validation.protocols import ALL_FITTED
from perfmodel.validation.validate import checked_table, nothing_to_score

if TYPE_CHECKING:
    from collections.abc import Callable

    from perfmodel.measurements.table import MeasurementTable

CHANGE: Final = 0.10
"""By how much a constant is changed. [1]"""

MOVED: Final = 0.01
"""Relative change of a predicted time from which a cell counts as moved. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SensitivityRow:
    """What one fitted constant moves.

    Parameters
    ----------
    unknown : str
        Name of the constant. [-]
    factor : float
        Its fitted factor. [1]
    cells : int
        Cells that move by more than 1 % when it changes by 10 %. [1]
    most_percent : float
        Largest change of a predicted time. [%]
    moves : str
        Families by framework, e.g. ``caffe_1_0_rc3: CNN, FCN``. [-]
    is_pair : bool
        Whether it moves one family of one framework only, which makes it a (framework, network) constant. [-]
    """

    unknown: str
    factor: float
    cells: int
    most_percent: float
    moves: str
    is_pair: bool


def sensitivity(
    table: str | Path | MeasurementTable = "shi2016",
    *,
    only: str = "gpu",
    progress: Callable[[int, int], None] | None = None,
) -> Table[SensitivityRow]:
    """List for every fitted constant the cells that it moves by more than 1 % when it changes by 10 % up or down.

    Parameters
    ----------
    table : str, Path or MeasurementTable
        What is fitted. [-]
    only : str
        ``gpu``, ``cpu`` or ``cpu_oversubscribed``. [-]
    progress : callable or None
        Told how much is done, and of how much. [-]

    Returns
    -------
    Table of SensitivityRow
        One row for each constant, in the order of the fit plan.

    Raises
    ------
    UnknownNameError, TableError, CalibrationError
        As for ``validate``.
    """
    loaded = checked_table(table)
    cells = [cell for cell in prepare_cells(loaded, loaded.subset(only)) if cell.is_scored]  # type: ignore[arg-type]
    if not cells:
        raise nothing_to_score(loaded, only)
    fitted = predict_subset(cells, subset=only, protocol=ALL_FITTED, progress=progress)
    return Table(
        tuple(_row(fitted, index) for index in range(len(fitted.problem.unknowns))),
        title=f"{loaded.key}, {only}: cells that a change of {CHANGE:.0%} moves by more than {MOVED:.0%}",
    )


def _row(fitted: FittedSubset, unknown: int) -> SensitivityRow:
    found, problem, rows = fitted.fits[0], fitted.problem, range(len(fitted.cells))
    before, _ = problem.log_times(found.log_factors, rows)
    moves = np.zeros(len(rows))
    for change in (CHANGE, -CHANGE):  # a constant at a bound, or behind another one, moves cells one way only
        changed = found.log_factors.copy()
        changed[unknown] += np.log1p(change)
        after, _ = problem.log_times(changed, rows)
        moves = np.maximum(moves, np.abs(np.expm1(after - before)))
    moved = [cell for cell, move in zip(fitted.cells, moves, strict=True) if move > MOVED]
    pairs = sorted({(cell.row.framework, cell.family) for cell in moved})
    frameworks = dict.fromkeys(framework for framework, _ in pairs)
    told = "; ".join(
        f"{framework}: {', '.join(family for other, family in pairs if other == framework)}" for framework in frameworks
    )
    return SensitivityRow(
        unknown=found.names[unknown],
        factor=float(np.exp(found.log_factors[unknown])),
        cells=len(moved),
        most_percent=100 * float(moves.max()),
        moves=told or "none",
        is_pair=len(pairs) == 1,
    )
