"""Layers of deeplearning4j, in a table from class to translator. Channels come first, sequences by step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from perfmodel import layers
from perfmodel.importers.assembly import ConfiguredLayer, Tensor, decline, elementwise, over_axes
from perfmodel.importers.deeplearning4j.configuration import Entry, entry_of
from perfmodel.layers import Layer

IMAGE_AXES: Final = 3
POOLS: Final = {"MAX": "max_pool", "AVG": "avg_pool"}
"""Type of pooling -> family of layers."""

OVER_CHANNELS: Final[Mapping[str, type[Layer]]] = {"softmax": layers.Softmax, "logsoftmax": layers.LogSoftmax}
"""Activation along the features -> layer."""

IDENTITY: Final = ("", "identity")


def activation_name(stated: Any) -> str:
    """Return the name of an activation in lower case.

    >>> activation_name({"@class": "org.nd4j.linalg.activations.impl.ActivationReLU"}), activation_name("relu")
    ('relu', 'relu')
    """
    if stated is None:
        return ""
    name = stated if isinstance(stated, str) else entry_of(stated).class_name
    return name.removeprefix("Activation").lower()


def activation_of(layer: ConfiguredLayer) -> str:
    """Return the name of a layer's activation, which files before 0.7.2 keep under another name."""
    return activation_name(layer.get("activationFn", layer.get("activationFunction")))


def activated(layer: ConfiguredLayer, tensor: Tensor, part: str = "activation") -> Tensor:
    """Return a tensor after the layer's activation."""
    name = activation_of(layer)
    if name in IDENTITY:
        return tensor
    if name in OVER_CHANNELS:
        channels: dict[str, Any] = {"axis": 0} if len(tensor.shape) == IMAGE_AXES else {}
        return layer.each(OVER_CHANNELS[name](**channels), tensor, part)
    activation = elementwise(name)
    if activation is None:
        return layer.opaque(tensor, name, part, reason="no layer translates the activation")
    return layer.each(activation, tensor, part)


def dropped(layer: ConfiguredLayer, tensor: Tensor) -> Tensor:
    """Return a tensor after the dropout of a layer's input, stated as the share that is kept."""
    stated = layer.get("idropout")
    # a separate field before 1.0.0-alpha, where 0 means none
    kept = layer.get("dropOut") if stated is None else entry_of(stated).fields.get("p")
    return layer.dropped(tensor, 1 - kept if isinstance(kept, int | float) and 0 < kept < 1 else 0)


def _with_bias(layer: ConfiguredLayer) -> bool:
    return bool(layer.get("hasBias", True))


def _product(layer: ConfiguredLayer, tensor: Tensor, part: str = "") -> Tensor:
    """Return a product with weights, whose input is flattened if it is an image."""
    features = layer.count("nin", 0, least=0)
    if features and tensor.shape[-1] != features and math.prod(tensor.shape) == features:
        tensor = layer.made(layers.Flatten(), tensor, part="flatten")
    if features and tensor.shape[-1] != features:
        layer.refuse(f"nin={features}: must be the {tensor.shape[-1]} features of its input")
    return layer.made(layers.Dense(units=layer.count("nout"), bias=_with_bias(layer)), tensor, part=part)


def _dense(layer: ConfiguredLayer) -> Tensor:
    tensor = _product(layer, dropped(layer, layer.first))
    if layer.get("hasLayerNorm", False):
        tensor = layer.made(layers.LayerNorm(bias=False), tensor, part="norm")
    return activated(layer, tensor)


LOSSES: Final[Mapping[str, Callable[[], Layer]]] = {
    **dict.fromkeys(("MSE", "L2", "MSLE"), layers.MeanSquaredError),
    **dict.fromkeys(("MAE", "L1"), layers.MeanAbsoluteError),
    "BinaryXENT": lambda: layers.BinaryCrossEntropy(over="probabilities"),
}
"""Loss, without ``Loss`` before it -> its layer. The logarithms of MSLE are not counted."""
OF_CLASSES: Final = ("MCXENT", "NegativeLogLikelihood", "SparseMCXENT")
"""Losses of a distribution over classes."""


