"""Kullback-Leibler divergence, from the standard normal distribution or from a given distribution."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_choice
from perfmodel.layers.loss.paired import NO_REDUCTION
from perfmodel.layers.shapes import Shape, ShapeMismatchError, shape_text
from perfmodel.layers.translation import OperatorCall, Translation, Translator
from perfmodel.records import MemoryPass, Operation, Role


def _from_torch(call: OperatorCall) -> Translation | None:
    prediction, target = call["self"], call["target"]
    fits = tuple(prediction.shape) == tuple(target.shape) and call["reduction"] != NO_REDUCTION
    if not fits or call.get("log_target", False):
        return None
    return Translation(layer=KLDivergence(against="distribution"), inputs=(prediction, target))


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


@final
@dataclass(frozen=True, kw_only=True)
class KLDivergence(Layer):
    """How far one distribution is from another; one loss per sample.

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
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.kl_div": _from_torch,
    }
    input_counts: ClassVar[tuple[int, int | None]] = (2, 2)
    is_loss: ClassVar[bool] = True
    against: str = "standard_normal"

    def __post_init__(self) -> None:
        check_choice("against", self.against, _DIVERGENCES)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the shape of one number."""
        if tuple(input_shapes[0]) != tuple(input_shapes[1]):
            problem = f"takes two inputs of one shape, but they are {' and '.join(map(shape_text, input_shapes))}"
            raise ShapeMismatchError(problem)
        return ()

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads both inputs and writes a loss per sample."""
        elements = batch_size * math.prod(input_shapes[0])
        return (
            MemoryPass(
                name="kl_divergence",
                read_elements=2 * elements,
                written_elements=batch_size,
                tensor_elements=elements,
                flop_count=_DIVERGENCES[self.against].flop * elements + batch_size,
            ),
        )

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass for each gradient."""
        return self.gradient_operations(input_shapes, batch_size=batch_size, wanted=(True, True))

    def gradient_operations(
        self, input_shapes: tuple[Shape, ...], *, batch_size: Any, wanted: Sequence[bool]
    ) -> tuple[Operation, ...]:
        """Return one pass for each wanted gradient."""
        elements = batch_size * math.prod(input_shapes[0])
        of_kind = _DIVERGENCES[self.against]
        return tuple(
            MemoryPass(
                name="kl_divergence",
                read_elements=reads * elements + batch_size,
                written_elements=elements,
                tensor_elements=elements,
                flop_count=flop * elements + batch_size,
                role=Role.INPUT_GRADIENT,
            )
            for flop, reads, is_wanted in zip(of_kind.gradient_flop, of_kind.gradient_reads, wanted, strict=True)
            if is_wanted
        )
