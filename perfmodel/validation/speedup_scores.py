"""Measured speed-ups over one device beside predicted ones and linear scaling; nothing is fitted on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perfmodel.errors import TableError
from perfmodel.hardware.catalogue import load_system
from perfmodel.measurements.speedup_jobs import SpeedupJob, load_speedup_job
from perfmodel.prediction.predict import predict
from perfmodel.presentation.tables import Table
from perfmodel.validation.score_records import PERFMODEL
from perfmodel.validation.scores import score
from perfmodel.validation.system_tables import SystemTable, read_system_table
from perfmodel.validation.table_report import EVERY_ROW, PartScore, RowReport

if TYPE_CHECKING:
    from perfmodel.hardware.wired import Wired
    from perfmodel.measurements.run import Run
    from perfmodel.prediction.prediction import Prediction

LINEAR: Final = "linear scaling"
"""Naive rule: as many times as fast as there are devices. [-]"""

OWN_CLOCK: Final = "perfmodel, every die at the clock of one alone"
"""The prediction without what dies of one board do to each other's clock. [-]"""

SYNTHETIC: Final = "synthetic data"
REAL: Final = "real data"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupRow:
    """A row of several devices beside its prediction.

    Parameters
    ----------
    network, data : str
        What was trained, on images that lie on the device or on real ones. [-]
    batch_size : int
        Samples of each worker. [samples]
    workers : int
        Devices. [1]
    measured, predicted : float
        Speed-up over one device of the same table. [1]
    error_percent, linear_percent : float
        Error of the prediction and of linear scaling. [%]
    exposed_percent : float
        Share of the predicted step that pushing and pulling adds to it. [%]
    """

    network: str
    data: str
    batch_size: int
    workers: int
    measured: float
    predicted: float
    error_percent: float
    linear_percent: float
    exposed_percent: float


def speedup_report(file: Path) -> RowReport:
    """Score the speed-ups of a table of steps on several devices.

    Parameters
    ----------
    file : Path
        Its CSV; its name says what ran. [-]

    Returns
    -------
    RowReport
        Rows beside predictions, and scores beside linear scaling and what else the machine may be. [-]

    Raises
    ------
    TableError
        If a value is wrong, or no row is of several devices.
    UnknownNameError
        If perfmodel does not know what ran, or a network, device or framework is unknown.

    Notes
    -----
    Valid for: data-parallel workers with a mini-batch each. A row is predicted as the throughput of its workers over
    that of one worker of the same strategy, whose parameters lie with the server too. No number comes from the table.
    """
    job = load_speedup_job(file.stem)
    read = read_system_table(file)
    if read is None or not read.several:
        message = f"{file}: no step of several devices beside one of a single device"
        raise TableError(message)
    alone = {(row.network, row.batch_size): row for row in read.measurements.rows}
    scored = [each for each in read.several if (each.row.network, each.row.batch_size) in alone]
    system = load_system(job.system)
    models: dict[str, Wired] = {PERFMODEL: system}
    models |= {f"perfmodel, {name}": load_system(name) for name in job.other_systems}
    models[OWN_CLOCK] = _without_boards(system)
    times = {model: _Predictions(job, wired) for model, wired in models.items()}
    speedups = {name: [each.speedup(row.run, row.worker_count) for row in scored] for name, each in times.items()}
    measured = [
        each.worker_count * alone[each.row.network, each.row.batch_size].step_s / each.row.step_s  # type: ignore[operator]
        for each in scored
    ]
    linear = [float(each.worker_count) for each in scored]
    rows = [
        SpeedupRow(
            network=each.run.builder,
            data=_data(each.run),
            batch_size=each.row.batch_size,
            workers=each.worker_count,
            measured=truth,
            predicted=predicted,
            error_percent=100 * (predicted / truth - 1),
            linear_percent=100 * (each.worker_count / truth - 1),
            exposed_percent=times[PERFMODEL].exposed_percent(each.run, each.worker_count),
        )
        for each, truth, predicted in zip(scored, measured, speedups[PERFMODEL], strict=True)
    ]
    by_model = {PERFMODEL: speedups[PERFMODEL], LINEAR: linear, **speedups}
    return RowReport(
        table=job.key,
        rows=Table(rows, title=job.title, row_type=SpeedupRow),
        parts=_parts(rows, by_model, measured=measured, device=scored[0].row.device),
        not_scored=_not_scored(read, len(scored)),
        caveats=job.caveats,
    )


def _not_scored(read: SystemTable, scored: int) -> str:
    without = len(read.several) - scored
    alone = f"{len(read.measurements.rows)} rows of one device, which the others are compared with"
    return alone + (f"; {without} rows with none to compare with" if without else "")


def _data(run: Run) -> str:
    return REAL if run.feed else SYNTHETIC


def _without_boards(system: Wired) -> Wired:
    """Return the same system with dies that keep their clock."""
    apart = tuple((name, device.model_copy(update={"board": None})) for name, device in system.devices)
    return replace(system, wiring=replace(system.wiring, devices=apart))  # type: ignore[type-var]


class _Predictions:
    """Predicted steps of a job on a system, each once."""

    def __init__(self, job: SpeedupJob, system: Wired) -> None:
        self.job, self.system = job, system
        self.known: dict[tuple[str, int, int], Prediction] = {}

    def step(self, run: Run, workers: int) -> Prediction:
        """Return the step of so many workers."""
        key = run.network, run.batch_size, workers
        if key not in self.known:
            self.known[key] = predict(
                run,
                system=self.system,
                workers=workers,
                sync=self.job.sync,
                dataset=self.job.dataset if run.feed else None,
                input_from=self.job.input_from if run.feed else None,
                decode_cores=self.job.decode_cores if run.feed else None,
            )
        return self.known[key]

    def speedup(self, run: Run, workers: int) -> float:
        """Return the throughput of workers over that of one. [1]"""
        return self.step(run, workers).samples_per_s / self.step(run, 1).samples_per_s

    def exposed_percent(self, run: Run, workers: int) -> float:
        """Return what exchange adds to a step. [%]"""
        p = self.step(run, workers)
        return 100 * float(p.exposed_sync_s / p.step_s)


def _parts(
    rows: Sequence[SpeedupRow], by_model: Mapping[str, Sequence[float]], *, measured: Sequence[float], device: str
) -> tuple[PartScore, ...]:
    found = []
    for part in (EVERY_ROW, SYNTHETIC, REAL):
        kept = [place for place, row in enumerate(rows) if part in (EVERY_ROW, row.data)]
        truth = [measured[place] for place in kept]
        for model, speedups in by_model.items() if kept else ():
            predicted = [speedups[place] for place in kept]
            worst = max(abs(said / was - 1) for said, was in zip(predicted, truth, strict=True))
            line = score(device, model, predicted, measured_s=truth, fitted=0)
            found.append(PartScore(part=part, score=line, note=f"{part}, {model}: worst {100 * worst:.1f} %"))
    return tuple(found)
