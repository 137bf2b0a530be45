"""Layers that pad maps or resample them to another size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar

from perfmodel.layers.base import Checks, OnePassLayer, Traffic, layer_kind, of_options
from perfmodel.layers.checks import check_count, is_open_size, one_of, refuse
from perfmodel.layers.shapes import Shape, Shapes, mismatch, shape_text
from perfmodel.layers.translation import Operand, OperatorCall, Operators, Translation
from perfmodel.layers.window import Pair, Size, holds_maps, onnx_pads
from perfmodel.numeric import minimum
from perfmodel.symbolic import is_symbolic

CONSTANT = "constant"
COPIES = ("reflect", "replicate", "wrap")
"""Padding modes that copy elements; gradients of copies are added to those of the originals."""
TORCH_PADS = {
    "aten.constant_pad_nd": CONSTANT,
    **{f"aten.reflection_pad{axes}d": "reflect" for axes in (1, 2, 3)},
    **{f"aten.replication_pad{axes}d": "replicate" for axes in (1, 2, 3)},
}
"""Operator of torch -> mode."""
ONNX_MODES = {"constant": CONSTANT, "reflect": "reflect", "edge": "replicate", "wrap": "wrap"}


def _from_pairs(data: Operand, by_axis: Mapping[int, Pair], mode: str) -> Translation | None:
    """Return the padding of full axes, counted from the start; None if the batch is padded."""
    pairs: list[Pair] = [(0, 0)] * len(data.shape)
    for axis, pair in by_axis.items():
        place = data.sample_axis(axis)
        if place is not None:
            pairs[place] = pair
        elif any(pair):
            return None
    return Translation(layer=Pad(padding=tuple(pairs), mode=mode), inputs=(data,))


def _from_torch_pad(call: OperatorCall) -> Translation | None:
    data, sizes = call["self"], call.get("pad", call.get("padding"))
    last = len(data.axes) - 1
    # torch counts axes from the last one
    by_axis = {last - index: sizes[2 * index : 2 * index + 2] for index in range(len(sizes) // 2)}
    return _from_pairs(data, by_axis, TORCH_PADS[call.operator])


def _from_onnx_pad(call: OperatorCall) -> Translation | None:
    data, pads, axes = call["0"], call.get("1"), call.get("3")
    pad_values = pads.value if isinstance(pads, Operand) else call.get("pads")
    mode = ONNX_MODES.get(call.get("mode", CONSTANT))
    if pad_values is None or mode is None or (axes is not None and axes.value is None):
        return None
    pairs = onnx_pads([int(pad) for pad in pad_values])
    places = range(len(pairs)) if axes is None else [int(axis) % len(data.axes) for axis in axes.value]
    return _from_pairs(data, dict(zip(places, pairs, strict=True)), mode)


@layer_kind("pad")
class Pad(OnePassLayer):
    """Elements added before and after each axis: a constant, or copies of those inside.

    Parameters
    ----------
    padding : tuple of tuple of int
        Elements (before, after) each axis of a sample, e.g. ((0, 0), (1, 1), (1, 1)) around an image; negative numbers
        crop. [1]
    mode : str
        ``constant``, ``reflect``, ``replicate`` or ``wrap``. [-]

    Notes
    -----
    n elements that stay, o outputs. Forward reads n, writes o. Backward, with a constant, reads and writes the n
    gradients of the elements that stayed; with copies it reads all o and adds o - n of them to the gradients of the
    copied elements. For copies torch keeps the input, although only its shape is needed.
    """

    operators: ClassVar[Operators] = {**dict.fromkeys(TORCH_PADS, _from_torch_pad), "Pad": _from_onnx_pad}
    checks: ClassVar[Checks] = {"mode": one_of((CONSTANT, *COPIES))}
    keeps_inputs: ClassVar[bool] = of_options(lambda layer: layer.mode != CONSTANT)
    padding: tuple[Pair, ...]
    mode: str = CONSTANT

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = "must be a tuple of (before, after), whole numbers, one pair for each axis of a sample"
        if not isinstance(self.padding, Sequence) or isinstance(self.padding, str):
            refuse("padding", self.padding, allowed)
        for pair in self.padding:
            is_pair = isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2
            if not is_pair or not all(is_open_size(pad) or type(pad) is int for pad in pair):
                refuse("padding", self.padding, allowed)

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return the input's shape with every axis extended by its padding."""
        shape = input_shapes[0]
        if len(shape) != len(self.padding):
            mismatch(f"pads samples of {len(self.padding)} axes, but its input is {shape_text(shape)}")
        padded = tuple(size + sum(pair) for size, pair in zip(shape, self.padding, strict=True))
        if any(not is_open_size(size) and size < 1 for size in padded):
            mismatch(f"its padding {self.padding} leaves nothing of its input {shape_text(shape)}")
        return padded

    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[Traffic, Traffic]:
        """Return a pass that reads the kept part of x and writes y, and one that reads dy and writes dx."""
        shape = input_shapes[0]
        stay = batch_size * math.prod(
            size + sum(map(_cut, pair)) for size, pair in zip(shape, self.padding, strict=True)
        )
        inputs, outputs = batch_size * math.prod(shape), batch_size * math.prod(self.output_shape(input_shapes))
        read, flop = (stay, 0) if self.mode == CONSTANT else (outputs, outputs - stay)
        return {"read": stay, "written": outputs}, {"read": read, "written": inputs, "tensor": outputs, "flop": flop}


