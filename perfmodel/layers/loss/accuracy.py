"""Accuracy: how often the largest score is the right class. A metric beside the loss, without a gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_choice
from perfmodel.layers.passes import INDEX_BYTES
from perfmodel.layers.shapes import SEQUENCE, Shape, check_rank
from perfmodel.records import MemoryPass, Operation

SCANS = {"index": 1, "one_hot": 2}
"""Form of the labels -> rows that are searched for their largest element: the scores', and a one-hot label's [1]."""


@final
@dataclass(frozen=True, kw_only=True)
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
    labels: str = "index"

    def __post_init__(self) -> None:
        check_choice("labels", self.labels, SCANS)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the input's shape without its last axis."""
        check_rank(input_shapes[0], ("classes",), SEQUENCE)
        return input_shapes[0][:-1]

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one search per row of scores, and of one-hot labels."""
        *rows_of_sample, classes = input_shapes[0]
        rows = batch_size * math.prod(rows_of_sample)
        search = MemoryPass(
            name="argmax",
            read_elements=rows * classes,
            written_elements=0,
            tensor_elements=rows * classes,
            flop_count=rows * classes,
            written_index_bytes=INDEX_BYTES * rows,
            row_elements=classes,
        )
        return (search,) * SCANS[self.labels]

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return nothing: a metric has no gradient."""
        del input_shapes, batch_size
        return ()
