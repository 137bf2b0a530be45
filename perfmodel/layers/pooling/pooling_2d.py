"""What the poolings share: options, the window that slides over a map, and the counts it leads to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

from perfmodel.layers.base import Layer
from perfmodel.layers.checks import refuse
from perfmodel.layers.shapes import IMAGE, Shape, check_rank
from perfmodel.layers.window import Padding, Pair, Size, Window


@dataclass(frozen=True, kw_only=True)
class Pooling2d(Layer):
    """One number for each window of each channel; a kind of pooling says which, and what that takes.

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
    """

    kernel_size: Size | None
    stride: Size | None = None
    padding: Padding = "valid"
    ceil_mode: bool = False

    def __post_init__(self) -> None:
        window = self.window((1, 1))
        if self.kernel_size is None and (self.stride is not None or self.padding not in (0, "valid") or self.ceil_mode):
            allowed = "must be given where stride, padding or ceil_mode are; None pools the whole map"
            refuse("kernel_size", None, allowed)
        if isinstance(window.padding, tuple):
            for zeros, extent in zip(window.padding, window.kernel_size, strict=True):
                if max(zeros) >= extent:
                    allowed = f"must be smaller than the kernel ({extent}), or a window could see nothing but padding"
                    refuse("padding", self.padding, allowed)

    def window(self, map_size: Shape) -> Window:
        """Return the window that slides over a map of (height, width).

        It is the whole map without a kernel, and steps by its own extent without a stride.

        Examples
        --------
        >>> from perfmodel.layers import MaxPool2d
        >>> MaxPool2d(kernel_size=None).window((7, 7)).output_size((7, 7))
        (1, 1)
        """
        if self.kernel_size is None:
            return Window.of(kernel_size=cast("Pair", tuple(map_size)), stride=1, padding="valid")
        return Window.of(
            kernel_size=self.kernel_size,
            stride=self.kernel_size if self.stride is None else self.stride,
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
