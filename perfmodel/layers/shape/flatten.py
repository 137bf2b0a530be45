"""Flatten a sample to one axis."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.shape.reshape import Reshape
from perfmodel.layers.shapes import Shape
from perfmodel.layers.translation import OperatorCall, Translation, Translator
from perfmodel.records import Operation


def _from_onnx(call: OperatorCall) -> Translation:
    layer = Flatten() if len(call.output.shape) == 1 else Reshape(shape=tuple(call.output.shape))
    return Translation(layer=layer, inputs=(call["0"],))


@final
@dataclass(frozen=True, kw_only=True)
class Flatten(Layer):
    """All axes of a sample as one; a view, which costs nothing in either direction."""

    kind: ClassVar[str] = "flatten"
    examples: ClassVar[Examples] = (({}, ((4, 9, 9),)),)
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("C", "H", "W"),))
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"Flatten": _from_onnx}
    keeps_inputs: ClassVar[bool] = False
    is_view: ClassVar[bool] = True

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return (features,)."""
        return (math.prod(input_shapes[0]),)

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return nothing."""
        del input_shapes, batch_size
        return ()

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return nothing."""
        del input_shapes, batch_size
        return ()
