"""Long short-term memory, one layer or a stack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_at_most, check_count, check_flag
from perfmodel.layers.shapes import SEQUENCE, Shape, check_rank
from perfmodel.records import Operation, Recurrence, Role

GATES = 4
"""Input, forget and output gate, and candidate [1]."""
STATES = 2
"""Hidden state h and cell state c [1]."""
MOST_BIAS_VECTORS = 2
"""One for x and one for h; no library keeps more [1]."""
POINTWISE_FLOP = 18
"""Per unit and step: 3 sigmoids of 4, 2 tanh, f c + i g (3) and o tanh(c) (1) [FLOP]."""


@final
@dataclass(frozen=True, kw_only=True)
class LSTM(Layer):
    """LSTM over (steps, features): c = f c + i g, h = o tanh(c), gates from [x, h] W + b.

    Parameters
    ----------
    hidden_size : int
        Units, h. [1]
    layer_count : int
        Layers in the stack; each reads the whole sequence of the one below. [1]
    bias_vectors : int
        Bias vectors per gate: 1, or 2 as cuDNN and torch keep them. [1]
    return_sequences : bool
        Whether every step's h is the output, or the last one's only. [-]

    Notes
    -----
    One product step costs 8 h (x + h) FLOP per sample; a second bias vector adds 4 h. Back-propagation
    through time is part of the recurrence with the role INPUT_GRADIENT; where the first layer's input wants
    none, its recurrence remains, without the columns of x.

    References
    ----------
    .. [1] Hochreiter, Schmidhuber, Long short-term memory, Neural Computation 9(8), 1997.
    .. [2] Appleyard, Kocisky, Blunsom, arXiv:1604.01946.
    """

    kind: ClassVar[str] = "lstm"
    examples: ClassVar[Examples] = (
        ({"hidden_size": 7}, ((5, 6),)),
        ({"hidden_size": 7, "layer_count": 3, "bias_vectors": 2, "return_sequences": False}, ((5, 6),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"hidden_size": "H"}, (("S", "F"),))
    keeps_output: ClassVar[bool] = True
    hidden_size: int
    layer_count: int = 1
    bias_vectors: int = 1
    return_sequences: bool = True

    def __post_init__(self) -> None:
        check_count("hidden_size", self.hidden_size)
        check_count("layer_count", self.layer_count)
        check_count("bias_vectors", self.bias_vectors)
        check_at_most("bias_vectors", self.bias_vectors, maximum=MOST_BIAS_VECTORS)
        check_flag("return_sequences", self.return_sequences)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return (steps, hidden_size), or (hidden_size,) for the last step only."""
        check_rank(input_shapes[0], SEQUENCE)
        return (input_shapes[0][0], self.hidden_size) if self.return_sequences else (self.hidden_size,)

    def _input_sizes(self, input_shapes: tuple[Shape, ...]) -> tuple[int, ...]:
        """Return the features each layer of the stack reads, lowest first."""
        return (input_shapes[0][-1], *[self.hidden_size] * (self.layer_count - 1))

    def parameter_shapes(self, input_shapes: tuple[Shape, ...]) -> dict[str, Shape]:
        """Return input and recurrent matrix of the four gates and their biases, layer by layer."""
        gates = GATES * self.hidden_size
        shapes: dict[str, Shape] = {}
        for index, input_size in enumerate(self._input_sizes(input_shapes)):
            shapes[f"input_weight_{index}"] = (input_size, gates)
            shapes[f"recurrent_weight_{index}"] = (self.hidden_size, gates)
            shapes[f"bias_{index}"] = (self.bias_vectors, gates)
        return shapes

    def saved_bytes(self, input_shapes: tuple[Shape, ...], *, batch_size: Any, element_bytes: int) -> Any:
        """Return gates and c of every step and layer, and every h that is not the output [B]."""
        sequence = batch_size * input_shapes[0][0] * self.hidden_size
        hidden_sequences = self.layer_count - self.return_sequences
        return element_bytes * sequence * (self.layer_count * (GATES + 1) + hidden_sequences)

    def _recurrences(self, input_shapes: tuple[Shape, ...], *, batch_size: Any, role: Role) -> tuple[Recurrence, ...]:
        """Return one recurrence per layer of the stack, lowest first."""
        return tuple(
            Recurrence(
                batch_size=batch_size,
                steps=input_shapes[0][0],
                input_size=input_size,
                hidden_size=self.hidden_size,
                gate_count=GATES,
                pointwise_flop_count=POINTWISE_FLOP + GATES * (self.bias_vectors - 1),
                state_count=STATES,
                bias_vectors=self.bias_vectors,
                role=role,
            )
            for input_size in self._input_sizes(input_shapes)
        )

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one recurrence per layer of the stack, lowest first."""
        return self._recurrences(input_shapes, batch_size=batch_size, role=Role.OUTPUT)

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return back-propagation through time and the weights' gradient of each layer, highest first."""
        return self.gradient_operations(input_shapes, batch_size=batch_size, wanted=(True,))

    def gradient_operations(
        self, input_shapes: tuple[Shape, ...], *, batch_size: Any, wanted: Sequence[bool]
    ) -> tuple[Operation, ...]:
        """Return the same; the lowest layer's recurrence yields no dx where it is not wanted."""
        lowest, *upper = self._recurrences(input_shapes, batch_size=batch_size, role=Role.INPUT_GRADIENT)
        if not any(wanted):
            lowest = replace(lowest, input_size=0)
        weights = self._recurrences(input_shapes, batch_size=batch_size, role=Role.WEIGHT_GRADIENT)
        pairs = list(zip((lowest, *upper), weights, strict=True))
        return tuple(operation for pair in reversed(pairs) for operation in pair)
