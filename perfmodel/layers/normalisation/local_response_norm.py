"""Local response normalisation across channels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_count, is_open_size
from perfmodel.layers.passes import elementwise
from perfmodel.layers.shapes import IMAGE, Shape, check_rank
from perfmodel.layers.translation import OperatorCall, Translation, Translator
from perfmodel.records import Operation, Role

FORWARD_FLOP = 4
"""Per element, besides one for each neighbour [FLOP]."""
BACKWARD_FLOP = 6
"""Per element, besides one for each neighbour [FLOP]."""


def _from_onnx(call: OperatorCall) -> Translation:
    return Translation(layer=LocalResponseNorm(size=call["size"]), inputs=(call["0"],))


@final
@dataclass(frozen=True, kw_only=True)
class LocalResponseNorm(Layer):
    """y = x s^-beta with s = k + (alpha / size) times the sum of x^2 over ``size`` neighbouring channels.

    Parameters
    ----------
    size : int
        Channels in a neighbourhood; it is clipped at the first and the last channel, so it may also be larger than
        the number of channels; where either is left open it is taken to be smaller. [1]

    Notes
    -----
    n neighbours in the clipped neighbourhood of an element. Forward, per element: square, n - 1 adds, multiply, add,
    power, multiply: n + 4 FLOP; reads x, writes y and s. Backward dx = dy s^-beta - c x sum(dy y / s): power,
    multiply; multiply, divide, n - 1 adds; two multiplies, subtract: n + 6 FLOP; reads x, y, s and dy.

    References
    ----------
    .. [1] Krizhevsky, Sutskever, Hinton, ImageNet classification with deep convolutional neural networks,
       NIPS 2012, section 3.3.
    """

    kind: ClassVar[str] = "local_response_norm"
    examples: ClassVar[Examples] = (({"size": 3}, ((4, 9, 9),)),)
    symbolic_example: ClassVar[SymbolicExample] = ({}, (("C", "H", "W"),))
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"LRN": _from_onnx}
    keeps_output: ClassVar[bool] = True
    size: int = 5

    def __post_init__(self) -> None:
        check_count("size", self.size)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return the input's shape."""
        check_rank(input_shapes[0], IMAGE)
        return input_shapes[0]

    def _neighbours(self, shape: Shape) -> Any:
        """Return the neighbours of all elements of a sample, each element among its own [1]."""
        channels, *map_size = shape
        reaches = [self.size // 2, self.size - 1 - self.size // 2]
        if not is_open_size(channels) and not is_open_size(self.size):
            reaches = [min(reach, channels - 1) for reach in reaches]
        # at a distance d there are C - d pairs of channels, on either side
        pairs = sum(reach * channels - reach * (reach + 1) // 2 for reach in reaches)
        return math.prod(map_size) * (channels + pairs)

    def saved_bytes(self, input_shapes: tuple[Shape, ...], *, batch_size: Any, element_bytes: int) -> Any:
        """Return the sums s [B]."""
        return element_bytes * batch_size * math.prod(input_shapes[0])

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads x and writes y and s."""
        elements = batch_size * math.prod(input_shapes[0])
        summed = batch_size * self._neighbours(input_shapes[0])
        one = elementwise("local_response_norm", elements, writes=2, flop_per_element=FORWARD_FLOP)
        return (replace(one, flop_count=one.flop_count + summed),)

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads x, y, s and dy and writes dx."""
        elements = batch_size * math.prod(input_shapes[0])
        summed = batch_size * self._neighbours(input_shapes[0])
        one = elementwise(
            "local_response_norm", elements, reads=4, flop_per_element=BACKWARD_FLOP, role=Role.INPUT_GRADIENT
        )
        return (replace(one, flop_count=one.flop_count + summed),)
