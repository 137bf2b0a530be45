"""The mini-batch as one tensor, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_flag, check_shape
from perfmodel.layers.shapes import Shape, SharedShape
from perfmodel.records import Operation


@final
@dataclass(frozen=True, kw_only=True)
class BatchView(Layer):
    """All samples seen as one tensor, as a loss over pairs of samples sees them, or one tensor seen as samples.

    Parameters
    ----------
    shape : tuple of int
        Shape of the whole tensor, or of one sample of it. [1]
    whole : bool
        Whether the output is the whole. [-]

    Notes
    -----
    A view, which costs nothing. The whole's shape holds for one batch size only, and so does the graph.
    """

    kind: ClassVar[str] = "batch_view"
    examples: ClassVar[Examples] = (
        ({"shape": (3, 7)}, ((7,),)),
        ({"shape": (7,), "whole": False}, (SharedShape((3, 7)),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"shape": ("N", "F")}, (("F",),))
    keeps_inputs: ClassVar[bool] = False
    is_view: ClassVar[bool] = True
    shape: Shape
    whole: bool = True

    def __post_init__(self) -> None:
        check_shape("shape", self.shape)
        check_flag("whole", self.whole)

    @property
    def makes_samples(self) -> bool:  # type: ignore[override]  # what is one fact elsewhere follows from an option
        """Whether the output has a part for every sample."""
        return not self.whole

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the shape that was asked for."""
        del input_shapes
        return SharedShape(self.shape) if self.whole else self.shape

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return nothing."""
        del input_shapes, batch_size
        return ()

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return nothing."""
        del input_shapes, batch_size
        return ()
