"""Measured steps and memory of fully sharded training beside predictions and naive rules; nothing is fitted."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel import zoo
from perfmodel.measurements.published_tables import ShardedRow, load_sharded
from perfmodel.prediction.job.job import Job
from perfmodel.presentation.tables import row_table
from perfmodel.units import GIB
from perfmodel.validation.scores.table_report import ONE_MFU, PERFMODEL, RowReport, by_one_mfu, compared

if TYPE_CHECKING:
    from perfmodel.graph import LayerGraph

ONE_FOOTPRINT: Final = "one footprint, told the answers"
"""Naive rule: the geometric mean of all footprints. [-]"""

MEMORY: Final = "memory"
"""Part of the scores that is of footprints. [-]"""


def sharded_report(file: Path) -> RowReport:
    """Return a table of fully sharded training with its predictions; nothing is fitted.

    Notes
    -----
    Valid for: memory that an allocator reserves; the driver's own is left out of the prediction too.
    """
    table = load_sharded(file.stem)
    scored = [row for row in table.rows if not row.not_scored]
    built = cache(lambda options: zoo.build("llama", **dict(options)))  # runs of one network share it
    rows = row_table(
        [_score(row, built(tuple(row.network_options.items()))) for row in scored],
        title=table.title,
    )
    measured, mfu = (np.array(rows.column(name)) for name in ("measured_s", "measured_mfu"))
    steps = {PERFMODEL: np.array(rows.column("predicted_s")), ONE_MFU: by_one_mfu(measured, mfu)}
    has_memory = np.array([row.measured_gib is not None for row in rows])
    gib, predicted_gib = (np.array(rows.column(name), dtype=float) for name in ("measured_gib", "predicted_gib"))
    footprints = {PERFMODEL: predicted_gib, ONE_FOOTPRINT: np.full_like(gib, _typical(gib[has_memory]))}
    parts = compared("steps", steps, measured=measured, fitted={ONE_MFU: 1})
    for page in dict.fromkeys(row.page for row in scored):
        of_page = [row.page == page for row in scored]
        parts += compared("steps", steps, measured=measured, fitted={ONE_MFU: 1}, part=page, rows=of_page)
    parts += compared(MEMORY, footprints, measured=gib, fitted={ONE_FOOTPRINT: 1}, part=MEMORY, rows=has_memory)
    left_out = Counter(row.not_scored for row in table.rows if row.not_scored)
    return RowReport(
        table=table.key,
        rows=rows,
        parts=parts,
        not_scored="; ".join(f"{count} with {reason}" for reason, count in left_out.items()),
        caveats=(table.source["caveat"],),
    )


def _typical(values: Any) -> float:
    """Geometric mean."""
    return float(np.exp(np.mean(np.log(values))))


def job_of_run(row: ShardedRow, graph: LayerGraph) -> Job:
    """Describe a measured run."""
    return Job(graph, dtype=row.dtype, **row.arguments)


def _score(row: ShardedRow, graph: LayerGraph) -> dict[str, Any]:
    job = job_of_run(row, graph)
    prediction = job.predict()
    predicted_s = float(prediction.step_s)
    score: dict[str, Any] = {
        "row": row.label,
        "measured_s": row.step_s,
        "predicted_s": predicted_s,
        "error_percent": 100 * (predicted_s / row.step_s - 1),
        "measured_mfu": float(prediction.utilisation().mfu) * predicted_s / row.step_s,
    }
    if np.isnan(row.memory_gib):
        return score | dict.fromkeys(("measured_gib", "predicted_gib", "memory_ratio"))
    stored = prediction if row.stored_dtype == row.dtype else job.replace(dtype=row.stored_dtype).predict()
    predicted_gib = float(stored.memory.total_bytes - stored.memory.context_bytes) / GIB
    ratio = predicted_gib / row.memory_gib
    return score | {"measured_gib": row.memory_gib, "predicted_gib": predicted_gib, "memory_ratio": ratio}
