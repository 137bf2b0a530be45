"""Find and load measurement tables: a CSV of times, and the TOML with the programs that ran."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sized
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perfmodel.errors import ArgumentError, TableError, UnknownNameError, nearest_match, shown_faults, shown_file
from perfmodel.files import MOST_DATA_BYTES, MOST_SPEC_BYTES, file_text, is_file, toml_of, user_path
from perfmodel.measurements.table import (
    SCORED,
    Evidence,
    FeedItem,
    MeasuredRow,
    MeasurementTable,
    Run,
)
from perfmodel.plain_text import NO_CONTROL_CHARACTERS, is_plain_name

if TYPE_CHECKING:
    import pandas as pd

    from perfmodel.measurements.description import CellEntry, RunEntry, TableDescription


COLUMNS: Final = ("network", "batch_size", "framework", "device", "threads", "step_s")
"""Columns of the CSV, in the order the shipped tables have them."""

OPTIONAL_COLUMNS: Final = ("threads",)
"""Optional columns: a table without threads was measured on GPUs."""

REMEDIES: Final = {
    "dtype": ": a TOML beside the CSV states the type of each run, gpu_dtype or cpu_dtype (docs/measurements.md)",
    "step_ms": ": give seconds as step_s, step_ms / 1000",
}
"""What to do instead of columns that users expect."""


def read_rows(csv_table: CsvTable, *, table: str) -> tuple[MeasuredRow, ...]:
    """Read every row of a CSV."""
    csv_table.faults += _header_faults(csv_table.header)
    csv_table.check()
    rows: list[MeasuredRow] = []
    first_seen: dict[object, MeasuredRow] = {}
    for line in csv_table.lines:
        if csv_table.is_whole(line) and (row := _row(line, table=table)) is not None:
            earlier = first_seen.setdefault(row.cell_key, row)
            if earlier is not row:
                csv_table.faults.append(_repeated_row_fault(earlier, row))
            rows.append(row)
    csv_table.check(rows)
    return tuple(rows)


MOST_DIGITS: Final = 18
"""Most digits of a whole number in a table: what 64 bits hold. [1]"""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a CSV: its number and its values by column; faults of these are added to ``faults``."""

    number: int
    values: Mapping[str, str]
    value_count: int
    faults: list[str]

    def whole(self, column: str, *, least: int = 1, allowed: str = "") -> int:
        """Return a whole number; if it is none or too small, add a fault and return ``least``."""
        text = self.values.get(column, "")
        if text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS and int(text) >= least:
            return int(text)
        self.refuse(column, allowed or f"a whole number of at least {least}")
        return least

    def seconds(self, column: str, *, allowed: str = "seconds above 0") -> float:
        """Return a measured time; if it is none, add a fault and return NaN."""
        with suppress(ValueError):
            seconds = float(self.values.get(column, ""))
            if math.isfinite(seconds) and seconds > 0:
                return seconds
        self.refuse(column, allowed)
        return math.nan

    def refuse(self, column: str, allowed: str) -> None:
        """Add the fault of a value that is not allowed."""
        text = self.values.get(column, "")
        self.faults.append(f"row {self.number}, column {column}: must be {allowed} (got {text!r})")


class CsvTable:
    """A CSV as it is read: its header, its lines that are not empty, and all of its faults."""

    def __init__(self, path: str | Path, text: StringIO | None = None) -> None:
        self.path = Path(path)
        self.faults: list[str] = []
        try:
            with text or StringIO(_text_of(self.path), newline="") as file:
                reader = csv.reader(file, strict=True)
                self.header = [name.strip() for name in next(reader, [])]
                lines = [(reader.line_num, [value.strip() for value in values]) for values in reader]
        except csv.Error as error:
            raise table_error(self.path, [f"cannot be read as UTF-8 CSV: {error}"]) from error
        hidden = [number for number, values in lines if not all(map(is_plain_name, values))]
        self.faults += [f"row {number}: {NO_CONTROL_CHARACTERS}, and no line ends within a value" for number in hidden]
        self.lines = [
            Line(number, dict(zip(self.header, values, strict=False)), len(values), self.faults)
            for number, values in lines
            if any(values)
        ]

    def is_whole(self, line: Line) -> bool:
        """Tell whether a line has a value for each column; add a fault if it does not."""
        if line.value_count == len(self.header):
            return True
        fault = f"row {line.number}: {line.value_count} values where the header has {len(self.header)} columns"
        self.faults.append(fault)
        return False

    def check(self, rows: Sized | None = None) -> None:
        """Raise one error for all faults, or for no rows where some are given."""
        if rows is not None and not rows and not self.faults:
            self.faults.append("no rows: at least one is needed below the header")
        if self.faults:
            raise table_error(self.path, self.faults)


