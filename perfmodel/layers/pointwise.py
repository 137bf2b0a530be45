"""What functions of one element share: they read a tensor and write one of the same shape."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from perfmodel.layers.base import Layer
from perfmodel.layers.passes import elementwise
from perfmodel.layers.shapes import Shape, element_count
from perfmodel.records import Operation, Role


@dataclass(frozen=True, kw_only=True)
class Pointwise(Layer):
    """A function of one element; a kind says what it takes and what back-propagation reads besides dy."""

    @property
    @abstractmethod
    def flop_per_element(self) -> tuple[int, int]:
        """Arithmetic per element, forward and backward [FLOP]."""

    @property
    def pass_name(self) -> str:
        """What the passes are called."""
        return self.kind

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the input's shape."""
        return input_shapes[0]

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads x and writes y."""
        elements = element_count(input_shapes[0], batch_size=batch_size)
        return (elementwise(self.pass_name, elements, flop_per_element=self.flop_per_element[0]),)

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads dy and what is kept of x and y, and writes dx."""
        elements = element_count(input_shapes[0], batch_size=batch_size)
        return (
            elementwise(
                self.pass_name,
                elements,
                reads=1 + self.keeps_inputs + self.keeps_output,
                flop_per_element=self.flop_per_element[1],
                role=Role.INPUT_GRADIENT,
            ),
        )
