"""Predict the cells of a measurement table: each one what its Run really executed, on the row's hardware."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perfmodel.framework.profile import load_framework
from perfmodel.hardware import spec_files
from perfmodel.hardware.source import SpecFile
from perfmodel.layers import LSTM
from perfmodel.measurements.run import Run
from perfmodel.measurements.table import MeasuredRow, MeasurementTable
from perfmodel.prediction.predict import predict_subject
from perfmodel.prediction.subject import Subject, subject_of_run
from perfmodel.prediction.targets import resolve_target

Progress = Callable[[int, int], None]
"""Called with the number of cells done and of all cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedCell:
    """A measured cell beside its prediction.

    Parameters
    ----------
    network, framework, device : str
        What ran, with what, on what. [-]
    threads : int or None
        CPU threads; None on a GPU. [1]
    batch_size : int
        Samples per step. [samples]
    measured_s, predicted_s : float
        Times of the step. [s]
    ratio : float
        predicted / measured. [1]
    bottleneck : str
        What bounds the predicted step. [-]
    status : str
        ``measured``, or why the cell is set aside. [-]
    flop_count : float
        Arithmetic of the step. [FLOP]
    moved_bytes : float
        Compulsory traffic of the step. [B]
    is_recurrent : bool
        Whether the graph has recurrent layers, which percent-of-peak models of the literature cannot express. [-]
    peak_flop_per_s, bandwidth_bytes_per_s : float
        Of the target, for the baselines. [FLOP/s, B/s]
    """

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

    @property
    def row_key(self) -> tuple[str, str, str]:
        """Framework, network and device: the row of the table, with all its thread counts."""
        return self.framework, self.network, self.device


def predict_cells(
    table: MeasurementTable,
    rows: Sequence[MeasuredRow],
    *,
    progress: Progress | None = None,
) -> tuple[tuple[PredictedCell, ...], tuple[SpecFile, ...]]:
    """Predict cells of a table with the shipped constants.

    Parameters
    ----------
    table : MeasurementTable
        Whose Runs say what was executed. [-]
    rows : sequence of MeasuredRow
        Cells with a time. [-]
    progress : callable or None
        Told how many cells are done, and of how many. [-]

    Returns
    -------
    tuple of PredictedCell
        In the order of ``rows``.
    tuple of SpecFile
        Every file whose numbers were used.
    """
    subjects: dict[tuple[str, str, int], Subject] = {}
    sources: dict[int, SpecFile] = {}
    cells = []
    for done, row in enumerate(rows):
        run = table.run_of(row)
        if row.run_key not in subjects:
            subjects[row.run_key] = subject_of_run(run)
        cell, used = _predict_cell(row, run, subjects[row.run_key])
        cells.append(cell)
        sources |= {id(spec): spec for spec in used}
        if progress is not None:
            progress(done + 1, len(rows))
    return tuple(cells), tuple(sources.values())


def _predict_cell(row: MeasuredRow, run: Run, subject: Subject) -> tuple[PredictedCell, tuple[SpecFile, ...]]:
    is_system = row.device in spec_files.names("systems")
    target = resolve_target(
        device=None if is_system else row.device,
        system=row.device if is_system else None,
        threads=row.threads,
    )
    dtype = run.dtype_on(target.processor)
    prediction = predict_subject(
        subject,
        target=target,
        profile=load_framework(run.framework),
        batch_size=row.batch_size,
        dtype=dtype,
        library=None,
    )
    work = subject.graph.work(
        batch_size=row.batch_size,
        phase=subject.phase,
        optimizer=subject.optimizer,
        input_gradient=bool(subject.input_gradient),
        dtype=dtype,
    )
    assert row.step_s is not None
    predicted_s = float(prediction.step_s)
    cell = PredictedCell(
        network=row.network,
        framework=row.framework,
        device=row.device,
        threads=row.threads,
        batch_size=row.batch_size,
        measured_s=row.step_s,
        predicted_s=predicted_s,
        ratio=predicted_s / row.step_s,
        bottleneck=prediction.bottleneck,
        status=row.status,
        flop_count=float(work.flop_count),
        moved_bytes=float(work.moved_bytes),
        is_recurrent=any(node.layer.kind == LSTM.kind for node in subject.graph.layers),
        peak_flop_per_s=target.peak_flop_per_s(dtype),
        bandwidth_bytes_per_s=target.bandwidth_bytes_per_s,
    )
    return cell, prediction.sources
