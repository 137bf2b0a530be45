"""Class-based softmax: output layer and loss in two levels, a word's class and the word in its class."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.activation.softmax import FORWARD_FLOP, FORWARD_READS
from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_count, refuse
from perfmodel.layers.passes import INDEX_BYTES, elementwise
from perfmodel.layers.shapes import SEQUENCE, Shape, check_rank
from perfmodel.records import Contraction, MemoryPass, Operation, Role


@final
@dataclass(frozen=True, kw_only=True)
class ClassSoftmax(Layer):
    """Loss -log p(class) - log p(word | class) of each row, from hidden features; weights without bias.

    Parameters
    ----------
    vocabulary : int
        Words. [1]
    classes : int
        Classes of equal size that the words are sorted into. [1]

    Notes
    -----
    With r rows of h features, C classes and v = vocabulary / C words in each: one product (r, h) x (h, C) for
    the classes, and r products (1, h) x (h, v), each with its own class's slice of the word matrix. The
    softmax over n = r (C + v) elements costs 5 n FLOP, two reads and one write, the loss of a row two logs,
    an add and a negate. Backward, one pass makes the gradient of both logits (n multiplies, 2 r
    subtractions); it is needed for the weights in any case, so it has their role.

    References
    ----------
    .. [1] Goodman, Classes for fast maximum entropy training, ICASSP 2001.
    """

    kind: ClassVar[str] = "class_softmax"
    examples: ClassVar[Examples] = (
        ({"vocabulary": 12, "classes": 3}, ((5, 6),)),
        ({"vocabulary": 4, "classes": 4}, ((10,),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"vocabulary": 10000, "classes": 50}, (("S", "F"),))
    is_loss: ClassVar[bool] = True
    vocabulary: int
    classes: int

    def __post_init__(self) -> None:
        check_count("vocabulary", self.vocabulary)
        check_count("classes", self.classes)
        if self.vocabulary % self.classes:
            refuse("classes", self.classes, f"must divide vocabulary={self.vocabulary}")

    @property
    def words_per_class(self) -> int:
        """Words in each class [1]."""
        return self.vocabulary // self.classes

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the input's shape without its last axis."""
        check_rank(input_shapes[0], ("features",), SEQUENCE)
        return input_shapes[0][:-1]

    def parameter_shapes(self, input_shapes: tuple[Shape, ...]) -> dict[str, Shape]:
        """Return the matrices onto classes and onto words."""
        features = input_shapes[0][-1]
        return {"class_weight": (features, self.classes), "word_weight": (features, self.vocabulary)}

    def label_bytes(self, input_shapes: tuple[Shape, ...]) -> int:
        """Return one word index per row; its class follows from it [B/sample]."""
        return INDEX_BYTES * math.prod(input_shapes[0][:-1])

    def saved_bytes(self, input_shapes: tuple[Shape, ...], *, batch_size: Any, element_bytes: int) -> Any:
        """Return the probabilities of both levels [B]."""
        rows = batch_size * math.prod(input_shapes[0][:-1])
        return element_bytes * rows * (self.classes + self.words_per_class)

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return the product onto classes, those onto words, and the softmax with its loss."""
        *leading, features = input_shapes[0]
        rows = batch_size * math.prod(leading)
        elements = rows * (self.classes + self.words_per_class)
        return (
            Contraction(m=rows, n=self.classes, k=features),
            Contraction(m=1, n=self.words_per_class, k=features, count=rows),
            MemoryPass(
                name="class_softmax",
                read_elements=FORWARD_READS * elements,
                written_elements=elements + rows,
                tensor_elements=elements,
                flop_count=FORWARD_FLOP * elements + 4 * rows,
                read_index_bytes=INDEX_BYTES * rows,
                parts=rows,
            ),
        )

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return the gradient of the logits, then of input (two products and their sum) and weights."""
        *leading, features = input_shapes[0]
        rows = batch_size * math.prod(leading)
        words = self.words_per_class
        elements = rows * (self.classes + words)
        logits_gradient = MemoryPass(
            name="class_softmax",
            read_elements=elements + rows,
            written_elements=elements,
            tensor_elements=elements,
            flop_count=elements + 2 * rows,
            read_index_bytes=INDEX_BYTES * rows,
            parts=rows,
            role=Role.WEIGHT_GRADIENT,
        )
        return (
            logits_gradient,
            Contraction(m=rows, n=features, k=self.classes, role=Role.INPUT_GRADIENT),
            Contraction(m=1, n=features, k=words, count=rows, role=Role.INPUT_GRADIENT),
            elementwise("gradient_sum", rows * features, reads=2, flop_per_element=1, role=Role.INPUT_GRADIENT),
            Contraction(m=features, n=self.classes, k=rows, role=Role.WEIGHT_GRADIENT),
            Contraction(m=features, n=words, k=1, count=rows, role=Role.WEIGHT_GRADIENT),
        )
