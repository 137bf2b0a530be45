"""Normalisation by the root mean square, without subtracting the mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.checks import check_count
from perfmodel.layers.normalisation.by_sample import SampleNorm
from perfmodel.layers.shapes import Shape, last_axes, without_last_axes
from perfmodel.layers.translation import Operand, OperatorCall, Translation, Translator, affine_parameters


def _over_last(operand: Operand, axis_count: int, scale: Operand | None) -> Translation | None:
    if None in operand.axes[len(operand.axes) - axis_count :]:
        return None
    layer = RMSNorm(axis_count=axis_count, affine=scale is not None)
    return Translation(layer=layer, inputs=(operand,), parameters=affine_parameters(scale, None))


def _from_torch(call: OperatorCall) -> Translation | None:
    return _over_last(call["input"], len(call["normalized_shape"]), call.get("weight"))


def _from_onnx(call: OperatorCall) -> Translation | None:
    operand, axis = call["0"], call.get("axis", -1)
    return _over_last(operand, -axis if axis < 0 else len(operand.axes) - axis, call.get("1"))


@final
@dataclass(frozen=True, kw_only=True)
class RMSNorm(SampleNorm):
    """Divide by the root mean square over the last axes of a sample, then scale element by element.

    Parameters
    ----------
    axis_count : int
        Last axes that are normalised together. [1]

    Notes
    -----
    Forward 4 FLOP per element (2 for the sum of x^2, 1 to normalise, 1 for gamma), backward 9 to the input and 3 to
    gamma; x is read twice forward, x and dy twice to the input and once to gamma. Ignores: the handful of operations
    per row; rows short enough to stay in a cache between two reads.

    References
    ----------
    .. [1] Zhang, Sennrich, Root mean square layer normalization, NeurIPS 2019, arXiv:1910.07467.
    """

    kind: ClassVar[str] = "rms_norm"
    examples: ClassVar[Examples] = (
        ({}, ((5, 6),)),
        ({"affine": False}, ((10,),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("S", "F"),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.rms_norm": _from_torch,
        "aten._fused_rms_norm": _from_torch,
    }
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"RMSNormalization": _from_onnx}
    centred: ClassVar[bool] = False
    axis_count: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("axis_count", self.axis_count)

    @property
    def has_shift(self) -> bool:
        """Whether beta is added: never."""
        return False

    def _vector_shape(self, shape: Shape) -> Shape:
        return last_axes(shape, self.axis_count)

    def _group_shape(self, shape: Shape) -> Shape:
        return without_last_axes(shape, self.axis_count)
