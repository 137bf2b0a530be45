"""Normalisations across samples or channels and within each sample, and the scale that follows some of them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from perfmodel.layers.base import Checks, Layer, LayerByInput, OnePassLayer, Operations, Traffic, layer_kind, of_options
from perfmodel.layers.checks import check_axis, is_open_size, one_of, optional, refuse
from perfmodel.layers.passes import one_pass, only_pass
from perfmodel.layers.shapes import (
    IMAGE,
    Shape,
    Shapes,
    axis_in,
    channel_count,
    check_divides,
    check_rank,
    element_count,
    last_axes,
    mismatch,
    shape_text,
    stated_shape,
    without_last_axes,
)
from perfmodel.layers.translation import (
    OperatorCall,
    Operators,
    Translation,
    affine_translation,
    norm_operands,
    of_first,
)
from perfmodel.records import MemoryPass, Role

STATISTICS_KINDS = ("batch", "given")
"""Source of mean and variance."""
STATISTICS = 2
"""Values kept per channel: mean and inverse standard deviation [1]."""


def _by_channel(call: OperatorCall) -> Translation | None:
    operand, scale, _ = norm_operands(call)
    axis = operand.sample_axis(1)
    if axis is None:
        return None
    usual = 0 if len(operand.shape) == len(IMAGE) else len(operand.shape) - 1
    by_batch = call.get("training", call.get("training_mode", call.operator == "aten._batch_norm_with_update"))
    statistics = "batch" if by_batch else "given"
    layer = BatchNorm(statistics=statistics, affine=scale is not None, axis=None if axis == usual else axis)
    return affine_translation(call, layer)


@layer_kind("batch_norm")
class BatchNorm(LayerByInput):
    """Normalise each channel by a mean and a variance, then scale and shift.

    Parameters
    ----------
    statistics : str
        ``batch``: mean and variance of the mini-batch; ``given``: fixed, like Caffe's ``use_global_stats``. [-]
    affine : bool
        Whether gamma and beta follow; Caffe's BatchNorm has none and is followed by a Scale layer. [-]
    scale : bool
        Whether gamma follows too; without it only beta does, as before a product with weights. [-]
    axis : int or None
        Axis of the channels in a sample, counted from the end if negative; None: the first of (channels, height,
        width), otherwise the last. [-]

    Notes
    -----
    Forward reads x twice and writes y: per element 3 FLOP for the sums of x and x^2, 2 to normalise, 2 for
    gamma and beta. Backward, one pass yields all gradients: x and dy are read for the sums of dy and dy xhat
    (5 FLOP) and again for dx (6 FLOP); its role is INPUT_GRADIENT. If the input needs no gradient, only the sums
    remain, as WEIGHT_GRADIENT. Ignores: the few operations per channel, running averages (buffers, not
    parameters).

    References
    ----------
    .. [1] Ioffe, Szegedy, Batch normalization, ICML 2015, arXiv:1502.03167.
    """

    operators: ClassVar[Operators] = dict.fromkeys(
        (
            *("aten.native_batch_norm", "aten._native_batch_norm_legit", "aten._native_batch_norm_legit_no_training"),
            *("aten._native_batch_norm_legit_functional", "aten._batch_norm_with_update"),
            *("aten._batch_norm_no_update", "aten.cudnn_batch_norm", "aten.miopen_batch_norm"),
            "BatchNormalization",
        ),
        _by_channel,
    )
    checks: ClassVar[Checks] = {"statistics": one_of(STATISTICS_KINDS), "axis": optional(check_axis)}
    affine: bool = True
    statistics: str = "batch"
    axis: int | None = None
    scale: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.affine or self.scale):
            refuse("scale", self.scale, "must be True without affine: there is neither gamma nor beta")

    @property
    def _has_gamma(self) -> bool:
        return self.affine and self.scale

    @property
    def _vectors(self) -> int:
        """Vectors that follow: gamma and beta, beta alone, or none [1]."""
        return self.affine + self._has_gamma

    @property
    def _is_frozen(self) -> bool:
        return self.statistics == "given"

    @property
    def _pass_name(self) -> str:
        return "frozen_batch_norm" if self._is_frozen else "batch_norm"

    def _channels(self, shape: Shape) -> int:
        return channel_count(shape) if self.axis is None else shape[axis_in(shape, self.axis)]

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the input's shape."""
        self._channels(input_shapes[0])
        return input_shapes[0]

    def parameter_shapes(self, input_shapes: Shapes) -> dict[str, Shape]:
        """Return gamma and beta, if any."""
        channels = (self._channels(input_shapes[0]),)
        return dict.fromkeys(("gamma", "beta")[2 - self._vectors :], channels)

    def at_inference(self, input_shapes: Shapes) -> Layer:
        """Return the layer with ``given`` statistics."""
        return replace(self, statistics="given")

    def saved_bytes(self, input_shapes: Shapes, *, batch_size: Any, element_bytes: int) -> Any:
        """Return mean and inverse standard deviation of each channel [B]."""
        return element_bytes * STATISTICS * self._channels(input_shapes[0])

    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return one pass that reads x twice and writes y and the statistics."""
        elements = batch_size * math.prod(input_shapes[0])
        channels = self._channels(input_shapes[0])
        vectors = self._vectors
        reads = 1 if self._is_frozen else 2
        summed_flop = 0 if self._is_frozen else 3
        return only_pass(
            self._pass_name,
            read=reads * elements + (vectors + STATISTICS * self._is_frozen) * channels,
            written=elements + STATISTICS * (not self._is_frozen) * channels,
            tensor=elements,
            flop=(2 + summed_flop + vectors) * elements,
        )

    def _frozen_gradient(self, elements: Any, channels: int, for_input: int) -> MemoryPass:
        return one_pass(
            self._pass_name,
            read=(for_input + self._vectors) * elements + (STATISTICS + self._has_gamma) * channels,
            written=for_input * elements + self._vectors * channels,
            tensor=elements,
            flop=((1 + self._has_gamma) * for_input + self.affine + 2 * self._has_gamma) * elements,
            role=Role.INPUT_GRADIENT if for_input else Role.WEIGHT_GRADIENT,
        )

    def gradient_operations(self, input_shapes: Shapes, *, batch_size: Any, wanted: Sequence[bool]) -> Operations:
        """Return one pass, which ends after the sums if dx is not needed; no pass if no gradient is needed."""
        elements = batch_size * math.prod(input_shapes[0])
        channels = self._channels(input_shapes[0])
        for_input = int(any(wanted))
        if not for_input and not self.affine:
            return ()
        if self._is_frozen:
            return (self._frozen_gradient(elements, channels, for_input),)
        reads_x = int(for_input or self._has_gamma)  # the gradient of beta alone is the sum of dy
        return only_pass(
            "batch_norm",
            read=(1 + reads_x + 2 * for_input) * elements + (STATISTICS + for_input * self._has_gamma) * channels,
            written=for_input * elements + self._vectors * channels,
            tensor=elements,
            flop=(1 + 4 * reads_x + 6 * for_input) * elements,
            role=Role.INPUT_GRADIENT if for_input else Role.WEIGHT_GRADIENT,
        )


@layer_kind("scale")
class Scale(LayerByInput):
    """y = gamma x + beta with one gamma and beta per channel (a layer of its own in Caffe, beside batch norm).

    Parameters
    ----------
    bias : bool
        Whether beta is added. [-]

    Notes
    -----
    Per element: forward a multiply and, with bias, an add. Backward, one pass yields all gradients from x and
    dy: dx = gamma dy (1 FLOP), dgamma = sum dy x (2), dbeta = sum dy (1); its role is INPUT_GRADIENT. If the
    input needs no gradient, dx is neither computed nor written, and the role is WEIGHT_GRADIENT.
    """

    inputs_serve_weights: ClassVar[bool] = True
    bias: bool = True

    @property
    def _vectors(self) -> int:
        return 1 + self.bias

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the input's shape."""
        return input_shapes[0]

    def parameter_shapes(self, input_shapes: Shapes) -> dict[str, Shape]:
        """Return gamma and, if any, beta."""
        channels: Shape = (channel_count(input_shapes[0]),)
        return {"gamma": channels, "beta": channels} if self.bias else {"gamma": channels}

    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return one pass that reads x and writes y."""
        elements = batch_size * math.prod(input_shapes[0])
        return only_pass(
            "scale",
            read=elements + self._vectors * channel_count(input_shapes[0]),
            written=elements,
            flop=self._vectors * elements,
        )

    def gradient_operations(self, input_shapes: Shapes, *, batch_size: Any, wanted: Sequence[bool]) -> Operations:
        """Return one pass, without dx if it is not needed."""
        elements = batch_size * math.prod(input_shapes[0])
        channels = channel_count(input_shapes[0])
        for_input = int(any(wanted))
        return only_pass(
            "scale",
            read=2 * elements + for_input * channels,
            written=for_input * elements + self._vectors * channels,
            tensor=elements,
            flop=(for_input + 1 + self._vectors) * elements,
            role=Role.INPUT_GRADIENT if for_input else Role.WEIGHT_GRADIENT,
        )


FORWARD_FLOP = 4
"""Forward FLOP per element, without the one for each neighbour. [FLOP]"""
BACKWARD_FLOP = 6
"""Backward FLOP per element, without the one for each neighbour. [FLOP]"""


@layer_kind("local_response_norm")
class LocalResponseNorm(OnePassLayer):
    """y = x s^-beta with s = k + (alpha / size) times the sum of x^2 over ``size`` neighbouring channels.

    Parameters
    ----------
    size : int
        Channels in a neighbourhood, clipped at the first and last channel, so it may exceed the number of channels;
        if either is symbolic, the size is assumed to be the smaller. [1]

    Notes
    -----
    The clipped neighbourhood of an element has n members. Forward, per element: square, n - 1 adds, multiply, add,
    power, multiply: n + 4 FLOP; reads x, writes y and s. Backward dx = dy s^-beta - c x sum(dy y / s): power,
    multiply; multiply, divide, n - 1 adds; two multiplies, subtract: n + 6 FLOP; reads x, y, s and dy.

    References
    ----------
    .. [1] Krizhevsky, Sutskever, Hinton, ImageNet classification with deep convolutional neural networks,
       NIPS 2012, section 3.3.
    """

    operators: ClassVar[Operators] = {"LRN": lambda call: of_first(call, LocalResponseNorm(size=call["size"]))}
    keeps_output: ClassVar[bool] = True
    size: int = 5

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the input's shape."""
        check_rank(input_shapes[0], IMAGE)
        return input_shapes[0]

    def _neighbours(self, shape: Shape) -> Any:
        """Return the neighbours summed over the elements of a sample; each element is its own neighbour too [1]."""
        channels, *map_size = shape
        reaches = [self.size // 2, self.size - 1 - self.size // 2]
        if not is_open_size(channels) and not is_open_size(self.size):
            reaches = [min(reach, channels - 1) for reach in reaches]
        # C - d ordered pairs of channels lie d apart on each side
        pairs = sum(reach * channels - reach * (reach + 1) // 2 for reach in reaches)
        return math.prod(map_size) * (channels + pairs)

    def saved_bytes(self, input_shapes: Shapes, *, batch_size: Any, element_bytes: int) -> Any:
        """Return the sums s [B]."""
        return element_bytes * batch_size * math.prod(input_shapes[0])

    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[Traffic, Traffic]:
        """Return a pass that reads x and writes y and s, and one that reads x, y, s and dy and writes dx."""
        elements = batch_size * math.prod(input_shapes[0])
        summed = batch_size * self._neighbours(input_shapes[0])
        return (
            {"read": elements, "written": 2 * elements, "tensor": elements, "flop": FORWARD_FLOP * elements + summed},
            {"read": 4 * elements, "written": elements, "flop": BACKWARD_FLOP * elements + summed},
        )


@dataclass(frozen=True, kw_only=True)
class SampleNorm(Layer):
    """Normalise groups of elements of each sample, then scale and shift.

    Parameters
    ----------
    affine : bool
        Whether gamma follows, and in most kinds beta. [-]

    Notes
    -----
    x^ is the normalised x. c, a and b are 1 if the mean is subtracted, gamma is applied, beta is added; else 0.
    Forward reads x r times and writes y, where r is 1 if groups are rows short enough to stay on chip, else 2: per
    element 2 + c FLOP for the sums of x^2 and x, 1 + c to normalise, a + b.
    Backward to the input reads x and dy for the sums of dy gamma x^ and dy gamma, with r = 2 again for dx: 1 + c for
    x^, a for dy gamma each time, 2 + c for the sums, 3 + c for dx: 7 + 4 c + 2 a FLOP. Backward to gamma and beta is a
    pass of its own that reads x and dy: 3 + c + b FLOP. Ignores: the handful of operations per group.
    """

    reads: ClassVar[int] = 2
    centred: ClassVar[bool] = True
    affine: bool = True

    @property
    def has_shift(self) -> bool:
        """Whether beta is added."""
        return self.affine

    @abstractmethod
    def _vector_shape(self, shape: Shape) -> Shape:
        """Return the shape of gamma [1]; raise ShapeMismatchError for samples that do not fit."""

    @abstractmethod
    def _group_shape(self, shape: Shape) -> Shape:
        """Return a shape with one element for each group of a sample [1]."""

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the input's shape."""
        self._vector_shape(input_shapes[0])
        return input_shapes[0]

    def parameter_shapes(self, input_shapes: Shapes) -> dict[str, Shape]:
        """Return gamma and beta, if any."""
        vector = self._vector_shape(input_shapes[0])
        names = ("gamma",) * self.affine + ("beta",) * self.has_shift
        return dict.fromkeys(names, vector)

    def _statistics(self, shape: Shape, batch_size: Any) -> Any:
        """Return the elements of mean and inverse standard deviation of all groups [1]."""
        return (1 + self.centred) * element_count(self._group_shape(shape), batch_size=batch_size)

    def _vector_elements(self, shape: Shape) -> Any:
        return math.prod(self._vector_shape(shape))

    def saved_bytes(self, input_shapes: Shapes, *, batch_size: Any, element_bytes: int) -> Any:
        """Return the statistics of each group [B]."""
        return element_bytes * self._statistics(input_shapes[0], batch_size)

    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return one pass that reads x and writes y and the statistics."""
        shape = input_shapes[0]
        elements = element_count(shape, batch_size=batch_size)
        vectors = self.affine + self.has_shift
        return only_pass(
            self.kind,
            read=self.reads * elements + vectors * self._vector_elements(shape),
            written=elements + self._statistics(shape, batch_size),
            tensor=elements,
            flop=(3 + 2 * self.centred + vectors) * elements,
        )

    def backward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return the pass that yields dx, and the one that yields the gradients of gamma and beta."""
        shape = input_shapes[0]
        elements = element_count(shape, batch_size=batch_size)
        statistics = self._statistics(shape, batch_size)
        vector = self._vector_elements(shape)
        to_input = one_pass(
            self.kind,
            read=2 * self.reads * elements + statistics + int(self.affine) * vector,
            written=elements,
            flop=(7 + 4 * self.centred + 2 * self.affine) * elements,
            role=Role.INPUT_GRADIENT,
        )
        if not self.affine:
            return (to_input,)
        to_parameters = one_pass(
            self.kind,
            read=2 * elements + statistics,
            written=(1 + self.has_shift) * vector,
            tensor=elements,
            flop=(3 + self.centred + self.has_shift) * elements,
            role=Role.WEIGHT_GRADIENT,
        )
        return (to_input, to_parameters)


@dataclass(frozen=True, kw_only=True)
class LastAxesNorm(SampleNorm):
    """Normalise over the last axes of a sample.

    Parameters
    ----------
    axis_count : int
        Last axes that are normalised together. [1]
    """

    reads: ClassVar[int] = 1
    axis_count: int = 1

    def _vector_shape(self, shape: Shape) -> Shape:
        return last_axes(shape, self.axis_count)

    def _group_shape(self, shape: Shape) -> Shape:
        return without_last_axes(shape, self.axis_count)


def _over_last(call: OperatorCall, kind: type[LastAxesNorm]) -> Translation | None:
    """Translate a norm of torch or ONNX; None if it normalises over the batch or has beta without gamma."""
    operand, scale, shift = norm_operands(call)
    axis = -len(call["normalized_shape"]) if "." in call.operator else call.get("axis", -1)
    axis_count = -axis if axis < 0 else len(operand.axes) - axis
    if None in operand.axes[len(operand.axes) - axis_count :] or (scale is None and shift is not None):
        return None
    options = {"bias": shift is not None or scale is None} if kind is LayerNorm else {}
    return affine_translation(call, kind(axis_count=axis_count, affine=scale is not None, **options))


@layer_kind("layer_norm")
class LayerNorm(LastAxesNorm):
    """Normalise over the last axes of a sample by mean and variance, then scale and shift element by element.

    Parameters
    ----------
    axis_count : int
        Last axes that are normalised together. [1]
    bias : bool
        Whether beta follows gamma; without ``affine`` there is neither. [-]

    Notes
    -----
    Forward 7 FLOP per element (3 for the sums of x and x^2, 2 to normalise, 2 for gamma and beta), backward 13 to the
    input and 5 to gamma and beta; x is read once forward, x and dy once to the input and once to the parameters.
    Ignores: the handful of operations per row; rows too long to stay on chip.

    References
    ----------
    .. [1] Ba, Kiros, Hinton, Layer normalization, 2016, arXiv:1607.06450.
    """

    operators: ClassVar[Operators] = dict.fromkeys(
        ("aten.native_layer_norm", "LayerNormalization"), lambda call: _over_last(call, LayerNorm)
    )
    has_shift: ClassVar[bool] = of_options(lambda layer: layer.affine and layer.bias)
    bias: bool = True


def _in_groups(call: OperatorCall) -> Translation | None:
    """Translate a norm over groups of channels; without a number of groups each channel is a group."""
    operand, scale, shift = norm_operands(call)
    by_given_statistics = not call.get("use_input_stats", True)
    if by_given_statistics or operand.axes[:2] != (None, 0) or (scale is None) != (shift is None):
        return None
    groups = call.get("group", call.get("num_groups", operand.shape[0]))
    return affine_translation(call, GroupNorm(groups=groups, affine=scale is not None))


@layer_kind("group_norm")
class GroupNorm(SampleNorm):
    """Normalise groups of neighbouring channels by mean and variance, then scale and shift by channel.

    Channels are the first axis of a sample. One group is layer norm over channels and map, as many groups as channels
    is instance norm.

    Parameters
    ----------
    groups : int
        Groups that the channels are divided into. [1]

    Notes
    -----
    Forward 7 FLOP per element (3 for the sums of x and x^2, 2 to normalise, 2 for gamma and beta), backward 13 to the
    input and 5 to gamma and beta; x is read twice forward, x and dy twice to the input and once to the parameters.
    Ignores: the handful of operations per group; groups small enough to stay in a cache between two reads.

    References
    ----------
    .. [1] Wu, He, Group normalization, ECCV 2018, arXiv:1803.08494.
    """

    operators: ClassVar[Operators] = dict.fromkeys(
        ("aten.native_group_norm", "aten.instance_norm", "GroupNormalization", "InstanceNormalization"), _in_groups
    )
    groups: int

    def _vector_shape(self, shape: Shape) -> Shape:
        if not shape:
            mismatch(f"takes samples of (channels, ...), but its input is {shape_text(shape)}")
        problem = f"its {self.groups} groups do not divide the {shape[0]} channels of its input {shape_text(shape)}"
        check_divides(self.groups, shape[0], problem)
        return tuple(shape[:1])

    def _group_shape(self, shape: Shape) -> Shape:
        return stated_shape((self.groups,), (shape,))


@layer_kind("rms_norm")
class RMSNorm(LastAxesNorm):
    """Divide by the root mean square over the last axes of a sample, then scale element by element.

    Parameters
    ----------
    axis_count : int
        Last axes that are normalised together. [1]

    Notes
    -----
    Forward 4 FLOP per element (2 for the sum of x^2, 1 to normalise, 1 for gamma), backward 9 to the input and 3 to
    gamma; x is read once forward, x and dy once to the input and once to gamma. Ignores: the handful of operations
    per row; rows too long to stay on chip.

    References
    ----------
    .. [1] Zhang, Sennrich, Root mean square layer normalization, NeurIPS 2019, arXiv:1910.07467.
    """

    operators: ClassVar[Operators] = dict.fromkeys(
        ("aten.rms_norm", "aten._fused_rms_norm", "RMSNormalization"), lambda call: _over_last(call, RMSNorm)
    )
    centred: ClassVar[bool] = False
    has_shift: ClassVar[bool] = False
