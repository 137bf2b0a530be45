"""Keras layers over maps: convolutions, pooling, padding, resampling; and norms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from perfmodel import layers
from perfmodel.importers.assembly import Tensor, decline, over_axes
from perfmodel.importers.keras.call import LayerCall, Translator, stated_axes
from perfmodel.importers.keras.pointwise import activated, vector_along, with_vector


def axis_count(call: LayerCall) -> int:
    """Return the axes of the maps of a class: the number before the last letter, as in ``Conv2D`` [1]."""
    place = call.class_name.rindex("D") - 1
    return int(call.class_name[place])


def _window(call: LayerCall, count: int) -> dict[str, Any]:
    """Return the options of a convolution's window."""
    kernel_size, dilation = call.sizes("kernel_size", count), call.sizes("dilation_rate", count, 1)
    padding: Any = call.get("padding", "valid")
    if padding == "causal":
        padding = (((kernel_size[0] - 1) * dilation[0], 0),)
    return {
        "kernel_size": kernel_size,
        "stride": call.sizes("strides", count, 1),
        "dilation": dilation,
        "padding": padding,
    }


def _convolved(call: LayerCall) -> Tensor:
    count = axis_count(call)
    layer = over_axes("convolution", count)(
        out_channels=call.count("filters"),
        groups=call.count("groups", 1),
        bias=bool(call.get("use_bias", True)),
        **_window(call, count),
    )
    return activated(call, call.over_maps(layer, call.first), call.get("activation"))


def _depth_wise(call: LayerCall, count: int, *, bias: bool, part: str = "") -> Tensor:
    channels = call.assembly.shape(call.maps(call.first).source)[-1 - count]
    layer = over_axes("convolution", count)(
        out_channels=channels * call.count("depth_multiplier", 1), groups=channels, bias=bias, **_window(call, count)
    )
    return call.over_maps(layer, call.first, part)


def _depth_wise_alone(call: LayerCall) -> Tensor:
    convolved = _depth_wise(call, axis_count(call), bias=bool(call.get("use_bias", True)))
    return activated(call, convolved, call.get("activation"))


def _separable(call: LayerCall) -> Tensor:
    count = axis_count(call)
    bias = bool(call.get("use_bias", True))
    point_wise = over_axes("convolution", count)(out_channels=call.count("filters"), kernel_size=1, bias=bias)
    made = call.over_maps(point_wise, _depth_wise(call, count, bias=False, part="depthwise"), "pointwise")
    return activated(call, made, call.get("activation"))


