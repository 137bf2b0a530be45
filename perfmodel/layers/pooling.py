"""Pooling: one number for each window of a map, or for each of a fixed number of parts."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from perfmodel.layers.base import OnePassLayer, Traffic, layer_kind
from perfmodel.layers.checks import check_count, is_open_size, refuse
from perfmodel.layers.passes import INDEX_BYTES
from perfmodel.layers.shapes import Shape, Shapes, mismatch, shape_text
from perfmodel.layers.translation import OperatorCall, Operators, Translation
from perfmodel.layers.window import (
    OverMaps,
    Padding,
    Size,
    Window,
    by_axis,
    check_map,
    holds_maps,
    onnx_window_options,
    torch_pooling_options,
)


@dataclass(frozen=True, kw_only=True)
class WindowedLayer(OnePassLayer):
    """One number for each window of each channel, for any kind of windows."""

    @abstractmethod
    def _counts(self, input_shapes: Shapes, batch_size: Any) -> tuple[Any, Any, Any]:
        """Return elements of input and output, and taps of all windows that lie on the map."""


@dataclass(frozen=True, kw_only=True)
class Averaging(WindowedLayer):
    """The average of each window: an add for each tap but the first, and a division; the same backward."""

    pass_name: ClassVar[str] = "avg_pool"

    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[Traffic, Traffic]:
        """Return a pass that reads x and writes y, and one that divides dy and adds it to all inputs of a window."""
        inputs, outputs, taps = self._counts(input_shapes, batch_size)
        return (
            {"read": inputs, "written": outputs, "tensor": inputs, "flop": taps},
            {"read": outputs, "written": inputs, "flop": taps + outputs},
        )


@dataclass(frozen=True, kw_only=True)
class Maximising(WindowedLayer):
    """The maximum of each window and where it is; backward a gradient is added there into a cleared dx."""

    pass_name: ClassVar[str] = "max_pool"

    def saved_index_count(self, input_shapes: Shapes, *, batch_size: Any) -> Any:
        """Return the positions of the maxima [1]."""
        return batch_size * math.prod(self.output_shape(input_shapes))

    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[Traffic, Traffic]:
        """Return a pass that reads x and writes y and positions, and one that reads dy and positions and writes dx."""
        inputs, outputs, taps = self._counts(input_shapes, batch_size)
        index_bytes = INDEX_BYTES * outputs
        forward = {"read": inputs, "written": outputs, "tensor": inputs, "flop": taps - outputs}
        backward = {"read": outputs, "written": inputs, "flop": outputs}
        return {**forward, "written_index_bytes": index_bytes}, {**backward, "read_index_bytes": index_bytes}


@dataclass(frozen=True, kw_only=True)
class Pooling(WindowedLayer, OverMaps):
    """One number for each window of each channel; each kind of pooling defines the number and its counts.

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
        Whether a last window that extends beyond the map counts (Caffe), or not (floor). [-]
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
            allowed = "must be given with stride, padding, dilation or ceil_mode; None pools the whole map"
            refuse("kernel_size", None, allowed)
        if (is_padded or self.ceil_mode) and any(map(is_open_size, window.kernel_size)):
            refuse("kernel_size", self.kernel_size, "must be a number if padding or ceil_mode is given")
        if isinstance(window.padding, tuple):
            for zeros, extent in zip(window.padding, window.extent, strict=True):
                if any(not is_open_size(added) and not is_open_size(extent) and added >= extent for added in zeros):
                    allowed = f"must be smaller than the kernel ({extent}), or a window could cover only padding"
                    refuse("padding", self.padding, allowed)

    @classmethod
    def from_torch(cls, call: OperatorCall) -> Translation | None:
        """Return a pooling as torch calls it; None if the batch or no axis of a sample is pooled."""
        if not holds_maps(call["self"], cls.axis_count):
            return None
        return Translation(layer=cls(**torch_pooling_options(call, cls.axis_count)), inputs=(call["self"],))

    @classmethod
    def from_onnx(cls, call: OperatorCall) -> Translation | None:
        """Return a pooling as ONNX writes it, of the whole map without a kernel; None for maps of other axes."""
        maps, kernel_size = call["0"], call.get("kernel_shape")
        if len(maps.axes) != cls.axis_count + 2 or not holds_maps(maps, cls.axis_count):
            return None
        if kernel_size is None:
            return Translation(layer=cls(kernel_size=None), inputs=(maps,))
        window = onnx_window_options(call, kernel_size=kernel_size, map_size=maps.shape[-cls.axis_count :])
        return Translation(layer=cls(ceil_mode=bool(call.get("ceil_mode", 0)), **window), inputs=(maps,))

    def window(self, map_size: Shape) -> Window:
        """Return the window that slides over a map.

        Without a kernel it is the whole map; without a stride it steps by its own extent.

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
            # the one window of a whole map does not move; a step of 1 keeps its count simple for symbolic maps
            stride=1 if is_whole else kernel_size if self.stride is None else self.stride,
            padding=self.padding,
            dilation=self.dilation,
            ceil_mode=self.ceil_mode,
        )

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return (channels, map)."""
        check_map(input_shapes[0], self.axis_count)
        map_size = input_shapes[0][-self.axis_count :]
        return (*input_shapes[0][: -self.axis_count], *self.window(map_size).output_size(map_size))

    def _counts(self, input_shapes: Shapes, batch_size: Any) -> tuple[Any, Any, Any]:
        """Return elements of input and output, and taps of all windows that lie on the map."""
        leading, map_size = input_shapes[0][: -self.axis_count], input_shapes[0][-self.axis_count :]
        taps = math.prod(leading) * self.window(map_size).taps_inside(map_size)
        outputs = math.prod(self.output_shape(input_shapes))
        return batch_size * math.prod(input_shapes[0]), batch_size * outputs, batch_size * taps


