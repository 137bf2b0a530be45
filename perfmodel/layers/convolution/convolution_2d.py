"""Two-dimensional convolution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_count, check_flag, refuse
from perfmodel.layers.passes import bias_gradient
from perfmodel.layers.shapes import IMAGE, Shape, ShapeMismatchError, check_rank
from perfmodel.layers.window import Padding, Size, Window
from perfmodel.records import Convolution, Operation, Role


@final
@dataclass(frozen=True, kw_only=True)
class Convolution2d(Layer):
    """Convolution of (channels, height, width) with a bank of filters.

    Parameters
    ----------
    out_channels : int
        Filters. [1]
    kernel_size : int or tuple of int
        Taps, for both dimensions or by (height, width). [1]
    stride, dilation : int or tuple of int
        Step between outputs, and between taps. [1]
    padding : str, int or tuple
        ``valid``, ``same`` (as TensorFlow: ceil(input / stride) outputs, the odd zero at the end), zeros on
        each side, or ((top, bottom), (left, right)). [-]
    groups : int
        Groups of channels that are convolved apart. [1]
    bias : bool
        Whether a bias is added. [-]

    Notes
    -----
    Counts every tap of every window, those on padding too, as libraries compute them.
    """

    kind: ClassVar[str] = "convolution_2d"
    examples: ClassVar[Examples] = (
        ({"out_channels": 6, "kernel_size": 3, "padding": "same", "stride": 2}, ((4, 9, 9),)),
        ({"out_channels": 6, "kernel_size": (3, 1), "groups": 2, "dilation": 2, "bias": False}, ((4, 9, 9),)),
        ({"out_channels": 4, "kernel_size": 3, "padding": ((1, 2), (0, 1))}, ((4, 9, 9),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = (
        {"out_channels": "K", "kernel_size": 3, "padding": "same"},
        (("C", "H", "W"),),
    )
    inputs_serve_weights: ClassVar[bool] = True
    out_channels: int
    kernel_size: Size
    stride: Size = 1
    padding: Padding = "valid"
    dilation: Size = 1
    groups: int = 1
    bias: bool = True

    def __post_init__(self) -> None:
        check_count("out_channels", self.out_channels)
        check_count("groups", self.groups)
        check_flag("bias", self.bias)
        if self.out_channels % self.groups:
            refuse("groups", self.groups, f"must divide out_channels={self.out_channels}")
        _ = self.window

    @property
    def window(self) -> Window:
        """The window that slides over the map."""
        return Window.of(kernel_size=self.kernel_size, stride=self.stride, padding=self.padding, dilation=self.dilation)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return (out_channels, height, width)."""
        check_rank(input_shapes[0], IMAGE)
        channels, *map_size = input_shapes[0]
        if channels % self.groups:
            problem = f"its {self.groups} groups do not divide the {channels} channels of its input"
            raise ShapeMismatchError(problem)
        return (self.out_channels, *self.window.output_size(tuple(map_size)))

    def parameter_shapes(self, input_shapes: tuple[Shape, ...]) -> dict[str, Shape]:
        """Return the filter bank and, if any, the bias."""
        channels = input_shapes[0][0] // self.groups
        shapes: dict[str, Shape] = {"weight": (self.out_channels, channels, *self.window.kernel_size)}
        return shapes | {"bias": (self.out_channels,)} if self.bias else shapes

    def _convolution(self, input_shapes: tuple[Shape, ...], *, batch_size: Any, role: Role) -> Convolution:
        channels, *map_size = input_shapes[0]
        window = self.window
        return Convolution(
            batch_size=batch_size,
            in_channels=channels,
            out_channels=self.out_channels,
            input_size=tuple(map_size),
            output_size=window.output_size(tuple(map_size)),
            kernel_size=window.kernel_size,
            stride=window.stride,
            padding=window.zeros(tuple(map_size)),
            dilation=window.dilation,
            groups=self.groups,
            bias_elements=self.out_channels if self.bias and role is Role.OUTPUT else 0,
            role=role,
        )

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return the convolution."""
        return (self._convolution(input_shapes, batch_size=batch_size, role=Role.OUTPUT),)

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return the gradients of input and filters, and the bias's sum."""
        gradients = tuple(
            self._convolution(input_shapes, batch_size=batch_size, role=role)
            for role in (Role.INPUT_GRADIENT, Role.WEIGHT_GRADIENT)
        )
        if not self.bias:
            return gradients
        outputs = batch_size * math.prod(self.output_shape(input_shapes))
        return (*gradients, bias_gradient(outputs, bias_elements=self.out_channels))
