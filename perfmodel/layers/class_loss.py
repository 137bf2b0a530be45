"""Losses and metrics of scores by class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from perfmodel.layers.activation import FORWARD_READS, SOFTMAX_FORWARD_FLOP
from perfmodel.layers.base import (
    Checks,
    Examples,
    Layer,
    OnePassLayer,
    Operations,
    SymbolicExample,
    Traffic,
    layer_kind,
)
from perfmodel.layers.checks import check_axis, one_of, refuse
from perfmodel.layers.passes import INDEX_BYTES, elementwise, one_pass
from perfmodel.layers.shapes import SEQUENCE, Shape, Shapes, check_rank, mismatch, shape_text, without_axis
from perfmodel.layers.translation import Operand, OperatorCall, Operators, Translation
from perfmodel.records import Contraction, Role

COUNTS_PER_ROW = {"probabilities": 2, "log_probabilities": 1}
"""Form of the scores -> per row the arithmetic forward (log, negate), and the arithmetic and reads backward: -dy / p
reads dy and p, of logarithms -dy reads dy [1]."""


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


@layer_kind
class CrossEntropy(OnePassLayer):
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
    torch_operators: ClassVar[Operators] = {
        "aten.cross_entropy_loss": _from_torch,
        "aten.nll_loss_forward": _from_torch,
        "aten.nll_loss2d_forward": _from_torch,
    }
    onnx_operators: ClassVar[Operators] = {
        "SoftmaxCrossEntropyLoss": _from_onnx,
        "NegativeLogLikelihoodLoss": _from_onnx,
    }
    input_counts: ClassVar[tuple[int, int | None]] = (1, 2)
    index_inputs: ClassVar[tuple[int, ...]] = (1,)
    is_loss: ClassVar[bool] = True
    checks: ClassVar[Checks] = {"over": one_of(("logits", *COUNTS_PER_ROW)), "axis": check_axis}
    over: str = "logits"
    axis: int = -1

    @property
    def keeps_inputs(self) -> bool:  # type: ignore[override]  # what is one fact elsewhere follows from an option
        """Whether the gradient reads the scores; over logits it reads their probabilities."""
        return self.over == "probabilities"

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the scores' shape without the axis of the classes."""
        rows = without_axis(input_shapes[0], self.axis)
        if input_shapes[1:] and tuple(input_shapes[1]) != tuple(rows):
            mismatch(f"takes a label for each of {shape_text(rows)} rows, but they are {shape_text(input_shapes[1])}")
        return rows

    def label_bytes(self, input_shapes: Shapes) -> int:
        """Return one index per row, if the labels are not an input [B/sample]."""
        return 0 if input_shapes[1:] else INDEX_BYTES * math.prod(without_axis(input_shapes[0], self.axis))

    def backward_scratch_bytes(
        self, input_shapes: Shapes, *, batch_size: Any, element_bytes: int, wanted: Sequence[bool]
    ) -> Any:
        """Return the gradient of the log-probabilities, from which the logits' gradient is computed [B]."""
        return self.saved_bytes(input_shapes, batch_size=batch_size, element_bytes=element_bytes)

    def saved_bytes(self, input_shapes: Shapes, *, batch_size: Any, element_bytes: int) -> Any:
        """Return the probabilities, if this layer computes them [B]."""
        kept = math.prod(input_shapes[0]) if self.over == "logits" else 0
        return element_bytes * batch_size * kept

    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[Traffic, Traffic]:
        """Return a pass that writes a loss per row, and one that writes dx."""
        shape = input_shapes[0]
        elements, rows = batch_size * math.prod(shape), batch_size * math.prod(without_axis(shape, self.axis))
        labels = {"read_index_bytes": INDEX_BYTES * rows}
        if self.over == "logits":
            forward = {"read": FORWARD_READS * elements, "written": elements + rows, "tensor": elements}
            forward["flop"] = SOFTMAX_FORWARD_FLOP * elements + 2 * rows
            count = elements + rows
        else:  # only the label's element of each row is touched
            count = COUNTS_PER_ROW[self.over] * rows
            forward = {"read": rows, "written": rows, "flop": count}
        return {**forward, **labels}, {"read": count, "written": elements, "flop": count, **labels}


