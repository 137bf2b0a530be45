"""Keras layers that work element by element: activations, dropout, rescaling; and the activations of other layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from perfmodel import layers
from perfmodel.importers.assembly import Tensor, decline, elementwise
from perfmodel.importers.keras.call import LayerCall, Translator, stated_axes
from perfmodel.layers import Layer

RELU6_TOP: Final = 6


ALONG_AXIS: Final[Mapping[str, Callable[..., Layer]]] = {
    "softmax": layers.Softmax,
    "log_softmax": layers.LogSoftmax,
    "glu": layers.GLU,
}
"""Activation that works along the last axis -> its layer."""
IDENTITY: Final = (None, "", "linear", "identity")


def activation_name(stated: Any) -> str | None:
    """Return the name of an activation, or of the class of a serialized one.

    >>> activation_name({"class_name": "function", "config": "silu", "registered_name": "silu"})
    'silu'
    """
    if not isinstance(stated, Mapping):
        return None if stated is None else str(stated)
    inner = stated.get("config")
    if isinstance(inner, str):
        return inner
    return {"ReLU": "relu", "LeakyReLU": "leaky_relu", "GELU": "gelu"}.get(
        str(stated.get("class_name")), str(stated.get("class_name")).lower()
    )


def activated(call: LayerCall, tensor: Tensor, stated: Any, part: str = "activation") -> Tensor:
    """Return a tensor after an activation; an unknown activation becomes a separate hole."""
    name = activation_name(stated)
    if name in IDENTITY:
        return tensor
    if (layer := elementwise(name)) is not None:
        return call.each(layer, tensor, part)
    if name in ALONG_AXIS:
        return call.made(ALONG_AXIS[name](axis=tensor.axis(-1)), tensor, part=part)
    return call.opaque(tensor, str(name), part, reason="no layer translates the activation")


def _relu(call: LayerCall) -> Tensor:
    top, slope = call.get("max_value"), call.get("negative_slope", 0)
    if slope:
        return call.each(layers.LeakyReLU(slope=float(slope)), call.first)
    if top is not None:
        return call.each(layers.ReLU6() if top == RELU6_TOP else layers.Unary(function="clamp"), call.first)
    return call.each(layers.Unary(function="threshold") if call.get("threshold", 0) else layers.ReLU(), call.first)


def _softmax(call: LayerCall) -> Tensor:
    axes = stated_axes(call.get("axis", -1))
    if len(axes) > 1:
        decline(f"its softmax is over several axes {axes}")
    return call.each(layers.Softmax(axis=call.first.batched_axis(axes[0])), call.first)


def with_vector(call: LayerCall, tensor: Tensor, function: str, held: Layer, part: str) -> Tensor:
    """Return a tensor after a function of its elements and those of a vector that all samples share."""
    vector = call.add(held, part=part)
    joined = call.add(layers.Binary(function=function), tensor, Tensor(source=vector, shape=()), part=function)
    return call.like(joined, tensor)


def vector_along(tensor: Tensor, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a vector along some axes of the graph, with extents of 1 along the others [1]."""
    places = sorted(axes)
    whole = tensor.rows + ((tensor.shape[-1], *tensor.shape[:-1]) if tensor.is_turned else tuple(tensor.shape))
    return tuple(size if place in places else 1 for place, size in enumerate(whole))[places[0] :]


def _prelu(call: LayerCall) -> Tensor:
    shared = {axis - 1 for axis in call.get("shared_axes", ())}
    axes = tuple(call.first.axis(axis) for axis in range(len(call.first.shape)) if axis not in shared)
    shape = vector_along(call.first, axes) if axes else (1,)
    return with_vector(call, call.first, "prelu", layers.Parameter(shape=shape), "slope")


def _layer_scale(call: LayerCall) -> Tensor:
    shape = vector_along(call.first, (call.first.axis(-1),))
    return with_vector(call, call.first, "multiply", layers.Parameter(shape=shape), "gamma")


def _added_scaled(call: LayerCall) -> Tensor:
    """Add the second tensor times a number to the first, as the residual units of Inception-ResNet do."""
    first, second = map(call.assembly.turned if call.first.is_turned else call.plain, call.tensors)
    return call.made(layers.Binary(function="add_scaled"), first, second)


def _rescaled(call: LayerCall) -> Tensor:
    scaled = call.each(layers.Unary(function="multiply_by_number"), call.first, "")
    offsets = call.get("offset", 0)
    has_offset = any(offsets) if isinstance(offsets, list | tuple) else offsets != 0
    return call.each(layers.Unary(function="add_number"), scaled, "offset") if has_offset else scaled


def _normalised(call: LayerCall) -> Tensor:
    """Subtract a mean and divide by a deviation, both of which the layer has as constants."""
    axes = stated_axes(call.get("axis", ()))
    places = tuple(map(call.first.batched_axis, axes))
    shape = vector_along(call.first, places) if places else (1,)
    centred = with_vector(call, call.first, "subtract", layers.Constant(shape=shape), "mean")
    return with_vector(call, centred, "divide", layers.Constant(shape=shape), "deviation")


def _dropped(call: LayerCall) -> Tensor:
    field_name = next((name for name in ("rate", "drop_path_rate", "stddev") if call.get(name) is not None), "rate")
    rate = call.number(field_name, 0.5)
    return call.dropped(call.first, min(max(rate, 0.0), math.nextafter(1.0, 0.0)), "")


def _masked(call: LayerCall) -> Tensor:
    compared = call.each(layers.Unary(function="compare"), call.first, "compare")
    kept = call.add(layers.Reduction(function="any", axes=(call.first.axis(-1),), keep_axes=True), compared, part="any")
    product = call.add(layers.Binary(function="multiply"), call.first, replace(compared, source=kept))
    return call.like(product, call.first)


TRANSLATORS: Final[Mapping[str, Translator]] = {
    "Activation": lambda call: activated(call, call.first, call.required("activation"), part=""),
    "ReLU": _relu,
    "LeakyReLU": lambda call: call.each(layers.LeakyReLU(), call.first),
    "PReLU": _prelu,
    "ELU": lambda call: call.each(layers.Unary(function="elu"), call.first),
    "ThresholdedReLU": lambda call: call.each(layers.Unary(function="threshold"), call.first),
    "Softmax": _softmax,
    **dict.fromkeys(("Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D"), _dropped),
    **dict.fromkeys(("GaussianDropout", "AlphaDropout", "GaussianNoise"), _dropped),
    **dict.fromkeys(("ActivityRegularization", "Identity", "InputLayer"), lambda call: call.first),
    "Masking": _masked,
    "Rescaling": _rescaled,
    "Normalization": _normalised,
}
"""Class -> the function that plans its layers. Layers that are random in training only count as dropout."""
APPLICATION_TRANSLATORS: Final[Mapping[str, Translator]] = {
    "LayerScale": _layer_scale,
    "StochasticDepth": _dropped,
    "CustomScaleLayer": _added_scaled,
}
"""The same for the classes defined in ``keras.applications``: ConvNeXt and Inception-ResNet."""
