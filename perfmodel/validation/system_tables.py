"""Training steps of other laboratories on systems: tables that do not come with perfmodel, as measurement tables.

The format is that of the benchmark pages of TensorFlow (2017): a row is a network, a number of devices, a batch size
per device and the seconds of a step. Rows of one device are scored by their time; those of several by their speed-up
over one (``speedup_scores``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from perfmodel import measurements, zoo
from perfmodel.errors import UnknownNameError
from perfmodel.framework.profile import load_framework
from perfmodel.hardware import spec_files
from perfmodel.hardware.wording import device_of_text
from perfmodel.measurements.rows import positive_seconds, read_lines, table_error
from perfmodel.measurements.run import Evidence, FeedItem, Run
from perfmodel.measurements.table import MeasuredRow, MeasurementTable

COLUMNS: Final = (
    "framework",
    "framework_version",
    "network",
    "device",
    "n_devices",
    "batch_size",
    "phase",
    "seconds",
    "data",
)
"""Columns without which a table of steps on systems cannot be read."""

SYNTHETIC: Final = "synthetic"
"""Word of the column ``data`` for images that lie on the device."""

PIXEL_BYTES: Final = 4
"""Size of a value of an image as it reaches the device. [B]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiDeviceRow:
    """A step of several devices, each with a mini-batch of its own.

    Parameters
    ----------
    row : MeasuredRow
        Its time. [-]
    run : Run
        What each of them ran. [-]
    worker_count : int
        Devices. [1]
    """

    row: MeasuredRow
    run: Run
    worker_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemTable:
    """Rows of one device, ready to be scored, and rows of several.

    Parameters
    ----------
    measurements : MeasurementTable
        Rows with their Runs; a network whose images are read is told from one with images on the device. [-]
    several : tuple of MultiDeviceRow
        Rows of several devices. [-]
    frameworks : tuple of str
        Framework files that stand for the table's frameworks. [-]
    """

    measurements: MeasurementTable
    several: tuple[MultiDeviceRow, ...]
    frameworks: tuple[str, ...]


def framework_of_text(name: str, version: str) -> str:
    """Return the framework file for a framework of a table.

    Parameters
    ----------
    name, version : str
        As the table writes them. [-]

    Returns
    -------
    str
        File stem: of the highest version that is not above the stated one, else the oldest. [-]

    Raises
    ------
    UnknownNameError
        If no file is of that framework.

    Examples
    --------
    >>> framework_of_text("tensorflow", "0.9.0")
    'tensorflow_0_9'
    """
    stems = [stem for stem in spec_files.names("frameworks") if stem.partition("_")[0] == name.lower()]
    if not stems:
        kind = "framework of a measured table"
        raise UnknownNameError(kind, name, spec_files.names("frameworks"))
    versions = sorted((_numbers(load_framework(stem).version), stem) for stem in stems)
    stated = _numbers(version)
    not_above = [stem for known, stem in versions if known[: len(stated)] <= stated]
    return not_above[-1] if not_above else versions[0][1]


def _numbers(version: str) -> tuple[int, ...]:
    found = re.search(r"\d+\.\d+(?:\.\d+)*", version)
    return () if found is None else tuple(int(part) for part in found.group(0).split("."))


def read_system_table(path: str | Path) -> SystemTable | None:
    """Read a table of training steps on systems.

    Parameters
    ----------
    path : str or Path
        The CSV. [-]

    Returns
    -------
    SystemTable or None
        None where the columns are of another format, or no row is of one device. [-]

    Raises
    ------
    TableError
        If a value is wrong.
    UnknownNameError
        If a device, framework or network is unknown; names the nearest.
    """
    path = Path(path)
    header, lines = read_lines(path)
    if not set(COLUMNS) <= set(header):
        return None
    faults: list[str] = []
    rows: list[MeasuredRow] = []
    runs: dict[tuple[str, str, int], Run] = {}
    several: list[MultiDeviceRow] = []
    for number, values in lines:
        record = dict(zip(header, values, strict=False))
        workers = _whole(record, "n_devices", number=number, faults=faults)
        row, run = _row(record, number=number, table=path.stem, faults=faults)
        if workers > 1:
            several.append(MultiDeviceRow(row=row, run=run, worker_count=workers))
            continue
        rows.append(row)
        runs[row.run_key] = run
    if faults:
        raise table_error(path, faults)
    if not rows:
        return None
    table = MeasurementTable(key=path.stem, title=path.name, rows=tuple(rows), runs=tuple(runs.values()), path=path)
    frameworks = tuple(sorted({row.framework for row in rows}))
    return SystemTable(measurements=table, several=tuple(several), frameworks=frameworks)


def run_of_same_page(source: str, network: str, tables: Iterable[MeasurementTable]) -> Run | None:
    """Return what a table from the same page says that the scripts ran.

    Parameters
    ----------
    source, network : str
        Where a row comes from, and its network, as the table writes them. [-]
    tables : iterable of MeasurementTable
        Described tables. [-]

    Returns
    -------
    Run or None
        Of the table whose ``[source]`` has an address that the row's source has too. [-]
    """
    for table in tables:
        address = table.source.get("url", "").partition("://")[2].removeprefix("www.").rstrip("/")
        found = next((run for run in table.runs if run.network == network), None)
        if address and address in source and found is not None:
            return found
    return None


def _whole(record: dict[str, str], column: str, *, number: int, faults: list[str]) -> int:
    """Return a whole number of at least 1; report another text as a fault."""
    text = record[column]
    if text.isdecimal() and int(text) > 0:
        return int(text)
    faults.append(f"row {number}, column {column}: {text!r} is not allowed: a whole number of at least 1")
    return 1


def _row(record: dict[str, str], *, number: int, table: str, faults: list[str]) -> tuple[MeasuredRow, Run]:
    network = record["network"]
    if network not in zoo.names():
        kind = f"network of row {number}"
        raise UnknownNameError(kind, network, zoo.names())
    seconds = positive_seconds(record["seconds"], column="seconds", number=number, faults=faults)
    batch_size = _whole(record, "batch_size", number=number, faults=faults)
    framework = framework_of_text(record["framework"], record["framework_version"])
    on_device = record["data"] == SYNTHETIC
    label = network if on_device else f"{network}, images read"
    row = MeasuredRow(
        table=table,
        row_number=number,
        network=label,
        framework=framework,
        batch_size=batch_size,
        device=device_of_text(record["device"]),
        threads=None,
        step_s=seconds,
        note=record.get("variable_update", ""),
    )
    images = FeedItem(
        name="images", elements_per_sample=zoo.build(network).input_elements, element_bytes=PIXEL_BYTES, prefetched=True
    )
    shipped = (measurements.load(name) for name in measurements.names())
    described = run_of_same_page(record.get("source", ""), network, shipped)
    plain = Run(table=table, network=network, framework=framework, batch_size=batch_size, builder=network)
    run = replace(
        described or plain,
        table=table,
        network=label,
        framework=framework,
        batch_size=batch_size,
        phase=record["phase"],
        feed=() if on_device else (images,),
        evidence=(Evidence("feed", f"column data: {record['data']}"),),
    )
    return row, run
