"""One-dimensional maximum pooling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.pooling.max_pool import MaxPool
from perfmodel.layers.pooling.pooling import pooling_from_onnx, pooling_from_torch
from perfmodel.layers.translation import OperatorCall, Translation, Translator


def _from_torch(call: OperatorCall) -> Translation | None:
    return pooling_from_torch(call, MaxPool1d, axis_count=1)


def _from_onnx(call: OperatorCall) -> Translation | None:
    return pooling_from_onnx(call, MaxPool1d, axis_count=1)


@final
@dataclass(frozen=True, kw_only=True)
class MaxPool1d(MaxPool):
    """Maximum over windows of each channel of (channels, length). Options: see ``Pooling``."""

    kind: ClassVar[str] = "max_pool_1d"
    examples: ClassVar[Examples] = (({"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}, ((4, 9),)),)
    symbolic_example: ClassVar[SymbolicExample] = ({"kernel_size": 2}, (("C", "L"),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.max_pool1d": _from_torch,
        "aten.max_pool1d_with_indices": _from_torch,
    }
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"MaxPool": _from_onnx, "GlobalMaxPool": _from_onnx}
    axis_count: ClassVar[int] = 1
