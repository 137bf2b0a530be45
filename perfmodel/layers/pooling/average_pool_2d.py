"""Average pooling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.pooling.pooling_2d import Pooling2d
from perfmodel.layers.shapes import Shape
from perfmodel.records import MemoryPass, Operation, Role


@final
@dataclass(frozen=True, kw_only=True)
class AveragePool2d(Pooling2d):
    """Average over windows of each channel; over the whole map without a kernel. Options: see ``Pooling2d``.

    Notes
    -----
    n inputs, o outputs, t taps of all windows together; taps on padding or beyond the map, as ``ceil_mode`` has
    them, are not added. Forward t - o adds and o divisions. Backward o divisions and t adds; reads dy, writes dx.
    """

    kind: ClassVar[str] = "avg_pool_2d"
    examples: ClassVar[Examples] = (
        ({"kernel_size": 2, "ceil_mode": True}, ((4, 9, 9),)),
        ({"kernel_size": None}, ((4, 9, 9),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"kernel_size": None}, (("C", "H", "W"),))

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads x and writes y."""
        inputs, outputs, taps = self._counts(input_shapes, batch_size)
        return (
            MemoryPass(
                name="avg_pool",
                read_elements=inputs,
                written_elements=outputs,
                tensor_elements=inputs,
                flop_count=taps,
            ),
        )

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads dy and writes dx."""
        inputs, outputs, taps = self._counts(input_shapes, batch_size)
        return (
            MemoryPass(
                name="avg_pool",
                read_elements=outputs,
                written_elements=inputs,
                tensor_elements=inputs,
                flop_count=taps + outputs,
                role=Role.INPUT_GRADIENT,
            ),
        )
