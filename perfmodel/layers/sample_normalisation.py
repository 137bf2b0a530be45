"""Normalisation within a sample: each group of elements by its own statistics, then gamma and beta."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from perfmodel.layers.base import Examples, Layer, Operations, SymbolicExample, layer_kind
from perfmodel.layers.passes import one_pass, only_pass
from perfmodel.layers.shapes import (
    Shape,
    Shapes,
    check_divides,
    element_count,
    last_axes,
    mismatch,
    shape_text,
    stated_shape,
    without_last_axes,
)
from perfmodel.layers.translation import OperatorCall, Operators, Translation, affine_parameters
from perfmodel.records import Role


@dataclass(frozen=True, kw_only=True)
class SampleNorm(Layer):
    """Normalise groups of elements of each sample, then scale and shift.

    Parameters
    ----------
    affine : bool
        Whether gamma follows, and in most kinds beta. [-]

    Notes
    -----
    x^ is the normalised x; c is 1 if the mean is subtracted, a with gamma, b with beta, and each is otherwise 0.
    Forward reads x r times and writes y, where r is 1 if groups are rows short enough to stay on chip, else 2: per
    element 2 + c FLOP for the sums of x^2 and x, 1 + c to normalise, a + b.
    Backward to the input reads x and dy for the sums of dy gamma x^ and dy gamma, with r = 2 again for dx: 1 + c for
    x^, a for dy gamma each time, 2 + c for the sums, 3 + c for dx: 7 + 4 c + 2 a FLOP. Backward to gamma and beta is a
    pass of its own that reads x and dy: 3 + c + b FLOP. Ignores: the handful of operations per group.
    """

    reads: ClassVar[int] = 2
    centred: ClassVar[bool] = True
    affine: bool = True

    @property
    def has_shift(self) -> bool:
        """Whether beta is added."""
        return self.affine

    @abstractmethod
    def _vector_shape(self, shape: Shape) -> Shape:
        """Return the shape of gamma [1]; raise ShapeMismatchError for samples that do not fit."""

    @abstractmethod
    def _group_shape(self, shape: Shape) -> Shape:
        """Return a shape with one element for each group of a sample [1]."""

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the input's shape."""
        self._vector_shape(input_shapes[0])
        return input_shapes[0]

    def parameter_shapes(self, input_shapes: Shapes) -> dict[str, Shape]:
        """Return gamma and beta, if any."""
        vector = self._vector_shape(input_shapes[0])
        names = ("gamma",) * self.affine + ("beta",) * self.has_shift
        return dict.fromkeys(names, vector)

    def _statistics(self, shape: Shape, batch_size: Any) -> Any:
        """Return the elements of mean and inverse standard deviation of all groups [1]."""
        return (1 + self.centred) * element_count(self._group_shape(shape), batch_size=batch_size)

    def _vector_elements(self, shape: Shape) -> Any:
        return math.prod(self._vector_shape(shape))

    def saved_bytes(self, input_shapes: Shapes, *, batch_size: Any, element_bytes: int) -> Any:
        """Return the statistics of each group [B]."""
        return element_bytes * self._statistics(input_shapes[0], batch_size)

    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return one pass that reads x and writes y and the statistics."""
        shape = input_shapes[0]
        elements = element_count(shape, batch_size=batch_size)
        vectors = self.affine + self.has_shift
        return only_pass(
            self.kind,
            read=self.reads * elements + vectors * self._vector_elements(shape),
            written=elements + self._statistics(shape, batch_size),
            tensor=elements,
            flop=(3 + 2 * self.centred + vectors) * elements,
        )

    def backward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return the pass that yields dx, and the one that yields the gradients of gamma and beta."""
        shape = input_shapes[0]
        elements = element_count(shape, batch_size=batch_size)
        statistics = self._statistics(shape, batch_size)
        vector = self._vector_elements(shape)
        to_input = one_pass(
            self.kind,
            read=2 * self.reads * elements + statistics + int(self.affine) * vector,
            written=elements,
            flop=(7 + 4 * self.centred + 2 * self.affine) * elements,
            role=Role.INPUT_GRADIENT,
        )
        if not self.affine:
            return (to_input,)
        to_parameters = one_pass(
            self.kind,
            read=2 * elements + statistics,
            written=(1 + self.has_shift) * vector,
            tensor=elements,
            flop=(3 + self.centred + self.has_shift) * elements,
            role=Role.WEIGHT_GRADIENT,
        )
        return (to_input, to_parameters)


