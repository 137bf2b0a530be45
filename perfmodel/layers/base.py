"""The contract every layer fulfils: output shape, parameters, neutral operations and Work per phase."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import reduce
from operator import add
from typing import Any, ClassVar

from perfmodel.errors import PerfmodelError
from perfmodel.records import ELEMENT_BYTES, Operation, Phase, Role, Work

Shape = tuple[int, ...]
"""Shape of one sample: ``(features,)``, ``(channels, height, width)``, ``(steps,)`` or ``(steps,
features)``."""


class ShapeMismatchError(PerfmodelError, ValueError):
    """A layer cannot take shapes it was offered; a graph turns it into a ShapeError that names the layer.

    Parameters
    ----------
    problem : str
        What does not fit, with the shapes and what is allowed. [-]
    """

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(problem)


@dataclass(frozen=True, kw_only=True)
class Layer(ABC):
    """One layer kind: a final class per file, knowing neither hardware nor framework.

    Shapes are those of one sample; ``batch_size`` may be a number, an array or a symbol, every count is exact
    for it, and every count is affine in it (c0 + c1 N).

    A layer file states ``kind``, ``output_shape``, ``forward_operations`` and ``backward_operations``, and,
    where they differ from the defaults here, ``parameter_shapes``, ``saved_bytes``, ``label_bytes`` and
    ``gradient_operations``.
    """

    kind: ClassVar[str]
    input_count: ClassVar[int | None] = 1
    """How many inputs the layer joins; None for two or more [1]."""
    first_input_differentiable: ClassVar[bool] = True
    """False where the input is an index (embedding), which has no gradient [-]."""
    is_view: ClassVar[bool] = False
    """True where the output is the input's memory under another shape (flatten): no operation, no copy
    [-]."""
    is_loss: ClassVar[bool] = False
    """True where the output is what training minimises: back-propagation starts here [-]."""
    is_metric: ClassVar[bool] = False
    """True where the output is only looked at: neither minimised nor read by another layer [-]."""

    @abstractmethod
    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the shape of one output sample; raise ShapeMismatchError for shapes that do not fit."""

    @abstractmethod
    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return what computes the output of ``batch_size`` [samples], in order."""

    @abstractmethod
    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return what computes all gradients from the output's, in order, each with its role.

        INPUT_GRADIENT marks what is only needed where the input wants a gradient, WEIGHT_GRADIENT the rest.
        """

    def gradient_operations(
        self, input_shapes: tuple[Shape, ...], *, batch_size: Any, wanted: Sequence[bool]
    ) -> tuple[Operation, ...]:
        """Return the backward operations that are left where only the ``wanted`` inputs need a gradient.

        All of them where any input does, else those without the role INPUT_GRADIENT. Layers in which one pass
        serves both gradients say here what remains of it.
        """
        operations = self.backward_operations(input_shapes, batch_size=batch_size)
        if any(wanted):
            return operations
        return tuple(operation for operation in operations if operation.role is not Role.INPUT_GRADIENT)

    def parameter_shapes(self, input_shapes: tuple[Shape, ...]) -> dict[str, Shape]:
        """Return the trainable parameters by name; none unless a layer says otherwise."""
        del input_shapes
        return {}

    def saved_bytes(self, input_shapes: tuple[Shape, ...], *, batch_size: Any, element_bytes: int) -> Any:
        """Return bytes kept for back-propagation besides the layer's inputs and output, e.g. a mask [B]."""
        del input_shapes, batch_size, element_bytes
        return 0

    def label_bytes(self, input_shapes: tuple[Shape, ...]) -> int:
        """Return bytes of labels one sample needs; zero unless the layer is a loss [B/sample]."""
        del input_shapes
        return 0

    def parameter_count(self, input_shapes: tuple[Shape, ...]) -> int:
        """Return the number of trainable parameters [1]."""
        return sum(math.prod(shape) for shape in self.parameter_shapes(input_shapes).values())

    def operations(
        self, input_shapes: tuple[Shape, ...], *, batch_size: Any, phase: Phase | str
    ) -> tuple[Operation, ...]:
        """Return the neutral operations of ``phase`` for ``batch_size`` [samples]; an update is no layer's.

        Examples
        --------
        >>> from perfmodel.layers import ReLU
        >>> [operation.name for operation in ReLU().operations(((10,),), batch_size=2, phase="forward")]
        ['relu']
        """
        parts = {Phase.FORWARD: self.forward_operations, Phase.BACKWARD: self.backward_operations}
        return tuple(
            operation
            for part in Phase(phase).parts
            if part in parts
            for operation in parts[part](input_shapes, batch_size=batch_size)
        )

    def work(
        self, input_shapes: tuple[Shape, ...], *, batch_size: Any, phase: Phase | str, dtype: str = "fp32"
    ) -> Work:
        """Return FLOP and bytes of ``phase`` for ``batch_size`` [samples]; the sum over the operations."""
        element_bytes = ELEMENT_BYTES[dtype]
        operations = self.operations(input_shapes, batch_size=batch_size, phase=phase)
        return reduce(add, (operation.work(element_bytes=element_bytes) for operation in operations), Work())

    def options(self) -> dict[str, Any]:
        """Return the constructor arguments, for a graph file."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def shape_text(shape: Shape) -> str:
    """Return a sample's shape as people write it.

    Examples
    --------
    >>> shape_text((3, 224, 224)), shape_text(())
    ('3x224x224', 'scalar')
    """
    return "x".join(map(str, shape)) or "scalar"


def check_rank(shape: Shape, *layouts: Sequence[str]) -> None:
    """Raise ShapeMismatchError unless a sample has as many axes as one of the layouts.

    Examples
    --------
    >>> check_rank((3, 224, 224), ("channels", "height", "width"))
    """
    if len(shape) not in [len(layout) for layout in layouts]:
        allowed = " or ".join(f"({', '.join(layout)})" for layout in layouts)
        problem = f"takes samples of shape {allowed}, but its input is {shape_text(shape)}"
        raise ShapeMismatchError(problem)


IMAGE = ("channels", "height", "width")
SEQUENCE = ("steps", "features")


def channel_count(shape: Shape) -> int:
    """Return the channels of a sample [1]: the first of (channels, height, width), else the last axis.

    Examples
    --------
    >>> channel_count((64, 56, 56)), channel_count((1000,)), channel_count((32, 256))
    (64, 1000, 256)
    """
    return shape[0] if len(shape) == len(IMAGE) else shape[-1]
