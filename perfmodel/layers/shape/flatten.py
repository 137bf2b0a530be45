"""Flatten a sample to one axis."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.shapes import Shape
from perfmodel.records import Operation


@final
@dataclass(frozen=True, kw_only=True)
class Flatten(Layer):
    """All axes of a sample as one; a view, which costs nothing in either direction."""

    kind: ClassVar[str] = "flatten"
    examples: ClassVar[Examples] = (({}, ((4, 9, 9),)),)
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("C", "H", "W"),))
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
