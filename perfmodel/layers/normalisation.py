"""Normalisations across samples or channels, and the scale that follows them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from perfmodel.layers.base import (
    Checks,
    Examples,
    Layer,
    LayerByInput,
    OnePassLayer,
    Operations,
    SymbolicExample,
    Traffic,
    layer_kind,
)
from perfmodel.layers.checks import check_axis, is_open_size, one_of, optional
from perfmodel.layers.passes import one_pass, only_pass
from perfmodel.layers.shapes import IMAGE, Shape, Shapes, axis_in, channel_count, check_rank
from perfmodel.layers.translation import Operand, OperatorCall, Operators, Translation, affine_parameters
from perfmodel.records import MemoryPass, Role

STATISTICS_KINDS = ("batch", "given")
"""Source of mean and variance."""
STATISTICS = 2
"""Values kept per channel: mean and inverse standard deviation [1]."""


def _by_channel(
    operand: Operand, scale: Operand | None, shift: Operand | None, *, by_batch: bool
) -> Translation | None:
    axis = operand.sample_axis(1)
    if axis is None:
        return None
    usual = 0 if len(operand.shape) == len(IMAGE) else len(operand.shape) - 1
    layer = BatchNorm(
        statistics="batch" if by_batch else "given", affine=scale is not None, axis=None if axis == usual else axis
    )
    return Translation(
        layer=layer,
        inputs=(operand,),
        parameters=affine_parameters(scale, shift),
    )


def _from_torch(call: OperatorCall) -> Translation | None:
    by_batch = call.get("training", call.operator == "aten._batch_norm_with_update")
    return _by_channel(call["input"], call.get("weight"), call.get("bias"), by_batch=bool(by_batch))


def _from_onnx_batch_norm(call: OperatorCall) -> Translation | None:
    return _by_channel(call["0"], call["1"], call["2"], by_batch=bool(call.get("training_mode", 0)))


@layer_kind
class BatchNorm(LayerByInput):
    """Normalise each channel by a mean and a variance, then scale and shift.

    Parameters
    ----------
    statistics : str
        ``batch``: mean and variance of the mini-batch; ``given``: fixed, like Caffe's ``use_global_stats``. [-]
    affine : bool
        Whether gamma and beta follow; Caffe's BatchNorm has none and is followed by a Scale layer. [-]
    axis : int or None
        Axis of the channels in a sample, counted from the end if negative; None: the first of (channels, height,
        width), otherwise the last. [-]

    Notes
    -----
    Forward reads x twice and writes y: per element 3 FLOP for the sums of x and x^2, 2 to normalise, 2 for
    gamma and beta. Backward, one pass yields all gradients: x and dy are read for the sums of dy and dy xhat
    (5 FLOP) and again for dx (6 FLOP); its role is INPUT_GRADIENT. If the input needs no gradient, only the first
    half remains, as WEIGHT_GRADIENT. Ignores: the few operations per channel, running averages (buffers, not
    parameters).

    References
    ----------
    .. [1] Ioffe, Szegedy, Batch normalization, ICML 2015, arXiv:1502.03167.
    """

    kind: ClassVar[str] = "batch_norm"
    examples: ClassVar[Examples] = (
        ({}, ((4, 9, 9),)),
        ({"affine": False}, ((10,),)),
        ({"axis": 0, "statistics": "given"}, ((5, 6),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("C", "H", "W"),))
    torch_operators: ClassVar[Operators] = {
        "aten.native_batch_norm": _from_torch,
        "aten._native_batch_norm_legit": _from_torch,
        "aten._native_batch_norm_legit_no_training": _from_torch,
        "aten._native_batch_norm_legit_functional": _from_torch,
        "aten._batch_norm_with_update": _from_torch,
        "aten._batch_norm_no_update": _from_torch,
        "aten.cudnn_batch_norm": _from_torch,
        "aten.miopen_batch_norm": _from_torch,
    }
    onnx_operators: ClassVar[Operators] = {"BatchNormalization": _from_onnx_batch_norm}
    checks: ClassVar[Checks] = {"statistics": one_of(STATISTICS_KINDS), "axis": optional(check_axis)}
    affine: bool = True
    statistics: str = "batch"
    axis: int | None = None

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
        return {"gamma": channels, "beta": channels} if self.affine else {}

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
        vectors = 2 * self.affine
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
            read=(for_input + 2 * self.affine) * elements + (STATISTICS + self.affine) * channels,
            written=for_input * elements + 2 * self.affine * channels,
            tensor=elements,
            flop=((1 + self.affine) * for_input + 3 * self.affine) * elements,
            role=Role.INPUT_GRADIENT if for_input else Role.WEIGHT_GRADIENT,
        )

    def gradient_operations(self, input_shapes: Shapes, *, batch_size: Any, wanted: Sequence[bool]) -> Operations:
        """Return one pass, without its second half if dx is not needed; nothing if no gradient is."""
        elements = batch_size * math.prod(input_shapes[0])
        channels = self._channels(input_shapes[0])
        for_input = int(any(wanted))
        if not for_input and not self.affine:
            return ()
        if self._is_frozen:
            return (self._frozen_gradient(elements, channels, for_input),)
        return only_pass(
            "batch_norm",
            read=(2 + 2 * for_input) * elements + (STATISTICS + for_input * self.affine) * channels,
            written=for_input * elements + 2 * self.affine * channels,
            tensor=elements,
            flop=(5 + 6 * for_input) * elements,
            role=Role.INPUT_GRADIENT if for_input else Role.WEIGHT_GRADIENT,
        )


@layer_kind
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

    kind: ClassVar[str] = "scale"
    examples: ClassVar[Examples] = (
        ({}, ((4, 9, 9),)),
        ({"bias": False}, ((5, 6),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("C", "H", "W"),))
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
"""Per element, besides one for each neighbour [FLOP]."""
BACKWARD_FLOP = 6
"""Per element, besides one for each neighbour [FLOP]."""


def _from_onnx_local_response_norm(call: OperatorCall) -> Translation:
    return Translation(layer=LocalResponseNorm(size=call["size"]), inputs=(call["0"],))


@layer_kind
class LocalResponseNorm(OnePassLayer):
    """y = x s^-beta with s = k + (alpha / size) times the sum of x^2 over ``size`` neighbouring channels.

    Parameters
    ----------
    size : int
        Channels in a neighbourhood, which is clipped at the first and last channel and may thus exceed the number
        of channels; if either is symbolic, the size is taken to be smaller. [1]

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

    kind: ClassVar[str] = "local_response_norm"
    examples: ClassVar[Examples] = (({"size": 3}, ((4, 9, 9),)),)
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("C", "H", "W"),))
    onnx_operators: ClassVar[Operators] = {"LRN": _from_onnx_local_response_norm}
    keeps_output: ClassVar[bool] = True
    size: int = 5

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the input's shape."""
        check_rank(input_shapes[0], IMAGE)
        return input_shapes[0]

    def _neighbours(self, shape: Shape) -> Any:
        """Return the total neighbours of a sample's elements, each counting itself [1]."""
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
