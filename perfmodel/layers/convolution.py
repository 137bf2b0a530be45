"""Convolutions and transposed convolutions over maps of one, two or three axes."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from perfmodel.derived import derived_property
from perfmodel.layers.base import Operations, layer_kind
from perfmodel.layers.checks import is_open_size, refuse
from perfmodel.layers.passes import bias_gradient
from perfmodel.layers.shapes import Shape, Shapes, SharedShape, mismatch, shape_text
from perfmodel.layers.translation import Operand, OperatorCall, Translation
from perfmodel.layers.window import (
    OverMaps,
    Padding,
    Pair,
    Size,
    Window,
    as_sizes,
    both_sides,
    by_axis,
    check_map,
    holds_maps,
    onnx_window_options,
)
from perfmodel.numeric import share_of
from perfmodel.records import Convolution, Role


@dataclass(frozen=True, kw_only=True)
class FilterBank(OverMaps):
    """A bank of filters over maps of some number of axes, used by plain and transposed convolutions.

    Parameters
    ----------
    out_channels : int
        Filters. [1]
    kernel_size : int or tuple of int
        Taps, for all axes of the map or by axis, e.g. (height, width). [1]
    stride, dilation : int or tuple of int
        Step between outputs (of a transposed convolution, between inputs), and between taps. [1]
    padding : str, int or tuple
        ``valid``, ``same`` (as in TensorFlow: ceil(input / stride) outputs, the odd zero at the end), zeros on
        each side, or (before, after) for each axis, e.g. ((top, bottom), (left, right)). [-]
    groups : int
        Groups of channels that are convolved separately; as many as channels for a depth-wise convolution. [1]
    bias : bool
        Whether a bias is added. [-]

    Notes
    -----
    Counts every tap of every window, even on padding, because libraries compute them. Samples are channels of maps;
    an axis before the channels counts further images. Filters, and the bias if any, may be inputs behind the maps
    where another layer computes them, e.g. weight normalisation; the layer then has no parameters of its own. If every
    sample has filters of its own, each is read and has a gradient apart. Ignores: that their products are as many and
    as small.
    """

    torch_names: ClassVar[tuple[str, ...]] = ("aten.convolution", "aten._convolution")
    inputs_serve_weights: ClassVar[bool] = True
    width_option: ClassVar[str | None] = "out_channels"
    input_counts: ClassVar[tuple[int, int | None]] = (1, 3)
    out_channels: int
    kernel_size: Size
    stride: Size = 1
    padding: Padding = "valid"
    dilation: Size = 1
    groups: int = 1
    bias: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        rest = self.out_channels % self.groups
        if not is_open_size(rest) and rest:
            refuse("groups", self.groups, f"must divide out_channels={self.out_channels}")
        _ = self.window

    is_transposed: ClassVar[bool] = False
    """Whether it is transposed: its output's maps are those a plain convolution would read [-]."""

    @abstractmethod
    def map_size(self, map_size: Shape) -> Shape:
        """Return the extents of the output map [1]."""

    @abstractmethod
    def filter_shape(self, in_channels: int) -> Shape:
        """Return the shape of the filters for maps of ``channels`` channels [1]."""

    @derived_property
    def window(self) -> Window:
        """The window that slides over the map."""
        return Window.of(
            axis_count=self.axis_count,
            kernel_size=self.kernel_size,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
        )

    @classmethod
    def from_torch(cls, call: OperatorCall) -> Translation | None:
        """Return a convolution as torch calls it; None for one of another kind, and for maps of other axes."""
        maps, weight, bias, axis_count = call["input"], call["weight"], call.get("bias"), cls.axis_count
        if bool(call["transposed"]) is not cls.is_transposed or not _has_axes(maps, weight, axis_count):
            return None
        by_axes = ("stride", "dilation", "output_padding") if cls.is_transposed else ("stride", "dilation")
        groups = call["groups"] if weight.is_shared else _groups_of_a_sample(maps, weight, cls)
        layer = cls(
            out_channels=weight.shape[1] * groups if cls.is_transposed else weight.shape[0],
            kernel_size=tuple(weight.shape[2:]),
            padding=both_sides(by_axis(call["padding"], axis_count)),
            groups=groups,
            bias=bias is not None,
            **{name: by_axis(call[name], axis_count) for name in by_axes},
        )
        return _bank_translation(layer, maps, weight, bias)

    def _parts(self, input_shape: Shape) -> tuple[Shape, int, Shape]:
        """Return the axis of images, if any, the channels, and the map."""
        first = len(input_shape) - self.axis_count
        return input_shape[: first - 1], input_shape[first - 1], input_shape[first:]

    def _given_shapes(self, in_channels: int) -> dict[str, Shape]:
        shapes = {"weight": self.filter_shape(in_channels)}
        return shapes | {"bias": (self.out_channels,)} if self.bias else shapes

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return (out_channels, map)."""
        check_map(input_shapes[0], self.axis_count)
        images, channels, map_size = self._parts(input_shapes[0])
        rest = channels % self.groups
        if not is_open_size(rest) and rest:
            mismatch(f"its {self.groups} groups do not divide the {channels} channels of its input")
        expected = tuple(self._given_shapes(channels).values())
        if input_shapes[1:] not in ((), expected):
            wanted, stated = (" and ".join(map(shape_text, shapes)) for shapes in (expected, input_shapes[1:]))
            mismatch(f"takes filters (and bias) of shape {wanted} behind its maps, or none, but they are {stated}")
        return (*images, self.out_channels, *self.map_size(map_size))

    def following(self, before: Shapes, after: Shapes) -> FilterBank:
        """Return a depth-wise convolution, with one group for each channel of its input."""
        channels, new_channels = (self._parts(shapes[0])[1] for shapes in (before, after))
        if self.groups == 1 or self.groups != channels or new_channels == channels:
            return self
        of_a_channel = self.out_channels // channels
        return replace(self, groups=new_channels, out_channels=of_a_channel * new_channels)

    def parameter_shapes(self, input_shapes: Shapes) -> dict[str, Shape]:
        """Return the filter bank and, if any, the bias; nothing if they are inputs."""
        if len(input_shapes) > 1:
            return {}
        return self._given_shapes(self._parts(input_shapes[0])[1])

    def convolution(self, input_shapes: Shapes, *, batch_size: Any, role: Role) -> Convolution:
        """Return the convolution of ``batch_size`` [samples], or one of its gradients."""
        images, channels, map_size = self._parts(input_shapes[0])
        is_shared = all(isinstance(shape, SharedShape) for shape in input_shapes[1:2])
        window, output_size = self.window, self.map_size(map_size)
        return Convolution(
            batch_size=batch_size * math.prod(images),
            in_channels=channels,
            out_channels=self.out_channels,
            input_size=map_size,
            output_size=output_size,
            kernel_size=window.kernel_size,
            stride=window.stride,
            padding=window.zeros(output_size if self.is_transposed else map_size),
            dilation=window.dilation,
            groups=self.groups,
            transposed=self.is_transposed,
            bias_elements=self.out_channels if self.bias and role is Role.OUTPUT else 0,
            bank_count=1 if is_shared else batch_size,
            role=role,
        )

    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return the convolution."""
        return (self.convolution(input_shapes, batch_size=batch_size, role=Role.OUTPUT),)

    def backward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return the gradients of input and filters, and the bias's sum."""
        gradients = tuple(
            self.convolution(input_shapes, batch_size=batch_size, role=role)
            for role in (Role.INPUT_GRADIENT, Role.WEIGHT_GRADIENT)
        )
        if not self.bias:
            return gradients
        outputs = batch_size * math.prod(self.output_shape(input_shapes))
        return (*gradients, bias_gradient(outputs, bias_elements=self.out_channels * gradients[0].bank_count))

    def gradient_operations(self, input_shapes: Shapes, *, batch_size: Any, wanted: Sequence[bool]) -> Operations:
        """Return the operations that remain if only some inputs, filters among them, need a gradient."""
        if len(input_shapes) == 1:
            return super().gradient_operations(input_shapes, batch_size=batch_size, wanted=wanted)
        operations = self.backward_operations(input_shapes, batch_size=batch_size)
        return tuple(operation for operation, is_wanted in zip(operations, wanted, strict=True) if is_wanted)


