"""The same elements under another shape."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_shape, is_open_size
from perfmodel.layers.shapes import Shape, ShapeMismatchError, shape_text
from perfmodel.layers.translation import OperatorCall, Translation, Translator
from perfmodel.records import Operation

TORCH_NAMES = (
    "aten.view",
    "aten._unsafe_view",
    "aten._reshape_alias",
    "aten.squeeze",
    "aten.unsqueeze",
    "aten.alias",
    "aten.view_as_complex",
    "aten.view_as_real",
    "aten._conj",
    "aten.lift_fresh",
)
"""Operators of torch that only look at their input in another shape."""
ONNX_NAMES = ("Reshape", "Squeeze", "Unsqueeze", "Identity")
"""The same of ONNX."""


def _from_call(call: OperatorCall) -> Translation:
    return Translation(layer=Reshape(shape=tuple(call.output.shape)), inputs=call.operands[:1])


@final
@dataclass(frozen=True, kw_only=True)
class Reshape(Layer):
    """The elements of a sample in the same order under another shape; a view, which costs nothing either way.

    Parameters
    ----------
    shape : tuple of int
        Shape of an output sample. [1]
    """

    kind: ClassVar[str] = "reshape"
    examples: ClassVar[Examples] = (({"shape": (9, 36)}, ((4, 9, 9),)),)
    symbolic_example: ClassVar[SymbolicExample] = ({"shape": ("F", "S")}, (("S", "F"),))
    torch_operators: ClassVar[Mapping[str, Translator]] = dict.fromkeys(TORCH_NAMES, _from_call)
    onnx_operators: ClassVar[Mapping[str, Translator]] = dict.fromkeys(ONNX_NAMES, _from_call)
    keeps_inputs: ClassVar[bool] = False
    is_view: ClassVar[bool] = True
    shape: Shape

    def __post_init__(self) -> None:
        check_shape("shape", self.shape)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the shape that was asked for."""
        given, asked = math.prod(input_shapes[0]), math.prod(self.shape)
        if given != asked and not is_open_size(given) and not is_open_size(asked):
            problem = (
                f"has samples of {shape_text(self.shape)}, {asked} elements, but its input is "
                f"{shape_text(input_shapes[0])}, {given} elements"
            )
            raise ShapeMismatchError(problem)
        return self.shape

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return nothing."""
        del input_shapes, batch_size
        return ()

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return nothing."""
        del input_shapes, batch_size
        return ()
