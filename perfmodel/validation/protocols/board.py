"""All protocols at once, with the best naive rule given the same cells; and which cells each fitted constant moves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from perfmodel.errors import ArgumentError, CalibrationError
from perfmodel.hardware.fit_file import factors_by_constant
from perfmodel.measurements.table import SUBSETS
from perfmodel.presentation.tables import Table, row_table
from perfmodel.validation.protocols.cells import prepare_cells, progress_of_part
from perfmodel.validation.protocols.protocols import (
    ALL_FITTED,
    PROTOCOLS,
    HeldOut,
    folds_of,
    predict_subset,
    protocol_names,
)
from perfmodel.validation.scores.table_report import PERFMODEL
from perfmodel.validation.validate import checked_table, nothing_to_score, scored_cells, validate_steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from perfmodel.hardware.fit_file import Unknown
    from perfmodel.measurements.table import MeasurementTable
    from perfmodel.validation.scores.validation_report import ValidationReport


@dataclass(frozen=True, slots=True, kw_only=True)
class CellsApart:
    """Cells of a protocol that get their own line."""

    label: str
    subsets: tuple[str, ...] = SUBSETS
    which: dict[str, Any]

    def part_of(self, report: ValidationReport) -> ValidationReport | None:
        """Return the report of these cells; None if there are none."""
        if not set(report.subsets) <= {*self.subsets}:
            return None
        try:
            return report.where(**self.which)
        except ArgumentError:
            return None


APART: Final[dict[str, tuple[CellsApart, ...]]] = {
    "leave_one_network_out": (
        CellsApart(label="alexnet out", which={"network": "alexnet"}),
        CellsApart(label="resnet50 out", which={"network": "resnet50"}),
    ),
    "leave_one_device_out": (
        CellsApart(label="leave_one_device_out, threads 1 to 4", subsets=("cpu",), which={"threads": [1, 2, 4]}),
        CellsApart(label="leave_one_device_out, threads 8 and 16", subsets=("cpu",), which={"threads": [8, 16]}),
    ),
}
"""Protocol -> cells with their own line: networks without a near copy in the fit, and threads of the larger CPU."""

COVERS: Final = 0.9
"""Share of the cells that a naive rule must predict to be compared with a score. [1]"""


def protocol_board(
    table: str | Path | MeasurementTable = "shi2016",
    *,
    only: str | None = None,
    protocols: Sequence[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Table[Any]:
    """Score a table under every protocol."""
    loaded = checked_table(table)
    jobs, senseless = protocol_jobs(loaded, only=only, protocols=protocols)
    rows: list[dict[str, Any]] = []
    for _, protocol, report in protocol_reports(loaded, jobs, progress=progress):
        rows += [protocol_row(part, label) for label, part in reports_apart(report, protocol)]
    without = "".join(f"; {protocol} leaves nothing to fit ({subset})" for subset, protocol in senseless)
    return row_table(rows, title=f"{loaded.key}: every protocol{without}")


Jobs = list[tuple[str, str]]

Score = TypeVar("Score", bound=Any)
"""A line of a scoreboard."""


def protocol_jobs(
    table: MeasurementTable, *, only: str | None = None, protocols: Sequence[str] | None = None
) -> tuple[Jobs, Jobs]:
    """Split the protocols into those a table can be scored under, and those that leave nothing to fit."""
    subsets = [subset for subset in SUBSETS if only in (None, subset) and table.subset(subset)]
    if not subsets:
        raise nothing_to_score(table, only)
    jobs: Jobs = [
        (subset, protocol)
        for subset in subsets
        for protocol in protocols or protocol_names()
        if protocol not in PROTOCOLS or PROTOCOLS[protocol].suits(subset)
    ]
    senseless = [] if protocols else _senseless(table, jobs)
    return [job for job in jobs if job not in senseless], senseless


def protocol_reports(
    table: MeasurementTable, jobs: Jobs, *, progress: Callable[[int, int], None] | None = None
) -> Iterator[tuple[str, str, ValidationReport]]:
    """Yield the report of each job as it is done."""
    for done, (subset, protocol) in enumerate(jobs):
        progress_of_job = progress_of_part(progress, done, len(jobs))
        yield subset, protocol, validate_steps(table, protocol=protocol, only=subset, progress=progress_of_job)


def reports_apart(report: ValidationReport, protocol: str) -> list[tuple[str, ValidationReport]]:
    """Return a report, and the parts of it that get their own line."""
    parts = ((cells.label, cells.part_of(report)) for cells in APART.get(protocol, ()))
    apart = [(label, part) for label, part in parts if part is not None]
    return [(protocol, report), *apart]


def _senseless(table: MeasurementTable, jobs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the jobs with a fold that has nothing to fit, as on a table of one device."""
    senseless = []
    for subset, protocol in jobs:
        cells = prepare_cells(table, table.subset(subset, set_aside=True))  # type: ignore[arg-type]
        try:
            if protocol in PROTOCOLS:
                folds_of(protocol, cells)
        except CalibrationError:
            senseless.append((subset, protocol))
    return senseless


