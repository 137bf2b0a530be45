"""Element-wise functions of one input, in a table; activations with a class of their own are in ``activation``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from perfmodel.layers.activation import RELU6_TOP, Pointwise
from perfmodel.layers.base import Checks, SymbolicExample, Traffic, layer_kind
from perfmodel.layers.checks import one_of
from perfmodel.layers.passes import MASK_BYTES
from perfmodel.layers.shapes import Shapes, element_count
from perfmodel.layers.translation import Operand, OperatorCall, Operators, Translation


@dataclass(frozen=True, slots=True)
class UnaryFunction:
    """Cost of a function of one element.

    Parameters
    ----------
    forward_flop : int
        Arithmetic per element. [FLOP]
    backward_flop : int or None
        Arithmetic per element of its gradient; 0 where dy is passed on, None where there is no gradient. [FLOP]
    reads : str
        What the gradient reads besides dy: ``input``, ``output`` or nothing. [-]
    writes : str
        ``elements``, or ``mask`` where the result is a truth value. [-]
    scratch, scratch_masks : int
        Tensors like x, and masks of 1 B an element, that torch makes between dy and dx. [1]
    torch, onnx : str
        Operators of torch and of ONNX that are this function of their only tensor. [-]
    """

    forward_flop: int
    backward_flop: int | None
    reads: Literal["input", "output", ""] = ""
    writes: Literal["elements", "mask"] = "elements"
    scratch: int = 0
    scratch_masks: int = 0
    torch: str = ""
    onnx: str = ""


FUNCTIONS: dict[str, UnaryFunction] = {
    "exp": UnaryFunction(1, 1, "output", torch="exp", onnx="Exp"),  # dy y
    "exp2": UnaryFunction(1, 2, "output", scratch=1, torch="exp2"),  # dy y log 2
    "power_of_number": UnaryFunction(1, 2, "output", scratch=2),  # dy (y log a)
    "expm1": UnaryFunction(2, 2, "output", scratch=1, torch="expm1"),  # exp, subtract; dy (y + 1)
    "log": UnaryFunction(1, 1, "input", torch="log", onnx="Log"),  # dy / x
    "log2": UnaryFunction(1, 2, "input", scratch=1, torch="log2 log10"),  # dy / (x log a)
    "log1p": UnaryFunction(2, 2, "input", scratch=1, torch="log1p"),  # add, log; dy / (x + 1)
    "sqrt": UnaryFunction(1, 2, "output", scratch=1, torch="sqrt", onnx="Sqrt"),  # dy / (2 y)
    "rsqrt": UnaryFunction(2, 4, "output", scratch=2, torch="rsqrt"),  # sqrt, divide; -dy y y y / 2
    "reciprocal": UnaryFunction(1, 3, "output", scratch=2, torch="reciprocal", onnx="Reciprocal"),  # -dy y y
    "negative": UnaryFunction(1, 1, torch="neg", onnx="Neg"),
    "absolute": UnaryFunction(1, 2, "input", scratch=1, torch="abs", onnx="Abs"),  # sign of x, times dy
    "square": UnaryFunction(1, 2, "input", scratch=2, torch="square"),  # 2 x dy
    "power": UnaryFunction(1, 3, "input", scratch=2),  # to the power of a number: dy e x^(e - 1)
    "sine": UnaryFunction(1, 2, "input", scratch=1, torch="sin", onnx="Sin"),  # dy cos x
    "cosine": UnaryFunction(1, 3, "input", scratch=2, torch="cos", onnx="Cos"),  # -dy sin x
    "tangent": UnaryFunction(1, 3, "output", scratch=2, torch="tan", onnx="Tan"),  # dy (1 + y y)
    "arcsine": UnaryFunction(1, 4, "input", scratch=4, torch="asin", onnx="Asin"),  # dy / sqrt(1 - x x)
    "arccosine": UnaryFunction(1, 4, "input", scratch=5, torch="acos", onnx="Acos"),  # -dy / sqrt(1 - x x)
    "arctangent": UnaryFunction(1, 3, "input", scratch=2, torch="atan", onnx="Atan"),  # dy / (1 + x x)
    "hyperbolic_sine": UnaryFunction(1, 2, "input", scratch=1, torch="sinh cosh", onnx="Sinh Cosh"),  # dy cosh x
    "erf": UnaryFunction(1, 5, "input", scratch=4, torch="erf", onnx="Erf"),  # dy c exp(-x x)
    # exp, add, log; dy e / (e + 1) with e = exp x
    "softplus": UnaryFunction(3, 4, "input", torch="softplus", onnx="Softplus"),
    "log_sigmoid": UnaryFunction(5, 5, "input", torch="log_sigmoid_forward"),  # -softplus(-x)
    "softsign": UnaryFunction(3, 4, "input", onnx="Softsign"),  # x / (1 + |x|); dy / (1 + |x|)^2
    # compare, exp, subtract, multiply; compare, exp, multiply, multiply
    "elu": UnaryFunction(4, 4, "input", torch="elu celu", onnx="Elu Selu Celu"),
    # x clamp(x + 3, 0, 6) / 6; two compares, x / 3 + 1/2, times dy
    "hard_swish": UnaryFunction(5, 5, "input", torch="hardswish", onnx="HardSwish"),
    # clamp(x + 3, 0, 6) / 6; two compares, multiply
    "hard_sigmoid": UnaryFunction(4, 3, "input", torch="hardsigmoid", onnx="HardSigmoid"),
    "clamp": UnaryFunction(2, 2, "input", scratch_masks=2),  # two compares
    "clamp_one_side": UnaryFunction(1, 1, "input", scratch_masks=1),  # one compare
    "hard_tanh": UnaryFunction(2, 2, "input"),  # clamp, in one operator back
    "threshold": UnaryFunction(1, 1, "input", torch="threshold", onnx="ThresholdedRelu"),  # one compare
    # x tanh(softplus x); 4 for t, 4 for s, t + x s (1 - t t): 5, times dy
    "mish": UnaryFunction(5, 14, "input", torch="mish", onnx="Mish"),
    "logit": UnaryFunction(3, 3, "input", torch="logit"),  # log(x / (1 - x)); dy / (x (1 - x))
    "add_number": UnaryFunction(1, 0),
    "multiply_by_number": UnaryFunction(1, 1),
    "subtract_from_number": UnaryFunction(1, 1),
    "remainder": UnaryFunction(1, 0),  # of the division by a number
    "floor": UnaryFunction(1, None, torch="floor ceil round trunc", onnx="Floor Ceil Round"),
    "sign": UnaryFunction(1, None, torch="sign sgn", onnx="Sign"),
    # with a number, or with infinity and NaN
    "compare": UnaryFunction(1, None, writes="mask", torch="isnan isinf", onnx="IsNaN IsInf"),
    "logical_not": UnaryFunction(1, None, writes="mask", torch="logical_not bitwise_not", onnx="Not BitwiseNot"),
    "bernoulli": UnaryFunction(1, None, torch="bernoulli", onnx="Bernoulli"),  # a random number, compared with x
}
"""Function -> counts. Constants in a formula are folded; a comparison, a division and an elementary function are 1 FLOP
each."""


TORCH_NAMES = {f"aten.{name}": function for function, row in FUNCTIONS.items() for name in row.torch.split()}
"""Operators of torch that are one function of their only tensor."""

ONNX_NAMES = {name: function for function, row in FUNCTIONS.items() for name in row.onnx.split()}
"""The same of ONNX."""

WITH_NUMBER: dict[str, str] = {
    **dict.fromkeys(("aten.add", "aten.sub"), "add_number"),
    "aten.rsub": "subtract_from_number",
    **dict.fromkeys(("aten.mul", "aten.div", "aten.true_divide"), "multiply_by_number"),
    **dict.fromkeys(("aten.remainder", "aten.fmod"), "remainder"),
    **dict.fromkeys(("aten.eq", "aten.ne", "aten.lt", "aten.le", "aten.gt", "aten.ge"), "compare"),
    **dict.fromkeys(("aten.floor_divide", "aten.bitwise_and", "aten.bitwise_or", "aten.bitwise_xor"), "floor"),
}
"""Operators of torch with a number for their second operand -> function."""


def _named(function: str, operand: Operand) -> Translation:
    return Translation(layer=Unary(function=function), inputs=(operand,))


def _from_call(call: OperatorCall) -> Translation:
    return _named((TORCH_NAMES | ONNX_NAMES)[call.operator], call.operands[0])


def _with_number(call: OperatorCall) -> Translation | None:
    x, number = call["self"], call["other"]
    if not isinstance(x, Operand) or isinstance(number, Operand):
        return None
    is_rounded = call.operator == "aten.div" and call.get("rounding_mode") is not None
    return _named("floor" if is_rounded else WITH_NUMBER[call.operator], x)


def _power(call: OperatorCall) -> Translation | None:
    base, exponent = call["self"], call["exponent"]
    if not isinstance(base, Operand):
        return _named("power_of_number", exponent)
    if isinstance(exponent, Operand):
        return None
    return _named({2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}.get(exponent, "power"), base)


def _clamp(call: OperatorCall) -> Translation | None:
    """Read a clamp between numbers, which ONNX states as inputs; None for ReLU6 and for limits that are tensors."""
    bottom, top = (call.get(name, call.get(place)) for name, place in (("min", "1"), ("max", "2")))
    if (bottom, top) == (0, RELU6_TOP) or isinstance(bottom, Operand) or isinstance(top, Operand):
        return None
    return _named("clamp" if None not in (bottom, top) else "clamp_one_side", call.operands[0])


def _hard_tanh(call: OperatorCall) -> Translation | None:
    if (call["min_val"], call["max_val"]) == (0, RELU6_TOP):
        return None
    return _named("hard_tanh", call["self"])


@layer_kind
class Unary(Pointwise):
    """A function of each element.

    Parameters
    ----------
    function : str
        A word of ``FUNCTIONS``: ``exp``, ``square``, ``add_number`` ... [-]

    Notes
    -----
    Forward reads x and writes y; backward reads dy and what the gradient's formula needs of x or y, and writes dx; the
    arithmetic of each function is listed in ``FUNCTIONS`` with its formula. Rounding, signs and comparisons have no
    gradient; adding a number passes it on without a copy. A truth value is 1 B, written as a mask.
    """

    kind: ClassVar[str] = "unary"
    symbolic_example: ClassVar[SymbolicExample] = ({"function": "exp"}, (("F",),))
    torch_operators: ClassVar[Operators] = {
        **dict.fromkeys(TORCH_NAMES, _from_call),
        **dict.fromkeys(WITH_NUMBER, _with_number),
        "aten.pow": _power,
        **dict.fromkeys(("aten.clamp", "aten.clamp_min", "aten.clamp_max"), _clamp),
        "aten.hardtanh": _hard_tanh,
    }
    onnx_operators: ClassVar[Operators] = {**dict.fromkeys(ONNX_NAMES, _from_call), "Clip": _clamp}
    checks: ClassVar[Checks] = {"function": one_of(FUNCTIONS)}
    function: str

    @property
    def _of_function(self) -> UnaryFunction:
        return FUNCTIONS[self.function]

    @property
    def flop_per_element(self) -> tuple[int, int]:
        """Arithmetic per element, forward and backward [FLOP]."""
        return self._of_function.forward_flop, self._of_function.backward_flop or 0

    @property
    def pass_name(self) -> str:
        """Name of the passes."""
        return self.function

    @property
    def keeps_inputs(self) -> bool:  # type: ignore[override]  # what is one fact elsewhere follows from the function
        """Whether the gradient reads x."""
        return self._of_function.reads == "input"

    @property
    def keeps_output(self) -> bool:  # type: ignore[override]
        """Whether the gradient reads y."""
        return self._of_function.reads == "output"

    @property
    def makes_mask(self) -> bool:  # type: ignore[override]
        """Whether the result is a truth value."""
        return self._of_function.writes == "mask"

    @property
    def mask_inputs(self) -> tuple[int, ...]:  # type: ignore[override]
        """The operand of a negation."""
        return (0,) if self.function == "logical_not" else ()

    def backward_scratch_bytes(
        self, input_shapes: Shapes, *, batch_size: Any, element_bytes: int, wanted: Sequence[bool]
    ) -> Any:
        """Return the tensors like x between the operators of the formula [B]."""
        of_function = self._of_function
        per_element = of_function.scratch * element_bytes + of_function.scratch_masks * MASK_BYTES
        return per_element * element_count(input_shapes[0], batch_size=batch_size)

    def differentiable(self, input_count: int) -> tuple[bool, ...]:
        """Tell whether the function has a gradient, for each of ``input_count`` inputs [1]."""
        return (self._of_function.backward_flop is not None,) * input_count

    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[Traffic, Traffic | None]:
        """Return a pass that reads x and writes y, and one that reads dy and x or y and writes dx, if there is one."""
        forward, backward = super().traffic(input_shapes, batch_size=batch_size)
        if self._of_function.writes == "mask":
            elements = forward["read"]
            forward = {**forward, "written": 0, "tensor": elements, "written_index_bytes": MASK_BYTES * elements}
        return forward, backward if self._of_function.backward_flop else None
