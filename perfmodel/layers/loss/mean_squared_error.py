"""Mean squared difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.loss.paired import PairedLoss, compared
from perfmodel.layers.translation import OperatorCall, Translation, Translator


def _from_torch(call: OperatorCall) -> Translation | None:
    return compared(call, MeanSquaredError())


@final
@dataclass(frozen=True, kw_only=True)
class MeanSquaredError(PairedLoss):
    """Mean of (prediction - target)^2 over a sample; one loss per sample.

    The target is a second input, or a label of the same shape.

    Notes
    -----
    Forward per element: subtract, square, add: 3 FLOP, and a division per sample. Backward 2 / n dy (a - b): subtract,
    multiply: 2 FLOP per element and a multiplication per sample, the same with the other sign to the target.
    """

    kind: ClassVar[str] = "mean_squared_error"
    examples: ClassVar[Examples] = (
        ({}, ((10,),)),
        ({}, ((4, 9, 9), (4, 9, 9))),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("F",), ("F",)))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.mse_loss": _from_torch,
    }
    flop_per_element: ClassVar[tuple[int, int, int]] = (2, 2, 2)
