"""Huber's loss, also called smooth L1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.loss.paired import PairedLoss, compared
from perfmodel.layers.translation import OperatorCall, Translation, Translator


def _from_torch(call: OperatorCall) -> Translation | None:
    return compared(call, Huber())


@final
@dataclass(frozen=True, kw_only=True)
class Huber(PairedLoss):
    """Mean of d^2 / 2 where |d| = |prediction - target| is small, linear in |d| elsewhere; one loss per sample.

    The target is a second input, or a label of the same shape.

    Notes
    -----
    Forward per element: subtract, absolute value, compare; square and halve, or subtract and multiply; add: 6 FLOP, and
    a division per sample. Backward dy / n times the difference, clipped on both sides: subtract, two comparisons,
    multiply: 4 FLOP per element and a multiplication per sample, the same with the other sign to the target.

    References
    ----------
    .. [1] Huber, Robust estimation of a location parameter, Annals of Mathematical Statistics 35 (1964).
    """

    kind: ClassVar[str] = "huber"
    examples: ClassVar[Examples] = (({}, ((4,), (4,))),)
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("F",), ("F",)))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.huber_loss": _from_torch,
        "aten.smooth_l1_loss": _from_torch,
    }
    flop_per_element: ClassVar[tuple[int, int, int]] = (5, 4, 4)
