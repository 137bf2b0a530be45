"""Scale and shift by channel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_flag
from perfmodel.layers.shapes import Shape, channel_count
from perfmodel.records import MemoryPass, Operation, Role


@final
@dataclass(frozen=True, kw_only=True)
class Scale(Layer):
    """y = gamma x + beta with one gamma and beta per channel (Caffe keeps it apart from batch norm).

    Parameters
    ----------
    bias : bool
        Whether beta is added. [-]

    Notes
    -----
    Per element: forward a multiply and, with bias, an add. Backward one pass yields all gradients from x and
    dy: dx = gamma dy (1 FLOP), dgamma = sum dy x (2), dbeta = sum dy (1); it carries INPUT_GRADIENT. Where
    the input wants no gradient, dx is neither computed nor written, and the pass carries WEIGHT_GRADIENT.
    """

    kind: ClassVar[str] = "scale"
    examples: ClassVar[Examples] = (
        ({}, ((4, 9, 9),)),
        ({"bias": False}, ((5, 6),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("C", "H", "W"),))
    inputs_serve_weights: ClassVar[bool] = True
    bias: bool = True

    def __post_init__(self) -> None:
        check_flag("bias", self.bias)

    @property
    def _vectors(self) -> int:
        return 1 + self.bias

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the input's shape."""
        return input_shapes[0]

    def parameter_shapes(self, input_shapes: tuple[Shape, ...]) -> dict[str, Shape]:
        """Return gamma and, if any, beta."""
        channels: Shape = (channel_count(input_shapes[0]),)
        return {"gamma": channels, "beta": channels} if self.bias else {"gamma": channels}

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads x and writes y."""
        elements = batch_size * math.prod(input_shapes[0])
        return (
            MemoryPass(
                name="scale",
                read_elements=elements + self._vectors * channel_count(input_shapes[0]),
                written_elements=elements,
                tensor_elements=elements,
                flop_count=self._vectors * elements,
            ),
        )

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that yields the gradients of input and parameters."""
        return self.gradient_operations(input_shapes, batch_size=batch_size, wanted=(True,))

    def gradient_operations(
        self, input_shapes: tuple[Shape, ...], *, batch_size: Any, wanted: Sequence[bool]
    ) -> tuple[Operation, ...]:
        """Return one pass, without dx where it is not wanted."""
        elements = batch_size * math.prod(input_shapes[0])
        channels = channel_count(input_shapes[0])
        for_input = int(any(wanted))
        return (
            MemoryPass(
                name="scale",
                read_elements=2 * elements + for_input * channels,
                written_elements=for_input * elements + self._vectors * channels,
                tensor_elements=elements,
                flop_count=(for_input + 1 + self._vectors) * elements,
                role=Role.INPUT_GRADIENT if for_input else Role.WEIGHT_GRADIENT,
            ),
        )
