"""Measured steps of the networks of torch packages beside predictions with the constants as they are shipped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.cost.roofline import roofline_time
from perfmodel.errors import MissingPackageError, PerfmodelError
from perfmodel.framework.profile import load_framework
from perfmodel.measurements.network_tables import NetworkRow, NetworkTable, read_network_table
from perfmodel.prediction.job.job import Job
from perfmodel.presentation.tables import Table
from perfmodel.validation.scores.interval_coverage import interval_row
from perfmodel.validation.scores.metrics import factor_of_least_mape
from perfmodel.validation.scores.table_report import EVERY_ROW, PERFMODEL, PartScore, RowReport, score
from perfmodel.validation.tables import torch_zoos

if TYPE_CHECKING:
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.graph import LayerGraph
    from perfmodel.validation.protocols.cells import Progress

AS_SHIPPED: Final = "as_shipped"
"""Protocol: constants as in their files, some of which were chosen while looking at such tables. [-]"""

ONE_EFFICIENCY: Final = "roofline x one efficiency per cell, told the answers"
"""Naive rule: the greater of FLOP over peak and bytes over bandwidth, by the factor of the least MAPE. [-]"""

MISSED: Final = 2.0
"""Predicted over measured of a row without a prediction: an error of 100 %. [1]"""

MOST_NAMED: Final = 20
"""Rows without a prediction that are named. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkScore:
    """A row beside its prediction."""

    network: str
    image_size: int
    device: str
    cell: str
    batch_size: int
    measured_s: float
    predicted_s: float
    error_percent: float
    low_s: float
    high_s: float
    roofline_s: float
    not_predicted: str = ""


def network_report(file: Path, *, progress: Progress | None = None) -> RowReport:
    """Score a table of steps of networks that a torch package defines; nothing is fitted here.

    Parameters
    ----------
    file : Path
        The table's CSV; its name identifies what ran. [-]
    progress : callable or None
        Called with the rows done and the rows in all. [-]

    Returns
    -------
    RowReport
        Rows beside predictions, and scores of each cell of device, phase and layout or type. [-]

    Raises
    ------
    MissingPackageError
        If the package that defines the networks is not installed.
    TableError
        If a column or value is wrong.
    UnknownNameError
        If perfmodel does not know what ran.

    Notes
    -----
    A row that cannot be imported or predicted counts as predicted at twice its time, which is an error of 100 %.
    """
    table = read_network_table(file)
    versions, profile = torch_zoos.versions(table.zoo), profile_of(table)
    scores: dict[int, NetworkScore] = {}
    for row, graph in rows_with_graphs(table):
        scores[row.row_number] = _score(row, graph, profile)
        if progress is not None:
            progress(len(scores), len(table.rows))
    ordered = [scores[row.row_number] for row in table.rows]
    missed = [f"{row.network} ({row.cell}): {row.not_predicted}" for row in ordered if row.not_predicted]
    built = f"networks as {versions} builds them; {len(missed)} of {len(ordered)} rows without a prediction"
    return RowReport(
        table=table.key,
        rows=Table(ordered, title=table.title, row_type=NetworkScore),
        parts=_parts([row.cell for row in table.rows], ordered, about=built),
        caveats=(*table.caveats, *missed[:MOST_NAMED]),
    )


def profile_of(table: NetworkTable) -> FrameworkProfile:
    """Return the framework of a table; images that stay on the device are not fed."""
    profile = load_framework(table.framework)
    if table.is_fed:
        return profile
    return profile.model_copy(update={"feed": profile.feed.model_copy(update={"mode": "resident"})})


def rows_with_graphs(table: NetworkTable) -> Iterator[tuple[NetworkRow, LayerGraph | str]]:
    """Yield each row with its network, imported once for all rows alike, or with why there is none."""
    for _, alike in groupby(sorted(table.rows, key=_graph_key), key=_graph_key):
        rows = list(alike)
        graph = _graph_of(table, rows[0])
        yield from ((row, graph) for row in rows)


def job_of(row: NetworkRow, graph: LayerGraph, **how: Any) -> Job:
    """Return the job that a row timed; ``framework`` among ``how`` is the table's."""
    return Job(graph, **{"batch_size": row.batch_size, "device": row.device, **row.arguments, **how})


def _graph_key(row: NetworkRow) -> tuple[str, int, bool]:
    return row.network, row.image_size, row.is_training


