"""Measured speed-ups over one device, compared with predicted ones and linear scaling; nothing is fitted on them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel import measurements, zoo
from perfmodel.errors import PerfmodelError, TableError, UnknownNameError, check_known
from perfmodel.framework.profile import load_framework
from perfmodel.hardware import spec_files
from perfmodel.hardware.catalogue import load_system
from perfmodel.hardware.library import device_of_text
from perfmodel.measurements.reading import CsvTable, Line
from perfmodel.measurements.scaling_tables import SpeedupJob, load_speedup_job
from perfmodel.measurements.table import PHASES, Evidence, FeedItem, MeasuredRow, MeasurementTable, Run
from perfmodel.prediction.predict import predict
from perfmodel.presentation.tables import row_table
from perfmodel.validation.scores.table_report import EVERY_ROW, PERFMODEL, PartScore, RowReport, compared

if TYPE_CHECKING:
    from perfmodel.hardware.wiring import Wired
    from perfmodel.prediction.prediction import Prediction


COLUMNS: Final = (
    "framework", "framework_version", "network", "device", "n_devices", "batch_size", "phase", "seconds", "data",
)  # fmt: skip
"""Columns without which a table of steps on systems cannot be read."""

SYNTHETIC: Final = "synthetic"
"""Word of the column ``data`` for images that lie on the device."""

PIXEL_BYTES: Final = 4
"""Size of a value of an image as it reaches the device. [B]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiDeviceRow:
    """A step of several devices, each with its own mini-batch."""

    row: MeasuredRow
    run: Run
    worker_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemTable:
    """Rows of one device, ready to be scored, and rows of several."""

    measurements: MeasurementTable
    several: tuple[MultiDeviceRow, ...]


def framework_of_text(name: str, version: str) -> str:
    """Return the framework file for a framework of a table.

    >>> framework_of_text("tensorflow", "0.9.0")
    'tensorflow_0_9'
    """
    stems = [stem for stem in spec_files.names("frameworks") if stem.partition("_")[0] == name.lower()]
    if not stems:
        raise UnknownNameError(kind="framework of a measured table", name=name, known=spec_files.names("frameworks"))
    versions = sorted((_numbers(load_framework(stem).version), stem) for stem in stems)
    stated = _numbers(version)
    not_above = [stem for known, stem in versions if known[: len(stated)] <= stated]
    return not_above[-1] if not_above else versions[0][1]


def _numbers(version: str) -> tuple[int, ...]:
    match = re.search(r"\d+\.\d+(?:\.\d+)*", version)
    return () if match is None else tuple(int(part) for part in match.group(0).split("."))


def read_system_table(path: str | Path) -> SystemTable | None:
    """Read a table of training steps on systems."""
    csv_table = CsvTable(path)
    if not set(COLUMNS) <= set(csv_table.header):
        return None
    path = csv_table.path
    rows: list[MeasuredRow] = []
    runs: dict[tuple[str, str, int], Run] = {}
    several: list[MultiDeviceRow] = []
    for line in filter(csv_table.is_whole, csv_table.lines):
        workers, row_and_run = line.whole("n_devices"), _row(line, table=path.stem)
        if row_and_run is None:
            continue
        row, run = row_and_run
        if workers > 1:
            several.append(MultiDeviceRow(row=row, run=run, worker_count=workers))
        else:
            rows.append(row)
            runs[row.run_key] = run
    csv_table.check()
    if not rows:
        return None
    table = MeasurementTable(key=path.stem, title=path.name, rows=tuple(rows), runs=tuple(runs.values()), path=path)
    return SystemTable(measurements=table, several=tuple(several))


def run_of_same_page(source: str, network: str, tables: Iterable[MeasurementTable]) -> Run | None:
    """Return the run that a table from the same page states."""
    for table in tables:
        address = table.source.get("url", "").partition("://")[2].removeprefix("www.").rstrip("/")
        same_network = next((run for run in table.runs if run.network == network), None)
        if address and address in source and same_network is not None:
            return same_network
    return None


