"""Combine tensor groups, context groups, pipeline stages and data-parallel copies (with ZeRO), in this order."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.derived import derived, kept
from perfmodel.graph import LayerGraph
from perfmodel.layers.checks import is_open_size
from perfmodel.parallelism.base import Exchange, ExchangeKind, Layout, Request, StageGraph, in_order, kept_by_graph
from perfmodel.parallelism.context_split import context_split
from perfmodel.parallelism.stages import (
    Cut,
    chosen_cuts,
    counted_end_cuts,
    even_cuts,
    known_cuts,
    module_cuts,
    stage_between,
)
from perfmodel.parallelism.tensor_split import tensor_split
from perfmodel.parallelism.units import sharded_units
from perfmodel.records import Phase

if TYPE_CHECKING:
    from numpy.typing import NDArray


def gradient_exchanges(
    graph: LayerGraph,
    *,
    data_size: int,
    scatters: bool = False,
    gathered_in: tuple[Phase, ...] = (),
    element_bytes: int,
    gradient_bytes: int | None = None,
    whole_bytes: int | None = None,
) -> tuple[Exchange, ...]:
    """Exchanges among data-parallel workers for a stage: gradients, and parameters where these are shared.

    Notes
    -----
    Per parameter, a ring moves 2 elements with an all-reduce (stage 0), or with a reduce-scatter of gradients and an
    all-gather of parameters (stages 1 and 2); 3 with stage 3, which gathers those of blocks in both phases and those
    outside blocks once, as they stay until the backward phase needs them [3]_. Updated parameters travel in the type
    that workers hold; broadcasts by the workers that updated them [2]_ count as an all-gather.

    References
    ----------
    .. [1] Rajbhandari, Rasley, Ruwase, He, ZeRO, SC 2020, arXiv:1910.02054, section 7.
    .. [2] PyTorch, torch/distributed/optim/zero_redundancy_optimizer.py, _broadcast_params_from_rank.
    .. [3] PyTorch, torch/distributed/fsdp/_runtime_utils.py, _post_forward_reshard: the root's parameters are not
       freed after the forward phase; fully_shard(reshard_after_forward=None) leaves the root's in place likewise.
    """
    if data_size == 1:
        return ()
    sizes = [element_bytes if size is None else size for size in (gradient_bytes, whole_bytes)]
    return _exchanges(graph, len(graph.layers), scatters, gathered_in, element_bytes, *sizes)


@derived
def _exchanges(
    graph: LayerGraph,
    layer_count: int,
    scatters: bool,
    gathered_in: tuple[Phase, ...],
    element_bytes: int,
    gradient_bytes: int,
    whole_bytes: int,
) -> tuple[Exchange, ...]:
    listed = [*_sums(graph, layer_count, "reduce_scatter" if scatters else "all_reduce", gradient_bytes)]
    for phase in gathered_in:
        # a unit is gathered as one; what lies outside blocks stays gathered from the forward to the backward phase [3]
        stays = phase is Phase.BACKWARD and Phase.FORWARD in gathered_in
        units = [unit for unit in sharded_units(graph) if unit.is_block or not stays]
        by_unit = {unit.layers[0]: unit.parameter_count for unit in units}
        size = whole_bytes if phase is Phase.UPDATE else element_bytes
        listed += _exchanges_of("all_gather", phase, by_unit, size)
    return in_order(graph, listed)


@derived
def _sums(graph: LayerGraph, layer_count: int, kind: ExchangeKind, gradient_bytes: int) -> list[Exchange]:
    """List the sums of gradients among data-parallel workers, which several stages of sharing have in common."""
    del layer_count  # a graph may have grown since then
    return _exchanges_of(kind, Phase.BACKWARD, graph.trained_parameter_counts, gradient_bytes)


def _exchanges_of(kind: ExchangeKind, phase: Phase, counts: Mapping[str, int], size: int) -> list[Exchange]:
    return [Exchange(kind, "data", phase, name, fixed_bytes=size * count) for name, count in counts.items()]


COUNTED_CUTS: Final[Mapping[str, Callable[..., tuple[Cut, ...]]]] = {
    "even_blocks": even_cuts, "even_modules": module_cuts, "counted_ends": counted_end_cuts,
}  # fmt: skip
"""Value of ``stage_cut`` -> the cuts that deal out parts of the network by their number."""

MOST_PLACED: Final = 1024
"""Placements cached per graph; the oldest is dropped first. [1]"""


def combined(request: Request) -> tuple[StageGraph, ...]:
    """Stages of a network whose layers are shared by groups of devices."""
    shard = _shard(request)
    places = request.cuts or cut_places(request)
    at = {cut.place: cut for cut in known_cuts(shard.graph)} if len(places) else {}
    cuts = tuple([at[int(place)] for place in places])
    layout = request.layout
    sizes = {
        **shared_in(layout),
        "element_bytes": request.element_bytes,
        "gradient_bytes": request.gradient_bytes,
        "whole_bytes": request.whole_bytes,
    }
    of_group = (layout.tensor_size, layout.sequence_parallel, layout.context_size, layout.context_method)
    key = (*of_group, layout.stages, cuts, request.habits, *sizes.values())
    make = partial(_placed, shard, cuts, layout=layout, sizes=sizes)
    stages: tuple[StageGraph, ...] = kept(request.graph.kept("stages"), key, make, most=MOST_PLACED)
    return stages


def cut_places(request: Request) -> NDArray[np.intp]:
    """First layer behind each cut made by ``combined``, in rows where layers have several times."""
    layout, graph = request.layout, _shard(request).graph
    count = layout.stages * layout.interleave
    if count == 1:
        return np.empty(0, dtype=np.intp)
    if layout.stage_cut in COUNTED_CUTS:
        return np.array([cut.place for cut in COUNTED_CUTS[layout.stage_cut](graph, stage_count=count)])
    return chosen_cuts(
        graph,
        stage_count=count,
        element_bytes=request.element_bytes,
        layer_s=request.layer_s,
        send_s=request.send_s,
        interleave=layout.interleave,
        known=request.known,
    )


def _shard(request: Request) -> StageGraph:
    """Part of the network on one device of a group."""
    layout, whole = request.layout, request.graph
    how: dict[str, Any]
    shard = StageGraph(graph=whole)
    if layout.tensor_size > 1:
        how = {
            "tensor_size": layout.tensor_size,
            "element_bytes": request.element_bytes,
            "sequence_parallel": layout.sequence_parallel,
            "habits": request.habits,
        }
        shard = tensor_shard(whole, **how)
    if layout.context_size > 1:
        method, size = layout.context_method, request.element_bytes
        key = (layout.tensor_size, layout.sequence_parallel, layout.context_size, method, size, request.habits)
        how = {"element_bytes": size, "copies_keys": request.habits.copies_keys}
        make = partial(context_split, shard, context_size=layout.context_size, context_method=method, **how)
        shard = kept(whole.kept("context"), key, make, most=MOST_PLACED)
    return shard


def tensor_shard(graph: LayerGraph, **how: Any) -> StageGraph:
    """Split a network among the devices of a group as ``tensor_split`` does, once."""
    shard: StageGraph = kept(
        graph.kept("shards"), tuple(how.items()), partial(tensor_split, graph, **how), most=MOST_PLACED
    )
    return shard


def _placed(
    shard: StageGraph, cuts: tuple[Cut, ...], *, layout: Layout, sizes: Mapping[str, Any]
) -> tuple[StageGraph, ...]:
    stages = [shard]
    if cuts:
        ends = pairwise([None, *cuts, None])
        stages = [_between(shard, first, last, element_bytes=sizes["element_bytes"]) for first, last in ends]
    copies = _copies(shard.graph, stages, element_bytes=sizes["gradient_bytes"] or sizes["element_bytes"])
    return tuple(
        _on_device(stage, index % layout.stages, copies.get(index, ()), **sizes) for index, stage in enumerate(stages)
    )


def shared_in(layout: Layout) -> dict[str, Any]:
    """Say what decides how workers exchange parameters and gradients; layouts of equal values exchange alike."""
    return {
        "data_size": min(layout.data_size, 2),  # it only decides whether there are others to exchange with
        "scatters": layout.shard_stage > 0,
        "gathered_in": layout.gathered_in,
    }


@kept_by_graph
def shared_as(stage: StageGraph, **sizes: Any) -> StageGraph:
    """Change what data-parallel workers share in a stage."""
    within = tuple(exchange for exchange in stage.exchanges if exchange.group != "data")
    return replace(stage, exchanges=(*within, *gradient_exchanges(stage.graph, **sizes)))


@kept_by_graph
def _on_device(stage: StageGraph, device: int, copies: tuple[Exchange, ...], **sizes: Any) -> StageGraph:
    """Put a stage on a device, with sums of tied copies and exchanges among data-parallel workers."""
    exchanges = (*stage.exchanges, *copies, *gradient_exchanges(stage.graph, **sizes))
    return replace(stage, device=device, exchanges=in_order(stage.graph, exchanges))


def _between(shard: StageGraph, first: Cut | None, last: Cut | None, *, element_bytes: int) -> StageGraph:
    """Add the exchanges within a group to a stage, once per cut."""
    make = partial(_made_between, shard, first, last, element_bytes=element_bytes)
    key = (*[None if cut is None else cut.place for cut in (first, last)], element_bytes)
    stage: StageGraph = kept(shard.graph.kept("between"), key, make, most=MOST_PLACED)
    return stage


def _made_between(shard: StageGraph, first: Cut | None, last: Cut | None, *, element_bytes: int) -> StageGraph:
    stage = stage_between(shard.graph, first, last, element_bytes=element_bytes)
    names = {node.name for node in stage.graph.layers}
    exchanges = tuple(exchange for exchange in shard.exchanges if exchange.after_layer in names)
    replicated = {name: count for name, count in shard.replicated.items() if name in names}
    return replace(
        stage,
        exchanges=(*stage.exchanges, *exchanges),
        replicated=replicated,
        padding=0 if first is not None else shard.padding,
        replicated_layers=tuple(name for name in shard.replicated_layers if name in names),
    )


def _copies(graph: LayerGraph, stages: Sequence[StageGraph], *, element_bytes: int) -> dict[int, tuple[Exchange, ...]]:
    """Return the sums of gradients of parameters that several stages hold (tied tables)."""
    sums: dict[int, tuple[Exchange, ...]] = {}
    for index, stage in enumerate(stages):
        for name in stage.copied:
            for parameter, (owner, _) in graph.node(name).usage.shared_parameters.items():
                owner_index = next(place for place, other in enumerate(stages) if owner in other.graph)
                if owner_index == index or parameter not in stage.graph.node(name).parameter_shapes:
                    continue
                shape = stage.graph.node(name).parameter_shapes[parameter]
                assert not any(map(is_open_size, shape))
                size = element_bytes * math.prod(shape)
                for where, layer in ((owner_index, owner), (index, name)):
                    summed = Exchange("all_reduce", "pipeline", Phase.UPDATE, layer, fixed_bytes=size)
                    sums[where] = (*sums.get(where, ()), summed)
    return sums
