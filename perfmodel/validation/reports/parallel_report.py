"""Networks on several devices compared with predictions: speed-ups, steps of sharded networks, layouts of papers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel import zoo
from perfmodel.framework.profile import load_framework
from perfmodel.hardware.part_catalogue import load_link
from perfmodel.measurements.published_tables import PublishedLayouts, ShardedRow, load_published, load_sharded
from perfmodel.measurements.scaling_tables import ParallelRow, ParallelTable, load_parallel, load_scaling
from perfmodel.parallelism.base import Layout
from perfmodel.prediction.device.targets import resolve_target
from perfmodel.prediction.job.agreement import AllReduced, Synchronous
from perfmodel.prediction.job.agreements import SHARED
from perfmodel.prediction.job.exchange_times import LinkExchanges, OnLink
from perfmodel.prediction.job.job import Job
from perfmodel.prediction.job.prepare import prepare
from perfmodel.prediction.job.subject import subject_of_graph
from perfmodel.presentation.quantities import percent_text
from perfmodel.presentation.tables import row_table
from perfmodel.sync.registry import collective
from perfmodel.units import GIB, GIGA
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
    from perfmodel.graph import LayerGraph
    from perfmodel.prediction.job.prepared import Prepared
    from perfmodel.prediction.job.stage import TimedStep
    from perfmodel.presentation.tables import Table

LINEAR: Final = "linear scaling"
"""Naive rule: speed-up equal to the number of devices. [-]"""

ONE_RATE: Final = "one FLOP/s per device for all rows, told all of them"
"""Naive rule: every row's own FLOP at the geometric mean of all rows' rates. [-]"""

PUBLISHED: Final = "as published by another model"
"""Predictions that the table's source prints. [-]"""

MACHINE_SIZE: Final = 8
"""Devices per machine, for rows that state their machines. [1]"""

NEARLY_FULL: Final = 0.9
"""Share of a device's memory above which a row is named: about the share that allocators and buffers leave. [1]"""

_STRATEGIES: Final = {"tree": "binomial_tree"}
"""A source's name of a strategy -> its name here, if they differ."""


def parallel_report(file: Path) -> RowReport:
    """Return a table of many devices with its predictions; nothing is fitted.

    Notes
    -----
    Valid for: groups whose devices have a link each to the next, at the rate that its file calls typical, or machines
    in which the framework's library exchanges. Ignores: contention between groups on links, overlap of gradients'
    exchange with back-propagation.
    """
    table = load_parallel(file.stem)
    graphs = [zoo.build(row.builder, **row.builder_options) for row in table.rows]
    naive = _naive(table.rows, graphs)
    scores = row_table(
        [
            _score(table, row, graph, naive=expected)
            for row, graph, expected in zip(table.rows, graphs, naive, strict=True)
        ],
        title=table.title,
    )
    return RowReport(
        table=table.key,
        rows=scores,
        parts=_parts(table.rows, scores, naive),
        caveats=(table.source["caveat"], *_nearly_full(table.rows, scores)),
    )


def _nearly_full(rows: Sequence[ParallelRow], scores: Table[Any]) -> list[str]:
    """Name the rows that need nearly all of their device's memory, since allocators may leave too little."""
    notes = []
    for row, score in zip(rows, scores, strict=True):
        target = resolve_target(device=row.device, system=None, threads=None, workers=1)
        capacity_gb = target.capacity_bytes / GIGA
        if score.memory_gb > NEARLY_FULL * capacity_gb:
            share = percent_text(score.memory_gb / capacity_gb)
            notes.append(
                f"memory: {row.label} is predicted to need {score.memory_gb:.2f} GB per device, {share} of the "
                f"{capacity_gb:.2f} GB that it has; it was measured, so it did fit"
            )
    return notes


def _naive(rows: Sequence[ParallelRow], graphs: Sequence[LayerGraph]) -> list[float]:
    """Predict each row by a naive rule: linear speed-up by workers, or FLOP at the typical rate of all rows."""
    work = {}
    for row, graph in zip(rows, graphs, strict=True):
        if row.measured_s is not None:
            flop = float(graph.work(batch_size=1, phase="forward_backward").flop_count) * row.global_batch_size
            work[row.row_number] = flop / row.sizes["workers"]
    rates = [work[row.row_number] / row.measured_s for row in rows if row.measured_s is not None]
    typical = math.exp(sum(map(math.log, rates)) / len(rates)) if rates else math.nan
    return [float(row.sizes["workers"]) if row.measured_s is None else work[row.row_number] / typical for row in rows]


