"""A copy of a tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.passes import elementwise
from perfmodel.layers.shapes import Shape, element_count
from perfmodel.layers.translation import OperatorCall, Translation, Translator
from perfmodel.records import Operation

TORCH_NAMES = {
    "aten.clone": "self",
    "aten._to_copy": "self",
    "aten.lift_fresh_copy": "self",
    "aten.copy": "src",
}
"""Operator of torch -> name of what it copies."""


def _from_torch(call: OperatorCall) -> Translation | None:
    if call.moved:
        return None  # into another order: elements are rearranged
    return Translation(layer=Copy(), inputs=(call[TORCH_NAMES[call.operator]],))


def _from_onnx(call: OperatorCall) -> Translation:
    return Translation(layer=Copy(), inputs=(call["0"],))


@final
@dataclass(frozen=True, kw_only=True)
class Copy(Layer):
    """The same elements in memory of their own: a clone, or a change of data type.

    Notes
    -----
    Forward reads and writes every element once. Backward does nothing: dy is passed on.
    """

    kind: ClassVar[str] = "copy"
    examples: ClassVar[Examples] = (({}, ((4, 9, 9),)),)
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("F",),))
    torch_operators: ClassVar[Mapping[str, Translator]] = dict.fromkeys(TORCH_NAMES, _from_torch)
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"Cast": _from_onnx, "CastLike": _from_onnx}
    keeps_inputs: ClassVar[bool] = False

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the input's shape."""
        return input_shapes[0]

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads x and writes y."""
        return (elementwise("copy", element_count(input_shapes[0], batch_size=batch_size)),)

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return nothing."""
        del input_shapes, batch_size
        return ()
