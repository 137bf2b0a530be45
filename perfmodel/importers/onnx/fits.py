"""What onnx's own rules of shapes leave unchecked: whether inputs of a node fit one another."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

Shapes = Sequence[tuple[int, ...] | None]
"""Shapes of a node's inputs; None where one is left out [1]."""
Pair = tuple[str, int, int]
"""What must be equal, and the two numbers."""


def _gemm(shapes: Shapes, attributes: Mapping[str, int]) -> Pair:
    first, second = shapes[0] or (0, 0), shapes[1] or (0, 0)
    inner = first[0 if attributes.get("transA") else 1]
    return "inner extents of the product", inner, second[1 if attributes.get("transB") else 0]


def _convolution(shapes: Shapes, attributes: Mapping[str, int]) -> Pair:
    maps, filters = shapes[0] or (0, 0), shapes[1] or (0, 0)
    return "channels of maps and filters", maps[1], filters[1] * attributes.get("group", 1)


def _transposed_convolution(shapes: Shapes, attributes: Mapping[str, int]) -> Pair:
    maps, filters = shapes[0] or (0, 0), shapes[1] or (0, 0)
    return "channels of maps and filters", maps[1], filters[0]


def _norm(shapes: Shapes, attributes: Mapping[str, int]) -> Pair:
    maps, scale = shapes[0] or (0, 0), shapes[1] or (0,)
    return "channels of maps and scale", maps[1] if len(maps) > 1 else 1, scale[0]


def _recurrence(shapes: Shapes, attributes: Mapping[str, int]) -> Pair:
    sequence, weights = shapes[0] or (0, 0, 0), shapes[1] or (0, 0, 0)
    return "features of sequence and weights", sequence[2], weights[2]


PAIRS: Final[Mapping[str, Callable[[Shapes, Mapping[str, int]], Pair]]] = {
    "BatchNormalization": _norm,
    "Conv": _convolution,
    "ConvTranspose": _transposed_convolution,
    "GRU": _recurrence,
    "Gemm": _gemm,
    "InstanceNormalization": _norm,
    "LSTM": _recurrence,
    "RNN": _recurrence,
}
"""Operator to what must be equal of its inputs."""


def misfit(node: Any, inputs: Shapes, output: tuple[int, ...] | None) -> str:
    """Return what of a node's shapes does not fit.

    Parameters
    ----------
    node : onnx.NodeProto
        The node. [-]
    inputs : sequence of tuple of int or None
        Shapes of its inputs. [1]
    output : tuple of int or None
        Shape of its first output by onnx's rule. [1]

    Returns
    -------
    str
        Empty where nothing is wrong. [-]
    """
    if node.op_type == "Reshape" and inputs[0] is not None and output is not None:
        before, after = math.prod(inputs[0]), math.prod(output)
        return "" if before == after else f"Reshape of {inputs[0]} to {output}: {before} elements become {after}"
    if node.op_type == "Resize" and inputs[0] is not None and output is not None and inputs[0][:2] != output[:2]:
        return f"Resize of {inputs[0]} to {output}: samples and channels must stay as many"
    if node.op_type not in PAIRS:
        return ""
    attributes = {each.name: each.i for each in node.attribute}
    try:
        what, first, second = PAIRS[node.op_type](inputs, attributes)
    except IndexError:
        return f"{node.op_type} takes no inputs of shape {' and '.join(map(str, inputs))}"
    if first == second:
        return ""
    return f"{node.op_type}: {what} must be equal, but are {first} and {second}"
