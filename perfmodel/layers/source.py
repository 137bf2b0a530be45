"""Layers without inputs: constants, parameters, fresh memory."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from perfmodel.layers.base import Checks, OnePassLayer, SymbolicExample, Traffic, layer_kind
from perfmodel.layers.checks import one_of
from perfmodel.layers.shapes import Shape, Shapes, SharedShape, element_count
from perfmodel.layers.translation import OperatorCall, Operators, Translation
from perfmodel.layers.view import View


@layer_kind("constant")
class Constant(View):
    """An untrained tensor that all samples share, e.g. a table of angles or a mask: no input, no operation.

    Parameters
    ----------
    shape : tuple of int
        Its shape. [1]
    is_index : bool
        Whether it holds whole numbers or Booleans. [-]
    """

    symbolic_example: ClassVar[SymbolicExample] = ({"shape": ("S", "F")}, ())
    input_counts: ClassVar[tuple[int, int | None]] = (0, 0)
    shape: Shape
    is_index: bool = False

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return its shape, shared by all samples."""
        return SharedShape(self.shape)


@layer_kind("parameter")
class Parameter(View):
    """A trained tensor that all samples share, e.g. a class token: no input, no operation.

    Parameters
    ----------
    shape : tuple of int
        Its shape. [1]

    Notes
    -----
    Its gradient is what the layers that read it compute for their input; if there are several, it is their sum.
    """

    symbolic_example: ClassVar[SymbolicExample] = ({"shape": ("S", "F")}, ())
    input_counts: ClassVar[tuple[int, int | None]] = (0, 0)
    shape: Shape

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return its shape, shared by all samples."""
        return SharedShape(self.shape)

    def parameter_shapes(self, input_shapes: Shapes) -> dict[str, Shape]:
        """Return itself."""
        return {"weight": self.shape}


class Filling(NamedTuple):
    """A way to fill a tensor.

    Parameters
    ----------
    flop : int
        Arithmetic per element. [FLOP]
    torch, onnx : str
        Operators of torch and of ONNX that fill a tensor this way. [-]
    """

    flop: int
    torch: str
    onnx: str = ""


_ZEROS = "zeros ones full zeros_like ones_like full_like fill zero new_zeros new_ones new_full scalar_tensor eye"
FILLINGS = {
    "empty": Filling(0, torch="empty empty_like empty_strided empty_permuted new_empty"),
    "zeros": Filling(0, torch=_ZEROS, onnx="ConstantOfShape EyeLike"),
    "normal": Filling(0, torch="randn randn_like normal", onnx="RandomNormal RandomNormalLike"),
    "uniform": Filling(
        0,
        torch="rand rand_like uniform randint randint_like exponential randperm",
        onnx="RandomUniform RandomUniformLike",
    ),
    "range": Filling(2, torch="arange linspace", onnx="Range"),  # multiplies a step and adds a start
}
"""Content -> how it is written."""
TORCH_NAMES = {f"aten.{name}": function for function, row in FILLINGS.items() for name in row.torch.split()}
"""Operator of torch -> content."""
ONNX_NAMES = {name: function for function, row in FILLINGS.items() for name in row.onnx.split()}
"""Operator of ONNX -> content."""


def _from_call(call: OperatorCall) -> Translation:
    function, output = (TORCH_NAMES | ONNX_NAMES)[call.operator], call.output
    layer = Fill(shape=tuple(output.shape), function=function, per_sample=not output.is_shared)
    return Translation(layer=layer, inputs=())


@layer_kind("fill")
class Fill(OnePassLayer):
    """A tensor written in every step without reading another.

    Parameters
    ----------
    shape : tuple of int
        Shape of an output sample. [1]
    function : str
        ``zeros`` (or any other number), ``normal``, ``uniform``, ``range``; ``empty`` if nothing is written. [-]
    per_sample : bool
        Whether every sample has its own part; otherwise all share it. [-]

    Notes
    -----
    Writes every element once, of an empty one none; a range takes 2 FLOP per element. Ignores: making random numbers.
    """

    symbolic_example: ClassVar[SymbolicExample] = ({"shape": ("S", "F"), "per_sample": True}, ())
    torch_operators: ClassVar[Operators] = dict.fromkeys(TORCH_NAMES, _from_call)
    onnx_operators: ClassVar[Operators] = dict.fromkeys(ONNX_NAMES, _from_call)
    input_counts: ClassVar[tuple[int, int | None]] = (0, 0)
    checks: ClassVar[Checks] = {"function": one_of(FILLINGS)}
    shape: Shape
    function: str = "zeros"
    per_sample: bool = False

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the requested shape."""
        return self.shape if self.per_sample else SharedShape(self.shape)

    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[Traffic | None, None]:
        """Return a pass that writes y; none for an empty tensor."""
        elements = element_count(self.output_shape(input_shapes), batch_size=batch_size)
        fill = {"read": 0, "written": elements, "flop": FILLINGS[self.function].flop * elements}
        return None if self.function == "empty" else fill, None
