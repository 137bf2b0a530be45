"""Check that what a table names exists, before any of its rows is predicted: one error for all rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from perfmodel.errors import nearest_match
from perfmodel.measurements.rows import table_error
from perfmodel.measurements.table import MeasuredRow, MeasurementTable


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
