"""Concatenation of branches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_count
from perfmodel.layers.passes import elementwise
from perfmodel.layers.shapes import Shape, ShapeMismatchError, shape_text
from perfmodel.records import Operation, Role


@final
@dataclass(frozen=True, kw_only=True)
class Concat(Layer):
    """Two or more inputs side by side along one axis; the other axes agree.

    Parameters
    ----------
    axis : int
        Axis of a sample: 0 joins channels of (channels, height, width). [1]

    Notes
    -----
    Copies, forward the inputs into the output, backward each wanted gradient out of it.
    """

    kind: ClassVar[str] = "concat"
    examples: ClassVar[Examples] = (
        ({}, ((4, 9, 9), (4, 9, 9))),
        ({"axis": 1}, ((5, 6), (5, 6))),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("C", "H", "W"), ("D", "H", "W")))
    keeps_inputs: ClassVar[bool] = False
    input_counts: ClassVar[tuple[int, int | None]] = (2, None)
    axis: int = 0

    def __post_init__(self) -> None:
        check_count("axis", self.axis, minimum=0)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the first input's shape with the joined axis summed."""
        first = input_shapes[0]
        others = {(len(shape), shape[: self.axis], shape[self.axis + 1 :]) for shape in input_shapes}
        if self.axis >= len(first) or len(others) > 1:
            shapes = " and ".join(map(shape_text, input_shapes))
            problem = f"joins along axis {self.axis} inputs that agree in all others, but they are {shapes}"
            raise ShapeMismatchError(problem)
        joined = sum(shape[self.axis] for shape in input_shapes)
        return (*first[: self.axis], joined, *first[self.axis + 1 :])

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that copies all inputs."""
        return (elementwise("concat", batch_size * sum(map(math.prod, input_shapes))),)

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that copies all gradients."""
        return self.gradient_operations(input_shapes, batch_size=batch_size, wanted=[True] * len(input_shapes))

    def gradient_operations(
        self, input_shapes: tuple[Shape, ...], *, batch_size: Any, wanted: Sequence[bool]
    ) -> tuple[Operation, ...]:
        """Return one pass that copies the wanted gradients."""
        if not any(wanted):
            return ()
        copied = sum(math.prod(shape) for shape, is_wanted in zip(input_shapes, wanted, strict=True) if is_wanted)
        return (elementwise("concat", batch_size * copied, role=Role.INPUT_GRADIENT),)
