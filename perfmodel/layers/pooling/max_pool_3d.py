"""Three-dimensional maximum pooling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.pooling.max_pool import MaxPool
from perfmodel.layers.pooling.pooling import pooling_from_onnx, pooling_from_torch
from perfmodel.layers.translation import OperatorCall, Translation, Translator


def _from_torch(call: OperatorCall) -> Translation | None:
    return pooling_from_torch(call, MaxPool3d, axis_count=3)


def _from_onnx(call: OperatorCall) -> Translation | None:
    return pooling_from_onnx(call, MaxPool3d, axis_count=3)


@final
@dataclass(frozen=True, kw_only=True)
class MaxPool3d(MaxPool):
    """Maximum over windows of each channel of (channels, depth, height, width). Options: see ``Pooling``."""

    kind: ClassVar[str] = "max_pool_3d"
    examples: ClassVar[Examples] = (({"kernel_size": (1, 3, 3), "stride": 2, "padding": "same"}, ((4, 5, 9, 9),)),)
    symbolic_example: ClassVar[SymbolicExample] = ({"kernel_size": 2}, (("C", "D", "H", "W"),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.max_pool3d": _from_torch,
        "aten.max_pool3d_with_indices": _from_torch,
    }
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"MaxPool": _from_onnx, "GlobalMaxPool": _from_onnx}
    axis_count: ClassVar[int] = 3
