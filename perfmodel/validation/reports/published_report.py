"""Published layouts of large training runs beside their predicted steps; nothing is fitted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel import zoo
from perfmodel.measurements.published_tables import PublishedLayouts, load_published
from perfmodel.measurements.scaling_tables import load_parallel
from perfmodel.prediction.job.job import Job
from perfmodel.presentation.tables import row_table
from perfmodel.units import GIGA
from perfmodel.validation.reports.parallel_report import job_of_row
from perfmodel.validation.scores.table_report import (
    EVERY_ROW,
    ONE_MFU,
    PERFMODEL,
    PartScore,
    RowReport,
    by_one_mfu,
    compared,
)

if TYPE_CHECKING:
    from perfmodel.presentation.tables import Table


def published_report(file: Path) -> RowReport:
    """Return published layouts with their predictions; nothing is fitted."""
    table = load_published(file.stem)
    rows = row_table([_score(*case) for case in cases_of(table)], title=table.title)
    measured, mfu = (np.array(rows.column(name)) for name in ("measured_s", "measured_mfu"))
    told = {
        PERFMODEL: np.array(rows.column("predicted_s")),
        ONE_MFU: by_one_mfu(measured, mfu),
    }
    studies = rows.column("study")
    parts: list[PartScore] = []
    for part in (EVERY_ROW, *dict.fromkeys(studies)):
        of_part = [part in (EVERY_ROW, study) for study in studies]
        worst = max(
            (row for row, is_in in zip(rows, of_part, strict=True) if is_in), key=lambda row: abs(row.error_percent)
        )
        note = f"{part}: worst is {worst.row}, {worst.error_percent:+.1f} %"
        parts += compared("steps", told, measured=measured, fitted={ONE_MFU: 1}, part=part, rows=of_part, note=note)
    return RowReport(table=table.key, rows=rows, parts=tuple(parts), caveats=(*table.caveats, *_too_large(rows)))


def cases_of(table: PublishedLayouts) -> Iterator[tuple[str, str, Job, float]]:
    """Yield study, layout in words, job and measured step of every row; of one at a time, as graphs are large."""
    for name in table.also:
        other = load_parallel(name)
        for row in other.rows:
            assert row.measured_s is not None
            yield name, row.label, job_of_row(other, row, zoo.build(row.builder, **row.builder_options)), row.measured_s
    for published in table.rows:
        graph = zoo.build(published.builder, **published.builder_options)
        job = Job(graph, **published.arguments)
        yield published.study, published.label, job, published.step_s(graph.parameter_count)


def _score(study: str, label: str, job: Job, measured_s: float) -> dict[str, Any]:
    prediction = job.predict()
    predicted_s = float(prediction.step_s)
    memory = prediction.memory
    return {
        "study": study,
        "row": label,
        "measured_s": measured_s,
        "predicted_s": predicted_s,
        "error_percent": 100 * (predicted_s / measured_s - 1),
        "measured_mfu": prediction.mfu * predicted_s / measured_s,
        "predicted_mfu": prediction.mfu,
        "memory_gb": float(memory.total_bytes) / GIGA,
        "capacity_gb": float(memory.capacity_bytes) / GIGA,
    }


def _too_large(rows: Table[Any]) -> list[str]:
    """Name the rows that are predicted not to fit, since they did run."""
    return [
        f"memory: {row.row} is predicted to need {row.memory_gb:.1f} GB of {row.capacity_gb:.1f} GB; it did run"
        for row in rows
        if row.memory_gb > row.capacity_gb
    ]
