"""Scores on tables that do not come with perfmodel: measured kernels, and steps on systems."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perfmodel import zoo
from perfmodel.calibration.kernel_boards import boards_of, dtype_of_text, operations_of
from perfmodel.errors import PerfmodelError, TableError, check_known, nearest_hint
from perfmodel.hardware.library import device_of_text
from perfmodel.measurements.kernel_tables import DataFolder, KernelMeasurements, content_hash, read_collectives
from perfmodel.measurements.reading import read_lines, table_error
from perfmodel.measurements.table import PHASES
from perfmodel.validation.all_tables import collect_own, collect_parts, score_steps
from perfmodel.validation.protocols.cells import Progress, progress_of_part
from perfmodel.validation.protocols.protocols import NOTHING_FITTED
from perfmodel.validation.scoreboard import KERNELS, KINDS, SYSTEMS, Collected, Picture, ScoredTable
from perfmodel.validation.scores.kernels import AS_SHIPPED, FIVE_FOLD, kernel_scores
from perfmodel.validation.tables.own_tables import tables_of_file
from perfmodel.validation.tables.speedup import COLUMNS, framework_of_text, read_system_table
from perfmodel.validation.validate import checked_table

if TYPE_CHECKING:
    from perfmodel.validation.scoreboard import Scoreboard


PICTURED: Final = (AS_SHIPPED, FIVE_FOLD)


def score_folder(
    folder: DataFolder, collected: Collected, *, kinds: Collection[str] = KINDS, progress: Progress | None = None
) -> None:
    """Score the tables of a folder."""
    things: list[KernelMeasurements | Path] = [*folder.kernels, *folder.systems]
    for done, thing in enumerate(things):
        told = progress_of_part(progress, done, len(things))
        if not isinstance(thing, KernelMeasurements):
            _score_system(thing, collected, kinds=kinds, progress=told)
        elif KERNELS in kinds:
            _score_kernels(thing, collected, progress=told)


def _score_kernels(table: KernelMeasurements, collected: Collected, *, progress: Progress) -> None:
    scored = kernel_scores(table, progress=progress)
    not_scored = [f"{count} rows of another data type ({precision})" for precision, count in scored.left_out.items()]
    not_scored += [f"{table.skipped} lines of a log that time nothing"] if table.skipped else []
    collected.add(
        ScoredTable(
            name=table.name,
            kind=KERNELS,
            is_shipped=False,
            sha256=table.sha256,
            rows=len(table.rows) - sum(scored.left_out.values()),
            not_scored="; ".join(not_scored),
        )
    )
    collect_parts(table.name, scored.scores, collected)
    for protocol in [protocol for protocol in scored.points if protocol in PICTURED]:
        predicted_s, measured_s, boards = zip(*scored.points[protocol], strict=True)
        shown = {"predicted": predicted_s, "measured": measured_s, "groups": boards, "quantity": "time of a call"}
        shown["title"] = f"{table.name}, {protocol}"
        collected.pictures.append(Picture(name=f"{table.name}_{protocol}", shown=shown))


def _score_system(path: Path, collected: Collected, *, kinds: Collection[str], progress: Progress) -> None:
    for own in tables_of_file(path):
        if own.kind in kinds:
            collect_own(own, collected, is_shipped=False)
    table = None if SYSTEMS not in kinds or read_collectives(path) is not None else read_system_table(path)
    if table is None:
        progress(1, 1)
        return
    several = len(table.several)
    entry = ScoredTable(
        name=path.stem,
        kind=SYSTEMS,
        is_shipped=False,
        sha256=content_hash(path),
        rows=len(table.measurements.rows),
        not_scored=f"{several} rows of several devices, which are scored by their speed-up" if several else "",
    )
    protocols = {"gpu": (NOTHING_FITTED,)}
    score_steps(checked_table(table.measurements), entry, collected, protocols=protocols, progress=progress)


def check_hashes(folder: DataFolder, kept: Scoreboard) -> None:
    """Refuse tables whose content is not that of committed results of the same name."""
    known = {table.name: table.sha256 for table in kept.tables if not table.is_shipped}
    present = {table.name: table.sha256 for table in folder.kernels}
    present |= {path.stem: content_hash(path) for path in folder.systems}
    wrong = [name for name, found in present.items() if known.get(name, found) != found]
    if wrong:
        lines = "; ".join(f"{name}: SHA-256 {present[name][:16]} where {known[name][:16]} was scored" for name in wrong)
        message = f"tables are not those of the committed results: {lines}; --new-tables scores them all the same"
        raise TableError(message)


MOST_MISSING: Final = len(COLUMNS) // 3
"""Columns that a table of steps on systems may lack and still be meant as one. [1]"""


def check_folder(folder: DataFolder) -> None:
    """Refuse a folder whose tables cannot be scored as they are.

    Boards, libraries and operations of measured kernels are resolved, and tables of systems are read.
    """
    for table in folder.kernels:
        _check_kernels(table)
    for path in folder.systems:
        _check_system(path)


def _check_kernels(table: KernelMeasurements) -> None:
    path = Path("kernels") / f"{table.name}.csv"
    faults: list[str] = []
    rows = [row for row in table.rows if dtype_of_text(row.precision, kind=table.format.name) is not None]
    for row in {row.device: row for row in reversed(rows)}.values():
        place = f"row {row.row_number}, column {table.format.device}"
        faults += _faults(partial(device_of_text, row.device), place=place)
    for row in rows:
        faults += _faults(partial(operations_of, row, kind=table.format.name), place=f"row {row.row_number}")
    if not faults:
        faults += _faults(partial(boards_of, table), place="")
    if faults:
        raise table_error(path, faults)


def _check_system(path: Path) -> None:
    header, lines = read_lines(path)
    missing = [name for name in COLUMNS if name not in header]
    if len(missing) > MOST_MISSING:
        return
    if missing:
        others = [name for name in header if name not in COLUMNS]
        hints = [f"{name}{nearest_hint(name, others)}" for name in missing]
        raise table_error(path, [f"row 1: a table of steps on systems lacks column {', '.join(hints)}"])
    faults: list[str] = []
    for number, values in lines:
        if len(values) != len(header):
            faults.append(f"row {number}: {len(values)} values where the header has {len(header)} columns")
            continue
        record = dict(zip(header, values, strict=True))
        if record["n_devices"] == "1":
            faults += _name_faults(record, number=number)
    if faults:
        raise table_error(path, faults)
    found = _faults(partial(_read_whole, path), place="")
    if found:
        raise table_error(path, found)


def _name_faults(record: Mapping[str, str], *, number: int) -> list[str]:
    resolve: dict[str, Callable[[], object]] = {
        "framework": partial(framework_of_text, record["framework"], record["framework_version"]),
        "network": partial(check_known, "network", record["network"], zoo.names()),
        "device": partial(device_of_text, record["device"]),
        "phase": partial(check_known, "phase", record["phase"], PHASES),
    }
    return [
        fault for column, call in resolve.items() for fault in _faults(call, place=f"row {number}, column {column}")
    ]


def _read_whole(path: Path) -> None:
    table = read_system_table(path)
    if table is not None:
        checked_table(table.measurements)


def _faults(call: Callable[[], object], *, place: str) -> list[str]:
    """Return what is wrong with something, behind its place; nothing where it can be done."""
    try:
        call()
    except PerfmodelError as error:
        return [f"{place}: {error}" if place else str(error)]
    return []
