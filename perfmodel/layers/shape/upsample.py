"""Resampling of maps to another size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, final

from perfmodel.layers.base import Examples, Layer, SymbolicExample
from perfmodel.layers.checks import check_choice, check_count, is_open_size, refuse
from perfmodel.layers.shapes import Shape, ShapeMismatchError, shape_text
from perfmodel.layers.translation import Operand, OperatorCall, Translation, Translator
from perfmodel.layers.window import Size
from perfmodel.layers.window_operators import holds_maps
from perfmodel.records import MemoryPass, Operation, Role
from perfmodel.symbolic import is_symbolic

TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
"""Inputs along each axis that an output is made of [1]."""
LARGEST_DENOMINATOR = 10_000
"""Factors are taken as the nearest fraction with at most this denominator: 0.7 is 7 / 10 [1]."""


def _from_torch(call: OperatorCall, *, axis_count: int, mode: str) -> Translation | None:
    maps = call.get("self", call.get("input"))
    if not holds_maps(maps, axis_count):
        return None
    return Translation(layer=Upsample(output_size=call.output.shape[-axis_count:], mode=mode), inputs=(maps,))


def _from_onnx(call: OperatorCall) -> Translation | None:
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


def _by_axis(given: Any, axes: tuple[int, ...]) -> dict[int, float]:
    """Return numbers of a constant or attribute by the axis of the full tensor; none where they are not known."""
    numbers = given.value if isinstance(given, Operand) else given
    values = [] if numbers is None else [float(number) for number in numbers]
    return dict(zip(axes, values, strict=True)) if values else {}


@final
@dataclass(frozen=True, kw_only=True)
class Upsample(Layer):
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

    kind: ClassVar[str] = "upsample"
    examples: ClassVar[Examples] = (
        ({"scale_factor": 2}, ((4, 9, 9),)),
        ({"output_size": (20,), "mode": "linear"}, ((4, 9),)),
        ({"scale_factor": (1.5, 2), "mode": "cubic"}, ((4, 9, 9),)),
    )
    symbolic_example: ClassVar[SymbolicExample] = ({"scale_factor": 2, "mode": "linear"}, (("C", "H", "W"),))
    keeps_inputs: ClassVar[bool] = False
    torch_operators: ClassVar[Mapping[str, Translator]] = {
        **{f"aten.upsample_nearest{n}d": partial(_from_torch, axis_count=n, mode="nearest") for n in (1, 2, 3)},
        **{f"aten._upsample_nearest_exact{n}d": partial(_from_torch, axis_count=n, mode="nearest") for n in (1, 2, 3)},
        "aten.upsample_linear1d": partial(_from_torch, axis_count=1, mode="linear"),
        "aten.upsample_bilinear2d": partial(_from_torch, axis_count=2, mode="linear"),
        "aten.upsample_trilinear3d": partial(_from_torch, axis_count=3, mode="linear"),
        "aten.upsample_bicubic2d": partial(_from_torch, axis_count=2, mode="cubic"),
    }
    onnx_operators: ClassVar[Mapping[str, Translator]] = {"Resize": _from_onnx, "Upsample": _from_onnx}
    output_size: Size | None = None
    scale_factor: float | tuple[float, ...] | None = None
    mode: str = "nearest"

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, TAPS)
        if (self.output_size is None) == (self.scale_factor is None):
            refuse("output_size", self.output_size, "must be given, or else scale_factor, but not both")
        for size in _all(self.output_size):
            check_count("output_size", size)
        for factor in _all(self.scale_factor):
            is_number = isinstance(factor, int | float) and not isinstance(factor, bool) and 0 < factor < math.inf
            if not is_open_size(factor) and not is_number:
                refuse("scale_factor", self.scale_factor, "must be a number above 0, or a tuple of them")

    def output_shape(self, input_shapes: tuple[Shape, ...]) -> Shape:
        """Return (channels, resampled map)."""
        shape = input_shapes[0]
        given: Any = self.scale_factor if self.output_size is None else self.output_size
        by_axis = given if isinstance(given, tuple) else (given,) * (len(shape) - 1)
        if not 0 < len(by_axis) < len(shape):
            problem = f"resamples maps of channels by {given}, but its input is {shape_text(shape)}"
            raise ShapeMismatchError(problem)
        leading, map_size = shape[: -len(by_axis)], shape[-len(by_axis) :]
        if self.output_size is not None:
            return (*leading, *by_axis)
        resampled = tuple(_scaled(size, factor) for size, factor in zip(map_size, by_axis, strict=True))
        if any(not is_open_size(size) and size < 1 for size in resampled):
            problem = f"its factor {self.scale_factor} leaves nothing of its input {shape_text(shape)}"
            raise ShapeMismatchError(problem)
        return (*leading, *resampled)

    def _counts(self, input_shapes: tuple[Shape, ...], batch_size: Any) -> tuple[Any, Any, int]:
        """Return elements of input and output, and axes that are resampled."""
        given = self.scale_factor if self.output_size is None else self.output_size
        axes = len(given) if isinstance(given, tuple) else len(input_shapes[0]) - 1
        outputs = math.prod(self.output_shape(input_shapes))
        return batch_size * math.prod(input_shapes[0]), batch_size * outputs, axes

    def forward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads x and writes y."""
        inputs, outputs, axes = self._counts(input_shapes, batch_size)
        taps = TAPS[self.mode]
        flop_per_output = 0 if taps == 1 else (2 * taps - 1) * sum(taps**axis for axis in range(axes))
        return (
            MemoryPass(
                name="upsample",
                read_elements=inputs,
                written_elements=outputs,
                tensor_elements=outputs,
                flop_count=outputs * flop_per_output,
            ),
        )

    def backward_operations(self, input_shapes: tuple[Shape, ...], *, batch_size: Any) -> tuple[Operation, ...]:
        """Return one pass that reads dy and writes dx."""
        inputs, outputs, axes = self._counts(input_shapes, batch_size)
        taps = TAPS[self.mode]
        multiplications = 0 if taps == 1 else sum(taps ** (axis + 1) for axis in range(axes))
        return (
            MemoryPass(
                name="upsample",
                read_elements=outputs,
                written_elements=inputs,
                tensor_elements=outputs,
                flop_count=outputs * (multiplications + taps**axes),
                role=Role.INPUT_GRADIENT,
            ),
        )


def _all(given: Any) -> tuple[Any, ...]:
    """Return what an option holds: nothing, one value, or one for each axis."""
    return () if given is None else given if isinstance(given, tuple) else (given,)


def _scaled(size: Any, factor: Any) -> Any:
    """Return an extent times a factor, rounded down."""
    if is_open_size(factor):
        return size * factor
    exact = Fraction(factor).limit_denominator(LARGEST_DENOMINATOR)
    if not is_symbolic(size):
        return math.floor(size * exact)
    return size * exact.numerator // exact.denominator
