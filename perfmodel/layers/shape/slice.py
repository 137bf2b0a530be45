"""A part of a tensor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_flag, check_shape, is_open_size
from perfmodel.layers.shape.reshape import Reshape
from perfmodel.layers.shapes import Shape, ShapeMismatchError, SharedShape, element_count, shape_text
from perfmodel.layers.translation import Operand, OperatorCall, Translation, Translator
from perfmodel.numeric import where
from perfmodel.records import MemoryPass, Operation, Role
from perfmodel.symbolic import is_symbolic

TORCH_NAMES = (
    "aten.slice",
    "aten.select",
    "aten.split",
    "aten.split_with_sizes",
    "aten.unsafe_split",
    "aten.chunk",
    "aten.unsafe_chunk",
    "aten.unbind",
    "aten.narrow",
    "aten.diagonal",
    "aten.unfold",
    "aten.as_strided",
)
"""Operators of torch whose result is a part of their input, or several of them."""
SPLITS = (
    "aten.split",
    "aten.split_with_sizes",
    "aten.unsafe_split",
    "aten.chunk",
    "aten.unsafe_chunk",
    "aten.unbind",
    "Split",
)
"""Those that make several at once."""


def _part(call: OperatorCall, x: Operand) -> Translation | None:
    if call.output.is_shared != x.is_shared:
        return None  # a part of the samples
    whole, part = math.prod(x.shape), math.prod(call.output.shape)
    if not is_open_size(whole) and not is_open_size(part) and part > whole:
        return None  # windows that overlap
    shape = tuple(call.output.shape)
    layer = Reshape(shape=shape) if whole == part else Slice(shape=shape, is_joined=call.operator in SPLITS)
    return Translation(layer=layer, inputs=(x,))


def _from_torch(call: OperatorCall) -> Translation | None:
    return _part(call, call["self"])


def _from_onnx(call: OperatorCall) -> Translation | None:
    return _part(call, call.operands[0])


@final
@dataclass(frozen=True, kw_only=True)
class Slice(Layer):
    """Some of the elements of a sample: a range, every n-th, one of several parts, a diagonal. A view.

    Parameters
    ----------
    shape : tuple of int
        Shape of an output sample. [1]
    is_joined : bool
        Whether it is one of the parts into which the input is split, so that the gradients of all of them are joined
        to dx in one pass. [-]

    Notes
    -----
    Forward costs nothing. Backward writes the whole of dx in one pass: dy where it belongs, zero elsewhere; nothing
    where all elements are taken. Of a part that is joined the graph counts that pass, once for all parts.
    """

    kind: ClassVar[str] = "slice"
    examples: ClassVar[Examples] = (
        ({"shape": (2, 9)}, ((4, 9, 9),)),
        ({"shape": (2, 9, 9), "is_joined": True}, ((4, 9, 9),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"shape": ("T", "F")}, (("S", "F"),))
    torch_operators: ClassVar[Mapping[str, Translator]] = dict.fromkeys(TORCH_NAMES, _from_torch)
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"Slice": _from_onnx, "Split": _from_onnx}
    keeps_inputs: ClassVar[bool] = False
    is_view: ClassVar[bool] = True
    shape: Shape
    is_joined: bool = False

    def __post_init__(self) -> None:
        check_shape("shape", self.shape)
        check_flag("is_joined", self.is_joined)

    @property
    def gradient_is_joined(self) -> bool:  # type: ignore[override]  # what is one fact elsewhere follows from an option
        """Whether one pass joins the gradients of all parts."""
        return self.is_joined

    @property
    def gradient_is_view(self) -> bool:  # type: ignore[override]  # as above
        """Whether the part of dx is dy itself until then."""
        return self.is_joined

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the shape that was asked for."""
        given, asked = math.prod(input_shapes[0]), math.prod(self.shape)
        if not is_open_size(given) and not is_open_size(asked) and asked > given:
            problem = f"takes a part of {shape_text(self.shape)}, but its input is only {shape_text(input_shapes[0])}"
            raise ShapeMismatchError(problem)
        return self.shape

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return nothing."""
        del input_shapes, batch_size
        return ()

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that writes dx, unless the graph counts it."""
        if self.is_joined:
            return ()
        is_part = _is_part(math.prod(self.shape), math.prod(input_shapes[0]))
        if not is_symbolic(is_part) and not is_part:
            return ()
        whole = is_part * element_count(input_shapes[0], batch_size=batch_size)
        part = SharedShape(self.shape) if isinstance(input_shapes[0], SharedShape) else self.shape
        return (
            MemoryPass(
                name="slice",
                read_elements=is_part * element_count(part, batch_size=batch_size),
                written_elements=whole,
                tensor_elements=whole,
                role=Role.INPUT_GRADIENT,
            ),
        )


def _is_part(part: Any, whole: Any) -> Any:
    """Return 1 where elements are left out, else 0; a case of sizes where rounding leaves open which it is."""
    if not is_symbolic(part, whole):
        return int(part != whole)
    import sympy

    left_out = sympy.expand(whole - part)
    return where(sympy.Ne(left_out, 0), 1, 0) if left_out.has(sympy.ceiling, sympy.floor) else int(left_out != 0)