def _transposed(call: LayerCall) -> Tensor:
    """Plan a transposed convolution, with the output size that Keras gives it."""
    count = axis_count(call)
    kernel_size, stride = call.sizes("kernel_size", count), call.sizes("strides", count, 1)
    dilation = call.sizes("dilation_rate", count, 1)
    extents = tuple((taps - 1) * step + 1 for taps, step in zip(kernel_size, dilation, strict=True))
    is_same = call.get("padding", "valid") == "same"
    stated = None if call.get("output_padding") is None else call.sizes("output_padding", count, least=0)
    padding: list[tuple[int, int]] = []
    added: list[int] = []
    for axis, (extent, step) in enumerate(zip(extents, stride, strict=True)):
        # length of the output: n s, n s + max(k - s, 0), or (n - 1) s + k - 2 p + output_padding
        wanted = 0 if is_same else max(extent - step, 0)
        if stated is not None:
            before = extent // 2 if is_same else 0
            wanted = extent - step - 2 * before + stated[axis]
        spare = extent - step - wanted  # additional length of a full convolution
        padding.append((max(spare, 0) // 2, max(spare, 0) - max(spare, 0) // 2))
        added.append(max(-spare, 0))
    layer = over_axes("transposed_convolution", count)(
        out_channels=call.count("filters"),
        kernel_size=kernel_size,
        stride=stride,
        dilation=dilation,
        padding=tuple(padding),
        output_padding=tuple(added),
        bias=bool(call.get("use_bias", True)),
    )
    return activated(call, call.over_maps(layer, call.first), call.get("activation"))


def _pooled(call: LayerCall) -> Tensor:
    count = axis_count(call)
    family = "max_pool" if call.class_name.startswith("Max") else "avg_pool"
    kernel_size = call.sizes("pool_size", count, 2)
    layer = over_axes(family, count)(
        kernel_size=kernel_size, stride=call.sizes("strides", count, kernel_size), padding=call.get("padding", "valid")
    )
    return call.over_maps(layer, call.first)


def _pooled_adaptively(call: LayerCall) -> Tensor:
    size = call.sizes("output_size", axis_count(call))
    kind = layers.AdaptiveMaxPool if "Max" in call.class_name else layers.AdaptiveAveragePool
    return call.over_maps(kind(output_size=size), call.first)


def _pooled_globally(call: LayerCall) -> Tensor:
    is_last = call.get("data_format", "channels_last") == "channels_last"
    places = range(len(call.first.shape) - 1) if is_last else range(1, len(call.first.shape))
    keeps, function = bool(call.get("keepdims", False)), "max" if "Max" in call.class_name else "mean"
    axes = tuple(call.first.axis(place) for place in places)
    source = call.add(layers.Reduction(function=function, axes=axes, keep_axes=keeps), call.first)
    return call.assembly.tensor(source, rows=call.first.rows, is_turned=keeps and call.first.is_turned)


def _sides(call: LayerCall, field_name: str, count: int) -> tuple[tuple[int, int], ...]:
    """Return the elements added or cut before and after each axis of a map."""
    stated = call.required(field_name)
    if isinstance(stated, int):
        return ((stated, stated),) * count
    if count == 1:
        return ((int(stated[0]), int(stated[1])),) if isinstance(stated[0], int) else (tuple(stated[0]),)
    return tuple((side, side) if isinstance(side, int) else (side[0], side[1]) for side in stated)


def _padded(call: LayerCall) -> Tensor:
    count, maps = axis_count(call), call.maps(call.first)
    sides = _sides(call, "padding", count)
    whole = ((0, 0),) * (len(maps.rows) + 1) + sides
    return call.over_maps(layers.Pad(padding=whole), call.first)


def _cropped(call: LayerCall) -> Tensor:
    count, maps = axis_count(call), call.maps(call.first)
    sides = _sides(call, "cropping", count)
    shape = call.assembly.shape(maps.source)
    left = tuple(size - sum(side) for size, side in zip(shape[-count:], sides, strict=True))
    return call.over_maps(layers.Slice(shape=(*shape[:-count], *left)), call.first)


INTERPOLATIONS: Final = {
    "nearest": "nearest",
    **dict.fromkeys(("bilinear", "linear"), "linear"),
    **dict.fromkeys(("bicubic", "cubic"), "cubic"),
}
"""Interpolation of Keras -> mode of ours."""


def _mode(call: LayerCall) -> str:
    stated = call.get("interpolation", "nearest" if call.class_name.startswith("Up") else "bilinear")
    if stated not in INTERPOLATIONS:
        decline(f"its interpolation {stated!r} is not known")
    return INTERPOLATIONS[stated]


def _enlarged(call: LayerCall) -> Tensor:
    factors = call.sizes("size", axis_count(call), 2)
    return call.over_maps(layers.Upsample(scale_factor=tuple(map(float, factors)), mode=_mode(call)), call.first)


def _resized(call: LayerCall) -> Tensor:
    if call.get("crop_to_aspect_ratio") or call.get("pad_to_aspect_ratio"):
        decline("it keeps the aspect ratio")
    size = (call.count("height"), call.count("width"))
    return call.over_maps(layers.Upsample(output_size=size, mode=_mode(call)), call.first)


def _centre_cropped(call: LayerCall) -> Tensor:
    maps = call.maps(call.first)
    shape = call.assembly.shape(maps.source)
    return call.over_maps(layers.Slice(shape=(*shape[:-2], call.count("height"), call.count("width"))), call.first)


def affine(call: LayerCall, tensor: Tensor, places: tuple[int, ...], *, scale: bool, shift: bool) -> Tensor:
    """Return a tensor after a trained scale or shift that is not part of its norm."""
    held = layers.Parameter(shape=vector_along(tensor, places))
    scaled = with_vector(call, tensor, "multiply", held, "gamma") if scale else tensor
    return with_vector(call, scaled, "add", held, "beta") if shift else scaled


def _vectors(call: LayerCall) -> tuple[bool, bool]:
    return bool(call.get("scale", True)), bool(call.get("center", True))


def _batch_norm(call: LayerCall) -> Tensor:
    axis = call.first.batched_axis(stated_axes(call.get("axis", -1))[0])
    usual = 0 if len(call.assembly.shape(call.first.source)) == len(("channels", "height", "width")) else -1
    place = None if axis == usual % len(call.assembly.shape(call.first.source)) else axis
    scale, shift = _vectors(call)
    # a frozen one uses its moving averages, https://keras.io/api/layers/normalization_layers/batch_normalization
    statistics = "batch" if call.is_trained else "given"
    norm = layers.BatchNorm(axis=place, affine=shift, scale=scale if shift else True, statistics=statistics)
    return affine(call, call.each(norm, call.first), (axis,), scale=scale and not shift, shift=False)


def _last_axes(call: LayerCall) -> int:
    """Return the number of last axes of a norm."""
    axes = stated_axes(call.get("axis", -1))
    places = sorted(axis - 1 if axis > 0 else axis + len(call.first.shape) for axis in axes)
    if places != list(range(len(call.first.shape) - len(places), len(call.first.shape))):
        decline(f"its norm is over axes {axes}, which are not the last")
    return len(places)


def _layer_norm(call: LayerCall) -> Tensor:
    count, plain = _last_axes(call), call.plain(call.first)
    scale, shift = _vectors(call)
    if call.get("rms_scaling", False):
        return call.each(layers.RMSNorm(axis_count=count), plain)
    norm = layers.LayerNorm(axis_count=count, affine=scale, bias=shift)
    places = tuple(plain.axis(place - count) for place in range(count))
    return affine(call, call.each(norm, plain), places, scale=False, shift=shift and not scale)


def _group_norm(call: LayerCall) -> Tensor:
    is_last = call.get("axis", -1) in (-1, len(call.first.shape))
    ordered = call.assembly.turned(call.first) if is_last else call.plain(call.first)
    if ordered.rows or (not is_last and call.get("axis") != 1):
        decline("its channels are neither the first nor the last axis")
    channels = call.assembly.shape(ordered.source)[0]
    groups = call.count("groups", 32)
    scale, shift = _vectors(call)
    normed = call.each(layers.GroupNorm(groups=channels if groups == -1 else groups, affine=scale and shift), ordered)
    alone = scale != shift
    return affine(call, normed, (0,), scale=alone and scale, shift=alone and shift)


def _unit_norm(call: LayerCall) -> Tensor:
    places = tuple(map(call.first.batched_axis, stated_axes(call.get("axis", -1))))
    return unit_length(call, call.first, places)


def unit_length(call: LayerCall, tensor: Tensor, places: tuple[int, ...], part: str = "") -> Tensor:
    """Return a tensor divided by its length along axes of the graph."""
    lengths = call.add(layers.Reduction(function="norm", axes=places, keep_axes=True), tensor, part=f"{part}length")
    length = Tensor(source=lengths, shape=())
    return call.made(layers.Binary(function="divide"), tensor, length, part=f"{part}divide")


def _repeated(call: LayerCall) -> Tensor:
    """Plan the repetition of every element along one axis, like nearest-neighbour resampling."""
    maps = call.maps(call.first)
    shape, factor = call.assembly.shape(maps.source), call.sizes("size", 1, 2)[0]
    return call.over_maps(layers.Rearrange(shape=(*shape[:-1], shape[-1] * factor)), call.first)


def numbered(names: str, translator: Translator, counts: tuple[int, ...] = (1, 2, 3)) -> dict[str, Translator]:
    """Return a translator for the classes of maps of several numbers of axes; ``#`` stands for the number."""
    return {name.replace("#", str(count)): translator for name in names.split() for count in counts}


TRANSLATORS: Final[Mapping[str, Translator]] = {
    **numbered("Conv#D Convolution#D", _convolved),
    **numbered("DepthwiseConv#D", _depth_wise_alone, (1, 2)),
    **numbered("SeparableConv#D SeparableConvolution#D", _separable, (1, 2)),
    **numbered("Conv#DTranspose Convolution#DTranspose", _transposed),
    **numbered("MaxPooling#D AveragePooling#D MaxPool#D AvgPool#D", _pooled),
    **numbered("AdaptiveAveragePooling#D AdaptiveMaxPooling#D", _pooled_adaptively),
    **numbered("GlobalAveragePooling#D GlobalMaxPooling#D GlobalAvgPool#D GlobalMaxPool#D", _pooled_globally),
    **numbered("ZeroPadding#D", _padded),
    **numbered("Cropping#D", _cropped),
    **numbered("UpSampling#D", _enlarged, (2, 3)),
    "UpSampling1D": _repeated,
    "Resizing": _resized,
    "CenterCrop": _centre_cropped,
    "BatchNormalization": _batch_norm,
    "SyncBatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": lambda call: call.each(layers.RMSNorm(axis_count=_last_axes(call)), call.plain(call.first)),
    "GroupNormalization": _group_norm,
    "UnitNormalization": _unit_norm,
}
"""Class -> the function that plans its layers."""
