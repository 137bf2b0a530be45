"""Cross-entropy of two classes, element by element."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.checks import check_choice
from perfmodel.layers.loss.paired import PairedLoss, compared
from perfmodel.layers.translation import OperatorCall, Translation, Translator

FLOP_PER_ELEMENT = {"logits": (9, 6, 2), "probabilities": (8, 5, 5)}
"""What the prediction is -> arithmetic per element of a term, and of the gradients to prediction and target [FLOP]."""


def _over_probabilities(call: OperatorCall) -> Translation | None:
    return compared(call, BinaryCrossEntropy(over="probabilities"))


def _over_logits(call: OperatorCall) -> Translation | None:
    return compared(call, BinaryCrossEntropy(over="logits"))


@final
@dataclass(frozen=True, kw_only=True)
class BinaryCrossEntropy(PairedLoss):
    """Mean of -(t log p + (1 - t) log(1 - p)) over a sample, with the target t; one loss per sample.

    The target is a second input, or a label of the same shape.

    Parameters
    ----------
    over : str
        ``logits``: the prediction is x with p = 1 / (1 + exp(-x)); ``probabilities``: it is p. [-]

    Notes
    -----
    Over logits, a term is max(x, 0) - x t + log(1 + exp(-|x|)): compare, multiply, subtract, absolute value, negate,
    exp, add, log, add: 9 FLOP; the gradient dy (p - t) takes 4 for p, subtract, multiply: 6, and to the target -dy x:
    2. Over probabilities, a term takes two logarithms, two subtractions, two products, an add and a negate: 8; the
    gradient dy (p - t) / (p (1 - p)): 5, and to the target dy (log(1 - p) - log p): two logarithms, two subtractions,
    multiply: 5. Besides, an add per element and a division per sample forward, a multiplication per sample backward.
    """

    kind: ClassVar[str] = "binary_cross_entropy"
    examples: ClassVar[Examples] = (
        ({}, ((10,),)),
        ({"over": "probabilities"}, ((5, 6), (5, 6))),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("F",), ("F",)))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.binary_cross_entropy": _over_probabilities,
        "aten.binary_cross_entropy_with_logits": _over_logits,
    }
    over: str = "logits"

    def __post_init__(self) -> None:
        check_choice("over", self.over, FLOP_PER_ELEMENT)

    @property
    def flop_per_element(self) -> tuple[int, int, int]:
        """Arithmetic per element of a term, of the gradient to the prediction, and to the target [FLOP]."""
        return FLOP_PER_ELEMENT[self.over]
