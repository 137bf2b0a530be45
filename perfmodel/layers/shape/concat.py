"""Concatenation of branches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_count, check_flag
from perfmodel.layers.passes import elementwise
from perfmodel.layers.shape.copy import Copy
from perfmodel.layers.shapes import Shape, ShapeMismatchError, shape_text
from perfmodel.layers.translation import Operand, OperatorCall, Translation, Translator
from perfmodel.records import Operation, Role


def _joined(tensors: tuple[Operand, ...], place: int | None, *, new_axis: bool) -> Translation | None:
    if len(tensors) == 1 and not new_axis:
        return Translation(layer=Copy(), inputs=tensors)
    if place is None or len({each.is_shared for each in tensors}) > 1:
        return None  # of samples, or of some for each sample and others for all
    if len(tensors) == 1:
        return None
    return Translation(layer=Concat(axis=place, new_axis=new_axis), inputs=tensors)


def _from_torch(call: OperatorCall) -> Translation | None:
    new_axis = call.operator == "aten.stack"
    tensors = tuple(each for each in call["tensors"] if new_axis or 0 not in each.shape)
    return _joined(tensors, call.output.sample_axis(call.get("dim", 0)), new_axis=new_axis)


def _from_onnx(call: OperatorCall) -> Translation | None:
    return _joined(call.operands, call.output.sample_axis(call["axis"]), new_axis=False)


@final
@dataclass(frozen=True, kw_only=True)
class Concat(Layer):
    """Two or more inputs side by side along one axis, or stacked along a new one; the other axes agree.

    Parameters
    ----------
    axis : int
        Axis of an output sample: 0 joins channels of (channels, height, width). [1]
    new_axis : bool
        Whether the axis is not there before: inputs of one shape are stacked. [-]

    Notes
    -----
    Copies, forward the inputs into the output, backward each wanted gradient out of it. In memory the gradients stay
    parts of the output's: the copy is what a library needs that reads them in one piece, and it does not last.
    """

    kind: ClassVar[str] = "concat"
    examples: ClassVar[Examples] = (
        ({}, ((4, 9, 9), (4, 9, 9))),
        ({"axis": 1}, ((5, 6), (5, 6))),
        ({"axis": 1, "new_axis": True}, ((5, 6), (5, 6), (5, 6))),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("C", "H", "W"), ("D", "H", "W")))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.cat": _from_torch,
        "aten.stack": _from_torch,
    }
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"Concat": _from_onnx}
    keeps_inputs: ClassVar[bool] = False
    gradient_is_view: ClassVar[bool] = True
    input_counts: ClassVar[tuple[int, int | None]] = (2, None)
    axis: int = 0
    new_axis: bool = False

    def __post_init__(self) -> None:
        check_count("axis", self.axis, minimum=0)
        check_flag("new_axis", self.new_axis)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the first input's shape with the joined axis summed, or the new one put in."""
        first = input_shapes[0]
        if self.new_axis:
            if any(shape != first for shape in input_shapes) or self.axis > len(first):
                shapes = " and ".join(map(shape_text, input_shapes))
                problem = f"stacks inputs of one shape along a new axis {self.axis}, but they are {shapes}"
                raise ShapeMismatchError(problem)
            return (*first[: self.axis], len(input_shapes), *first[self.axis :])
        others = {(len(shape), shape[: self.axis], shape[self.axis + 1 :]) for shape in input_shapes}
        if self.axis >= len(first) or len(others) > 1:
            shapes = " and ".join(map(shape_text, input_shapes))
            problem = f"joins along axis {self.axis} inputs that agree in all others, but they are {shapes}"
            raise ShapeMismatchError(problem)
        joined = sum(shape[self.axis] for shape in input_shapes)
        return (*first[: self.axis], joined, *first[self.axis + 1 :])

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that copies all inputs."""
        return (elementwise("concat", batch_size * sum(map(math.prod, input_shapes))),)

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that copies all gradients."""
        return self.gradient_operations(input_shapes, batch_size=batch_size, wanted=[True] * len(input_shapes))

    def gradient_operations(
        self, input_shapes: tuple[Shape, ...], *, batch_size: Any, wanted: Sequence[bool]
    ) -> tuple[Operation, ...]:
        """Return one pass that copies the wanted gradients."""
        if not any(wanted):
            return ()
        copied = sum(math.prod(shape) for shape, is_wanted in zip(input_shapes, wanted, strict=True) if is_wanted)
        return (elementwise("concat", batch_size * copied, role=Role.INPUT_GRADIENT),)
