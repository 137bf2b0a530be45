"""Hyperbolic tangent activation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.pointwise import Pointwise
from perfmodel.layers.translation import OperatorCall, Translation, Translator


def _from_call(call: OperatorCall) -> Translation:
    return Translation(layer=Tanh(), inputs=call.operands[:1])


@final
@dataclass(frozen=True, kw_only=True)
class Tanh(Pointwise):
    """Hyperbolic tangent.

    Notes
    -----
    1 FLOP per element forward (one elementary function); backward dx = dy (1 - y y): 3 FLOP, reads dy and y.
    """

    kind: ClassVar[str] = "tanh"
    examples: ClassVar[Examples] = (({}, ((5, 6),)),)
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("F",),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {"aten.tanh": _from_call}
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"Tanh": _from_call}
    keeps_inputs: ClassVar[bool] = False
    keeps_output: ClassVar[bool] = True
    flop_per_element: ClassVar[tuple[int, int]] = (1, 3)