def _loss(layer: ConfiguredLayer, tensor: Tensor) -> Tensor:
    """Return the loss of a tensor, together with a softmax before it."""
    stated = layer.get("lossFn")
    name = "" if stated is None else entry_of(stated).class_name.removeprefix("Loss")
    axis = 0 if len(tensor.shape) == IMAGE_AXES else -1
    if name in OF_CLASSES and activation_of(layer) == "softmax":
        return layer.made(layers.CrossEntropy(axis=axis), tensor, part="loss")
    outcome = activated(layer, tensor)
    if name in OF_CLASSES:
        return layer.made(layers.CrossEntropy(over="probabilities", axis=axis), outcome, part="loss")
    if name in LOSSES:
        return layer.made(LOSSES[name](), outcome, part="loss")
    if not name:
        return outcome
    return layer.opaque(outcome, f"Loss{name}", "loss", reason="no layer translates the loss", shape=(1,))


def _sides(layer: ConfiguredLayer, count: int) -> Any:
    """Return the padding of a window as a rule, or before and after each axis."""
    mode = str(layer.get("convolutionMode", "Truncate")).lower()
    if mode == "same":
        return "same"
    if mode == "causal":
        taps, step = _spread(layer, "kernelSize", count)[0], _spread(layer, "dilation", count, 1)[0]
        return (((taps - 1) * step, 0),)
    return tuple((size, size) for size in _spread(layer, "padding", count, 0))


def _spread(layer: ConfiguredLayer, field_name: str, count: int, default: int | None = None) -> tuple[int, ...]:
    """Return the sizes of a window along each axis; for one axis a second number may be stated, and is ignored."""
    value = layer.required(field_name) if default is None else layer.get(field_name, default)
    if count == 1 and isinstance(value, list | tuple):
        value = value[:1]
    return layer.whole_numbers(field_name, value, count, least=0 if field_name == "padding" else 1)


def _window(layer: ConfiguredLayer, count: int) -> dict[str, Any]:
    return {
        "kernel_size": _spread(layer, "kernelSize", count),
        "stride": _spread(layer, "stride", count, 1),
        "padding": _sides(layer, count),
        "dilation": _spread(layer, "dilation", count, 1),
    }


def _over_maps(layer: ConfiguredLayer, kind: Layer, tensor: Tensor, count: int, part: str = "") -> Tensor:
    """Plan a layer over maps with their channels first; a sequence has them last."""
    if count > 1:
        if str(layer.get("cnn2dDataFormat", layer.get("dataFormat", "NCHW"))).endswith("C"):
            decline("its channels come last")
        return layer.made(kind, tensor, part=part)
    turned = layer.made(layers.Transpose(axes=(1, 0)), tensor, part=f"{part}channels_first")
    return layer.made(layers.Transpose(axes=(1, 0)), layer.made(kind, turned, part=part), part=f"{part}channels_last")


def _convolved(count: int, family: str = "convolution") -> Translator:
    def translate(layer: ConfiguredLayer) -> Tensor:
        units, bias = layer.count("nout"), _with_bias(layer)
        kind = over_axes(family, count)(out_channels=units, bias=bias, **_window(layer, count))
        return activated(layer, _over_maps(layer, kind, dropped(layer, layer.first), count))

    return translate


def _depth_wise(layer: ConfiguredLayer, tensor: Tensor, *, bias: bool, part: str = "") -> Tensor:
    channels = tensor.shape[0]
    kind = layers.Convolution2d(
        out_channels=channels * layer.count("depthMultiplier", 1), groups=channels, bias=bias, **_window(layer, 2)
    )
    return _over_maps(layer, kind, tensor, 2, part)


def _depth_wise_alone(layer: ConfiguredLayer) -> Tensor:
    return activated(layer, _depth_wise(layer, dropped(layer, layer.first), bias=_with_bias(layer)))


def _separable(layer: ConfiguredLayer) -> Tensor:
    deep = _depth_wise(layer, dropped(layer, layer.first), bias=False, part="depthwise")
    kind = layers.Convolution2d(out_channels=layer.count("nout"), kernel_size=1, bias=_with_bias(layer))
    return activated(layer, layer.made(kind, deep, part="pointwise"))


