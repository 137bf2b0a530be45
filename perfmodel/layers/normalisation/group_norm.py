"""Group normalisation: groups of channels of each sample by their own mean and variance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.checks import check_count, is_open_size
from perfmodel.layers.normalisation.by_sample import SampleNorm
from perfmodel.layers.shapes import Shape, ShapeMismatchError, SharedShape, shape_text
from perfmodel.layers.translation import Operand, OperatorCall, Translation, Translator, affine_parameters


def _in_groups(operand: Operand, groups: Any, scale: Operand | None, shift: Operand | None) -> Translation | None:
    if operand.axes[:2] != (None, 0) or (scale is None) != (shift is None):
        return None
    return Translation(
        layer=GroupNorm(groups=groups, affine=scale is not None),
        inputs=(operand,),
        parameters=affine_parameters(scale, shift),
    )


def _from_torch(call: OperatorCall) -> Translation | None:
    return _in_groups(call["input"], call["group"], call.get("weight"), call.get("bias"))


def _instances_from_torch(call: OperatorCall) -> Translation | None:
    if not call["use_input_stats"]:
        return None
    return _in_groups(call["input"], call["input"].shape[0], call.get("weight"), call.get("bias"))


def _from_onnx(call: OperatorCall) -> Translation | None:
    return _in_groups(call["0"], call["num_groups"], call.get("1"), call.get("2"))


def _instances_from_onnx(call: OperatorCall) -> Translation | None:
    return _in_groups(call["0"], call["0"].shape[0], call.get("1"), call.get("2"))


@final
@dataclass(frozen=True, kw_only=True)
class GroupNorm(SampleNorm):
    """Normalise groups of neighbouring channels by mean and variance, then scale and shift by channel.

    Channels are the first axis of a sample. One group is layer norm over channels and map, as many groups as channels
    is instance norm.

    Parameters
    ----------
    groups : int
        Groups that the channels are dealt to. [1]

    Notes
    -----
    Forward 7 FLOP per element (3 for the sums of x and x^2, 2 to normalise, 2 for gamma and beta), backward 13 to the
    input and 5 to gamma and beta; x is read twice forward, x and dy twice to the input and once to the parameters.
    Ignores: the handful of operations per group; groups small enough to stay in a cache between two reads.

    References
    ----------
    .. [1] Wu, He, Group normalization, ECCV 2018, arXiv:1803.08494.
    """

    kind: ClassVar[str] = "group_norm"
    examples: ClassVar[Examples] = (
        ({"groups": 2}, ((4, 9, 9),)),
        ({"groups": 5, "affine": False}, ((5, 6),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"groups": 4}, (("C", "H", "W"),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.native_group_norm": _from_torch,
        "aten.instance_norm": _instances_from_torch,
    }
    onnx_operators: ClassVar[Mapping[str, Translator]] = {
        "GroupNormalization": _from_onnx,
        "InstanceNormalization": _instances_from_onnx,
    }
    groups: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("groups", self.groups)

    def _vector_shape(self, shape: Shape) -> Shape:
        if not shape:
            problem = f"takes samples of (channels, ...), but its input is {shape_text(shape)}"
            raise ShapeMismatchError(problem)
        if not is_open_size(shape[0]) and not is_open_size(self.groups) and shape[0] % self.groups:
            problem = f"its {self.groups} groups do not divide the {shape[0]} channels of its input {shape_text(shape)}"
            raise ShapeMismatchError(problem)
        return tuple(shape[:1])

    def _group_shape(self, shape: Shape) -> Shape:
        return SharedShape((self.groups,)) if isinstance(shape, SharedShape) else (self.groups,)
