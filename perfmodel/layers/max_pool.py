"""Maximum pooling."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import IMAGE, Layer, Shape, check_rank
from perfmodel.layers.window import Padding, Size, Window, check_pooling, pooling_window
from perfmodel.records import MemoryPass, Operation, Role

INDEX_BYTES = 4
"""Size of the index of a maximum [B]."""


@final
@dataclass(frozen=True, kw_only=True)
class MaxPool2d(Layer):
    """Maximum over windows of each channel.

    Parameters
    ----------
    kernel_size : int, tuple of int or None
        Extent of a window, for both dimensions or by (height, width); None for the whole map. [1]
    stride : int, tuple of int or None
        Step between windows; None for the kernel's extent. [1]
    padding : str, int or tuple
        ``valid``, ``same`` (as TensorFlow), zeros on each side, or ((top, bottom), (left, right)). [-]
    ceil_mode : bool
        Whether a last window that overhangs the map counts (Caffe), or not (floor). [-]

    Notes
    -----
    n inputs, o outputs, t taps of all windows together; taps on padding or beyond the map, as ``ceil_mode`` has
    them, are not compared. Forward t - o comparisons; writes the maximum and the
    index (4 B) of where it was. Backward adds each dy at its index (1 FLOP) into a cleared dx, so all n
    elements are written.
    """

    kind: ClassVar[str] = "max_pool_2d"
    kernel_size: Size | None
    stride: Size | None = None
    padding: Padding = "valid"
    ceil_mode: bool = False

    def __post_init__(self) -> None:
        check_pooling(kernel_size=self.kernel_size, stride=self.stride, padding=self.padding, ceil_mode=self.ceil_mode)

    def window(self, map_size: Shape) -> Window:
        """Return the window that slides over a map of (height, width)."""
        return pooling_window(
            map_size,
            kernel_size=self.kernel_size,
            stride=self.stride,
            padding=self.padding,
            ceil_mode=self.ceil_mode,
        )

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return (channels, height, width)."""
        check_rank(input_shapes[0], IMAGE)
        channels, *map_size = input_shapes[0]
        return (channels, *self.window(tuple(map_size)).output_size(tuple(map_size)))

    def _counts(self, input_shapes: tuple[Shape, ...], batch_size: Any) -> tuple[Any, Any, Any]:
        """Return elements of input and output, and taps of all windows that lie on the map."""
        channels, *map_size = input_shapes[0]
        taps = channels * self.window(tuple(map_size)).taps_inside(tuple(map_size))
        outputs = math.prod(self.output_shape(input_shapes))
        return batch_size * math.prod(input_shapes[0]), batch_size * outputs, batch_size * taps

    def saved_bytes(self, input_shapes: tuple[Shape, ...], *, batch_size: Any, element_bytes: int) -> Any:
        """Return the indices of the maxima [B]."""
        del element_bytes
        return INDEX_BYTES * batch_size * math.prod(self.output_shape(input_shapes))

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
