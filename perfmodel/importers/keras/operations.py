"""Operations that a functional Keras model calls without a layer: ``keras.ops``, and arithmetic on its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from perfmodel.importers.assembly import Tensor, decline, elementwise
from perfmodel.importers.keras.call import LayerCall, Translator, stated_axes
from perfmodel.importers.keras.dense import filled, together
from perfmodel.importers.keras.pointwise import ALONG_AXIS
from perfmodel.layers import Concat, Copy, Detach, Expand, MatMul, Reduction, Slice, Transpose, Unary
from perfmodel.layers.translation import function_names, function_table

MODULES: Final = ("keras.ops", "keras.src.ops")
"""Start of the module of an operation."""
WITH_NUMBER: Final[Mapping[str, str]] = {
    function: row["with_number"] for function, row in function_table("binary_names").items() if "with_number" in row
}
"""Function of two tensors -> that of one tensor and a number."""

OF_TWO: Final = function_names("binary", "keras")
"""Operation -> function of two tensors."""

OF_ONE: Final = function_names("unary", "keras")
"""Operation -> function of one tensor."""

REDUCTIONS: Final = function_names("reduction", "keras")
"""Operation -> reduction."""

ACTIVATIONS: Final = (
    *("Relu", "Relu6", "LeakyRelu", "Sigmoid", "Tanh", "Silu", "Gelu", "Elu", "Selu", "Celu", "Softplus", "Softsign"),
    *("Mish", "LogSigmoid", "HardSigmoid", "HardSilu", "HardTanh"),
)
"""Operations that are element-wise activations."""


def argument(call: LayerCall, place: int, name: str, default: Any = None) -> Any:
    """Return an argument by its name, its place, or from the operation's own configuration."""
    if name in call.options:
        return call.options[name]
    if place < len(call.arguments):
        return call.arguments[place]
    return call.get(name, default)


def _of_two(call: LayerCall) -> Tensor:
    function = OF_TWO[call.class_name]
    if len(call.tensors) == 1:
        is_constant = isinstance(call.arguments[0], int | float)
        number = "subtract_from_number" if is_constant and function == "subtract" else WITH_NUMBER[function]
        return call.each(Unary(function=number), call.first)
    return call.joined(function, together(call))


def _activation(call: LayerCall) -> Tensor:
    layer = elementwise(call.class_name)
    assert layer is not None
    return call.each(layer, call.first)


def _along_axis(call: LayerCall) -> Tensor:
    kind = {"Softmax": "softmax", "LogSoftmax": "log_softmax", "Glu": "glu"}[call.class_name]
    axis = argument(call, 1, "axis", -1)
    layer = ALONG_AXIS[kind](axis=call.first.batched_axis(axis))
    return call.made(layer, call.first)


def _reduced(call: LayerCall) -> Tensor:
    axis, keeps = argument(call, 1, "axis"), bool(argument(call, 9, "keepdims", default=False))
    if axis is None:
        decline("it reduces the samples too")
    tensor = call.plain(call.first)
    axes = tuple(tensor.batched_axis(place) for place in stated_axes(axis))
    layer = Reduction(function=REDUCTIONS[call.class_name], axes=axes, keep_axes=keeps)
    return call.made(layer, tensor)


def _reshaped(call: LayerCall) -> Tensor:
    target = argument(call, 1, "newshape")
    batch, *rest = argument(call, 1, "shape") if target is None else target
    if batch not in (None, -1):
        decline(f"it writes the number of samples into its shape ({batch})")
    return call.reshaped(call.first, filled(rest, call.first.shape))


def _transposed(call: LayerCall) -> Tensor:
    axes = argument(call, 1, "axes")
    if axes is None or axes[0] != 0:
        decline("it moves the axis of the samples")
    plain = call.plain(call.first)
    return call.made(Transpose(axes=tuple(axis - 1 for axis in axes[1:])), plain)


def _swapped(call: LayerCall) -> Tensor:
    plain = call.plain(call.first)
    first, second = (plain.batched_axis(argument(call, place, f"axis{place}")) for place in (1, 2))
    axes = list(range(len(plain.shape)))
    axes[first], axes[second] = second, first
    return call.made(Transpose(axes=tuple(axes)), plain)


def _expanded(call: LayerCall) -> Tensor:
    (axis,) = stated_axes(argument(call, 1, "axis"))
    shape = list(call.first.shape)
    place = axis - 1 if axis > 0 else len(shape) + 1 + axis
    if axis == 0 or place < 0:
        decline("it adds an axis before the samples")
    return call.reshaped(call.first, (*shape[:place], 1, *shape[place:]))


def _squeezed(call: LayerCall) -> Tensor:
    axis = argument(call, 1, "axis")
    shape = call.first.shape
    if axis is None:
        return call.reshaped(call.first, tuple(size for size in shape if size != 1))
    places = [place - 1 if place > 0 else len(shape) + place for place in stated_axes(axis)]
    return call.reshaped(call.first, tuple(size for place, size in enumerate(shape) if place not in places))


def _concatenated(call: LayerCall) -> Tensor:
    tensors = together(call)
    axis = argument(call, 1, "axis", -1 if call.class_name == "Concatenate" else 0)
    if call.class_name == "Stack":
        tensors = tuple(map(call.plain, tensors))
        place = axis - 1 if axis > 0 else len(tensors[0].shape) + 1 + axis
        return call.made(Concat(axis=place, new_axis=True), *tensors)
    return call.made(Concat(axis=tensors[0].batched_axis(axis)), *tensors)


def _part(call: LayerCall) -> Tensor:
    """Plan a part of a tensor, as ``x[:, 1:]`` or ``x[:, 0]`` takes it."""
    plain = call.plain(call.first)
    stated = argument(call, 1, "key")
    keys = list(stated) if isinstance(stated, tuple) else [stated]
    if not keys or keys[0] != slice(None) or any(not isinstance(key, slice | int) for key in keys):
        decline("it takes a part of the samples, or parts that other tensors name")
    extents = [
        None if isinstance(key, int) else len(range(*key.indices(size)))
        for key, size in zip(keys[1:], plain.shape, strict=False)
    ]
    shape = (*(size for size in extents if size is not None), *plain.shape[len(extents) :])
    return call.made(Slice(shape=shape), plain)


def _broadcast(call: LayerCall) -> Tensor:
    _, *shape = argument(call, 1, "shape")
    plain = call.plain(call.first)
    return call.made(Expand(shape=tuple(shape)), plain)


TRANSLATORS: Final[Mapping[str, Translator]] = {
    **dict.fromkeys(OF_TWO, _of_two),
    **dict.fromkeys(OF_ONE, lambda call: call.each(Unary(function=OF_ONE[call.class_name]), call.first)),
    **dict.fromkeys(ACTIVATIONS, _activation),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Glu"), _along_axis),
    **dict.fromkeys(REDUCTIONS, _reduced),
    "Matmul": lambda call: call.made(MatMul(), *map(call.plain, call.tensors)),
    "Reshape": _reshaped,
    "Transpose": _transposed,
    "Swapaxes": _swapped,
    "ExpandDims": _expanded,
    "Squeeze": _squeezed,
    **dict.fromkeys(("Concatenate", "Stack"), _concatenated),
    "GetItem": _part,
    "BroadcastTo": _broadcast,
    "Cast": lambda call: call.each(Copy(), call.first),
    "StopGradient": lambda call: replace(call.first, source=call.add(Detach(), call.first)),
    "Identity": lambda call: call.first,
}
"""Operation -> the function that plans its layers."""
