"""Learned embedding of positions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_count, is_open_size
from perfmodel.layers.shapes import SEQUENCE, Shape, ShapeMismatchError, check_rank, shape_text
from perfmodel.records import MemoryPass, Operation, Role

PASS = "positional_embedding"


@final
@dataclass(frozen=True, kw_only=True)
class PositionalEmbedding(Layer):
    """y = x + table[:steps]: a learned row is added to each position of (steps, features).

    Parameters
    ----------
    positions : int
        Rows of the table: the most steps there can be. [1]

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
    examples: ClassVar[Examples] = (({"positions": 9}, ((5, 6),)),)
    symbolic_example: ClassVar[SymbolicExample] = ({"positions": "P"}, (("S", "F"),))
    keeps_inputs: ClassVar[bool] = False
    positions: int

    def __post_init__(self) -> None:
        check_count("positions", self.positions)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the input's shape."""
        check_rank(input_shapes[0], SEQUENCE)
        steps = input_shapes[0][0]
        if not is_open_size(steps) and not is_open_size(self.positions) and steps > self.positions:
            problem = f"has {self.positions} positions, but its input {shape_text(input_shapes[0])} has {steps} steps"
            raise ShapeMismatchError(problem)
        return input_shapes[0]

    def parameter_shapes(self, input_shapes: tuple[Shape, ...]) -> dict[str, Shape]:
        """Return the table."""
        return {"weight": (self.positions, input_shapes[0][-1])}

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that adds the rows."""
        rows_in_use = math.prod(input_shapes[0])
        elements = batch_size * rows_in_use
        return (
            MemoryPass(
                name=PASS,
                read_elements=elements + rows_in_use,
                written_elements=elements,
                tensor_elements=elements,
                flop_count=elements,
            ),
        )

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that adds up the table's gradient."""
        elements = batch_size * math.prod(input_shapes[0])
        return (
            MemoryPass(
                name=PASS,
                read_elements=elements,
                written_elements=self.positions * input_shapes[0][-1],
                tensor_elements=elements,
                flop_count=elements,
                role=Role.WEIGHT_GRADIENT,
            ),
        )
