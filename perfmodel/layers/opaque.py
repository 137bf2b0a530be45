"""An operation unknown to perfmodel: its traffic, and a lower bound on its arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from perfmodel.layers.base import Checks, LayerByInput, Operations, SymbolicExample, layer_kind
from perfmodel.layers.checks import check_text
from perfmodel.layers.passes import only_pass
from perfmodel.layers.shapes import Shape, Shapes, SharedShape, element_count, stated_shape
from perfmodel.records import Role


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

    symbolic_example: ClassVar[SymbolicExample] = ({"operator": "custom::polish", "shape": ("K",)}, (("F",),))
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
