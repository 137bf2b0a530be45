"""A copy of a tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.passes import elementwise
from perfmodel.layers.shapes import Shape, element_count
from perfmodel.records import Operation


@final
@dataclass(frozen=True, kw_only=True)
class Copy(Layer):
    """The same elements in memory of their own: a clone, a change of layout or of data type.

    Notes
    -----
    Forward reads and writes every element once. Backward does nothing: dy is passed on.
    """

    kind: ClassVar[str] = "copy"
    examples: ClassVar[Examples] = (({}, ((4, 9, 9),)),)
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("F",),))
    keeps_inputs: ClassVar[bool] = False

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the input's shape."""
        return input_shapes[0]

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads x and writes y."""
        return (elementwise("copy", element_count(input_shapes[0], batch_size=batch_size)),)

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return nothing."""
        del input_shapes, batch_size
        return ()
