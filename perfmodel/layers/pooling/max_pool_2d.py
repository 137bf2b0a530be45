"""Maximum pooling."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.pooling.pooling_2d import Pooling2d
from perfmodel.layers.shapes import Shape
from perfmodel.records import MemoryPass, Operation, Role

INDEX_BYTES = 4
"""Size of the index of a maximum [B]."""


@final
@dataclass(frozen=True, kw_only=True)
class MaxPool2d(Pooling2d):
    """Maximum over windows of each channel. Options: see ``Pooling2d``.

    Notes
    -----
    n inputs, o outputs, t taps of all windows together; taps on padding or beyond the map, as ``ceil_mode`` has
    them, are not compared. Forward t - o comparisons; writes the maximum and the index (4 B) of where it was.
    Backward adds each dy at its index (1 FLOP) into a cleared dx, so all n elements are written.
    """

    kind: ClassVar[str] = "max_pool_2d"
    examples: ClassVar[Examples] = (({"kernel_size": 3, "stride": 2, "padding": 1}, ((4, 9, 9),)),)
    symbolic_example: ClassVar[SymbolicExample] = ({"kernel_size": 2}, (("C", "H", "W"),))

    def saved_index_count(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> Any:
        """Return the positions of the maxima [1]."""
        return batch_size * math.prod(self.output_shape(input_shapes))

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads x and writes y and the indices."""
        inputs, outputs, taps = self._counts(input_shapes, batch_size)
        return (
            MemoryPass(
                name="max_pool",
                read_elements=inputs,
                written_elements=outputs,
                tensor_elements=inputs,
                flop_count=taps - outputs,
                written_index_bytes=INDEX_BYTES * outputs,
            ),
        )

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads dy and the indices and writes dx."""
        inputs, outputs, _ = self._counts(input_shapes, batch_size)
        return (
            MemoryPass(
                name="max_pool",
                read_elements=outputs,
                written_elements=inputs,
                tensor_elements=inputs,
                flop_count=outputs,
                read_index_bytes=INDEX_BYTES * outputs,
                role=Role.INPUT_GRADIENT,
            ),
        )