@dataclass(frozen=True, kw_only=True)
class AveragePool(Averaging, Pooling):
    """Average over windows of each channel; over the whole map without a kernel. Options: see ``Pooling``.

    Notes
    -----
    n inputs, o outputs, t taps of all windows together; taps on padding or beyond the map, as ``ceil_mode`` has
    them, are not added. Forward t - o adds and o divisions. Backward o divisions and t adds; reads dy, writes dx.
    """

    torch_names: ClassVar[tuple[str, ...]] = ("aten.avg_pool{}d",)
    onnx_names: ClassVar[tuple[str, ...]] = ("AveragePool", "GlobalAveragePool")


@layer_kind("avg_pool_1d")
class AveragePool1d(AveragePool, axis_count=1):
    """Average over windows of each channel of (channels, length). Options: see ``Pooling``."""


@layer_kind("avg_pool_2d")
class AveragePool2d(AveragePool, axis_count=2):
    """Average over windows of each channel of (channels, height, width). Options: see ``Pooling``."""


@layer_kind("avg_pool_3d")
class AveragePool3d(AveragePool, axis_count=3):
    """Average over windows of each channel of (channels, depth, height, width). Options: see ``Pooling``."""


@dataclass(frozen=True, kw_only=True)
class MaxPool(Maximising, Pooling):
    """Maximum over windows of each channel. Options: see ``Pooling``.

    Notes
    -----
    n inputs, o outputs, t taps of all windows together; taps on padding or beyond the map, as ``ceil_mode`` has
    them, are not compared. Forward t - o comparisons; writes the maximum and the index (4 B) of where it was.
    Backward adds each dy at its index (1 FLOP) into a cleared dx, so all n elements are written.
    """

    torch_names: ClassVar[tuple[str, ...]] = ("aten.max_pool{}d", "aten.max_pool{}d_with_indices")
    onnx_names: ClassVar[tuple[str, ...]] = ("MaxPool", "GlobalMaxPool")


@layer_kind("max_pool_1d")
class MaxPool1d(MaxPool, axis_count=1):
    """Maximum over windows of each channel of (channels, length). Options: see ``Pooling``."""


@layer_kind("max_pool_2d")
class MaxPool2d(MaxPool, axis_count=2):
    """Maximum over windows of each channel of (channels, height, width). Options: see ``Pooling``."""


@layer_kind("max_pool_3d")
class MaxPool3d(MaxPool, axis_count=3):
    """Maximum over windows of each channel of (channels, depth, height, width). Options: see ``Pooling``."""


