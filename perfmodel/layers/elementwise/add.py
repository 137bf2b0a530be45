"""Element-wise sum of branches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.passes import elementwise
from perfmodel.layers.shapes import Shape, ShapeMismatchError, SharedShape, shape_text
from perfmodel.layers.translation import Operand, OperatorCall, Translation, Translator
from perfmodel.records import Operation


def is_sum_of_equals(operands: tuple[Any, ...]) -> bool:
    """Tell whether operands are tensors of one shape, all of the samples or all shared by them [-]."""
    if len(operands) < 2 or not all(isinstance(each, Operand) for each in operands):
        return False
    return len({(tuple(each.shape), each.is_shared) for each in operands}) == 1


def _from_torch(call: OperatorCall) -> Translation | None:
    operands = (call["self"], call["other"])
    is_this = call.get("alpha", 1) == 1 and is_sum_of_equals(operands)
    return Translation(layer=Add(), inputs=operands) if is_this else None


def _from_onnx(call: OperatorCall) -> Translation | None:
    return Translation(layer=Add(), inputs=call.operands) if is_sum_of_equals(call.operands) else None


@final
@dataclass(frozen=True, kw_only=True)
class Add(Layer):
    """Sum of two or more inputs of one shape.

    Notes
    -----
    Forward reads every input and writes the sum, one add per further input. Backward does nothing: each
    input's gradient is the output's own, passed on without a copy.
    """

    kind: ClassVar[str] = "add"
    examples: ClassVar[Examples] = (
        ({}, ((4, 9, 9), (4, 9, 9))),
        ({}, ((10,), (10,), (10,))),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("C", "H", "W"), ("C", "H", "W")))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.add": _from_torch,
    }
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"Add": _from_onnx, "Sum": _from_onnx}
    keeps_inputs: ClassVar[bool] = False
    input_counts: ClassVar[tuple[int, int | None]] = (2, None)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the shape that all inputs have."""
        for shape in input_shapes[1:]:
            if shape != input_shapes[0] or isinstance(shape, SharedShape) != isinstance(input_shapes[0], SharedShape):
                problem = f"adds inputs of one shape, but they are {' and '.join(map(shape_text, input_shapes))}"
                raise ShapeMismatchError(problem)
        return input_shapes[0]

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads all inputs and writes their sum."""
        elements = batch_size * math.prod(input_shapes[0])
        count = len(input_shapes)
        return (elementwise("add", elements, reads=count, flop_per_element=count - 1),)

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return nothing."""
        del input_shapes, batch_size
        return ()
