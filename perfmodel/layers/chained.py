"""Layers that consist of others, with the operations, parameters and statistics of these."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from perfmodel.layers.base import Layer, LayerByInput, Operations
from perfmodel.layers.shapes import Shape, Shapes

ATTENTION: Final = "attention"
"""Name of the part that is an attention without projections. [-]"""


class Part(NamedTuple):
    """A layer inside another one: its name, the layer, its inputs, and which input of the whole it reads, if any."""

    name: str
    layer: Layer
    input_shapes: Shapes
    reads: int | None = None


@dataclass(frozen=True, kw_only=True)
class ChainedLayer(LayerByInput):
    """A layer that runs others, one after another."""

    @abstractmethod
    def parts(self, input_shapes: Shapes) -> tuple[Part, ...]:
        """Return the layers in the order in which they run; raise ShapeMismatchError for shapes that do not fit."""

    @abstractmethod
    def kept_elements(self, input_shapes: Shapes) -> Any:
        """Elements between the layers that back-propagation reads, of a sample [1]."""

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the shape of x."""
        for part in self.parts(input_shapes):
            part.layer.output_shape(part.input_shapes)
        return input_shapes[0]

    def parameter_shapes(self, input_shapes: Shapes) -> dict[str, Shape]:
        """Return the parameters of all layers, by the name of the layer and their own."""
        return {
            f"{part.name}_{name}": shape
            for part in self.parts(input_shapes)
            for name, shape in part.layer.parameter_shapes(part.input_shapes).items()
        }

    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return the operations of all layers."""
        return tuple(
            operation
            for part in self.parts(input_shapes)
            for operation in part.layer.forward_operations(part.input_shapes, batch_size=batch_size)
        )

    def gradient_operations(self, input_shapes: Shapes, *, batch_size: Any, wanted: Sequence[bool]) -> Operations:
        """Return the gradients of all layers, the last first; of inputs of the whole only where they need one."""
        return tuple(
            operation
            for part in reversed(self.parts(input_shapes))
            for operation in part.layer.gradient_operations(
                part.input_shapes,
                batch_size=batch_size,
                wanted=[part.reads is None or wanted[part.reads]] * len(part.input_shapes),
            )
        )

    def saved_bytes(self, input_shapes: Shapes, *, batch_size: Any, element_bytes: int, **of_attention: Any) -> Any:
        """Return the size of tensors between the layers, and of those that the layers keep [B].

        Further arguments are for the part that is an attention.
        """
        of_parts = sum(
            part.layer.saved_bytes(
                part.input_shapes,
                batch_size=batch_size,
                element_bytes=element_bytes,
                **(of_attention if part.name == ATTENTION else {}),
            )
            for part in self.parts(input_shapes)
        )
        return of_parts + element_bytes * batch_size * self.kept_elements(input_shapes)

    def saved_index_count(self, input_shapes: Shapes, *, batch_size: Any) -> Any:
        """Return the indices that its layers keep [1]."""
        return sum(
            part.layer.saved_index_count(part.input_shapes, batch_size=batch_size) for part in self.parts(input_shapes)
        )