def _cut(added: Any) -> Any:
    """Return the part of a padding that crops: itself if negative, otherwise zero."""
    return minimum(added, 0) if is_symbolic(added) else min(added, 0)


TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
"""Inputs along each axis that contribute to an output [1]."""
TORCH_UPSAMPLES = (
    *(f"aten.{name}{axes}d" for name in ("upsample_nearest", "_upsample_nearest_exact") for axes in (1, 2, 3)),
    *("aten.upsample_linear1d", "aten.upsample_bilinear2d", "aten.upsample_trilinear3d", "aten.upsample_bicubic2d"),
)
LARGEST_DENOMINATOR = 10_000
"""Factors are taken as the nearest fraction with at most this denominator: 0.7 is 7 / 10 [1]."""


def _from_torch_upsample(call: OperatorCall) -> Translation | None:
    maps, axis_count = call.get("self", call.get("input")), int(call.operator[-2])  # aten.upsample_nearest2d
    if not holds_maps(maps, axis_count):
        return None
    mode = next((mode for mode in TAPS if mode in call.operator), "linear")
    return Translation(layer=Upsample(output_size=call.output.shape[-axis_count:], mode=mode), inputs=(maps,))


def _from_onnx_upsample(call: OperatorCall) -> Translation | None:
    maps, mode = call["0"], call.get("mode", "nearest")
    axis_count = len(maps.axes) - 2
    if mode not in TAPS or call.get("antialias", 0) or axis_count < 1 or not holds_maps(maps, axis_count):
        return None
    chosen = tuple(int(axis) % len(maps.axes) for axis in call.get("axes", range(len(maps.axes))))
    # Upsample, and Resize before version 11: maps, scales; later: maps, region, scales, sizes
    scales, sizes = (call.get("1"), None) if call.get("2", call.get("3")) is None else (call.get("2"), call.get("3"))
    factors = _by_axis(scales, chosen) or _by_axis(call.get("scales"), chosen)
    extents = _by_axis(sizes, chosen)
    if any(factors.get(axis, 1) != 1 for axis in range(2)):
        return None
    if factors:
        scale_factor = tuple(factors.get(axis, 1.0) for axis in range(2, len(maps.axes)))
        return Translation(layer=Upsample(scale_factor=scale_factor, mode=mode), inputs=(maps,))
    unchanged = call.output.shape[-axis_count:]
    output_size = tuple(int(extents.get(axis + 2, size)) for axis, size in enumerate(unchanged))
    return Translation(layer=Upsample(output_size=output_size, mode=mode), inputs=(maps,))


def _by_axis(factors: Any, axes: tuple[int, ...]) -> dict[int, float]:
    """Return numbers of a constant or attribute by the axis of the full tensor; none if they are not known."""
    numbers = factors.value if isinstance(factors, Operand) else factors
    values = [] if numbers is None else [float(number) for number in numbers]
    return dict(zip(axes, values, strict=True)) if values else {}


