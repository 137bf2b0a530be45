"""A tensor that is given once and never trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_flag, check_shape
from perfmodel.layers.shapes import Shape, SharedShape
from perfmodel.records import Operation


@final
@dataclass(frozen=True, kw_only=True)
class Constant(Layer):
    """A tensor that all samples share and nobody trains, e.g. a table of angles or a mask: no input, no operation.

    Parameters
    ----------
    shape : tuple of int
        Its shape. [1]
    is_index : bool
        Whether it holds whole numbers or truth values. [-]
    """

    kind: ClassVar[str] = "constant"
    examples: ClassVar[Examples] = (({"shape": (5, 6)}, ()),)
    symbolic_example: ClassVar[SymbolicExample] = ({"shape": ("S", "F")}, ())
    input_counts: ClassVar[tuple[int, int | None]] = (0, 0)
    is_view: ClassVar[bool] = True
    shape: Shape
    is_index: bool = False

    def __post_init__(self) -> None:
        check_shape("shape", self.shape)
        check_flag("is_index", self.is_index)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return its shape, shared by all samples."""
        del input_shapes
        return SharedShape(self.shape)

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return nothing."""
        del input_shapes, batch_size
        return ()

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return nothing."""
        del input_shapes, batch_size
        return ()
