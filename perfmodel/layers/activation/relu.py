"""Rectifier activation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.pointwise import Pointwise
from perfmodel.layers.translation import OperatorCall, Translation, Translator


def _from_call(call: OperatorCall) -> Translation:
    return Translation(layer=ReLU(), inputs=call.operands[:1])


@final
@dataclass(frozen=True, kw_only=True)
class ReLU(Pointwise):
    """Rectifier max(x, 0).

    Notes
    -----
    1 FLOP per element forward (a comparison); backward passes dy where y > 0: 1 FLOP, reads dy and y.
    """

    kind: ClassVar[str] = "relu"
    examples: ClassVar[Examples] = (({}, ((4, 9, 9),)),)
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("F",),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {"aten.relu": _from_call}
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"Relu": _from_call}
    keeps_inputs: ClassVar[bool] = False
    keeps_output: ClassVar[bool] = True
    flop_per_element: ClassVar[tuple[int, int]] = (1, 1)
