"""Element-wise functions of inputs that broadcast: sums, functions of two operands, a choice by a mask."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from perfmodel.layers.base import Checks, LayerByInput, OnePassLayer, Operations, Traffic, layer_kind, of_options
from perfmodel.layers.checks import one_of
from perfmodel.layers.passes import MASK_BYTES, one_pass, only_pass, summed_repeats
from perfmodel.layers.shapes import (
    Shape,
    ShapeMismatchError,
    Shapes,
    SharedShape,
    broadcast_shape,
    element_count,
    is_spread,
    mismatch,
    shape_text,
    stated_shape,
)
from perfmodel.layers.translation import Operand, OperatorCall, Operators, Translation, function_names, function_table
from perfmodel.records import Operation, Role


def is_sum_of_equals(operands: tuple[Any, ...]) -> bool:
    """Return whether operands have one shape and either all belong to samples or all are shared [-]."""
    if len(operands) < 2 or not all(isinstance(operand, Operand) for operand in operands):
        return False
    return len({(tuple(operand.shape), operand.is_shared) for operand in operands}) == 1


def _sum(call: OperatorCall) -> Translation | None:
    is_this = call.get("alpha", 1) == 1 and is_sum_of_equals(call.operands)
    return Translation(layer=Add(), inputs=call.operands) if is_this else None


@layer_kind("add")
class Add(OnePassLayer):
    """Sum of two or more inputs of one shape.

    Notes
    -----
    Forward reads every input and writes the sum, one add per further input. Backward does nothing: each
    input's gradient is the output's own, passed on without a copy.
    """

    operators: ClassVar[Operators] = dict.fromkeys(("aten.add", "Add", "Sum"), _sum)
    keeps_inputs: ClassVar[bool] = False
    input_counts: ClassVar[tuple[int, int | None]] = (2, None)

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the shape that all inputs have."""
        for shape in input_shapes[1:]:
            if shape != input_shapes[0] or isinstance(shape, SharedShape) != isinstance(input_shapes[0], SharedShape):
                mismatch(f"adds inputs of one shape, but they are {' and '.join(map(shape_text, input_shapes))}")
        return input_shapes[0]

    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[Traffic, None]:
        """Return a pass that reads all inputs and writes their sum."""
        elements = batch_size * math.prod(input_shapes[0])
        count = len(input_shapes)
        return {"read": count * elements, "written": elements, "flop": (count - 1) * elements}, None


Tensor = Literal["first", "second", "output"]


@dataclass(frozen=True, slots=True)
class Gradient:
    """Cost of the gradient to one operand, per element of the output.

    Parameters
    ----------
    flop : int
        Arithmetic; 0 if dy is passed on. [FLOP]
    reads : tuple of str
        Tensors it reads besides dy: ``first``, ``second``, ``output``. [-]
    scratch, scratch_masks : int
        Tensors like y, and masks of 1 B an element, that torch makes before it. [1]
    """

    flop: int
    reads: Sequence[Tensor] = ()
    scratch: int = 0
    scratch_masks: int = 0


@dataclass(frozen=True, slots=True)
class BinaryFunction:
    """Cost of a function of two elements.

    Parameters
    ----------
    flop : int
        Arithmetic per element of the output. [FLOP]
    first, second : Gradient or None
        Gradient to each operand; None if there is none. [-]
    writes : str
        ``elements``, or ``mask`` if the result is Boolean. [-]
    """

    flop: int
    first: Gradient | None = None
    second: Gradient | None = None
    writes: Literal["elements", "mask"] = "elements"


def _function(row: Mapping[str, Any]) -> BinaryFunction:
    gradients = {side: Gradient(**row[side]) for side in ("first", "second") if side in row}
    return BinaryFunction(**{**row, **gradients})


FUNCTIONS = {name: _function(row) for name, row in function_table("binary").items()}
"""Function -> counts."""

TORCH_NAMES = function_names("binary", "torch")
"""Operator of torch -> function."""

TORCH_OPERANDS = {
    "aten.rsub": ("other", "self"),
    "aten.pow": ("self", "exponent"),
    "aten.clamp_min": ("self", "min"),
    "aten.clamp_max": ("self", "max"),
    "aten.lerp": ("self", "end"),
    "aten._prelu_kernel": ("self", "weight"),
}
"""Operator of torch -> its first and second operand, where they are not self and other."""

ONNX_NAMES = function_names("binary", "onnx")
"""Operator of ONNX -> function."""


def shape_where_needed(call: OperatorCall, operands: tuple[Operand, ...]) -> Shape | None:
    """Return the output's shape if it does not follow from the shapes of the operands' samples [1]."""
    wanted = tuple(call.output.shape)
    try:
        follows = tuple(broadcast_shape([operand.shape for operand in operands])) == wanted
    except ShapeMismatchError:
        follows = False
    return None if follows else wanted


