"""Cross-entropy loss against one class index per row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.activation.softmax import FORWARD_FLOP, FORWARD_READS
from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_choice
from perfmodel.layers.passes import INDEX_BYTES
from perfmodel.layers.shapes import SEQUENCE, Shape, check_rank
from perfmodel.records import MemoryPass, Operation, Role


@final
@dataclass(frozen=True, kw_only=True)
class CrossEntropy(Layer):
    """Loss -log p[label] for each row of the last axis; one loss per sample, or per sample and step.

    Parameters
    ----------
    over : str
        ``logits``: softmax and loss in one pass, which keeps the probabilities for back-propagation;
        ``probabilities``: the input is already a distribution (a softmax layer before it). [-]

    Notes
    -----
    n elements in r rows. Over logits, forward: a softmax (5 n FLOP, two reads and one write), and per row log
    and negate; backward dx = (p - onehot) dy: n multiplies, r subtractions, reads p and dy, writes dx. Over
    probabilities, forward: one element per row, log and negate; backward: dx is zero but for -dy / p[label],
    so n elements are written and 2 r FLOP done. Either way a label index of 4 B is read per row.
    """

    kind: ClassVar[str] = "cross_entropy"
    examples: ClassVar[Examples] = (
        ({}, ((10,),)),
        ({"over": "probabilities"}, ((5, 6),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("C",),))
    is_loss: ClassVar[bool] = True
    over: str = "logits"

    def __post_init__(self) -> None:
        check_choice("over", self.over, _FORWARD)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the input's shape without its last axis."""
        check_rank(input_shapes[0], ("classes",), SEQUENCE)
        return input_shapes[0][:-1]

    def label_bytes(self, input_shapes: tuple[Shape, ...]) -> int:
        """Return one index per row [B/sample]."""
        return INDEX_BYTES * math.prod(input_shapes[0][:-1])

    def saved_bytes(self, input_shapes: tuple[Shape, ...], *, batch_size: Any, element_bytes: int) -> Any:
        """Return the probabilities, where this layer computes them [B]."""
        kept = math.prod(input_shapes[0]) if self.over == "logits" else 0
        return element_bytes * batch_size * kept

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that writes a loss per row."""
        elements = batch_size * math.prod(input_shapes[0])
        return (_FORWARD[self.over](elements, batch_size * math.prod(input_shapes[0][:-1])),)

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that writes dx."""
        elements = batch_size * math.prod(input_shapes[0])
        return (_BACKWARD[self.over](elements, batch_size * math.prod(input_shapes[0][:-1])),)


def _forward_over_logits(elements: Any, rows: Any) -> MemoryPass:
    return MemoryPass(
        name="cross_entropy",
        read_elements=FORWARD_READS * elements,
        written_elements=elements + rows,
        tensor_elements=elements,
        flop_count=FORWARD_FLOP * elements + 2 * rows,
        read_index_bytes=INDEX_BYTES * rows,
    )


def _forward_over_probabilities(elements: Any, rows: Any) -> MemoryPass:
    del elements  # only the label's element of each row is touched
    return MemoryPass(
        name="cross_entropy",
        read_elements=rows,
        written_elements=rows,
        tensor_elements=rows,
        flop_count=2 * rows,
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


def _backward_over_probabilities(elements: Any, rows: Any) -> MemoryPass:
    return MemoryPass(
        name="cross_entropy",
        read_elements=2 * rows,
        written_elements=elements,
        tensor_elements=elements,
        flop_count=2 * rows,
        read_index_bytes=INDEX_BYTES * rows,
        role=Role.INPUT_GRADIENT,
    )


_FORWARD = {"logits": _forward_over_logits, "probabilities": _forward_over_probabilities}
_BACKWARD = {"logits": _backward_over_logits, "probabilities": _backward_over_probabilities}
