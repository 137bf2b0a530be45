"""Windows that slide over maps of any number of axes: padding and number, layers over maps, torch's and ONNX's words.

Every count is a closed form, for numbers and for symbolic maps and options alike: along an axis of n
elements with b zeros before it, ceil((n + b + c) / stride) windows fit, where c follows from window and padding alone.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from perfmodel.layers.base import Layer
from perfmodel.layers.checks import check_choice, check_flag, is_open_size, refuse
from perfmodel.layers.shapes import IMAGE, Shape, check_rank, mismatch, shape_text
from perfmodel.layers.translation import Operand, OperatorCall, Translation
from perfmodel.numeric import maximum, minimum
from perfmodel.symbolic import is_symbolic

Pair = tuple[int, int]
"""Before and after [1]."""
Size = int | tuple[int, ...]
"""One extent for all axes of a map, or one extent per axis, e.g. (height, width) [1]."""
Padding = str | int | tuple[Pair, ...]
"""``valid``, ``same``, one number for all sides, or (before, after) for each axis."""

PADDING_RULES = ("valid", "same")
MAP_LAYOUTS = {1: ("channels", "length"), 2: IMAGE, 3: ("channels", "depth", "height", "width")}
"""Number of axes of a map -> axes of a sample."""


def check_map(shape: Shape, axis_count: int) -> None:
    """Raise ShapeMismatchError unless a sample is one or several images: channels of maps with that many axes.

    Examples
    --------
    >>> check_map((3, 224, 224), 2)
    """
    layout = MAP_LAYOUTS[axis_count]
    check_rank(shape, layout, ("images", *layout))


def _has_length(value: object, length: int) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and len(value) == length


def _is_count(value: object, minimum_count: int) -> bool:
    """Return whether a value is a whole number of at least the minimum, or a symbol for one."""
    if is_open_size(value):
        return True
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum_count


def as_sizes(argument: str, stated: Size, *, axis_count: int, least: int = 1) -> tuple[int, ...]:
    """Return one extent for each axis of a map; raise ArgumentError unless all are whole numbers.

    Examples
    --------
    >>> as_sizes("stride", 2, axis_count=2), as_sizes("kernel_size", (3, 1), axis_count=2)
    ((2, 2), (3, 1))
    """
    sizes = tuple(cast("tuple[int, ...]", stated)) if _has_length(stated, axis_count) else (cast("int", stated),)
    for extent in sizes:
        if not _is_count(extent, least):
            axes = ", ".join(MAP_LAYOUTS[axis_count][1:])
            refuse(argument, stated, f"must be a whole number >= {least}, or one for each of ({axes})")
    return sizes * axis_count if len(sizes) < axis_count else sizes


def _as_padding(padding: Padding, *, axis_count: int) -> str | tuple[Pair, ...]:
    """Return a padding rule's name, or explicit zeros around each axis."""
    if isinstance(padding, str):
        check_choice("padding", padding, PADDING_RULES)
        return padding
    if _has_length(padding, axis_count) and all(_has_length(side, 2) for side in cast("tuple[Pair, ...]", padding)):
        sides = tuple(cast("Pair", tuple(side)) for side in cast("tuple[Pair, ...]", padding))
    else:
        sides = ((cast("int", padding),) * 2,) * axis_count
    for zeros in (zeros for side in sides for zeros in side):
        if not _is_count(zeros, 0):
            axes = ", ".join(MAP_LAYOUTS[axis_count][1:])
            allowed = f"must be 'valid', 'same', a whole number >= 0, or (before, after) for each of {axes}"
            refuse("padding", padding, allowed)
    return sides


