"""Subject of a prediction: a graph or a Run of a measurement table, and how it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from perfmodel.derived import kept
from perfmodel.errors import ArgumentError
from perfmodel.graph import LayerGraph
from perfmodel.layers.optimizers import Optimizer, load_optimizer
from perfmodel.measurements.table import FeedItem, Run
from perfmodel.prediction.arguments.checks import PREDICTED_PHASES, one_of
from perfmodel.records import Phase

if TYPE_CHECKING:
    from perfmodel.framework.profile import FeedTable


_PHASES: Final = tuple(phase.value for phase in PREDICTED_PHASES)

LABELS: Final = "labels"
"""Name of the feed that holds the labels of losses; all other feeds are inputs."""

MOST_SUBJECTS: Final = 16
"""Subjects kept per graph. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A graph, and facts about its execution that no framework file states."""

    graph: LayerGraph
    name: str
    optimizer: Optimizer
    phase: Phase
    input_gradient: bool | None = None
    feed: tuple[FeedItem, ...] | None = None
    subnormal_products_per_sample: float = 0.0
    averaged_steps: int = 0
    hosts: Mapping[str, str] = field(default_factory=dict)


def subject_of_graph(graph: Any, *, optimizer: str | Optimizer, phase: str) -> Subject:
    """Prepare a network for prediction."""
    if not isinstance(graph, LayerGraph):
        raise ArgumentError("graph", graph, "a LayerGraph (see pm.zoo) or a Run of a measurement table")
    key = (graph.name, optimizer, phase)
    subject: Subject = kept(graph.kept("subjects"), key, lambda: _subject(graph, optimizer, phase), most=MOST_SUBJECTS)
    return subject


def _subject(graph: LayerGraph, optimizer: str | Optimizer, phase: str) -> Subject:
    if graph.free_sizes:
        allowed = f"a graph without symbolic sizes; set {', '.join(graph.free_sizes)} with graph.with_sizes(...)"
        raise ArgumentError("graph", graph, allowed)
    chosen = Phase(one_of("phase", phase, _PHASES))
    running = graph.at_inference() if chosen is Phase.FORWARD else graph
    packed = [node.name for node in graph.layers if node.packed_count and node.trains_weights]
    if packed and Phase.BACKWARD in chosen.parts:
        allowed = f"forward where weights are packed ({packed[0]} and {len(packed) - 1} more); or freeze these layers"
        raise ArgumentError("phase", phase, allowed)
    return Subject(graph=running, name=graph.name, optimizer=load_optimizer(optimizer), phase=chosen)


def subject_of_run(run: Run) -> Subject:
    """Prepare a Run for prediction, as it was executed."""
    options = tuple((name, type(value), value) for name, value in sorted(run.builder_options.items()))
    graph = _built(run.builder, options)
    is_inference = run.phase == Phase.FORWARD and not run.training_mode
    return Subject(
        graph=graph.at_inference() if is_inference else graph,
        name=f"{run.network} as {run.framework} ran it",
        optimizer=load_optimizer(run.optimizer, clipping=run.clipping, **run.optimizer_options),
        phase=Phase(run.phase),
        input_gradient=run.input_gradient,
        feed=run.feed,
        subnormal_products_per_sample=run.subnormal_products_per_sample,
        averaged_steps=run.averaged_steps,
        hosts=run.hosts,
    )


@lru_cache(maxsize=64)
def _built(builder: str, options: tuple[tuple[str, type, Any], ...]) -> LayerGraph:
    """Build a graph once per builder and options, so that its lowering is reused."""
    from perfmodel import zoo

    return zoo.build(builder, **{name: value for name, _, value in options})


def attends(graph: LayerGraph) -> bool:
    """Return whether a network has fused attention, whose kernels are a library of their own."""
    known = graph.kept("attends")
    if not known:
        known[None] = any(getattr(node.layer, "scores", None) == "recomputed" for node in graph.layers)
    return bool(known[None])


def habitual_feed(graph: LayerGraph, policy: FeedTable) -> tuple[FeedItem, ...]:
    """Return the copies that a framework makes in every step of a graph: its inputs and labels."""
    if policy.mode == "resident":
        return ()
    return _fed(graph.input_elements, graph.label_bytes_per_sample, prefetched=policy.mode == "overlapped")


@lru_cache(maxsize=256)
def _fed(input_elements: int, label_bytes: int, *, prefetched: bool) -> tuple[FeedItem, ...]:
    return (
        FeedItem(name="inputs", elements_per_sample=input_elements, prefetched=prefetched),
        FeedItem(name=LABELS, elements_per_sample=label_bytes, element_bytes=1, prefetched=prefetched),
    )
