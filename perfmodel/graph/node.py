"""One layer of a graph: its inputs, the owner of its parameters, and the shapes that follow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from perfmodel.derived import derived_property
from perfmodel.errors import ShapeError
from perfmodel.layers import Layer, Shape, ShapeMismatchError, SharedShape
from perfmodel.layers.attention import SoftmaxTypes
from perfmodel.layers.checks import is_open_size
from perfmodel.layers.shapes import shape_text
from perfmodel.records import WeightFormat, weight_bytes

INDEX_BYTES = 4
"""Size of an index unless a framework states another [B]."""

ParameterName = tuple[str, str]
"""Name of a layer, and of one of its parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Use of a layer by a graph: shared or frozen parameters, regions that run again, and the storage of weights."""

    shared_parameters: Mapping[str, ParameterName] = field(default_factory=dict)
    is_trained: bool = True
    frozen_parameters: tuple[str, ...] = ()
    in_place: bool | None = None
    recomputed_in: str | None = None
    reruns_all: bool | None = False
    """Whether all of the region runs again; None: as far as the framework runs a block again."""
    keeps_result: bool = False
    weight_dtype: str | None = None
    density: float = 1.0
    sparsity: str | None = None

    @property
    def weight_format(self) -> WeightFormat | None:
        """Storage format of the weights of its products; None if dense and in the network's data type."""
        if self.weight_dtype is None and self.sparsity is None:
            return None
        return WeightFormat(dtype=self.weight_dtype, density=self.density, sparsity=self.sparsity)

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of ``LayerGraph.add`` that differ from their defaults."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        default = Usage()
        return {name: value for name, value in values.items() if value != getattr(default, name)}


