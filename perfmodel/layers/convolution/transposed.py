"""Transposed convolutions ("deconvolutions", fractionally strided) over maps of any number of axes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from perfmodel.layers.checks import is_open_size, refuse
from perfmodel.layers.convolution.filter_bank import FilterBank, bank_translation
from perfmodel.layers.shapes import Shape, ShapeMismatchError, shape_text
from perfmodel.layers.translation import OperatorCall, Translation
from perfmodel.layers.window import Pair, Size, as_sizes
from perfmodel.layers.window_operators import both_sides, by_axis, holds_maps, onnx_window_options
from perfmodel.numeric import share_of
from perfmodel.records import Convolution, Role


@dataclass(frozen=True, kw_only=True)
class TransposedConvolution(FilterBank):
    """Transposed convolution of channels of maps: every input adds a scaled filter into the output.

    Parameters
    ----------
    output_padding : int or tuple of int
        Rows that the output is larger at its end than the taps reach, for all axes or by axis; less than the stride or
        the dilation. [1]

    Notes
    -----
    It computes what the input gradient of a convolution from its output to its input would be: the same products, so
    2 FLOP per tap, input element and filter, and (n - 1) stride + (taps - 1) dilation + 1 + output_padding - zeros
    outputs of n inputs; n times stride where the padding is ``same``. Further options: see ``FilterBank``.
    """

    output_padding: Size = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        window, extra = self.window, self._output_padding
        for given, *steps in zip(extra, window.stride, window.dilation, strict=True):
            if not any(map(is_open_size, (given, *steps))) and given >= max(steps):
                refuse("output_padding", self.output_padding, f"must be less than stride or dilation ({max(steps)})")
        if window.padding == "same" and set(extra) != {0}:
            refuse("output_padding", self.output_padding, "must be 0 where padding is 'same'")

    @property
    def _output_padding(self) -> tuple[int, ...]:
        return as_sizes("output_padding", self.output_padding, axis_count=self.axis_count, least=0)

    def map_size(self, map_size: Shape) -> Shape:
        """Return how far the taps of all inputs reach, less the padding [1]."""
        window = self.window
        if window.padding == "same":
            return tuple(size * stride for size, stride in zip(map_size, window.stride, strict=True))
        along = zip(map_size, window.stride, window.extent, self._output_padding, window.zeros(map_size), strict=True)
        reached = tuple(
            (size - 1) * stride + extent + extra - sum(zeros) for size, stride, extent, extra, zeros in along
        )
        if any(not is_open_size(size) and size < 1 for size in reached):
            problem = f"its padding {window.padding} leaves nothing of the output of an input {shape_text(map_size)}"
            raise ShapeMismatchError(problem)
        return reached

    def filter_shape(self, in_channels: int) -> Shape:
        """Return (in_channels, filters of a group, taps) [1]."""
        return (in_channels, share_of(self.out_channels, self.groups), *self.window.kernel_size)

    def convolution(self, input_shape: Shape, *, batch_size: Any, role: Role) -> Convolution:
        """Return the transposed convolution of ``batch_size`` [samples], or one of its gradients."""
        images, channels, map_size = self._parts(input_shape)
        window, output_size = self.window, self.map_size(map_size)
        return Convolution(
            batch_size=batch_size * math.prod(images),
            in_channels=channels,
            out_channels=self.out_channels,
            input_size=map_size,
            output_size=output_size,
            kernel_size=window.kernel_size,
            stride=window.stride,
            padding=window.zeros(output_size),
            dilation=window.dilation,
            groups=self.groups,
            transposed=True,
            bias_elements=self.out_channels if self.bias and role is Role.OUTPUT else 0,
            role=role,
        )


def transposed_from_torch(
    call: OperatorCall, kind: type[TransposedConvolution], *, axis_count: int
) -> Translation | None:
    """Return a transposed convolution over maps of so many axes as torch calls it.

    Parameters
    ----------
    call : OperatorCall
        The call of ``aten.convolution``. [-]
    kind : type
        The layer's class. [-]
    axis_count : int
        Axes of its maps. [1]

    Returns
    -------
    Translation or None
        None for a plain convolution, and for maps of other axes. [-]
    """
    maps, weight, bias = call["input"], call["weight"], call.get("bias")
    if not call["transposed"] or len(weight.shape) != axis_count + 2 or not holds_maps(maps, axis_count):
        return None
    layer = kind(
        out_channels=weight.shape[1] * call["groups"],
        kernel_size=tuple(weight.shape[2:]),
        stride=by_axis(call["stride"], axis_count),
        padding=both_sides(by_axis(call["padding"], axis_count)),
        dilation=by_axis(call["dilation"], axis_count),
        output_padding=by_axis(call["output_padding"], axis_count),
        groups=call["groups"],
        bias=bias is not None,
    )
    return bank_translation(layer, maps, weight, bias)


def transposed_from_onnx(
    call: OperatorCall, kind: type[TransposedConvolution], *, axis_count: int
) -> Translation | None:
    """Return a transposed convolution over maps of so many axes as ONNX writes it.

    Parameters
    ----------
    call : OperatorCall
        The node ``ConvTranspose``. [-]
    kind : type
        The layer's class. [-]
    axis_count : int
        Axes of its maps. [1]

    Returns
    -------
    Translation or None
        None for maps of other axes. [-]
    """
    maps, weight, bias = call["0"], call["1"], call.get("2")
    if len(weight.shape) != axis_count + 2 or not holds_maps(maps, axis_count):
        return None
    map_size, groups = maps.shape[-axis_count:], call.get("group", 1)
    strides = tuple(call.get("strides", (1,) * axis_count))
    rule, wanted = call.get("auto_pad", "NOTSET"), call.get("output_shape")
    extra = tuple(call.get("output_padding", (0,) * axis_count))
    if wanted is None and rule.startswith("SAME"):
        wanted = tuple(size * stride for size, stride in zip(map_size, strides, strict=True))
    window = onnx_window_options(call, kernel_size=weight.shape[2:], map_size=map_size)
    if wanted is not None:
        window["padding"] = "valid"
        unpadded = kind(out_channels=1, bias=False, output_padding=extra, **window).map_size(map_size)
        spare = tuple(size - target for size, target in zip(unpadded, wanted[-axis_count:], strict=True))
        window["padding"] = tuple(_shared_out(max(each, 0), upper=rule == "SAME_UPPER") for each in spare)
        extra = tuple(added + max(-each, 0) for added, each in zip(extra, spare, strict=True))
    layer = kind(
        out_channels=weight.shape[1] * groups, groups=groups, bias=bias is not None, output_padding=extra, **window
    )
    return bank_translation(layer, maps, weight, bias)


def _shared_out(zeros: int, *, upper: bool) -> Pair:
    """Return zeros before and after; of an odd number the one more comes after where ``upper``, else before."""
    less, more = zeros // 2, zeros - zeros // 2
    return (less, more) if upper else (more, less)
