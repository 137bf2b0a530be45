"""Losses that compare tensors of one shape, element by element."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from perfmodel.layers.base import Checks, Examples, LayerByInput, Operations, SymbolicExample, layer_kind
from perfmodel.layers.checks import one_of
from perfmodel.layers.passes import one_pass, only_pass
from perfmodel.layers.shapes import Shape, Shapes, check_equal, element_count
from perfmodel.layers.translation import OperatorCall, Operators, Translation
from perfmodel.records import Role

LABEL_BYTES = 4
"""Size of one element of a target that comes with the samples [B]."""


NO_REDUCTION = 0
"""torch's code for a loss that stays one number per element [-]."""


def _compared(call: OperatorCall, layer: PairedLoss | KLDivergence) -> Translation | None:
    """Return a loss of two tensors of one shape; None if it stays one number per element."""
    prediction, target = call["self"], call["target"]
    is_plain = call.get("weight") is None and call.get("pos_weight") is None and not call.get("log_target", False)
    if call["reduction"] == NO_REDUCTION or not is_plain or tuple(prediction.shape) != tuple(target.shape):
        return None
    return Translation(layer=layer, inputs=(prediction, target))


@dataclass(frozen=True, kw_only=True)
class PairedLoss(LayerByInput):
    """A loss that adds up one term for each element of a prediction and its target; one loss per sample.

    The target is a second input or, if there is only one input, a label of the same shape that comes with each
    sample.

    Notes
    -----
    Forward reads both and writes a loss per sample: the terms, an add per element, and a division per sample for the
    mean. Backward, for each wanted gradient, reads both and dy and writes it, with a multiplication per sample for the
    mean. The target's gradient is the prediction's with the other sign unless the kind says otherwise. Ignores: the
    mean over the mini-batch, one number per sample.
    """

    input_counts: ClassVar[tuple[int, int | None]] = (1, 2)
    is_loss: ClassVar[bool] = True

    @property
    @abstractmethod
    def flop_per_element(self) -> tuple[int, int, int]:
        """Arithmetic per element of a term, of the gradient to the prediction, and to the target [FLOP]."""

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the shape of one number."""
        check_equal(input_shapes, verb="compares")
        return ()

    def label_bytes(self, input_shapes: Shapes) -> int:
        """Return the target if it is not an input [B/sample]."""
        return 0 if input_shapes[1:] else LABEL_BYTES * math.prod(input_shapes[0])

    def _counts(self, input_shapes: Shapes, batch_size: Any) -> tuple[Any, Any]:
        """Return elements of the prediction, and those read as numbers: of both."""
        elements = batch_size * math.prod(input_shapes[0])
        return elements, sum(element_count(shape, batch_size=batch_size) for shape in input_shapes)

    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return one pass that reads prediction and target and writes a loss per sample."""
        elements, read = self._counts(input_shapes, batch_size)
        return only_pass(
            self.kind,
            read=read,
            written=batch_size,
            tensor=elements,
            flop=(self.flop_per_element[0] + 1) * elements + batch_size,
            read_index_bytes=batch_size * self.label_bytes(input_shapes),
        )

    def gradient_operations(self, input_shapes: Shapes, *, batch_size: Any, wanted: Sequence[bool]) -> Operations:
        """Return one pass for each wanted gradient."""
        elements, read = self._counts(input_shapes, batch_size)
        return tuple(
            one_pass(
                self.kind,
                read=read + batch_size,
                written=elements,
                flop=flop * elements + batch_size,
                read_index_bytes=batch_size * self.label_bytes(input_shapes),
                role=Role.INPUT_GRADIENT,
            )
            for flop, is_wanted in zip(self.flop_per_element[1:], wanted, strict=False)
            if is_wanted
        )


@layer_kind
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
    torch_operators: ClassVar[Operators] = {"aten.mse_loss": lambda call: _compared(call, MeanSquaredError())}
    flop_per_element: ClassVar[tuple[int, int, int]] = (2, 2, 2)


@layer_kind
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
    torch_operators: ClassVar[Operators] = {"aten.l1_loss": lambda call: _compared(call, MeanAbsoluteError())}
    flop_per_element: ClassVar[tuple[int, int, int]] = (2, 3, 3)


