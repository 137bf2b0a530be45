"""Find and load measurement tables: a CSV of times, and the TOML that says what was run."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from perfmodel.errors import ArgumentError, TableError, UnknownNameError
from perfmodel.measurements.rows import read_rows, table_error
from perfmodel.measurements.run import Evidence, FeedItem, Run
from perfmodel.measurements.table import SCORED, Erratum, Hardware, MeasuredRow, MeasurementTable

if TYPE_CHECKING:
    import pandas as pd

    from perfmodel.measurements.description import CellEntry, RunEntry, TableDescription


_FOLDER: Final = Path(__file__).resolve().parent


def names() -> tuple[str, ...]:
    """Return the keys of the tables that come with perfmodel.

    Examples
    --------
    >>> "shi2016" in names()
    True
    """
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.csv")))


def load(key_or_path: str | Path) -> MeasurementTable:
    """Load a measurement table that comes with perfmodel, or your own.

    Parameters
    ----------
    key_or_path : str or Path
        One of ``names()``, or the path of a CSV. What was run comes from the TOML of the same stem beside it;
        without one, each row is a plain training step of the zoo network its ``network`` column names. [-]

    Returns
    -------
    MeasurementTable
        Rows and runs, checked. [-]

    Raises
    ------
    ArgumentError
        If it is neither a name nor a path.
    UnknownNameError
        If there is neither a table nor a CSV file of that name.
    TableError
        If a file is wrong; lists every fault with file, row, column, value and what is allowed.

    Examples
    --------
    >>> table = load("shi2016")
    >>> len(table), len(table.subset("gpu"))
    (286, 63)
    >>> table.run("torch_423cfba", "fcn8").builder_options["hidden_layers"]
    5
    """
    path = _path_of(key_or_path)
    rows = read_rows(path, table=path.stem)
    description_path = path.with_suffix(".toml")
    if not description_path.is_file():
        runs = tuple(_plain_run(row) for row in _one_each(rows))
        return MeasurementTable(key=path.stem, title=path.name, rows=rows, runs=runs, path=path)
    return _described(rows, _read_description(description_path), description_path)


def _path_of(key_or_path: str | Path) -> Path:
    if not isinstance(key_or_path, str | Path):
        raise ArgumentError("table", key_or_path, "must be a table's name, or the path of a CSV")
    shipped = _FOLDER / f"{key_or_path}.csv"
    if str(key_or_path) in names():
        return shipped
    path = Path(key_or_path)
    if not path.is_file():
        raise UnknownNameError(kind="measurement table (or path of a CSV)", name=str(key_or_path), known=names())
    if path.suffix != ".csv":
        raise table_error(path, [f"its suffix {path.suffix!r} is not allowed: a table is a .csv file"])
    return path


def _read_description(path: Path) -> TableDescription:
    from pydantic import ValidationError  # only here, so that importing measurements stays light

    from perfmodel.hardware.spec_files import faults_of
    from perfmodel.measurements.description import TableDescription

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise table_error(path, [f"cannot be read as TOML: {error}"]) from error
    try:
        return TableDescription.model_validate(content)
    except ValidationError as error:
        raise table_error(path, faults_of(error, TableDescription)) from error


def _described(rows: tuple[MeasuredRow, ...], description: TableDescription, path: Path) -> MeasurementTable:
    faults: list[str] = []
    if description.key not in (None, path.stem):
        faults.append(f"key: {description.key!r} is not allowed: it is the stem of the file, {path.stem!r}")
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
        hardware=tuple(Hardware(**entry.model_dump()) for entry in description.hardware),
        path=path.with_suffix(".csv"),
        errata=tuple(Erratum(**entry.model_dump()) for entry in description.erratum),
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
            f"status {cell.status!r} is not allowed for row {row.row_number}, whose step_s is {row.step_s}: "
            "missing rows have none, the others have one"
        )
    if row.status not in (SCORED, cell.status):
        return f"row {row.row_number} is {row.status} already and cannot be {cell.status}"
    return None


def _runs(
    rows: tuple[MeasuredRow, ...], description: TableDescription, *, table: str, faults: list[str]
) -> tuple[Run, ...]:
    """Return one run for each framework, network and batch size; report what has no partner."""
    given = _given_runs(description, table=table, faults=faults)
    hosts = {entry.device: entry.host for entry in description.hardware if entry.host is not None}
    runs: list[Run] = []
    for row in _one_each(rows):
        run = given.get((row.framework, row.network))
        if run is not None:
            runs.append(replace(run, batch_size=row.batch_size, hosts=hosts))
        else:
            faults.append(f"run: row {row.row_number} needs one for {row.framework}, {row.network}")
    used = {(run.framework, run.network) for run in runs}
    for framework, network in given if description.runs_from is None else ():
        if (framework, network) not in used:
            faults.append(f"run: {framework}, {network} is in no row of the CSV")
    return tuple(runs)


def _given_runs(description: TableDescription, *, table: str, faults: list[str]) -> dict[tuple[str, str], Run]:
    """Return the runs that the description states or takes from another table, by framework and network."""
    given: dict[tuple[str, str], Run] = {}
    if description.runs_from is not None:
        if description.runs_from.table not in set(names()) - {table}:
            faults.append(f"runs_from.table: {description.runs_from.table!r} is no other shipped table")
            return given
        reason = f"Taken from table {description.runs_from.table}. {description.runs_from.reason}"
        for run in load(description.runs_from.table).runs:
            evidence = (*run.evidence, Evidence("builder", reason))
            given[run.framework, run.network] = replace(run, table=table, evidence=evidence)
    for entry in description.run:
        if any((run.framework, run.network) == (entry.framework, entry.network) for run in given.values()):
            faults.append(f"run: {entry.framework}, {entry.network} is there twice")
        given[entry.framework, entry.network] = _stated_run(entry, table=table)
    return given


def _stated_run(entry: RunEntry, *, table: str) -> Run:
    facts = entry.model_dump(exclude={"feed", "evidence"})
    return Run(
        table=table,
        batch_size=1,  # replaced by each batch size of the CSV
        feed=tuple(FeedItem(**item.model_dump()) for item in entry.feed),
        evidence=tuple(Evidence(fact, text) for fact, text in entry.evidence.items()),
        **facts,
    )


def _plain_run(row: MeasuredRow) -> Run:
    return Run(
        table=row.table,
        network=row.network,
        framework=row.framework,
        batch_size=row.batch_size,
        builder=row.network,
        evidence=(Evidence("builder", "No TOML beside the CSV: a plain training step is taken."),),
    )


def _one_each(rows: Iterable[MeasuredRow]) -> tuple[MeasuredRow, ...]:
    """Return the first row of each framework, network and batch size."""
    return tuple({row.run_key: row for row in reversed(tuple(rows))}.values())[::-1]


def from_frame(frame: pd.DataFrame, *, key: str = "frame") -> MeasurementTable:
    """Make a measurement table of a DataFrame.

    Parameters
    ----------
    frame : DataFrame
        Columns as in the CSV of a table: ``network``, ``batch_size``, ``framework``, ``device``, ``step_s``, and
        ``threads`` for CPU rows; a missing value is an empty cell. [-]
    key : str
        Name of the table in reports. [-]

    Returns
    -------
    MeasurementTable
        Each row is a plain training step of the zoo network that its ``network`` column names. [-]

    Raises
    ------
    ArgumentError
        If it is no DataFrame.
    TableError
        If a column is missing or unknown, or a value is wrong; names row (the header is row 1) and column.

    Examples
    --------
    >>> import pandas as pd
    >>> table = from_frame(pd.DataFrame({"network": ["alexnet"], "batch_size": [16], "framework": ["caffe_1_0_rc3"],
    ...                                  "device": ["gtx_980"], "step_s": [0.05]}))
    >>> len(table)
    1
    """
    if not hasattr(frame, "columns"):
        raise ArgumentError("table", frame, "a table's name, the path of a CSV, a MeasurementTable or a DataFrame")
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{key}.csv"
        whole = frame.copy()
        for name in {"threads", "batch_size"} & set(whole.columns):
            whole[name] = whole[name].map(_whole)
        whole.to_csv(path, index=False)
        try:
            loaded = load(path)
        except TableError as error:  # the file is gone when its user reads this
            raise TableError(str(error).replace(str(path), key)) from None
    return replace(loaded, title=key, path=None)


def _whole(value: object) -> object:
    """Return 4.0, which a column with gaps makes of 4, as the text 4: a number would become 4.0 again."""
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else value
