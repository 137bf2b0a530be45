"""Windows that slide over a map: padding, and how many windows fit; shared by convolution and pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from perfmodel.layers.checks import check_choice, check_flag, refuse
from perfmodel.layers.shapes import Shape, ShapeMismatchError, shape_text

Pair = tuple[int, int]
"""Height and width [1]."""
Size = int | Pair
"""One extent for both dimensions, or (height, width) [1]."""
Padding = str | int | tuple[Pair, Pair]
"""``valid``, ``same``, one number for all sides, or ((before, after) of height, (before, after) of width)."""

PADDING_RULES = ("valid", "same")


def _is_pair(given: object) -> bool:
    return isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 2


def as_pair(argument: str, given: Size) -> Pair:
    """Return an extent as (height, width); raise ArgumentError unless both are whole numbers >= 1.

    Examples
    --------
    >>> as_pair("stride", 2), as_pair("kernel_size", (3, 1))
    ((2, 2), (3, 1))
    """
    pair = cast("Pair", tuple(cast("Pair", given)) if _is_pair(given) else (given, given))
    for extent in pair:
        if isinstance(extent, bool) or not isinstance(extent, int) or extent < 1:
            allowed = "must be a whole number >= 1, or a pair (height, width) of them"
            refuse(argument, given, allowed)
    return pair


def _as_padding(given: Padding) -> str | tuple[Pair, Pair]:
    """Return a padding rule's name, or explicit zeros around each dimension."""
    if isinstance(given, str):
        check_choice("padding", given, PADDING_RULES)
        return given
    if _is_pair(given) and all(_is_pair(side) for side in cast("tuple[Pair, Pair]", given)):
        height, width = cast("tuple[Pair, Pair]", given)
        sides = (cast("Pair", tuple(height)), cast("Pair", tuple(width)))
    else:
        sides = ((cast("int", given),) * 2,) * 2
    for zeros in (*sides[0], *sides[1]):
        if isinstance(zeros, bool) or not isinstance(zeros, int) or zeros < 0:
            allowed = "must be 'valid', 'same', a whole number >= 0, or ((top, bottom), (left, right))"
            refuse("padding", given, allowed)
    return sides


@dataclass(frozen=True, slots=True)
class Window:
    """How a window slides over a map of (height, width).

    Parameters
    ----------
    kernel_size, stride, dilation : tuple of int
        Taps, step between windows, and step between taps, by (height, width). [1]
    padding : str or tuple
        ``valid``: none; ``same``: as TensorFlow, just enough for ceil(input / stride) windows, the odd zero
        at the end; or explicit zeros. [-]
    ceil_mode : bool
        Whether a last window that overhangs the padded map counts (if it starts inside). [-]
    """

    kernel_size: Pair
    stride: Pair
    padding: str | tuple[Pair, Pair]
    dilation: Pair = (1, 1)
    ceil_mode: bool = False

    @classmethod
    def of(
        cls, *, kernel_size: Size, stride: Size, padding: Padding, dilation: Size = 1, ceil_mode: bool = False
    ) -> Window:
        """Return a window from options as people write them; raise ArgumentError for senseless ones."""
        check_flag("ceil_mode", ceil_mode)
        return cls(
            as_pair("kernel_size", kernel_size),
            as_pair("stride", stride),
            _as_padding(padding),
            as_pair("dilation", dilation),
            ceil_mode,
        )

    def zeros(self, map_size: Shape) -> tuple[Pair, Pair]:
        """Return the zeros before and after each dimension of a map [1].

        Examples
        --------
        >>> Window.of(kernel_size=11, stride=4, padding="same").zeros((224, 224))  # 56 windows span 231
        ((3, 4), (3, 4))
        """
        if self.padding == "valid":
            return ((0, 0), (0, 0))
        if self.padding == "same":
            return cast("tuple[Pair, Pair]", tuple(map(_same_zeros, map_size, self._extent, self.stride)))
        return cast("tuple[Pair, Pair]", self.padding)

    def output_size(self, map_size: Shape) -> Pair:
        """Return how many windows fit along each dimension; raise ShapeMismatchError where none does [1].

        Examples
        --------
        >>> Window.of(kernel_size=3, stride=2, padding="valid").output_size((54, 54))
        (26, 26)
        >>> Window.of(kernel_size=3, stride=2, padding="valid", ceil_mode=True).output_size((54, 54))
        (27, 27)
        """
        zeros = self.zeros(map_size)
        padded = tuple(size + sum(around) for size, around in zip(map_size, zeros, strict=True))
        extent = self._extent
        if any(span > size for span, size in zip(extent, padded, strict=True)):
            problem = (
                f"its window spans {shape_text(extent)} (kernel {shape_text(self.kernel_size)}, dilation "
                f"{shape_text(self.dilation)}) and is larger than its input {shape_text(map_size)}, "
                f"{shape_text(padded)} with padding"
            )
            raise ShapeMismatchError(problem)
        along = zip(map_size, padded, zeros, extent, self.stride, strict=True)
        return cast("Pair", tuple(self._windows(*dimension) for dimension in along))

    def taps_inside(self, map_size: Shape) -> int:
        """Return the taps of all windows that lie on the map, neither on padding nor beyond its end [1].

        Examples
        --------
        >>> Window.of(kernel_size=3, stride=2, padding="valid", ceil_mode=True).taps_inside((56, 56))  # (27 * 3 + 2)^2
        6889
        """
        along = zip(map_size, self.output_size(map_size), self.zeros(map_size), range(2), strict=True)
        return math.prod(self._taps_along(axis, size, windows, before) for size, windows, (before, _), axis in along)

    def _taps_along(self, axis: int, size: int, windows: int, before: int) -> int:
        """Sum over the windows along one dimension of their taps on the map."""
        taps, stride, dilation = self.kernel_size[axis], self.stride[axis], self.dilation[axis]
        starts = (window * stride - before for window in range(windows))
        return sum(0 <= start + tap * dilation < size for start in starts for tap in range(taps))

    @property
    def _extent(self) -> Pair:
        """Distance a window spans, its gaps included [1]."""
        (height, width), (down, across) = self.kernel_size, self.dilation
        return (height - 1) * down + 1, (width - 1) * across + 1

    def _windows(self, size: int, padded: int, zeros: Pair, extent: int, stride: int) -> int:
        room = padded - extent
        if not self.ceil_mode:
            return room // stride + 1
        count = -(-room // stride) + 1
        return count - 1 if (count - 1) * stride >= size + zeros[0] else count


def _same_zeros(size: int, extent: int, stride: int) -> Pair:
    windows = -(-size // stride)
    zeros = max((windows - 1) * stride + extent - size, 0)
    return zeros // 2, zeros - zeros // 2
