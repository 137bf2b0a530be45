"""Element-wise functions of one input: activations with a class of their own, distributions, and a table of others."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from perfmodel.layers.base import Checks, OnePassLayer, Traffic, layer_kind, of_options
from perfmodel.layers.checks import check_axis, check_number, is_open_size, one_of
from perfmodel.layers.passes import MASK_BYTES
from perfmodel.layers.shapes import (
    Shape,
    Shapes,
    axis_in,
    element_count,
    mismatch,
    shape_text,
    with_extent,
    without_axis,
)
from perfmodel.layers.translation import (
    Operand,
    OperatorCall,
    Operators,
    Translation,
    function_names,
    function_table,
    of_first,
)
from perfmodel.numeric import share_of


@dataclass(frozen=True, kw_only=True)
class ElementByElement(OnePassLayer):
    """A pass over elements; each kind gives its arithmetic and what back-propagation reads besides dy."""

    @property
    @abstractmethod
    def flop_per_element(self) -> tuple[int, int]:
        """Arithmetic per element, forward and backward; 0 backward where dy is passed on or there is none [FLOP]."""

    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[Traffic, Traffic | None]:
        """Return a pass that reads x and writes y, and one, if any, that reads dy and whichever of x and y is kept."""
        elements = element_count(input_shapes[0], batch_size=batch_size)
        forward_flop, backward_flop = self.flop_per_element
        forward = {"read": elements, "written": elements, "flop": forward_flop * elements}
        if self.makes_mask:
            forward |= {"written": 0, "tensor": elements, "written_index_bytes": MASK_BYTES * elements}
        reads = 1 + self.keeps_inputs + self.keeps_output
        backward = {"read": reads * elements, "written": elements, "flop": backward_flop * elements}
        return forward, backward if backward_flop else None


class Pointwise(ElementByElement):
    """A function of one element, not a mere copy: a kernel that fuses a gate makes it again."""


@layer_kind("relu")
class ReLU(Pointwise):
    """Rectifier max(x, 0).

    Notes
    -----
    1 FLOP per element forward (a comparison); backward passes dy where y > 0: 1 FLOP, reads dy and y.
    """

    operators: ClassVar[Operators] = dict.fromkeys(("aten.relu", "Relu"), lambda call: of_first(call, ReLU()))
    keeps_inputs: ClassVar[bool] = False
    keeps_output: ClassVar[bool] = True
    flop_per_element: ClassVar[tuple[int, int]] = (1, 1)


RELU6_TOP = 6
"""Upper limit of ReLU6 [1]."""


def _cut_at_six(call: OperatorCall) -> Translation | None:
    bottom, top = ("min_val", "max_val") if call.operator == "aten.hardtanh" else ("min", "max")
    return of_first(call, ReLU6()) if (call.get(bottom), call.get(top)) == (0, RELU6_TOP) else None


@layer_kind("relu6")
class ReLU6(Pointwise):
    """Rectifier min(max(x, 0), 6).

    Notes
    -----
    2 FLOP per element forward (comparisons); backward passes dy where 0 < x < 6: 2 FLOP, reads dy and x.

    References
    ----------
    .. [1] Sandler et al., MobileNetV2, CVPR 2018, arXiv:1801.04381, section 4.
    """

    operators: ClassVar[Operators] = dict.fromkeys(("aten.hardtanh", "aten.clamp", "Clip"), _cut_at_six)
    flop_per_element: ClassVar[tuple[int, int]] = (2, 2)


@layer_kind("leaky_relu")
class LeakyReLU(Pointwise):
    """x where x > 0, else slope x.

    Parameters
    ----------
    slope : float
        Slope on the negative side. [1]

    Notes
    -----
    2 FLOP per element in either direction (compare, multiply); backward reads dy and x.

    References
    ----------
    .. [1] Maas, Hannun, Ng, Rectifier nonlinearities improve neural network acoustic models, ICML 2013.
    """

    operators: ClassVar[Operators] = {
        "aten.leaky_relu": lambda call: of_first(call, LeakyReLU(slope=call["negative_slope"])),
        "LeakyRelu": lambda call: of_first(call, LeakyReLU(slope=call.get("alpha", 0.01))),
    }
    flop_per_element: ClassVar[tuple[int, int]] = (2, 2)
    checks: ClassVar[Checks] = {"slope": check_number}
    slope: float = 0.01


@layer_kind("sigmoid")
class Sigmoid(Pointwise):
    """Logistic function 1 / (1 + exp(-x)).

    Notes
    -----
    4 FLOP per element forward (negate, exp, add, divide); backward dx = dy y (1 - y): 3 FLOP, reads dy and y.
    """

    operators: ClassVar[Operators] = dict.fromkeys(("aten.sigmoid", "Sigmoid"), lambda call: of_first(call, Sigmoid()))
    keeps_inputs: ClassVar[bool] = False
    keeps_output: ClassVar[bool] = True
    flop_per_element: ClassVar[tuple[int, int]] = (4, 3)


@layer_kind("tanh")
class Tanh(Pointwise):
    """Hyperbolic tangent.

    Notes
    -----
    1 FLOP per element forward (one elementary function); backward dx = dy (1 - y y): 3 FLOP, reads dy and y.
    """

    operators: ClassVar[Operators] = dict.fromkeys(("aten.tanh", "Tanh"), lambda call: of_first(call, Tanh()))
    keeps_inputs: ClassVar[bool] = False
    keeps_output: ClassVar[bool] = True
    flop_per_element: ClassVar[tuple[int, int]] = (1, 3)


@layer_kind("silu")
class SiLU(Pointwise):
    """x s(x) with the logistic function s, also called swish.

    Notes
    -----
    5 FLOP per element forward (4 for s, multiply); backward dx = dy s (1 + x (1 - s)): 9 FLOP (4 for s; subtract,
    multiply, add, multiply, multiply), reads dy and x.

    References
    ----------
    .. [1] Elfwing, Uchibe, Doya, Sigmoid-weighted linear units for neural network function approximation, 2017,
       arXiv:1702.03118.
    """

    operators: ClassVar[Operators] = dict.fromkeys(("aten.silu", "Swish"), lambda call: of_first(call, SiLU()))
    flop_per_element: ClassVar[tuple[int, int]] = (5, 9)


GELU_FLOP = {"none": (5, 11), "tanh": (9, 16)}
"""Approximation -> arithmetic per element, forward and backward [FLOP]."""


def _gelu(call: OperatorCall) -> Translation:
    return of_first(call, GELU(approximation=call.get("approximate", "none")))


@layer_kind("gelu")
class GELU(Pointwise):
    """x P(x) with the normal distribution's P(x) = (1 + erf(x / sqrt 2)) / 2, or an approximation of it.

    Parameters
    ----------
    approximation : str
        ``none``, or ``tanh``: x (1 + tanh(a (x + b x^3))) / 2 as in GPT-2. [-]

    Notes
    -----
    Exact, forward: multiply, erf, add, multiply, multiply: 5 FLOP per element. Backward dx = dy (P(x) + x p(x)) with
    the density p: 4 for P, 4 for p (square, multiply, exp, multiply), multiply, add, multiply: 11 FLOP.

    By tanh, forward: 5 for the argument (square, multiply, multiply, add, multiply), tanh, add, multiply, multiply: 9
    FLOP. Backward dx = dy ((1 + t) / 2 + x (1 - t^2) (a + 3 a b x^2) / 2), where x^2 is known: 6 for t; add,
    multiply; square, subtract; multiply, add; multiply, multiply; add; multiply: 16 FLOP, the half in a and 3 a b.

    Either way backward reads dy and x.

    References
    ----------
    .. [1] Hendrycks, Gimpel, Gaussian error linear units, 2016, arXiv:1606.08415.
    """

    operators: ClassVar[Operators] = dict.fromkeys(("aten.gelu", "Gelu"), _gelu)
    checks: ClassVar[Checks] = {"approximation": one_of(GELU_FLOP)}
    flop_per_element: ClassVar[tuple[int, int]] = of_options(lambda layer: GELU_FLOP[layer.approximation])
    approximation: str = "none"


GLU_FORWARD_FLOP = 5
"""Per element of the output, a s with s = 1 / (1 + exp(-b)): the logistic function's 4, and a product [FLOP]."""
GLU_BACKWARD_FLOP = 8
"""Per element of the output: s again, 4; da = dy s; db = da a (1 - s), a subtraction and two products [FLOP]."""


