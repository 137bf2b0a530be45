"""Data-parallel workers that share the optimizer's state, gradients or parameters: what they exchange."""

from __future__ import annotations

from typing import Final

from perfmodel.derived import derived
from perfmodel.graph import LayerGraph
from perfmodel.parallelism.base import Exchange, ExchangeKind, in_order
from perfmodel.records import Phase

KINDS: Final[tuple[tuple[tuple[ExchangeKind, Phase], ...], ...]] = (
    (("all_reduce", Phase.BACKWARD),),
    (("reduce_scatter", Phase.BACKWARD), ("all_gather", Phase.UPDATE)),
    (("reduce_scatter", Phase.BACKWARD), ("all_gather", Phase.UPDATE)),
    (("all_gather", Phase.FORWARD), ("all_gather", Phase.BACKWARD), ("reduce_scatter", Phase.BACKWARD)),
)
"""Exchanges of each layer's parameters and gradients, by what is shared (stage 0 to 3)."""


def gradient_exchanges(
    graph: LayerGraph, *, data_size: int, shard_stage: int, element_bytes: int
) -> tuple[Exchange, ...]:
    """Return what data-parallel workers exchange of a stage: gradients, and parameters where these are shared.

    Parameters
    ----------
    graph : LayerGraph
        The stage. [-]
    data_size : int
        Workers with the same layers and other samples. [1]
    shard_stage : int
        What they share: the optimizer's state (1), gradients too (2), parameters too (3), or nothing (0). [1]
    element_bytes : int
        Size of an element of parameters and gradients. [B]

    Returns
    -------
    tuple of Exchange
        One of each kind for each layer with trained parameters; none for one worker. [-]

    Notes
    -----
    In elements per parameter that a ring moves: 2 with an all-reduce (stage 0), with a reduce-scatter of gradients and
    an all-gather of updated parameters (stages 1 and 2); 3 with stage 3, which gathers parameters in both phases.

    References
    ----------
    .. [1] Rajbhandari, Rasley, Ruwase, He, ZeRO, SC 2020, arXiv:1910.02054, section 7.
    """
    if data_size == 1:
        return ()
    return _exchanges(graph, len(graph.layers), shard_stage, element_bytes)


@derived
def _exchanges(graph: LayerGraph, layer_count: int, shard_stage: int, element_bytes: int) -> tuple[Exchange, ...]:
    del layer_count  # a graph may have grown since
    counts = graph.trained_parameter_counts

    def exchange(kind: ExchangeKind, phase: Phase, name: str) -> Exchange:
        size = element_bytes * counts[name]
        hides = phase is not Phase.UPDATE  # what a layer computes next does not read it
        return Exchange(kind=kind, group="data", phase=phase, after_layer=name, fixed_bytes=size, hidden=hides)

    found = (exchange(kind, phase, name) for name in counts for kind, phase in KINDS[shard_stage])
    return in_order(graph, found)