def _text_of(path: Path) -> str:
    return file_text(path, most_bytes=MOST_DATA_BYTES, refusal=table_error, encoding="utf-8-sig")


def table_error(path: Path, faults: list[str]) -> TableError:
    """Build the error that lists the faults of a file, the first twenty of them in words."""
    count = f"{len(faults)} fault{'s' if len(faults) != 1 else ''}"
    return TableError(f"{shown_file(str(path))}: {count}: {'; '.join(shown_faults(faults))}")


def _header_faults(header: list[str]) -> list[str]:
    faults = []
    for name in header:
        if name not in COLUMNS:
            nearest = nearest_match(name, COLUMNS)
            hint = (f", nearest is {nearest}" if nearest else "") + REMEDIES.get(name, "")
            faults.append(f"row 1: unknown column {name!r}{hint}; allowed are {', '.join(COLUMNS)}")
    faults += [f"row 1: column {name} is there twice" for name in COLUMNS if header.count(name) > 1]
    needed = (name for name in COLUMNS if name not in OPTIONAL_COLUMNS)
    return faults + [f"row 1: column {name} is missing" for name in needed if name not in header]


def _row(line: Line, *, table: str) -> MeasuredRow | None:
    """Return one row, or None if something is wrong with it."""
    values, fault_count = line.values, len(line.faults)
    names = {column: values[column] for column in ("network", "framework", "device")}
    empty = (column for column, name in names.items() if not name)
    line.faults.extend(f"row {line.number}, column {column}: it is empty; a name is needed" for column in empty)
    whole = partial(line.whole, allowed="a whole number above 0")
    batch_size = whole("batch_size")
    threads = whole("threads") if values.get("threads") else None
    empty_is_missing = "seconds above 0, or empty where it is missing"
    step_s = line.seconds("step_s", allowed=empty_is_missing) if values["step_s"] else None
    if len(line.faults) > fault_count:
        return None
    return MeasuredRow(
        table=table,
        row_number=line.number,
        batch_size=batch_size,
        threads=threads,
        step_s=step_s,
        status="missing" if step_s is None else "measured",
        **names,
    )


def _repeated_row_fault(earlier: MeasuredRow, row: MeasuredRow) -> str:
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
    """Raise unless every row with a time names a known device, framework and network, and a possible thread count."""
    frameworks, builders = tuple(frameworks), tuple(builders)
    rows_by_fault: dict[str, list[int]] = {}
    for row in table:
        if row.step_s is None:
            continue
        builder = table.run_of(row).builder
        named = f"network {row.network!r} is built by {builder!r}, which" if builder != row.network else repr(builder)
        row_faults = [
            _unknown("device", repr(row.device), row.device, thread_counts),
            _unknown("framework", repr(row.framework), row.framework, frameworks),
            _unknown("network", named, builder, builders),
            _threads_fault(row, thread_counts),
        ]
        for fault in row_faults:
            if fault:
                rows_by_fault.setdefault(fault, []).append(row.row_number)
    if rows_by_fault:
        faults = [
            f"row{'s' * (len(rows) > 1)} {', '.join(map(str, rows))}, {fault}" for fault, rows in rows_by_fault.items()
        ]
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
        return f"column threads: must be empty, because {row.device} is a GPU (got {row.threads})"
    if most is not None and row.threads is None:
        return f"column threads: must be a number up to {most}, because {row.device} is a CPU (got nothing)"
    if most is not None and row.threads is not None and row.threads > most:
        return f"column threads: must be at most the {most} hardware threads of {row.device} (got {row.threads})"
    return ""


_FOLDER: Final = Path(__file__).resolve().parent


def names() -> tuple[str, ...]:
    """Return the keys of the tables that come with perfmodel.

    >>> "shi2016" in names()
    True
    """
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.csv")))


