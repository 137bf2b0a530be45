"""Embedding look-up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_count
from perfmodel.layers.shapes import Shape, check_rank
from perfmodel.records import Gather, Operation, Role


@final
@dataclass(frozen=True, kw_only=True)
class Embedding(Layer):
    """Row of a table for each index of a sequence.

    Parameters
    ----------
    vocabulary : int
        Rows of the table. [1]
    features : int
        Elements per row. [1]

    Notes
    -----
    The gradient is dense, as frameworks without sparse updates keep it: the table's is cleared, then rows
    added.
    """

    kind: ClassVar[str] = "embedding"
    examples: ClassVar[Examples] = (({"vocabulary": 20, "features": 4}, ((5,),)),)
    symbolic_example: ClassVar[SymbolicExample] = ({"vocabulary": "V", "features": "F"}, (("S",),))
    inputs_serve_weights: ClassVar[bool] = True
    index_inputs: ClassVar[tuple[int, ...]] = (0,)
    vocabulary: int
    features: int

    def __post_init__(self) -> None:
        check_count("vocabulary", self.vocabulary)
        check_count("features", self.features)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return (steps, features), or (features,) for one index per sample."""
        check_rank(input_shapes[0], (), ("steps",))
        return (*input_shapes[0], self.features)

    def parameter_shapes(self, input_shapes: tuple[Shape, ...]) -> dict[str, Shape]:
        """Return the table."""
        del input_shapes
        return {"weight": (self.vocabulary, self.features)}

    def _gather(self, input_shapes: tuple[Shape, ...], *, batch_size: Any, role: Role) -> Gather:
        rows = batch_size * math.prod(input_shapes[0])
        return Gather(rows=rows, width=self.features, table_rows=self.vocabulary, role=role)

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return the look-up."""
        return (self._gather(input_shapes, batch_size=batch_size, role=Role.OUTPUT),)

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return the addition of rows into the table's gradient; an index has none."""
        return (self._gather(input_shapes, batch_size=batch_size, role=Role.WEIGHT_GRADIENT),)
