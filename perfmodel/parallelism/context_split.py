"""Context groups: each device holds some positions of every sequence, and attention reads the positions of all."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import accumulate
from operator import mul
from typing import Any, Final, cast

from perfmodel import layers as nn
from perfmodel.errors import ArgumentError
from perfmodel.graph import LayerGraph
from perfmodel.graph.execution import wants_gradient
from perfmodel.graph.node import Node
from perfmodel.parallelism.base import Beside, Exchange, ExchangeKind, StageGraph, in_order
from perfmodel.parallelism.tensor_split import BY_POSITION
from perfmodel.records import Phase, Role

SAME_AXIS: Final = (*BY_POSITION, nn.Embedding, nn.RotaryEmbedding, nn.ShardView, nn.MixtureOfExperts)
"""Layers that keep the positions of a sequence on their axis."""
SHAPED: Final = (nn.Reshape, nn.Slice, nn.Rearrange)
"""Layers that state the shape of their result, positions included."""
OPERANDS: Final = 3
"""Inputs of attention that a group may share: queries, keys and values, without a mask."""


def context_split(
    whole: StageGraph, *, context_size: int, context_method: str, element_bytes: int, copies_keys: bool = False
) -> StageGraph:
    """Make the graph that one device of a context group runs, and its exchanges.

    Notes
    -----
    ``ring``: keys and values go round [1]_; ``all_to_all``: devices exchange positions for heads before attention, and
    back after it [2]_; ``gather``: each gathers all keys and values first [3]_.
    Under a causal mask each device of a ring has an early and an equally late part of the sequence, so that all have
    the same number of scores: those of its own positions, and half of those of every other device's; so it is where
    keys and values are gathered. These are not kept, but gathered again for their gradients, which are added up and
    scattered. With ``copies_keys`` rings pass on, and devices gather, the copies of keys and values that each head of
    queries reads, as software does that copies them before attention. Ignores copies that order heads for an exchange.

    References
    ----------
    .. [1] Liu, Zaharia, Abbeel, Ring attention with blockwise transformers, arXiv:2310.01889.
    .. [2] Jacobs et al., DeepSpeed Ulysses, arXiv:2309.14509, section 3.
    .. [3] Grattafiori et al., The Llama 3 herd of models, arXiv:2407.21783, section 3.3.2; gathered again for
       gradients by NVIDIA, TransformerEngine, attention/dot_product_attention/context_parallel.py,
       AttnFuncWithCPAndKVAllGather.
    """
    how: dict[str, Any] = {"parts": context_size, "element_bytes": element_bytes, "copies_keys": copies_keys}
    split = _Split(whole, **how, attend=METHODS[context_method])
    for node in whole.graph.layers:
        split.add(node)
    if not split.exchanges:
        raise ArgumentError("context_size", context_size, f"1 for {whole.graph.name}, which has no attention to share")
    within = [replace(sent, bytes_per_sample=sent.bytes_per_sample // context_size) for sent in whole.exchanges]
    return replace(whole, graph=split.part, exchanges=in_order(split.part, [*within, *split.exchanges]))


class _Split:
    """The part of a device while it is being built."""

    def __init__(
        self,
        whole: StageGraph,
        *,
        parts: int,
        element_bytes: int,
        copies_keys: bool,
        attend: Callable[[_Split, Node], None],
    ) -> None:
        graph = whole.graph
        lengths = {shape[0] if shape else 0 for shape in graph.input_shapes.values()}
        if len(lengths) != 1 or not isinstance(length := lengths.pop(), int) or length % parts:
            shapes = " and ".join(map(str, graph.input_shapes.values()))
            allowed = f"a divisor of the positions of {graph.name}: the first number of its input shapes, {shapes}"
            raise ArgumentError("context_size", parts, allowed)
        self.graph, self.parts, self.element_bytes, self.attend = graph, parts, element_bytes, attend
        self.copies_keys = copies_keys
        inputs = {name: (length // parts, *shape[1:]) for name, shape in graph.input_shapes.items()}
        self.part = LayerGraph(graph.name, inputs=inputs, fixed_batch_size=graph.fixed_batch_size)
        self.wanted = wants_gradient(graph.input_shapes, graph.layers, input_gradient=whole.input_gradient)
        self.axis: dict[str, int | None] = dict.fromkeys(inputs, 0)
        self.names: dict[str, str] = {}
        self.exchanges: list[Exchange] = []

    def add(self, node: Node) -> None:
        """Add a device's part of a layer."""
        if isinstance(node.layer, nn.ScaledDotProductAttention):
            self.attend(self, node)
            return
        axes = {self.axis[name] for name in node.input_names}
        axis = axes.pop() if len(axes) == 1 else None
        layer: nn.Layer | None = None
        if axis is not None and isinstance(node.layer, SAME_AXIS):
            layer = node.layer
        elif axis is not None and isinstance(node.layer, nn.Transpose):
            layer, axis = node.layer, node.layer.axes.index(axis)
        elif axis is not None and isinstance(node.layer, SHAPED):
            axis = _axis_after(node, axis)
            layer = None if axis is None else self._with_part(node.layer, axis)
        elif isinstance(node.layer, nn.CrossEntropy):
            layer, axis = node.layer, None
        if layer is None:
            allowed = f"1 for {self.graph.name}, whose layer {node.name!r} ({node.layer.kind}) needs the whole sequence"
            raise ArgumentError("context_size", self.parts, allowed)
        self.put(node, layer, axis=axis)

    def _with_part(self, layer: Any, axis: int) -> nn.Layer:
        shape = list(layer.shape)
        shape[axis] //= self.parts
        return replace(layer, shape=tuple(shape))  # type: ignore[no-any-return]

    def put(self, node: Node, layer: nn.Layer, *, axis: int | None, inputs: tuple[str, ...] | None = None) -> None:
        """Add a layer in the place of one of the whole network."""
        read = tuple(self.names.get(name, name) for name in node.input_names) if inputs is None else inputs
        self.part.add(node.name, layer, inputs=read, **node.usage.options)
        self.axis[node.name] = axis

    def view(self, name: str, of: str, *, axis: int, gathered: bool, like: Node | None) -> str:
        """Add a view with a longer or shorter axis, in the region of another layer."""
        marks = {} if like is None else like.usage.options
        region = {key: marks[key] for key in ("recomputed_in", "reruns_all") if key in marks}
        return self.part.add(name, nn.ShardView(parts=self.parts, gathered=gathered, axis=axis), inputs=of, **region)

    def elements(self, *tensors: str) -> int:
        """Elements of a device's parts of tensors. [1]"""
        return sum(math.prod(self.part.shape(name)) for name in tensors)

    def exchange(
        self, kind: ExchangeKind, phase: Phase, layer: str, elements: int, beside: Beside | None = None
    ) -> None:
        """Add an exchange of so many elements of each sample [1]."""
        size = self.element_bytes * elements
        self.exchanges.append(Exchange(kind, "context", phase, layer, size, beside=beside))


