"""Long short-term memory, one layer or a stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.recurrent.operator_calls import onnx_recurrence, torch_recurrence
from perfmodel.layers.recurrent.recurrent_layer import RecurrentLayer
from perfmodel.layers.translation import OperatorCall, Translation, Translator

GATES = 4
"""Input, forget and output gate, and candidate [1]."""
ONNX_FUNCTIONS = ("Sigmoid", "Tanh", "Tanh")
"""Functions of gates, candidate and output that an ONNX node may name."""
PEEPHOLES = "7"
"""Input of an ONNX node with weights from the cell state to the gates, which this layer has none of."""


def _from_torch(call: OperatorCall) -> Translation | None:
    return torch_recurrence(call, LSTM)


def _from_onnx(call: OperatorCall) -> Translation | None:
    if call.get(PEEPHOLES) is not None:
        return None
    return onnx_recurrence(call, LSTM, gate_count=GATES, functions=ONNX_FUNCTIONS)


@final
@dataclass(frozen=True, kw_only=True)
class LSTM(RecurrentLayer):
    """LSTM over (steps, features): c = f c + i g, h = o tanh(c), gates from [x, h] W + b.

    Options: see ``RecurrentLayer``; inputs 1 and 2 are h and c before the first step.

    Notes
    -----
    One product step costs 8 h (x + h) FLOP per sample; a second bias vector adds 4 h. Back-propagation
    through time is part of the recurrence with the role INPUT_GRADIENT; where the first layer's input wants
    none, its recurrence remains, without the columns of x. Kept: the gates and c.

    References
    ----------
    .. [1] Hochreiter, Schmidhuber, Long short-term memory, Neural Computation 9(8), 1997.
    .. [2] Appleyard, Kocisky, Blunsom, arXiv:1604.01946.
    """

    kind: ClassVar[str] = "lstm"
    examples: ClassVar[Examples] = (
        ({"hidden_size": 7}, ((5, 6),)),
        ({"hidden_size": 7, "layer_count": 3, "bias_vectors": 2, "return_sequences": False}, ((5, 6),)),
        ({"hidden_size": 7, "layer_count": 2, "bidirectional": True, "dropout": 0.1}, ((5, 6), (4, 7), (4, 7))),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"hidden_size": "H"}, (("S", "F"),))
    input_counts: ClassVar[tuple[int, int | None]] = (1, 3)
    torch_operators: ClassVar[Mapping[str, Translator]] = {"aten.lstm": _from_torch}
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"LSTM": _from_onnx}
    gate_count: ClassVar[int] = GATES
    state_count: ClassVar[int] = 2
    kept_per_unit: ClassVar[int] = GATES + 1

    @property
    def pointwise_flop_count(self) -> int:
        """3 sigmoids of 4, 2 tanh, f c + i g (3) and o tanh(c) (1) [FLOP]."""
        return 18