def best_rule(score: Score, others: Iterable[Score]) -> Score | None:
    """Return the naive rule with the least log error among those that predict nearly all cells of a score."""
    rules = (row for row in others if not row.model.startswith(PERFMODEL) and row.cells >= COVERS * score.cells)
    return min(rules, key=lambda row: row.typical_factor_percent, default=None)


def protocol_row(report: ValidationReport, label: str) -> dict[str, Any]:
    """Return the line of a report."""
    score, *others = report.scoreboard
    best = best_rule(score, others)
    figures = ("cells", "fitted", "mape", "typical_factor_percent", "median_ape", "p90_ape", "geometric_mean_ratio")
    return {
        "subset": score.subset,
        "protocol": label,
        **{name: getattr(score, name) for name in figures},
        "naive": "" if best is None else best.model,
        "naive_mape": float("nan") if best is None else best.mape,
        "naive_typical_factor_percent": float("nan") if best is None else best.typical_factor_percent,
    }


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
        [_sensitivity_row(fitted, unknown) for unknown in fitted.unknowns],
        title=f"{loaded.key}, {only}: cells that a change of {CHANGE:.0%} moves by more than {MOVED:.0%}",
    )


def _sensitivity_row(fitted: HeldOut, unknown: Unknown) -> dict[str, Any]:
    moves = _moves(fitted, unknown.matches)
    pairs = _pairs(fitted, moves)
    kinds = {_kind_of(name) for cell in fitted.cells for name in cell.prepared.constant_names if unknown.matches(name)}
    of_kinds = [pairs]
    if len(kinds) > 1:
        of_kind = [lambda name, kind=kind: unknown.matches(name) and _kind_of(name) == kind for kind in kinds]
        of_kinds = [_pairs(fitted, _moves(fitted, changes)) for changes in of_kind]
    frameworks = dict.fromkeys(framework for framework, _ in pairs)
    families = "; ".join(
        f"{framework}: {', '.join(family for other, family in pairs if other == framework)}" for framework in frameworks
    )
    return {
        "unknown": unknown.name,
        "factor": fitted.only_fit.factors[unknown.name],
        "cells": int(np.sum(moves > MOVED)),
        "most_percent": 100 * float(moves.max()),
        "moves": families or "none",
        "is_pair": bool(pairs) and all(len(kinds) <= 1 for kinds in of_kinds),
    }


def _kind_of(name: str) -> str:
    """Reduce a full name to its constant, without file and entry."""
    return name.rsplit("/", 1)[-1].split(".")[1]


def _moves(fitted: HeldOut, changes: Callable[[str], bool]) -> NDArray[np.float64]:
    """Return the relative change of each cell's time when some constants change."""
    moves = np.zeros(len(fitted.cells))
    # a constant at a bound, or behind another one, moves cells one way only: the larger change counts
    ways = np.array([1.0, 1 + CHANGE, 1 - CHANGE])
    for index, cell in enumerate(fitted.cells):
        names = cell.prepared.constant_names
        factors = factors_by_constant(fitted.unknowns, fitted.only_fit.factors, names)
        if changed := {name: factors[name] * ways for name in names if changes(name)}:
            times = np.broadcast_to(cell.prepared.step(factors | changed).parts.step_s, len(ways))
            moves[index] = np.abs(times[1:] / times[0] - 1).max()
    return moves


def _pairs(fitted: HeldOut, moves: NDArray[np.float64]) -> list[tuple[str, str]]:
    """Return the frameworks and families of the cells that move."""
    moved = (cell for cell, move in zip(fitted.cells, moves, strict=True) if move > MOVED)
    return sorted({(cell.row.framework, cell.family) for cell in moved})
