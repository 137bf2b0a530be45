"""Gated recurrent unit, one layer or a stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.recurrent.operator_calls import onnx_recurrence, torch_recurrence
from perfmodel.layers.recurrent.recurrent_layer import RecurrentLayer
from perfmodel.layers.translation import OperatorCall, Translation, Translator

GATES = 3
"""Reset and update gate, and candidate [1]."""
ONNX_FUNCTIONS = ("Sigmoid", "Tanh")
"""Functions of gates and candidate that an ONNX node may name."""


def _from_torch(call: OperatorCall) -> Translation | None:
    return torch_recurrence(call, GRU)


def _from_onnx(call: OperatorCall) -> Translation | None:
    return onnx_recurrence(call, GRU, gate_count=GATES, functions=ONNX_FUNCTIONS)


@final
@dataclass(frozen=True, kw_only=True)
class GRU(RecurrentLayer):
    """GRU over (steps, features): h = (1 - z) n + z h, with n = tanh(x W + r (h U)), gates r and z from [x, h].

    Options: see ``RecurrentLayer``; input 1 is h before the first step.

    Notes
    -----
    One product step costs 6 h (x + h) FLOP per sample; a second bias vector adds 3 h. As cuDNN and torch have it, the
    reset gate multiplies the product h U; before it, as in [1]_, the count is the same. Kept: the gates, and that
    product, which the reset gate's gradient reads.

    References
    ----------
    .. [1] Cho et al., Learning phrase representations using RNN encoder-decoder for statistical machine translation,
       EMNLP 2014, arXiv:1406.1078, equations 5 to 8.
    """

    kind: ClassVar[str] = "gru"
    examples: ClassVar[Examples] = (
        ({"hidden_size": 7}, ((5, 6),)),
        ({"hidden_size": 7, "bias_vectors": 2, "bidirectional": True}, ((5, 6), (2, 7))),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"hidden_size": "H"}, (("S", "F"),))
    input_counts: ClassVar[tuple[int, int | None]] = (1, 2)
    torch_operators: ClassVar[Mapping[str, Translator]] = {"aten.gru": _from_torch}
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"GRU": _from_onnx}
    gate_count: ClassVar[int] = GATES
    state_count: ClassVar[int] = 1
    kept_per_unit: ClassVar[int] = GATES + 1

    @property
    def pointwise_flop_count(self) -> int:
        """2 sigmoids of 4, r (h U) (1), tanh, (1 - z) n + z h (4) [FLOP]."""
        return 14
