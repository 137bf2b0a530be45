"""Measured layouts of language models: step times, which layouts fit, and which one would have been chosen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from perfmodel.errors import TableError
from perfmodel.graph import LayerGraph
from perfmodel.graph.execution import block_of
from perfmodel.measurements.kernel_tables import NAMES
from perfmodel.prediction.certainty.ranking import ranking_of
from perfmodel.prediction.job.job import Job
from perfmodel.presentation.quantities import counted
from perfmodel.presentation.tables import row_table
from perfmodel.validation.scores.metrics import rank_correlation
from perfmodel.validation.scores.table_report import (
    ONE_MFU,
    PERFMODEL,
    PartScore,
    RowReport,
    by_one_mfu,
    compared,
    read_records,
)
from perfmodel.zoo.transformer import llama

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.prediction.prediction import Prediction

RESERVE: Final = 0.08
"""Share of a device's memory that a layout which fits leaves free, as in ``pm.search``. [1]"""

CHOSEN_WITHIN: Final = 1.05
"""Largest ratio of the first choice's measured time to the best measured time that counts as a good choice. [1]"""

MACHINE_SIZE: Final = 8
"""Devices of a machine. [1]"""

CLEAR: Final = (0.75, 0.85)
"""Range of predicted certainty; each sweep counts how many pairs ranked with it are right. [1]"""

CERTAINTIES: Final = (0.5, 0.65, *CLEAR, 0.95, 1.0)
"""Limits of the ranges of certainty in which right pairs are counted over all sweeps. [1]"""

MOST_PAIRS: Final = 12
"""Layouts of a sweep whose pairs are ranked. [1]"""


SIZES: Final = NAMES["layouts"]
"""Networks of the table; the units of the feed-forward part are those of LLaMA. [-]"""

VOCABULARY: Final = 128_000
"""Words, as the printed MFU implies. [1]"""


KERNELS: Final = NAMES["kernels"]
"""Kernels of a row -> how they are predicted. [-]"""


@cache
def _graph(model: str, length: int, attention: str, *, checkpointed: bool) -> LayerGraph:
    graph = llama(**SIZES[model], sequence_length=length, vocabulary=VOCABULARY, attention=attention)
    return _with_every_module_checkpointed(graph) if checkpointed else graph


def _with_every_module_checkpointed(graph: LayerGraph) -> LayerGraph:
    """Return the network with every module, even table and head, recomputed as a whole."""
    marked = LayerGraph(graph.name, inputs=graph.input_shapes)
    region = ""
    for node in graph.layers:
        region = block_of(node.name) or (node.name if node.parameter_shapes else region)
        marks = {} if node.layer.is_loss else {"recomputed_in": region, "reruns_all": True}
        marked.add(node.name, node.layer, inputs=node.input_names, **node.usage.options | marks)
    return marked


def predicted_layout(record: Mapping[str, str], file: Path) -> Prediction:
    """Predict the job of one row."""
    model, kernels = record["model"], KERNELS.get(record["kernels"])
    if model not in SIZES or kernels is None:
        message = f"{file}: model and kernels must be of {', '.join(SIZES)} and {', '.join(KERNELS)} (got {record})"
        raise TableError(message)
    devices, tensor, stages = (int(record[name]) for name in ("gpus", "tensor_size", "stages"))
    batch, workers = int(record["global_batch_samples"]), devices // (tensor * stages)
    is_checkpointed = record["activation_checkpointing"] == "every_layer"
    return Job(
        _graph(model, int(record["sequence_length"]), kernels["attention"], checkpointed=is_checkpointed),
        global_batch_size=batch,
        system="dgx_a100_80",
        machines=devices // MACHINE_SIZE,
        framework=kernels["framework"],
        library=kernels.get("library"),
        dtype="bf16",
        optimizer="adamw",
        sync="all_reduce",
        parallelism="pipeline",
        workers=workers,
        tensor_size=tensor,
        stages=stages,
        shard_stage=1,
        stage_cut="even_modules" if stages > 1 else "balanced",
        micro_batches=batch // workers // int(record["micro_batch_samples"]),
    ).predict()


def layout_report(file: Path) -> RowReport:
    """Score a table of layouts, each of which took a time or ran out of memory."""
    records = [record for record in read_records(file) if record["outcome"] in ("timed", "OOM Error")]
    predictions = [predicted_layout(record, file) for record in records]
    rows = [_row(record, p) for record, p in zip(records, predictions, strict=True)]
    sweeps = np.array([row["sweep"] for row in rows])
    is_timed = np.array([record["outcome"] == "timed" for record in records])
    measured = np.array([row["measured_s"] for row in rows], dtype=float)[is_timed]
    times = {
        PERFMODEL: np.array([row["predicted_s"] for row in rows])[is_timed],
        ONE_MFU: _by_one_mfu(records, sweeps)[is_timed],
    }
    parts: list[PartScore] = []
    pairs: list[_Pair] = []
    for name in sorted(set(sweeps.tolist())):
        places = np.flatnonzero(sweeps == name)
        if not is_timed[places].any():
            continue
        timed = [place for place in places if is_timed[place]]
        ranked = _ranked_pairs([rows[place] for place in timed], [predictions[place] for place in timed])
        pairs += ranked
        note = _choice([rows[place] for place in places], ranked)
        of_sweep = sweeps[is_timed] == name
        parts += compared("layouts", times, measured=measured, fitted={ONE_MFU: 1}, part=name, rows=of_sweep, note=note)
    whole = compared(
        "layouts",
        times,
        measured=measured,
        fitted={ONE_MFU: len(set(sweeps.tolist()))},
        note=f"{_fits(rows, 'all sweeps: ')}; {_reliability(pairs)}",
    )
    return RowReport(
        table=file.stem,
        rows=row_table(rows, title=file.stem),
        parts=(*whole, *parts),
        not_scored=f"{counted(len(read_records(file)) - len(rows), 'layout')} whose kernels did not exist",
        caveats=(
            "no constant was fitted to these rows, but what the software does was looked up in its source after their "
            "errors had been seen, and taken as that of 2023; kernels are told apart by their names: norms are "
            "composed of operators without the RMS kernel, scores of the torch and fused kernels go through memory",
        ),
    )


