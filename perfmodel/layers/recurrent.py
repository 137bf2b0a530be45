"""Recurrent layers, one or a stack, and their states."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from perfmodel.layers.base import Checks, LayerByInput, Operations, layer_kind, of_options
from perfmodel.layers.checks import check_count, is_open_size, numbered, one_of, refuse
from perfmodel.layers.drawing import Dropout
from perfmodel.layers.passes import elementwise
from perfmodel.layers.shapes import SEQUENCE, SEQUENCES, Shape, Shapes, SharedShape, check_rank, mismatch, shape_text
from perfmodel.layers.translation import Operand, OperatorCall, Operators, Translation
from perfmodel.layers.view import View
from perfmodel.records import Operation, Recurrence, Role

MOST_BIAS_VECTORS = 2
"""Most bias vectors: one for x and one for h [1]."""
DIRECTIONS = ("", "_reverse")
"""Endings of the parameters' names: forward, and backward in time."""


def _check_bias_vectors(argument: str, value: object) -> None:
    if isinstance(value, bool) or value not in (0, 1, MOST_BIAS_VECTORS):
        refuse(argument, value, "must be 0, 1, or 2 (one each for x and h)")


@dataclass(frozen=True, kw_only=True)
class RecurrentLayer(LayerByInput):
    """A stack of recurrences over (steps, features); each kind defines the gates of its cell and the tensors it keeps.

    A sample may hold several sequences, (sequences, steps, features), e.g. the rows of an image.

    Parameters
    ----------
    hidden_size : int
        Units, h. [1]
    layer_count : int
        Layers in the stack; each reads the whole sequence of the one below. [1]
    bias_vectors : int
        Bias vectors per gate: 0, 1, or 2 as in cuDNN and torch. [1]
    return_sequences : bool
        Whether the output is every step's h, or only the last step's. [-]
    bidirectional : bool
        Whether every layer has a second recurrence that goes back in time; the two outputs lie side by side, so that
        the next layer reads 2 h features. [-]
    dropout : float
        Fraction dropped between the layers of a stack, in [0, 1). [1]
    direction_axis : bool
        Whether the output has an axis of directions before the units, as in ONNX. [-]
    steps_first : bool
        Whether the steps of a sample's several sequences come first: (steps, sequences, features). [-]

    Notes
    -----
    Input 0 is the sequence; further inputs are the states before the first step, zero if they are left out: each
    (layers x directions, h), or (h,) if there is only one, with an axis of several sequences before h. The backward
    pass takes T products with the recurrent matrix if that h needs a gradient, otherwise T - 1. Of a bidirectional
    layer, the two gradients of its input are added. Ignores: the traffic of the states before the first step; in
    memory, scratch of the recurrence and what a library rounds up. Kept are the tensors that the cell's formulas read
    going back, as kernels of whole sequences (cuDNN) keep them; torch on a CPU runs cells one by one and may keep more
    or less. No such peak is compared with a measured one.
    """

    input_counts: ClassVar[tuple[int, int | None]] = (1, 2)
    gate_count: ClassVar[int]
    """Gates of the cell [1]."""
    state_count: ClassVar[int]
    """States carried from step to step, h among them [1]."""
    kept_per_unit: ClassVar[int]
    """Tensors like h that every recurrence keeps for back-propagation besides h itself [1]."""
    pointwise_flop_count: ClassVar[int]
    """Element-wise FLOP per unit and step, without those of a second bias vector [FLOP]."""
    checks: ClassVar[Checks] = {"layer_count": numbered(), "bias_vectors": _check_bias_vectors}
    # every h of the highest layer, which the recurrent weights' gradient reads
    keeps_output: ClassVar[bool] = of_options(lambda layer: layer.return_sequences)
    hidden_size: int
    layer_count: int = 1
    bias_vectors: int = 1
    return_sequences: bool = True
    bidirectional: bool = False
    dropout: float = 0.0
    direction_axis: bool = False
    steps_first: bool = False

    @property
    def _peephole_flop_count(self) -> int:
        """Element-wise FLOP per unit and step that gates reading the cell's state add."""
        return 0

    @property
    def _directions(self) -> tuple[str, ...]:
        return DIRECTIONS if self.bidirectional else DIRECTIONS[:1]

    @property
    def _width(self) -> int:
        """Features that one layer of the stack yields."""
        return self.hidden_size * len(self._directions)

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return (steps, units of all directions), or the units for the last step only; of each sequence."""
        check_rank(input_shapes[0], SEQUENCE, SEQUENCES)
        sequences, steps = self._extents(input_shapes)
        count, several = self.layer_count * len(self._directions), (sequences,) * (len(input_shapes[0]) - len(SEQUENCE))
        states = [(count, *several, self.hidden_size), (*several, count, self.hidden_size)]
        states += [(*several, self.hidden_size)] * (count == 1)
        for shape in input_shapes[1:]:
            if tuple(shape) not in states and not any(map(is_open_size, (*shape, *states[0]))):
                allowed = " or ".join(dict.fromkeys(map(shape_text, states)))
                mismatch(f"its first state is of shape {shape_text(shape)}, must be {allowed} (layers, hidden_size)")
        directions = (len(self._directions),) if self.direction_axis else ()
        units = self.hidden_size if self.direction_axis else self._width
        over_time = (steps,) if self.return_sequences else ()
        if self.steps_first:
            return (*over_time, *directions, *several, units)
        return (*several, *over_time, *directions, units)

    def _extents(self, input_shapes: Shapes) -> tuple[Any, Any]:
        """Return the sequences of a sample and their steps [1]."""
        *several, steps = input_shapes[0][-2::-1] if self.steps_first else input_shapes[0][:-1]
        return math.prod(several), steps

    def _input_sizes(self, input_shapes: Shapes) -> tuple[int, ...]:
        """Return the features each layer of the stack reads, lowest first."""
        return (input_shapes[0][-1], *[self._width] * (self.layer_count - 1))

    def parameter_shapes(self, input_shapes: Shapes) -> dict[str, Shape]:
        """Return matrices and biases, layer by layer: ``input_weight_0``, ``recurrent_weight_0``, their biases.

        One bias vector is ``bias_0``; of two, ``input_bias_0`` and ``recurrent_bias_0``. Names of the recurrence that
        goes back in time end in ``_reverse``.
        """
        gates = self.gate_count * self.hidden_size
        biases = ((), ("bias",), ("input_bias", "recurrent_bias"))[self.bias_vectors]
        shapes: dict[str, Shape] = {}
        for index, input_size in enumerate(self._input_sizes(input_shapes)):
            for direction in self._directions:
                shapes[f"input_weight_{index}{direction}"] = (input_size, gates)
                shapes[f"recurrent_weight_{index}{direction}"] = (self.hidden_size, gates)
                shapes |= {f"{bias}_{index}{direction}": (gates,) for bias in biases}
        return shapes

    def _between_layers(self, input_shapes: Shapes) -> tuple[Dropout, Shapes] | None:
        """Return the dropout between two layers with the shape of its input; None where there is none."""
        if not self.dropout or self.layer_count == 1:
            return None
        return Dropout(rate=self.dropout), ((*input_shapes[0][:-1], self._width),)

    def saved_bytes(self, input_shapes: Shapes, *, batch_size: Any, element_bytes: int) -> Any:
        """Return the bytes that cells keep of every step, every h that is not the output, and dropout masks [B]."""
        sequence = batch_size * math.prod(input_shapes[0][:-1]) * self._width
        between = self._between_layers(input_shapes)
        hidden_sequences = self.layer_count - self.return_sequences
        masks: Any = 0
        if between is not None:
            dropout, shapes = between
            upper = self.layer_count - 1
            hidden_sequences += upper  # h after dropout for the weights above, h before it for those below
            masks = upper * dropout.saved_bytes(shapes, batch_size=batch_size, element_bytes=element_bytes)
        return element_bytes * sequence * (self.layer_count * self.kept_per_unit + hidden_sequences) + masks

    def _recurrences(
        self, input_shapes: Shapes, *, batch_size: Any, role: Role, first_state_gradient: bool = False
    ) -> Iterator[tuple[Recurrence, ...]]:
        """Yield the recurrences of each layer of the stack, one per direction, lowest layer first."""
        second_bias = self.gate_count if self.bias_vectors == MOST_BIAS_VECTORS else 0
        sequences, steps = self._extents(input_shapes)
        for input_size in self._input_sizes(input_shapes):
            recurrence = Recurrence(
                batch_size=batch_size * sequences,
                steps=steps,
                input_size=input_size,
                hidden_size=self.hidden_size,
                gate_count=self.gate_count,
                pointwise_flop_count=self.pointwise_flop_count + self._peephole_flop_count + second_bias,
                state_count=self.state_count,
                bias_vectors=self.bias_vectors,
                first_state_gradient=first_state_gradient,
                role=role,
            )
            yield (recurrence,) * len(self._directions)

    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return one recurrence per layer of the stack and direction, lowest first, with dropout between layers."""
        operations: list[Operation] = []
        between = self._between_layers(input_shapes)
        for layer in self._recurrences(input_shapes, batch_size=batch_size, role=Role.OUTPUT):
            if operations and between is not None:
                dropout, shapes = between
                operations += dropout.forward_operations(shapes, batch_size=batch_size)
            operations += layer
        return tuple(operations)

    def gradient_operations(self, input_shapes: Shapes, *, batch_size: Any, wanted: Sequence[bool]) -> Operations:
        """Return the gradients of each layer, the highest first; the lowest layer's yield no dx if it is not needed."""
        through_time = self._recurrences(
            input_shapes,
            batch_size=batch_size,
            role=Role.INPUT_GRADIENT,
            first_state_gradient=any(wanted[1:2]),
        )
        weights = self._recurrences(input_shapes, batch_size=batch_size, role=Role.WEIGHT_GRADIENT)
        between = self._between_layers(input_shapes)
        operations: list[Operation] = []
        for index, (back, products) in reversed(list(enumerate(zip(through_time, weights, strict=True)))):
            reads_wanted = bool(index) or wanted[0]
            for recurrence, weight_gradient in zip(back, products, strict=True):
                operations += [recurrence if reads_wanted else replace(recurrence, input_size=0), weight_gradient]
            if reads_wanted and self.bidirectional:
                operations.append(self._sum_of_directions(input_shapes, index=index, batch_size=batch_size))
            if index and between is not None:
                dropout, shapes = between
                operations += dropout.backward_operations(shapes, batch_size=batch_size)
        return tuple(operations)

    def _sum_of_directions(self, input_shapes: Shapes, *, index: int, batch_size: Any) -> Operation:
        """Return the sum of both directions' gradients of the layer's input."""
        elements = batch_size * math.prod(input_shapes[0][:-1]) * self._input_sizes(input_shapes)[index]
        return elementwise("gradient_sum", elements, reads=2, flop_per_element=1, role=Role.INPUT_GRADIENT)


