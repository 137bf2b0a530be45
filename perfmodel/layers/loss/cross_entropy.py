"""Cross-entropy loss against one class index per row, whatever form the scores have."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, final

from perfmodel.layers.activation.softmax import FORWARD_FLOP, FORWARD_READS
from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_axis, check_choice
from perfmodel.layers.passes import INDEX_BYTES
from perfmodel.layers.shapes import Shape, ShapeMismatchError, shape_text, without_axis
from perfmodel.layers.translation import Operand, OperatorCall, Translation, Translator
from perfmodel.records import MemoryPass, Operation, Role


def _against(scores: Operand, labels: Operand, *, over: str) -> Translation | None:
    axis = scores.sample_axis(1) if len(scores.axes) > 1 else None
    if axis is None or not labels.is_index:
        return None
    return Translation(layer=CrossEntropy(over=over, axis=axis), inputs=(scores, labels))


def _from_torch(call: OperatorCall) -> Translation | None:
    if call.get("label_smoothing", 0.0):
        return None
    over = "logits" if call.operator == "aten.cross_entropy_loss" else "log_probabilities"
    return _against(call["self"], call["target"], over=over)


def _from_onnx(call: OperatorCall) -> Translation | None:
    over = "logits" if call.operator == "SoftmaxCrossEntropyLoss" else "log_probabilities"
    return _against(call["0"], call["1"], over=over)


@final
@dataclass(frozen=True, kw_only=True)
class CrossEntropy(Layer):
    """Loss -log p[label] for each row of scores; one loss per sample, or per sample and step or pixel.

    The labels come with the samples, or are a second input.

    Parameters
    ----------
    over : str
        ``logits``: softmax and loss in one pass, which keeps the probabilities for back-propagation;
        ``probabilities``: the input is already a distribution (a softmax layer before it);
        ``log_probabilities``: it is the logarithm of one. [-]
    axis : int
        Axis of the classes in a sample; negative counts from the last. [-]

    Notes
    -----
    n elements in r rows. Over logits, forward: a softmax (5 n FLOP, two reads and one write), and per row log and
    negate; backward dx = (p - onehot) dy: n multiplies, r subtractions, reads p and dy, writes dx. Over
    probabilities, forward: one element per row, log and negate; backward: dx is zero but for -dy / p[label], so n
    elements are written and 2 r FLOP done. Over their logarithms the same with a FLOP per row, a negate. In any case
    a label index of 4 B is read per row. Ignores: the mean over rows and mini-batch, one number per row.
    """

    kind: ClassVar[str] = "cross_entropy"
    examples: ClassVar[Examples] = (
        ({}, ((10,),)),
        ({"over": "probabilities"}, ((5, 6),)),
        ({"over": "log_probabilities", "axis": 0}, ((4, 9, 9), (9, 9))),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("C",),))
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        "aten.cross_entropy_loss": _from_torch,
        "aten.nll_loss_forward": _from_torch,
        "aten.nll_loss2d_forward": _from_torch,
    }
    onnx_operators: ClassVar[Mapping[str, Translator]] = {
        "SoftmaxCrossEntropyLoss": _from_onnx,
        "NegativeLogLikelihoodLoss": _from_onnx,
    }
    input_counts: ClassVar[tuple[int, int | None]] = (1, 2)
    index_inputs: ClassVar[tuple[int, ...]] = (1,)
    is_loss: ClassVar[bool] = True
    over: str = "logits"
    axis: int = -1

    def __post_init__(self) -> None:
        check_choice("over", self.over, _FORWARD)
        check_axis("axis", self.axis)

    @property
    def keeps_inputs(self) -> bool:  # type: ignore[override]  # what is one fact elsewhere follows from an option
        """Whether the gradient reads the scores; over logits it reads the probabilities made of them."""
        return self.over == "probabilities"

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the scores' shape without the axis of the classes."""
        rows = without_axis(input_shapes[0], self.axis)
        if input_shapes[1:] and tuple(input_shapes[1]) != tuple(rows):
            problem = f"takes a label for each of {shape_text(rows)} rows, but they are {shape_text(input_shapes[1])}"
            raise ShapeMismatchError(problem)
        return rows

    def label_bytes(self, input_shapes: tuple[Shape, ...]) -> int:
        """Return one index per row, where the labels are no input [B/sample]."""
        return 0 if input_shapes[1:] else INDEX_BYTES * math.prod(without_axis(input_shapes[0], self.axis))

    def backward_scratch_bytes(
        self, input_shapes: tuple[Shape, ...], *, batch_size: Any, element_bytes: int, wanted: Sequence[bool]
    ) -> Any:
        """Return the gradient of the log-probabilities, from which that of the logits is made [B]."""
        del wanted
        return self.saved_bytes(input_shapes, batch_size=batch_size, element_bytes=element_bytes)

    def saved_bytes(self, input_shapes: tuple[Shape, ...], *, batch_size: Any, element_bytes: int) -> Any:
        """Return the probabilities, where this layer computes them [B]."""
        kept = math.prod(input_shapes[0]) if self.over == "logits" else 0
        return element_bytes * batch_size * kept

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that writes a loss per row."""
        return (_FORWARD[self.over](*self._counts(input_shapes, batch_size)),)

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that writes dx."""
        return (_BACKWARD[self.over](*self._counts(input_shapes, batch_size)),)

    def _counts(self, input_shapes: tuple[Shape, ...], batch_size: Any) -> tuple[Any, Any]:
        """Return elements and rows of the scores."""
        shape = input_shapes[0]
        return batch_size * math.prod(shape), batch_size * math.prod(without_axis(shape, self.axis))


