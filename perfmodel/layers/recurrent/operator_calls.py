"""How torch and ONNX call recurrent layers: the same arguments for all kinds of cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perfmodel.layers.recurrent.recurrent_layer import DIRECTIONS
from perfmodel.layers.shapes import SEQUENCE, SharedShape
from perfmodel.layers.translation import Operand, OperatorCall, Translation

if TYPE_CHECKING:
    from perfmodel.layers.recurrent.recurrent_layer import RecurrentLayer

TENSORS = ("input_weight", "recurrent_weight", "input_bias", "recurrent_bias")
"""Parameters of one recurrence in the order in which torch lists them."""


def _is_sequence(operand: Operand, *, batch_axis: int) -> bool:
    """Tell whether a tensor's samples are (steps, features): its batch axis lies where the call says."""
    full = (None, 0, 1) if batch_axis == 0 else (0, None, 1)
    return len(operand.shape) == len(SEQUENCE) and operand.axes == full


def torch_recurrence(call: OperatorCall, kind: type[RecurrentLayer], **options: Any) -> Translation | None:
    """Read a call of ``aten.lstm``, ``aten.gru``, ``aten.rnn_tanh`` or ``aten.rnn_relu``.

    Parameters
    ----------
    call : OperatorCall
        The call; packed sequences, whose steps differ between samples, are none of ours. [-]
    kind : type
        The layer it is. [-]
    **options : object
        Options that the operator's name implies. [-]

    Returns
    -------
    Translation or None
        The layer with its states and parameters; None for packed sequences and projected states. [-]
    """
    if call.overload == "data" or not _is_sequence(call["input"], batch_axis=0 if call["batch_first"] else 1):
        return None
    directions = DIRECTIONS if call["bidirectional"] else DIRECTIONS[:1]
    tensors = TENSORS if call["has_biases"] else TENSORS[:2]
    names = [
        f"{tensor}_{index}{direction}"
        for index in range(call["num_layers"])
        for direction in directions
        for tensor in tensors
    ]
    if len(call["params"]) != len(names):
        return None  # an LSTM whose state is projected has one more matrix
    parameters = dict(zip(names, call["params"], strict=True))
    layer = kind(
        hidden_size=parameters["recurrent_weight_0"].shape[-1],
        layer_count=call["num_layers"],
        bias_vectors=len(tensors) - 2,
        bidirectional=bool(call["bidirectional"]),
        dropout=float(call["dropout"]) if call["train"] else 0.0,
        **options,
    )
    states = call["hx"] if isinstance(call["hx"], tuple) else (call["hx"],)
    return Translation(layer=layer, inputs=(call["input"], *states), parameters=parameters)


def _part(operand: Operand, name: str, shape: tuple[int, ...]) -> Operand:
    """Return a part of a parameter that holds those of several directions or of both biases."""
    return replace(
        operand, key=f"{operand.key}[{name}]", shape=SharedShape(shape), axes=tuple(range(len(shape))), value=None
    )


def _onnx_parameters(
    call: OperatorCall, *, directions: Sequence[str], gates: Any, hidden_size: Any
) -> Iterator[tuple[str, Operand]]:
    """Yield each parameter with its part of the tensors that an ONNX node has for all of them."""
    weight, recurrent, bias = (call.get(position) for position in ("1", "2", "3"))
    for direction in directions:
        name = direction or "forward"
        yield f"input_weight_0{direction}", _part(weight, name, (gates, weight.shape[-1]))
        yield f"recurrent_weight_0{direction}", _part(recurrent, name, (gates, hidden_size))
        if bias is not None:
            yield f"input_bias_0{direction}", _part(bias, f"{name} input", (gates,))
            yield f"recurrent_bias_0{direction}", _part(bias, f"{name} recurrent", (gates,))


def onnx_recurrence(
    call: OperatorCall, kind: type[RecurrentLayer], *, gate_count: int, functions: tuple[str, ...], **options: Any
) -> Translation | None:
    """Read an ONNX node ``LSTM``, ``GRU`` or ``RNN``.

    Parameters
    ----------
    call : OperatorCall
        The node. [-]
    kind : type
        The layer it is. [-]
    gate_count : int
        Gates of the cell. [1]
    functions : tuple of str
        Functions the cell is counted with; a node with others is another cell. [-]
    **options : object
        Options that follow from the node. [-]

    Returns
    -------
    Translation or None
        The layer with its states and parameters; None for other functions, and weights that are computed. [-]

    Notes
    -----
    A node has one tensor of weights for both directions, and one of all biases; each of its parts is a parameter of
    the layer, so their keys are the tensor's with the part in brackets.
    """
    given = [call.get(position) for position in ("1", "2", "3")]
    is_bidirectional = call.get("direction", "forward") == "bidirectional"
    directions = DIRECTIONS if is_bidirectional else DIRECTIONS[:1]
    is_standard = tuple(call.get("activations", functions * len(directions))) == functions * len(directions)
    batch_axis = 0 if call.get("layout", 0) else 1
    held = all(operand is None or operand.is_parameter for operand in given)
    if not is_standard or not held or not _is_sequence(call["0"], batch_axis=batch_axis):
        return None
    hidden_size = given[1].shape[-1]
    layer = kind(
        hidden_size=hidden_size,
        bias_vectors=0 if given[2] is None else 2,
        bidirectional=is_bidirectional,
        direction_axis=True,
        **options,
    )
    states = tuple(state for state in (call.get("5"), call.get("6")) if state is not None)
    parameters = _onnx_parameters(call, directions=directions, gates=gate_count * hidden_size, hidden_size=hidden_size)
    return Translation(layer=layer, inputs=(call["0"], *states), parameters=dict(parameters))
