"""Layers without inputs, as constants, parameters and fresh memory, and operations unknown to perfmodel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from perfmodel.layers.base import Checks, LayerByInput, OnePassLayer, Operations, Traffic, layer_kind
from perfmodel.layers.checks import check_text, one_of
from perfmodel.layers.passes import only_pass
from perfmodel.layers.shapes import Shape, Shapes, SharedShape, element_count, stated_shape
from perfmodel.layers.translation import OperatorCall, Operators, Translation, function_names, function_table
from perfmodel.layers.view import View
from perfmodel.records import Role


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

    input_counts: ClassVar[tuple[int, int | None]] = (0, 0)
    shape: Shape

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return its shape, shared by all samples."""
        return SharedShape(self.shape)

    def parameter_shapes(self, input_shapes: Shapes) -> dict[str, Shape]:
        """Return itself."""
        return {"weight": self.shape}


FILLINGS: dict[str, int] = {name: row["flop"] for name, row in function_table("fill").items()}
"""Content -> arithmetic per element. [FLOP]"""

NAMES = function_names("fill", "torch") | function_names("fill", "onnx")
"""Operator -> content."""


def _from_call(call: OperatorCall) -> Translation:
    function, output = NAMES[call.operator], call.output
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

    operators: ClassVar[Operators] = dict.fromkeys(NAMES, _from_call)
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
        fill = {"read": 0, "written": elements, "flop": FILLINGS[self.function] * elements}
        return None if self.function == "empty" else fill, None


@layer_kind("opaque")
class Opaque(LayerByInput):
    """An operation known only by its operands.

    Parameters
    ----------
    operator : str
        Its name in another program. [-]
    shape : tuple of int
        Shape of an output sample. [1]
    over_batch : bool
        Whether all samples share the output although not the inputs. [-]

    Notes
    -----
    Forward reads every input and writes the output, 1 FLOP for each of their elements: a lower bound, never zero.
    Backward reads dy and the inputs and writes the wanted gradients, again 1 FLOP for each of these elements.
    """

    input_counts: ClassVar[tuple[int, int | None]] = (0, None)
    keeps_output: ClassVar[bool] = True
    checks: ClassVar[Checks] = {"operator": check_text}
    operator: str
    shape: Shape
    over_batch: bool = False

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the requested shape; all samples share it if they share all inputs."""
        return SharedShape(self.shape) if self.over_batch else stated_shape(self.shape, input_shapes)

    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return one pass that reads the inputs and writes the output."""
        read = sum(element_count(shape, batch_size=batch_size) for shape in input_shapes)
        written = element_count(self.output_shape(input_shapes), batch_size=batch_size)
        return only_pass("opaque", read=read, written=written, flop=read + written)

    def gradient_operations(self, input_shapes: Shapes, *, batch_size: Any, wanted: Sequence[bool]) -> Operations:
        """Return one pass that writes the wanted gradients."""
        if not any(wanted):
            return ()
        counts = [element_count(shape, batch_size=batch_size) for shape in input_shapes]
        read = sum(counts) + element_count(self.output_shape(input_shapes), batch_size=batch_size)
        written = sum(count for count, is_wanted in zip(counts, wanted, strict=True) if is_wanted)
        return only_pass("opaque", read=read, written=written, flop=read + written, role=Role.INPUT_GRADIENT)
