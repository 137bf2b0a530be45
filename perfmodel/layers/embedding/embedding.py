"""Embedding look-up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_count
from perfmodel.layers.shapes import Shape
from perfmodel.layers.translation import Operand, OperatorCall, Translation, Translator
from perfmodel.records import Gather, Operation, Role

TABLE_AXES = 2


def _look_up(table: Operand, indices: Operand) -> Translation | None:
    if not table.is_parameter or table.is_transposed or len(table.shape) != TABLE_AXES:
        return None
    layer = Embedding(vocabulary=table.shape[0], features=table.shape[1])
    return Translation(layer=layer, inputs=(indices,), parameters={"weight": table})


def _from_torch(call: OperatorCall) -> Translation | None:
    return _look_up(call["weight"], call["indices"])


def _from_onnx(call: OperatorCall) -> Translation | None:
    return None if call.get("axis", 0) else _look_up(call["0"], call["1"])


@final
@dataclass(frozen=True, kw_only=True)
class Embedding(Layer):
    """Row of a table for each index of a sample.

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
    examples: ClassVar[Examples] = (
        ({"vocabulary": 20, "features": 4}, ((5,),)),
        ({"vocabulary": 20, "features": 4}, ((5, 3),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"vocabulary": "V", "features": "F"}, (("S",),))
    inputs_serve_weights: ClassVar[bool] = True
    index_inputs: ClassVar[tuple[int, ...]] = (0,)
    torch_operators: ClassVar[Mapping[str, Translator]] = {"aten.embedding": _from_torch}
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"Gather": _from_onnx}
    vocabulary: int
    features: int

    def __post_init__(self) -> None:
        check_count("vocabulary", self.vocabulary)
        check_count("features", self.features)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the shape of the indices with an axis of features behind."""
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
