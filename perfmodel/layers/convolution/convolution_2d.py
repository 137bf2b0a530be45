"""Two-dimensional convolution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.convolution.plain import PlainConvolution, plain_from_onnx, plain_from_torch
from perfmodel.layers.translation import OperatorCall, Translation, Translator


def _from_torch(call: OperatorCall) -> Translation | None:
    return plain_from_torch(call, Convolution2d, axis_count=2)


def _from_onnx(call: OperatorCall) -> Translation | None:
    return plain_from_onnx(call, Convolution2d, axis_count=2)


@final
@dataclass(frozen=True, kw_only=True)
class Convolution2d(PlainConvolution):
    """Convolution of (channels, height, width) with a bank of filters. Options: see ``FilterBank``."""

    kind: ClassVar[str] = "convolution_2d"
    examples: ClassVar[Examples] = (
        ({"out_channels": 6, "kernel_size": 3, "padding": "same", "stride": 2}, ((4, 9, 9),)),
        ({"out_channels": 6, "kernel_size": (3, 1), "groups": 2, "dilation": 2, "bias": False}, ((4, 9, 9),)),
        ({"out_channels": 4, "kernel_size": 3, "padding": ((1, 2), (0, 1))}, ((4, 9, 9),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = (
        {"out_channels": "K", "kernel_size": 3, "padding": "same"},
        (("C", "H", "W"),),
    )
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.convolution": _from_torch,
        "aten._convolution": _from_torch,
    }
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"Conv": _from_onnx}
    axis_count: ClassVar[int] = 2
