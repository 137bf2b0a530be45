"""Sigmoid-weighted linear unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.pointwise import Pointwise
from perfmodel.layers.translation import OperatorCall, Translation, Translator


def _from_call(call: OperatorCall) -> Translation:
    return Translation(layer=SiLU(), inputs=call.operands[:1])


@final
@dataclass(frozen=True, kw_only=True)
class SiLU(Pointwise):
    """x s(x) with the logistic function s, also called swish.

    Notes
    -----
    5 FLOP per element forward (4 for s, multiply); backward dx = dy s (1 + x (1 - s)): 9 FLOP (4 for s; subtract,
    multiply, add, multiply, multiply), reads dy and x.

    References
    ----------
    .. [1] Elfwing, Uchibe, Doya, Sigmoid-weighted linear units for neural network function approximation, 2017,
       arXiv:1702.03118.
    """

    kind: ClassVar[str] = "silu"
    examples: ClassVar[Examples] = (({}, ((5, 6),)),)
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("F",),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {"aten.silu": _from_call}
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"Swish": _from_call}
    flop_per_element: ClassVar[tuple[int, int]] = (5, 9)
