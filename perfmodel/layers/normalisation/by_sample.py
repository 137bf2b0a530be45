"""What normalisations within a sample share: groups of elements, their statistics, gamma and beta."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from perfmodel.layers.base import Layer
from perfmodel.layers.checks import check_flag
from perfmodel.layers.shapes import Shape, element_count
from perfmodel.records import MemoryPass, Operation, Role


@dataclass(frozen=True, kw_only=True)
class SampleNorm(Layer):
    """Normalise groups of elements of each sample, then scale and shift.

    Parameters
    ----------
    affine : bool
        Whether gamma follows, and beta with it unless the kind says otherwise. [-]

    Notes
    -----
    x^ is the normalised x; c is 1 where the mean is subtracted and 0 where not, a and b are 1 with gamma and with beta.
    Forward reads x twice and writes y: per element 2 + c FLOP for the sums of x^2 and x, 1 + c to normalise, a + b.
    Backward to the input reads x and dy for the sums of dy gamma x^ and dy gamma, and again for dx: 1 + c for x^ and a
    for dy gamma each time, 2 + c for the sums, 3 + c for dx: 7 + 4 c + 2 a FLOP. Backward to gamma and beta is a pass
    of its own that reads x and dy: 3 + c + b FLOP. Ignores: the handful of operations per group; groups short enough
    to stay in a cache between two reads.
    """

    centred: ClassVar[bool] = True
    affine: bool = True

    def __post_init__(self) -> None:
        check_flag("affine", self.affine)

    @property
    def has_shift(self) -> bool:
        """Whether beta is added."""
        return self.affine

    @abstractmethod
    def _vector_shape(self, shape: Shape) -> Shape:
        """Return the shape of gamma [1]; refuse samples that do not fit."""

    @abstractmethod
    def _group_shape(self, shape: Shape) -> Shape:
        """Return a shape with one element for each group of a sample [1]."""

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the input's shape."""
        self._vector_shape(input_shapes[0])
        return input_shapes[0]

    def parameter_shapes(self, input_shapes: tuple[Shape, ...]) -> dict[str, Shape]:
        """Return gamma and beta, if any."""
        vector = self._vector_shape(input_shapes[0])
        names = ("gamma",) * self.affine + ("beta",) * self.has_shift
        return dict.fromkeys(names, vector)

    def _statistics(self, shape: Shape, batch_size: Any) -> Any:
        """Return the elements of mean and inverse standard deviation of all groups [1]."""
        return (1 + self.centred) * element_count(self._group_shape(shape), batch_size=batch_size)

    def _vector_elements(self, shape: Shape) -> Any:
        return math.prod(self._vector_shape(shape))

    def saved_bytes(self, input_shapes: tuple[Shape, ...], *, batch_size: Any, element_bytes: int) -> Any:
        """Return the statistics of each group [B]."""
        return element_bytes * self._statistics(input_shapes[0], batch_size)

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads x twice and writes y and the statistics."""
        shape = input_shapes[0]
        elements = element_count(shape, batch_size=batch_size)
        vectors = self.affine + self.has_shift
        return (
            MemoryPass(
                name=self.kind,
                read_elements=2 * elements + vectors * self._vector_elements(shape),
                written_elements=elements + self._statistics(shape, batch_size),
                tensor_elements=elements,
                flop_count=(3 + 2 * self.centred + vectors) * elements,
            ),
        )

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return the pass that yields dx, and the one that yields the gradients of gamma and beta."""
        shape = input_shapes[0]
        elements = element_count(shape, batch_size=batch_size)
        statistics = self._statistics(shape, batch_size)
        vector = self._vector_elements(shape)
        to_input = MemoryPass(
            name=self.kind,
            read_elements=4 * elements + statistics + int(self.affine) * vector,
            written_elements=elements,
            tensor_elements=elements,
            flop_count=(7 + 4 * self.centred + 2 * self.affine) * elements,
            role=Role.INPUT_GRADIENT,
        )
        if not self.affine:
            return (to_input,)
        to_parameters = MemoryPass(
            name=self.kind,
            read_elements=2 * elements + statistics,
            written_elements=(1 + self.has_shift) * vector,
            tensor_elements=elements,
            flop_count=(3 + self.centred + self.has_shift) * elements,
            role=Role.WEIGHT_GRADIENT,
        )
        return (to_input, to_parameters)