def _axis_after(node: Node, axis: int) -> int | None:
    """Find the axis of positions in a stated shape, with the same elements before it or the same axes after it."""
    before, after = node.input_shapes[0], node.output_shape
    if isinstance(node.layer, nn.Reshape):
        leading = [1, *accumulate(after, mul)]
        place = leading.index(count) if (count := math.prod(before[:axis])) in leading else len(after)
        while place < len(after) and after[place] == 1 != before[axis]:
            place += 1
    else:
        place = axis + len(after) - len(before)
    return place if 0 <= place < len(after) and after[place] == before[axis] else None


def _operands(split: _Split, node: Node) -> tuple[str, ...]:
    """Return queries, keys and values of an attention that a group can share."""
    names = tuple(split.names.get(name, name) for name in node.input_names)
    if len(names) > OPERANDS or any(split.axis[name] != len(split.graph.shape(name)) - 2 for name in node.input_names):
        allowed = f"1 for {split.graph.name}, whose attention {node.name!r} has a mask or positions on another axis"
        raise ArgumentError("context_size", split.parts, allowed)
    return names


def _put_in_parts(split: _Split, node: Node, *, gathered: bool) -> int:
    """Add attention of a device's queries to the keys of all; return the elements of all keys and values. [1]"""
    names = _operands(split, node)
    assert isinstance(node.layer, nn.ScaledDotProductAttention)
    halves = 2 * split.parts if node.layer.causal else split.parts
    if (positions := split.graph.shape(node.input_names[1])[-2]) % halves:
        allowed = f"a number whose double divides the {positions} positions, since each device has two parts of them"
        raise ArgumentError("context_size", split.parts, allowed)
    layer = replace(node.layer, ring=split.parts, gathered=gathered, passes_copies=split.copies_keys)
    split.put(node, layer, axis=split.axis[node.input_names[0]], inputs=names)
    return split.parts * cast("int", layer.passed_elements(split.part.node(node.name).input_shapes, batch_size=1))


