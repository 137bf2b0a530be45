"""Rotary embedding of positions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import is_open_size
from perfmodel.layers.shapes import SEQUENCE, Shape, ShapeMismatchError, check_rank, shape_text
from perfmodel.layers.translation import OperatorCall, Translation, Translator
from perfmodel.records import MemoryPass, Operation, Role

HEADS = ("heads", *SEQUENCE)
FLOP_PER_ELEMENT = 3
"""A pair (a, b) becomes (a cos - b sin, a sin + b cos): 4 products and 2 additions for two elements [FLOP]."""


def _from_onnx(call: OperatorCall) -> Translation | None:
    x = call["0"]
    if call.get("rotary_embedding_dim", 0) or x.axes != (None, 0, 1, 2):
        return None
    return Translation(layer=RotaryEmbedding(), inputs=(x,))


@final
@dataclass(frozen=True, kw_only=True)
class RotaryEmbedding(Layer):
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
    examples: ClassVar[Examples] = (
        ({}, ((4, 9, 8),)),
        ({}, ((9, 8),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("H", "S", "D"),))
    keeps_inputs: ClassVar[bool] = False
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"RotaryEmbedding": _from_onnx}

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the input's shape."""
        check_rank(input_shapes[0], SEQUENCE, HEADS)
        features = input_shapes[0][-1]
        if not is_open_size(features) and features % 2:
            problem = f"turns pairs of features, but its input {shape_text(input_shapes[0])} has {features}"
            raise ShapeMismatchError(problem)
        return input_shapes[0]

    def _rotation(self, input_shapes: tuple[Shape, ...], *, batch_size: Any, role: Role) -> tuple[Operation, ...]:
        elements = batch_size * math.prod(input_shapes[0])
        tables = math.prod(input_shapes[0][-2:])  # a cosine and a sine for every two features
        return (
            MemoryPass(
                name="rotary_embedding",
                read_elements=elements + tables,
                written_elements=elements,
                tensor_elements=elements,
                flop_count=FLOP_PER_ELEMENT * elements,
                role=role,
            ),
        )

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that turns x."""
        return self._rotation(input_shapes, batch_size=batch_size, role=Role.OUTPUT)

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that turns dy back."""
        return self._rotation(input_shapes, batch_size=batch_size, role=Role.INPUT_GRADIENT)
