"""Gaussian error linear unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.checks import check_choice
from perfmodel.layers.pointwise import Pointwise
from perfmodel.layers.translation import OperatorCall, Translation, Translator

FLOP_PER_ELEMENT = {"none": (5, 11), "tanh": (9, 16)}
"""Approximation -> arithmetic per element, forward and backward [FLOP]."""


def _from_call(call: OperatorCall) -> Translation:
    return Translation(layer=GELU(approximation=call.get("approximate", "none")), inputs=call.operands[:1])


@final
@dataclass(frozen=True, kw_only=True)
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
    FLOP. Backward dx = dy ((1 + t) / 2 + x (1 - t^2) (a + 3 a b x^2) / 2), where x^2 is at hand: 6 for t; add,
    multiply; square, subtract; multiply, add; multiply, multiply; add; multiply: 16 FLOP, the half in a and 3 a b.

    Either way backward reads dy and x.

    References
    ----------
    .. [1] Hendrycks, Gimpel, Gaussian error linear units, 2016, arXiv:1606.08415.
    """

    kind: ClassVar[str] = "gelu"
    examples: ClassVar[Examples] = (
        ({}, ((5, 6),)),
        ({"approximation": "tanh"}, ((10,),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("S", "F"),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.gelu": _from_call,
    }
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"Gelu": _from_call}
    approximation: str = "none"

    def __post_init__(self) -> None:
        check_choice("approximation", self.approximation, FLOP_PER_ELEMENT)

    @property
    def flop_per_element(self) -> tuple[int, int]:
        """Arithmetic per element, forward and backward [FLOP]."""
        return FLOP_PER_ELEMENT[self.approximation]