def load(key_or_path: str | Path) -> MeasurementTable:
    """Load a measurement table that comes with perfmodel, or your own.

    >>> table = load("shi2016")
    >>> len(table), len(table.subset("gpu"))
    (286, 63)
    >>> table.run("torch_423cfba", "fcn8").builder_options["hidden_layers"]
    5
    """
    path = _path_of(key_or_path)
    rows = read_rows(CsvTable(path), table=path.stem)
    description_path = path.with_suffix(".toml")
    if not is_file(description_path):
        return MeasurementTable(key=path.stem, title=path.name, rows=rows, runs=_plain_runs(rows), path=path)
    return _described(rows, _read_description(description_path), description_path)


def _path_of(key_or_path: str | Path) -> Path:
    if not isinstance(key_or_path, str | Path):
        raise ArgumentError("table", key_or_path, "must be a table's name, or the path of a CSV")
    shipped = _FOLDER / f"{key_or_path}.csv"
    if str(key_or_path) in names():
        return shipped
    path = user_path(key_or_path, refusal=table_error)
    if not is_file(path):
        raise UnknownNameError(kind="measurement table (or path of a CSV)", name=str(key_or_path), known=names())
    if path.suffix != ".csv":
        raise table_error(path, [f"its suffix must be .csv (got {path.suffix!r})"])
    return path


def _read_description(path: Path) -> TableDescription:
    from pydantic import ValidationError  # imported only here, so that importing measurements stays fast

    from perfmodel.hardware.spec_files import faults_of
    from perfmodel.measurements.description import TableDescription

    text = file_text(path, most_bytes=MOST_SPEC_BYTES, refusal=table_error)
    content = toml_of(path, text, refusal=_of_description)
    try:
        return TableDescription.model_validate(content)
    except ValidationError as error:
        raise table_error(path, faults_of(error, TableDescription)) from error


def _of_description(path: Path, faults: list[str]) -> TableError:
    return table_error(path, [f"cannot be read as TOML: {fault}" for fault in faults])


def _described(rows: tuple[MeasuredRow, ...], description: TableDescription, path: Path) -> MeasurementTable:
    faults: list[str] = []
    if description.key not in (None, path.stem):
        faults.append(f"key must be the stem of the file, {path.stem!r} (got {description.key!r})")
    rows = _annotated(rows, description.cell, faults=faults)
    runs = _runs(rows, description, table=path.stem, faults=faults)
    devices = {row.device for row in rows}
    strangers = (entry.device for entry in description.hardware if entry.device not in devices)
    faults += [f"hardware: device {device!r} is in no row of the CSV" for device in strangers]
    if faults:
        raise table_error(path, faults)
    return MeasurementTable(
        key=path.stem,
        title=description.title,
        rows=rows,
        runs=runs,
        source={name: str(value) for name, value in description.source.items()},
        software=description.software,
        hardware=tuple(description.hardware),
        path=path.with_suffix(".csv"),
        errata=tuple(description.erratum),
    )


def _annotated(rows: tuple[MeasuredRow, ...], cells: list[CellEntry], *, faults: list[str]) -> tuple[MeasuredRow, ...]:
    """Give rows the status and the note of the cells that select them."""
    annotated = list(rows)
    for number, cell in enumerate(cells):
        selectors = cell.model_dump(exclude={"status", "reason"}, exclude_none=True)
        selected = [
            index
            for index, row in enumerate(annotated)
            if all(getattr(row, column) == value for column, value in selectors.items())
            and not (cell.status == "odd" and row.step_s is None)
        ]
        if not selected:
            faults.append(f"cell[{number}]: {selectors} selects no row of the CSV")
        for index in selected:
            row = annotated[index]
            if fault := _status_fault(row, cell):
                faults.append(f"cell[{number}]: {fault}")
            status = row.status if cell.status == "odd" else cell.status
            annotated[index] = replace(row, status=status, note=f"{row.note} {cell.reason}".strip())
    return tuple(annotated)


def _status_fault(row: MeasuredRow, cell: CellEntry) -> str | None:
    if cell.status == "odd":
        return None
    if (cell.status == "missing") != (row.step_s is None):
        return (
            f"row {row.row_number}: status must be 'missing' where step_s is empty, and only there "
            f"(got {cell.status!r} with step_s {row.step_s})"
        )
    if row.status not in (SCORED, cell.status):
        return f"row {row.row_number} must have one status (got {row.status!r} and {cell.status!r})"
    return None


