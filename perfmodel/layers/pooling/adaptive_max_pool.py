"""Adaptive maximum pooling."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.pooling.adaptive import AdaptivePooling, adaptive_from_torch
from perfmodel.layers.pooling.passes import maximum_backward, maximum_forward
from perfmodel.layers.shapes import Shape
from perfmodel.layers.translation import OperatorCall, Translation, Translator
from perfmodel.records import Operation


def _from_torch(call: OperatorCall, *, axis_count: int) -> Translation | None:
    return adaptive_from_torch(call, AdaptiveMaxPool, axis_count=axis_count)


@final
@dataclass(frozen=True, kw_only=True)
class AdaptiveMaxPool(AdaptivePooling):
    """Maximum over so many parts of each map. Options: see ``AdaptivePooling``.

    Notes
    -----
    n inputs, o outputs, t elements of all parts. Forward t - o comparisons; writes the maximum and its index (4 B).
    Backward adds each dy at its index (1 FLOP) into a cleared dx.
    """

    kind: ClassVar[str] = "adaptive_max_pool"
    examples: ClassVar[Examples] = (
        ({"output_size": 3}, ((4, 9, 7),)),
        ({"output_size": (5,)}, ((2, 4, 12),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"output_size": 1}, (("C", "H", "W"),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.adaptive_max_pool1d": partial(_from_torch, axis_count=1),
        "aten.adaptive_max_pool2d": partial(_from_torch, axis_count=2),
        "aten.adaptive_max_pool3d": partial(_from_torch, axis_count=3),
    }

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