def _bank_translation(layer: FilterBank, maps: Operand, weight: Operand, bias: Operand | None) -> Translation | None:
    """Return a call's layer: filters are parameters if trained, inputs if computed, for all samples or for each."""
    parameters = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    lies_in_channels = not maps.is_shared and len(maps.axes) == len(maps.shape) and maps.shape[0] == 1
    if len({operand.is_shared for operand in parameters.values()}) > 1 or not (weight.is_shared or lies_in_channels):
        return None
    if all(operand.is_parameter for operand in parameters.values()):
        return Translation(layer=layer, inputs=(maps,), parameters=parameters)
    return Translation(layer=layer, inputs=(maps, *parameters.values()))


@dataclass(frozen=True, kw_only=True)
class PlainConvolution(FilterBank):
    """Convolution of channels of maps with a bank of filters. Options: see ``FilterBank``."""

    onnx_names: ClassVar[tuple[str, ...]] = ("Conv",)

    @classmethod
    def from_onnx(cls, call: OperatorCall) -> Translation | None:
        """Return a convolution as ONNX writes it; None for maps with another number of axes."""
        maps, weight, bias = call["0"], call["1"], call.get("2")
        if not _has_axes(maps, weight, cls.axis_count):
            return None
        window = onnx_window_options(call, kernel_size=weight.shape[2:], map_size=maps.shape[-cls.axis_count :])
        layer = cls(out_channels=weight.shape[0], groups=call.get("group", 1), bias=bias is not None, **window)
        return _bank_translation(layer, maps, weight, bias)

    def map_size(self, map_size: Shape) -> Shape:
        """Return the number of windows that fit on a map [1]."""
        return self.window.output_size(map_size)

    def filter_shape(self, in_channels: int) -> Shape:
        """Return (out_channels, channels of a group, taps) [1]."""
        return (self.out_channels, share_of(in_channels, self.groups), *self.window.kernel_size)


