"""Mean absolute difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.loss.paired import PairedLoss, compared
from perfmodel.layers.translation import OperatorCall, Translation, Translator


def _from_torch(call: OperatorCall) -> Translation | None:
    return compared(call, MeanAbsoluteError())


@final
@dataclass(frozen=True, kw_only=True)
class MeanAbsoluteError(PairedLoss):
    """Mean of |prediction - target| over a sample; one loss per sample.

    The target is a second input, or a label of the same shape.

    Notes
    -----
    Forward per element: subtract, absolute value, add: 3 FLOP, and a division per sample. Backward dy / n times the
    sign of a - b: subtract, compare, multiply: 3 FLOP per element and a multiplication per sample, the same with the
    other sign to the target.
    """

    kind: ClassVar[str] = "mean_absolute_error"
    examples: ClassVar[Examples] = (({}, ((5, 6), (5, 6))),)
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("F",), ("F",)))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.l1_loss": _from_torch,
    }
    flop_per_element: ClassVar[tuple[int, int, int]] = (2, 3, 3)
