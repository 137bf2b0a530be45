"""A tensor repeated along axes of extent 1, or for every sample, without a copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_flag, check_shape
from perfmodel.layers.passes import broadcast_gradient
from perfmodel.layers.shapes import Shape, ShapeMismatchError, SharedShape, element_count, is_spread, shape_text
from perfmodel.layers.translation import OperatorCall, Translation, Translator
from perfmodel.records import Operation


def _from_call(call: OperatorCall) -> Translation:
    x, output = call.operands[0], call.output
    layer = Expand(shape=tuple(output.shape), per_sample=x.is_shared and not output.is_shared)
    return Translation(layer=layer, inputs=(x,))


@final
@dataclass(frozen=True, kw_only=True)
class Expand(Layer):
    """The elements of a tensor repeated: along axes of extent 1, along new first axes, for every sample. A view.

    Parameters
    ----------
    shape : tuple of int
        Shape of an output sample. [1]
    per_sample : bool
        Whether every sample gets its own part of the output although all share the input. [-]

    Notes
    -----
    Forward costs nothing. Backward sums dy over the repeats: a read and an add for each of its elements.
    """

    kind: ClassVar[str] = "expand"
    examples: ClassVar[Examples] = (
        ({"shape": (4, 9, 9)}, ((4, 1, 1),)),
        ({"shape": (1, 6), "per_sample": True}, (SharedShape((1, 1, 6)),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"shape": ("C", "H", "W")}, (("C", 1, 1),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.expand": _from_call,
    }
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"Expand": _from_call}
    keeps_inputs: ClassVar[bool] = False
    is_view: ClassVar[bool] = True
    shape: Shape
    per_sample: bool = False

    def __post_init__(self) -> None:
        check_shape("shape", self.shape)
        check_flag("per_sample", self.per_sample)

    @property
    def makes_samples(self) -> bool:  # type: ignore[override]  # what is one fact elsewhere follows from an option
        """Whether every sample gets its own part of the output."""
        return self.per_sample

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the shape that was asked for."""
        given = input_shapes[0]
        while len(given) > len(self.shape) and given[0] == 1:
            given = given[1:]
        ends = zip(reversed(given), reversed(self.shape), strict=False)
        if len(given) > len(self.shape) or any(extent not in (1, wanted) for extent, wanted in ends):
            problem = f"repeats its input to {shape_text(self.shape)}, which {shape_text(input_shapes[0])} does not fit"
            raise ShapeMismatchError(problem)
        is_shared = isinstance(input_shapes[0], SharedShape) and not self.per_sample
        return SharedShape(self.shape) if is_shared else self.shape

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return nothing."""
        del input_shapes, batch_size
        return ()

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return the sum over the repeats; nothing where there are none."""
        output = self.output_shape(input_shapes)
        if not is_spread(input_shapes[0], output):
            return ()
        elements = element_count(output, batch_size=batch_size)
        own = element_count(input_shapes[0], batch_size=batch_size)
        return (broadcast_gradient(elements, operand_elements=own),)
