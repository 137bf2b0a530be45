"""Elements moved to other places: rolled, flipped, repeated, dealt to channels or pixels, cut to a triangle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_flag, check_shape
from perfmodel.layers.passes import broadcast_gradient
from perfmodel.layers.shapes import Shape, SharedShape, element_count
from perfmodel.layers.translation import OperatorCall, Translation, Translator
from perfmodel.records import MemoryPass, Operation, Role

TORCH_NAMES = (
    "aten.roll",
    "aten.flip",
    "aten.rot90",
    "aten.pixel_shuffle",
    "aten.pixel_unshuffle",
    "aten.channel_shuffle",
    "aten.native_channel_shuffle",
    "aten.tril",
    "aten.triu",
    "aten.repeat",
)
"""Operators of torch that move elements."""
ONNX_NAMES = ("DepthToSpace", "SpaceToDepth", "Tile", "Trilu", "ReverseSequence")
"""The same of ONNX."""


def _from_call(call: OperatorCall) -> Translation | None:
    x, output = call.operands[0], call.output
    layer = Rearrange(shape=tuple(output.shape), per_sample=x.is_shared and not output.is_shared)
    return Translation(layer=layer, inputs=(x,))


def _from_copy(call: OperatorCall) -> Translation | None:
    return _from_call(call) if call.moved else None


@final
@dataclass(frozen=True, kw_only=True)
class Rearrange(Layer):
    """A copy of a tensor whose elements lie elsewhere, in another order of axes, or several times.

    Parameters
    ----------
    shape : tuple of int
        Shape of an output sample. [1]
    per_sample : bool
        Whether every sample gets its own part of the output although all share the input. [-]
    copies_back : bool
        Whether the gradient is copied too; False where whoever wants it reads it as it lies. [-]

    Notes
    -----
    Forward reads every element of the input once and writes the output. Backward moves dy back: where elements were
    repeated it sums over the repeats, a read and an add for each element of dy.
    """

    kind: ClassVar[str] = "rearrange"
    examples: ClassVar[Examples] = (
        ({"shape": (1, 18, 18)}, ((4, 9, 9),)),
        ({"shape": (10, 6)}, ((5, 6),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"shape": ("C", "H", "W")}, (("C", "H", "W"),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        **dict.fromkeys(TORCH_NAMES, _from_call),
        "aten.clone": _from_copy,
    }
    onnx_operators: ClassVar[Mapping[str, Translator]] = dict.fromkeys(ONNX_NAMES, _from_call)
    keeps_inputs: ClassVar[bool] = False
    shape: Shape
    per_sample: bool = False
    copies_back: bool = True

    def __post_init__(self) -> None:
        check_shape("shape", self.shape)
        check_flag("per_sample", self.per_sample)
        check_flag("copies_back", self.copies_back)

    @property
    def makes_samples(self) -> bool:  # type: ignore[override]  # what is one fact elsewhere follows from an option
        """Whether every sample gets its own part of the output."""
        return self.per_sample

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the shape that was asked for."""
        is_shared = isinstance(input_shapes[0], SharedShape) and not self.per_sample
        return SharedShape(self.shape) if is_shared else self.shape

    def _counts(self, input_shapes: tuple[Shape, ...], batch_size: Any) -> tuple[Any, Any]:
        """Return elements of input and output."""
        output = self.output_shape(input_shapes)
        return element_count(input_shapes[0], batch_size=batch_size), element_count(output, batch_size=batch_size)

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads x and writes y."""
        read, written = self._counts(input_shapes, batch_size)
        return (MemoryPass(name="rearrange", read_elements=read, written_elements=written, tensor_elements=written),)

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that moves dy back, or sums it, or nothing."""
        if not self.copies_back:
            return ()
        own, elements = self._counts(input_shapes, batch_size)
        one_sample = self._counts(input_shapes, 1)
        if one_sample[0] != one_sample[1] or self.per_sample:
            return (broadcast_gradient(elements, operand_elements=own),)
        return (
            MemoryPass(
                name="rearrange",
                read_elements=elements,
                written_elements=own,
                tensor_elements=elements,
                role=Role.INPUT_GRADIENT,
            ),
        )