def _worst(rows: Table[Any], part: str, of_part: Sequence[bool]) -> str:
    worst = max(compress(rows, of_part), key=lambda row: abs(row.error_percent))
    return f"{part}: worst is {worst.row}, {worst.error_percent:+.1f} %"


def _parts(rows: Sequence[ParallelRow], scores: Table[Any], naive: Sequence[float]) -> tuple[PartScore, ...]:
    """Return scores of all rows, then of each part where there are several."""
    names = list(dict.fromkeys(row.part for row in rows))
    fitted = {ONE_RATE: 1} if rows[0].measured_s is not None else {}
    predictions: dict[str, Any] = {PERFMODEL: scores.column("predicted"), ONE_RATE if fitted else LINEAR: naive}
    parts: list[PartScore] = []
    for part in (EVERY_ROW, *(names if len(names) > 1 else ())):
        of_part = [part in (EVERY_ROW, row.part) for row in rows]
        kept = list(compress(rows, of_part))
        published = {PUBLISHED: [row.published_speedup or math.nan for row in rows]}
        parts += compared(
            ", ".join(dict.fromkeys(row.device for row in kept)),
            predictions | (published if all(row.published_speedup is not None for row in kept) else {}),
            measured=scores.column("measured"),
            fitted=fitted,
            part=part,
            rows=of_part,
            note=_worst(scores, part, of_part),
        )
    return tuple(parts)


def _score(table: ParallelTable, row: ParallelRow, graph: LayerGraph, *, naive: float) -> dict[str, Any]:
    prepared, step = step_of_row(table, row, graph, row.parallelism, row.sizes, row.global_batch_size)
    step_s = float(step.parts.step_s)
    predicted, measured = step_s, row.measured_s
    if row.measured_speedup is not None:
        assert row.baseline_batch_size is not None
        _, one = step_of_row(table, row, graph, "data", {"workers": 1}, row.baseline_batch_size)
        predicted = float(one.parts.step_s) / row.baseline_batch_size * row.global_batch_size / step_s
        measured = row.measured_speedup
    assert measured is not None
    return {
        "row": row.label,
        "measured": measured,
        "predicted": predicted,
        "error_percent": _percent(predicted, measured),
        "naive_percent": _percent(naive, measured),
        "published_percent": None if row.published_speedup is None else _percent(row.published_speedup, measured),
        "parameters_billion": graph.parameter_count / 1e9,
        "memory_gb": float(prepared.footprint(step).total_bytes) / 1e9,
        "bubble_percent": 100 * float(step.parts.bubble_s) / step_s,
        "sync_percent": 100 * float(step.parts.exposed_sync_s) / step_s,
    }


def _percent(predicted: float, measured: float) -> float:
    return 100 * (predicted / measured - 1)


def step_of_row(
    table: ParallelTable,
    row: ParallelRow,
    graph: LayerGraph,
    parallelism: str,
    sizes: Mapping[str, Any],
    global_batch_size: int,
) -> tuple[Prepared, TimedStep]:
    """Predict a step of a row's network in some layout, on its machines or on links of its rates."""
    if row.system is not None:
        on_machines = job_of_row(table, row, graph).prepared
        return on_machines, on_machines.nominal
    layout = Layout(**sizes)
    profile = load_framework(table.framework)
    prepared = prepare(
        subject_of_graph(graph, optimizer=table.optimizer, phase="step"),
        target=resolve_target(device=row.device, system=None, threads=None, workers=1),
        profile=profile,
        batch_size=global_batch_size // layout.data_size,
        dtype=table.dtype,
        parallelism=parallelism,
        layout=layout,
    )
    links = {group: load_link(name) for group, name in row.links.items()}
    agreement = None
    if layout.data_size > 1:
        how = collective(SHARED if layout.shard_stage else _STRATEGIES.get(row.sync, row.sync))
        sums = AllReduced(placed=OnLink(collective=how, link=links["data"], worker_count=layout.data_size))
        agreement = Synchronous(
            name=row.sync, worker_count=layout.data_size, reductions=(sums,) * layout.stages, overlap=False
        )
    exchanges = LinkExchanges(placement=prepared.placement, links=links)
    exchanging = replace(prepared, exchanges=exchanges, agreement=agreement)
    return exchanging, exchanging.nominal


