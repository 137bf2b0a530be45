"""Average pooling over windows of maps of any number of axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perfmodel.layers.pooling.passes import average_backward, average_forward
from perfmodel.layers.pooling.pooling import Pooling
from perfmodel.layers.shapes import Shape
from perfmodel.records import Operation


@dataclass(frozen=True, kw_only=True)
class AveragePool(Pooling):
    """Average over windows of each channel; over the whole map without a kernel. Options: see ``Pooling``.

    Notes
    -----
    n inputs, o outputs, t taps of all windows together; taps on padding or beyond the map, as ``ceil_mode`` has
    them, are not added. Forward t - o adds and o divisions. Backward o divisions and t adds; reads dy, writes dx.
    """

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads x and writes y."""
        inputs, outputs, taps = self._counts(input_shapes, batch_size)
        return (average_forward(inputs, outputs=outputs, taps=taps),)

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads dy and writes dx."""
        inputs, outputs, taps = self._counts(input_shapes, batch_size)
        return (average_backward(inputs, outputs=outputs, taps=taps),)
