"""Faults in tables that do not come with perfmodel, found before anything is scored."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from perfmodel import zoo
from perfmodel.calibration.kernel_boards import boards_of, dtype_of_text
from perfmodel.calibration.kernel_operations import operations_of
from perfmodel.errors import PerfmodelError, UnknownNameError, nearest_match
from perfmodel.hardware.wording import device_of_text
from perfmodel.measurements.data_folder import DataFolder
from perfmodel.measurements.kernel_tables import KernelMeasurements
from perfmodel.measurements.rows import read_lines, table_error
from perfmodel.measurements.run import PHASES
from perfmodel.validation.system_tables import COLUMNS, framework_of_text, read_system_table
from perfmodel.validation.validate import checked_table

MOST_MISSING: Final = len(COLUMNS) // 3
"""Columns that a table of steps on systems may lack and still be meant as one. [1]"""


def check_folder(folder: DataFolder) -> None:
    """Refuse a folder whose tables cannot be scored as they are.

    Boards, libraries and operations of measured kernels are resolved, and tables of systems are read.

    Parameters
    ----------
    folder : DataFolder
        Tables that do not come with perfmodel. [-]

    Raises
    ------
    TableError
        Naming file, row, column, value and the nearest that is known; the first file with faults.
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
        hints = [f"{name} (nearest: {near})" if (near := nearest_match(name, others)) else name for name in missing]
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
        "network": partial(_known, "network", record["network"], zoo.names()),
        "device": partial(device_of_text, record["device"]),
        "phase": partial(_known, "phase", record["phase"], PHASES),
    }
    return [
        fault for column, call in resolve.items() for fault in _faults(call, place=f"row {number}, column {column}")
    ]


def _known(kind: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        raise UnknownNameError(kind, name, known)


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