def _of_two(call: OperatorCall, function: str, operands: tuple[Any, ...]) -> Translation | None:
    if len(operands) != len(("first", "second")) or not all(isinstance(operand, Operand) for operand in operands):
        return None
    if function == "add" and is_sum_of_equals(operands):
        return None  # Add covers it
    return Translation(layer=Binary(function=function, shape=shape_where_needed(call, operands)), inputs=operands)


def _from_torch_binary(call: OperatorCall) -> Translation | None:
    function = TORCH_NAMES[call.operator]
    first, second = TORCH_OPERANDS.get(call.operator, ("self", "other"))
    operands = (call[first], call[second])
    if function == "multiply" and all(isinstance(operand, Operand) and operand.is_complex for operand in operands):
        return _of_two(call, "complex_multiply", operands)
    if call.get("alpha", 1) != 1:
        return _of_two(call, "add_scaled", operands)
    if isinstance(call.get("weight"), Operand) and function == "interpolate":
        return None  # of three tensors
    return _of_two(call, "floor_divide" if call.get("rounding_mode") else function, operands)


@layer_kind("binary")
class Binary(LayerByInput):
    """A function of two elements; operands broadcast along axes of extent 1, missing first axes, and the batch.

    Parameters
    ----------
    function : str
        A word of ``FUNCTIONS``: ``add``, ``multiply``, ``divide`` ... [-]
    shape : tuple of int or None
        Shape of an output sample; None if it follows from the operands'. It does not if an operand shares an axis
        with the batch. [1]

    Notes
    -----
    Forward reads each operand's own elements and writes y. Backward, for each wanted gradient: one pass over the
    elements of y that reads dy and what the formula in ``FUNCTIONS`` needs, none where dy is passed on; and where the
    operand was repeated, the sum over the repeats: a read and an add per element of y, as frameworks do it, in a pass
    of its own. A Boolean is 1 B, written as a mask.
    """

    operators: ClassVar[Operators] = {
        **dict.fromkeys(TORCH_NAMES, _from_torch_binary),
        **dict.fromkeys(ONNX_NAMES, lambda call: _of_two(call, ONNX_NAMES[call.operator], call.operands)),
    }
    input_counts: ClassVar[tuple[int, int | None]] = (2, 2)
    checks: ClassVar[Checks] = {"function": one_of(FUNCTIONS)}
    keeps_inputs: ClassVar[bool] = of_options(lambda layer: bool(layer._read - {"output"}))
    keeps_output: ClassVar[bool] = of_options(lambda layer: "output" in layer._read)
    makes_mask: ClassVar[bool] = of_options(lambda layer: FUNCTIONS[layer.function].writes == "mask")
    mask_inputs: ClassVar[tuple[int, ...]] = of_options(lambda layer: (0, 1) if layer.function == "logical" else ())
    function: str
    shape: Shape | None = None

    @property
    def _gradients(self) -> tuple[Gradient | None, Gradient | None]:
        of_function = FUNCTIONS[self.function]
        return of_function.first, of_function.second

    @property
    def _read(self) -> set[Tensor]:
        """Tensors that a gradient reads besides dy."""
        return {name for gradient in self._gradients if gradient for name in gradient.reads}

    def kept_inputs(self, wanted: Sequence[bool], *, is_trained: bool) -> tuple[bool, ...]:
        """Return for each operand whether a requested gradient reads it."""
        read = {
            name for of, is_wanted in zip(self._gradients, wanted, strict=True) if of and is_wanted for name in of.reads
        }
        return "first" in read, "second" in read

    def backward_scratch_bytes(
        self, input_shapes: Shapes, *, batch_size: Any, element_bytes: int, wanted: Sequence[bool]
    ) -> Any:
        """Return the bytes of intermediate results, and of gradients of repeated operands before they are summed [B].

        The second operand's gradient comes first; sums over repeats follow when both are there.
        """
        output = self.output_shape(input_shapes)
        per_element = highest = unspread = 0
        for gradient, shape, is_wanted in reversed(list(zip(self._gradients, input_shapes, wanted, strict=True))):
            if gradient is None or not gradient.flop or not is_wanted:
                continue
            per_element += element_bytes
            unspread += 0 if is_spread(shape, output) else element_bytes
            highest = max(highest, per_element + gradient.scratch * element_bytes + gradient.scratch_masks * MASK_BYTES)
        return (highest - unspread) * element_count(output, batch_size=batch_size)

    def differentiable(self, input_count: int) -> tuple[bool, ...]:
        """Return for each of ``input_count`` inputs [1] whether it has a gradient."""
        return tuple(gradient is not None for gradient in self._gradients)[:input_count]

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the shape that both operands broadcast to."""
        return broadcast_shape(input_shapes) if self.shape is None else stated_shape(self.shape, input_shapes)

    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return one pass that reads both operands and writes y."""
        of_function = FUNCTIONS[self.function]
        elements = element_count(self.output_shape(input_shapes), batch_size=batch_size)
        is_mask = of_function.writes == "mask"
        return only_pass(
            self.function,
            read=sum(element_count(shape, batch_size=batch_size) for shape in input_shapes),
            written=0 if is_mask else elements,
            tensor=elements,
            flop=of_function.flop * elements,
            written_index_bytes=MASK_BYTES * elements if is_mask else 0,
        )

    def gradient_operations(self, input_shapes: Shapes, *, batch_size: Any, wanted: Sequence[bool]) -> Operations:
        """Return a pass for each wanted gradient that is not passed on, and the sums over repeats."""
        output = self.output_shape(input_shapes)
        tensors = dict(zip(("first", "second", "output"), (*input_shapes, output), strict=True))
        counts = {name: element_count(shape, batch_size=batch_size) for name, shape in tensors.items()}
        operations: list[Operation] = []
        for name, gradient, is_wanted in zip(("first", "second"), self._gradients, wanted, strict=True):
            if gradient is None or not is_wanted:
                continue
            if gradient.flop:
                one = one_pass(
                    self.function,
                    read=counts["output"] + sum(counts[name] for name in gradient.reads),
                    written=counts["output"],
                    flop=gradient.flop * counts["output"],
                    role=Role.INPUT_GRADIENT,
                )
                operations.append(one)
            operations += summed_repeats(tensors[name], output, batch_size=batch_size)
        return tuple(operations)


