"""Tensor groups by Megatron-LM's rules: the graph that one device runs, and the group's exchanges."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast

from perfmodel import layers as nn
from perfmodel.errors import ArgumentError
from perfmodel.framework.narrow import takes_narrow
from perfmodel.graph import LayerGraph
from perfmodel.graph.execution import wants_gradient
from perfmodel.graph.node import Node
from perfmodel.parallelism.base import MEGATRON, Beside, Exchange, ExchangeKind, StageGraph, TensorHabits, in_order
from perfmodel.records import Contraction, Phase
from perfmodel.records import Role as Product

Role = Literal["column", "row", "between", "heads", "table", "scores", "loss"]
POINTWISE: Final = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Dropout)
"""Layers that treat every element alike."""
SEQUENCE_AXES: Final = 2
IN_HEADS: Final = (*POINTWISE, nn.Slice, nn.Rearrange, nn.Reshape, nn.Transpose, nn.RotaryEmbedding)
"""Layers that treat every head alike, between projections and attention."""
WITH_PROJECTIONS: Final = (nn.MultiHeadAttention, nn.LatentAttention, nn.MixtureOfExperts)
"""Layers with products of their own, which are split by heads, or by the units of each expert."""
BY_CHANNEL: Final = (
    *POINTWISE,
    nn.BatchNorm,
    nn.MaxPool2d,
    nn.AveragePool2d,
    nn.AdaptiveAveragePool,
    nn.AdaptiveMaxPool,
    nn.Flatten,
    nn.Unary,
    nn.Add,
    nn.Binary,
)
"""Layers that treat every channel alike, allowed between a product split by outputs and one split by inputs."""


def _outputs(layer: nn.Layer) -> int | None:
    """Output channels of a product; None for other layers and for products of separate groups."""
    if isinstance(layer, nn.Dense):
        return layer.units
    if isinstance(layer, nn.Convolution2d) and layer.groups == 1:
        return layer.out_channels
    return None


def _readers(graph: LayerGraph) -> dict[str, list[Node]]:
    readers: dict[str, list[Node]] = {}
    for node in graph.layers:
        for name in node.input_names:
            readers.setdefault(name, []).append(node)
    return readers


def roles_of(graph: LayerGraph, *, tensor_size: int) -> dict[str, Role]:
    """Assign roles to the layers that a group shares; layers without a role are whole on every device.

    Of two consecutive products with only channel-wise layers between them, the first is split by outputs (``column``)
    and the second by inputs (``row``). The same holds for products joined by one layer (queries, keys and values; a
    gate and its units) and the product after it. Attention with its own projections is split by ``heads``, and so is
    each expert of a mixture by its units; a word
    ``table`` by rows, and the product before a cross-entropy by classes (``scores``). A table stays whole if it has
    fewer rows than features, or if it also serves as weights that are not split.
    """
    readers = _readers(graph)
    order = {node.name: place for place, node in enumerate(graph.layers)}
    shares = {of[0] for node in graph.layers for of in node.usage.shared_parameters.values()}
    roles: dict[str, Role] = {}
    for node in graph.layers:
        if isinstance(node.layer, nn.ScaledDotProductAttention | nn.Binary):
            roles |= _joined(graph, node, readers, tensor_size=tensor_size)
    for node in graph.layers:
        if node.name in roles:
            continue
        if isinstance(node.layer, WITH_PROJECTIONS):
            _check_parts(node, tensor_size)
            roles[node.name] = "heads"
        elif _outputs(node.layer) is not None and not node.usage.shared_parameters and node.name not in shares:
            chain = _chain(node, readers, order)
            if chain is not None and not chain[-1].usage.shared_parameters and chain[-1].name not in shares:
                _check_width(node, tensor_size)
                roles[node.name], roles[chain[-1].name] = "column", "row"
                roles |= dict.fromkeys([node.name for node in chain[:-1]], "between")
    roles |= _words(graph, roles, readers)
    return roles


def _chain(node: Node, readers: Mapping[str, list[Node]], order: Mapping[str, int]) -> list[Node] | None:
    """Layers from a product to the next one, inclusive; None if one mixes channels, or others read or are read."""
    chain, inside = [], {node.name}
    waiting = {reader.name: reader for reader in readers.get(node.name, ())}
    while waiting:
        current = waiting.pop(min(waiting, key=order.__getitem__))
        chain.append(current)
        if not inside.issuperset(current.input_names):
            return None
        if _outputs(current.layer) is not None:
            return None if waiting else chain
        if not isinstance(current.layer, BY_CHANNEL):
            return None
        inside.add(current.name)
        waiting |= {reader.name: reader for reader in readers.get(current.name, ())}
    return None


def _is_cut(readers: list[Node]) -> bool:
    """Tell whether a tensor is only cut into parts, like queries, keys and values of one product."""
    return all(isinstance(reader.layer, nn.Slice) and reader.layer.is_joined for reader in readers)


def _joined(graph: LayerGraph, node: Node, readers: Mapping[str, list[Node]], *, tensor_size: int) -> dict[str, Role]:
    """Roles around a layer that joins products: queries, keys and values, or a gate and its units.

    None if its inputs are not all products, or no product follows.
    """
    before: list[Node] = []
    products: list[Node] = []
    for name in node.input_names:
        while name not in graph.input_shapes and (len(readers[name]) == 1 or _is_cut(readers[name])):
            node_before = graph.node(name)
            if isinstance(node_before.layer, nn.Dense):
                products.append(node_before)
                break
            if not isinstance(node_before.layer, IN_HEADS):
                return {}
            before.append(node_before)
            name = node_before.input_names[0]
        else:
            return {}
    after = []
    last = node
    while len(readers.get(last.name, ())) == 1:
        (last,) = readers[last.name]
        if isinstance(last.layer, nn.Dense) or not isinstance(last.layer, IN_HEADS):
            break
        after.append(last)
    alone = not any(product.usage.shared_parameters for product in (*products, last))
    parts = {between.name for between in before}
    alone &= all(
        len(readers_of := readers[product.name]) == 1 or parts.issuperset(reader.name for reader in readers_of)
        for product in products
    )
    if not isinstance(last.layer, nn.Dense) or not alone or len({product.input_names for product in products}) != 1:
        return {}
    for between in (*before, *after):
        if (
            isinstance(between.layer, nn.Reshape)
            and (heads := between.layer.shape[_heads_axis(between.layer)]) % tensor_size
        ):
            allowed = f"a divisor of the {heads} heads of layer {between.name!r}"
            raise ArgumentError("tensor_size", tensor_size, allowed)
    for product in products:
        _check_width(product, tensor_size)
    names: dict[str, Role] = dict.fromkeys([product.name for product in products], "column")
    return names | dict.fromkeys([between.name for between in (*before, node, *after)], "between") | {last.name: "row"}


def _words(graph: LayerGraph, roles: Mapping[str, Role], readers: Mapping[str, list[Node]]) -> dict[str, Role]:
    """Roles of word tables, of products that score words or classes, and of their losses."""
    added: dict[str, Role] = {}
    scores: dict[str, Node] = {}
    for node in graph.layers:
        if isinstance(node.layer, nn.Dense) and node.name not in roles and len(readers.get(node.name, ())) == 1:
            (loss,) = readers[node.name]
            layer = loss.layer
            if isinstance(layer, nn.CrossEntropy) and layer.over == "logits" and len(loss.input_shapes) == 1:
                scores[node.name] = loss
    users: dict[str, list[str]] = {}
    for node in graph.layers:
        for of in node.usage.shared_parameters.values():
            users.setdefault(of[0], []).append(node.name)
    tables = {
        node.name
        for node in graph.layers
        if isinstance(node.layer, nn.Embedding)
        and node.layer.vocabulary >= node.layer.features
        and all(user in scores for user in users.get(node.name, ()))
    }
    added |= dict.fromkeys(tables, "table")
    for name, loss in scores.items():
        owners = {of[0] for of in graph.node(name).usage.shared_parameters.values()}
        if owners <= tables and name not in users:
            added |= {name: "scores", loss.name: "loss"}
    return added


def _check_parts(node: Node, tensor_size: int) -> None:
    layer = node.layer
    counts: dict[str, Any] = {}
    if isinstance(layer, nn.MixtureOfExperts):
        counts["units of each expert"] = layer.intermediate
    else:
        assert isinstance(layer, nn.MultiHeadAttention | nn.LatentAttention)
        counts |= {"heads": layer.heads, "heads of keys": getattr(layer, "key_heads", None) or layer.heads}
    for noun, count in counts.items():
        if count % tensor_size:
            raise ArgumentError("tensor_size", tensor_size, f"a divisor of the {count} {noun} of layer {node.name!r}")


def _check_width(node: Node, tensor_size: int) -> None:
    count = cast("int", _outputs(node.layer))
    if count % tensor_size:
        raise ArgumentError("tensor_size", tensor_size, f"a divisor of the {count} outputs of layer {node.name!r}")


def _between(node: Node, tensor_size: int) -> nn.Layer:
    """Copy a layer between shared products; a layer that states the number of heads gets its share of them."""
    layer = node.layer
    if not isinstance(layer, nn.Reshape | nn.Slice | nn.Rearrange):
        return layer
    shape, axis = list(layer.shape), _heads_axis(layer)
    shape[axis] //= tensor_size
    return replace(layer, shape=tuple(shape))


def _heads_axis(layer: nn.Reshape | nn.Slice | nn.Rearrange) -> int:
    """Axis of the heads: the first of (heads, positions, features), else the one before the features, or their own."""
    if not isinstance(layer, nn.Reshape) and len(layer.shape) > SEQUENCE_AXES:
        return 0
    return len(layer.shape) - (2 if len(layer.shape) > SEQUENCE_AXES else 1)


def _column(node: Node, tensor_size: int) -> nn.Layer:
    """Copy a product with its share of the outputs, the last device's perhaps filled up."""
    return _share_of(node.layer, str(node.layer.width_option), tensor_size)