@dataclass(frozen=True)
class Node:
    """One layer of a graph, with its inputs and the shapes that follow.

    Parameters
    ----------
    name : str
        Name in the graph. [-]
    layer : Layer
        What it computes. [-]
    input_names : tuple of str
        Layers or graph inputs it reads, in order. [-]
    input_shapes : tuple of tuple of int
        Sample shape of each; a SharedShape where all samples share it. [1]
    output_shape : tuple of int
        Sample shape of its output. [1]
    usage : Usage
        Whose parameters it uses, and whether they are trained. [-]
    """

    name: str
    layer: Layer
    input_names: tuple[str, ...]
    input_shapes: tuple[Shape, ...]
    output_shape: Shape
    usage: Usage = field(default_factory=Usage)

    @classmethod
    def of(
        cls, name: str, layer: Layer, *, input_names: tuple[str, ...], input_shapes: tuple[Shape, ...], usage: Usage
    ) -> Node:
        """Return a layer of a graph, with the shape of its output."""
        fewest, most = layer.input_counts
        input_count = len(input_shapes)
        if input_count < fewest or (most is not None and input_count > most):
            allowed = f"{fewest}" if most == fewest else f"{fewest} or more" if most is None else f"{fewest} to {most}"
            shapes = ", ".join(map(shape_text, input_shapes)) or "none"
            raise ShapeError(name, f"takes {allowed} input(s), but {input_count} are given (shapes: {shapes})")
        try:
            output_shape = layer.output_shape(input_shapes)
        except ShapeMismatchError as error:
            raise ShapeError(name, error.problem) from error
        all_shared = bool(input_shapes) and all(isinstance(shape, SharedShape) for shape in input_shapes)
        if all_shared and not layer.makes_samples:
            output_shape = SharedShape(output_shape)
        return cls(name, layer, input_names, input_shapes, output_shape, usage)

    @derived_property
    def is_shared(self) -> bool:
        """Whether it runs once per step for any batch size, because none of its tensors belongs to a sample."""
        return all(isinstance(shape, SharedShape) for shape in (*self.input_shapes, self.output_shape))

    def runs(self, batch_size: Any) -> Any:
        """Return the samples it computes in a mini-batch of ``batch_size`` [samples]: one if all samples share it."""
        return 1 if self.is_shared else batch_size

    def into(self, wanted: Mapping[str, bool]) -> list[bool]:
        """Return for each input whether its gradient is computed: needed, and able to flow back through the layer."""
        return [flow and wanted[name] for name, flow in self._flows]

    @derived_property
    def _flows(self) -> list[tuple[str, bool]]:
        """Each input, and whether a gradient can flow back to it."""
        return list(zip(self.input_names, self.layer.differentiable(len(self.input_names)), strict=True))

    @property
    def output_elements(self) -> int:
        """Elements of one output sample [1]."""
        return math.prod(self.output_shape)

    @derived_property
    def parameter_shapes(self) -> dict[str, Shape]:
        """Shapes of the parameters that are this layer's own [1]."""
        shapes = self.layer.parameter_shapes(self.input_shapes)
        return {name: shape for name, shape in shapes.items() if name not in self.usage.shared_parameters}

    @derived_property
    def parameter_count(self) -> int:
        """Parameters that are this layer's own [1]."""
        return sum(map(math.prod, self.parameter_shapes.values()))

    @derived_property
    def trained_shapes(self) -> dict[str, Shape]:
        """Shapes of the parameters it uses that need gradients, its own or another layer's [1]."""
        shapes = self.layer.parameter_shapes(self.input_shapes) if self.usage.is_trained else {}
        return {name: shape for name, shape in shapes.items() if name not in self.usage.frozen_parameters}

    @derived_property
    def trained_parameter_count(self) -> int:
        """Parameters that are this layer's own and need gradients [1]."""
        return sum(map(math.prod, self.updated_shapes))

    @derived_property
    def updated_shapes(self) -> tuple[Shape, ...]:
        """Shapes of the parameters that are this layer's own and need gradients [1]."""
        parameters = self.parameter_shapes
        return tuple(shape for name, shape in self.trained_shapes.items() if name in parameters)

    @derived_property
    def trained_shared_count(self) -> int:
        """Parameters that are another layer's and need gradients here [1]."""
        shared = self.usage.shared_parameters
        return sum(math.prod(shape) for name, shape in self.trained_shapes.items() if name in shared)

    @derived_property
    def trains_weights(self) -> bool:
        """Whether gradients are needed for the parameters with the most axes: weights rather than biases."""
        axis_counts = [len(shape) for shape in self.layer.parameter_shapes(self.input_shapes).values()]
        return any(len(shape) == max(axis_counts) for shape in self.trained_shapes.values())

    @derived_property
    def packed_count(self) -> int:
        """Its own parameters with a packed storage format: those of two axes or more [1]."""
        if self.usage.weight_format is None:
            return 0
        return sum(math.prod(shape) for shape in self.parameter_shapes.values() if len(shape) > 1)

    @derived_property
    def nonzero_count(self) -> int:
        """Its own parameters after pruning [1]."""
        lost: Any = (1 - self.usage.density) * self.packed_count
        count: int = self.parameter_count - (lost if is_open_size(lost) else round(float(lost)))
        return count

    def stored_bytes(self, *, element_bytes: int) -> Any:
        """Return the bytes of the parameters that are this layer's own, as they are stored. [B]"""
        dense = element_bytes * (self.parameter_count - self.packed_count)
        return dense + weight_bytes(self.packed_count, self.usage.weight_format, element_bytes=element_bytes)

    def saved_bytes(
        self,
        *,
        batch_size: Any,
        element_bytes: int,
        index_bytes: int = INDEX_BYTES,
        softmax: SoftmaxTypes | None = None,
    ) -> Any:
        """Return bytes kept for back-propagation besides inputs and output. [B]

        ``softmax`` is given only for attention whose softmax computes in another type.
        """
        runs = self.runs(batch_size)
        how: dict[str, Any] = {"batch_size": runs, "element_bytes": element_bytes}
        how |= {} if softmax is None else {"softmax": softmax}
        indices = self.layer.saved_index_count(self.input_shapes, batch_size=runs)
        saved = self.layer.saved_bytes(self.input_shapes, **how)
        return saved + index_bytes * indices
