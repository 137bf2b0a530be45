"""What a graph executes: the operations of the forward and backward phase, layer by layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from perfmodel.graph.checkpoints import segments
from perfmodel.graph.node import Node
from perfmodel.layers import Layer, Shape
from perfmodel.layers.passes import elementwise
from perfmodel.layers.shapes import element_count
from perfmodel.records import Gather, MemoryPass, Operation, Role

LayerOperations = tuple[tuple[str, Operation], ...]
"""Pairs of the name of a layer and an operation, in order of execution."""


def forward_operations(nodes: Sequence[Node], *, batch_size: Any) -> LayerOperations:
    """Return the operations that compute every output, in order."""
    return tuple((node.name, operation) for node in nodes for operation in _of_layer(node, None, node.runs(batch_size)))


def _of_layer(node: Node, into: list[bool] | None, batch_size: Any) -> tuple[Operation, ...]:
    """Return the operations of a layer, forward or back to inputs that want a gradient; equal layers share them."""
    shapes = node.input_shapes
    if type(batch_size) is not int:
        return _made(node.layer, shapes, None if into is None else tuple(into), batch_size)
    shared = tuple([type(shape) for shape in shapes])
    return _kept(node.layer, shapes, None if into is None else tuple(into), batch_size, shared)


def _made(
    layer: Layer, shapes: tuple[Shape, ...], into: tuple[bool, ...] | None, batch_size: Any
) -> tuple[Operation, ...]:
    if into is None:
        return tuple(layer.forward_operations(shapes, batch_size=batch_size))
    return tuple(layer.gradient_operations(shapes, batch_size=batch_size, wanted=list(into)))


@lru_cache(maxsize=8192)
def _kept(
    layer: Layer,
    shapes: tuple[Shape, ...],
    into: tuple[bool, ...] | None,
    batch_size: int,
    kinds: tuple[type, ...],
) -> tuple[Operation, ...]:
    del kinds  # a shape that samples share equals one that they do not
    return _made(layer, shapes, into, batch_size)


def wants_gradient(
    input_shapes: Mapping[str, Shape], nodes: Sequence[Node], *, input_gradient: bool
) -> dict[str, bool]:
    """Tell for every graph input and every layer's output whether its gradient is computed.

    Parameters
    ----------
    input_shapes : mapping of str to tuple of int
        Graph inputs. [1]
    nodes : sequence of Node
        Layers, each after those that it reads. [-]
    input_gradient : bool
        Whether the inputs' own gradient is asked for. [-]

    Returns
    -------
    dict of str to bool
        True where a trained parameter, or an input that wants one, lies before, and an output that is no metric
        behind. [-]
    """
    wanted = dict.fromkeys(input_shapes, input_gradient)
    for node in nodes:
        wanted[node.name] = any(node.into(wanted)) or bool(node.trained_shapes)
    reached = _reached_by_gradients(input_shapes, nodes)
    return {name: wants and name in reached for name, wants in wanted.items()}


def _reached_by_gradients(input_shapes: Mapping[str, Shape], nodes: Sequence[Node]) -> set[str]:
    """Return the names of tensors from which a path of gradients leads to an output that is no metric."""
    read = {name for node in nodes for name in node.input_names}
    reached = {node.name for node in nodes if node.name not in read and not node.layer.is_metric}
    for node in reversed(nodes):
        if node.name in reached:
            flows = node.layer.differentiable(len(node.input_names))
            reached |= {name for name, flow in zip(node.input_names, flows, strict=True) if flow}
    return reached


def _is_of_use(operation: Operation, node: Node) -> bool:
    """Tell whether a backward operation remains where some of a layer's parameters are frozen.

    Where only some are, products remain for any trained parameter of two or more axes (weights) and, in a layer with
    such parameters, passes over memory for any other (biases).
    """
    if operation.role is not Role.WEIGHT_GRADIENT:
        return True
    shapes = node.layer.parameter_shapes(node.input_shapes)
    trained = node.trained_shapes
    has_both = len({len(shape) > 1 for shape in shapes.values()}) == 2
    if not has_both or len(trained) in (0, len(shapes)):
        return bool(trained) or (node.usage.is_trained and not shapes)
    is_product = not isinstance(operation, MemoryPass | Gather)
    return any((len(shape) > 1) == is_product for shape in trained.values())


def _gradients_of(node: Node, *, batch_size: Any, wanted: Mapping[str, bool]) -> list[Operation]:
    """Return the backward operations of one layer: its own, and what its frozen or shared parameters change."""
    operations = _of_layer(node, node.into(wanted), node.runs(batch_size))
    operations = tuple(operation for operation in operations if _is_of_use(operation, node))
    shared_count = node.trained_shared_count
    if shared_count:
        added = elementwise("gradient_sum", shared_count, reads=2, flop_per_element=1, role=Role.WEIGHT_GRADIENT)
        return [*operations, added]
    return list(operations)


def backward_operations(
    input_shapes: Mapping[str, Shape],
    nodes: Sequence[Node],
    *,
    batch_size: Any,
    input_gradient: bool,
    recompute: str | None = None,
) -> LayerOperations:
    """Return the operations that compute all wanted gradients, in order: last layer first.

    Where an output feeds f layers, f - 1 passes ``gradient_sum`` add their gradients; they belong to the
    layer that made the output, as does the one that joins the gradients of the parts into which it was split (which
    count as one), and the copy that brings the axes of what was joined back into order. Before the layers of a segment
    that was not kept come their forward operations.

    Parameters
    ----------
    input_shapes : mapping of str to tuple of int
        Graph inputs. [1]
    nodes : sequence of Node
        Layers, each after those that it reads. [-]
    batch_size : int, ndarray or sympy.Expr
        Samples. [samples]
    input_gradient : bool
        Whether the inputs' own gradient is asked for. [-]
    recompute : str or None
        Where checkpoints lie; None where the graph marks them, if anywhere. [-]

    Returns
    -------
    tuple of tuple
        Pairs (layer or graph input, operation). [-]
    """
    wanted = wants_gradient(input_shapes, nodes, input_gradient=input_gradient)
    read = [
        (name, node.layer.gradient_is_joined)
        for node in nodes
        if wanted[node.name]
        for name, flows_back in zip(node.input_names, node.into(wanted), strict=True)
        if flows_back
    ]
    joined = {name for name, is_joined in read if is_joined}
    turned = {node.name for node in nodes if node.layer.turns_axes}
    uses = Counter([name for name, is_joined in read if not is_joined]) + Counter(joined)
    pairs: list[tuple[str, Operation]] = []

    def sum_gradients(name: str, shape: Shape) -> None:
        elements = element_count(shape, batch_size=batch_size)
        if name in joined:
            pairs.append((name, elementwise("slice", elements, role=Role.INPUT_GRADIENT)))
        if name in joined & turned:
            pairs.append((name, elementwise("rearrange", elements, role=Role.INPUT_GRADIENT)))
        one = elementwise("gradient_sum", elements, reads=2, flop_per_element=1, role=Role.INPUT_GRADIENT)
        pairs.extend([(name, one)] * (uses[name] - 1))

    for segment in reversed(segments(nodes, wanted=wanted, recompute=recompute)):
        pairs += forward_operations(segment.again, batch_size=batch_size)
        for node in reversed(segment.nodes):
            if wanted[node.name]:
                sum_gradients(node.name, node.output_shape)
                own = _gradients_of(node, batch_size=batch_size, wanted=wanted)
                pairs += [(node.name, operation) for operation in own]
    for name, shape in input_shapes.items():
        sum_gradients(name, shape)
    return tuple(pairs)
