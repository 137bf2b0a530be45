"""What softmax and its logarithm share: one axis, its check, and how calls of other programs name it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.layers.base import Layer
from perfmodel.layers.checks import check_axis
from perfmodel.layers.shapes import Shape, axis_in
from perfmodel.layers.translation import Operand, Translation


@dataclass(frozen=True, kw_only=True)
class AlongAxis(Layer):
    """A distribution along one axis, whose back-propagation reads the output.

    Parameters
    ----------
    axis : int
        Axis of a sample; negative counts from the last. [-]
    """

    keeps_inputs: ClassVar[bool] = False
    keeps_output: ClassVar[bool] = True
    axis: int = -1

    def __post_init__(self) -> None:
        check_axis("axis", self.axis)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the input's shape."""
        axis_in(input_shapes[0], self.axis)
        return input_shapes[0]


def along(kind: type[AlongAxis], operand: Operand, axis: int) -> Translation | None:
    """Return a layer along an axis of a full tensor; None where that is the batch.

    Parameters
    ----------
    kind : type
        The layer's class. [-]
    operand : Operand
        What it reads. [-]
    axis : int
        Axis of the full tensor. [-]

    Returns
    -------
    Translation or None
        The layer and its input. [-]
    """
    place = operand.sample_axis(axis)
    return None if place is None else Translation(layer=kind(axis=place), inputs=(operand,))
