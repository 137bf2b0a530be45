"""Plain convolutions over maps of any number of axes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from perfmodel.layers.convolution.filter_bank import FilterBank, bank_translation
from perfmodel.layers.shapes import Shape
from perfmodel.layers.translation import OperatorCall, Translation
from perfmodel.layers.window_operators import both_sides, by_axis, holds_maps, onnx_window_options
from perfmodel.numeric import share_of
from perfmodel.records import Convolution, Role


@dataclass(frozen=True, kw_only=True)
class PlainConvolution(FilterBank):
    """Convolution of channels of maps with a bank of filters. Options: see ``FilterBank``."""

    def map_size(self, map_size: Shape) -> Shape:
        """Return how many windows fit on a map [1]."""
        return self.window.output_size(map_size)

    def filter_shape(self, in_channels: int) -> Shape:
        """Return (out_channels, channels of a group, taps) [1]."""
        return (self.out_channels, share_of(in_channels, self.groups), *self.window.kernel_size)

    def convolution(self, input_shape: Shape, *, batch_size: Any, role: Role) -> Convolution:
        """Return the convolution of ``batch_size`` [samples], or one of its gradients."""
        images, channels, map_size = self._parts(input_shape)
        window = self.window
        return Convolution(
            batch_size=batch_size * math.prod(images),
            in_channels=channels,
            out_channels=self.out_channels,
            input_size=map_size,
            output_size=window.output_size(map_size),
            kernel_size=window.kernel_size,
            stride=window.stride,
            padding=window.zeros(map_size),
            dilation=window.dilation,
            groups=self.groups,
            bias_elements=self.out_channels if self.bias and role is Role.OUTPUT else 0,
            role=role,
        )


def plain_from_torch(call: OperatorCall, kind: type[PlainConvolution], *, axis_count: int) -> Translation | None:
    """Return a convolution over maps of so many axes as torch calls it.

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
        None for a transposed convolution, and for maps of other axes. [-]
    """
    maps, weight, bias = call["input"], call["weight"], call.get("bias")
    if call["transposed"] or len(weight.shape) != axis_count + 2 or not holds_maps(maps, axis_count):
        return None
    layer = kind(
        out_channels=weight.shape[0],
        kernel_size=tuple(weight.shape[2:]),
        stride=by_axis(call["stride"], axis_count),
        padding=both_sides(by_axis(call["padding"], axis_count)),
        dilation=by_axis(call["dilation"], axis_count),
        groups=call["groups"],
        bias=bias is not None,
    )
    return bank_translation(layer, maps, weight, bias)


def plain_from_onnx(call: OperatorCall, kind: type[PlainConvolution], *, axis_count: int) -> Translation | None:
    """Return a convolution over maps of so many axes as ONNX writes it.

    Parameters
    ----------
    call : OperatorCall
        The node ``Conv``. [-]
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
    window = onnx_window_options(call, kernel_size=weight.shape[2:], map_size=maps.shape[-axis_count:])
    layer = kind(out_channels=weight.shape[0], groups=call.get("group", 1), bias=bias is not None, **window)
    return bank_translation(layer, maps, weight, bias)