def _pooled(count: int) -> Translator:
    def translate(layer: ConfiguredLayer) -> Tensor:
        kind = str(layer.get("poolingType", "MAX")).upper()
        kind = "AVG" if kind == "SUM" else kind  # which costs the same
        if kind not in POOLS:
            decline(f"its poolingType {kind!r} is not known")
        pool = over_axes(POOLS[kind], count)(**_window(layer, count))
        return _over_maps(layer, pool, dropped(layer, layer.first), count)

    return translate


def _pooled_globally(layer: ConfiguredLayer) -> Tensor:
    function = {"MAX": "max", "AVG": "mean", "SUM": "sum"}.get(str(layer.get("poolingType", "MAX")).upper())
    if function is None:
        decline(f"its poolingType {layer.get('poolingType')!r} is not known")
    is_image = len(layer.first.shape) >= IMAGE_AXES
    axes = tuple(range(1, len(layer.first.shape))) if is_image else (0,)
    keeps = not layer.get("collapseDimensions", True)
    return layer.made(layers.Reduction(function=function, axes=axes, keep_axes=keeps), layer.first)


def _batch_norm(layer: ConfiguredLayer) -> Tensor:
    is_affine = not layer.get("lockGammaBeta", False)
    norm = layers.BatchNorm(affine=is_affine, statistics="batch" if layer.is_trained else "given")
    return activated(layer, layer.each(norm, dropped(layer, layer.first)))


def _local_norm(layer: ConfiguredLayer) -> Tensor:
    size = layer.count("n", 5)
    return layer.each(layers.LocalResponseNorm(size=size if size % 2 else size + 1), layer.first)


def _embedded(layer: ConfiguredLayer) -> Tensor:
    table = layers.Embedding(vocabulary=layer.count("nin"), features=layer.count("nout"))
    tensor = layer.made(table, layer.first, part="table" if layer.get("hasBias", False) else "")
    if layer.class_name == "EmbeddingLayer" and tensor.shape[0] == 1:
        tensor = layer.reshaped(tensor, tensor.shape[1:], "row")
    if layer.get("hasBias", False):
        held = Tensor(source=layer.add(layers.Parameter(shape=(layer.count("nout"),)), part="bias"), shape=())
        tensor = layer.made(layers.Binary(function="add"), tensor, held)
    return activated(layer, tensor)


def _lstm(layer: ConfiguredLayer, **options: Any) -> Layer:
    has_peepholes = layer.class_name.startswith("Graves")
    return layers.LSTM(hidden_size=layer.count("nout"), peepholes=has_peepholes, **options)


CELLS: Final[Mapping[str, Callable[..., Layer]]] = {
    **dict.fromkeys(("LSTM", "GravesLSTM", "GravesBidirectionalLSTM"), _lstm),
    "GRU": lambda layer, **options: layers.GRU(hidden_size=layer.count("nout"), **options),
    "SimpleRnn": lambda layer, **options: layers.RNN(hidden_size=layer.count("nout"), **options),
}
"""Class of a recurrence -> its layer."""


def _recurrent(layer: ConfiguredLayer) -> Tensor:
    """Plan a recurrence that returns every step."""
    features = layer.count("nin", 0, least=0)
    if features and layer.first.shape[-1] != features:
        layer.refuse(f"nin={features}: must be the {layer.first.shape[-1]} features of its input")
    return layer.made(CELLS[layer.class_name](layer), dropped(layer, layer.first))


def _both_directions(layer: ConfiguredLayer) -> Tensor:
    """Plan the recurrence of Graves in both directions of time, whose results are added."""
    both = layer.made(_lstm(layer, bidirectional=True), dropped(layer, layer.first))
    return _merged(layer, both, "ADD")


def _merged(layer: ConfiguredLayer, both: Tensor, mode: str) -> Tensor:
    """Return the result of a bidirectional layer from its two directions."""
    if mode == "CONCAT":
        return both
    joined = layer.made(
        layers.Binary(function="multiply") if mode == "MUL" else layers.Add(), *layer.halves(both), part="merge"
    )
    return layer.each(layers.Unary(function="multiply_by_number"), joined, "mean") if mode == "AVERAGE" else joined


def _bidirectional(layer: ConfiguredLayer) -> Tensor:
    inner = inside(layer, layer.required("fwd"))
    if inner.class_name not in CELLS:
        decline(f"its layer {inner.class_name!r} is not known")
    both = layer.made(CELLS[inner.class_name](inner, bidirectional=True), dropped(inner, layer.first))
    return _merged(layer, both, str(layer.get("mode", "CONCAT")).upper())