@dataclass(frozen=True, slots=True)
class Window:
    """A window that slides over a map.

    Parameters
    ----------
    kernel_size, stride, dilation : tuple of int
        Taps, step between windows, and step between taps, by axis, e.g. (height, width). [1]
    padding : str or tuple
        ``valid``: none; ``same``: as in TensorFlow, just enough for ceil(input / stride) windows, an odd zero
        at the end; or explicit zeros. [-]
    ceil_mode : bool
        Whether a last window that starts inside the padded map but extends beyond it counts. [-]
    """

    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: str | tuple[Pair, ...]
    dilation: tuple[int, ...] = (1, 1)
    ceil_mode: bool = False

    @classmethod
    def of(
        cls,
        *,
        axis_count: int,
        kernel_size: Size,
        stride: Size,
        padding: Padding,
        dilation: Size = 1,
        ceil_mode: bool = False,
    ) -> Window:
        """Return a window from options in any accepted form; raise ArgumentError for invalid ones."""
        check_flag("ceil_mode", ceil_mode)
        return cls(
            as_sizes("kernel_size", kernel_size, axis_count=axis_count),
            as_sizes("stride", stride, axis_count=axis_count),
            _as_padding(padding, axis_count=axis_count),
            as_sizes("dilation", dilation, axis_count=axis_count),
            ceil_mode,
        )

    @property
    def extent(self) -> tuple[int, ...]:
        """Extent of a window along each axis, including the gaps between its taps [1]."""
        return tuple((taps - 1) * step + 1 for taps, step in zip(self.kernel_size, self.dilation, strict=True))

    def zeros(self, map_size: Shape) -> tuple[Pair, ...]:
        """Return the zeros before and after each axis of a map [1].

        Examples
        --------
        >>> Window.of(axis_count=2, kernel_size=11, stride=4, padding="same").zeros((224, 224))  # 56 windows span 231
        ((3, 4), (3, 4))
        """
        if self.padding == "valid":
            return ((0, 0),) * len(map_size)
        if self.padding == "same":
            return tuple(map(_same_zeros, map_size, self.extent, self.stride))
        return cast("tuple[Pair, ...]", self.padding)

    def output_size(self, map_size: Shape) -> tuple[int, ...]:
        """Return the number of windows that fit along each axis; raise ShapeMismatchError if none does [1].

        Examples
        --------
        >>> Window.of(axis_count=2, kernel_size=3, stride=2, padding="valid").output_size((54, 54))
        (26, 26)
        >>> Window.of(axis_count=2, kernel_size=3, stride=2, padding="valid", ceil_mode=True).output_size((54, 54))
        (27, 27)
        """
        zeros = self.zeros(map_size)
        along = zip(range(len(map_size)), map_size, zeros, strict=True)
        counts = tuple(
            rounded_up(size + around[0] + self._offset(axis, around), self.stride[axis]) for axis, size, around in along
        )
        if any(not is_open_size(count) and count < 1 for count in counts):
            padded = tuple(size + sum(around) for size, around in zip(map_size, zeros, strict=True))
            mismatch(
                f"its window spans {shape_text(self.extent)} (kernel {shape_text(self.kernel_size)}, dilation "
                f"{shape_text(self.dilation)}) and is larger than its input {shape_text(map_size)}, "
                f"{shape_text(padded)} with padding"
            )
        return counts

    def taps_inside(self, map_size: Shape) -> int:
        """Return the number of taps of all windows on the map itself, without padding and beyond its end [1].

        Examples
        --------
        >>> window = Window.of(axis_count=2, kernel_size=3, stride=2, padding="valid", ceil_mode=True)
        >>> window.taps_inside((56, 56))  # (27 * 3 + 2)^2
        6889
        """
        along = zip(range(len(map_size)), map_size, self.output_size(map_size), self.zeros(map_size), strict=True)
        return math.prod(self._taps_along(axis, size, windows, around) for axis, size, windows, around in along)

    def _offset(self, axis: int, zeros: Pair) -> int:
        """Return c of ceil((n + before + c) / stride), the number of windows along an axis of n elements.

        The last window is the last that lies wholly on the padded map or, in ceil mode, the first that does not, unless
        it would start beyond the map and the zeros before it.
        """
        before, after = zeros
        if self.padding == "same":
            return -before
        overhang = after - self.extent[axis]
        return _least(overhang + self.stride[axis], 0) if self.ceil_mode else overhang + 1

    def _taps_along(self, axis: int, size: int, windows: int, zeros: Pair) -> int:
        """Return the number of pairs of window and tap along one axis whose tap lies on the map."""
        taps, stride, dilation, (before, _) = self.kernel_size[axis], self.stride[axis], self.dilation[axis], zeros
        if zeros == (0, 0) and not self.ceil_mode:
            return windows * taps
        offset = self._offset(axis, zeros)

        def count(position: Any) -> Any:
            first = _most(rounded_up(before - position, stride), 0)
            end = before + _least(offset, -position)
            inside, of_one = (rounded_up(start + end, stride) - first for start in (size, 1))
            # counts grow with the map: one that is not negative for a map of one element needs no bound
            return inside if not is_open_size(of_one) and of_one >= 0 else _most(inside, 0)

        return sum(count(tap * dilation) for tap in range(taps))