TENSORS = ("input_weight", "recurrent_weight", "input_bias", "recurrent_bias")
"""Parameters of one recurrence in the order in which torch lists them."""


def _is_sequence(operand: Operand, *, batch_axis: int) -> bool:
    """Return whether a tensor's samples are sequences, one or several, with the batch axis where the call puts it."""
    if operand.axes == (0, 1, 2):
        return not operand.is_shared and operand.merged_axis in (batch_axis, None)
    return operand.axes == ((None, 0, 1) if batch_axis == 0 else (0, None, 1))


def _torch_recurrence(call: OperatorCall, kind: type[RecurrentLayer], **options: Any) -> Translation | None:
    """Read a call of ``aten.lstm``, ``aten.gru``, ``aten.rnn_tanh`` or ``aten.rnn_relu``.

    Packed sequences, whose steps differ between samples, and projected states are not supported.
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
        steps_first=len(call["input"].shape) > len(SEQUENCE) and not call["batch_first"],
        **options,
    )
    states = call["hx"] if isinstance(call["hx"], tuple) else (call["hx"],)
    return Translation(layer=layer, inputs=(call["input"], *states), parameters=parameters)


def _part(operand: Operand, name: str, shape: tuple[int, ...]) -> Operand:
    """Return a part of a tensor that holds parameters of several directions or both biases."""
    return replace(
        operand, key=f"{operand.key}[{name}]", shape=SharedShape(shape), axes=tuple(range(len(shape))), value=None
    )


def _onnx_parameters(
    call: OperatorCall, *, directions: Sequence[str], gates: Any, hidden_size: Any
) -> Iterator[tuple[str, Operand]]:
    """Yield each parameter with its part of an ONNX node's joint tensors."""
    weight, recurrent, bias = (call.get(position) for position in ("1", "2", "3"))
    for direction in directions:
        name = direction or "forward"
        yield f"input_weight_0{direction}", _part(weight, name, (gates, weight.shape[-1]))
        yield f"recurrent_weight_0{direction}", _part(recurrent, name, (gates, hidden_size))
        if bias is not None:
            yield f"input_bias_0{direction}", _part(bias, f"{name} input", (gates,))
            yield f"recurrent_bias_0{direction}", _part(bias, f"{name} recurrent", (gates,))