def inside(layer: ConfiguredLayer, stated: Any, **changes: Any) -> ConfiguredLayer:
    """Return a layer inside another one, under the outer one's name."""
    entry: Entry = entry_of(stated)
    return replace(layer, class_name=entry.class_name, config=entry.fields, **changes)


def _last_step(layer: ConfiguredLayer) -> Tensor:
    whole = translated(inside(layer, layer.required("underlying")))
    return layer.made(layers.Slice(shape=whole.shape[1:]), whole, part="last_step")


def _padded(layer: ConfiguredLayer) -> Tensor:
    top, bottom, left, right = layer.sizes("padding", 4, least=0)
    return layer.made(layers.Pad(padding=((0, 0), (top, bottom), (left, right))), layer.first)


def _cropped(layer: ConfiguredLayer) -> Tensor:
    top, bottom, left, right = layer.sizes("cropping", 4, least=0)
    channels, height, width = layer.first.shape
    return layer.made(layers.Slice(shape=(channels, height - top - bottom, width - left - right)), layer.first)


def _enlarged(layer: ConfiguredLayer) -> Tensor:
    factors = tuple(map(float, _spread(layer, "size", 2, 2)))
    return layer.made(layers.Upsample(scale_factor=factors), layer.first)


Translator = Callable[[ConfiguredLayer], Tensor]
"""Plans the layers of a vertex; raises NotTranslatedError where it does not cover it."""

TRANSLATORS: Final[Mapping[str, Translator]] = {
    "DenseLayer": _dense,
    **dict.fromkeys(
        ("OutputLayer", "RnnOutputLayer"), lambda layer: _loss(layer, _product(layer, dropped(layer, layer.first)))
    ),
    **dict.fromkeys(
        ("LossLayer", "RnnLossLayer", "CnnLossLayer"), lambda layer: _loss(layer, dropped(layer, layer.first))
    ),
    **dict.fromkeys(("ConvolutionLayer", "Convolution2D"), _convolved(2)),
    **dict.fromkeys(("Convolution1DLayer", "Convolution1D"), _convolved(1)),
    "Convolution3D": _convolved(3),
    "Deconvolution2D": _convolved(2, "transposed_convolution"),
    "Deconvolution3D": _convolved(3, "transposed_convolution"),
    "DepthwiseConvolution2D": _depth_wise_alone,
    "SeparableConvolution2D": _separable,
    **dict.fromkeys(("SubsamplingLayer", "Pooling2D"), _pooled(2)),
    **dict.fromkeys(("Subsampling1DLayer", "Pooling1D"), _pooled(1)),
    "Subsampling3DLayer": _pooled(3),
    "GlobalPoolingLayer": _pooled_globally,
    "BatchNormalization": _batch_norm,
    "LocalResponseNormalization": _local_norm,
    **dict.fromkeys(("EmbeddingLayer", "EmbeddingSequenceLayer"), _embedded),
    **dict.fromkeys((name for name in CELLS if "Bidirectional" not in name), _recurrent),
    "GravesBidirectionalLSTM": _both_directions,
    "Bidirectional": _bidirectional,
    "LastTimeStep": _last_step,
    "FrozenLayer": lambda layer: translated(inside(layer, layer.required("layer"), is_trained=False)),
    **dict.fromkeys(
        ("MaskZeroLayer", "TimeDistributed"), lambda layer: translated(inside(layer, layer.required("underlying")))
    ),
    "ActivationLayer": lambda layer: activated(layer, dropped(layer, layer.first), ""),
    **dict.fromkeys(("DropoutLayer", "SpatialDropout"), lambda layer: dropped(layer, layer.first)),
    "ZeroPaddingLayer": _padded,
    "Cropping2D": _cropped,
    "Upsampling2D": _enlarged,
    "MaskLayer": lambda layer: layer.first,
}
"""Class of a layer -> the function that plans its layers in the graph."""


def translated(layer: ConfiguredLayer) -> Tensor:
    """Return the result of a layer; raise NotTranslatedError for an unknown class."""
    translator = TRANSLATORS.get(layer.class_name)
    if translator is None:
        decline("no layer translates it")
    return translator(layer)