@layer_kind("upsample")
class Upsample(OnePassLayer):
    """Maps resampled to another size: each output from the nearest input, or from 2 or 4 inputs along each axis.

    Parameters
    ----------
    output_size : int, tuple of int or None
        Extents for the last axes of a sample; a number for all axes but the first, the channels. [1]
    scale_factor : float, tuple of float or None
        Factors instead, rounded down to whole extents. [1]
    mode : str
        ``nearest``, ``linear`` or ``cubic``. [-]

    Notes
    -----
    o outputs, t taps (1, 2 or 4) along each of d axes. Forward interpolates axis by axis: t^(d - 1) + ... + 1 weighted
    sums of t terms, 2 t - 1 FLOP each; nothing for ``nearest``. Backward spreads each dy in the same order, t + ... +
    t^d multiplications (none for ``nearest``), and t^d adds into a cleared dx. Every tensor is read or written once.
    Ignores: finding the taps and weights, which all channels share.
    """

    keeps_inputs: ClassVar[bool] = False
    operators: ClassVar[Operators] = {
        **dict.fromkeys(TORCH_UPSAMPLES, _from_torch_upsample),
        "Resize": _from_onnx_upsample,
        "Upsample": _from_onnx_upsample,
    }
    checks: ClassVar[Checks] = {"mode": one_of(TAPS)}
    output_size: Size | None = None
    scale_factor: float | tuple[float, ...] | None = None
    mode: str = "nearest"

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.output_size is None) == (self.scale_factor is None):
            refuse("output_size", self.output_size, "must be given if scale_factor is not, and not with it")
        for size in _all(self.output_size):
            check_count("output_size", size)
        for factor in _all(self.scale_factor):
            is_number = isinstance(factor, int | float) and not isinstance(factor, bool) and 0 < factor < math.inf
            if not is_open_size(factor) and not is_number:
                refuse("scale_factor", self.scale_factor, "must be a number above 0, or a tuple of them")

    def output_shape(self, input_shapes: Shapes) -> Shape:
        """Return (channels, resampled map)."""
        shape = input_shapes[0]
        sizes: Any = self.scale_factor if self.output_size is None else self.output_size
        by_axis = sizes if isinstance(sizes, tuple) else (sizes,) * (len(shape) - 1)
        if not 0 < len(by_axis) < len(shape):
            mismatch(f"resamples maps of channels by {sizes}, but its input is {shape_text(shape)}")
        leading, map_size = shape[: -len(by_axis)], shape[-len(by_axis) :]
        if self.output_size is not None:
            return (*leading, *by_axis)
        resampled = tuple(_scaled(size, factor) for size, factor in zip(map_size, by_axis, strict=True))
        if any(not is_open_size(size) and size < 1 for size in resampled):
            mismatch(f"its factor {self.scale_factor} leaves nothing of its input {shape_text(shape)}")
        return (*leading, *resampled)

    def traffic(self, input_shapes: Shapes, *, batch_size: Any) -> tuple[Traffic, Traffic]:
        """Return a pass that reads x and writes y, and one that reads dy and writes dx."""
        sizes = self.scale_factor if self.output_size is None else self.output_size
        axes = len(sizes) if isinstance(sizes, tuple) else len(input_shapes[0]) - 1
        taps = TAPS[self.mode]
        sums = 0 if taps == 1 else sum(taps**axis for axis in range(axes))
        inputs = batch_size * math.prod(input_shapes[0])
        outputs = batch_size * math.prod(self.output_shape(input_shapes))
        return (
            {"read": inputs, "written": outputs, "flop": outputs * ((2 * taps - 1) * sums)},
            {"read": outputs, "written": inputs, "tensor": outputs, "flop": outputs * (taps * sums + taps**axes)},
        )


def _all(value: Any) -> tuple[Any, ...]:
    """Return the values of an option: none, one, or one for each axis."""
    return () if value is None else value if isinstance(value, tuple) else (value,)


def _scaled(size: Any, factor: Any) -> Any:
    """Return an extent times a factor, rounded down."""
    if is_open_size(factor):
        return size * factor
    exact = Fraction(factor).limit_denominator(LARGEST_DENOMINATOR)
    if not is_symbolic(size):
        return math.floor(size * exact)
    return size * exact.numerator // exact.denominator
