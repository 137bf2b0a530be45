"""Layer normalisation: each sample, or each of its steps, by its own mean and variance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.checks import check_count, check_flag
from perfmodel.layers.normalisation.by_sample import SampleNorm
from perfmodel.layers.shapes import Shape, last_axes, without_last_axes
from perfmodel.layers.translation import Operand, OperatorCall, Translation, Translator, affine_parameters


def _over_last(operand: Operand, axis_count: int, scale: Operand | None, shift: Operand | None) -> Translation | None:
    if None in operand.axes[len(operand.axes) - axis_count :] or (scale is None and shift is not None):
        return None
    return Translation(
        layer=LayerNorm(axis_count=axis_count, affine=scale is not None, bias=shift is not None or scale is None),
        inputs=(operand,),
        parameters=affine_parameters(scale, shift),
    )


def _from_torch(call: OperatorCall) -> Translation | None:
    return _over_last(call["input"], len(call["normalized_shape"]), call.get("weight"), call.get("bias"))


def _from_onnx(call: OperatorCall) -> Translation | None:
    operand, axis = call["0"], call.get("axis", -1)
    axis_count = -axis if axis < 0 else len(operand.axes) - axis
    return _over_last(operand, axis_count, call.get("1"), call.get("2"))


@final
@dataclass(frozen=True, kw_only=True)
class LayerNorm(SampleNorm):
    """Normalise over the last axes of a sample by mean and variance, then scale and shift element by element.

    Parameters
    ----------
    axis_count : int
        Last axes that are normalised together. [1]
    bias : bool
        Whether beta follows gamma; without ``affine`` there is neither. [-]

    Notes
    -----
    Forward 7 FLOP per element (3 for the sums of x and x^2, 2 to normalise, 2 for gamma and beta), backward 13 to the
    input and 5 to gamma and beta; x is read twice forward, x and dy twice to the input and once to the parameters.
    Ignores: the handful of operations per row; rows short enough to stay in a cache between two reads.

    References
    ----------
    .. [1] Ba, Kiros, Hinton, Layer normalization, 2016, arXiv:1607.06450.
    """

    kind: ClassVar[str] = "layer_norm"
    examples: ClassVar[Examples] = (
        ({}, ((5, 6),)),
        ({"axis_count": 3, "affine": False}, ((4, 9, 9),)),
        ({"bias": False}, ((10,),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("S", "F"),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.native_layer_norm": _from_torch,
    }
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"LayerNormalization": _from_onnx}
    axis_count: int = 1
    bias: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("axis_count", self.axis_count)
        check_flag("bias", self.bias)

    @property
    def has_shift(self) -> bool:
        """Whether beta is added."""
        return self.affine and self.bias

    def _vector_shape(self, shape: Shape) -> Shape:
        return last_axes(shape, self.axis_count)

    def _group_shape(self, shape: Shape) -> Shape:
        return without_last_axes(shape, self.axis_count)
