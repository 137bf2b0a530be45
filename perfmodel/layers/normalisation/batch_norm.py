"""Batch normalisation, by the statistics of the mini-batch or by given ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_axis, check_choice, check_flag
from perfmodel.layers.shapes import IMAGE, Shape, axis_in, channel_count
from perfmodel.layers.translation import Operand, OperatorCall, Translation, Translator, affine_parameters
from perfmodel.records import MemoryPass, Operation, Role

STATISTICS_KINDS = ("batch", "given")
"""Where mean and variance come from."""
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


def _from_onnx(call: OperatorCall) -> Translation | None:
    return _by_channel(call["0"], call["1"], call["2"], by_batch=bool(call.get("training_mode", 0)))


@final
@dataclass(frozen=True, kw_only=True)
class BatchNorm(Layer):
    """Normalise each channel by a mean and a variance, then scale and shift.

    Parameters
    ----------
    statistics : str
        ``batch``: mean and variance of the mini-batch; ``given``: fixed ones, as Caffe's ``use_global_stats``. [-]
    affine : bool
        Whether gamma and beta follow; Caffe's BatchNorm has none and is followed by a Scale layer. [-]
    axis : int or None
        Axis of the channels in a sample, negative ones counted from the last; None for the first of (channels,
        height, width), else the last. [-]

    Notes
    -----
    Forward reads x twice and writes y: per element 3 FLOP for the sums of x and x^2, 2 to normalise, 2 for
    gamma and beta. Backward one pass yields all gradients: x and dy are read for the sums of dy and dy xhat
    (5 FLOP) and again for dx (6 FLOP); it carries INPUT_GRADIENT. Where the input wants no gradient the first
    half remains, as WEIGHT_GRADIENT. Ignores: the handful of operations per channel, running averages
    (buffers, not parameters).

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
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.native_batch_norm": _from_torch,
        "aten._native_batch_norm_legit": _from_torch,
        "aten._native_batch_norm_legit_no_training": _from_torch,
        "aten._native_batch_norm_legit_functional": _from_torch,
        "aten._batch_norm_with_update": _from_torch,
        "aten._batch_norm_no_update": _from_torch,
        "aten.cudnn_batch_norm": _from_torch,
        "aten.miopen_batch_norm": _from_torch,
    }
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"BatchNormalization": _from_onnx}
    affine: bool = True
    statistics: str = "batch"
    axis: int | None = None

    def __post_init__(self) -> None:
        check_flag("affine", self.affine)
        check_choice("statistics", self.statistics, STATISTICS_KINDS)
        if self.axis is not None:
            check_axis("axis", self.axis)

    @property
    def _is_frozen(self) -> bool:
        return self.statistics == "given"

    @property
    def _pass_name(self) -> str:
        return "frozen_batch_norm" if self._is_frozen else "batch_norm"

    def _channels(self, shape: Shape) -> int:
        return channel_count(shape) if self.axis is None else shape[axis_in(shape, self.axis)]

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the input's shape."""
        self._channels(input_shapes[0])
        return input_shapes[0]

    def parameter_shapes(self, input_shapes: tuple[Shape, ...]) -> dict[str, Shape]:
        """Return gamma and beta, if any."""
        channels = (self._channels(input_shapes[0]),)
        return {"gamma": channels, "beta": channels} if self.affine else {}

    def at_inference(self, input_shapes: tuple[Shape, ...]) -> Layer:
        """Return the layer with given statistics."""
        del input_shapes
        return replace(self, statistics="given")

    def saved_bytes(self, input_shapes: tuple[Shape, ...], *, batch_size: Any, element_bytes: int) -> Any:
        """Return mean and inverse standard deviation of each channel [B]."""
        del batch_size
        return element_bytes * STATISTICS * self._channels(input_shapes[0])

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads x twice and writes y and the statistics."""
        elements = batch_size * math.prod(input_shapes[0])
        channels = self._channels(input_shapes[0])
        vectors = 2 * self.affine
        reads = 1 if self._is_frozen else 2
        summed_flop = 0 if self._is_frozen else 3
        return (
            MemoryPass(
                name=self._pass_name,
                read_elements=reads * elements + (vectors + STATISTICS * self._is_frozen) * channels,
                written_elements=elements + STATISTICS * (not self._is_frozen) * channels,
                tensor_elements=elements,
                flop_count=(2 + summed_flop + vectors) * elements,
            ),
        )

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads x and dy twice and yields the gradients of input and parameters."""
        return self.gradient_operations(input_shapes, batch_size=batch_size, wanted=(True,))

    def _frozen_gradient(self, elements: Any, channels: int, for_input: int) -> MemoryPass:
        return MemoryPass(
            name=self._pass_name,
            read_elements=(for_input + 2 * self.affine) * elements + (STATISTICS + self.affine) * channels,
            written_elements=for_input * elements + 2 * self.affine * channels,
            tensor_elements=elements,
            flop_count=((1 + self.affine) * for_input + 3 * self.affine) * elements,
            role=Role.INPUT_GRADIENT if for_input else Role.WEIGHT_GRADIENT,
        )

    def gradient_operations(
        self, input_shapes: tuple[Shape, ...], *, batch_size: Any, wanted: Sequence[bool]
    ) -> tuple[Operation, ...]:
        """Return one pass, without its second half where dx is not wanted; nothing where nothing is."""
        elements = batch_size * math.prod(input_shapes[0])
        channels = self._channels(input_shapes[0])
        for_input = int(any(wanted))
        if not for_input and not self.affine:
            return ()
        if self._is_frozen:
            return (self._frozen_gradient(elements, channels, for_input),)
        return (
            MemoryPass(
                name="batch_norm",
                read_elements=(2 + 2 * for_input) * elements + (STATISTICS + for_input * self.affine) * channels,
                written_elements=for_input * elements + 2 * self.affine * channels,
                tensor_elements=elements,
                flop_count=(5 + 6 * for_input) * elements,
                role=Role.INPUT_GRADIENT if for_input else Role.WEIGHT_GRADIENT,
            ),
        )