@layer_kind
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
    torch_operators: ClassVar[Operators] = dict.fromkeys(
        ("aten.huber_loss", "aten.smooth_l1_loss"), lambda call: _compared(call, Huber())
    )
    flop_per_element: ClassVar[tuple[int, int, int]] = (5, 4, 4)


FLOP_PER_ELEMENT = {"logits": (9, 6, 2), "probabilities": (8, 5, 5)}
"""What the prediction is -> arithmetic per element of a term, and of the gradients to prediction and target [FLOP]."""


@layer_kind
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
    torch_operators: ClassVar[Operators] = {
        "aten.binary_cross_entropy": lambda call: _compared(call, BinaryCrossEntropy(over="probabilities")),
        "aten.binary_cross_entropy_with_logits": lambda call: _compared(call, BinaryCrossEntropy(over="logits")),
    }
    checks: ClassVar[Checks] = {"over": one_of(FLOP_PER_ELEMENT)}
    over: str = "logits"

    @property
    def flop_per_element(self) -> tuple[int, int, int]:
        """Arithmetic per element of a term, of the gradient to the prediction, and to the target [FLOP]."""
        return FLOP_PER_ELEMENT[self.over]


@dataclass(frozen=True, slots=True)
class _Divergence:
    """Arithmetic per element forward; per element of each input's gradient; tensors that each gradient reads."""

    flop: int
    gradient_flop: tuple[int, int]
    gradient_reads: tuple[int, int]


_DIVERGENCES = {
    "standard_normal": _Divergence(6, (1, 3), (1, 1)),
    "distribution": _Divergence(4, (2, 4), (1, 2)),
}


@layer_kind
class KLDivergence(LayerByInput):
    """Divergence of one distribution from another; one loss per sample.

    Parameters
    ----------
    against : str
        ``standard_normal``: of a normal distribution given by its mean and the logarithm of its variance, the two
        inputs, from the standard normal one; ``distribution``: of the second input, probabilities, from the first,
        logarithms of probabilities. [-]

    Notes
    -----
    Against the standard normal distribution [1]_: -(1 + v - m^2 - exp v) / 2 summed: exp, square, add, subtract,
    subtract, add: 6 FLOP per element, and a product per sample; backward dm = dy m: 1 FLOP, dv = dy (exp v - 1) / 2: 3.
    Against a distribution: p (log p - x) summed: log, subtract, multiply, add: 4 FLOP per element, and a product per
    sample; backward dx = -dy p: 2 FLOP, dp = dy (log p + 1 - x): 4. Each gradient is a pass of its own that reads the
    inputs its formula needs. Ignores: the mean over the mini-batch, one number per sample.

    References
    ----------
    .. [1] Kingma, Welling, Auto-encoding variational Bayes, ICLR 2014, arXiv:1312.6114, appendix B.
    """

    kind: ClassVar[str] = "kl_divergence"
    examples: ClassVar[Examples] = (
        ({}, ((10,), (10,))),
        ({"against": "distribution"}, ((5, 6), (5, 6))),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("F",), ("F",)))
    torch_operators: ClassVar[Operators] = {
        "aten.kl_div": lambda call: _compared(call, KLDivergence(against="distribution"))
    }
    input_counts: ClassVar[tuple[int, int | None]] = (2, 2)
    is_loss: ClassVar[bool] = True
    checks: ClassVar[Checks] = {"against": one_of(_DIVERGENCES)}
    against: str = "standard_normal"

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the shape of one number."""
        check_equal(input_shapes)
        return ()

    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return one pass that reads both inputs and writes a loss per sample."""
        elements = batch_size * math.prod(input_shapes[0])
        return only_pass(
            "kl_divergence",
            read=2 * elements,
            written=batch_size,
            tensor=elements,
            flop=_DIVERGENCES[self.against].flop * elements + batch_size,
        )

    def gradient_operations(self, input_shapes: Shapes, *, batch_size: Any, wanted: Sequence[bool]) -> Operations:
        """Return one pass for each wanted gradient."""
        elements = batch_size * math.prod(input_shapes[0])
        of_kind = _DIVERGENCES[self.against]
        return tuple(
            one_pass(
                "kl_divergence",
                read=reads * elements + batch_size,
                written=elements,
                flop=flop * elements + batch_size,
                role=Role.INPUT_GRADIENT,
            )
            for flop, reads, is_wanted in zip(of_kind.gradient_flop, of_kind.gradient_reads, wanted, strict=True)
            if is_wanted
        )