def _onnx_recurrence(
    call: OperatorCall, kind: type[RecurrentLayer], functions: tuple[str, ...], **options: Any
) -> Translation | None:
    """Read an ONNX node ``LSTM``, ``GRU`` or ``RNN``; None for other functions of the cell, and computed weights.

    A node has one tensor of weights for both directions, and one of all biases; each of its parts is a parameter of
    the layer, so their keys are the tensor's with the part in brackets.
    """
    weights = [call.get(position) for position in ("1", "2", "3")]
    is_bidirectional = call.get("direction", "forward") == "bidirectional"
    directions = DIRECTIONS if is_bidirectional else DIRECTIONS[:1]
    is_standard = tuple(call.get("activations", functions * len(directions))) == functions * len(directions)
    batch_axis = 0 if call.get("layout", 0) else 1
    held = all(operand is None or operand.is_parameter for operand in weights)
    if not is_standard or not held or not _is_sequence(call["0"], batch_axis=batch_axis):
        return None
    hidden_size = weights[1].shape[-1]
    layer = kind(
        hidden_size=hidden_size,
        bias_vectors=0 if weights[2] is None else 2,
        bidirectional=is_bidirectional,
        direction_axis=True,
        steps_first=len(call["0"].shape) > len(SEQUENCE) and batch_axis == 1,
        **options,
    )
    states = tuple(state for state in (call.get("5"), call.get("6")) if state is not None)
    parameters = _onnx_parameters(
        call, directions=directions, gates=kind.gate_count * hidden_size, hidden_size=hidden_size
    )
    return Translation(layer=layer, inputs=(call["0"], *states), parameters=dict(parameters))