def _along(call: OperatorCall, kind: type[GLU | AlongAxis]) -> Translation | None:
    """Return a layer along an axis of the samples; None for the batch axis."""
    place = call.operands[0].sample_axis(call.get("dim", call.get("axis", -1)))
    return None if place is None else of_first(call, kind(axis=place))


@layer_kind("glu")
class GLU(OnePassLayer):
    """Multiply the first half along an axis by the logistic function of the second.

    Parameters
    ----------
    axis : int
        Axis of a sample, of an even extent; negative counts from the last. [-]

    Notes
    -----
    Forward 5 FLOP per element of the output, reads x once and writes y. Backward 8 FLOP per element of the output,
    reads dy and x and writes dx: the logistic function is computed again, only x is kept.
    """

    operators: ClassVar[Operators] = {"aten.glu": lambda call: _along(call, GLU)}
    checks: ClassVar[Checks] = {"axis": check_axis}
    axis: int = -1

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the input's shape with the axis half as long."""
        shape = input_shapes[0]
        place = axis_in(shape, self.axis)
        if not is_open_size(shape[place]) and shape[place] % 2:
            mismatch(f"takes two halves along axis {self.axis}, but its input is {shape_text(shape)}")
        return with_extent(shape, place, share_of(shape[place], 2))

    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[Traffic, Traffic]:
        """Return a pass that reads x and writes y, and one that reads dy and x and writes dx."""
        inputs = element_count(input_shapes[0], batch_size=batch_size)
        outputs = element_count(self.output_shape(input_shapes), batch_size=batch_size)
        return (
            {"read": inputs, "written": outputs, "flop": GLU_FORWARD_FLOP * outputs},
            {"read": inputs + outputs, "written": inputs, "flop": GLU_BACKWARD_FLOP * outputs},
        )


