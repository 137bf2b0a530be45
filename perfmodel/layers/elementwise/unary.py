"""Element-wise functions of one input that are no activation of their own, in a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.checks import check_choice
from perfmodel.layers.passes import MASK_BYTES
from perfmodel.layers.pointwise import Pointwise
from perfmodel.layers.shapes import Shape, element_count
from perfmodel.records import MemoryPass, Operation


@dataclass(frozen=True, slots=True)
class UnaryFunction:
    """What a function of one element takes.

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
    """

    forward_flop: int
    backward_flop: int | None
    reads: Literal["input", "output", ""] = ""
    writes: Literal["elements", "mask"] = "elements"


FUNCTIONS: dict[str, UnaryFunction] = {
    "exp": UnaryFunction(1, 1, "output"),  # dy y
    "exp2": UnaryFunction(1, 2, "output"),  # a number to the power x: dy y log a
    "expm1": UnaryFunction(2, 2, "output"),  # exp, subtract; dy (y + 1)
    "log": UnaryFunction(1, 1, "input"),  # dy / x
    "log2": UnaryFunction(1, 2, "input"),  # dy / (x log a)
    "log1p": UnaryFunction(2, 2, "input"),  # add, log; dy / (x + 1)
    "sqrt": UnaryFunction(1, 2, "output"),  # dy / (2 y)
    "rsqrt": UnaryFunction(2, 4, "output"),  # sqrt, divide; -dy y y y / 2
    "reciprocal": UnaryFunction(1, 3, "output"),  # -dy y y
    "negative": UnaryFunction(1, 1),
    "absolute": UnaryFunction(1, 2, "input"),  # sign of x, times dy
    "square": UnaryFunction(1, 2, "input"),  # 2 x dy
    "power": UnaryFunction(1, 3, "input"),  # to the power of a number: dy e x^(e - 1)
    "sine": UnaryFunction(1, 2, "input"),  # dy cos x
    "cosine": UnaryFunction(1, 3, "input"),  # -dy sin x
    "tangent": UnaryFunction(1, 3, "output"),  # dy (1 + y y)
    "arcsine": UnaryFunction(1, 4, "input"),  # dy / sqrt(1 - x x)
    "arctangent": UnaryFunction(1, 3, "input"),  # dy / (1 + x x)
    "hyperbolic_sine": UnaryFunction(1, 2, "input"),  # dy cosh x
    "erf": UnaryFunction(1, 5, "input"),  # dy c exp(-x x)
    "softplus": UnaryFunction(3, 4, "input"),  # exp, add, log; dy e / (e + 1) with e = exp x
    "log_sigmoid": UnaryFunction(5, 5, "input"),  # -softplus(-x)
    "softsign": UnaryFunction(3, 4, "input"),  # x / (1 + |x|); dy / (1 + |x|)^2
    "elu": UnaryFunction(4, 4, "input"),  # compare, exp, subtract, multiply; compare, exp, multiply, multiply
    "hard_swish": UnaryFunction(5, 5, "input"),  # x clamp(x + 3, 0, 6) / 6; two compares, x / 3 + 1/2, times dy
    "hard_sigmoid": UnaryFunction(4, 3, "input"),  # clamp(x + 3, 0, 6) / 6; two compares, multiply
    "clamp": UnaryFunction(2, 2, "input"),  # two compares
    "clamp_one_side": UnaryFunction(1, 1, "input"),  # one compare
    "mish": UnaryFunction(5, 14, "input"),  # x tanh(softplus x); 4 for t, 4 for s, t + x s (1 - t t): 5, times dy
    "logit": UnaryFunction(3, 3, "input"),  # log(x / (1 - x)); dy / (x (1 - x))
    "add_number": UnaryFunction(1, 0),
    "multiply_by_number": UnaryFunction(1, 1),
    "subtract_from_number": UnaryFunction(1, 1),
    "remainder": UnaryFunction(1, 0),  # of the division by a number
    "floor": UnaryFunction(1, None),
    "sign": UnaryFunction(1, None),
    "compare": UnaryFunction(1, None, writes="mask"),  # with a number, or with infinity and NaN
    "logical_not": UnaryFunction(1, None, writes="mask"),
}
"""Function -> counts. Constants in a formula are folded; a comparison, a division and an elementary function are 1 FLOP
each."""


@final
@dataclass(frozen=True, kw_only=True)
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
    examples: ClassVar[Examples] = (
        ({"function": "exp"}, ((5, 6),)),
        ({"function": "softplus"}, ((4, 9, 9),)),
        ({"function": "add_number"}, ((10,),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"function": "exp"}, (("F",),))
    function: str

    def __post_init__(self) -> None:
        check_choice("function", self.function, FUNCTIONS)

    @property
    def _of_function(self) -> UnaryFunction:
        return FUNCTIONS[self.function]

    @property
    def flop_per_element(self) -> tuple[int, int]:
        """Arithmetic per element, forward and backward [FLOP]."""
        return self._of_function.forward_flop, self._of_function.backward_flop or 0

    @property
    def pass_name(self) -> str:
        """What the passes are called."""
        return self.function

    @property
    def keeps_inputs(self) -> bool:  # type: ignore[override]  # what is one fact elsewhere follows from the function
        """Whether the gradient reads x."""
        return self._of_function.reads == "input"

    @property
    def keeps_output(self) -> bool:  # type: ignore[override]
        """Whether the gradient reads y."""
        return self._of_function.reads == "output"

    def differentiable(self, input_count: int) -> tuple[bool, ...]:
        """Tell whether the function has a gradient, for each of ``input_count`` inputs [1]."""
        return (self._of_function.backward_flop is not None,) * input_count

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads x and writes y."""
        if self._of_function.writes == "elements":
            return super().forward_operations(input_shapes, batch_size=batch_size)
        elements = element_count(input_shapes[0], batch_size=batch_size)
        return (
            MemoryPass(
                name=self.function,
                read_elements=elements,
                written_elements=0,
                tensor_elements=elements,
                flop_count=self._of_function.forward_flop * elements,
                written_index_bytes=MASK_BYTES * elements,
            ),
        )

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that writes dx; nothing where dy is passed on or there is no gradient."""
        if not self._of_function.backward_flop:
            return ()
        return super().backward_operations(input_shapes, batch_size=batch_size)
