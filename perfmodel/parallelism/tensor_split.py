"""The graph that one device of a group runs where the group shares each layer, and what the group exchanges."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final

from perfmodel.errors import ArgumentError
from perfmodel.graph import LayerGraph
from perfmodel.graph.execution import wants_gradient
from perfmodel.graph.node import Node
from perfmodel.layers import Add, Binary, Dense, LayerNorm, PositionalEmbedding, RMSNorm, ShardView
from perfmodel.parallelism.base import Exchange, ExchangeKind, StageGraph, in_order
from perfmodel.parallelism.tensor_roles import POINTWISE, Role, replicated_count, roles_of, shard_of
from perfmodel.records import Phase

BY_POSITION: Final = (*POINTWISE, Add, Binary, Dense, LayerNorm, RMSNorm, PositionalEmbedding)
"""Layers that treat every position of a sequence alone."""
SEQUENCE_AXES: Final = 2
LOSS_SUMS: Final = 3
"""Numbers of a row that devices exchange for a loss over scores in parts: maximum, sum of exponentials, the label's
score [1] (Shoeybi et al., arXiv:1909.08053, section 3)."""
SUM_BYTES: Final = 4
"""Size of each. [B]"""


@dataclass(slots=True)
class _Split:
    """The shard while it is being built."""

    whole: LayerGraph
    shard: LayerGraph
    tensor_size: int
    element_bytes: int
    sequence_parallel: bool
    wanted: dict[str, bool]
    roles: dict[str, Role]
    names: dict[str, str] = field(default_factory=dict)
    """Tensor of the whole network to its name in the shard, as its layer leaves it."""
    scattered: set[str] = field(default_factory=set)
    """Tensors of the shard that hold some of the positions."""
    summed: set[str] = field(default_factory=set)
    """Gathered tensors whose gradient is a sum over devices."""
    read: set[str] = field(default_factory=set)
    """Tensors that a shared product reads."""
    exchanges: list[Exchange] = field(default_factory=list)
    region: dict[str, Any] = field(default_factory=dict)
    """The region of layers that run again in which the layer lies that is being added."""

    def exchange(self, kind: ExchangeKind, phase: Phase, layer: str, tensor: str, *, hidden: bool = False) -> None:
        """Note an exchange of a tensor of the whole network."""
        size = self.element_bytes * math.prod(self.whole.shape(tensor))
        self.exchanges.append(
            Exchange(kind=kind, group="tensor", phase=phase, after_layer=layer, bytes_per_sample=size, hidden=hidden)
        )

    def has_part(self, node: Node) -> bool:
        """Tell whether a layer reads a tensor of which this device has some of the positions only."""
        return any(self.names.get(each, each) in self.scattered for each in node.input_names)

    def gathered(self, tensor: str, *, summed: bool) -> str:
        """Return the whole of a tensor; ``summed`` where its readers leave only a share of its gradient."""
        name = self.names.get(tensor, tensor)
        if name not in self.scattered:
            return name
        view = f"{tensor}_gathered"
        if view not in self.shard:
            self.shard.add(view, ShardView(parts=self.tensor_size, gathered=True), inputs=name, **self.region)
            self.exchange("all_gather", Phase.FORWARD, view, tensor)
        if summed and self.wanted[tensor] and view not in self.summed:
            self.summed.add(view)
            self.exchange("reduce_scatter", Phase.BACKWARD, view, tensor)
        return view

    def part(self, tensor: str, *, after_sum: bool = False) -> str:
        """Return the positions of a tensor that are left to this device."""
        name = self.names.get(tensor, tensor)
        if name in self.scattered:
            return name
        view = f"{tensor}_scattered"
        if view not in self.shard:
            positions = self.shard.shape(name)[0]
            if positions % self.tensor_size:
                allowed = f"False, or a tensor_size that divides the {positions} positions of layer {tensor!r}"
                raise ArgumentError("sequence_parallel", True, allowed)
            self.shard.add(view, ShardView(parts=self.tensor_size, gathered=False), inputs=name, **self.region)
            if after_sum:
                self.exchange("reduce_scatter", Phase.FORWARD, view, tensor)
            if self.wanted[tensor]:
                self.exchange("all_gather", Phase.BACKWARD, view, tensor)
        self.scattered.add(view)
        return view


def tensor_split(
    graph: LayerGraph, *, tensor_size: int, element_bytes: int, sequence_parallel: bool = False
) -> StageGraph:
    """Return what one device of a group runs where the group shares each layer.

    Parameters
    ----------
    graph : LayerGraph
        The network. [-]
    tensor_size : int
        Devices of the group. [1]
    element_bytes : int
        Size of an element of what is exchanged. [B]
    sequence_parallel : bool
        Whether each device has some of the positions where layers are not shared otherwise. [-]

    Returns
    -------
    StageGraph
        The shard; parameters times devices, less what is replicated (devices - 1 times) and padding, are the network's.
        [-]

    Raises
    ------
    ArgumentError
        If the devices do not divide heads, widths or positions, or no layer can be shared.

    Notes
    -----
    A product split by outputs leaves each device a share of its input's gradient, one split by inputs a share of its
    output: both are summed over the group. With ``sequence_parallel`` each sum is a reduce-scatter, and its counterpart
    in the other phase an all-gather, of the same bytes on the wire; what was gathered for a product is not kept, but
    gathered again for the gradient of its weights, which the product of the other gradient hides.

    References
    ----------
    .. [1] Shoeybi et al., Megatron-LM, arXiv:1909.08053, section 3.
    .. [2] Korthikanti et al., arXiv:2205.05198, section 4.2.
    """
    roles = roles_of(graph, tensor_size=tensor_size)
    if not set(roles.values()) & {"column", "heads", "scores"}:
        allowed = f"1: {graph.name} has no attention, pair of products or scores of classes to share"
        raise ArgumentError("tensor_size", tensor_size, allowed)
    shard = LayerGraph(graph.name, inputs=graph.input_shapes, fixed_batch_size=graph.fixed_batch_size)
    split = _Split(
        whole=graph,
        shard=shard,
        tensor_size=tensor_size,
        element_bytes=element_bytes,
        sequence_parallel=sequence_parallel,
        wanted=wants_gradient(graph.input_shapes, graph.layers, input_gradient=False),
        roles=roles,
    )
    for node in graph.layers:
        _add(split, node)
    if sequence_parallel and not split.scattered:
        raise ArgumentError("sequence_parallel", True, f"False: {graph.name} has no sequence between shared layers")
    replicated = {node.name: replicated_count(node, roles.get(node.name)) for node in graph.layers}
    replicated = {name: count for name, count in replicated.items() if count}
    if sequence_parallel:
        split.exchanges += _replicated_gradients(split, replicated)
    padded = (tensor_size * shard.parameter_count - graph.parameter_count) - (tensor_size - 1) * sum(
        replicated.values()
    )
    whole_products = [node for node in graph.layers if node.name not in roles and _has_products(node)]
    return StageGraph(
        graph=shard,
        exchanges=in_order(shard, split.exchanges),
        replicated=replicated,
        padding=padded,
        replicated_layers=tuple(node.name for node in whole_products if node.name not in split.scattered),
    )


def _has_products(node: Node) -> bool:
    operations = node.layer.forward_operations(node.input_shapes, batch_size=1)
    return any(operation.product_flop_count for operation in operations)


def _add(split: _Split, node: Node) -> None:
    """Add the shard of a layer, with what is exchanged before and after it."""
    role = split.roles.get(node.name)
    name = node.name
    usage = node.usage
    split.region = {"recomputed_in": usage.recomputed_in, "reruns_all": usage.reruns_all}
    layer = shard_of(node, role, tensor_size=split.tensor_size)
    shared_input = role in ("column", "heads", "scores")
    if role is None and isinstance(node.layer, BY_POSITION) and split.has_part(node):
        reads = [split.part(each) for each in node.input_names]
        split.scattered.add(name)
    else:
        reads = [split.gathered(each, summed=shared_input) for each in node.input_names]
    split.shard.add(name, layer, inputs=reads, **node.usage.options)
    split.names[name] = name
    if shared_input:
        for tensor, read in zip(node.input_names, reads, strict=True):
            _exchange_input(split, name, tensor, read)
    if role in ("row", "heads", "table"):
        if split.sequence_parallel and len(node.output_shape) == SEQUENCE_AXES:
            split.names[name] = split.part(name, after_sum=True)
        else:
            split.exchange("all_reduce", Phase.FORWARD, name, name)
    if role == "loss":
        size = LOSS_SUMS * SUM_BYTES * math.prod(node.output_shape)
        split.exchanges.append(
            Exchange(kind="all_reduce", group="tensor", phase=Phase.FORWARD, after_layer=name, bytes_per_sample=size)
        )


def _exchange_input(split: _Split, name: str, tensor: str, read: str) -> None:
    """Note what becomes of the gradient of what shared products read, and of a copy that was gathered.

    Products that read the same add up their shares on the device first.
    """
    if tensor in split.read:
        return
    split.read.add(tensor)
    if read != split.names.get(tensor, tensor):
        split.exchange("all_gather", Phase.BACKWARD, name, tensor, hidden=True)
    elif split.wanted[tensor] or tensor in split.whole.input_shapes:
        split.exchange("all_reduce", Phase.BACKWARD, name, tensor)


def _replicated_gradients(split: _Split, replicated: dict[str, int]) -> list[Exchange]:
    """Return the sums of gradients of parameters that each device used on some of the positions only."""
    return [
        Exchange(
            kind="all_reduce",
            group="tensor",
            phase=Phase.UPDATE,
            after_layer=name,
            fixed_bytes=split.element_bytes * count,
        )
        for name, count in replicated.items()
        if name in split.scattered or f"{name}_scattered" in split.scattered
    ]
