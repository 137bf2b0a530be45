"""State of a recurrent layer after its last step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_count, is_open_size, refuse
from perfmodel.layers.shapes import SEQUENCE, Shape, ShapeMismatchError, check_rank, shape_text
from perfmodel.records import Operation


@final
@dataclass(frozen=True, kw_only=True)
class RecurrentState(Layer):
    """States h or c after the last step, read off a recurrent layer: the first state of another, or scores.

    Parameters
    ----------
    shape : tuple of int
        (layers x directions, hidden_size), or (hidden_size,). [1]

    Notes
    -----
    A view of what the layer below computes and keeps anyway, so it costs nothing in either direction.
    """

    kind: ClassVar[str] = "recurrent_state"
    examples: ClassVar[Examples] = (({"shape": (4, 7)}, ((5, 14),)),)
    symbolic_example: ClassVar[SymbolicExample] = ({"shape": ("L", "H")}, (("S", "H"),))
    keeps_inputs: ClassVar[bool] = False
    is_view: ClassVar[bool] = True
    shape: Shape

    def __post_init__(self) -> None:
        if not isinstance(self.shape, tuple) or len(self.shape) not in (1, 2):
            refuse("shape", self.shape, "must be (layers, hidden_size) or (hidden_size,)")
        for extent in self.shape:
            check_count("shape", extent)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the shape of the states."""
        check_rank(input_shapes[0], ("features",), SEQUENCE, ("steps", "directions", "features"))
        features, units = input_shapes[0][-1], self.shape[-1]
        if not is_open_size(features) and not is_open_size(units) and features % units:
            problem = f"holds {units} units, which the {features} features of {shape_text(input_shapes[0])} are not"
            raise ShapeMismatchError(problem)
        return self.shape

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return nothing."""
        del input_shapes, batch_size
        return ()

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return nothing."""
        del input_shapes, batch_size
        return ()
