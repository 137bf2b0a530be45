"""Layers that draw random numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from perfmodel.layers.activation import Sigmoid
from perfmodel.layers.base import Checks, Layer, LayerByInput, OnePassLayer, Operations, Traffic, layer_kind
from perfmodel.layers.checks import numbered
from perfmodel.layers.passes import MASK_BYTES, elementwise, one_pass
from perfmodel.layers.shapes import Shape, Shapes, check_equal, check_rank
from perfmodel.layers.translation import OperatorCall, Operators, Translation, of_first
from perfmodel.layers.view import Reshape
from perfmodel.records import Contraction, Role


def _from_call(call: OperatorCall) -> Translation:
    rate = call.get("p", call.get("ratio", 0.5))
    is_training = call.get("train", True) if "." in call.operator else bool(call.get("training_mode", False))
    layer = Dropout(rate=rate) if is_training and rate else Reshape(shape=tuple(call.operands[0].shape))
    return of_first(call, layer)


@layer_kind("dropout")
class Dropout(OnePassLayer):
    """Zero a fraction of the elements at random and scale up the others, as in training.

    Parameters
    ----------
    rate : float
        Fraction dropped, in [0, 1). [1]

    Notes
    -----
    Forward 2 FLOP per element (compare a random number, multiply), writes y and a mask of 1 B per element;
    backward 1 FLOP (multiply), reads dy and the mask. Ignores: making the random numbers.
    """

    operators: ClassVar[Operators] = dict.fromkeys(("aten.dropout", "aten.native_dropout", "Dropout"), _from_call)
    keeps_inputs: ClassVar[bool] = False
    rate: float = 0.5

    def at_inference(self, input_shapes: Shapes) -> Layer:
        """Return a layer that does nothing."""
        return Reshape(shape=tuple(input_shapes[0]))

    def saved_bytes(self, input_shapes: Shapes, *, batch_size: Any, element_bytes: int) -> Any:
        """Return the mask [B]."""
        return MASK_BYTES * batch_size * math.prod(input_shapes[0])

    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[Traffic, Traffic]:
        """Return a pass that reads x and writes y and the mask, and one that reads dy and the mask and writes dx."""
        elements = batch_size * math.prod(input_shapes[0])
        mask_bytes = MASK_BYTES * elements
        return (
            {"read": elements, "written": elements, "flop": 2 * elements, "written_index_bytes": mask_bytes},
            {"read": elements, "written": elements, "flop": elements, "read_index_bytes": mask_bytes},
        )


@layer_kind("gaussian_sample")
class GaussianSample(LayerByInput):
    """z = m + exp(v / 2) e with the mean m and the logarithm of the variance v as inputs and e drawn N(0, 1).

    Notes
    -----
    Forward draws e, one element written each, then reads m, v and e and writes z and the standard deviation s:
    multiply, exp, multiply, add: 4 FLOP per element. Backward dm = dz, passed on, and dv = dz s e / 2: 3 FLOP per
    element, reads dz, s and e. Both e and s are kept. Ignores: making the random numbers.

    References
    ----------
    .. [1] Kingma, Welling, Auto-encoding variational Bayes, ICLR 2014, arXiv:1312.6114, section 2.4.
    """

    input_counts: ClassVar[tuple[int, int | None]] = (2, 2)
    keeps_inputs: ClassVar[bool] = False

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the shape of the mean."""
        check_equal(input_shapes)
        return tuple(input_shapes[0])

    def saved_bytes(self, input_shapes: Shapes, *, batch_size: Any, element_bytes: int) -> Any:
        """Return the random numbers and standard deviations [B]."""
        return 2 * element_bytes * batch_size * math.prod(input_shapes[0])

    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return the drawing, and one pass that makes the sample."""
        elements = batch_size * math.prod(input_shapes[0])
        return (
            elementwise("random_normal", elements, reads=0),
            elementwise("gaussian_sample", elements, reads=3, writes=2, flop_per_element=4),
        )

    def gradient_operations(self, input_shapes: Shapes, *, batch_size: Any, wanted: Sequence[bool]) -> Operations:
        """Return the pass that makes the gradient of v, if it is needed."""
        elements = batch_size * math.prod(input_shapes[0])
        one = elementwise("gaussian_sample", elements, reads=3, flop_per_element=3, role=Role.INPUT_GRADIENT)
        return (one,) if wanted[1] else ()


@layer_kind("contrastive_divergence")
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

    index_inputs: ClassVar[tuple[int, ...]] = (0,)
    keeps_output: ClassVar[bool] = True
    is_loss: ClassVar[bool] = True
    checks: ClassVar[Checks] = {"steps": numbered()}
    hidden_units: int
    steps: int = 1

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return (hidden_units,)."""
        check_rank(input_shapes[0], ("visible units",))
        return (self.hidden_units,)

    def parameter_shapes(self, input_shapes: Shapes) -> dict[str, Shape]:
        """Return the weights, which both directions share, and the biases of both layers."""
        (visible,) = input_shapes[0]
        return {
            "weight": (visible, self.hidden_units),
            "visible_bias": (visible,),
            "hidden_bias": (self.hidden_units,),
        }

    def saved_bytes(self, input_shapes: Shapes, *, batch_size: Any, element_bytes: int) -> Any:
        """Return the last reconstruction and its hidden units [B]."""
        (visible,) = input_shapes[0]
        return element_bytes * batch_size * (visible + self.hidden_units)

    def forward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
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

    def backward_operations(self, input_shapes: Shapes, *, batch_size: Any) -> Operations:
        """Return the statistics of data and reconstruction, and their differences."""
        (visible,) = input_shapes[0]
        hidden = self.hidden_units
        statistics = Contraction(m=visible, n=hidden, k=batch_size, role=Role.WEIGHT_GRADIENT)
        difference = elementwise("subtract", visible * hidden, reads=2, flop_per_element=1, role=Role.WEIGHT_GRADIENT)
        biases = (
            one_pass(
                "bias_gradient",
                read=2 * batch_size * units,
                written=units,
                tensor=batch_size * units,
                flop=2 * batch_size * units,
                role=Role.WEIGHT_GRADIENT,
            )
            for units in (visible, hidden)
        )
        return (statistics, statistics, difference, *biases)
