"""Measured speed-ups over one device beside predicted ones and linear scaling; nothing is fitted on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perfmodel.errors import TableError
from perfmodel.hardware.catalogue import load_system
from perfmodel.measurements.speedup_jobs import SpeedupJob, load_speedup_job, speedup_names
from perfmodel.prediction.predict import predict
from perfmodel.presentation.tables import Table
from perfmodel.validation.score_records import PERFMODEL
from perfmodel.validation.scores import ScoreRow, score
from perfmodel.validation.system_tables import SystemTable, read_system_table

if TYPE_CHECKING:
    from perfmodel.hardware.wired import Wired
    from perfmodel.measurements.run import Run
    from perfmodel.prediction.prediction import Prediction

LINEAR: Final = "linear scaling"
"""Naive rule: as many times as fast as there are devices. [-]"""

OWN_CLOCK: Final = "perfmodel, every die at the clock of one alone"
"""The prediction without what dies of one board do to each other's clock. [-]"""

EVERY_ROW: Final = "all"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupPart:
    """A score on a part of the rows.

    Parameters
    ----------
    part : str
        Which rows: all, those of synthetic data, those of real data. [-]
    score : ScoreRow
        Errors of the speed-ups. [-]
    worst_percent : float
        Largest error. [%]
    """

    part: str
    score: ScoreRow
    worst_percent: float


@dataclass(frozen=True, slots=True)
class _Line:
    part: str
    model: str
    rows: int
    mean_error_percent: float
    worst_error_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupReport:
    """Speed-ups of a table beside predictions.

    Parameters
    ----------
    table : str
        Its name. [-]
    rows : Table of SpeedupRow
        Every row of several devices. [-]
    parts : tuple of SpeedupPart
        Of all rows, of synthetic and of real data: perfmodel, linear scaling, other wirings, no shared clock. [-]
    not_scored : str
        What is left out, and why; may be empty. [-]
    caveats : tuple of str
        What to know before believing a score. [-]
    """

    table: str
    rows: Table[SpeedupRow]
    parts: tuple[SpeedupPart, ...]
    not_scored: str
    caveats: tuple[str, ...]

    @property
    def mape(self) -> float:
        """Mean absolute error of perfmodel over all rows [%]."""
        return self.parts[0].score.mape

    @property
    def scores(self) -> Table[_Line]:
        """Mean and worst error of each model on each part."""
        lines = [
            _Line(each.part, each.score.model, each.score.cells, each.score.mape, each.worst_percent)
            for each in self.parts
        ]
        return Table(lines, title=f"{self.table}: speed-up over one device, nothing fitted")

    def __str__(self) -> str:
        notes = [f"not scored: {self.not_scored}"] if self.not_scored else []
        notes += [f"- {text}" for text in self.caveats]
        return "\n\n".join([self.rows.to_text(), self.scores.to_text(), "\n".join(notes)])

    def to_dict(self) -> dict[str, Any]:
        """Return name, error, scores, rows and caveats as plain values."""
        return {
            "table": self.table,
            "mape_percent": self.mape,
            "scores": [asdict(line) for line in self.scores],
            "rows": [asdict(row) for row in self.rows],
            "not_scored": self.not_scored,
            "caveats": list(self.caveats),
        }


def find_speedups(table: str | Path, folder: str | Path | None = None) -> Path | None:
    """Return the file of a table of steps on several devices of which perfmodel knows what ran.

    Parameters
    ----------
    table : str or Path
        Path of its CSV; with a folder its name, or how that begins. [-]
    folder : str, Path or None
        Folder of tables that do not come with perfmodel. [-]

    Returns
    -------
    Path or None
        None where it is no such table. [-]
    """
    if folder is None:
        path = Path(table)
        return path if path.suffix == ".csv" and path.stem in speedup_names() and path.is_file() else None
    found = [name for name in speedup_names() if name.startswith(str(table))]
    path = Path(folder) / "systems" / f"{found[0]}.csv" if len(found) == 1 else Path()
    return path if path.is_file() else None


def speedup_report(file: str | Path) -> SpeedupReport:
    """Score the speed-ups of a table of steps on several devices.

    Parameters
    ----------
    file : str or Path
        Its CSV; its name says what ran. [-]

    Returns
    -------
    SpeedupReport
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
    job = load_speedup_job(Path(file).stem)
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
    return SpeedupReport(
        table=job.key,
        rows=Table(rows, title=job.title, row_type=SpeedupRow),
        parts=_parts(rows, by_model, measured=measured),
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
    rows: Sequence[SpeedupRow], by_model: Mapping[str, Sequence[float]], *, measured: Sequence[float]
) -> tuple[SpeedupPart, ...]:
    found = []
    for part in (EVERY_ROW, SYNTHETIC, REAL):
        kept = [place for place, row in enumerate(rows) if part in (EVERY_ROW, row.data)]
        truth = [measured[place] for place in kept]
        for model, speedups in by_model.items() if kept else ():
            predicted = [speedups[place] for place in kept]
            worst = max(abs(said / was - 1) for said, was in zip(predicted, truth, strict=True))
            line = score(part, model, predicted, measured_s=truth, fitted=0)
            found.append(SpeedupPart(part=part, score=line, worst_percent=100 * worst))
    return tuple(found)