@layer_kind
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
        super().__post_init__()
        if self.vocabulary % self.classes:
            refuse("classes", self.classes, f"must divide vocabulary={self.vocabulary}")

    @property
    def words_per_class(self) -> int:
        """Words in each class [1]."""
        return self.vocabulary // self.classes

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the input's shape without its last axis."""
        check_rank(input_shapes[0], ("features",), SEQUENCE)
        return input_shapes[0][:-1]

    def parameter_shapes(self, input_shapes: Shapes) -> dict[str, Shape]:
        """Return the matrices onto classes and onto words."""
        features = input_shapes[0][-1]
        return {"class_weight": (features, self.classes), "word_weight": (features, self.vocabulary)}

    def label_bytes(self, input_shapes: Shapes) -> int:
        """Return one word index per row; its class follows from it [B/sample]."""
        return INDEX_BYTES * math.prod(input_shapes[0][:-1])

    def saved_bytes(self, input_shapes: Shapes, *, batch_size: Any, element_bytes: int) -> Any:
        """Return the probabilities of both levels [B]."""
        rows = batch_size * math.prod(input_shapes[0][:-1])
        return element_bytes * rows * (self.classes + self.words_per_class)

    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return the product onto classes, those onto words, and the softmax with its loss."""
        *leading, features = input_shapes[0]
        rows = batch_size * math.prod(leading)
        elements = rows * (self.classes + self.words_per_class)
        return (
            Contraction(m=rows, n=self.classes, k=features),
            Contraction(m=1, n=self.words_per_class, k=features, count=rows),
            one_pass(
                "class_softmax",
                read=FORWARD_READS * elements,
                written=elements + rows,
                tensor=elements,
                flop=SOFTMAX_FORWARD_FLOP * elements + 4 * rows,
                read_index_bytes=INDEX_BYTES * rows,
                parts=rows,
            ),
        )

    def backward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return the gradient of the logits, then of input (two products and their sum) and weights."""
        *leading, features = input_shapes[0]
        rows = batch_size * math.prod(leading)
        words = self.words_per_class
        elements = rows * (self.classes + words)
        logits_gradient = one_pass(
            "class_softmax",
            read=elements + rows,
            written=elements,
            flop=elements + 2 * rows,
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


SCANS = {"index": 1, "one_hot": 2}
"""Form of the labels -> rows that are searched for their largest element: the scores', and a one-hot label's [1]."""


@layer_kind
class Accuracy(Layer):
    """Compare the class of the largest score with the label, row by row of the last axis.

    Parameters
    ----------
    labels : str
        ``index``: one class index per row; ``one_hot``: a row as long as the scores', which is searched too. [-]

    Notes
    -----
    n elements in r rows: n comparisons and n elements read, for the scores and once more for one-hot labels; an
    index of 4 B written for each row searched. Nothing flows back. Ignores: the comparison of the two indices of each
    row and the mean over the rows, a few bytes each.
    """

    kind: ClassVar[str] = "accuracy"
    examples: ClassVar[Examples] = (
        ({}, ((10,),)),
        ({"labels": "one_hot"}, ((5, 6),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("C",),))
    index_inputs: ClassVar[tuple[int, ...]] = (0,)
    is_metric: ClassVar[bool] = True
    checks: ClassVar[Checks] = {"labels": one_of(SCANS)}
    labels: str = "index"

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the input's shape without its last axis."""
        check_rank(input_shapes[0], ("classes",), SEQUENCE)
        return input_shapes[0][:-1]

    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return one search per row of scores, and of one-hot labels."""
        *rows_of_sample, classes = input_shapes[0]
        rows = batch_size * math.prod(rows_of_sample)
        search = one_pass(
            "argmax",
            read=rows * classes,
            written=0,
            tensor=rows * classes,
            flop=rows * classes,
            written_index_bytes=INDEX_BYTES * rows,
            row_elements=classes,
        )
        return (search,) * SCANS[self.labels]

    def backward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return nothing: a metric has no gradient."""
        return ()
