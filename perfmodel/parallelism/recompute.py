"""Exchanges that run a second time because the layers before them do."""

from __future__ import annotations

from dataclasses import replace

from perfmodel.graph.checkpoints import segments
from perfmodel.graph.execution import wants_gradient
from perfmodel.parallelism.base import Exchange, StageGraph
from perfmodel.records import Phase


def with_repeated_exchanges(stage: StageGraph, *, recompute: str | None) -> StageGraph:
    """Return a stage with the exchanges within layers that are computed again.

    Parameters
    ----------
    stage : StageGraph
        The stage. [-]
    recompute : str or None
        Where checkpoints lie; None where the graph marks them, if anywhere. [-]

    Returns
    -------
    StageGraph
        With every tensor group's exchange of the forward phase that runs again, in the backward phase too. [-]

    Notes
    -----
    As operations do, only those run again whose result back-propagation reads: not the sum that yields the next
    checkpoint.
    """
    graph = stage.graph
    wanted = wants_gradient(graph.input_shapes, graph.layers, input_gradient=stage.input_gradient)
    again = {node.name for part in segments(graph.layers, wanted=wanted, recompute=recompute) for node in part.again}
    repeated: list[Exchange] = [
        replace(exchange, phase=Phase.BACKWARD)
        for exchange in stage.exchanges
        if exchange.group == "tensor" and exchange.phase is Phase.FORWARD and exchange.after_layer in again
    ]
    return replace(stage, exchanges=(*stage.exchanges, *repeated))