def _row(line: Line, *, table: str) -> tuple[MeasuredRow, Run] | None:
    """Return a row and its run, or None if something is wrong with it."""
    record, fault_count = line.values, len(line.faults)
    network = record["network"]
    finders: dict[str, Callable[[], Any]] = {
        "network": lambda: check_known("network", network, zoo.names()),
        "framework": lambda: framework_of_text(record["framework"], record["framework_version"]),
        "device": lambda: device_of_text(record["device"]),
        "phase": lambda: check_known("phase", record["phase"], PHASES),
    }
    names: dict[str, Any] = {}
    for column, find in finders.items():
        try:
            names[column] = find()
        except PerfmodelError as error:
            line.faults.append(f"row {line.number}, column {column}: {error}")
    seconds, batch_size = line.seconds("seconds"), line.whole("batch_size")
    if len(line.faults) > fault_count:
        return None
    framework = names["framework"]
    on_device = record["data"] == SYNTHETIC
    label = network if on_device else f"{network}, images read"
    row = MeasuredRow(
        table=table,
        row_number=line.number,
        network=label,
        framework=framework,
        batch_size=batch_size,
        device=names["device"],
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


LINEAR: Final = "linear scaling"
"""Naive rule: speed-up equal to the number of devices. [-]"""

OWN_CLOCK: Final = "perfmodel, every die at the clock of one alone"
"""The prediction without the effect of dies of one board on each other's clock. [-]"""

SYNTHETIC_DATA: Final = "synthetic data"
REAL_DATA: Final = "real data"


def speedup_report(file: Path) -> RowReport:
    """Score the speed-ups of a table of steps on several devices.

    Notes
    -----
    Valid for: data-parallel workers with a mini-batch each. A row is predicted as the throughput of its workers over
    that of one worker of the same strategy, whose parameters lie with the server too. No number comes from the table.
    """
    job = load_speedup_job(file.stem)
    read = read_system_table(file)
    if read is None or not read.several:
        message = f"{file}: must have a step of several devices and the same step of one"
        raise TableError(message)
    alone = {(row.network, row.batch_size): row for row in read.measurements.rows}
    scored = [case for case in read.several if (case.row.network, case.row.batch_size) in alone]
    system = load_system(job.system)
    models: dict[str, Wired] = {PERFMODEL: system}
    models |= {f"perfmodel, {name}": load_system(name) for name in job.other_systems}
    models[OWN_CLOCK] = _without_boards(system)
    steps = {model: _steps(job, wired) for model, wired in models.items()}
    speedups = {
        model: [step(case.run, case.worker_count).samples_per_s / step(case.run, 1).samples_per_s for case in scored]
        for model, step in steps.items()
    }
    predictions = [steps[PERFMODEL](case.run, case.worker_count) for case in scored]
    measured = [
        case.worker_count * alone[case.row.network, case.row.batch_size].step_s / case.row.step_s  # type: ignore[operator]
        for case in scored
    ]
    linear = [float(case.worker_count) for case in scored]
    rows = [
        {
            "network": case.run.builder,
            "data": REAL_DATA if case.run.feed else SYNTHETIC_DATA,
            "batch_size": case.row.batch_size,
            "workers": case.worker_count,
            "measured": truth,
            "predicted": predicted,
            "error_percent": 100 * (predicted / truth - 1),
            "linear_percent": 100 * (case.worker_count / truth - 1),
            "exposed_percent": 100 * float(step.exposed_sync_s / step.step_s),
        }
        for case, truth, predicted, step in zip(scored, measured, speedups[PERFMODEL], predictions, strict=True)
    ]
    by_model = {PERFMODEL: speedups[PERFMODEL], LINEAR: linear, **speedups}
    return RowReport(
        table=job.key,
        rows=row_table(rows, title=job.title),
        parts=_parts([str(row["data"]) for row in rows], by_model, measured=measured, device=scored[0].row.device),
        not_scored=_not_scored(read, len(scored)),
        caveats=job.caveats,
    )


def _not_scored(read: SystemTable, scored: int) -> str:
    without = len(read.several) - scored
    alone = f"{len(read.measurements.rows)} rows of one device, which the others are compared with"
    return alone + (f"; {without} rows with none to compare with" if without else "")


def _without_boards(system: Wired) -> Wired:
    """Return the same system with dies that keep their clock."""
    apart = tuple((name, device.model_copy(update={"board": None})) for name, device in system.devices)
    return replace(system, wiring=replace(system.wiring, devices=apart))  # type: ignore[type-var]


def _steps(job: SpeedupJob, system: Wired) -> Callable[[Run, int], Prediction]:
    """Return a cached function from a number of workers [1] to the predicted step of a run on a system."""
    read = {"dataset": job.dataset, "input_from": job.input_from, "decode_cores": job.decode_cores}

    @cache
    def step(run: Run, workers: int) -> Prediction:
        options: dict[str, Any] = read if run.feed else {}
        return predict(run, system=system, workers=workers, sync=job.sync, **options)

    return step


def _parts(
    data: Sequence[str], by_model: Mapping[str, Sequence[float]], *, measured: Sequence[float], device: str
) -> tuple[PartScore, ...]:
    scores = []
    for part in (EVERY_ROW, SYNTHETIC_DATA, REAL_DATA):
        of_part = [part in (EVERY_ROW, kind) for kind in data]
        if not any(of_part):
            continue
        for score in compared(device, by_model, measured=measured, fitted={}, part=part, rows=of_part):
            model = score.score.model
            errors = np.abs(np.array(by_model[model]) / np.array(measured) - 1)[of_part]
            scores.append(replace(score, note=f"{part}, {model}: worst {100 * errors.max():.1f} %"))
    return tuple(scores)
