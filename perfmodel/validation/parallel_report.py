"""Measured steps and speed-ups on many devices beside their predictions; nothing is fitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from perfmodel import zoo
from perfmodel.framework.profile import load_framework
from perfmodel.hardware.link_catalogue import load_link
from perfmodel.measurements import parallel_tables
from perfmodel.measurements.parallel_tables import ParallelRow, ParallelTable
from perfmodel.parallelism import Layout, place
from perfmodel.prediction.exchange_times import LinkExchanges
from perfmodel.prediction.parallel_stage import StagePredictor
from perfmodel.prediction.parallel_step import ParallelStep, parallel_step
from perfmodel.prediction.subject import subject_of_graph
from perfmodel.prediction.targets import resolve_target
from perfmodel.presentation.tables import Table
from perfmodel.records import ELEMENT_BYTES

if TYPE_CHECKING:
    from perfmodel.graph import LayerGraph

_STRATEGIES: Final = {"tree": "binomial_tree"}
"""What a source calls a strategy -> its name here, where that is another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelScore:
    """A row beside its prediction.

    Parameters
    ----------
    row : str
        What ran. [-]
    measured : float
        Seconds of a step [s], or speed-up over one device [1].
    predicted : float
        The same. [s]
    error_percent : float
        Predicted over measured, less one. [%]
    naive_percent : float or None
        Error of linear scaling, where it is a speed-up. [%]
    published_percent : float or None
        Error of another model's published prediction. [%]
    parameters_billion : float
        Of the whole network, in 1e9. [1]
    memory_gb : float
        Of the fullest device. [GB]
    bubble_percent, sync_percent : float
        Share of the step that devices wait for others, and exchange while nothing else goes on. [%]
    """

    row: str
    measured: float
    predicted: float
    error_percent: float
    naive_percent: float | None
    published_percent: float | None
    parameters_billion: float
    memory_gb: float
    bubble_percent: float
    sync_percent: float


def parallel_report(key: str) -> Table[ParallelScore]:
    """Return a table of many devices with its predictions.

    Parameters
    ----------
    key : str
        A table that comes with perfmodel. [-]

    Returns
    -------
    Table
        A line for each row. [-]

    Raises
    ------
    UnknownNameError
        If there is no such table.

    Notes
    -----
    Valid for: groups whose devices have a link each to the next, at the rate that its file calls typical. Ignores:
    contention between groups, overlap of gradients' exchange with back-propagation.
    """
    table = parallel_tables.load(key)
    return Table([_score(table, row) for row in table.rows], title=table.title)


def mean_error(scores: Table[ParallelScore]) -> float:
    """Return the mean absolute error over the rows of a report [%]."""
    return sum(abs(score.error_percent) for score in scores) / len(scores)


def _score(table: ParallelTable, row: ParallelRow) -> ParallelScore:
    graph = zoo.build(row.builder, **row.builder_options)
    step = _step(table, row, graph, row.parallelism, row.sizes, row.global_batch_size)
    step_s = float(step.parts.step_s)
    predicted, measured, naive, published = step_s, row.measured_s, None, None
    if row.measured_speedup is not None:
        assert row.baseline_batch_size is not None
        one = _step(table, row, graph, "data", {"workers": 1}, row.baseline_batch_size)
        predicted = float(one.parts.step_s) / row.baseline_batch_size * row.global_batch_size / step_s
        measured = row.measured_speedup
        naive = _percent(row.sizes["workers"], measured)
        published = None if row.published_speedup is None else _percent(row.published_speedup, measured)
    assert measured is not None
    return ParallelScore(
        row=row.label,
        measured=measured,
        predicted=predicted,
        error_percent=_percent(predicted, measured),
        naive_percent=naive,
        published_percent=published,
        parameters_billion=graph.parameter_count / 1e9,
        memory_gb=max(float(each.total_bytes) for each in step.memory) / 1e9,
        bubble_percent=100 * float(step.parts.bubble_s) / step_s,
        sync_percent=100 * float(step.parts.exposed_sync_s) / step_s,
    )


def _percent(predicted: float, measured: float) -> float:
    return 100 * (predicted / measured - 1)


def _step(
    table: ParallelTable,
    row: ParallelRow,
    graph: LayerGraph,
    parallelism: str,
    sizes: Mapping[str, Any],
    global_batch_size: int,
) -> ParallelStep:
    layout = Layout(**sizes)
    predictor = StagePredictor(
        subject=subject_of_graph(graph, optimizer=table.optimizer, phase="step"),
        target=resolve_target(device=row.device, system=None, threads=None, workers=1),
        profile=load_framework(table.framework),
        dtype=table.dtype,
    )
    batch_size = global_batch_size // layout.data_size
    layer_s = None
    if layout.stages > 1:
        alone_s = predictor.layer_seconds(graph, layout.micro_batch_size(batch_size))
        layer_s = {name: seconds / layout.tensor_size for name, seconds in alone_s.items()}
    placed = place(
        graph, parallelism=parallelism, layout=layout, element_bytes=ELEMENT_BYTES[table.dtype], layer_s=layer_s
    )
    return parallel_step(
        placed,
        batch_size=batch_size,
        predict_stage=predictor,
        exchange_time=LinkExchanges(
            placement=placed,
            links={group: load_link(name) for group, name in row.links.items()},
            all_reduce=_STRATEGIES.get(row.sync, row.sync),
        ),
    )
