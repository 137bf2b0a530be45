"""Layers over maps of one, two or three axes, and how torch and ONNX write their windows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from perfmodel.layers.base import Layer
from perfmodel.layers.shapes import Shape
from perfmodel.layers.translation import Operand, OperatorCall, Translation
from perfmodel.layers.window import Pair, Window

MAP_LETTERS = {1: ("C", "L"), 2: ("C", "H", "W"), 3: ("C", "D", "H", "W")}
"""Number of axes of a map -> letters for the extents of a sample."""


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

    family: ClassVar[str]
    """Kind without the number of axes [-]."""
    symbolic_options: ClassVar[Mapping[str, Any]]
    """Options for which the documentation prints counts [-]."""
    torch_names: ClassVar[tuple[str, ...]]
    """Its operators in torch, perhaps with a placeholder for the axes [-]."""
    onnx_names: ClassVar[tuple[str, ...]]
    """Its operators in ONNX [-]."""
    axis_count: ClassVar[int]
    """Axes of a map [1]."""

    def __init_subclass__(cls, *, axis_count: int | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if axis_count is not None:
            cls.axis_count, cls.kind = axis_count, f"{cls.family}_{axis_count}d"
            cls.symbolic_example = (cls.symbolic_options, (MAP_LETTERS[axis_count],))
            cls.torch_operators = dict.fromkeys([name.format(axis_count) for name in cls.torch_names], cls.from_torch)
            cls.onnx_operators = dict.fromkeys(cls.onnx_names, cls.from_onnx)

    @classmethod
    @abstractmethod
    def from_torch(cls, call: OperatorCall) -> Translation | None:
        """Return the layer as torch calls it; None for another kind, and for maps of other axes."""

    @classmethod
    @abstractmethod
    def from_onnx(cls, call: OperatorCall) -> Translation | None:
        """Return the layer as ONNX writes it; None for maps of other axes."""
