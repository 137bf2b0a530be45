"""A result that a network returns besides its loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.shapes import Shape
from perfmodel.records import Operation


@final
@dataclass(frozen=True, kw_only=True)
class Output(Layer):
    """A tensor that is handed out: a view that costs nothing, ends a graph and sends no gradient back."""

    kind: ClassVar[str] = "output"
    examples: ClassVar[Examples] = (({}, ((4, 9, 9),)),)
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("F",),))
    index_inputs: ClassVar[tuple[int, ...]] = (0,)
    keeps_inputs: ClassVar[bool] = False
    is_view: ClassVar[bool] = True
    is_metric: ClassVar[bool] = True

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the input's shape."""
        return input_shapes[0]

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return nothing."""
        del input_shapes, batch_size
        return ()

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return nothing."""
        del input_shapes, batch_size
        return ()
