"""Read the CSV of a measurement table; every fault is reported with its line, column and value."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from perfmodel.errors import TableError, nearest_match
from perfmodel.measurements.table import MeasuredRow, MeasurementTable

COLUMNS: Final = ("network", "batch_size", "framework", "device", "threads", "step_s")
"""Columns of the CSV, in the order the shipped tables have them."""

OPTIONAL_COLUMNS: Final = ("threads",)
"""Columns that may be left out: a table without threads was measured on GPUs."""

_MOST_FAULTS_SHOWN: Final = 20


def read_rows(path: Path, *, table: str) -> tuple[MeasuredRow, ...]:
    """Read every row of a CSV.

    Parameters
    ----------
    path : Path
        The CSV. [-]
    table : str
        Key of the table. [-]

    Returns
    -------
    tuple of MeasuredRow
        Rows with a time are ``measured``, rows without are ``missing``. [-]

    Raises
    ------
    TableError
        With every fault of the file.
    """
    header, lines = read_lines(path)
    if faults := _header_faults(header):
        raise table_error(path, faults)
    rows: list[MeasuredRow] = []
    first_seen: dict[object, MeasuredRow] = {}
    for number, values in lines:
        if len(values) != len(header):
            faults.append(f"row {number}: {len(values)} values where the header has {len(header)} columns")
            continue
        row = _row(dict(zip(header, values, strict=True)), number=number, table=table, faults=faults)
        if row is None:
            continue
        earlier = first_seen.setdefault(row.cell_key, row)
        if earlier is not row:
            faults.append(_twice(earlier, row))
        rows.append(row)
    if not rows and not faults:
        faults.append("no rows: at least one is needed below the header")
    if faults:
        raise table_error(path, faults)
    return tuple(rows)


def table_error(path: Path, faults: list[str]) -> TableError:
    """Build the error that lists the faults of a file, the first twenty of them in words."""
    count = f"{len(faults)} fault{'s' if len(faults) != 1 else ''}"
    shown = "; ".join(faults[:_MOST_FAULTS_SHOWN])
    rest = "; ..." if len(faults) > _MOST_FAULTS_SHOWN else ""
    return TableError(f"{path}: {count}: {shown}{rest}")


def read_lines(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return the header and the non-empty lines with their numbers, all values stripped.

    Parameters
    ----------
    path : Path
        A CSV. [-]

    Returns
    -------
    list of str
        Names of the columns. [-]
    list of tuple of int and list of str
        Line number and values. [-]

    Raises
    ------
    TableError
        If it cannot be read.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = [name.strip() for name in next(reader, [])]
            lines = [(reader.line_num, [value.strip() for value in values]) for values in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise table_error(path, [f"cannot be read as UTF-8 CSV: {error}"]) from error
    return header, [(number, values) for number, values in lines if any(values)]


def _header_faults(header: list[str]) -> list[str]:
    faults = []
    for name in header:
        if name not in COLUMNS:
            nearest = nearest_match(name, COLUMNS)
            hint = f", nearest is {nearest}" if nearest else ""
            faults.append(f"row 1: unknown column {name!r}{hint}; allowed are {', '.join(COLUMNS)}")
    faults += [f"row 1: column {name} is there twice" for name in COLUMNS if header.count(name) > 1]
    needed = (name for name in COLUMNS if name not in OPTIONAL_COLUMNS)
    return faults + [f"row 1: column {name} is missing" for name in needed if name not in header]


def _row(values: Mapping[str, str], *, number: int, table: str, faults: list[str]) -> MeasuredRow | None:
    """Return one row, or None after adding what is wrong with it to ``faults``."""
    empty = (column for column in ("network", "framework", "device") if not values[column])
    found = [f"row {number}, column {column}: it is empty; a name is needed" for column in empty]
    count = partial(whole_number, number=number, faults=found, allowed="a whole number above 0")
    batch_size = count(values["batch_size"], column="batch_size")
    threads = count(values["threads"], column="threads") if values.get("threads") else None
    empty_is_missing = "seconds above 0, or empty where it is missing"
    stated = values["step_s"]
    step_s = (
        positive_seconds(stated, column="step_s", number=number, faults=found, allowed=empty_is_missing)
        if stated
        else None
    )
    faults += found
    if found or batch_size is None:
        return None
    return MeasuredRow(
        table=table,
        row_number=number,
        network=values["network"],
        framework=values["framework"],
        batch_size=batch_size,
        device=values["device"],
        threads=threads,
        step_s=step_s,
        status="missing" if step_s is None else "measured",
    )


def whole_number(
    text: str, *, column: str, number: int, faults: list[str], least: int = 1, allowed: str = ""
) -> int | None:
    """Return a whole number of at least ``least`` [1], or None after adding what is wrong with it to ``faults``.

    Parameters
    ----------
    text : str
        The cell. [-]
    column : str
        Its column. [-]
    number : int
        Line of the file. [1]
    faults : list of str
        Where a fault is added. [-]
    least : int
        Smallest number. [1]
    allowed : str
        What is allowed, if other words say it better. [-]
    """
    if text.isascii() and text.isdecimal() and int(text) >= least:
        return int(text)
    allowed = allowed or f"a whole number of at least {least}"
    faults.append(f"row {number}, column {column}: {text!r} is not allowed: {allowed}")
    return None


def positive_seconds(
    text: str, *, column: str, number: int, faults: list[str], allowed: str = "seconds above 0"
) -> float | None:
    """Return a measured time, or None after adding what is wrong with it to ``faults``.

    Parameters
    ----------
    text : str
        As the CSV has it. [-]
    column : str
        Name of its column. [-]
    number : int
        Line of the CSV. [1]
    faults : list of str
        Lines to add to. [-]
    allowed : str
        What is allowed, in words. [-]

    Returns
    -------
    float or None
        The time. [s]
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if math.isfinite(seconds) and seconds > 0:
        return seconds
    faults.append(f"row {number}, column {column}: {text!r} is not allowed: {allowed}")
    return None


