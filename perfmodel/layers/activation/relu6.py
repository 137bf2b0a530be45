"""Rectifier that is cut off at six."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.pointwise import Pointwise
from perfmodel.layers.translation import OperatorCall, Translation, Translator

TOP = 6
"""Where it is cut off [1]."""


def _within(call: OperatorCall, bottom: Any, top: Any) -> Translation | None:
    is_this = (bottom, top) == (0, TOP)
    return Translation(layer=ReLU6(), inputs=call.operands[:1]) if is_this else None


def _from_torch(call: OperatorCall) -> Translation | None:
    names = ("min_val", "max_val") if call.operator == "aten.hardtanh" else ("min", "max")
    return _within(call, *map(call.get, names))


def _from_onnx(call: OperatorCall) -> Translation | None:
    return _within(call, call.get("min"), call.get("max"))


@final
@dataclass(frozen=True, kw_only=True)
class ReLU6(Pointwise):
    """Rectifier min(max(x, 0), 6).

    Notes
    -----
    2 FLOP per element forward (comparisons); backward passes dy where 0 < x < 6: 2 FLOP, reads dy and x.

    References
    ----------
    .. [1] Sandler et al., MobileNetV2, CVPR 2018, arXiv:1801.04381, section 4.
    """

    kind: ClassVar[str] = "relu6"
    examples: ClassVar[Examples] = (({}, ((4, 9, 9),)),)
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("F",),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.hardtanh": _from_torch,
        "aten.clamp": _from_torch,
    }
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"Clip": _from_onnx}
    flop_per_element: ClassVar[tuple[int, int]] = (2, 2)