@dataclass(frozen=True, kw_only=True)
class AlongAxis(Pointwise):
    """A distribution along one axis, whose back-propagation reads the output.

    Parameters
    ----------
    axis : int
        Axis of a sample; negative counts from the last. [-]
    """

    keeps_inputs: ClassVar[bool] = False
    keeps_output: ClassVar[bool] = True
    checks: ClassVar[Checks] = {"axis": check_axis}
    axis: int = -1

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the input's shape."""
        axis_in(input_shapes[0], self.axis)
        return input_shapes[0]


SOFTMAX_FORWARD_FLOP = 5
"""Per element: compare for the maximum, subtract it, exp, add to the sum, divide by it [FLOP]."""
FORWARD_READS = 2
"""Of rows too long to stay on chip: one read for maximum and sum, one to normalise [1]."""
SOFTMAX_BACKWARD_FLOP = 4
"""Per element of dx = y (dy - sum(dy y)): multiply, add, subtract, multiply [FLOP]."""


@layer_kind("softmax")
class Softmax(AlongAxis):
    """Softmax along one axis: exp(x - max x) / sum exp(x - max x).

    Parameters
    ----------
    axis : int
        Axis of a sample; negative counts from the last. [-]

    Notes
    -----
    Forward 5 FLOP per element, one read and one write; backward 4 FLOP, two reads and one write: a row stays on chip.
    Ignores: rows of more than some ten thousand elements, which are read again.
    """

    operators: ClassVar[Operators] = dict.fromkeys(
        ("aten._softmax", "aten._safe_softmax", "Softmax"), lambda call: _along(call, Softmax)
    )
    flop_per_element: ClassVar[tuple[int, int]] = (SOFTMAX_FORWARD_FLOP, SOFTMAX_BACKWARD_FLOP)


