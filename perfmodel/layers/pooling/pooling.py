"""What the poolings over windows share: options, the window that slides over a map, and the counts it leads to."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from perfmodel.layers.base import Layer
from perfmodel.layers.checks import is_open_size, refuse
from perfmodel.layers.shapes import Shape
from perfmodel.layers.translation import OperatorCall, Translation
from perfmodel.layers.window import Padding, Size, Window, check_map
from perfmodel.layers.window_operators import holds_maps, onnx_window_options, torch_pooling_options


@dataclass(frozen=True, kw_only=True)
class Pooling(Layer):
    """One number for each window of each channel; a kind of pooling says which, and what that takes.

    Parameters
    ----------
    kernel_size : int, tuple of int or None
        Taps of a window, for all axes of the map or by axis, e.g. (height, width); None for the whole map. [1]
    stride : int, tuple of int or None
        Step between windows; None for the kernel's extent. [1]
    padding : str, int or tuple
        ``valid``, ``same`` (as TensorFlow), zeros on each side, or (before, after) for each axis, e.g.
        ((top, bottom), (left, right)). [-]
    dilation : int or tuple of int
        Step between taps. [1]
    ceil_mode : bool
        Whether a last window that overhangs the map counts (Caffe), or not (floor). [-]
    """

    kernel_size: Size | None
    stride: Size | None = None
    padding: Padding = "valid"
    dilation: Size = 1
    ceil_mode: bool = False

    def __post_init__(self) -> None:
        window = self.window((1,) * self.axis_count)
        is_padded = self.padding not in (0, "valid")
        if self.kernel_size is None and (self.stride is not None or is_padded or self.ceil_mode or self.dilation != 1):
            allowed = "must be given where stride, padding, dilation or ceil_mode are; None pools the whole map"
            refuse("kernel_size", None, allowed)
        if (is_padded or self.ceil_mode) and any(map(is_open_size, window.kernel_size)):
            refuse("kernel_size", self.kernel_size, "must be a number where padding or ceil_mode are given")
        if isinstance(window.padding, tuple):
            for zeros, extent in zip(window.padding, window.extent, strict=True):
                if any(not is_open_size(each) and not is_open_size(extent) and each >= extent for each in zeros):
                    allowed = f"must be smaller than the kernel ({extent}), or a window could see nothing but padding"
                    refuse("padding", self.padding, allowed)

    @property
    @abstractmethod
    def axis_count(self) -> int:
        """Axes of a map [1]."""

    def window(self, map_size: Shape) -> Window:
        """Return the window that slides over a map.

        It is the whole map without a kernel, and steps by its own taps without a stride.

        Examples
        --------
        >>> from perfmodel.layers import MaxPool2d
        >>> MaxPool2d(kernel_size=None).window((7, 7)).output_size((7, 7))
        (1, 1)
        """
        is_whole = self.kernel_size is None
        kernel_size = tuple(map_size) if self.kernel_size is None else self.kernel_size
        return Window.of(
            axis_count=self.axis_count,
            kernel_size=kernel_size,
            # the one window of a whole map goes nowhere; a step of 1 keeps its count plain for maps left open
            stride=1 if is_whole else kernel_size if self.stride is None else self.stride,
            padding=self.padding,
            dilation=self.dilation,
            ceil_mode=self.ceil_mode,
        )

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return (channels, map)."""
        check_map(input_shapes[0], self.axis_count)
        map_size = input_shapes[0][-self.axis_count :]
        return (*input_shapes[0][: -self.axis_count], *self.window(map_size).output_size(map_size))

    def _counts(self, input_shapes: tuple[Shape, ...], batch_size: Any) -> tuple[Any, Any, Any]:
        """Return elements of input and output, and taps of all windows that lie on the map."""
        leading, map_size = input_shapes[0][: -self.axis_count], input_shapes[0][-self.axis_count :]
        taps = math.prod(leading) * self.window(map_size).taps_inside(map_size)
        outputs = math.prod(self.output_shape(input_shapes))
        return batch_size * math.prod(input_shapes[0]), batch_size * outputs, batch_size * taps


def pooling_from_torch(call: OperatorCall, kind: type[Pooling], *, axis_count: int) -> Translation | None:
    """Return a pooling over maps of so many axes as torch calls it.

    Parameters
    ----------
    call : OperatorCall
        The call, e.g. of ``aten.max_pool2d_with_indices``. [-]
    kind : type
        The layer's class. [-]
    axis_count : int
        Axes of its maps. [1]

    Returns
    -------
    Translation or None
        None where the batch or no axis of a sample is pooled. [-]
    """
    if not holds_maps(call["self"], axis_count):
        return None
    return Translation(layer=kind(**torch_pooling_options(call, axis_count)), inputs=(call["self"],))


def pooling_from_onnx(call: OperatorCall, kind: type[Pooling], *, axis_count: int) -> Translation | None:
    """Return a pooling over maps of so many axes as ONNX writes it; without a kernel it pools the whole map.

    Parameters
    ----------
    call : OperatorCall
        The node, e.g. ``MaxPool`` or ``GlobalAveragePool``. [-]
    kind : type
        The layer's class. [-]
    axis_count : int
        Axes of its maps. [1]

    Returns
    -------
    Translation or None
        None for maps of other axes. [-]
    """
    maps = call["0"]
    if len(maps.axes) != axis_count + 2 or not holds_maps(maps, axis_count):
        return None
    kernel_size = call.get("kernel_shape")
    if kernel_size is None:
        return Translation(layer=kind(kernel_size=None), inputs=(maps,))
    window = onnx_window_options(call, kernel_size=kernel_size, map_size=maps.shape[-axis_count:])
    return Translation(layer=kind(ceil_mode=bool(call.get("ceil_mode", 0)), **window), inputs=(maps,))