@dataclass(frozen=True, kw_only=True)
class LastAxesNorm(SampleNorm):
    """Normalise over the last axes of a sample.

    Parameters
    ----------
    axis_count : int
        Last axes that are normalised together. [1]
    """

    reads: ClassVar[int] = 1
    axis_count: int = 1

    def _vector_shape(self, shape: Shape) -> Shape:
        return last_axes(shape, self.axis_count)

    def _group_shape(self, shape: Shape) -> Shape:
        return without_last_axes(shape, self.axis_count)


def _over_last(call: OperatorCall, kind: type[LastAxesNorm]) -> Translation | None:
    """Return a norm as torch or ONNX calls it; None over the batch, and for beta without gamma."""
    if "." in call.operator:
        operand, scale, shift = call["input"], call.get("weight"), call.get("bias")
        axis_count = len(call["normalized_shape"])
    else:
        operand, scale, shift, axis = call["0"], call.get("1"), call.get("2"), call.get("axis", -1)
        axis_count = -axis if axis < 0 else len(operand.axes) - axis
    if None in operand.axes[len(operand.axes) - axis_count :] or (scale is None and shift is not None):
        return None
    options = {"bias": shift is not None or scale is None} if kind is LayerNorm else {}
    layer = kind(axis_count=axis_count, affine=scale is not None, **options)
    return Translation(layer=layer, inputs=(operand,), parameters=affine_parameters(scale, shift))


@layer_kind
class LayerNorm(LastAxesNorm):
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
    input and 5 to gamma and beta; x is read once forward, x and dy once to the input and once to the parameters.
    Ignores: the handful of operations per row; rows too long to stay on chip.

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
    torch_operators: ClassVar[Operators] = {"aten.native_layer_norm": lambda call: _over_last(call, LayerNorm)}
    onnx_operators: ClassVar[Operators] = {"LayerNormalization": lambda call: _over_last(call, LayerNorm)}
    bias: bool = True

    @property
    def has_shift(self) -> bool:
        """Whether beta is added."""
        return self.affine and self.bias


def _in_groups(call: OperatorCall) -> Translation | None:
    """Return a norm of groups of channels; each is its own group if the call gives no number of groups."""
    if "." in call.operator:
        operand, groups, scale, shift = call["input"], call.get("group"), call.get("weight"), call.get("bias")
    else:
        operand, groups, scale, shift = call["0"], call.get("num_groups"), call.get("1"), call.get("2")
    by_given_statistics = not call.get("use_input_stats", True)
    if by_given_statistics or operand.axes[:2] != (None, 0) or (scale is None) != (shift is None):
        return None
    layer = GroupNorm(groups=operand.shape[0] if groups is None else groups, affine=scale is not None)
    return Translation(layer=layer, inputs=(operand,), parameters=affine_parameters(scale, shift))


@layer_kind
class GroupNorm(SampleNorm):
    """Normalise groups of neighbouring channels by mean and variance, then scale and shift by channel.

    Channels are the first axis of a sample. One group is layer norm over channels and map, as many groups as channels
    is instance norm.

    Parameters
    ----------
    groups : int
        Groups that the channels are divided into. [1]

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
    torch_operators: ClassVar[Operators] = {
        "aten.native_group_norm": _in_groups,
        "aten.instance_norm": _in_groups,
    }
    onnx_operators: ClassVar[Operators] = {
        "GroupNormalization": _in_groups,
        "InstanceNormalization": _in_groups,
    }
    groups: int

    def _vector_shape(self, shape: Shape) -> Shape:
        if not shape:
            mismatch(f"takes samples of (channels, ...), but its input is {shape_text(shape)}")
        problem = f"its {self.groups} groups do not divide the {shape[0]} channels of its input {shape_text(shape)}"
        check_divides(self.groups, shape[0], problem)
        return tuple(shape[:1])

    def _group_shape(self, shape: Shape) -> Shape:
        return stated_shape((self.groups,), (shape,))


@layer_kind
class RMSNorm(LastAxesNorm):
    """Divide by the root mean square over the last axes of a sample, then scale element by element.

    Parameters
    ----------
    axis_count : int
        Last axes that are normalised together. [1]

    Notes
    -----
    Forward 4 FLOP per element (2 for the sum of x^2, 1 to normalise, 1 for gamma), backward 9 to the input and 3 to
    gamma; x is read once forward, x and dy once to the input and once to gamma. Ignores: the handful of operations
    per row; rows too long to stay on chip.

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
    torch_operators: ClassVar[Operators] = dict.fromkeys(
        ("aten.rms_norm", "aten._fused_rms_norm"), lambda call: _over_last(call, RMSNorm)
    )
    onnx_operators: ClassVar[Operators] = {"RMSNormalization": lambda call: _over_last(call, RMSNorm)}
    centred: ClassVar[bool] = False

    @property
    def has_shift(self) -> bool:
        """Whether beta is added: never."""
        return False