def _chosen(call: OperatorCall) -> Translation | None:
    mask = call.get("0", call.get("condition", call.get("mask")))
    operands = (mask, *(operand for operand in call.operands if operand is not mask))
    if len(operands) == 1:
        return None  # of two numbers, or the positions where it is true
    return Translation(layer=Where(shape=shape_where_needed(call, operands)), inputs=operands)


@layer_kind("where")
class Where(LayerByInput):
    """Choose by a mask: one tensor where it is true, another tensor or a number elsewhere.

    Parameters
    ----------
    shape : tuple of int or None
        Shape of an output sample; None if it follows from the inputs'. It does not if one of them shares an axis
        with the batch. [1]

    Notes
    -----
    Forward reads the mask, 1 B an element, and each tensor's own elements, and writes y: 1 FLOP per element, as a
    comparison. Backward, for each wanted gradient: one pass reads dy and the mask and writes dy or zero (1 FLOP per
    element); where the tensor was repeated, the sum over the repeats follows. Back-propagation reads the mask alone.
    """

    operators: ClassVar[Operators] = dict.fromkeys(("aten.where", "aten.masked_fill", "Where"), _chosen)
    input_counts: ClassVar[tuple[int, int | None]] = (2, 3)
    index_inputs: ClassVar[tuple[int, ...]] = (0,)
    mask_inputs: ClassVar[tuple[int, ...]] = (0,)
    shape: Shape | None = None

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the shape that all inputs broadcast to."""
        return broadcast_shape(input_shapes) if self.shape is None else stated_shape(self.shape, input_shapes)

    def kept_inputs(self, wanted: Sequence[bool], *, is_trained: bool) -> tuple[bool, ...]:
        """Return the mask, if any gradient is needed."""
        return (any(wanted), *(False for _ in wanted[1:]))

    def backward_scratch_bytes(
        self, input_shapes: Shapes, *, batch_size: Any, element_bytes: int, wanted: Sequence[bool]
    ) -> Any:
        """Return the gradients of repeated tensors before they are summed [B]."""
        output = self.output_shape(input_shapes)
        repeated = sum(
            is_wanted and is_spread(shape, output)
            for shape, is_wanted in zip(input_shapes[1:], wanted[1:], strict=True)
        )
        return element_bytes * repeated * element_count(output, batch_size=batch_size)

    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return one pass that reads the mask and the tensors and writes y."""
        mask, *tensors = (element_count(shape, batch_size=batch_size) for shape in input_shapes)
        elements = element_count(self.output_shape(input_shapes), batch_size=batch_size)
        return only_pass(
            "where", read=sum(tensors), written=elements, flop=elements, read_index_bytes=MASK_BYTES * mask
        )

    def gradient_operations(self, input_shapes: Shapes, *, batch_size: Any, wanted: Sequence[bool]) -> Operations:
        """Return a pass for each wanted gradient that is not passed on, and the sums over repeats."""
        output = self.output_shape(input_shapes)
        elements = element_count(output, batch_size=batch_size)
        one = one_pass(
            "where",
            read=elements,
            written=elements,
            flop=elements,
            read_index_bytes=MASK_BYTES * element_count(input_shapes[0], batch_size=batch_size),
            role=Role.INPUT_GRADIENT,
        )
        operations: list[Operation] = []
        for shape, is_wanted in zip(input_shapes[1:], wanted[1:], strict=True):
            if is_wanted:
                operations += [one, *summed_repeats(shape, output, batch_size=batch_size)]
        return tuple(operations)
