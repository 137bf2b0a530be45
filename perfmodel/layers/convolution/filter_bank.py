"""What all convolutions share: a bank of filters, its options, and the operations of forward and backward pass."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from perfmodel.layers.base import Layer
from perfmodel.layers.checks import check_count, check_flag, is_open_size, refuse
from perfmodel.layers.passes import bias_gradient
from perfmodel.layers.shapes import Shape, ShapeMismatchError, shape_text
from perfmodel.layers.translation import Operand, Translation
from perfmodel.layers.window import Padding, Size, Window, check_map
from perfmodel.records import Convolution, Operation, Role


@dataclass(frozen=True, kw_only=True)
class FilterBank(Layer):
    """A bank of filters over maps of so many axes; a plain or transposed convolution says what it does with it.

    Parameters
    ----------
    out_channels : int
        Filters. [1]
    kernel_size : int or tuple of int
        Taps, for all axes of the map or by axis, e.g. (height, width). [1]
    stride, dilation : int or tuple of int
        Step between outputs (of a transposed convolution, between inputs), and between taps. [1]
    padding : str, int or tuple
        ``valid``, ``same`` (as TensorFlow: ceil(input / stride) outputs, the odd zero at the end), zeros on
        each side, or (before, after) for each axis, e.g. ((top, bottom), (left, right)). [-]
    groups : int
        Groups of channels that are convolved apart; as many as channels for a depth-wise convolution. [1]
    bias : bool
        Whether a bias is added. [-]

    Notes
    -----
    Counts every tap of every window, those on padding too, as libraries compute them. Samples are channels of maps;
    an axis before the channels counts further images. Filters, and the bias if any, may be inputs behind the maps
    where another layer computes them, e.g. weight normalisation; the layer then has no parameters of its own.
    """

    inputs_serve_weights: ClassVar[bool] = True
    input_counts: ClassVar[tuple[int, int | None]] = (1, 3)
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
        rest = self.out_channels % self.groups
        if not is_open_size(rest) and rest:
            refuse("groups", self.groups, f"must divide out_channels={self.out_channels}")
        _ = self.window

    @property
    @abstractmethod
    def axis_count(self) -> int:
        """Axes of a map [1]."""

    @abstractmethod
    def map_size(self, map_size: Shape) -> Shape:
        """Return the extents of the output map [1]."""

    @abstractmethod
    def filter_shape(self, in_channels: int) -> Shape:
        """Return the shape of the filters for maps of so many channels [1]."""

    @abstractmethod
    def convolution(self, input_shape: Shape, *, batch_size: Any, role: Role) -> Convolution:
        """Return the convolution of ``batch_size`` [samples], or one of its gradients."""

    @cached_property
    def window(self) -> Window:
        """The window that slides over the map."""
        return Window.of(
            axis_count=self.axis_count,
            kernel_size=self.kernel_size,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
        )

    def _parts(self, input_shape: Shape) -> tuple[Shape, int, Shape]:
        """Return the axis of images, if any, the channels, and the map."""
        first = len(input_shape) - self.axis_count
        return input_shape[: first - 1], input_shape[first - 1], input_shape[first:]

    def _given_shapes(self, in_channels: int) -> dict[str, Shape]:
        shapes = {"weight": self.filter_shape(in_channels)}
        return shapes | {"bias": (self.out_channels,)} if self.bias else shapes

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return (out_channels, map)."""
        check_map(input_shapes[0], self.axis_count)
        images, channels, map_size = self._parts(input_shapes[0])
        rest = channels % self.groups
        if not is_open_size(rest) and rest:
            problem = f"its {self.groups} groups do not divide the {channels} channels of its input"
            raise ShapeMismatchError(problem)
        expected = tuple(self._given_shapes(channels).values())
        if input_shapes[1:] not in ((), expected):
            wanted, given = (" and ".join(map(shape_text, shapes)) for shapes in (expected, input_shapes[1:]))
            problem = f"takes filters (and bias) of shape {wanted} behind its maps, or none, but they are {given}"
            raise ShapeMismatchError(problem)
        return (*images, self.out_channels, *self.map_size(map_size))

    def parameter_shapes(self, input_shapes: tuple[Shape, ...]) -> dict[str, Shape]:
        """Return the filter bank and, if any, the bias; nothing where they are inputs."""
        if len(input_shapes) > 1:
            return {}
        return self._given_shapes(self._parts(input_shapes[0])[1])

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return the convolution."""
        return (self.convolution(input_shapes[0], batch_size=batch_size, role=Role.OUTPUT),)

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return the gradients of input and filters, and the bias's sum."""
        gradients = tuple(
            self.convolution(input_shapes[0], batch_size=batch_size, role=role)
            for role in (Role.INPUT_GRADIENT, Role.WEIGHT_GRADIENT)
        )
        if not self.bias:
            return gradients
        outputs = batch_size * math.prod(self.output_shape(input_shapes))
        return (*gradients, bias_gradient(outputs, bias_elements=self.out_channels))

    def gradient_operations(
        self, input_shapes: tuple[Shape, ...], *, batch_size: Any, wanted: Sequence[bool]
    ) -> tuple[Operation, ...]:
        """Return what is left where only some inputs want a gradient; filters that are inputs may not."""
        if len(input_shapes) == 1:
            return super().gradient_operations(input_shapes, batch_size=batch_size, wanted=wanted)
        operations = self.backward_operations(input_shapes, batch_size=batch_size)
        return tuple(operation for operation, is_wanted in zip(operations, wanted, strict=True) if is_wanted)


def bank_translation(layer: FilterBank, maps: Operand, weight: Operand, bias: Operand | None) -> Translation | None:
    """Return a call of a convolution: its filters as parameters where they are trained, as inputs where computed.

    Parameters
    ----------
    layer : FilterBank
        The convolution. [-]
    maps : Operand
        What is convolved. [-]
    weight, bias : Operand or None
        Filters, and bias if any. [-]

    Returns
    -------
    Translation or None
        None where filters differ from sample to sample. [-]
    """
    own = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    if not all(operand.is_shared for operand in own.values()):
        return None
    if all(operand.is_parameter for operand in own.values()):
        return Translation(layer=layer, inputs=(maps,), parameters=own)
    return Translation(layer=layer, inputs=(maps, *own.values()))
