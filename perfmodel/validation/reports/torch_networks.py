"""Measured steps of the networks of torch packages beside predictions with the constants as they are shipped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import compress, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.cost.roofline import roofline_time
from perfmodel.errors import MissingPackageError, PerfmodelError
from perfmodel.framework.profile import load_framework
from perfmodel.measurements.scaling_tables import NetworkRow, NetworkTable, read_network_table
from perfmodel.prediction.job.job import Job
from perfmodel.presentation.tables import row_table
from perfmodel.validation.reports import torch_zoos
from perfmodel.validation.scores.interval_coverage import interval_row
from perfmodel.validation.scores.metrics import factor_of_least_mape
from perfmodel.validation.scores.table_report import EVERY_ROW, PERFMODEL, PartScore, RowReport, compared

if TYPE_CHECKING:
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.graph import LayerGraph
    from perfmodel.presentation.tables import Table
    from perfmodel.validation.protocols.cells import Progress

AS_SHIPPED: Final = "as_shipped"
"""Protocol: constants as in their files, some of which were chosen while looking at such tables. [-]"""

ONE_EFFICIENCY: Final = "roofline x one efficiency per cell, told the answers"
"""Naive rule: the greater of FLOP over peak and bytes over bandwidth, by the factor of the least MAPE. [-]"""

MISSED: Final = 2.0
"""Ratio of predicted to measured time that a row without a prediction counts with: an error of 100 %. [1]"""

MOST_NAMED: Final = 20
"""Rows without a prediction that are named. [1]"""


def network_report(file: Path, *, progress: Progress | None = None) -> RowReport:
    """Score a table of steps of networks that a torch package defines; nothing is fitted here.

    Notes
    -----
    A row that cannot be imported or predicted counts as predicted at twice its time, which is an error of 100 %.
    """
    table = read_network_table(file)
    versions, profile = torch_zoos.versions(table.zoo), profile_of(table)
    scores: dict[int, dict[str, Any]] = {}
    for row, graph in rows_with_graphs(table):
        scores[row.row_number] = _score(row, graph, profile)
        if progress is not None:
            progress(len(scores), len(table.rows))
    rows = row_table([scores[row.row_number] for row in table.rows], title=table.title)
    missed = [f"{row.network} ({row.cell}): {row.not_predicted}" for row in rows if row.not_predicted]
    built = f"networks as {versions} builds them; {len(missed)} of {len(rows)} rows without a prediction"
    return RowReport(
        table=table.key,
        rows=rows,
        parts=_parts([(row.device, *row.cell) for row in table.rows], rows, about=built),
        caveats=(*table.caveats, *missed[:MOST_NAMED]),
    )


def profile_of(table: NetworkTable) -> FrameworkProfile:
    """Return the framework of a table; images that stay on the device are not fed."""
    profile = load_framework(table.framework)
    if table.is_fed:
        return profile
    return profile.model_copy(update={"feed": profile.feed.model_copy(update={"mode": "resident"})})


def rows_with_graphs(table: NetworkTable) -> Iterator[tuple[NetworkRow, LayerGraph | str]]:
    """Yield each row with its network, or with the reason why it cannot be imported; each network is imported once."""
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


def _score(row: NetworkRow, graph: LayerGraph | str, profile: FrameworkProfile) -> dict[str, Any]:
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
    return {
        "network": row.network,
        "image_size": row.image_size,
        "device": row.device,
        "cell": ", ".join(row.cell),
        "batch_size": row.batch_size,
        "measured_s": row.measured_s,
        "predicted_s": predicted_s,
        "error_percent": 100 * (predicted_s / row.measured_s - 1),
        "low_s": low_s,
        "high_s": high_s,
        "roofline_s": roofline_s,
        "not_predicted": " ".join(reason.split()),
    }


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


def _parts(keys: Sequence[tuple[str, ...]], rows: Table[Any], *, about: str) -> tuple[PartScore, ...]:
    """Score all rows, each cell, and all cells of a device that share the first words of their names."""
    every_row = (True,) * len(rows)
    parts = {every_row: EVERY_ROW}
    for length in range(2, len(keys[0]) + 1):
        for start in sorted({key[:length] for key in keys}):
            parts[tuple(key[:length] == start for key in keys)] = ", ".join(start[1:])
    parts[every_row] = EVERY_ROW
    measured, predicted, high = (np.array(rows.column(name)) for name in ("measured_s", "predicted_s", "high_s"))
    log_half_width = np.log(high / predicted)
    predictions: dict[str, Any] = {PERFMODEL: predicted, ONE_EFFICIENCY: _one_efficiency(rows, keys)}
    scores: list[PartScore] = []
    for of_part, part in parts.items():
        kept, within = list(compress(rows, of_part)), np.array(of_part)
        devices = ", ".join(dict.fromkeys(row.device for row in kept))
        worst = max(kept, key=lambda row: abs(row.error_percent))
        note = f"{devices}, {part}: worst is {worst.network} ({worst.cell}), {worst.error_percent:+.0f} %"
        model, *others = compared(
            devices,
            predictions,
            measured=measured,
            fitted={ONE_EFFICIENCY: len(set(compress(keys, of_part)))},
            part=part,
            note=f"{about}; {note}" if part == EVERY_ROW else note,
            protocol=AS_SHIPPED,
            rows=of_part,
        )
        intervals = interval_row(
            devices, PERFMODEL, np.log(predicted)[within], log_half_width[within], measured[within]
        )
        scores += [replace(model, intervals=intervals), *others]
    return tuple(scores)


def _one_efficiency(rows: Table[Any], keys: Sequence[tuple[str, ...]]) -> list[float]:
    """Return the roofline of each row, by the factor that suits the rows of its cell best. [s]"""
    factors = {}
    for key in set(keys):
        of_cell = [row for row, other in zip(rows, keys, strict=True) if other == key and not row.not_predicted]
        if of_cell:
            factors[key] = factor_of_least_mape(
                [row.roofline_s for row in of_cell], measured=[row.measured_s for row in of_cell]
            )
    return [row.roofline_s * (1.0 if row.not_predicted else factors[key]) for row, key in zip(rows, keys, strict=True)]
