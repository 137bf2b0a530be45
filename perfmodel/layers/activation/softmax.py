"""Softmax along an axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.activation.along_axis import AlongAxis, along
from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.passes import elementwise
from perfmodel.layers.shapes import Shape, element_count
from perfmodel.layers.translation import OperatorCall, Translation, Translator
from perfmodel.records import Operation, Role

FORWARD_FLOP = 5
"""Per element: compare for the maximum, subtract it, exp, add to the sum, divide by it [FLOP]."""
FORWARD_READS = 2
"""One read for maximum and sum, one to normalise [1]."""
BACKWARD_FLOP = 4
"""Per element of dx = y (dy - sum(dy y)): multiply, add, subtract, multiply [FLOP]."""
BACKWARD_READS = 4
"""y and dy for the sum, and again for dx [1]."""


def _from_torch(call: OperatorCall) -> Translation | None:
    return along(Softmax, call["self"], call["dim"])


def _from_onnx(call: OperatorCall) -> Translation | None:
    return along(Softmax, call["0"], call.get("axis", -1))


@final
@dataclass(frozen=True, kw_only=True)
class Softmax(AlongAxis):
    """Softmax along one axis: exp(x - max x) / sum of the same.

    Parameters
    ----------
    axis : int
        Axis of a sample; negative counts from the last. [-]

    Notes
    -----
    Forward 5 FLOP per element, two reads and one write; backward 4 FLOP, four reads and one write. Ignores:
    rows short enough to stay in a cache between the two reads.
    """

    kind: ClassVar[str] = "softmax"
    examples: ClassVar[Examples] = (
        ({}, ((10,),)),
        ({}, ((5, 6),)),
        ({"axis": 0}, ((4, 9, 9),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("F",),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten._softmax": _from_torch,
        "aten._safe_softmax": _from_torch,
    }
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"Softmax": _from_onnx}

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads x twice and writes y."""
        elements = element_count(input_shapes[0], batch_size=batch_size)
        return (elementwise("softmax", elements, reads=FORWARD_READS, flop_per_element=FORWARD_FLOP),)

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads y and dy twice and writes dx."""
        elements = element_count(input_shapes[0], batch_size=batch_size)
        return (
            elementwise(
                "softmax",
                elements,
                reads=BACKWARD_READS,
                flop_per_element=BACKWARD_FLOP,
                role=Role.INPUT_GRADIENT,
            ),
        )
