"""Element-wise functions of two inputs that broadcast, in a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_choice, check_shape
from perfmodel.layers.elementwise.add import is_sum_of_equals
from perfmodel.layers.passes import MASK_BYTES, broadcast_gradient
from perfmodel.layers.shapes import (
    Shape,
    ShapeMismatchError,
    SharedShape,
    broadcast_shape,
    element_count,
    is_spread,
    stated_shape,
)
from perfmodel.layers.translation import Operand, OperatorCall, Translation, Translator
from perfmodel.records import MemoryPass, Operation, Role

Tensor = Literal["first", "second", "output"]


@dataclass(frozen=True, slots=True)
class Gradient:
    """What the gradient to one operand takes, element by element of the output.

    Parameters
    ----------
    flop : int
        Arithmetic; 0 where dy is passed on. [FLOP]
    reads : tuple of str
        What it reads besides dy: ``first``, ``second``, ``output``. [-]
    scratch, scratch_masks : int
        Tensors like y, and masks of 1 B an element, that torch makes before it. [1]
    """

    flop: int
    reads: tuple[Tensor, ...] = ()
    scratch: int = 0
    scratch_masks: int = 0


PASSED_ON = Gradient(0)
WON = Gradient(1, ("first", "second"), scratch=1, scratch_masks=2)
"""dy where the operand won, a compare; torch halves it where both did."""


@dataclass(frozen=True, slots=True)
class BinaryFunction:
    """What a function of two elements takes.

    Parameters
    ----------
    flop : int
        Arithmetic per element of the output. [FLOP]
    first, second : Gradient or None
        To each operand; None where there is no gradient. [-]
    writes : str
        ``elements``, or ``mask`` where the result is a truth value. [-]
    """

    flop: int
    first: Gradient | None
    second: Gradient | None
    writes: Literal["elements", "mask"] = "elements"


FUNCTIONS: dict[str, BinaryFunction] = {
    "add": BinaryFunction(1, PASSED_ON, PASSED_ON),
    "add_scaled": BinaryFunction(2, PASSED_ON, Gradient(1)),  # a + number b
    "subtract": BinaryFunction(1, PASSED_ON, Gradient(1)),  # -dy
    "multiply": BinaryFunction(1, Gradient(1, ("second",)), Gradient(1, ("first",))),
    # for each part of a complex number two multiplies and an add; the same of dy and the other's conjugate
    "complex_multiply": BinaryFunction(3, Gradient(3, ("second",)), Gradient(3, ("first",))),
    # dy / b; -dy (a / b) / b: two divides, multiply, negate
    "divide": BinaryFunction(1, Gradient(1, ("second",)), Gradient(4, ("first", "second"), scratch=3)),
    # dy b a^(b - 1): subtract, power, two multiplies; dy y log a: log, two multiplies
    "power": BinaryFunction(
        1,
        Gradient(4, ("first", "second"), scratch=4, scratch_masks=1),
        Gradient(3, ("first", "output"), scratch=3, scratch_masks=1),
    ),
    "maximum": BinaryFunction(1, WON, WON),
    "minimum": BinaryFunction(1, WON, WON),
    # a + number (b - a): subtract, multiply, add; dy times a number each
    "interpolate": BinaryFunction(3, Gradient(1), Gradient(1)),
    # dy b / (a a + b b), -dy a / (a a + b b): two squares, add, divide, multiply, and a negate
    "arctangent_of_ratio": BinaryFunction(
        1, Gradient(5, ("first", "second"), scratch=5), Gradient(6, ("first", "second"), scratch=3)
    ),
    # of a divided by b: dy; -dy floor(a / b): divide, round, multiply, negate
    "remainder": BinaryFunction(1, PASSED_ON, Gradient(4, ("first", "second"), scratch=2)),
    # a where it is positive, else a b: compare, multiply, in every gradient too
    "prelu": BinaryFunction(2, Gradient(2, ("first", "second")), Gradient(2, ("first",))),
    "floor_divide": BinaryFunction(2, None, None),
    "compare": BinaryFunction(1, None, None, writes="mask"),
    "logical": BinaryFunction(1, None, None, writes="mask"),  # and, or, exclusive or
}
"""Function -> counts; a comparison, a division and an elementary function are 1 FLOP each."""


TORCH_NAMES: dict[str, tuple[str, str, str]] = {
    "aten.add": ("add", "self", "other"),
    "aten.sub": ("subtract", "self", "other"),
    "aten.rsub": ("subtract", "other", "self"),
    "aten.mul": ("multiply", "self", "other"),
    "aten.div": ("divide", "self", "other"),
    "aten.true_divide": ("divide", "self", "other"),
    "aten.pow": ("power", "self", "exponent"),
    "aten.maximum": ("maximum", "self", "other"),
    "aten.minimum": ("minimum", "self", "other"),
    "aten.clamp_min": ("maximum", "self", "min"),
    "aten.clamp_max": ("minimum", "self", "max"),
    "aten.lerp": ("interpolate", "self", "end"),
    "aten.atan2": ("arctangent_of_ratio", "self", "other"),
    "aten.remainder": ("remainder", "self", "other"),
    "aten.fmod": ("remainder", "self", "other"),
    "aten.floor_divide": ("floor_divide", "self", "other"),
    "aten._prelu_kernel": ("prelu", "self", "weight"),
    **{f"aten.{name}": ("compare", "self", "other") for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{
        f"aten.{prefix}_{name}": ("logical", "self", "other")
        for prefix in ("logical", "bitwise")
        for name in ("and", "or", "xor")
    },
}
"""Operator of torch -> function, names of the first and the second operand."""

ONNX_NAMES: dict[str, str] = {
    "Add": "add",
    "Sub": "subtract",
    "Mul": "multiply",
    "Div": "divide",
    "Pow": "power",
    "Max": "maximum",
    "Min": "minimum",
    "Mod": "remainder",
    "PRelu": "prelu",
    **dict.fromkeys(("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"), "compare"),
    **dict.fromkeys(("And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor"), "logical"),
}
"""Operator of ONNX -> function."""


def shape_where_needed(call: OperatorCall, operands: tuple[Operand, ...]) -> Shape | None:
    """Return the output's shape where it does not follow from what is known of the operands' samples [1].

    Parameters
    ----------
    call : OperatorCall
        The call. [-]
    operands : tuple of Operand
        What is broadcast. [-]

    Returns
    -------
    tuple of int or None
        None where it follows. [1]
    """
    wanted = tuple(call.output.shape)
    try:
        follows = tuple(broadcast_shape([each.shape for each in operands])) == wanted
    except ShapeMismatchError:
        follows = False
    return None if follows else wanted


def _of_two(call: OperatorCall, function: str, operands: tuple[Any, ...]) -> Translation | None:
    if len(operands) != len(("first", "second")) or not all(isinstance(each, Operand) for each in operands):
        return None
    if function == "add" and is_sum_of_equals(operands):
        return None  # Add is that
    return Translation(layer=Binary(function=function, shape=shape_where_needed(call, operands)), inputs=operands)


def _from_torch(call: OperatorCall) -> Translation | None:
    function, first, second = TORCH_NAMES[call.operator]
    operands = (call[first], call[second])
    if function == "multiply" and all(isinstance(each, Operand) and each.is_complex for each in operands):
        return _of_two(call, "complex_multiply", operands)
    if call.get("alpha", 1) != 1:
        return _of_two(call, "add_scaled", operands)
    if isinstance(call.get("weight"), Operand) and function == "interpolate":
        return None  # of three tensors
    return _of_two(call, "floor_divide" if call.get("rounding_mode") else function, operands)


def _from_onnx(call: OperatorCall) -> Translation | None:
    return _of_two(call, ONNX_NAMES[call.operator], call.operands)


@final
@dataclass(frozen=True, kw_only=True)
class Binary(Layer):
    """A function of two elements; operands broadcast along axes of extent 1, missing first axes, and the batch.

    Parameters
    ----------
    function : str
        A word of ``FUNCTIONS``: ``add``, ``multiply``, ``divide`` ... [-]
    shape : tuple of int or None
        Shape of an output sample; None where it follows from the operands'. It does not where an operand shares an axis
        with the batch. [1]

    Notes
    -----
    Forward reads each operand's own elements and writes y. Backward, for each wanted gradient: one pass over the
    elements of y that reads dy and what the formula in ``FUNCTIONS`` needs, none where dy is passed on; and where the
    operand was repeated, the sum over the repeats: a read and an add per element of y, as frameworks do it, in a pass
    of its own. A truth value is 1 B, written as a mask.
    """

    kind: ClassVar[str] = "binary"
    examples: ClassVar[Examples] = (
        ({"function": "multiply"}, ((4, 9, 9), (4, 1, 1))),
        ({"function": "add"}, ((5, 6), SharedShape((1, 5, 6)))),
        ({"function": "subtract"}, ((10,), (10,))),
        ({"function": "power"}, (SharedShape(()), (10,))),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"function": "multiply"}, (("C", "H", "W"), ("C", 1, 1)))
    torch_operators: ClassVar[Mapping[str, Translator]] = dict.fromkeys(TORCH_NAMES, _from_torch)
    onnx_operators: ClassVar[Mapping[str, Translator]] = dict.fromkeys(ONNX_NAMES, _from_onnx)
    input_counts: ClassVar[tuple[int, int | None]] = (2, 2)
    function: str
    shape: Shape | None = None

    def __post_init__(self) -> None:
        check_choice("function", self.function, FUNCTIONS)
        if self.shape is not None:
            check_shape("shape", self.shape)

    @property
    def _gradients(self) -> tuple[Gradient | None, Gradient | None]:
        of_function = FUNCTIONS[self.function]
        return of_function.first, of_function.second

    @property
    def keeps_inputs(self) -> bool:  # type: ignore[override]  # what is one fact elsewhere follows from the function
        """Whether a gradient reads an operand."""
        return any({"first", "second"} & set(each.reads) for each in self._gradients if each)

    @property
    def keeps_output(self) -> bool:  # type: ignore[override]
        """Whether a gradient reads the output."""
        return any("output" in each.reads for each in self._gradients if each)

    @property
    def makes_mask(self) -> bool:  # type: ignore[override]
        """Whether the result is a truth value."""
        return FUNCTIONS[self.function].writes == "mask"

    @property
    def mask_inputs(self) -> tuple[int, ...]:  # type: ignore[override]
        """Both operands of a logical function."""
        return (0, 1) if self.function == "logical" else ()

    def kept_inputs(self, wanted: Sequence[bool], *, is_trained: bool) -> tuple[bool, ...]:
        """Tell for each operand whether a wanted gradient reads it."""
        del is_trained
        read = {
            each for of, is_wanted in zip(self._gradients, wanted, strict=True) if of and is_wanted for each in of.reads
        }
        return "first" in read, "second" in read

    def backward_scratch_bytes(
        self, input_shapes: tuple[Shape, ...], *, batch_size: Any, element_bytes: int, wanted: Sequence[bool]
    ) -> Any:
        """Return what the formulas make in between, and gradients of repeated operands before they are summed [B].

        The second operand's gradient comes first; sums over repeats follow when both are there.
        """
        output = self.output_shape(input_shapes)
        per_element = highest = own = 0
        for gradient, shape, is_wanted in reversed(list(zip(self._gradients, input_shapes, wanted, strict=True))):
            if gradient is None or not gradient.flop or not is_wanted:
                continue
            per_element += element_bytes
            own += 0 if is_spread(shape, output) else element_bytes
            highest = max(highest, per_element + gradient.scratch * element_bytes + gradient.scratch_masks * MASK_BYTES)
        return (highest - own) * element_count(output, batch_size=batch_size)

    def differentiable(self, input_count: int) -> tuple[bool, ...]:
        """Tell for each of ``input_count`` inputs [1] whether it has a gradient."""
        return tuple(each is not None for each in self._gradients)[:input_count]

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the shape that both operands have together."""
        return broadcast_shape(input_shapes) if self.shape is None else stated_shape(self.shape, input_shapes)

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads both operands and writes y."""
        of_function = FUNCTIONS[self.function]
        elements = element_count(self.output_shape(input_shapes), batch_size=batch_size)
        is_mask = of_function.writes == "mask"
        return (
            MemoryPass(
                name=self.function,
                read_elements=sum(element_count(shape, batch_size=batch_size) for shape in input_shapes),
                written_elements=0 if is_mask else elements,
                tensor_elements=elements,
                flop_count=of_function.flop * elements,
                written_index_bytes=MASK_BYTES * elements if is_mask else 0,
            ),
        )

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return a pass for each gradient that is not passed on, and the sums over repeats."""
        return self.gradient_operations(input_shapes, batch_size=batch_size, wanted=(True, True))

    def gradient_operations(
        self, input_shapes: tuple[Shape, ...], *, batch_size: Any, wanted: Sequence[bool]
    ) -> tuple[Operation, ...]:
        """Return the same for the wanted gradients."""
        output = self.output_shape(input_shapes)
        tensors = dict(zip(("first", "second", "output"), (*input_shapes, output), strict=True))
        counts = {name: element_count(shape, batch_size=batch_size) for name, shape in tensors.items()}
        operations: list[Operation] = []
        for name, gradient, is_wanted in zip(("first", "second"), self._gradients, wanted, strict=True):
            if gradient is None or not is_wanted:
                continue
            if gradient.flop:
                one = MemoryPass(
                    name=self.function,
                    read_elements=counts["output"] + sum(counts[each] for each in gradient.reads),
                    written_elements=counts["output"],
                    tensor_elements=counts["output"],
                    flop_count=gradient.flop * counts["output"],
                    role=Role.INPUT_GRADIENT,
                )
                operations.append(one)
            if is_spread(tensors[name], output):
                operations.append(broadcast_gradient(counts["output"], operand_elements=counts[name]))
        return tuple(operations)
