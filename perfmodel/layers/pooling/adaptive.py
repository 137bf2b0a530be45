"""What adaptive poolings share: windows that divide a map of any size into so many parts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from perfmodel.layers.base import Layer
from perfmodel.layers.checks import check_count, is_open_size
from perfmodel.layers.shapes import Shape, ShapeMismatchError, shape_text
from perfmodel.layers.translation import OperatorCall, Translation
from perfmodel.layers.window import Size
from perfmodel.layers.window_operators import by_axis, holds_maps


@dataclass(frozen=True, kw_only=True)
class AdaptivePooling(Layer):
    """One number for each of so many parts of each map, whatever its size.

    Parameters
    ----------
    output_size : int or tuple of int
        Parts by axis, for the last axes of a sample; a number for all axes but the first, the channels. [1]

    Notes
    -----
    Part i of o along n elements reaches from floor(i n / o) to ceil((i + 1) n / o); where o does not divide n, parts
    overlap, and have n + o - gcd(n, o) elements together.
    """

    output_size: Size

    def __post_init__(self) -> None:
        for size in self.output_size if isinstance(self.output_size, tuple) else (self.output_size,):
            check_count("output_size", size)

    def _sizes(self, shape: Shape) -> tuple[int, ...]:
        return self.output_size if isinstance(self.output_size, tuple) else (self.output_size,) * (len(shape) - 1)

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return (channels, parts)."""
        shape, sizes = input_shapes[0], self._sizes(input_shapes[0])
        if not 0 < len(sizes) < len(shape):
            problem = f"pools maps of channels into {self.output_size} parts, but its input is {shape_text(shape)}"
            raise ShapeMismatchError(problem)
        return (*shape[: -len(sizes)], *sizes)

    def _counts(self, input_shapes: tuple[Shape, ...], batch_size: Any) -> tuple[Any, Any, Any]:
        """Return elements of input and output, and of all parts together."""
        shape, sizes = input_shapes[0], self._sizes(input_shapes[0])
        leading, map_size = shape[: -len(sizes)], shape[-len(sizes) :]
        taps = math.prod(
            size + parts - _common_divisor(size, parts) for size, parts in zip(map_size, sizes, strict=True)
        )
        outputs = math.prod(self.output_shape(input_shapes))
        return batch_size * math.prod(shape), batch_size * outputs, batch_size * math.prod(leading) * taps


def _common_divisor(first: Any, second: Any) -> Any:
    """Return the greatest common divisor; of a number and an open size as a sum over the number's divisors.

    gcd(n, m) is the sum of phi(d), the numbers below d that share no divisor with it, over the d that divide both; d
    divides n where floor(n / d) and floor((n - 1) / d) differ.
    """
    if first == second:
        return first
    opened = [size for size in (first, second) if is_open_size(size)]
    if not opened:
        return math.gcd(first, second)
    if len(opened) == 2:
        problem = f"cannot divide {first} elements into {second} parts: one of them must be a number"
        raise ShapeMismatchError(problem)
    size, number = opened[0], second if opened[0] is first else first
    divisors = (divisor for divisor in range(1, number + 1) if number % divisor == 0)
    return sum(
        sum(math.gcd(each, divisor) == 1 for each in range(1, divisor + 1)) * (size // divisor - (size - 1) // divisor)
        for divisor in divisors
    )


def adaptive_from_torch(call: OperatorCall, kind: type[AdaptivePooling], *, axis_count: int) -> Translation | None:
    """Return an adaptive pooling over maps of so many axes as torch calls it.

    Parameters
    ----------
    call : OperatorCall
        The call, e.g. of ``aten._adaptive_avg_pool2d``. [-]
    kind : type
        The layer's class. [-]
    axis_count : int
        Axes of its maps. [1]

    Returns
    -------
    Translation or None
        None where the batch or no axis of a sample is pooled. [-]
    """
    if not holds_maps(call["self"], axis_count):
        return None
    return Translation(layer=kind(output_size=by_axis(call["output_size"], axis_count)), inputs=(call["self"],))
