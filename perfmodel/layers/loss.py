"""Losses of pairs of tensors, element by element, and losses and metrics of scores by class."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from perfmodel.layers.activation import FORWARD_READS, SOFTMAX_FORWARD_FLOP
from perfmodel.layers.base import Checks, Layer, LayerByInput, OnePassLayer, Operations, Traffic, layer_kind, of_options
from perfmodel.layers.checks import check_axis, one_of, refuse
from perfmodel.layers.passes import INDEX_BYTES, elementwise, one_pass, only_pass
from perfmodel.layers.shapes import (
    SEQUENCE,
    Shape,
    Shapes,
    check_equal,
    check_rank,
    element_count,
    mismatch,
    shape_text,
    without_axis,
)
from perfmodel.layers.translation import OperatorCall, Operators, Translation
from perfmodel.records import Contraction, Role

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
        """Return elements of the prediction, and of prediction and target together."""
        elements = batch_size * math.prod(input_shapes[0])
        return elements, sum(element_count(shape, batch_size=batch_size) for shape in input_shapes)

    def _gradient_reads(self, elements: Any, read: Any) -> Sequence[Any]:
        """Return elements that each gradient reads besides dy, from the counts."""
        del elements
        return read, read

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
                read=of_gradient + batch_size,
                written=elements,
                flop=flop * elements + batch_size,
                read_index_bytes=batch_size * self.label_bytes(input_shapes),
                role=Role.INPUT_GRADIENT,
            )
            for flop, of_gradient, is_wanted in zip(
                self.flop_per_element[1:], self._gradient_reads(elements, read), wanted, strict=False
            )
            if is_wanted
        )


@layer_kind("mean_squared_error")
class MeanSquaredError(PairedLoss):
    """Mean of (prediction - target)^2 over a sample; one loss per sample.

    The target is a second input, or a label of the same shape.

    Notes
    -----
    Forward per element: subtract, square, add: 3 FLOP, and a division per sample. Backward 2 / n dy (a - b): subtract,
    multiply: 2 FLOP per element and a multiplication per sample, the same with the other sign to the target.
    """

    operators: ClassVar[Operators] = {"aten.mse_loss": lambda call: _compared(call, MeanSquaredError())}
    flop_per_element: ClassVar[tuple[int, int, int]] = (2, 2, 2)


@layer_kind("mean_absolute_error")
class MeanAbsoluteError(PairedLoss):
    """Mean of |prediction - target| over a sample; one loss per sample.

    The target is a second input, or a label of the same shape.

    Notes
    -----
    Forward per element: subtract, absolute value, add: 3 FLOP, and a division per sample. Backward dy / n times the
    sign of a - b: subtract, compare, multiply: 3 FLOP per element and a multiplication per sample, the same with the
    other sign to the target.
    """

    operators: ClassVar[Operators] = {"aten.l1_loss": lambda call: _compared(call, MeanAbsoluteError())}
    flop_per_element: ClassVar[tuple[int, int, int]] = (2, 3, 3)


@layer_kind("huber")
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

    operators: ClassVar[Operators] = dict.fromkeys(
        ("aten.huber_loss", "aten.smooth_l1_loss"), lambda call: _compared(call, Huber())
    )
    flop_per_element: ClassVar[tuple[int, int, int]] = (5, 4, 4)


FLOP_PER_ELEMENT = {"logits": (9, 6, 2), "probabilities": (8, 5, 5)}
"""Kind of prediction -> arithmetic per element of a term, and of the gradients to prediction and target [FLOP]."""


@layer_kind("binary_cross_entropy")
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

    operators: ClassVar[Operators] = {
        "aten.binary_cross_entropy": lambda call: _compared(call, BinaryCrossEntropy(over="probabilities")),
        "aten.binary_cross_entropy_with_logits": lambda call: _compared(call, BinaryCrossEntropy(over="logits")),
    }
    checks: ClassVar[Checks] = {"over": one_of(FLOP_PER_ELEMENT)}
    flop_per_element: ClassVar[tuple[int, int, int]] = of_options(lambda layer: FLOP_PER_ELEMENT[layer.over])
    over: str = "logits"


DIVERGENCES = {"standard_normal": ((5, 1, 3), (1, 1)), "distribution": ((3, 2, 4), (1, 2))}
"""Second distribution -> arithmetic per element of a term and of each gradient [FLOP], inputs each gradient reads."""


@layer_kind("kl_divergence")
class KLDivergence(PairedLoss):
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

    operators: ClassVar[Operators] = {"aten.kl_div": lambda call: _compared(call, KLDivergence(against="distribution"))}
    input_counts: ClassVar[tuple[int, int | None]] = (2, 2)
    checks: ClassVar[Checks] = {"against": one_of(DIVERGENCES)}
    flop_per_element: ClassVar[tuple[int, int, int]] = of_options(lambda layer: DIVERGENCES[layer.against][0])
    against: str = "standard_normal"

    def _counts(self, input_shapes: Shapes, batch_size: Any) -> tuple[Any, Any]:
        elements = batch_size * math.prod(input_shapes[0])
        return elements, 2 * elements

    def _gradient_reads(self, elements: Any, read: Any) -> Sequence[Any]:
        return [count * elements for count in DIVERGENCES[self.against][1]]


COUNTS_PER_ROW = {"probabilities": 2, "log_probabilities": 1}
"""Form of the scores -> per row the arithmetic forward (log, negate), and the arithmetic and reads backward: -dy / p
reads dy and p, of logarithms -dy reads dy [1]."""


OVER_LOGITS = ("aten.cross_entropy_loss", "SoftmaxCrossEntropyLoss")
"""Operators of torch and ONNX that apply softmax themselves."""


def _against_labels(call: OperatorCall) -> Translation | None:
    scores, labels = call.operands[:2]
    axis = scores.sample_axis(1) if len(scores.axes) > 1 else None
    if axis is None or not labels.is_index or call.get("label_smoothing", 0.0):
        return None
    over = "logits" if call.operator in OVER_LOGITS else "log_probabilities"
    return Translation(layer=CrossEntropy(over=over, axis=axis), inputs=(scores, labels))


@layer_kind("cross_entropy")
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
    parts : int
        Devices of a group that share the classes; the input is one's own scores. [1]

    Notes
    -----
    n elements in r rows. Over logits, forward: a softmax (5 n FLOP, two reads and one write), and per row log and
    negate; backward dx = (p - onehot) dy: n multiplies, r subtractions, reads p and dy, writes dx. Over
    probabilities, forward: one element per row, log and negate; backward: dx is zero but for -dy / p[label], so n
    elements are written and 2 r FLOP done. Over their logarithms the same with a FLOP per row, a negate. In any case
    a label index of 4 B is read per row. Ignores: the mean over rows and mini-batch, one number per row.
    """

    operators: ClassVar[Operators] = dict.fromkeys(
        (*OVER_LOGITS, "aten.nll_loss_forward", "aten.nll_loss2d_forward", "NegativeLogLikelihoodLoss"), _against_labels
    )
    input_counts: ClassVar[tuple[int, int | None]] = (1, 2)
    index_inputs: ClassVar[tuple[int, ...]] = (1,)
    is_loss: ClassVar[bool] = True
    checks: ClassVar[Checks] = {"over": one_of(("logits", *COUNTS_PER_ROW)), "axis": check_axis}
    # over logits the gradient reads their probabilities
    keeps_inputs: ClassVar[bool] = of_options(lambda layer: layer.over == "probabilities")
    over: str = "logits"
    axis: int = -1
    parts: int = 1

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


@layer_kind("class_softmax")
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


@layer_kind("accuracy")
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