def _groups_of_a_sample(maps: Operand, weight: Operand, kind: type[FilterBank]) -> int:
    """Return the groups of one sample if samples with separate filters lie side by side as channels [1]."""
    channels = maps.shape[-1 - kind.axis_count]
    return int(channels // weight.shape[0 if kind.is_transposed else 1])


def _has_axes(maps: Operand, weight: Operand, axis_count: int) -> bool:
    return len(weight.shape) == axis_count + 2 and holds_maps(maps, axis_count)


@layer_kind("convolution_1d")
class Convolution1d(PlainConvolution, axis_count=1):
    """Convolution of (channels, length) with a bank of filters. Options: see ``FilterBank``."""


@layer_kind("convolution_2d")
class Convolution2d(PlainConvolution, axis_count=2):
    """Convolution of (channels, height, width) with a bank of filters. Options: see ``FilterBank``."""


@layer_kind("convolution_3d")
class Convolution3d(PlainConvolution, axis_count=3):
    """Convolution of (channels, depth, height, width) with a bank of filters. Options: see ``FilterBank``."""


@dataclass(frozen=True, kw_only=True)
class TransposedConvolution(FilterBank):
    """Transposed convolution of channels of maps: every input adds a scaled filter into the output.

    Parameters
    ----------
    output_padding : int or tuple of int
        Rows at the output's end beyond the reach of the taps, for all axes or by axis; less than the stride or
        the dilation. [1]

    Notes
    -----
    It computes what the input gradient of a convolution from its output to its input would be: the same products, so
    2 FLOP per tap, input element and filter, and (n - 1) stride + (taps - 1) dilation + 1 + output_padding - zeros
    outputs of n inputs; n times stride where the padding is ``same``. Further options: see ``FilterBank``.
    """

    onnx_names: ClassVar[tuple[str, ...]] = ("ConvTranspose",)
    is_transposed: ClassVar[bool] = True
    output_padding: Size = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        window, extra = self.window, self._output_padding
        for added, *steps in zip(extra, window.stride, window.dilation, strict=True):
            if not any(map(is_open_size, (added, *steps))) and added >= max(steps):
                refuse("output_padding", self.output_padding, f"must be less than stride or dilation ({max(steps)})")
        if window.padding == "same" and set(extra) != {0}:
            refuse("output_padding", self.output_padding, "must be 0 with padding='same'")

    @property
    def _output_padding(self) -> tuple[int, ...]:
        return as_sizes("output_padding", self.output_padding, axis_count=self.axis_count, least=0)

    @classmethod
    def from_onnx(cls, call: OperatorCall) -> Translation | None:
        """Return a transposed convolution as ONNX writes it; None for maps with another number of axes."""
        maps, weight, bias = call["0"], call["1"], call.get("2")
        if not _has_axes(maps, weight, cls.axis_count):
            return None
        map_size, groups = maps.shape[-cls.axis_count :], call.get("group", 1)
        strides = tuple(call.get("strides", (1,) * cls.axis_count))
        rule, wanted = call.get("auto_pad", "NOTSET"), call.get("output_shape")
        extra = tuple(call.get("output_padding", (0,) * cls.axis_count))
        if wanted is None and rule.startswith("SAME"):
            wanted = tuple(size * stride for size, stride in zip(map_size, strides, strict=True))
        window = onnx_window_options(call, kernel_size=weight.shape[2:], map_size=map_size)
        if wanted is not None:
            window["padding"] = "valid"
            unpadded = cls(out_channels=1, bias=False, output_padding=extra, **window).map_size(map_size)
            spare = tuple(size - target for size, target in zip(unpadded, wanted[-cls.axis_count :], strict=True))
            window["padding"] = tuple(_shared_out(max(size, 0), upper=rule == "SAME_UPPER") for size in spare)
            extra = tuple(added + max(-size, 0) for added, size in zip(extra, spare, strict=True))
        layer = cls(
            out_channels=weight.shape[1] * groups, groups=groups, bias=bias is not None, output_padding=extra, **window
        )
        return _bank_translation(layer, maps, weight, bias)

    def map_size(self, map_size: Shape) -> Shape:
        """Return the extent that the taps of all inputs reach, less the padding [1]."""
        window = self.window
        if window.padding == "same":
            return tuple(size * stride for size, stride in zip(map_size, window.stride, strict=True))
        along = zip(map_size, window.stride, window.extent, self._output_padding, window.zeros(map_size), strict=True)
        reached = tuple(
            (size - 1) * stride + extent + extra - sum(zeros) for size, stride, extent, extra, zeros in along
        )
        if any(not is_open_size(size) and size < 1 for size in reached):
            mismatch(f"its padding {window.padding} leaves nothing of the output of an input {shape_text(map_size)}")
        return reached

    def filter_shape(self, in_channels: int) -> Shape:
        """Return (in_channels, filters of a group, taps) [1]."""
        return (in_channels, share_of(self.out_channels, self.groups), *self.window.kernel_size)


def _shared_out(zeros: int, *, upper: bool) -> Pair:
    """Return zeros before and after; an odd zero comes after if ``upper``, otherwise before."""
    less, more = zeros // 2, zeros - zeros // 2
    return (less, more) if upper else (more, less)


@layer_kind("transposed_convolution_1d")
class TransposedConvolution1d(TransposedConvolution, axis_count=1):
    """Transposed convolution of (channels, length). Options: see ``TransposedConvolution``."""


@layer_kind("transposed_convolution_2d")
class TransposedConvolution2d(TransposedConvolution, axis_count=2):
    """Transposed convolution of (channels, height, width). Options: see ``TransposedConvolution``."""


@layer_kind("transposed_convolution_3d")
class TransposedConvolution3d(TransposedConvolution, axis_count=3):
    """Transposed convolution of (channels, depth, height, width). Options: see ``TransposedConvolution``."""
