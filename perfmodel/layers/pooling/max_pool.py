"""Maximum pooling over windows of maps of any number of axes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from perfmodel.layers.pooling.passes import maximum_backward, maximum_forward
from perfmodel.layers.pooling.pooling import Pooling
from perfmodel.layers.shapes import Shape
from perfmodel.records import Operation


@dataclass(frozen=True, kw_only=True)
class MaxPool(Pooling):
    """Maximum over windows of each channel. Options: see ``Pooling``.

    Notes
    -----
    n inputs, o outputs, t taps of all windows together; taps on padding or beyond the map, as ``ceil_mode`` has
    them, are not compared. Forward t - o comparisons; writes the maximum and the index (4 B) of where it was.
    Backward adds each dy at its index (1 FLOP) into a cleared dx, so all n elements are written.
    """

    def saved_index_count(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> Any:
        """Return the positions of the maxima [1]."""
        return batch_size * math.prod(self.output_shape(input_shapes))

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads x and writes y and the indices."""
        inputs, outputs, taps = self._counts(input_shapes, batch_size)
        return (maximum_forward(inputs, outputs=outputs, taps=taps),)

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads dy and the indices and writes dx."""
        inputs, outputs, _ = self._counts(input_shapes, batch_size)
        return (maximum_backward(inputs, outputs=outputs),)
