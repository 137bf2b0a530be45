"""Axes in another order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_axes, check_flag, refuse
from perfmodel.layers.passes import elementwise
from perfmodel.layers.shapes import Shape, ShapeMismatchError, element_count, shape_text
from perfmodel.layers.translation import Operand, OperatorCall, Translation, Translator
from perfmodel.records import Operation, Role


def _ordered(x: Operand, order: Sequence[int], *, copies: bool) -> Translation:
    """Return the order of a sample's axes that an order of the whole tensor's leaves."""
    places = [x.sample_axis(axis) for axis in order]
    axes = tuple(place for place in places if place is not None)
    axes = (*axes, len(x.shape) - 1) if x.is_complex else axes
    moves = copies and axes != tuple(range(len(axes)))
    return Translation(layer=Transpose(axes=axes, copies=moves), inputs=(x,))


def _permuted(call: OperatorCall) -> Translation:
    return _ordered(call["self"], call["dims"], copies=False)


def _exchanged(call: OperatorCall) -> Translation:
    x = call["self"]
    order = list(range(len(x.axes)))
    if len(order) > 1:
        first, second = call.get("dim0", 0), call.get("dim1", 1)
        order[first], order[second] = order[second], order[first]
    return _ordered(x, order, copies=False)


def _from_onnx(call: OperatorCall) -> Translation:
    x = call["0"]
    return _ordered(x, call.get("perm") or tuple(reversed(range(len(x.axes)))), copies=True)


@final
@dataclass(frozen=True, kw_only=True)
class Transpose(Layer):
    """The axes of a sample in another order.

    Parameters
    ----------
    axes : tuple of int
        For each axis of the output, the axis of the input it is. [-]
    copies : bool
        Whether the elements are moved; otherwise the output is a view. [-]

    Notes
    -----
    A copy reads and writes every element once in either direction; a view costs nothing.
    """

    kind: ClassVar[str] = "transpose"
    examples: ClassVar[Examples] = (
        ({"axes": (1, 2, 0)}, ((4, 9, 8),)),
        ({"axes": (1, 0), "copies": True}, ((5, 6),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"axes": (1, 0), "copies": True}, (("S", "F"),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.permute": _permuted,
        "aten.transpose": _exchanged,
        "aten.t": _exchanged,
    }
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"Transpose": _from_onnx}
    keeps_inputs: ClassVar[bool] = False
    axes: tuple[int, ...]
    copies: bool = False

    def __post_init__(self) -> None:
        check_axes("axes", self.axes)
        check_flag("copies", self.copies)
        if sorted(self.axes) != list(range(len(self.axes))):
            refuse("axes", self.axes, f"must name each of the {len(self.axes)} axes once, from 0")

    @property
    def is_view(self) -> bool:  # type: ignore[override]  # what is one fact elsewhere follows from an option
        """Whether nothing is moved."""
        return not self.copies

    @property
    def turns_axes(self) -> bool:  # type: ignore[override]  # as above
        """Whether axes change their order without a copy."""
        return not self.copies and self.axes != tuple(range(len(self.axes)))

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the extents in their new order."""
        if len(input_shapes[0]) != len(self.axes):
            problem = f"orders {len(self.axes)} axes, but its input is {shape_text(input_shapes[0])}"
            raise ShapeMismatchError(problem)
        return tuple(input_shapes[0][axis] for axis in self.axes)

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that moves all elements, or nothing."""
        elements = element_count(input_shapes[0], batch_size=batch_size)
        return (elementwise("transpose", elements),) if self.copies else ()

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that moves them back, or nothing."""
        elements = element_count(input_shapes[0], batch_size=batch_size)
        return (elementwise("transpose", elements, role=Role.INPUT_GRADIENT),) if self.copies else ()
