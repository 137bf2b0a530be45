"""What a graph executes: its layers in their places, and the operations of the forward and backward phase."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel.errors import ShapeError
from perfmodel.layers import Layer, Shape, ShapeMismatchError
from perfmodel.layers.base import shape_text
from perfmodel.layers.passes import elementwise
from perfmodel.records import Contraction, Convolution, Operation, Recurrence, Role

LayerOperations = tuple[tuple[str, Operation], ...]
"""Pairs of the name of a layer and an operation, in order of execution."""


@dataclass(frozen=True, slots=True)
class Node:
    """One layer in its place: what it reads, and the shapes that follow.

    Parameters
    ----------
    name : str
        Name in the graph. [-]
    layer : Layer
        What it computes. [-]
    input_names : tuple of str
        Layers or graph inputs it reads, in order. [-]
    input_shapes : tuple of tuple of int
        Sample shape of each. [1]
    output_shape : tuple of int
        Sample shape of its output. [1]
    """

    name: str
    layer: Layer
    input_names: tuple[str, ...]
    input_shapes: tuple[Shape, ...]
    output_shape: Shape

    @classmethod
    def of(cls, name: str, layer: Layer, *, input_names: tuple[str, ...], input_shapes: tuple[Shape, ...]) -> Node:
        """Return a layer in its place, with the shape of its output.

        Parameters
        ----------
        name : str
            Name in the graph. [-]
        layer : Layer
            What it computes. [-]
        input_names : tuple of str
            Layers or graph inputs it reads, in order. [-]
        input_shapes : tuple of tuple of int
            Sample shape of each. [1]

        Returns
        -------
        Node
            The layer with its shapes. [-]

        Raises
        ------
        ShapeError
            If number or shapes of the inputs do not fit; names the layer and the shapes.
        """
        given, expected = len(input_shapes), layer.input_count
        if given != expected if expected is not None else given < 2:
            shapes = ", ".join(map(shape_text, input_shapes)) or "none"
            problem = f"takes {expected or 'two or more'} input(s), but {given} are given (shapes: {shapes})"
            raise ShapeError(name, problem)
        try:
            return cls(name, layer, input_names, input_shapes, layer.output_shape(input_shapes))
        except ShapeMismatchError as error:
            raise ShapeError(name, error.problem) from error

    @property
    def output_elements(self) -> int:
        """Elements of one output sample [1]."""
        return math.prod(self.output_shape)

    @property
    def parameter_count(self) -> int:
        """Trainable parameters [1]."""
        return self.layer.parameter_count(self.input_shapes)

    def saved_bytes(self, *, batch_size: Any, element_bytes: int) -> Any:
        """Return bytes kept for back-propagation besides inputs and output.

        Parameters
        ----------
        batch_size : int, ndarray or sympy.Expr
            Samples. [samples]
        element_bytes : int
            Size of one element. [B]

        Returns
        -------
        int, ndarray or sympy.Expr
            Size of masks, indices, statistics and the like. [B]
        """
        return self.layer.saved_bytes(self.input_shapes, batch_size=batch_size, element_bytes=element_bytes)


def forward_operations(nodes: Sequence[Node], *, batch_size: Any) -> LayerOperations:
    """Return the operations that compute every output, in order.

    Parameters
    ----------
    nodes : sequence of Node
        Layers, each after those that it reads. [-]
    batch_size : int, ndarray or sympy.Expr
        Samples. [samples]

    Returns
    -------
    tuple of tuple
        Pairs (layer, operation). [-]
    """
    return tuple(
        (node.name, operation)
        for node in nodes
        for operation in node.layer.forward_operations(node.input_shapes, batch_size=batch_size)
    )


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
        True where a parameter, or an input that wants one, lies before. [-]
    """
    wanted = dict.fromkeys(input_shapes, input_gradient)
    for node in nodes:
        passes_on = node.layer.first_input_differentiable and any(wanted[name] for name in node.input_names)
        wanted[node.name] = passes_on or node.parameter_count > 0
    return wanted


def backward_operations(
    input_shapes: Mapping[str, Shape], nodes: Sequence[Node], *, batch_size: Any, input_gradient: bool
) -> LayerOperations:
    """Return the operations that compute all wanted gradients, in order: last layer first.

    Where an output feeds f layers, f - 1 passes ``gradient_sum`` add their gradients; they belong to the
    layer that made the output.

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

    Returns
    -------
    tuple of tuple
        Pairs (layer or graph input, operation). [-]
    """
    wanted = wants_gradient(input_shapes, nodes, input_gradient=input_gradient)
    differentiable = [node for node in nodes if node.layer.first_input_differentiable]
    uses = Counter(name for node in differentiable for name in node.input_names if wanted[name])
    pairs: list[tuple[str, Operation]] = []

    def sum_gradients(name: str, shape: Shape) -> None:
        elements = batch_size * math.prod(shape)
        one = elementwise("gradient_sum", elements, reads=2, flop_per_element=1, role=Role.INPUT_GRADIENT)
        pairs.extend([(name, one)] * (uses[name] - 1))

    for node in reversed(nodes):
        if not wanted[node.name]:
            continue
        sum_gradients(node.name, node.output_shape)
        operations = node.layer.gradient_operations(
            node.input_shapes,
            batch_size=batch_size,
            wanted=[node.layer.first_input_differentiable and wanted[name] for name in node.input_names],
        )
        pairs += [(node.name, operation) for operation in operations]
    for name, shape in input_shapes.items():
        sum_gradients(name, shape)
    return tuple(pairs)


_MULTIPLY_ADDS: dict[str, Callable[[Any], Any]] = {
    Contraction.kind: lambda product: product.count * product.m * product.n * product.k,
    Convolution.kind: lambda conv: conv.batch_size * math.prod(conv.output_size) * conv.weight_elements,
    Recurrence.kind: lambda recurrence: recurrence.batch_size * recurrence.steps * recurrence.weight_elements,
}


def multiply_adds(operation: Operation) -> Any:
    """Return the multiply-adds of the products in an operation.

    Parameters
    ----------
    operation : Operation
        Any; only contractions, convolutions and recurrences hold products. [-]

    Returns
    -------
    int, ndarray or sympy.Expr
        Zero for memory passes and gathers. [1]

    Examples
    --------
    >>> multiply_adds(Contraction(m=2, n=3, k=4))
    24
    """
    count = _MULTIPLY_ADDS.get(operation.kind)
    return 0 if count is None else count(operation)