def job_of_row(table: ParallelTable, row: ParallelRow, graph: LayerGraph) -> Job:
    """Return the job of a row, with workers counted as ``predict`` counts them."""
    sizes = dict(row.sizes)
    devices = sizes.pop("workers")
    return Job(
        graph,
        global_batch_size=row.global_batch_size,
        system=row.system,
        machines=devices // MACHINE_SIZE if devices > MACHINE_SIZE else None,
        framework=table.framework,
        dtype=table.dtype,
        optimizer=table.optimizer,
        sync="all_reduce",
        parallelism=row.parallelism,
        workers=devices // (sizes["stages"] * sizes["tensor_size"]),
        **sizes,
    )


SAVED_WHERE_LINEAR: Final = 0.5
"""Share of the time that a doubling saves if speed-up is linear. [1]"""


def doubling_claims(file: Path) -> RowReport:
    """Return the claims with the speed-up and exposed exchange that they imply.

    Notes
    -----
    Valid for: one doubling, with the same mini-batch for each worker. A step on twice the GPUs lasts 2 / speed-up times
    as long as before; all additional time is exposed exchange, a share of 1 - speed-up / 2 of the step.
    """
    table = load_scaling(file.stem)
    rows = [
        {
            "framework": row["framework"],
            "saved_percent": 100 * row["time_reduction"],
            "linear_percent": 100 * SAVED_WHERE_LINEAR,
            "speedup": 1 / (1 - row["time_reduction"]),
            "efficiency_percent": 100 * SAVED_WHERE_LINEAR / (1 - row["time_reduction"]),
            "implied_exposed_percent": 100 * (1 - SAVED_WHERE_LINEAR / (1 - row["time_reduction"])),
        }
        for row in table.rows
    ]
    return RowReport(
        table=table.key,
        rows=row_table(rows, title=table.title),
        parts=(),
        not_scored=f"{len(rows)} claims that state neither network, batch size, GPUs nor links",
        caveats=table.caveats,
    )


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
        [_sharded_row(row, built(tuple(row.network_options.items()))) for row in scored],
        title=table.title,
    )
    measured, mfu = (np.array(rows.column(name)) for name in ("measured_s", "measured_mfu"))
    steps = {PERFMODEL: np.array(rows.column("predicted_s")), ONE_MFU: by_one_mfu(measured, mfu)}
    has_memory = np.array([row.measured_gib is not None for row in rows])
    gib, predicted_gib = (np.array(rows.column(name), dtype=float) for name in ("measured_gib", "predicted_gib"))
    typical_gib = np.exp(np.mean(np.log(gib[has_memory])))
    footprints = {PERFMODEL: predicted_gib, ONE_FOOTPRINT: np.full_like(gib, typical_gib)}
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


def job_of_run(row: ShardedRow, graph: LayerGraph) -> Job:
    """Describe a measured run."""
    return Job(graph, dtype=row.dtype, **row.arguments)


def _sharded_row(row: ShardedRow, graph: LayerGraph) -> dict[str, Any]:
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


def published_report(file: Path) -> RowReport:
    """Return published layouts with their predictions; nothing is fitted."""
    table = load_published(file.stem)
    rows = row_table([_published_row(*case) for case in cases_of(table)], title=table.title)
    measured, mfu = (np.array(rows.column(name)) for name in ("measured_s", "measured_mfu"))
    times = {PERFMODEL: np.array(rows.column("predicted_s")), ONE_MFU: by_one_mfu(measured, mfu)}
    studies = rows.column("study")
    parts: list[PartScore] = []
    for part in (EVERY_ROW, *dict.fromkeys(studies)):
        of_part = [part in (EVERY_ROW, study) for study in studies]
        note = _worst(rows, part, of_part)
        parts += compared("steps", times, measured=measured, fitted={ONE_MFU: 1}, part=part, rows=of_part, note=note)
    return RowReport(table=table.key, rows=rows, parts=tuple(parts), caveats=(*table.caveats, *_too_large(rows)))


def cases_of(table: PublishedLayouts) -> Iterator[tuple[str, str, Job, float]]:
    """Yield study, layout in words, job and measured step of every row, one at a time because graphs are large."""
    for name in table.also:
        other = load_parallel(name)
        for row in other.rows:
            assert row.measured_s is not None
            yield name, row.label, job_of_row(other, row, zoo.build(row.builder, **row.builder_options)), row.measured_s
    for published in table.rows:
        graph = zoo.build(published.builder, **published.builder_options)
        job = Job(graph, **published.arguments)
        yield published.study, published.label, job, published.step_s(graph.parameter_count)


def _published_row(study: str, label: str, job: Job, measured_s: float) -> dict[str, Any]:
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
