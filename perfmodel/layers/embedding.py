"""Look-ups in a table, and position embeddings."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from perfmodel.layers.base import Layer, OnePassLayer, Operations, SymbolicExample, Traffic, layer_kind
from perfmodel.layers.checks import is_open_size
from perfmodel.layers.shapes import SEQUENCE, Shape, Shapes, check_rank, mismatch, shape_text
from perfmodel.layers.translation import OperatorCall, Operators, Translation
from perfmodel.records import Gather, Role

TABLE_AXES = 2


def _look_up(call: OperatorCall) -> Translation | None:
    table, indices = call.operands[:2]
    if call.get("axis", 0) or not table.is_parameter or table.is_transposed or len(table.shape) != TABLE_AXES:
        return None
    layer = Embedding(vocabulary=table.shape[0], features=table.shape[1])
    return Translation(layer=layer, inputs=(indices,), parameters={"weight": table})


@layer_kind
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
    symbolic_example: ClassVar[SymbolicExample] = ({"vocabulary": "V", "features": "F"}, (("S",),))
    inputs_serve_weights: ClassVar[bool] = True
    index_inputs: ClassVar[tuple[int, ...]] = (0,)
    torch_operators: ClassVar[Operators] = {"aten.embedding": _look_up}
    onnx_operators: ClassVar[Operators] = {"Gather": _look_up}
    vocabulary: int
    features: int

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the shape of the indices with an axis of features behind."""
        return (*input_shapes[0], self.features)

    def parameter_shapes(self, input_shapes: Shapes) -> dict[str, Shape]:
        """Return the table."""
        return {"weight": (self.vocabulary, self.features)}

    def _gather(self, input_shapes: Shapes, *, batch_size: Any, role: Role) -> Gather:
        rows = batch_size * math.prod(input_shapes[0])
        return Gather(rows=rows, width=self.features, table_rows=self.vocabulary, role=role)

    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return the look-up."""
        return (self._gather(input_shapes, batch_size=batch_size, role=Role.OUTPUT),)

    def backward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return the addition of rows into the table's gradient; an index has none."""
        return (self._gather(input_shapes, batch_size=batch_size, role=Role.WEIGHT_GRADIENT),)


@layer_kind
class PositionalEmbedding(OnePassLayer):
    """y = x + table[:steps]: a learned row is added to each position of (steps, features).

    Parameters
    ----------
    positions : int
        Rows of the table: the greatest number of steps. [1]

    Notes
    -----
    Forward one add per element, which reads x and the rows in use and writes y. Backward x's gradient is the output's
    own, passed on without a copy; the table's adds it up over the samples (1 FLOP an element) and is dense, so that
    all its rows are written.

    References
    ----------
    .. [1] Radford et al., Improving language understanding by generative pre-training, 2018, section 3.1.
    """

    kind: ClassVar[str] = "positional_embedding"
    symbolic_example: ClassVar[SymbolicExample] = ({"positions": "P"}, (("S", "F"),))
    keeps_inputs: ClassVar[bool] = False
    gradient_role: ClassVar[Role] = Role.WEIGHT_GRADIENT
    positions: int

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the input's shape."""
        check_rank(input_shapes[0], SEQUENCE)
        steps = input_shapes[0][0]
        if not is_open_size(steps) and not is_open_size(self.positions) and steps > self.positions:
            mismatch(f"has {self.positions} positions, but its input {shape_text(input_shapes[0])} has {steps} steps")
        return input_shapes[0]

    def parameter_shapes(self, input_shapes: Shapes) -> dict[str, Shape]:
        """Return the table."""
        return {"weight": (self.positions, input_shapes[0][-1])}

    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[Traffic, Traffic]:
        """Return a pass that adds the rows in use, and one that adds up the table's gradient."""
        rows_in_use = math.prod(input_shapes[0])
        elements, table_elements = batch_size * rows_in_use, self.positions * input_shapes[0][-1]
        return (
            {"read": elements + rows_in_use, "written": elements, "flop": elements},
            {"read": elements, "written": table_elements, "tensor": elements, "flop": elements},
        )


HEADS = ("heads", *SEQUENCE)
FLOP_PER_ELEMENT = 3
"""A pair (a, b) becomes (a cos - b sin, a sin + b cos): 4 products and 2 additions for two elements [FLOP]."""


def _from_onnx_rotary_embedding(call: OperatorCall) -> Translation | None:
    x = call["0"]
    if call.get("rotary_embedding_dim", 0) or x.axes != (None, 0, 1, 2):
        return None
    return Translation(layer=RotaryEmbedding(), inputs=(x,))


@layer_kind
class RotaryEmbedding(OnePassLayer):
    """Pairs of features turned by an angle that grows with the position; x is ([heads,] steps, features).

    Notes
    -----
    Forward and backward 6 FLOP per pair, one pass each, which reads x (or dy) and the tables of cosines and sines,
    one pair per step and pair of features, and writes as much as x. Neither x nor y is kept. Ignores: the memory of
    the tables, which are a network's, not a layer's.

    References
    ----------
    .. [1] Su et al., RoFormer, arXiv:2104.09864, equation 34.
    """

    kind: ClassVar[str] = "rotary_embedding"
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("H", "S", "D"),))
    keeps_inputs: ClassVar[bool] = False
    onnx_operators: ClassVar[Operators] = {"RotaryEmbedding": _from_onnx_rotary_embedding}

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the input's shape."""
        check_rank(input_shapes[0], SEQUENCE, HEADS)
        features = input_shapes[0][-1]
        if not is_open_size(features) and features % 2:
            mismatch(f"turns pairs of features, but its input {shape_text(input_shapes[0])} has {features}")
        return input_shapes[0]

    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[Traffic, Traffic]:
        """Return a pass that turns x, and one that turns dy back."""
        elements = batch_size * math.prod(input_shapes[0])
        tables = math.prod(input_shapes[0][-2:])  # a cosine and a sine for every two features
        turn = {"read": elements + tables, "written": elements, "flop": FLOP_PER_ELEMENT * elements}
        return turn, turn
