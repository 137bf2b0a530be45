"""Running totals and products along an axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.checks import check_choice
from perfmodel.layers.pointwise import Pointwise
from perfmodel.layers.shapes import Shape, element_count
from perfmodel.layers.translation import OperatorCall, Translation, Translator

FLOP_PER_ELEMENT = {"sum": (1, 1), "product": (1, 3)}
"""Function -> arithmetic per element, forward and backward [FLOP]."""


def _total(call: OperatorCall) -> Translation:
    return Translation(layer=Cumulative(function="sum"), inputs=call.operands[:1])


def _product(call: OperatorCall) -> Translation:
    return Translation(layer=Cumulative(function="product"), inputs=call.operands[:1])


@final
@dataclass(frozen=True, kw_only=True)
class Cumulative(Pointwise):
    """Sum or product of all elements of a row up to each of them.

    Parameters
    ----------
    function : str
        ``sum`` or ``product``. [-]

    Notes
    -----
    1 FLOP per element forward. Backward, the sum adds dy from the end: 1 FLOP; the product adds dy y from the end and
    divides by x: 3 FLOP, reads dy, x and y.
    """

    kind: ClassVar[str] = "cumulative"
    examples: ClassVar[Examples] = (
        ({}, ((5, 6),)),
        ({"function": "product"}, ((10,),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("S",),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {"aten.cumsum": _total, "aten.cumprod": _product}
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"CumSum": _total}
    function: str = "sum"

    def __post_init__(self) -> None:
        check_choice("function", self.function, FLOP_PER_ELEMENT)

    @property
    def flop_per_element(self) -> tuple[int, int]:
        """Arithmetic per element, forward and backward [FLOP]."""
        return FLOP_PER_ELEMENT[self.function]

    def backward_scratch_bytes(
        self, input_shapes: tuple[Shape, ...], *, batch_size: Any, element_bytes: int, wanted: Sequence[bool]
    ) -> Any:
        """Return dy turned round and its totals, before these are turned round again [B]."""
        del wanted
        return 2 * element_bytes * element_count(input_shapes[0], batch_size=batch_size)

    @property
    def keeps_inputs(self) -> bool:  # type: ignore[override]  # what is one fact elsewhere follows from the function
        """Whether the gradient reads x."""
        return self.function == "product"

    @property
    def keeps_output(self) -> bool:  # type: ignore[override]
        """Whether the gradient reads y."""
        return self.function == "product"
