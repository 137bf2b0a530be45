"""Simple recurrent layer, one or a stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, final

from perfmodel.layers.base import Examples, SymbolicExample
from perfmodel.layers.checks import check_choice
from perfmodel.layers.recurrent.operator_calls import onnx_recurrence, torch_recurrence
from perfmodel.layers.recurrent.recurrent_layer import RecurrentLayer
from perfmodel.layers.translation import OperatorCall, Translation, Translator

FUNCTIONS = ("tanh", "relu")


def _from_torch(call: OperatorCall) -> Translation | None:
    return torch_recurrence(call, RNN, function=call.operator.rpartition("_")[-1])


def _from_onnx(call: OperatorCall) -> Translation | None:
    (function, *_) = call.get("activations", ("Tanh",))
    if function.lower() not in FUNCTIONS:
        return None
    return onnx_recurrence(call, RNN, gate_count=1, functions=(function,), function=function.lower())


@final
@dataclass(frozen=True, kw_only=True)
class RNN(RecurrentLayer):
    """Simple recurrence over (steps, features): h = tanh([x, h] W + b). Options: see ``RecurrentLayer``.

    Parameters
    ----------
    function : str
        ``tanh`` or ``relu``. [-]

    Notes
    -----
    Input 1 is h before the first step. One product step costs 2 h (x + h) FLOP per sample, the function 1 h, a second
    bias vector 1 h. Kept: the function's result at every step, which the sequence that is handed on holds once more.

    References
    ----------
    .. [1] Elman, Finding structure in time, Cognitive Science 14(2), 1990.
    """

    kind: ClassVar[str] = "rnn"
    examples: ClassVar[Examples] = (
        ({"hidden_size": 7}, ((5, 6),)),
        ({"hidden_size": 7, "function": "relu", "bias_vectors": 0, "direction_axis": True}, ((5, 6), (7,))),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"hidden_size": "H"}, (("S", "F"),))
    input_counts: ClassVar[tuple[int, int | None]] = (1, 2)
    torch_operators: ClassVar[Mapping[str, Translator]] = {"aten.rnn_tanh": _from_torch, "aten.rnn_relu": _from_torch}
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"RNN": _from_onnx}
    gate_count: ClassVar[int] = 1
    state_count: ClassVar[int] = 1
    kept_per_unit: ClassVar[int] = 1
    function: Literal["tanh", "relu"] = "tanh"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("function", self.function, FUNCTIONS)

    @property
    def pointwise_flop_count(self) -> int:
        """One function [FLOP]."""
        return 1
