"""Logarithm of softmax along an axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

from perfmodel.layers.activation.along_axis import AlongAxis, along
from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.passes import elementwise
from perfmodel.layers.shapes import Shape, element_count, without_axis
from perfmodel.layers.translation import OperatorCall, Translation, Translator
from perfmodel.records import Operation, Role


def _from_torch(call: OperatorCall) -> Translation | None:
    return along(LogSoftmax, call["self"], call["dim"])


def _from_onnx(call: OperatorCall) -> Translation | None:
    return along(LogSoftmax, call["0"], call.get("axis", -1))


@final
@dataclass(frozen=True, kw_only=True)
class LogSoftmax(AlongAxis):
    """Logarithm of softmax along one axis: x - max x - log sum exp(x - max x).

    Parameters
    ----------
    axis : int
        Axis of a sample; negative counts from the last. [-]

    Notes
    -----
    Forward 5 FLOP per element (compare, subtract, exp, add; subtract) and a logarithm per row, two reads and one write.
    Backward dx = dy - exp(y) sum(dy): 4 FLOP per element (add, exp, multiply, subtract), dy is read twice and y once.
    Ignores: rows short enough to stay in a cache between two reads.
    """

    kind: ClassVar[str] = "log_softmax"
    examples: ClassVar[Examples] = (
        ({}, ((10,),)),
        ({"axis": 0}, ((4, 9, 9),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("F",),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten._log_softmax": _from_torch,
    }
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"LogSoftmax": _from_onnx}

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads x twice and writes y."""
        elements = element_count(input_shapes[0], batch_size=batch_size)
        rows = element_count(without_axis(input_shapes[0], self.axis), batch_size=batch_size)
        one = elementwise("log_softmax", elements, reads=2, flop_per_element=5)
        return (replace(one, flop_count=one.flop_count + rows),)

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads y once and dy twice and writes dx."""
        elements = element_count(input_shapes[0], batch_size=batch_size)
        return (elementwise("log_softmax", elements, reads=3, flop_per_element=4, role=Role.INPUT_GRADIENT),)
