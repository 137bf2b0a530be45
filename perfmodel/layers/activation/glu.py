"""Gated linear unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_axis, is_open_size
from perfmodel.layers.shapes import Shape, ShapeMismatchError, SharedShape, axis_in, element_count, shape_text
from perfmodel.layers.translation import OperatorCall, Translation, Translator
from perfmodel.records import MemoryPass, Operation, Role
from perfmodel.symbolic import is_symbolic

FORWARD_FLOP = 5
"""Per element of the output, a s with s = 1 / (1 + exp(-b)): the logistic function's 4, and a product [FLOP]."""
BACKWARD_FLOP = 8
"""Per element of the output: s again, 4; da = dy s; db = da a (1 - s), a subtraction and two products [FLOP]."""


def _from_torch(call: OperatorCall) -> Translation | None:
    place = call["self"].sample_axis(call["dim"])
    return None if place is None else Translation(layer=GLU(axis=place), inputs=(call["self"],))


@final
@dataclass(frozen=True, kw_only=True)
class GLU(Layer):
    """Of two halves along an axis, the first times the logistic function of the second.

    Parameters
    ----------
    axis : int
        Axis of a sample, of an even extent; negative counts from the last. [-]

    Notes
    -----
    Forward 5 FLOP per element of the output, reads x once and writes y. Backward 8 FLOP per element of the output,
    reads dy and x and writes dx: the logistic function is computed again, only x is kept.
    """

    kind: ClassVar[str] = "glu"
    examples: ClassVar[Examples] = (({}, ((10,),)), ({"axis": 0}, ((4, 9, 9),)))
    symbolic_example: ClassVar[SymbolicExample] = ({"axis": 0}, ((2, "F"),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {"aten.glu": _from_torch}
    axis: int = -1

    def __post_init__(self) -> None:
        check_axis("axis", self.axis)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the input's shape with the axis half as long."""
        shape = input_shapes[0]
        place = axis_in(shape, self.axis)
        if not is_open_size(shape[place]) and shape[place] % 2:
            problem = f"takes two halves along axis {self.axis}, but its input is {shape_text(shape)}"
            raise ShapeMismatchError(problem)
        half: Any = shape[place] / 2 if is_symbolic(shape[place]) else shape[place] // 2
        halved = (*shape[:place], half, *shape[place + 1 :])
        return SharedShape(halved) if isinstance(shape, SharedShape) else halved

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads x and writes y."""
        inputs = element_count(input_shapes[0], batch_size=batch_size)
        outputs = element_count(self.output_shape(input_shapes), batch_size=batch_size)
        return (
            MemoryPass(
                name="glu",
                read_elements=inputs,
                written_elements=outputs,
                tensor_elements=outputs,
                flop_count=FORWARD_FLOP * outputs,
            ),
        )

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads dy and x and writes dx."""
        inputs = element_count(input_shapes[0], batch_size=batch_size)
        outputs = element_count(self.output_shape(input_shapes), batch_size=batch_size)
        return (
            MemoryPass(
                name="glu",
                read_elements=inputs + outputs,
                written_elements=inputs,
                tensor_elements=inputs,
                flop_count=BACKWARD_FLOP * outputs,
                role=Role.INPUT_GRADIENT,
            ),
        )
