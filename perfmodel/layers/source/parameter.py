"""A trained tensor that other layers read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_shape
from perfmodel.layers.shapes import Shape, SharedShape
from perfmodel.records import Operation


@final
@dataclass(frozen=True, kw_only=True)
class Parameter(Layer):
    """A trained tensor that all samples share, e.g. a class token: no input, no operation.

    Parameters
    ----------
    shape : tuple of int
        Its shape. [1]

    Notes
    -----
    Its gradient is what the layers that read it compute for their input; where several do, it is summed.
    """

    kind: ClassVar[str] = "parameter"
    examples: ClassVar[Examples] = (({"shape": (1, 6)}, ()),)
    symbolic_example: ClassVar[SymbolicExample] = ({"shape": ("S", "F")}, ())
    input_counts: ClassVar[tuple[int, int | None]] = (0, 0)
    is_view: ClassVar[bool] = True
    shape: Shape

    def __post_init__(self) -> None:
        check_shape("shape", self.shape)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return its shape, shared by all samples."""
        del input_shapes
        return SharedShape(self.shape)

    def parameter_shapes(self, input_shapes: tuple[Shape, ...]) -> dict[str, Shape]:
        """Return itself."""
        del input_shapes
        return {"weight": self.shape}

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return nothing."""
        del input_shapes, batch_size
        return ()

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return nothing."""
        del input_shapes, batch_size
        return ()
