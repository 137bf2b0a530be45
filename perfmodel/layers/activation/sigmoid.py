"""Logistic activation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.pointwise import Pointwise
from perfmodel.layers.translation import OperatorCall, Translation, Translator


def _from_call(call: OperatorCall) -> Translation:
    return Translation(layer=Sigmoid(), inputs=call.operands[:1])


@final
@dataclass(frozen=True, kw_only=True)
class Sigmoid(Pointwise):
    """Logistic function 1 / (1 + exp(-x)).

    Notes
    -----
    4 FLOP per element forward (negate, exp, add, divide); backward dx = dy y (1 - y): 3 FLOP, reads dy and y.
    """

    kind: ClassVar[str] = "sigmoid"
    examples: ClassVar[Examples] = (({}, ((10,),)),)
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("F",),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {"aten.sigmoid": _from_call}
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"Sigmoid": _from_call}
    keeps_inputs: ClassVar[bool] = False
    keeps_output: ClassVar[bool] = True
    flop_per_element: ClassVar[tuple[int, int]] = (4, 3)
