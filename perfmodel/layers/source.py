"""Tensors that exist before any input: constants, parameters, fresh memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from perfmodel.layers.base import Checks, Examples, Layer, SymbolicExample, layer_kind
from perfmodel.layers.checks import check_flag, check_shape, one_of
from perfmodel.layers.passes import one_pass
from perfmodel.layers.shapes import Shape, SharedShape, element_count
from perfmodel.layers.translation import OperatorCall, Translation, Translator
from perfmodel.layers.view import View
from perfmodel.records import Operation


@layer_kind
class Constant(View):
    """A tensor that all samples share and nobody trains, e.g. a table of angles or a mask: no input, no operation.

    Parameters
    ----------
    shape : tuple of int
        Its shape. [1]
    is_index : bool
        Whether it holds whole numbers or truth values. [-]
    """

    kind: ClassVar[str] = "constant"
    examples: ClassVar[Examples] = (({"shape": (5, 6)}, ()),)
    symbolic_example: ClassVar[SymbolicExample] = ({"shape": ("S", "F")}, ())
    input_counts: ClassVar[tuple[int, int | None]] = (0, 0)
    checks: ClassVar[Checks] = {"shape": check_shape, "is_index": check_flag}
    shape: Shape
    is_index: bool = False

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return its shape, shared by all samples."""
        return SharedShape(self.shape)


@layer_kind
class Parameter(View):
    """A trained tensor that all samples share, e.g. a class token: no input, no operation.

    Parameters
    ----------
    shape : tuple of int
        Its shape. [1]

    Notes
    -----
    Its gradient is what the layers that read it compute for their input; where several do, it is summed.
    """

    kind: ClassVar[str] = "parameter"
    examples: ClassVar[Examples] = (({"shape": (1, 6)}, ()),)
    symbolic_example: ClassVar[SymbolicExample] = ({"shape": ("S", "F")}, ())
    input_counts: ClassVar[tuple[int, int | None]] = (0, 0)
    checks: ClassVar[Checks] = {"shape": check_shape}
    shape: Shape

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return its shape, shared by all samples."""
        return SharedShape(self.shape)

    def parameter_shapes(self, input_shapes: tuple[Shape, ...]) -> dict[str, Shape]:
        """Return itself."""
        return {"weight": self.shape}


FLOP_PER_ELEMENT = {"empty": 0, "zeros": 0, "normal": 0, "uniform": 0, "range": 2}
"""What is written -> arithmetic per element: a range multiplies a step and adds a start [FLOP]."""


TORCH_NAMES: dict[str, str] = {
    **{
        f"aten.{name}": "zeros"
        for name in ("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "fill", "zero")
    },
    **dict.fromkeys(("aten.new_zeros", "aten.new_ones", "aten.new_full", "aten.scalar_tensor", "aten.eye"), "zeros"),
    **{f"aten.{name}": "empty" for name in ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty")},
    **dict.fromkeys(("aten.randn", "aten.randn_like", "aten.normal"), "normal"),
    **dict.fromkeys(("aten.rand", "aten.rand_like", "aten.uniform", "aten.randint", "aten.randint_like"), "uniform"),
    **dict.fromkeys(("aten.exponential", "aten.randperm"), "uniform"),
    **dict.fromkeys(("aten.arange", "aten.linspace"), "range"),
}
"""Operator of torch -> what is written."""
ONNX_NAMES: dict[str, str] = {
    "ConstantOfShape": "zeros",
    "EyeLike": "zeros",
    "Range": "range",
    "RandomNormal": "normal",
    "RandomNormalLike": "normal",
    "RandomUniform": "uniform",
    "RandomUniformLike": "uniform",
}
"""Operator of ONNX -> what is written."""


def _filled(call: OperatorCall, function: str) -> Translation:
    output = call.output
    layer = Fill(shape=tuple(output.shape), function=function, per_sample=not output.is_shared)
    return Translation(layer=layer, inputs=())


def _from_torch(call: OperatorCall) -> Translation:
    return _filled(call, TORCH_NAMES[call.operator])


def _from_onnx(call: OperatorCall) -> Translation:
    return _filled(call, ONNX_NAMES[call.operator])


@layer_kind
class Fill(Layer):
    """A tensor written in every step without reading another.

    Parameters
    ----------
    shape : tuple of int
        Shape of an output sample. [1]
    function : str
        ``zeros`` (or any other number), ``normal``, ``uniform``, ``range``; ``empty`` where it is left as it is. [-]
    per_sample : bool
        Whether every sample has its own part; otherwise all share it. [-]

    Notes
    -----
    Writes every element once, of an empty one none; a range takes 2 FLOP per element. Ignores: making random numbers.
    """

    kind: ClassVar[str] = "fill"
    examples: ClassVar[Examples] = (
        ({"shape": (5, 6)}, ()),
        ({"shape": (10,), "function": "normal", "per_sample": True}, ()),
        ({"shape": (5,), "function": "range"}, ()),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"shape": ("S", "F"), "per_sample": True}, ())
    torch_operators: ClassVar[Mapping[str, Translator]] = dict.fromkeys(TORCH_NAMES, _from_torch)
    onnx_operators: ClassVar[Mapping[str, Translator]] = dict.fromkeys(ONNX_NAMES, _from_onnx)
    input_counts: ClassVar[tuple[int, int | None]] = (0, 0)
    checks: ClassVar[Checks] = {"shape": check_shape, "function": one_of(FLOP_PER_ELEMENT), "per_sample": check_flag}
    shape: Shape
    function: str = "zeros"
    per_sample: bool = False

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the shape that was asked for."""
        return self.shape if self.per_sample else SharedShape(self.shape)

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that writes y, or nothing."""
        if self.function == "empty":
            return ()
        elements = element_count(self.output_shape(input_shapes), batch_size=batch_size)
        return (one_pass("fill", read=0, written=elements, flop=FLOP_PER_ELEMENT[self.function] * elements),)

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return nothing."""
        return ()