def rounded_up(total: Any, divisor: Any) -> Any:
    """Return the quotient of two whole numbers, or symbols for them, rounded up [1].

    Examples
    --------
    >>> rounded_up(7, 2)
    4
    """
    if not is_symbolic(total, divisor):
        return -(-total // divisor)
    import sympy

    return sympy.ceiling(total / divisor)


def _least(first: Any, second: Any) -> Any:
    """Return the smaller of two numbers, or of two expressions whose difference is known."""
    difference = first - second
    if is_open_size(difference):
        return minimum(first, second)
    return first if difference <= 0 else second


def _most(first: Any, second: Any) -> Any:
    """Return the larger of two numbers, or of two expressions whose difference is known."""
    difference = first - second
    if is_open_size(difference):
        return maximum(first, second)
    return first if difference >= 0 else second


def _same_zeros(size: int, extent: int, stride: int) -> Pair:
    zeros = _most((rounded_up(size, stride) - 1) * stride + extent - size, 0)
    return zeros // 2, zeros - zeros // 2


def holds_maps(operand: Operand, axis_count: int) -> bool:
    """Return whether the last axes of a tensor, and of its samples, are channels and a map of ``axis_count`` axes.

    Examples
    --------
    >>> holds_maps(Operand(key="x", shape=(3, 224, 224), axes=(None, 0, 1, 2)), 2)
    True
    """
    rank, used = len(operand.shape), axis_count + 1
    return rank >= used and operand.axes[-used:] == tuple(range(rank - used, rank))


def by_axis(value: Any, axis_count: int) -> tuple[int, ...]:
    """Return torch's extents, which may be one number or a list of one for all axes, by axis [1].

    Examples
    --------
    >>> by_axis((3,), 2), by_axis(3, 2), by_axis((3, 1), 2)
    ((3, 3), (3, 3), (3, 1))
    """
    extents = tuple(value) if isinstance(value, Sequence) else (value,)
    return extents * axis_count if len(extents) == 1 else extents


def both_sides(zeros: Sequence[int]) -> tuple[Pair, ...]:
    """Return the same zeros before and after each axis [1].

    Examples
    --------
    >>> both_sides((1, 0))
    ((1, 1), (0, 0))
    """
    return tuple((size, size) for size in zeros)


def torch_pooling_options(call: OperatorCall, axis_count: int) -> dict[str, Any]:
    """Return the options of a pooling as torch calls it; without a stride it is the kernel's extent [-]."""
    kernel_size = by_axis(call["kernel_size"], axis_count)
    stride = call.get("stride")
    return {
        "kernel_size": kernel_size,
        "stride": by_axis(stride, axis_count) if stride not in (None, ()) else kernel_size,
        "padding": both_sides(by_axis(call.get("padding", 0), axis_count)),
        "dilation": by_axis(call.get("dilation", 1), axis_count),
        "ceil_mode": bool(call.get("ceil_mode", False)),
    }


def onnx_pads(pads: Sequence[int]) -> tuple[Pair, ...]:
    """Return (before, after) for each axis of ONNX's list of all starts, then all ends [1].

    Examples
    --------
    >>> onnx_pads((1, 2, 3, 4))
    ((1, 3), (2, 4))
    """
    half = len(pads) // 2
    return tuple(zip(pads[:half], pads[half:], strict=True))


def onnx_window_options(call: OperatorCall, *, kernel_size: Sequence[int], map_size: Shape) -> dict[str, Any]:
    """Return the options of a window as ONNX writes them: strides, dilations, and pads or a rule for them."""
    ones = (1,) * len(kernel_size)
    options: dict[str, Any] = {
        "kernel_size": tuple(kernel_size),
        "stride": tuple(call.get("strides", ones)),
        "dilation": tuple(call.get("dilations", ones)),
    }
    return options | {"padding": _onnx_padding(call, options, map_size)}


def _onnx_padding(call: OperatorCall, options: Mapping[str, Any], map_size: Shape) -> str | tuple[Pair, ...]:
    rule = call.get("auto_pad", "NOTSET")
    if rule == "VALID":
        return "valid"
    if rule == "SAME_UPPER":
        return "same"
    if rule == "SAME_LOWER":
        # as SAME_UPPER, but an odd zero comes first
        same = Window.of(axis_count=len(map_size), padding="same", **options)
        return tuple((after, before) for before, after in same.zeros(map_size))
    return onnx_pads(tuple(call.get("pads", (0,) * 2 * len(map_size))))


@dataclass(frozen=True, kw_only=True)
class OverMaps(Layer):
    """A family of layers over maps: ``class MaxPool2d(MaxPool, axis_count=2)`` is its kind for maps of two axes."""

    torch_names: ClassVar[tuple[str, ...]]
    """Its operators in torch, perhaps with a placeholder for the axes [-]."""
    onnx_names: ClassVar[tuple[str, ...]]
    """Its operators in ONNX [-]."""
    axis_count: ClassVar[int]
    """Axes of a map [1]."""

    def __init_subclass__(cls, *, axis_count: int | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if axis_count is not None:
            cls.axis_count = axis_count
            of_torch = dict.fromkeys([name.format(axis_count) for name in cls.torch_names], cls.from_torch)
            cls.operators = of_torch | dict.fromkeys(cls.onnx_names, cls.from_onnx)

    @classmethod
    @abstractmethod
    def from_torch(cls, call: OperatorCall) -> Translation | None:
        """Return the layer as torch calls it; None for another kind, and for maps of other axes."""

    @classmethod
    @abstractmethod
    def from_onnx(cls, call: OperatorCall) -> Translation | None:
        """Return the layer as ONNX writes it; None for maps of other axes."""
