"""Two-dimensional average pooling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.pooling.average_pool import AveragePool
from perfmodel.layers.pooling.pooling import pooling_from_onnx, pooling_from_torch
from perfmodel.layers.translation import OperatorCall, Translation, Translator


def _from_torch(call: OperatorCall) -> Translation | None:
    return pooling_from_torch(call, AveragePool2d, axis_count=2)


def _from_onnx(call: OperatorCall) -> Translation | None:
    return pooling_from_onnx(call, AveragePool2d, axis_count=2)


@final
@dataclass(frozen=True, kw_only=True)
class AveragePool2d(AveragePool):
    """Average over windows of each channel of (channels, height, width). Options: see ``Pooling``."""

    kind: ClassVar[str] = "avg_pool_2d"
    examples: ClassVar[Examples] = (
        ({"kernel_size": 2, "ceil_mode": True}, ((4, 9, 9),)),
        ({"kernel_size": None}, ((4, 9, 9),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"kernel_size": None}, (("C", "H", "W"),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.avg_pool2d": _from_torch,
    }
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"AveragePool": _from_onnx, "GlobalAveragePool": _from_onnx}
    axis_count: ClassVar[int] = 2
