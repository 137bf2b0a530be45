"""Element-wise sum of branches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.passes import elementwise
from perfmodel.layers.shapes import Shape, ShapeMismatchError, shape_text
from perfmodel.records import Operation


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
    keeps_inputs: ClassVar[bool] = False
    input_counts: ClassVar[tuple[int, int | None]] = (2, None)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the shape that all inputs have."""
        for shape in input_shapes[1:]:
            if shape != input_shapes[0]:
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