FUNCTIONS = ("tanh", "relu")


def _from_onnx_rnn(call: OperatorCall) -> Translation | None:
    (function, *_) = call.get("activations", ("Tanh",))
    if function.lower() not in FUNCTIONS:
        return None
    return _onnx_recurrence(call, RNN, (function,), function=function.lower())


@layer_kind("rnn")
class RNN(RecurrentLayer):
    """Simple recurrence over (steps, features): h = tanh([x, h] W + b). Options: see ``RecurrentLayer``.

    Parameters
    ----------
    function : str
        ``tanh`` or ``relu``. [-]

    Notes
    -----
    Input 1 is h before the first step. One product step costs 2 h (x + h) FLOP per sample, the function 1 h, a second
    bias vector 1 h. Kept: the function's result at every step, of which the output sequence is a second copy.

    References
    ----------
    .. [1] Elman, Finding structure in time, Cognitive Science 14(2), 1990.
    """

    operators: ClassVar[Operators] = {
        **dict.fromkeys(
            ("aten.rnn_tanh", "aten.rnn_relu"),
            lambda call: _torch_recurrence(call, RNN, function=call.operator.rpartition("_")[-1]),
        ),
        "RNN": _from_onnx_rnn,
    }
    gate_count: ClassVar[int] = 1
    state_count: ClassVar[int] = 1
    kept_per_unit: ClassVar[int] = 1
    pointwise_flop_count: ClassVar[int] = 1
    checks: ClassVar[Checks] = RecurrentLayer.checks | {"function": one_of(FUNCTIONS)}
    function: Literal["tanh", "relu"] = "tanh"


@layer_kind("gru")
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

    operators: ClassVar[Operators] = {
        "aten.gru": lambda call: _torch_recurrence(call, GRU),
        "GRU": lambda call: _onnx_recurrence(call, GRU, ("Sigmoid", "Tanh")),
    }
    gate_count: ClassVar[int] = 3
    """Reset and update gate, and candidate [1]."""
    state_count: ClassVar[int] = 1
    kept_per_unit: ClassVar[int] = 4
    pointwise_flop_count: ClassVar[int] = 14
    """2 sigmoids of 4, r (h U) (1), tanh, (1 - z) n + z h (4) [FLOP]."""