def _row(record: Mapping[str, str], p: Prediction) -> dict[str, Any]:
    names = ("model", "sequence_length", "gpus", "kernels")
    return {
        "sweep": ", ".join(record[name] for name in names),
        "micro_batch_size": int(record["micro_batch_samples"]),
        "tensor_size": int(record["tensor_size"]),
        "stages": int(record["stages"]),
        "checkpointing": record["activation_checkpointing"],
        "measured_s": float(record["step_s"]) if record["step_s"] else None,
        "predicted_s": p.step_s,
        "ran": record["outcome"] == "timed",
        "memory_bytes": float(p.memory.total_bytes),
        "fits": bool(p.memory.total_bytes <= (1 - RESERVE) * p.memory.capacity_bytes),
    }


def _by_one_mfu(records: Sequence[Mapping[str, str]], sweeps: NDArray[Any]) -> NDArray[np.float64]:
    """Return the times that one MFU for each sweep implies, the geometric mean of those measured."""
    step_s, mfu = (np.array([float(record[name] or "nan") for record in records]) for name in ("step_s", "mfu"))
    times = np.full(len(records), np.nan)
    for name in set(sweeps.tolist()):
        of_sweep = (sweeps == name) & np.isfinite(step_s)
        if of_sweep.any():
            times[of_sweep] = by_one_mfu(step_s[of_sweep], mfu[of_sweep])
    return times


def balanced_accuracy(predicted: Sequence[bool], actual: Sequence[bool]) -> float:
    """Mean of the share of true cases that are recognised and the share of false cases that are. [1]"""
    answers, true = np.asarray(predicted), np.asarray(actual)
    return float(np.mean([(answers[true == value] == value).mean() for value in np.unique(true)]))


def _fits(rows: Sequence[Mapping[str, Any]], what: str) -> str:
    share = balanced_accuracy([row["fits"] for row in rows], [row["ran"] for row in rows])
    return f"{what}balanced accuracy of what fits with {100 * RESERVE:g} % left free {100 * share:.1f} %"


def _choice(rows: Sequence[Mapping[str, Any]], pairs: Sequence[_Pair]) -> str:
    """Describe the ranking of a sweep's layouts, and the measured time of its first choice."""
    timed = [place for place, row in enumerate(rows) if row["ran"]]
    ranks = rank_correlation([rows[place]["predicted_s"] for place in timed], [rows[at]["measured_s"] for at in timed])
    best = min(rows[place]["measured_s"] for place in timed)
    note = f"{rows[0]['sweep']}: rank correlation {ranks:.2f}"
    fitting = [row for row in rows if row["fits"]]
    if fitting:
        chosen = min(fitting, key=lambda row: row["predicted_s"])
        ratio = chosen["measured_s"] / best if chosen["ran"] else math.inf
        took = f"{100 * (ratio - 1):.1f} % longer than the best" if chosen["ran"] else "out of memory"
        note += f", first choice {took}{'' if ratio <= CHOSEN_WITHIN else ' (missed)'}"
    clear = [pair.is_right for pair in pairs if CLEAR[0] <= pair.certainty < CLEAR[1]]
    note += f", {_fits(rows, '')}"
    return note if not clear else f"{note}; of {len(clear)} pairs said to be about 80 % sure {sum(clear)} are right"


def _reliability(pairs: Sequence[_Pair]) -> str:
    """Count the pairs ranked correctly, by their predicted certainty."""
    ranges = []
    for low, high in pairwise(CERTAINTIES):
        inside = [pair.is_right for pair in pairs if low <= pair.certainty < high or pair.certainty == high == 1]
        if inside:
            ranges.append(f"{100 * low:.0f} to {100 * high:.0f} % sure {sum(inside)} of {len(inside)}")
    return "pairs ranked right: " + ", ".join(ranges)


class _Pair(NamedTuple):
    """A ranked pair of layouts: how sure the ranking is, and whether it is right."""

    certainty: float
    is_right: bool


def _ranked_pairs(rows: Sequence[Mapping[str, Any]], predictions: Sequence[Prediction]) -> list[_Pair]:
    """Rank pairs of timed layouts."""
    pairs = []
    some = np.linspace(0, len(rows) - 1, min(MOST_PAIRS, len(rows))).astype(int).tolist()
    for first, second in combinations(some, 2):
        sure = ranking_of(predictions[first], predictions[second]).probability
        is_faster = bool(rows[first]["measured_s"] < rows[second]["measured_s"])
        pairs.append(_Pair(max(sure, 1 - sure), (sure > 1 - sure) == is_faster))
    return pairs