def _forward_over_logits(elements: Any, rows: Any) -> MemoryPass:
    return MemoryPass(
        name="cross_entropy",
        read_elements=FORWARD_READS * elements,
        written_elements=elements + rows,
        tensor_elements=elements,
        flop_count=FORWARD_FLOP * elements + 2 * rows,
        read_index_bytes=INDEX_BYTES * rows,
    )


def _forward_at_labels(elements: Any, rows: Any, *, flop_per_row: int) -> MemoryPass:
    del elements  # only the label's element of each row is touched
    return MemoryPass(
        name="cross_entropy",
        read_elements=rows,
        written_elements=rows,
        tensor_elements=rows,
        flop_count=flop_per_row * rows,
        read_index_bytes=INDEX_BYTES * rows,
    )


def _backward_over_logits(elements: Any, rows: Any) -> MemoryPass:
    return MemoryPass(
        name="cross_entropy",
        read_elements=elements + rows,
        written_elements=elements,
        tensor_elements=elements,
        flop_count=elements + rows,
        read_index_bytes=INDEX_BYTES * rows,
        role=Role.INPUT_GRADIENT,
    )


def _backward_at_labels(elements: Any, rows: Any, *, reads_per_row: int, flop_per_row: int) -> MemoryPass:
    return MemoryPass(
        name="cross_entropy",
        read_elements=reads_per_row * rows,
        written_elements=elements,
        tensor_elements=elements,
        flop_count=flop_per_row * rows,
        read_index_bytes=INDEX_BYTES * rows,
        role=Role.INPUT_GRADIENT,
    )


_FORWARD: dict[str, Callable[[Any, Any], MemoryPass]] = {
    "logits": _forward_over_logits,
    "probabilities": partial(_forward_at_labels, flop_per_row=2),  # log, negate
    "log_probabilities": partial(_forward_at_labels, flop_per_row=1),  # negate
}
_BACKWARD: dict[str, Callable[[Any, Any], MemoryPass]] = {
    "logits": _backward_over_logits,
    "probabilities": partial(_backward_at_labels, reads_per_row=2, flop_per_row=2),  # -dy / p reads dy and p
    "log_probabilities": partial(_backward_at_labels, reads_per_row=1, flop_per_row=1),  # -dy
}