def _runs(
    rows: tuple[MeasuredRow, ...], description: TableDescription, *, table: str, faults: list[str]
) -> tuple[Run, ...]:
    """Return one run for each framework, network and batch size; report runs and rows without a partner."""
    stated_runs = _given_runs(description, table=table, faults=faults)
    hosts = {entry.device: entry.host for entry in description.hardware if entry.host is not None}
    runs: list[Run] = []
    for row in _one_each(rows):
        run = stated_runs.get((row.framework, row.network))
        if run is not None:
            runs.append(replace(run, batch_size=row.batch_size, hosts=hosts))
        else:
            faults.append(f"run: row {row.row_number} needs one for {row.framework}, {row.network}")
    used = {(run.framework, run.network) for run in runs}
    for framework, network in stated_runs if description.runs_from is None else ():
        if (framework, network) not in used:
            faults.append(f"run: {framework}, {network} is in no row of the CSV")
    return tuple(runs)


def _given_runs(description: TableDescription, *, table: str, faults: list[str]) -> dict[tuple[str, str], Run]:
    """Return the runs that the description states or takes from another table, by framework and network."""
    runs: dict[tuple[str, str], Run] = {}
    if description.runs_from is not None:
        if description.runs_from.table not in set(names()) - {table}:
            faults.append(f"runs_from.table: {description.runs_from.table!r} is no other shipped table")
            return runs
        reason = f"Taken from table {description.runs_from.table}. {description.runs_from.reason}"
        for run in load(description.runs_from.table).runs:
            evidence = (*run.evidence, Evidence("builder", reason))
            runs[run.framework, run.network] = replace(run, table=table, evidence=evidence)
    for entry in description.run:
        if any((run.framework, run.network) == (entry.framework, entry.network) for run in runs.values()):
            faults.append(f"run: {entry.framework}, {entry.network} is there twice")
        runs[entry.framework, entry.network] = _stated_run(entry, table=table)
    return runs


def _frozen(value: Any) -> Any:
    """Return an option with lists as tuples, so that a graph is built once for each."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _stated_run(entry: RunEntry, *, table: str) -> Run:
    facts = entry.model_dump(exclude={"feed", "evidence"})
    facts["builder_options"] = {name: _frozen(value) for name, value in facts["builder_options"].items()}
    return Run(
        table=table,
        batch_size=1,  # replaced by each batch size of the CSV
        feed=tuple(FeedItem(**item.model_dump()) for item in entry.feed),
        evidence=tuple(Evidence(fact, text) for fact, text in entry.evidence.items()),
        **facts,
    )


def _plain_runs(rows: Iterable[MeasuredRow]) -> tuple[Run, ...]:
    """Return a plain training step for each framework, network and batch size."""
    evidence = (Evidence("builder", "No TOML beside the CSV: a plain training step is taken."),)
    return tuple(
        Run(
            table=row.table,
            network=row.network,
            framework=row.framework,
            batch_size=row.batch_size,
            builder=row.network,
            evidence=evidence,
        )
        for row in _one_each(rows)
    )


def _one_each(rows: Iterable[MeasuredRow]) -> tuple[MeasuredRow, ...]:
    """Return the first row of each framework, network and batch size."""
    return tuple({row.run_key: row for row in reversed(tuple(rows))}.values())[::-1]


def from_frame(frame: pd.DataFrame, *, key: str = "frame") -> MeasurementTable:
    """Make a measurement table from a DataFrame.

    >>> import pandas as pd
    >>> table = from_frame(pd.DataFrame({"network": ["alexnet"], "batch_size": [16], "framework": ["caffe_1_0_rc3"],
    ...                                  "device": ["gtx_980"], "step_s": [0.05]}))
    >>> len(table)
    1
    """
    if not hasattr(frame, "columns"):
        raise ArgumentError("table", frame, "a table's name, the path of a CSV, a MeasurementTable or a DataFrame")
    whole = frame.copy()
    for name in {"threads", "batch_size"} & set(whole.columns):
        whole[name] = whole[name].map(_whole)
    rows = read_rows(CsvTable(Path(key), StringIO(whole.to_csv(index=False))), table=key)
    return MeasurementTable(key=key, title=key, rows=rows, runs=_plain_runs(rows))


def _whole(value: object) -> object:
    """Write 4.0 as the text 4: pandas turns whole numbers of a column with gaps into floats."""
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else value
