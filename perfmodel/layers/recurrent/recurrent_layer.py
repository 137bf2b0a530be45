"""What recurrent layers share: options, the stack of recurrences, their gradients and what they keep."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from perfmodel.layers.base import Layer
from perfmodel.layers.checks import check_count, check_flag, check_fraction, is_open_size, refuse
from perfmodel.layers.passes import elementwise
from perfmodel.layers.random.dropout import Dropout
from perfmodel.layers.shapes import SEQUENCE, Shape, ShapeMismatchError, check_rank, shape_text
from perfmodel.records import Operation, Recurrence, Role

MOST_BIAS_VECTORS = 2
"""One for x and one for h; no library keeps more [1]."""
DIRECTIONS = ("", "_reverse")
"""Endings of the parameters' names: forward, and backward in time."""


@dataclass(frozen=True, kw_only=True)
class RecurrentLayer(Layer):
    """A stack of recurrences over (steps, features); a kind says how many gates a cell has and what it keeps.

    Parameters
    ----------
    hidden_size : int
        Units, h. [1]
    layer_count : int
        Layers in the stack; each reads the whole sequence of the one below. [1]
    bias_vectors : int
        Bias vectors per gate: 0, 1, or 2 as cuDNN and torch keep them. [1]
    return_sequences : bool
        Whether every step's h is the output, or the last one's only. [-]
    bidirectional : bool
        Whether every layer has a second recurrence that goes back in time; the two outputs lie side by side, so that
        the next layer reads 2 h features. [-]
    dropout : float
        Fraction dropped between the layers of a stack, in [0, 1). [1]
    direction_axis : bool
        Whether the output has an axis of directions before the units, as ONNX has it. [-]

    Notes
    -----
    Input 0 is the sequence; inputs 1 and on are the states before the first step, zero where they are left out: each
    (layers x directions, h), or (h,) where there is one only. The backward pass takes T products with the recurrent
    matrix where that h wants a gradient, else T - 1. Of a bidirectional layer, the two gradients of its input are
    added. Ignores: the traffic of the states before the first step; in memory, scratch of the recurrence and what a
    library rounds up. What is kept is what the formulas of the cell read going back, as kernels of whole sequences
    (cuDNN) keep it; torch on a CPU runs cells one by one and keeps more or less. No peak with such a layer is compared
    with a measured one.
    """

    gate_count: ClassVar[int]
    """Gates of the cell [1]."""
    state_count: ClassVar[int]
    """States carried from step to step, h among them [1]."""
    kept_per_unit: ClassVar[int]
    """Tensors like h that every recurrence keeps for back-propagation besides h itself [1]."""
    hidden_size: int
    layer_count: int = 1
    bias_vectors: int = 1
    return_sequences: bool = True
    bidirectional: bool = False
    dropout: float = 0.0
    direction_axis: bool = False

    def __post_init__(self) -> None:
        check_count("hidden_size", self.hidden_size)
        check_count("layer_count", self.layer_count)
        if is_open_size(self.layer_count):
            refuse(
                "layer_count", self.layer_count, "must be a whole number: how many layers there are cannot stay open"
            )
        if isinstance(self.bias_vectors, bool) or self.bias_vectors not in (0, 1, MOST_BIAS_VECTORS):
            refuse("bias_vectors", self.bias_vectors, "must be 0, 1, or 2 where x and h have one each")
        check_fraction("dropout", self.dropout)
        for option in ("return_sequences", "bidirectional", "direction_axis"):
            check_flag(option, getattr(self, option))

    @property
    @abstractmethod
    def pointwise_flop_count(self) -> int:
        """Element-wise FLOP per unit and step, without what a second bias vector adds [FLOP]."""

    @property
    def keeps_output(self) -> bool:  # type: ignore[override]
        """Whether the output holds every h of the highest layer, which the recurrent weights' gradient reads."""
        return self.return_sequences

    @property
    def _directions(self) -> tuple[str, ...]:
        return DIRECTIONS if self.bidirectional else DIRECTIONS[:1]

    @property
    def _width(self) -> int:
        """Features that one layer of the stack yields."""
        return self.hidden_size * len(self._directions)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return (steps, units of all directions), or the units for the last step only."""
        check_rank(input_shapes[0], SEQUENCE)
        count = self.layer_count * len(self._directions)
        states = [(count, self.hidden_size), *([(self.hidden_size,)] if count == 1 else [])]
        for given in input_shapes[1:]:
            if tuple(given) not in states and not any(map(is_open_size, (*given, *states[0]))):
                allowed = " or ".join(map(shape_text, states))
                problem = f"its first state is of shape {shape_text(given)}, must be {allowed} (layers, hidden_size)"
                raise ShapeMismatchError(problem)
        units = (len(self._directions), self.hidden_size) if self.direction_axis else (self._width,)
        return (input_shapes[0][0], *units) if self.return_sequences else units

    def _input_sizes(self, input_shapes: tuple[Shape, ...]) -> tuple[int, ...]:
        """Return the features each layer of the stack reads, lowest first."""
        return (input_shapes[0][-1], *[self._width] * (self.layer_count - 1))

    def parameter_shapes(self, input_shapes: tuple[Shape, ...]) -> dict[str, Shape]:
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

    def _between_layers(self, input_shapes: tuple[Shape, ...]) -> tuple[Dropout, tuple[Shape, ...]] | None:
        """Return the dropout between two layers with the shape of its input; None where there is none."""
        if not self.dropout or self.layer_count == 1:
            return None
        return Dropout(rate=self.dropout), ((input_shapes[0][0], self._width),)

    def at_inference(self, input_shapes: tuple[Shape, ...]) -> Layer:
        """Return the layer without dropout."""
        del input_shapes
        return replace(self, dropout=0.0)

    def saved_bytes(self, input_shapes: tuple[Shape, ...], *, batch_size: Any, element_bytes: int) -> Any:
        """Return what cells keep of every step, every h that is not the output, and masks of dropout [B]."""
        sequence = batch_size * input_shapes[0][0] * self._width
        between = self._between_layers(input_shapes)
        hidden_sequences = self.layer_count - self.return_sequences
        masks: Any = 0
        if between is not None:
            dropout, shapes = between
            upper = self.layer_count - 1
            hidden_sequences += upper  # what was dropped, for the weights above, and what was not, for those below
            masks = upper * dropout.saved_bytes(shapes, batch_size=batch_size, element_bytes=element_bytes)
        return element_bytes * sequence * (self.layer_count * self.kept_per_unit + hidden_sequences) + masks

    def _recurrences(
        self, input_shapes: tuple[Shape, ...], *, batch_size: Any, role: Role, first_state_gradient: bool = False
    ) -> Iterator[tuple[Recurrence, ...]]:
        """Yield the recurrences of each layer of the stack, one per direction, lowest layer first."""
        second_bias = self.gate_count if self.bias_vectors == MOST_BIAS_VECTORS else 0
        for input_size in self._input_sizes(input_shapes):
            recurrence = Recurrence(
                batch_size=batch_size,
                steps=input_shapes[0][0],
                input_size=input_size,
                hidden_size=self.hidden_size,
                gate_count=self.gate_count,
                pointwise_flop_count=self.pointwise_flop_count + second_bias,
                state_count=self.state_count,
                bias_vectors=self.bias_vectors,
                first_state_gradient=first_state_gradient,
                role=role,
            )
            yield (recurrence,) * len(self._directions)

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one recurrence per layer of the stack and direction, lowest first, with dropout between layers."""
        operations: list[Operation] = []
        between = self._between_layers(input_shapes)
        for layer in self._recurrences(input_shapes, batch_size=batch_size, role=Role.OUTPUT):
            if operations and between is not None:
                dropout, shapes = between
                operations += dropout.forward_operations(shapes, batch_size=batch_size)
            operations += layer
        return tuple(operations)

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return back-propagation through time and the weights' gradient of each layer, highest first."""
        return self.gradient_operations(input_shapes, batch_size=batch_size, wanted=[True] * len(input_shapes))

    def gradient_operations(
        self, input_shapes: tuple[Shape, ...], *, batch_size: Any, wanted: Sequence[bool]
    ) -> tuple[Operation, ...]:
        """Return the same; the lowest layer's recurrences yield no dx where it is not wanted."""
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

    def _sum_of_directions(self, input_shapes: tuple[Shape, ...], *, index: int, batch_size: Any) -> Operation:
        """Return the sum of the two gradients of what a bidirectional layer reads."""
        elements = batch_size * input_shapes[0][0] * self._input_sizes(input_shapes)[index]
        return elementwise("gradient_sum", elements, reads=2, flop_per_element=1, role=Role.INPUT_GRADIENT)