def _twice(earlier: MeasuredRow, row: MeasuredRow) -> str:
    same = "repeats" if earlier.step_s == row.step_s else "contradicts"
    return (
        f"row {row.row_number}, column step_s: {row.step_s} {same} row {earlier.row_number}, which has "
        f"{earlier.step_s} for the same network, framework, batch size, device and threads"
    )


def check_names(
    table: MeasurementTable,
    *,
    thread_counts: Mapping[str, int | None],
    frameworks: Iterable[str],
    builders: Iterable[str],
) -> None:
    """Raise unless every row with a time names a known device, framework and network, and threads that it has.

    Parameters
    ----------
    table : MeasurementTable
        The table. [-]
    thread_counts : mapping of str to int or None
        Hardware threads of every known device and system; None for a GPU, whose rows have no threads. [1]
    frameworks : iterable of str
        Known frameworks. [-]
    builders : iterable of str
        Known networks. [-]

    Raises
    ------
    TableError
        Naming the file and, for each wrong value, its rows, column, what is allowed and the nearest name.

    Examples
    --------
    >>> from perfmodel import measurements
    >>> table = measurements.load("shi2016")
    >>> devices = {row.device: None if row.threads is None else 32 for row in table}
    >>> names = {run.framework for run in table.runs}
    >>> check_names(table, thread_counts=devices, frameworks=names, builders={run.builder for run in table.runs})
    """
    frameworks, builders = tuple(frameworks), tuple(builders)
    rows_by_fault: dict[str, list[int]] = {}
    for row in table:
        if row.step_s is None:
            continue
        builder = table.run_of(row).builder
        named = f"network {row.network!r} is built by {builder!r}, which" if builder != row.network else repr(builder)
        found = [
            _unknown("device", repr(row.device), row.device, thread_counts),
            _unknown("framework", repr(row.framework), row.framework, frameworks),
            _unknown("network", named, builder, builders),
            _threads_fault(row, thread_counts),
        ]
        for fault in found:
            if fault:
                rows_by_fault.setdefault(fault, []).append(row.row_number)
    if rows_by_fault:
        faults = [f"row{'s' * (len(rows) > 1)} {_listed(rows)}, {fault}" for fault, rows in rows_by_fault.items()]
        raise table_error(table.path or Path(f"table {table.key}"), faults)


def _unknown(column: str, shown: str, name: str, known: Iterable[str]) -> str:
    known = tuple(known)
    if name in known:
        return ""
    nearest = nearest_match(name, known)
    hint = f", nearest is {nearest}" if nearest else f"; known are {', '.join(sorted(known))}"
    return f"column {column}: {shown} is not known{hint}"


def _threads_fault(row: MeasuredRow, thread_counts: Mapping[str, int | None]) -> str:
    if row.device not in thread_counts:
        return ""
    most = thread_counts[row.device]
    if most is None and row.threads is not None:
        return f"column threads: {row.threads} is not allowed: empty, as {row.device} is a GPU"
    if most is not None and row.threads is None:
        return f"column threads: empty is not allowed: a number up to {most}, as {row.device} is a CPU"
    if most is not None and row.threads is not None and row.threads > most:
        return f"column threads: {row.threads} is not allowed: at most the {most} hardware threads of {row.device}"
    return ""


def _listed(rows: list[int]) -> str:
    return ", ".join(map(str, rows))