def _graph_of(table: NetworkTable, row: NetworkRow) -> LayerGraph | str:
    """Return the graph of a row, or why there is none."""
    fused = not row.is_training or table.attention_in_training == "fused"
    try:
        return torch_zoos.graph_of(
            table.zoo, row.network, image_size=row.image_size, training=row.is_training, fused_attention=fused
        )
    except MissingPackageError:
        raise
    except Exception as error:  # whatever the package raises
        return f"{type(error).__name__}: {error}"


def _score(row: NetworkRow, graph: LayerGraph | str, profile: FrameworkProfile) -> NetworkScore:
    """Predict a row."""
    predicted_s = low_s = high_s = roofline_s = MISSED * row.measured_s
    reason = graph if isinstance(graph, str) else ""
    if not isinstance(graph, str):
        try:
            job = job_of(row, graph, framework=profile)
            prediction = job.predict()
            predicted_s, (low_s, high_s) = float(prediction.step_s), map(float, prediction.interval_s)
            roofline_s = _roofline_s(job)
        except PerfmodelError as error:
            reason = str(error)
    return NetworkScore(
        network=row.network,
        image_size=row.image_size,
        device=row.device,
        cell=", ".join(row.cell),
        batch_size=row.batch_size,
        measured_s=row.measured_s,
        predicted_s=predicted_s,
        error_percent=100 * (predicted_s / row.measured_s - 1),
        low_s=low_s,
        high_s=high_s,
        roofline_s=roofline_s,
        not_predicted=" ".join(reason.split()),
    )


def _roofline_s(job: Job) -> float:
    """Return the whole step at the peak or at the bandwidth, whichever takes longer. [s]"""
    subject, prepared = job.subject, job.prepared
    work = subject.graph.work(
        batch_size=job.batch_size, phase=subject.phase, optimizer=subject.optimizer, dtype=prepared.dtype
    )
    return float(
        roofline_time(
            compute_s=float(work.flop_count) / prepared.target.peak_flop_per_s(prepared.dtype),
            memory_s=float(work.moved_bytes) / prepared.target.bandwidth_bytes_per_s,
        )
    )


def _parts(cells: Sequence[tuple[str, ...]], rows: Sequence[NetworkScore], *, about: str) -> tuple[PartScore, ...]:
    """Score all rows, each cell, and the cells of a device whose names begin alike."""
    keys = [(row.device, *cell) for row, cell in zip(rows, cells, strict=True)]
    every = tuple(range(len(rows)))
    groups = {every: EVERY_ROW}
    for length in range(2, len(keys[0]) + 1):
        for start in sorted({key[:length] for key in keys}):
            places = tuple(place for place in every if keys[place][:length] == start)
            if places != every:
                groups[places] = ", ".join(start[1:])
    naive = _one_efficiency(rows, keys)
    return tuple(
        part
        for places, name in groups.items()
        for part in _scores(
            name,
            [rows[place] for place in places],
            naive=[naive[place] for place in places],
            told=len({keys[place] for place in places}),
            about=f"{about}; " if name == EVERY_ROW else "",
        )
    )


def _one_efficiency(rows: Sequence[NetworkScore], keys: Sequence[tuple[str, ...]]) -> list[float]:
    """Return the roofline of each row, by the factor that suits the rows of its cell best. [s]"""
    factors = {}
    for key in set(keys):
        told = [row for row, other in zip(rows, keys, strict=True) if other == key and not row.not_predicted]
        if told:
            factors[key] = factor_of_least_mape(
                [row.roofline_s for row in told], measured=[row.measured_s for row in told]
            )
    return [row.roofline_s * (1.0 if row.not_predicted else factors[key]) for row, key in zip(rows, keys, strict=True)]


def _scores(
    part: str, rows: Sequence[NetworkScore], *, naive: Sequence[float], told: int, about: str
) -> Iterator[PartScore]:
    """Yield the scores of the prediction and of the naive rule, which was told so many factors."""
    subset = ", ".join(dict.fromkeys(row.device for row in rows))
    worst = max(rows, key=lambda row: abs(row.error_percent))
    measured, predicted = (np.array([getattr(row, name) for row in rows]) for name in ("measured_s", "predicted_s"))
    log_half_width = np.log(np.array([row.high_s for row in rows]) / predicted)
    yield PartScore(
        part=part,
        score=score(subset, PERFMODEL, predicted, measured_s=measured, fitted=0),
        note=f"{about}{subset}, {part}: worst is {worst.network} ({worst.cell}), {worst.error_percent:+.0f} %",
        protocol=AS_SHIPPED,
        intervals=interval_row(subset, PERFMODEL, np.log(predicted), log_half_width, measured),
    )
    yield PartScore(
        part=part, score=score(subset, ONE_EFFICIENCY, naive, measured_s=measured, fitted=told), protocol=AS_SHIPPED
    )
