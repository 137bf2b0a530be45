"""Choice between two tensors by a mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_shape
from perfmodel.layers.elementwise.binary import shape_where_needed
from perfmodel.layers.passes import MASK_BYTES, broadcast_gradient
from perfmodel.layers.shapes import Shape, SharedShape, broadcast_shape, element_count, is_spread, stated_shape
from perfmodel.layers.translation import Operand, OperatorCall, Translation, Translator
from perfmodel.records import MemoryPass, Operation, Role


def _chosen(call: OperatorCall, mask: Operand, *tensors: Any) -> Translation | None:
    operands = (mask, *(each for each in tensors if isinstance(each, Operand)))
    if len(operands) == 1:
        return None  # of two numbers
    return Translation(layer=Where(shape=shape_where_needed(call, operands)), inputs=operands)


def _from_torch(call: OperatorCall) -> Translation | None:
    if call.get("self") is None or call.get("other") is None:
        return None  # the positions where it is true
    return _chosen(call, call["condition"], call["self"], call["other"])


def _filled_from_torch(call: OperatorCall) -> Translation | None:
    return _chosen(call, call["mask"], call["self"], call["value"])


def _from_onnx(call: OperatorCall) -> Translation | None:
    return _chosen(call, call["0"], call["1"], call["2"])


@final
@dataclass(frozen=True, kw_only=True)
class Where(Layer):
    """Of a mask, a tensor and perhaps another: the one where the mask is true, the other, or a number, elsewhere.

    Parameters
    ----------
    shape : tuple of int or None
        Shape of an output sample; None where it follows from the inputs'. It does not where one of them shares an axis
        with the batch. [1]

    Notes
    -----
    Forward reads the mask, 1 B an element, and each tensor's own elements, and writes y: 1 FLOP per element, as a
    comparison. Backward, for each wanted gradient: one pass reads dy and the mask and writes dy or zero (1 FLOP per
    element); where the tensor was repeated, the sum over the repeats follows. Back-propagation reads the mask alone.
    """

    kind: ClassVar[str] = "where"
    examples: ClassVar[Examples] = (
        ({}, ((1, 5, 5), (4, 5, 5))),
        ({}, (SharedShape((5, 6)), (5, 6), (1, 6))),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("S", "S"), ("H", "S", "S")))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.where": _from_torch,
        "aten.masked_fill": _filled_from_torch,
    }
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"Where": _from_onnx}
    input_counts: ClassVar[tuple[int, int | None]] = (2, 3)
    index_inputs: ClassVar[tuple[int, ...]] = (0,)
    mask_inputs: ClassVar[tuple[int, ...]] = (0,)
    shape: Shape | None = None

    def __post_init__(self) -> None:
        if self.shape is not None:
            check_shape("shape", self.shape)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the shape that all inputs have together."""
        return broadcast_shape(input_shapes) if self.shape is None else stated_shape(self.shape, input_shapes)

    def kept_inputs(self, wanted: Sequence[bool], *, is_trained: bool) -> tuple[bool, ...]:
        """Return the mask, where any gradient is wanted."""
        del is_trained
        return (any(wanted), *(False for _ in wanted[1:]))

    def backward_scratch_bytes(
        self, input_shapes: tuple[Shape, ...], *, batch_size: Any, element_bytes: int, wanted: Sequence[bool]
    ) -> Any:
        """Return the gradients of repeated tensors before they are summed [B]."""
        output = self.output_shape(input_shapes)
        repeated = sum(
            is_wanted and is_spread(shape, output)
            for shape, is_wanted in zip(input_shapes[1:], wanted[1:], strict=True)
        )
        return element_bytes * repeated * element_count(output, batch_size=batch_size)

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads the mask and the tensors and writes y."""
        mask, *tensors = (element_count(shape, batch_size=batch_size) for shape in input_shapes)
        elements = element_count(self.output_shape(input_shapes), batch_size=batch_size)
        return (
            MemoryPass(
                name="where",
                read_elements=sum(tensors),
                written_elements=elements,
                tensor_elements=elements,
                flop_count=elements,
                read_index_bytes=MASK_BYTES * mask,
            ),
        )

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return a pass for each tensor, and the sums over repeats."""
        return self.gradient_operations(input_shapes, batch_size=batch_size, wanted=[True] * len(input_shapes))

    def gradient_operations(
        self, input_shapes: tuple[Shape, ...], *, batch_size: Any, wanted: Sequence[bool]
    ) -> tuple[Operation, ...]:
        """Return the same for the wanted gradients."""
        output = self.output_shape(input_shapes)
        elements = element_count(output, batch_size=batch_size)
        one = MemoryPass(
            name="where",
            read_elements=elements,
            written_elements=elements,
            tensor_elements=elements,
            flop_count=elements,
            read_index_bytes=MASK_BYTES * element_count(input_shapes[0], batch_size=batch_size),
            role=Role.INPUT_GRADIENT,
        )
        operations: list[Operation] = []
        for shape, is_wanted in zip(input_shapes[1:], wanted[1:], strict=True):
            if is_wanted:
                operations.append(one)
                if is_spread(shape, output):
                    own = element_count(shape, batch_size=batch_size)
                    operations.append(broadcast_gradient(elements, operand_elements=own))
        return tuple(operations)