def _share_of(layer: nn.Layer, option: str, tensor_size: int) -> nn.Layer:
    options: dict[str, Any] = {option: -(-getattr(layer, option) // tensor_size)}
    return replace(layer, **options)


def _heads(node: Node, tensor_size: int) -> nn.Layer:
    layer = node.layer
    if isinstance(layer, nn.LatentAttention | nn.MixtureOfExperts):
        return layer.divided(tensor_size)
    assert isinstance(layer, nn.MultiHeadAttention)
    size = layer.head_size or node.input_shapes[0][-1] // layer.heads
    keys = None if layer.key_heads is None else layer.key_heads // tensor_size
    return replace(layer, heads=layer.heads // tensor_size, key_heads=keys, head_size=size)


def _loss(node: Node, tensor_size: int) -> nn.Layer:
    assert isinstance(node.layer, nn.CrossEntropy)
    return replace(node.layer, parts=tensor_size)


_SHARDS: Final[Mapping[str, Callable[[Node, int], nn.Layer]]] = {
    "column": _column,
    "between": _between,
    "heads": _heads,
    "table": lambda node, tensor_size: _share_of(node.layer, "vocabulary", tensor_size),
    "scores": _column,
    "loss": _loss,
}
_WHOLE: Final[Mapping[str, tuple[str, ...]]] = {
    "row": ("bias",),
    "heads": (
        *("output_bias", "router_weight", "query_down_weight", "query_norm_gamma"),
        *("key_value_down_weight", "key_value_norm_gamma"),
    ),
}
"""Parameters that are whole on every device, by role: those added after the sum over devices, or before the parts."""


def replicated_count(node: Node, role: Role | None) -> int:
    """Parameters of a layer that are whole on every device of a group. [1]"""
    if role is None:
        return node.parameter_count
    names = _WHOLE.get(role, ())
    sizes = node.parameter_shapes
    return sum(math.prod(sizes[name]) for name in names if name in sizes)


READS_WHOLE: Final[frozenset[Role]] = frozenset({"column", "heads", "scores"})
"""Roles of products that need all of their input on every device and make a part of its gradient's sum there."""
CUT: Final[frozenset[Role]] = frozenset({"column"})
"""Those that software cuts to run beside the gathering of their input; scores, and layers of several products, wait."""
BY_POSITION: Final = (*POINTWISE, nn.Add, nn.Binary, nn.Dense, nn.LayerNorm, nn.RMSNorm, nn.PositionalEmbedding)
"""Layers that treat every position of a sequence alike."""
LOSS_SUMS: Final = 3
"""Numbers per row that devices exchange for a loss over divided scores: maximum, sum of exponentials, the label's
score [1] (Shoeybi et al., arXiv:1909.08053, section 3)."""
SUM_BYTES: Final = 4
"""Size of each of these numbers. [B]"""


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
    readers: Mapping[str, list[Node]]
    habits: TensorHabits
    names: dict[str, str] = field(default_factory=dict)
    """Tensor of the whole network -> its name in the shard, as produced by its layer."""
    scattered: set[str] = field(default_factory=set)
    """Tensors of the shard that hold only some positions."""
    summed: set[str] = field(default_factory=set)
    """Gathered tensors whose gradient is a sum over devices."""
    read: set[str] = field(default_factory=set)
    """Tensors read by a shared product."""
    exchanges: list[Exchange] = field(default_factory=list)
    region: dict[str, Any] = field(default_factory=dict)
    """The checkpointed region of the layer being added."""

    def exchange(
        self,
        kind: ExchangeKind,
        phase: Phase,
        layer: str,
        tensor: str,
        *,
        beside: Beside | None = None,
        parts: Beside | None = None,
    ) -> None:
        """Add an exchange of a tensor of the whole network, beside which whole products may run, or parts of some."""
        element_bytes = self.element_bytes
        if parts is not None and parts.layers:
            casts_first = kind == "all_gather" and all(map(self.takes_narrow, parts.layers))
            if self.habits.operand_bytes is not None and casts_first:
                element_bytes = self.habits.operand_bytes
            if self.habits.cuts_products:
                kind, beside = "pass_on", parts
        size = element_bytes * math.prod(self.whole.shape(tensor))
        self.exchanges.append(Exchange(kind, "tensor", phase, layer, size, beside=beside))

    def takes_narrow(self, product: str) -> bool:
        """Whether this device's part of a product, by outputs unless it is in the shard by now, has cast operands."""
        if product in self.shard:
            node = self.shard.node(product)
            layer = node.layer
        else:
            node = self.whole.node(product)
            layer = _column(node, self.tensor_size)
        operations = layer.forward_operations(node.input_shapes, batch_size=1)
        return all(isinstance(each, Contraction) and takes_narrow(each) for each in operations)

    def products_reading(self, tensor: str, roles: frozenset[Role] = READS_WHOLE) -> tuple[str, ...]:
        """Shared products that read a tensor; software runs them as one, so that their gradients are summed once."""
        return tuple(node.name for node in self.readers.get(tensor, ()) if self.roles.get(node.name) in roles)

    def products_making(self, tensor: str, product: Product) -> Beside:
        """Products of a kind of the layer split by inputs that makes a tensor; none if another layer does."""
        return Beside(product, (tensor,) if self.roles.get(tensor) == "row" else ())

    def has_part(self, node: Node) -> bool:
        """Whether a layer reads a tensor of which this device holds only some positions."""
        return any(self.names.get(name, name) in self.scattered for name in node.input_names)

    def gathered(self, tensor: str, *, summed: bool) -> str:
        """Gather a tensor; with ``summed``, its readers each yield only a share of its gradient."""
        name = self.names.get(tensor, tensor)
        if name not in self.scattered:
            return name
        view = f"{tensor}_gathered"
        if view not in self.shard:
            self.shard.add(view, nn.ShardView(parts=self.tensor_size, gathered=True), inputs=name, **self.region)
            parts = Beside(Product.OUTPUT, self.products_reading(tensor, CUT))
            self.exchange("all_gather", Phase.FORWARD, view, tensor, parts=parts)
        if summed and self.wanted[tensor] and view not in self.summed:
            self.summed.add(view)
            beside = Beside(Product.WEIGHT_GRADIENT, self.products_reading(tensor))
            makes_it_alone = len(beside.layers) == 1 and not self.habits.sums_beside_weights
            parts = Beside(Product.INPUT_GRADIENT, self.products_reading(tensor, CUT) if makes_it_alone else ())
            self.exchange("reduce_scatter", Phase.BACKWARD, view, tensor, beside=beside, parts=parts)
        return view

    def part(self, tensor: str, *, after_sum: bool = False) -> str:
        """Keep this device's positions of a tensor."""
        name = self.names.get(tensor, tensor)
        if name in self.scattered:
            return name
        view = f"{tensor}_scattered"
        if view not in self.shard:
            positions = self.shard.shape(name)[0]
            if positions % self.tensor_size:
                allowed = f"False unless tensor_size divides the {positions} positions of layer {tensor!r}"
                raise ArgumentError("sequence_parallel", True, allowed)
            self.shard.add(view, nn.ShardView(parts=self.tensor_size, gathered=False), inputs=name, **self.region)
            if after_sum:
                parts = self.products_making(tensor, Product.OUTPUT)
                self.exchange("reduce_scatter", Phase.FORWARD, view, tensor, parts=parts)
            if self.wanted[tensor]:
                parts = self.products_making(tensor, Product.INPUT_GRADIENT)
                self.exchange("all_gather", Phase.BACKWARD, view, tensor, parts=parts)
        self.scattered.add(view)
        return view


def tensor_split(
    graph: LayerGraph,
    *,
    tensor_size: int,
    element_bytes: int,
    sequence_parallel: bool = False,
    habits: TensorHabits = MEGATRON,
) -> StageGraph:
    """Make the graph that one device of a group runs, and its exchanges.

    Notes
    -----
    After a product split by outputs, each device has a partial sum of the input gradient; after one split by inputs, of
    the output. Both are summed over the group. With ``sequence_parallel`` each sum becomes a reduce-scatter, with an
    all-gather in the other phase, of the same bytes on the wire. A gathered input is not kept but gathered again for
    the weight gradient, unless ``habits`` say otherwise. Software may gather it while it makes the input gradient, and
    sum the input gradient while it makes the weight gradient; of the other exchanges the next layer needs the result at
    once. Those it may pass on part by part beside the parts of the product that needs or makes them.

    References
    ----------
    .. [1] Shoeybi et al., Megatron-LM, arXiv:1909.08053, section 3.
    .. [2] Korthikanti et al., arXiv:2205.05198, section 4.2.
    """
    roles = roles_of(graph, tensor_size=tensor_size)
    if not set(roles.values()) & READS_WHOLE:
        allowed = f"1 for {graph.name}, which has no attention, pair of products or class scores to split"
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
        readers=_readers(graph),
        habits=habits,
    )
    for node in graph.layers:
        _add(split, node)
    if sequence_parallel and not split.scattered:
        raise ArgumentError(
            "sequence_parallel", True, f"False for {graph.name}, which has no sequence between shared layers"
        )
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
    """Add the shard of a layer, with the exchanges before and after it."""
    role = split.roles.get(node.name)
    name = node.name
    usage = node.usage
    split.region = {"recomputed_in": usage.recomputed_in, "reruns_all": usage.reruns_all}
    shard = _SHARDS.get(role or "")
    layer = node.layer if shard is None else shard(node, split.tensor_size)
    shared_input = role in READS_WHOLE
    if role is None and isinstance(node.layer, BY_POSITION) and split.has_part(node):
        reads = [split.part(name) for name in node.input_names]
        split.scattered.add(name)
    else:
        reads = [split.gathered(name, summed=shared_input) for name in node.input_names]
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
    if role == "scores" and split.habits.gathers_scores:
        _gather_scores(split, node)
    elif role == "loss" and not split.habits.gathers_scores:
        size = LOSS_SUMS * SUM_BYTES * math.prod(node.output_shape)
        split.exchanges.append(Exchange("all_reduce", "tensor", Phase.FORWARD, name, size))


def _gather_scores(split: _Split, node: Node) -> None:
    """Gather the scores of all classes on every device, where they are put together in a tensor of their own.

    Back-propagation leaves each device its own classes, without an exchange.
    """
    view = f"{node.name}_gathered"
    split.shard.add(
        view, nn.ShardView(parts=split.tensor_size, gathered=True, axis=-1), inputs=node.name, **split.region
    )
    split.exchange("all_gather", Phase.FORWARD, view, node.name)
    joined = nn.Rearrange(shape=split.shard.shape(view), copies_back=False)
    split.names[node.name] = split.shard.add(f"{node.name}_joined", joined, inputs=view, **split.region)


def _sums_apart(split: _Split, tensor: str) -> bool:
    """Whether the products that read a tensor, a gate and its units, each add up its gradient over the group."""
    products = [node for node in split.readers.get(tensor, ()) if split.roles.get(node.name) in READS_WHOLE]
    joins = {
        reader.name
        for product in products
        for reader in _first_not_pointwise(split.readers, product)
        if isinstance(reader.layer, nn.Binary)
    }
    return split.habits.sums_gates_apart and len(products) > 1 and len(joins) == 1


def _first_not_pointwise(readers: Mapping[str, list[Node]], node: Node) -> list[Node]:
    after = readers.get(node.name, [])
    while len(after) == 1 and isinstance(after[0].layer, POINTWISE):
        after = readers.get(after[0].name, [])
    return after


def _exchange_input(split: _Split, name: str, tensor: str, read: str) -> None:
    """Add the exchange for the gradient of a tensor that shared products read.

    Products that read the same tensor first add their shares on the device, unless software sums each by itself.
    """
    if tensor in split.read and not _sums_apart(split, tensor):
        return
    split.read.add(tensor)
    readers = split.products_reading(tensor)
    if read != split.names.get(tensor, tensor):
        if not split.habits.keeps_gathered:
            beside = Beside(Product.INPUT_GRADIENT, readers)
            split.exchange("all_gather", Phase.BACKWARD, name, tensor, beside=beside)
    elif split.wanted[tensor] or tensor in split.whole.input_shapes:
        beside = Beside(Product.WEIGHT_GRADIENT, readers)
        split.exchange("all_reduce", Phase.BACKWARD, name, tensor, beside=beside)


def _replicated_gradients(split: _Split, replicated: dict[str, int]) -> list[Exchange]:
    """Return the sums of gradients of parameters that each device used on only some positions."""
    return [
        Exchange("all_reduce", "tensor", Phase.UPDATE, name, fixed_bytes=split.element_bytes * count)
        for name, count in replicated.items()
        if name in split.scattered or f"{name}_scattered" in split.scattered
    ]
