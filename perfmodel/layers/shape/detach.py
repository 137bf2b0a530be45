"""A tensor through which no gradient flows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.shapes import Shape
from perfmodel.layers.translation import OperatorCall, Translation, Translator
from perfmodel.records import Operation


def _from_torch(call: OperatorCall) -> Translation:
    return Translation(layer=Detach(), inputs=(call["self"],))


@final
@dataclass(frozen=True, kw_only=True)
class Detach(Layer):
    """The input as a constant: a view that costs nothing and sends no gradient back."""

    kind: ClassVar[str] = "detach"
    examples: ClassVar[Examples] = (({}, ((4, 9, 9),)),)
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("F",),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.detach": _from_torch,
    }
    index_inputs: ClassVar[tuple[int, ...]] = (0,)
    keeps_inputs: ClassVar[bool] = False
    is_view: ClassVar[bool] = True

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the input's shape."""
        return input_shapes[0]

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return nothing."""
        del input_shapes, batch_size
        return ()

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return nothing."""
        del input_shapes, batch_size
        return ()
