"""A training step of a restricted Boltzmann machine by contrastive divergence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from perfmodel.layers.activation.sigmoid import Sigmoid
from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_count, is_open_size, refuse
from perfmodel.layers.passes import elementwise
from perfmodel.layers.shapes import Shape, check_rank
from perfmodel.records import Contraction, MemoryPass, Operation, Role


@final
@dataclass(frozen=True, kw_only=True)
class ContrastiveDivergence(Layer):
    """A step of contrastive divergence CD-k: data, k times reconstruction and hidden units, difference of statistics.

    Its output are the hidden units' probabilities given the data, which a further machine may be trained on.

    Parameters
    ----------
    hidden_units : int
        Hidden units. [1]
    steps : int
        Reconstructions, k. [1]

    Notes
    -----
    N samples, v visible and h hidden units. Forward 1 + 2 k products of 2 N v h FLOP, each followed by a logistic
    function (4 FLOP per unit); the hidden units are drawn (a comparison with a random number each) before every
    reconstruction, reconstructions and the last hidden units stay probabilities [1]_. Nothing is propagated back: the
    gradient of the weights is the difference of two products, data and last reconstruction with their hidden units, 2
    N v h FLOP each and v h subtractions; that of the biases sums the differences, 2 FLOP per unit and sample. Kept
    are the data, both hidden probabilities and the last reconstruction. Ignores: making the random numbers.

    References
    ----------
    .. [1] Hinton, A practical guide to training restricted Boltzmann machines, UTML TR 2010-003, sections 2 and 3.
    """

    kind: ClassVar[str] = "contrastive_divergence"
    examples: ClassVar[Examples] = (
        ({"hidden_units": 4}, ((10,),)),
        ({"hidden_units": 7, "steps": 3}, ((10,),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"hidden_units": "H"}, (("V",),))
    index_inputs: ClassVar[tuple[int, ...]] = (0,)
    keeps_output: ClassVar[bool] = True
    is_loss: ClassVar[bool] = True
    hidden_units: int
    steps: int = 1

    def __post_init__(self) -> None:
        check_count("hidden_units", self.hidden_units)
        check_count("steps", self.steps)
        if is_open_size(self.steps):
            refuse("steps", self.steps, "must be a number: reconstructions follow one another")

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return (hidden_units,)."""
        check_rank(input_shapes[0], ("visible units",))
        return (self.hidden_units,)

    def parameter_shapes(self, input_shapes: tuple[Shape, ...]) -> dict[str, Shape]:
        """Return the weights, which both directions share, and the biases of both layers."""
        (visible,) = input_shapes[0]
        return {
            "weight": (visible, self.hidden_units),
            "visible_bias": (visible,),
            "hidden_bias": (self.hidden_units,),
        }

    def saved_bytes(self, input_shapes: tuple[Shape, ...], *, batch_size: Any, element_bytes: int) -> Any:
        """Return the last reconstruction and its hidden units [B]."""
        (visible,) = input_shapes[0]
        return element_bytes * batch_size * (visible + self.hidden_units)

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return hidden units given the data, then k times a drawing, a reconstruction, and hidden units."""
        (visible,) = input_shapes[0]
        hidden = self.hidden_units
        flop_per_unit = Sigmoid.flop_per_element[0]
        to_hidden = (
            Contraction(m=batch_size, n=hidden, k=visible, bias_elements=hidden),
            elementwise("sigmoid", batch_size * hidden, flop_per_element=flop_per_unit),
        )
        draw = elementwise("random_bernoulli", batch_size * hidden, flop_per_element=1)
        to_visible = (
            Contraction(m=batch_size, n=visible, k=hidden, bias_elements=visible),
            elementwise("sigmoid", batch_size * visible, flop_per_element=flop_per_unit),
        )
        return (*to_hidden, *((draw, *to_visible, *to_hidden) * self.steps))

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return the statistics of data and reconstruction, and their differences."""
        (visible,) = input_shapes[0]
        hidden = self.hidden_units
        statistics = Contraction(m=visible, n=hidden, k=batch_size, role=Role.WEIGHT_GRADIENT)
        difference = elementwise("subtract", visible * hidden, reads=2, flop_per_element=1, role=Role.WEIGHT_GRADIENT)
        biases = (
            MemoryPass(
                name="bias_gradient",
                read_elements=2 * batch_size * units,
                written_elements=units,
                tensor_elements=batch_size * units,
                flop_count=2 * batch_size * units,
                role=Role.WEIGHT_GRADIENT,
            )
            for units in (visible, hidden)
        )
        return (statistics, statistics, difference, *biases)