PEEPHOLE_GATES = 3
"""Gates of an LSTM that may read c, each unit its own: input, forget and output [1]."""
PEEPHOLE_FLOP = 2 * PEEPHOLE_GATES
"""A multiply and an add for each of them [FLOP]."""
PEEPHOLES = "7"
"""Input of an ONNX node with weights from the cell state to the gates, which this layer lacks."""


def _from_onnx_lstm(call: OperatorCall) -> Translation | None:
    if call.get(PEEPHOLES) is not None:
        return None
    return _onnx_recurrence(call, LSTM, ("Sigmoid", "Tanh", "Tanh"))


@layer_kind("lstm")
class LSTM(RecurrentLayer):
    """LSTM over (steps, features): c = f c + i g, h = o tanh(c), gates from [x, h] W + b.

    Options: see ``RecurrentLayer``; inputs 1 and 2 are h and c before the first step.

    Parameters
    ----------
    peepholes : bool
        Whether the gates also read c, each unit its own, by a weight per unit and gate [3]_. [-]

    Notes
    -----
    One product step costs 8 h (x + h) FLOP per sample; a second bias vector adds 4 h, peepholes 6 h. Back-propagation
    through time is part of the recurrence with the role INPUT_GRADIENT; where the first layer's input wants
    none, its recurrence remains, without the columns of x. Kept: the gates and c.

    References
    ----------
    .. [1] Hochreiter, Schmidhuber, Long short-term memory, Neural Computation 9(8), 1997.
    .. [2] Appleyard, Kocisky, Blunsom, arXiv:1604.01946.
    .. [3] Graves, Generating sequences with recurrent neural networks, arXiv:1308.0850, equations 7 to 11.
    """

    input_counts: ClassVar[tuple[int, int | None]] = (1, 3)
    operators: ClassVar[Operators] = {"aten.lstm": lambda call: _torch_recurrence(call, LSTM), "LSTM": _from_onnx_lstm}
    gate_count: ClassVar[int] = 4
    """Input, forget and output gate, and candidate [1]."""
    state_count: ClassVar[int] = 2
    kept_per_unit: ClassVar[int] = 5
    pointwise_flop_count: ClassVar[int] = 18
    """3 sigmoids of 4, 2 tanh, f c + i g (3) and o tanh(c) (1) [FLOP]."""
    peepholes: bool = False

    @property
    def _peephole_flop_count(self) -> int:
        return PEEPHOLE_FLOP * self.peepholes

    def parameter_shapes(self, input_shapes: Shapes) -> dict[str, Shape]:
        """Return the parameters of any recurrence, and the weights of peepholes."""
        shapes = super().parameter_shapes(input_shapes)
        if not self.peepholes:
            return shapes
        places = [f"{index}{direction}" for index in range(self.layer_count) for direction in self._directions]
        return shapes | {f"peephole_weight_{place}": (PEEPHOLE_GATES * self.hidden_size,) for place in places}


@layer_kind("recurrent_state")
class RecurrentState(View):
    """States h or c after the last step of a recurrent layer, used as first state of another or as scores.

    Parameters
    ----------
    shape : tuple of int
        (layers x directions, hidden_size), or (hidden_size,); with the sequences of a sample before hidden_size. [1]

    Notes
    -----
    A view of tensors that the layer below keeps anyway, so it costs nothing in either direction.
    """

    shape: Shape

    def __post_init__(self) -> None:
        if not isinstance(self.shape, tuple) or len(self.shape) not in (1, 2, 3):
            refuse(
                "shape", self.shape, "must be (layers, sequences, hidden_size), (layers, hidden_size) or (hidden_size,)"
            )
        for extent in self.shape:
            check_count("shape", extent)

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the shape of the states."""
        check_rank(input_shapes[0], ("features",), SEQUENCE, SEQUENCES, (*SEQUENCES[:-1], "directions", "features"))
        features, units = input_shapes[0][-1], self.shape[-1]
        if not is_open_size(features) and not is_open_size(units) and features % units:
            mismatch(f"holds {units} units, unlike the {features} features of {shape_text(input_shapes[0])}")
        return self.shape
