"""Layers shared by a group, cut into stages, copied for data-parallel workers: one after the other."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace
from typing import Any, Final
from weakref import WeakKeyDictionary

from perfmodel.derived import derived
from perfmodel.errors import ArgumentError
from perfmodel.graph import LayerGraph
from perfmodel.layers.checks import is_open_size
from perfmodel.parallelism.base import Exchange, Layout, Request, StageGraph, in_order
from perfmodel.parallelism.sharded import gradient_exchanges
from perfmodel.parallelism.stages import Cut, chosen_cuts, stages_between
from perfmodel.parallelism.tensor_split import tensor_split
from perfmodel.records import Phase

MOST_PLACED: Final = 1024
"""Ways to place a graph that are kept; the oldest goes first. [1]"""

_PLACED: WeakKeyDictionary[LayerGraph, dict[Hashable, tuple[StageGraph, ...]]] = WeakKeyDictionary()


def combined(request: Request) -> tuple[StageGraph, ...]:
    """Return the stages of a network whose layers groups of devices share.

    Parameters
    ----------
    request : Request
        The network and how many devices do what. [-]

    Returns
    -------
    tuple of StageGraph
        In order; stage i on device i modulo the pipeline's devices. [-]

    Raises
    ------
    ArgumentError
        If a group cannot share the layers, or there are more stages than places to cut.
    """
    shard, cuts = _cut(request)
    layout, element_bytes = request.layout, request.element_bytes
    # workers decide only whether there are others to exchange with
    data_size = min(layout.data_size, 2)
    key = (shard.graph.fingerprint, layout.tensor_size, layout.sequence_parallel, layout.stages, cuts, data_size,
           layout.shard_stage, element_bytes)  # fmt: skip
    kept = _PLACED.setdefault(request.graph, {})
    if key not in kept:
        while len(kept) >= MOST_PLACED:
            del kept[next(iter(kept))]
        found = _placed(shard, cuts, layout=layout, data_size=data_size, element_bytes=element_bytes)
        if any(stage.graph is request.graph for stage in found):  # it would keep itself alive
            return found
        kept[key] = found
    return kept[key]


def cut_places(request: Request) -> tuple[int, ...]:
    """Return the layers before each cut of a network that is placed as ``combined`` does."""
    return tuple(cut.place for cut in _cut(request)[1])


def _cut(request: Request) -> tuple[StageGraph, tuple[Cut, ...]]:
    """Return what one device of a group has of the network, and where stages begin."""
    layout, whole = request.layout, request.graph
    if layout.sequence_parallel and layout.tensor_size == 1:
        allowed = "False where tensor_size=1: there is nobody to share positions with"
        raise ArgumentError("sequence_parallel", True, allowed)
    shard = StageGraph(graph=whole)
    if layout.tensor_size > 1:
        shard = _shard(
            whole,
            whole.fingerprint,
            tensor_size=layout.tensor_size,
            element_bytes=request.element_bytes,
            sequence_parallel=layout.sequence_parallel,
        )
    count = layout.stages * layout.interleave
    if count == 1:
        return shard, ()
    return shard, chosen_cuts(
        shard.graph,
        stage_count=count,
        element_bytes=request.element_bytes,
        layer_s=request.layer_s,
        send_s=request.send_s,
        argument="stages" if layout.interleave == 1 else "interleave",
    )


@derived
def _shard(whole: LayerGraph, fingerprint: str, **how: Any) -> StageGraph:
    del fingerprint  # a graph may have grown since
    return tensor_split(whole, **how)


def _placed(
    shard: StageGraph, cuts: tuple[Cut, ...], *, layout: Layout, data_size: int, element_bytes: int
) -> tuple[StageGraph, ...]:
    stages: tuple[StageGraph, ...] = (shard,)
    if cuts:
        stages = stages_between(shard.graph, cuts, element_bytes=element_bytes)
        stages = _with_copies(shard.graph, stages, element_bytes=element_bytes)
        stages = tuple(_of_shard(stage, shard, position=index) for index, stage in enumerate(stages))
    sizes = {"data_size": data_size, "shard_stage": layout.shard_stage, "element_bytes": element_bytes}
    placed = []
    for index, stage in enumerate(stages):
        exchanges = in_order(stage.graph, (*stage.exchanges, *gradient_exchanges(stage.graph, **sizes)))
        placed.append(replace(stage, device=index % layout.stages, exchanges=exchanges))
    return tuple(placed)


def _of_shard(stage: StageGraph, shard: StageGraph, *, position: int) -> StageGraph:
    """Return a stage with what a group exchanges in its layers."""
    names = {node.name for node in stage.graph.layers}
    own = tuple(exchange for exchange in shard.exchanges if exchange.after_layer in names)
    replicated = {name: count for name, count in shard.replicated.items() if name in names}
    return replace(
        stage,
        exchanges=(*stage.exchanges, *own),
        replicated=replicated,
        padding=0 if position else shard.padding,
        replicated_layers=tuple(name for name in shard.replicated_layers if name in names),
    )


def _with_copies(graph: LayerGraph, stages: tuple[StageGraph, ...], *, element_bytes: int) -> tuple[StageGraph, ...]:
    """Return stages that add up the gradients of parameters of which several have a copy (tied tables)."""
    extra: dict[int, list[Exchange]] = {}
    place_of = {node.name: index for index, stage in enumerate(stages) for node in stage.graph.layers}
    for index, stage in enumerate(stages):
        for name in stage.copied:
            for parameter, (owner, _) in graph.node(name).usage.shared_parameters.items():
                if place_of[owner] == index or parameter not in stage.graph.node(name).parameter_shapes:
                    continue
                shape = stage.graph.node(name).parameter_shapes[parameter]
                assert not any(map(is_open_size, shape))
                size = element_bytes * math.prod(shape)
                for where, layer in ((place_of[owner], owner), (index, name)):
                    summed = Exchange(
                        kind="all_reduce", group="pipeline", phase=Phase.UPDATE, after_layer=layer, fixed_bytes=size
                    )
                    extra.setdefault(where, []).append(summed)
    return tuple(
        replace(stage, exchanges=(*stage.exchanges, *extra.get(index, ()))) for index, stage in enumerate(stages)
    )
