"""Exchanges that run a second time because the layers before them do."""

from __future__ import annotations

from dataclasses import replace

from perfmodel.derived import derived
from perfmodel.graph import LayerGraph
from perfmodel.graph.checkpoints import segments
from perfmodel.graph.execution import wants_gradient
from perfmodel.parallelism.base import Exchange, StageGraph
from perfmodel.records import Phase


@derived
def with_repeated_exchanges(stage: StageGraph, *, recompute: str | None) -> StageGraph:
    """Return a stage with the exchanges within layers that are computed again.

    Notes
    -----
    As operations do, only those run again whose result back-propagation reads: not the sum that yields the next
    checkpoint.
    """
    inside = [each for each in stage.exchanges if each.group == "tensor" and each.phase is Phase.FORWARD]
    if not inside:
        return replace(stage)
    again = _again(stage.graph, len(stage.graph.layers), stage.input_gradient, recompute)
    repeated: list[Exchange] = [
        replace(exchange, phase=Phase.BACKWARD) for exchange in inside if exchange.after_layer in again
    ]
    return replace(stage, exchanges=(*stage.exchanges, *repeated))


@derived
def _again(graph: LayerGraph, layer_count: int, input_gradient: bool, recompute: str | None) -> frozenset[str]:
    """Return the layers that are computed again."""
    del layer_count  # a graph may have grown since
    wanted = wants_gradient(graph.input_shapes, graph.layers, input_gradient=input_gradient)
    parts = segments(graph.layers, wanted=wanted, recompute=recompute)
    return frozenset(node.name for part in parts for node in part.again)