@layer_kind("log_softmax")
class LogSoftmax(AlongAxis):
    """Logarithm of softmax along one axis: x - max x - log sum exp(x - max x).

    Parameters
    ----------
    axis : int
        Axis of a sample; negative counts from the last. [-]

    Notes
    -----
    Forward 5 FLOP per element (compare, subtract, exp, add; subtract) and a logarithm per row, two reads and one write.
    Backward dx = dy - exp(y) sum(dy): 4 FLOP per element (add, exp, multiply, subtract), dy is read twice and y once.
    Ignores: rows short enough to stay in a cache between two reads.
    """

    operators: ClassVar[Operators] = dict.fromkeys(
        ("aten._log_softmax", "LogSoftmax"), lambda call: _along(call, LogSoftmax)
    )
    flop_per_element: ClassVar[tuple[int, int]] = (5, 4)

    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[Traffic, Traffic]:
        """Return a pass that reads x twice and writes y, and one that reads y once and dy twice and writes dx."""
        elements = element_count(input_shapes[0], batch_size=batch_size)
        rows = element_count(without_axis(input_shapes[0], self.axis), batch_size=batch_size)
        forward_flop, backward_flop = self.flop_per_element
        return (
            {"read": 2 * elements, "written": elements, "flop": forward_flop * elements + rows},
            {"read": 3 * elements, "written": elements, "flop": backward_flop * elements},
        )


@dataclass(frozen=True, slots=True)
class UnaryFunction:
    """Cost of a function of one element.

    Parameters
    ----------
    flop : int
        Arithmetic per element. [FLOP]
    backward_flop : int or None
        Arithmetic per element of its gradient; 0 where dy is passed on, None where there is no gradient. [FLOP]
    reads : str
        What the gradient reads besides dy: ``input``, ``output`` or nothing. [-]
    writes : str
        ``elements``, or ``mask`` where the result is a truth value. [-]
    scratch, scratch_masks : int
        Tensors like x, and masks of 1 B an element, that torch makes between dy and dx. [1]
    """

    flop: int
    backward_flop: int | None = None
    reads: Literal["input", "output", ""] = ""
    writes: Literal["elements", "mask"] = "elements"
    scratch: int = 0
    scratch_masks: int = 0


FUNCTIONS = {name: UnaryFunction(**row) for name, row in function_table("unary").items()}
"""Function -> counts."""

TORCH_NAMES = function_names("unary", "torch")
"""Operators of torch that are one function of their only tensor."""

ONNX_NAMES = function_names("unary", "onnx")
"""The same of ONNX."""

WITH_NUMBER = function_names("unary", "torch_with_number")
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


@layer_kind("unary")
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

    operators: ClassVar[Operators] = {
        **dict.fromkeys((*TORCH_NAMES, *ONNX_NAMES), _from_call),
        **dict.fromkeys(WITH_NUMBER, _with_number),
        "aten.pow": _power,
        **dict.fromkeys(("aten.clamp", "aten.clamp_min", "aten.clamp_max", "Clip"), _clamp),
        "aten.hardtanh": _hard_tanh,
    }
    checks: ClassVar[Checks] = {"function": one_of(FUNCTIONS)}
    flop_per_element: ClassVar[tuple[int, int]] = of_options(
        lambda layer: (layer._of_function.flop, layer._of_function.backward_flop or 0)
    )
    pass_name: ClassVar[str] = of_options(lambda layer: layer.function)
    keeps_inputs: ClassVar[bool] = of_options(lambda layer: layer._of_function.reads == "input")
    keeps_output: ClassVar[bool] = of_options(lambda layer: layer._of_function.reads == "output")
    makes_mask: ClassVar[bool] = of_options(lambda layer: layer._of_function.writes == "mask")
    mask_inputs: ClassVar[tuple[int, ...]] = of_options(lambda layer: (0,) if layer.function == "logical_not" else ())
    function: str

    @property
    def _of_function(self) -> UnaryFunction:
        return FUNCTIONS[self.function]

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