def _in_a_ring(split: _Split, node: Node) -> None:
    """Attend to the keys of one device after another while those of the next arrive."""
    passed = _put_in_parts(split, node, gathered=False)
    split.exchange("pass_on", Phase.FORWARD, node.name, passed, Beside(Role.OUTPUT, (node.name,)))
    if split.wanted[node.name]:  # gradients of keys and values go round with them
        beside = Beside(Role.INPUT_GRADIENT, (node.name,))
        split.exchange("pass_on", Phase.BACKWARD, node.name, 2 * passed, beside)


def _gathered(split: _Split, node: Node) -> None:
    """Attend to the keys of all devices, which are gathered before, and again for their gradients."""
    gathered = _put_in_parts(split, node, gathered=True)
    split.exchange("all_gather", Phase.FORWARD, node.name, gathered)
    if split.wanted[node.name]:
        split.exchange("all_gather", Phase.BACKWARD, node.name, gathered)
        split.exchange("reduce_scatter", Phase.BACKWARD, node.name, gathered)


def _by_heads(split: _Split, node: Node) -> None:
    """Attend to whole sequences with some heads: all positions of these come from the other devices."""
    names = _operands(split, node)
    layer = node.layer
    assert isinstance(layer, nn.ScaledDotProductAttention)
    sizes = layer.attention(node.input_shapes, batch_size=1)
    for noun, count in (("heads", sizes.heads), ("heads of keys", sizes.key_heads)):
        if count % split.parts:
            allowed = f"'ring', or context_size a divisor of the {count} {noun} of layer {node.name!r}"
            raise ArgumentError("context_method", "all_to_all", allowed)
    rank = len(node.output_shape)
    positions, heads = rank - 2, rank - 1 if layer.heads is not None else 0
    producer = split.graph.node(node.input_names[0])
    exchanged = []
    for name in dict.fromkeys(names):
        longer = split.view(f"{name}_all_positions", name, axis=positions, gathered=True, like=producer)
        exchanged.append(split.view(f"{name}_own_heads", longer, axis=heads, gathered=False, like=producer))
    of_device: dict[str, Any] = {} if layer.heads is None else {"heads": layer.heads // split.parts}
    if layer.key_heads is not None:
        of_device["key_heads"] = layer.key_heads // split.parts
    inputs = tuple(f"{name}_own_heads" for name in names)
    split.put(node, replace(layer, **of_device), axis=positions, inputs=inputs)
    whole = split.view(f"{node.name}_all_heads", node.name, axis=heads, gathered=True, like=producer)
    result = split.view(f"{node.name}_own_positions", whole, axis=positions, gathered=False, like=producer)
    split.names[node.name] = result
    phases = (Phase.FORWARD, Phase.BACKWARD) if split.wanted[node.name] else (Phase.FORWARD,)
    for phase in phases:
        split.exchange("all_to_all", phase, exchanged[-1], split.elements(*exchanged))
        split.exchange("all_to_all", phase, result, split.elements(result))


METHODS: Final[Mapping[str, Callable[[_Split, Node], None]]] = {
    "ring": _in_a_ring,
    "all_to_all": _by_heads,
    "gather": _gathered,
}
"""Name -> how the devices of a context group attend to each other's positions."""
