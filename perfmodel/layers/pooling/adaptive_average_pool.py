"""Adaptive average pooling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.pooling.adaptive import AdaptivePooling, adaptive_from_torch
from perfmodel.layers.pooling.passes import average_backward, average_forward
from perfmodel.layers.shapes import Shape
from perfmodel.layers.translation import OperatorCall, Translation, Translator
from perfmodel.records import Operation


def _from_torch(call: OperatorCall, *, axis_count: int) -> Translation | None:
    return adaptive_from_torch(call, AdaptiveAveragePool, axis_count=axis_count)


@final
@dataclass(frozen=True, kw_only=True)
class AdaptiveAveragePool(AdaptivePooling):
    """Average over so many parts of each map. Options: see ``AdaptivePooling``.

    Notes
    -----
    n inputs, o outputs, t elements of all parts. Forward t - o adds and o divisions; backward o divisions and t adds.
    """

    kind: ClassVar[str] = "adaptive_avg_pool"
    examples: ClassVar[Examples] = (
        ({"output_size": 3}, ((4, 9, 7),)),
        ({"output_size": (5,)}, ((2, 4, 12),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"output_size": 1}, (("C", "H", "W"),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.adaptive_avg_pool1d": partial(_from_torch, axis_count=1),
        "aten._adaptive_avg_pool2d": partial(_from_torch, axis_count=2),
        "aten._adaptive_avg_pool3d": partial(_from_torch, axis_count=3),
    }

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads x and writes y."""
        inputs, outputs, taps = self._counts(input_shapes, batch_size)
        return (average_forward(inputs, outputs=outputs, taps=taps),)

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads dy and writes dx."""
        inputs, outputs, taps = self._counts(input_shapes, batch_size)
        return (average_backward(inputs, outputs=outputs, taps=taps),)
