"""A tensor of which a part was written in place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.passes import elementwise
from perfmodel.layers.shapes import Shape, element_count
from perfmodel.records import Operation, Role


@final
@dataclass(frozen=True, kw_only=True)
class Overwrite(Layer):
    """Input 0 after input 1, a view of it, was written: the same memory with a new part.

    Notes
    -----
    Forward does nothing: what wrote the part is a layer of its own. Backward hands the part's gradient on as a view of
    dy; the gradient of the rest is dy with the part cleared, a copy and a fill.
    """

    kind: ClassVar[str] = "overwrite"
    examples: ClassVar[Examples] = (({}, ((4, 9), (2, 9))),)
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("S", "F"), ("P", "F")))
    input_counts: ClassVar[tuple[int, int | None]] = (2, 2)
    keeps_inputs: ClassVar[bool] = False
    is_view: ClassVar[bool] = True

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the shape of the whole."""
        return input_shapes[0]

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return nothing."""
        del input_shapes, batch_size
        return ()

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return the copy of dy with the part cleared."""
        elements = element_count(input_shapes[0], batch_size=batch_size)
        return (elementwise("overwrite", elements, role=Role.INPUT_GRADIENT),)
