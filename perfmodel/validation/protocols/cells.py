"""Cells of a measurement table, lowered as their Runs executed them, and their predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perfmodel.framework.profile import load_framework
from perfmodel.hardware import spec_files
from perfmodel.layers import LSTM, Convolution2d
from perfmodel.measurements.table import SCORED, MeasuredRow, MeasurementTable
from perfmodel.prediction.certainty.basis import timed_prediction
from perfmodel.prediction.device.targets import resolve_target
from perfmodel.prediction.job.prepare import prepare
from perfmodel.prediction.job.prepared import Prepared
from perfmodel.prediction.job.subject import Subject, subject_of_run

if TYPE_CHECKING:
    from perfmodel.hardware.source import SpecFile
    from perfmodel.measurements.table import Run

Progress = Callable[[int, int], None]
"""Called with the number of finished items and the total."""


def progress_of_part(progress: Progress | None, place: int, count: int) -> Progress:
    """Return a callback for part ``place`` of ``count`` equal parts, from 0; it counts hundredths of a part. [1]"""

    def in_part(done: int, total: int) -> None:
        if progress is not None:
            progress(100 * place + round(100 * done / total), 100 * count)

    return in_part


FAMILIES = ((LSTM.kind, "LSTM"), (Convolution2d.kind, "CNN"))
"""Kind of layer -> family of a network that has it; the first match counts. Others are fully connected, ``FCN``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCell:
    """A measured cell, ready to be predicted with any constants."""

    row: MeasuredRow
    prepared: Prepared
    family: str

    @property
    def is_scored(self) -> bool:
        """Whether the cell is scored and fitted; a cell set aside is only predicted and shown."""
        return self.row.status == SCORED

    @property
    def physical_cores(self) -> float:
        """Cores of the CPUs that ran the cell; infinite for a GPU, which spreads no threads over cores. [1]"""
        return getattr(self.prepared.target, "core_count", float("inf"))

    @property
    def measured_s(self) -> float:
        """Measured time of the step. [s]"""
        assert self.row.step_s is not None
        return self.row.step_s


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedCell:
    """A measured cell and its prediction."""

    network: str
    framework: str
    device: str
    threads: int | None
    batch_size: int
    measured_s: float
    predicted_s: float
    ratio: float
    bottleneck: str
    status: str
    flop_count: float
    moved_bytes: float
    is_recurrent: bool
    peak_flop_per_s: float
    bandwidth_bytes_per_s: float
    family: str
    fold: str = ""
    low_s: float = math.nan
    high_s: float = math.nan

    @property
    def row_key(self) -> tuple[str, str, str]:
        """Framework, network and device: the row of the table, with all its thread counts."""
        return self.framework, self.network, self.device


def prepare_cells(table: MeasurementTable, rows: Sequence[MeasuredRow]) -> tuple[MeasuredCell, ...]:
    """Lower every row's Run for the row's hardware."""
    subjects: dict[tuple[str, str, int], Subject] = {}
    cells = []
    for row in rows:
        run = table.run_of(row)
        if row.run_key not in subjects:
            subjects[row.run_key] = subject_of_run(run)
        cells.append(_prepare_cell(row, run, subjects[row.run_key]))
    return tuple(cells)


def _prepare_cell(row: MeasuredRow, run: Run, subject: Subject) -> MeasuredCell:
    is_system = row.device in spec_files.names("systems")
    target = resolve_target(
        device=None if is_system else row.device,
        system=row.device if is_system else None,
        threads=row.threads,
    )
    prepared = prepare(
        subject,
        target=target,
        profile=load_framework(run.framework),
        batch_size=row.batch_size,
        dtype=run.dtype_on(target.processor),
    )
    kinds = {node.layer.kind for node in subject.graph.layers}
    family = next((family for kind, family in FAMILIES if kind in kinds), "FCN")
    return MeasuredCell(row=row, prepared=prepared, family=family)


def predict_cell(
    cell: MeasuredCell, factors: Mapping[str, float] | None = None, *, fold: str = ""
) -> tuple[PredictedCell, tuple[SpecFile, ...]]:
    """Predict one cell."""
    prepared, row = cell.prepared, cell.row
    subject, target = prepared.subject, prepared.target
    prediction = timed_prediction(prepared, factors=factors)
    work = subject.graph.work(
        batch_size=row.batch_size,
        phase=subject.phase,
        optimizer=subject.optimizer,
        input_gradient=bool(subject.input_gradient),
        dtype=prepared.dtype,
    )
    predicted_s = float(prediction.step_s)
    of_row = ("network", "framework", "device", "threads", "batch_size", "status")
    predicted = PredictedCell(
        **{name: getattr(row, name) for name in of_row},
        measured_s=cell.measured_s,
        predicted_s=predicted_s,
        ratio=predicted_s / cell.measured_s,
        bottleneck=prediction.bottleneck,
        flop_count=float(work.flop_count),
        moved_bytes=float(work.moved_bytes),
        is_recurrent=cell.family == "LSTM",
        peak_flop_per_s=target.peak_flop_per_s(prepared.dtype),
        bandwidth_bytes_per_s=target.bandwidth_bytes_per_s,
        family=cell.family,
        fold=fold,
    )
    return predicted, prediction.sources