@dataclass(frozen=True, kw_only=True)
class AdaptivePooling(WindowedLayer):
    """One number for each of a fixed number of parts of each map, whatever its size.

    Parameters
    ----------
    output_size : int or tuple of int
        Parts by axis, for the last axes of a sample; a number for all axes but the first, the channels. [1]

    Notes
    -----
    Part i of o along n elements reaches from floor(i n / o) to ceil((i + 1) n / o); if o does not divide n, parts
    overlap, and have n + o - gcd(n, o) elements together.
    """

    output_size: Size

    def __post_init__(self) -> None:
        for size in self.output_size if isinstance(self.output_size, tuple) else (self.output_size,):
            check_count("output_size", size)

    def _sizes(self, shape: Shape) -> tuple[int, ...]:
        return self.output_size if isinstance(self.output_size, tuple) else (self.output_size,) * (len(shape) - 1)

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return (channels, parts)."""
        shape, sizes = input_shapes[0], self._sizes(input_shapes[0])
        if not 0 < len(sizes) < len(shape):
            mismatch(f"pools maps of channels into {self.output_size} parts, but its input is {shape_text(shape)}")
        return (*shape[: -len(sizes)], *sizes)

    def _counts(self, input_shapes: Shapes, batch_size: Any) -> tuple[Any, Any, Any]:
        """Return elements of input and output, and of all parts together."""
        shape, sizes = input_shapes[0], self._sizes(input_shapes[0])
        leading, map_size = shape[: -len(sizes)], shape[-len(sizes) :]
        taps = math.prod(
            size + parts - _common_divisor(size, parts) for size, parts in zip(map_size, sizes, strict=True)
        )
        outputs = math.prod(self.output_shape(input_shapes))
        return batch_size * math.prod(shape), batch_size * outputs, batch_size * math.prod(leading) * taps


def _common_divisor(first: Any, second: Any) -> Any:
    """Return the greatest common divisor; of a number and a symbol as a sum over the number's divisors.

    gcd(n, m) is the sum of phi(d), the numbers below d that share no divisor with it, over the d that divide both; d
    divides n where floor(n / d) and floor((n - 1) / d) differ.
    """
    if first == second:
        return first
    opened = [size for size in (first, second) if is_open_size(size)]
    if not opened:
        return math.gcd(first, second)
    if len(opened) == 2:
        mismatch(f"cannot divide {first} elements into {second} parts: one of them must be a number")
    size, number = opened[0], second if opened[0] is first else first
    divisors = (divisor for divisor in range(1, number + 1) if number % divisor == 0)
    return sum(
        sum(math.gcd(count, divisor) == 1 for count in range(1, divisor + 1))
        * (size // divisor - (size - 1) // divisor)
        for divisor in divisors
    )


def _adaptive_from_torch(call: OperatorCall, kind: type[AdaptivePooling]) -> Translation | None:
    """Return an adaptive pooling as torch calls it; None where the batch or no axis of a sample is pooled."""
    axis_count = int(call.operator[-2])  # aten.adaptive_max_pool2d
    if not holds_maps(call["self"], axis_count):
        return None
    return Translation(layer=kind(output_size=by_axis(call["output_size"], axis_count)), inputs=(call["self"],))


@layer_kind("adaptive_avg_pool")
class AdaptiveAveragePool(Averaging, AdaptivePooling):
    """Average over a fixed number of parts of each map. Options: see ``AdaptivePooling``.

    Notes
    -----
    n inputs, o outputs, t elements of all parts. Forward t - o adds and o divisions; backward o divisions and t adds.
    """

    operators: ClassVar[Operators] = dict.fromkeys(
        ("aten.adaptive_avg_pool1d", "aten._adaptive_avg_pool2d", "aten._adaptive_avg_pool3d"),
        lambda call: _adaptive_from_torch(call, AdaptiveAveragePool),
    )


@layer_kind("adaptive_max_pool")
class AdaptiveMaxPool(Maximising, AdaptivePooling):
    """Maximum over a fixed number of parts of each map. Options: see ``AdaptivePooling``.

    Notes
    -----
    n inputs, o outputs, t elements of all parts. Forward t - o comparisons; writes the maximum and its index (4 B).
    Backward adds each dy at its index (1 FLOP) into a cleared dx.
    """

    operators: ClassVar[Operators] = dict.fromkeys(
        ("aten.adaptive_max_pool1d", "aten.adaptive_max_pool2d", "aten.adaptive_max_pool3d"),
        lambda call: _adaptive_from_torch(call, AdaptiveMaxPool),
    )
