"""Which layers a group of devices can share, and how: by outputs, by inputs, by heads, by words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, Literal, cast

from perfmodel.errors import ArgumentError
from perfmodel.graph import LayerGraph
from perfmodel.graph.node import Node
from perfmodel.layers import (
    GELU,
    AdaptiveAveragePool,
    AdaptiveMaxPool,
    AveragePool2d,
    BatchNorm,
    Binary,
    Convolution2d,
    CrossEntropy,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    Layer,
    LeakyReLU,
    MaxPool2d,
    MultiHeadAttention,
    ReLU,
    ReLU6,
    Reshape,
    RotaryEmbedding,
    ScaledDotProductAttention,
    Sigmoid,
    SiLU,
    Tanh,
    Transpose,
)

Role = Literal["column", "row", "between", "heads", "table", "scores", "loss"]

POINTWISE: Final = (ReLU, ReLU6, LeakyReLU, GELU, SiLU, Tanh, Sigmoid, Dropout)
"""Layers that treat every element alone."""
IN_HEADS: Final = (*POINTWISE, Reshape, Transpose, RotaryEmbedding)
"""Layers that treat every head alone, between projections and attention."""
BY_CHANNEL: Final = (*POINTWISE, BatchNorm, MaxPool2d, AveragePool2d, AdaptiveAveragePool, AdaptiveMaxPool, Flatten)
"""Layers that treat every channel alone, so that they may lie between a product split by outputs and one by inputs."""


def _outputs(layer: Layer) -> int | None:
    """Return the channels that a product yields; None for what is none, or is one of separate groups."""
    if isinstance(layer, Dense):
        return layer.units
    if isinstance(layer, Convolution2d) and layer.groups == 1:
        return layer.out_channels
    return None


def _readers(graph: LayerGraph) -> dict[str, list[Node]]:
    readers: dict[str, list[Node]] = {}
    for node in graph.layers:
        for name in node.input_names:
            readers.setdefault(name, []).append(node)
    return readers


def roles_of(graph: LayerGraph, *, tensor_size: int) -> dict[str, Role]:
    """Return what becomes of the layers that a group of devices shares; the others each device has whole.

    Raises
    ------
    ArgumentError
        If the devices do not divide the heads of an attention layer or the outputs of a product.

    Notes
    -----
    Two products that follow one another, with layers between that treat channels alone, are split by outputs
    (``column``) and by inputs (``row``); so are products that one layer brings together (queries, keys and values; a
    gate and its units) and the next one; attention that holds its own projections by ``heads``; a ``table`` of words by
    its rows; a product in front of a cross-entropy by classes (``scores``). A table with fewer rows than features stays
    whole, and one that is used as weights in a way that is not split.
    """
    readers = _readers(graph)
    shares = {of[0] for node in graph.layers for of in node.usage.shared_parameters.values()}
    roles: dict[str, Role] = {}
    for node in graph.layers:
        if isinstance(node.layer, ScaledDotProductAttention | Binary):
            roles |= _joined(graph, node, readers, tensor_size=tensor_size)
    for node in graph.layers:
        if node.name in roles:
            continue
        if isinstance(node.layer, MultiHeadAttention):
            _check_heads(node, tensor_size)
            roles[node.name] = "heads"
        elif _outputs(node.layer) is not None and not node.usage.shared_parameters and node.name not in shares:
            chain = _chain(node, readers)
            if chain is not None and not chain[-1].usage.shared_parameters and chain[-1].name not in shares:
                _check_width(node, tensor_size)
                roles[node.name], roles[chain[-1].name] = "column", "row"
                roles |= dict.fromkeys([each.name for each in chain[:-1]], "between")
    roles |= _words(graph, roles, readers)
    return roles


def _chain(node: Node, readers: Mapping[str, list[Node]]) -> list[Node] | None:
    """Return the layers from behind a product to the next, that one included; None where they part or mix channels."""
    chain = []
    while len(readers.get(node.name, ())) == 1:
        (node,) = readers[node.name]
        chain.append(node)
        if len(node.input_names) != 1:
            return None
        if _outputs(node.layer) is not None:
            return chain
        if not isinstance(node.layer, BY_CHANNEL):
            return None
    return None


def _joined(graph: LayerGraph, node: Node, readers: Mapping[str, list[Node]], *, tensor_size: int) -> dict[str, Role]:
    """Return roles around a layer that brings products together: queries, keys and values, or a gate and its units.

    None where it is not fed by products alone, or leads to none.
    """
    before: list[Node] = []
    products: list[Node] = []
    for name in node.input_names:
        while name not in graph.input_shapes and len(readers[name]) == 1:
            each = graph.node(name)
            if isinstance(each.layer, Dense):
                products.append(each)
                break
            if not isinstance(each.layer, IN_HEADS):
                return {}
            before.append(each)
            name = each.input_names[0]
        else:
            return {}
    after = []
    last = node
    while len(readers.get(last.name, ())) == 1:
        (last,) = readers[last.name]
        if isinstance(last.layer, Dense) or not isinstance(last.layer, IN_HEADS):
            break
        after.append(last)
    alone = not any(each.usage.shared_parameters for each in (*products, last))
    if not isinstance(last.layer, Dense) or not alone or len({each.input_names for each in products}) != 1:
        return {}
    for each in products:
        _check_width(each, tensor_size)
    for each in (*before, *after):
        if isinstance(each.layer, Reshape) and each.layer.shape[1] % tensor_size:
            allowed = f"a divisor of the {each.layer.shape[1]} heads of layer {each.name!r}"
            raise ArgumentError("tensor_size", tensor_size, allowed)
    names: dict[str, Role] = dict.fromkeys([each.name for each in products], "column")
    return names | dict.fromkeys([each.name for each in (*before, node, *after)], "between") | {last.name: "row"}


def _words(graph: LayerGraph, roles: Mapping[str, Role], readers: Mapping[str, list[Node]]) -> dict[str, Role]:
    """Return roles of tables of words, of products that score words or classes, and of their losses."""
    found: dict[str, Role] = {}
    scores: dict[str, Node] = {}
    for node in graph.layers:
        if isinstance(node.layer, Dense) and node.name not in roles and len(readers.get(node.name, ())) == 1:
            (loss,) = readers[node.name]
            layer = loss.layer
            if isinstance(layer, CrossEntropy) and layer.over == "logits" and len(loss.input_shapes) == 1:
                scores[node.name] = loss
    users: dict[str, list[str]] = {}
    for node in graph.layers:
        for of in node.usage.shared_parameters.values():
            users.setdefault(of[0], []).append(node.name)
    tables = {
        node.name
        for node in graph.layers
        if isinstance(node.layer, Embedding)
        and node.layer.vocabulary >= node.layer.features
        and all(user in scores for user in users.get(node.name, ()))
    }
    found |= dict.fromkeys(tables, "table")
    for name, loss in scores.items():
        owners = {of[0] for of in graph.node(name).usage.shared_parameters.values()}
        if owners <= tables and name not in users:
            found |= {name: "scores", loss.name: "loss"}
    return found


def _check_heads(node: Node, tensor_size: int) -> None:
    layer = node.layer
    assert isinstance(layer, MultiHeadAttention)
    for noun, count in (("heads", layer.heads), ("heads of keys", layer.key_heads or layer.heads)):
        if count % tensor_size:
            raise ArgumentError("tensor_size", tensor_size, f"a divisor of the {count} {noun} of layer {node.name!r}")


def _check_width(node: Node, tensor_size: int) -> None:
    count = cast("int", _outputs(node.layer))
    if count % tensor_size:
        raise ArgumentError("tensor_size", tensor_size, f"a divisor of the {count} outputs of layer {node.name!r}")


def _between(node: Node, tensor_size: int) -> Layer:
    """Return a layer between shared products; one that names the heads has its share of them."""
    layer = node.layer
    if not isinstance(layer, Reshape):
        return layer
    positions, heads, *rest = layer.shape
    return replace(layer, shape=(positions, heads // tensor_size, *rest))


def _rows_of(rows: int, tensor_size: int) -> int:
    return -(-rows // tensor_size)


def _column(node: Node, tensor_size: int) -> Layer:
    if isinstance(node.layer, Dense):
        return replace(node.layer, units=node.layer.units // tensor_size)
    assert isinstance(node.layer, Convolution2d)
    return replace(node.layer, out_channels=node.layer.out_channels // tensor_size)


def _heads(node: Node, tensor_size: int) -> Layer:
    layer = node.layer
    assert isinstance(layer, MultiHeadAttention)
    size = layer.head_size or node.input_shapes[0][-1] // layer.heads
    keys = None if layer.key_heads is None else layer.key_heads // tensor_size
    return replace(layer, heads=layer.heads // tensor_size, key_heads=keys, head_size=size)


def _table(node: Node, tensor_size: int) -> Layer:
    assert isinstance(node.layer, Embedding)
    return replace(node.layer, vocabulary=_rows_of(node.layer.vocabulary, tensor_size))


def _scores(node: Node, tensor_size: int) -> Layer:
    assert isinstance(node.layer, Dense)
    return replace(node.layer, units=_rows_of(node.layer.units, tensor_size))


_SHARDS: Final[Mapping[str, Callable[[Node, int], Layer]]] = {
    "column": _column,
    "between": _between,
    "heads": _heads,
    "table": _table,
    "scores": _scores,
}
_WHOLE_BIASES: Final[Mapping[str, tuple[str, ...]]] = {"row": ("bias",), "heads": ("output_bias",)}
"""Parameters that every device has whole, by role: what is added after the sum over devices."""


def shard_of(node: Node, role: Role | None, *, tensor_size: int) -> Layer:
    """Return the layer that one device of a group runs.

    Parameters
    ----------
    node : Node
        The layer in the whole network. [-]
    role : str or None
        Its role; None where each device has all of it. [-]
    tensor_size : int
        Devices. [1]

    Returns
    -------
    Layer
        With fewer outputs, heads or words; of a product split by inputs the layer itself, which reads less. [-]
    """
    make = _SHARDS.get(role or "")
    return node.layer if make is None else make(node, tensor_size)


def replicated_count(node: Node, role: Role | None) -> int:
    """Return the parameters of a layer that every device of a group has whole. [1]"""
    if role is None:
        return node.parameter_count
    names = _WHOLE_BIASES.get(role, ())
    sizes = node.parameter_shapes
    return sum(math.prod(sizes[name]) for name in names if name in sizes)
