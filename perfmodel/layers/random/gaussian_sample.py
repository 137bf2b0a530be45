"""Sampling of a normal distribution whose mean and variance are computed (the reparameterisation)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.passes import elementwise
from perfmodel.layers.shapes import Shape, ShapeMismatchError, shape_text
from perfmodel.records import Operation, Role


@final
@dataclass(frozen=True, kw_only=True)
class GaussianSample(Layer):
    """z = m + exp(v / 2) e with the mean m and the logarithm of the variance v as inputs and e drawn N(0, 1).

    Notes
    -----
    Forward draws e, one element written each, then reads m, v and e and writes z and the standard deviation s:
    multiply, exp, multiply, add: 4 FLOP per element. Backward dm = dz, passed on, and dv = dz s e / 2: 3 FLOP per
    element, reads dz, s and e. Both e and s are kept. Ignores: making the random numbers.

    References
    ----------
    .. [1] Kingma, Welling, Auto-encoding variational Bayes, ICLR 2014, arXiv:1312.6114, section 2.4.
    """

    kind: ClassVar[str] = "gaussian_sample"
    examples: ClassVar[Examples] = (({}, ((10,), (10,))),)
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("F",), ("F",)))
    input_counts: ClassVar[tuple[int, int | None]] = (2, 2)
    keeps_inputs: ClassVar[bool] = False

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the shape of the mean."""
        if tuple(input_shapes[0]) != tuple(input_shapes[1]):
            problem = f"takes two inputs of one shape, but they are {' and '.join(map(shape_text, input_shapes))}"
            raise ShapeMismatchError(problem)
        return tuple(input_shapes[0])

    def saved_bytes(self, input_shapes: tuple[Shape, ...], *, batch_size: Any, element_bytes: int) -> Any:
        """Return the random numbers and standard deviations [B]."""
        return 2 * element_bytes * batch_size * math.prod(input_shapes[0])

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return the drawing, and one pass that makes the sample."""
        elements = batch_size * math.prod(input_shapes[0])
        return (
            elementwise("random_normal", elements, reads=0),
            elementwise("gaussian_sample", elements, reads=3, writes=2, flop_per_element=4),
        )

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that writes the gradient of the variance."""
        return self.gradient_operations(input_shapes, batch_size=batch_size, wanted=(True, True))

    def gradient_operations(
        self, input_shapes: tuple[Shape, ...], *, batch_size: Any, wanted: Sequence[bool]
    ) -> tuple[Operation, ...]:
        """Return it where it is wanted."""
        elements = batch_size * math.prod(input_shapes[0])
        one = elementwise("gaussian_sample", elements, reads=3, flop_per_element=3, role=Role.INPUT_GRADIENT)
        return (one,) if wanted[1] else ()
