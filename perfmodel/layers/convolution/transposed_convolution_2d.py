"""Two-dimensional transposed convolution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.convolution.transposed import TransposedConvolution, transposed_from_onnx, transposed_from_torch
from perfmodel.layers.translation import OperatorCall, Translation, Translator


def _from_torch(call: OperatorCall) -> Translation | None:
    return transposed_from_torch(call, TransposedConvolution2d, axis_count=2)


def _from_onnx(call: OperatorCall) -> Translation | None:
    return transposed_from_onnx(call, TransposedConvolution2d, axis_count=2)


@final
@dataclass(frozen=True, kw_only=True)
class TransposedConvolution2d(TransposedConvolution):
    """Transposed convolution of (channels, height, width). Options: see ``TransposedConvolution``."""

    kind: ClassVar[str] = "transposed_convolution_2d"
    examples: ClassVar[Examples] = (
        ({"out_channels": 6, "kernel_size": 4, "padding": 1, "stride": 2}, ((4, 9, 9),)),
        ({"out_channels": 6, "kernel_size": 3, "stride": 2, "output_padding": 1, "groups": 2}, ((4, 9, 9),)),
        ({"out_channels": 4, "kernel_size": 3, "stride": 2, "padding": "same", "bias": False}, ((4, 9, 9),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = (
        {"out_channels": "K", "kernel_size": 4, "stride": 2, "padding": 1},
        (("C", "H", "W"),),
    )
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.convolution": _from_torch,
        "aten._convolution": _from_torch,
    }
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"ConvTranspose": _from_onnx}
    axis_count: ClassVar[int] = 2
