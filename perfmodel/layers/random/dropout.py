"""Dropout, as in training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_fraction
from perfmodel.layers.passes import MASK_BYTES
from perfmodel.layers.shape.reshape import Reshape
from perfmodel.layers.shapes import Shape
from perfmodel.layers.translation import Operand, OperatorCall, Translation, Translator
from perfmodel.records import MemoryPass, Operation, Role


def _at_rate(x: Operand, rate: float, *, is_training: bool) -> Translation:
    layer = Dropout(rate=rate) if is_training and rate else Reshape(shape=tuple(x.shape))
    return Translation(layer=layer, inputs=(x,))


def _from_torch(call: OperatorCall) -> Translation:
    return _at_rate(call["input"], call["p"], is_training=call["train"] in (True, None))


def _from_onnx(call: OperatorCall) -> Translation:
    rate = call.get("ratio", 0.5)
    return _at_rate(call["0"], rate, is_training=bool(call.get("training_mode", False)))


@final
@dataclass(frozen=True, kw_only=True)
class Dropout(Layer):
    """Zero a fraction of the elements at random and scale up the others, as in training.

    Parameters
    ----------
    rate : float
        Fraction dropped, in [0, 1). [1]

    Notes
    -----
    Forward 2 FLOP per element (compare a random number, multiply), writes y and a mask of 1 B per element;
    backward 1 FLOP (multiply), reads dy and the mask. Ignores: making the random numbers.
    """

    kind: ClassVar[str] = "dropout"
    examples: ClassVar[Examples] = (({"rate": 0.3}, ((4, 9, 9),)),)
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("F",),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.dropout": _from_torch,
        "aten.native_dropout": _from_torch,
    }
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"Dropout": _from_onnx}
    keeps_inputs: ClassVar[bool] = False
    rate: float = 0.5

    def __post_init__(self) -> None:
        check_fraction("rate", self.rate)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the input's shape."""
        return input_shapes[0]

    def at_inference(self, input_shapes: tuple[Shape, ...]) -> Layer:
        """Return a layer that does nothing."""
        return Reshape(shape=tuple(input_shapes[0]))

    def saved_bytes(self, input_shapes: tuple[Shape, ...], *, batch_size: Any, element_bytes: int) -> Any:
        """Return the mask [B]."""
        del element_bytes
        return MASK_BYTES * batch_size * math.prod(input_shapes[0])

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads x and writes y and the mask."""
        elements = batch_size * math.prod(input_shapes[0])
        return (
            MemoryPass(
                name="dropout",
                read_elements=elements,
                written_elements=elements,
                tensor_elements=elements,
                flop_count=2 * elements,
                written_index_bytes=MASK_BYTES * elements,
            ),
        )

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads dy and the mask and writes dx."""
        elements = batch_size * math.prod(input_shapes[0])
        return (
            MemoryPass(
                name="dropout",
                read_elements=elements,
                written_elements=elements,
                tensor_elements=elements,
                flop_count=elements,
                read_index_bytes=MASK_BYTES * elements,
                role=Role.INPUT_GRADIENT,
            ),
        )
