"""Rectifier activation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.passes import elementwise
from perfmodel.layers.shapes import Shape
from perfmodel.records import Operation, Role


@final
@dataclass(frozen=True, kw_only=True)
class ReLU(Layer):
    """Rectifier max(x, 0).

    Notes
    -----
    1 FLOP per element forward (a comparison); backward passes dy where y > 0: 1 FLOP, reads dy and y.
    """

    kind: ClassVar[str] = "relu"
    examples: ClassVar[Examples] = (({}, ((4, 9, 9),)),)
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("F",),))
    keeps_inputs: ClassVar[bool] = False
    keeps_output: ClassVar[bool] = True

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the input's shape."""
        return input_shapes[0]

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads x and writes y."""
        elements = batch_size * math.prod(input_shapes[0])
        return (elementwise("relu", elements, flop_per_element=1),)

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads dy and y and writes dx."""
        elements = batch_size * math.prod(input_shapes[0])
        return (elementwise("relu", elements, reads=2, flop_per_element=1, role=Role.INPUT_GRADIENT),)
