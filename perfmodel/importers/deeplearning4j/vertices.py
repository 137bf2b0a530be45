"""Vertices of deeplearning4j that are no layers, and preprocessors that change the shape of a layer's input."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from perfmodel.importers.assembly import ConfiguredLayer, Tensor, decline
from perfmodel.importers.deeplearning4j.layers import IMAGE_AXES, Translator, inside
from perfmodel.layers import Binary, Concat, Expand, Flatten, Rearrange, Reduction, Slice, Unary


def _channel_axis(tensor: Tensor) -> int:
    """Return the axis of channels or features: the first of an image, the last of a sequence or a vector [-]."""
    return 0 if len(tensor.shape) >= IMAGE_AXES else len(tensor.shape) - 1


def _merged(vertex: ConfiguredLayer) -> Tensor:
    if len(vertex.tensors) == 1:
        return vertex.first
    return vertex.made(Concat(axis=_channel_axis(vertex.first)), *vertex.tensors)


ELEMENTWISE: Final = {"Add": "add", "Subtract": "subtract", "Product": "multiply", "Max": "maximum", "Average": "add"}
"""Operation of a vertex -> function of two elements."""


def _element_wise(vertex: ConfiguredLayer) -> Tensor:
    operation = str(vertex.required("op"))
    if operation not in ELEMENTWISE:
        decline(f"its op {operation!r} is not known")
    total = vertex.joined(ELEMENTWISE[operation], vertex.tensors)
    return vertex.each(Unary(function="multiply_by_number"), total, "mean") if operation == "Average" else total


def _subset(vertex: ConfiguredLayer) -> Tensor:
    count, axis = vertex.count("to", least=0) - vertex.count("from", least=0) + 1, _channel_axis(vertex.first)
    shape = tuple(count if place == axis else size for place, size in enumerate(vertex.first.shape))
    return vertex.made(Slice(shape=shape), vertex.first)


def _unit_length(vertex: ConfiguredLayer) -> Tensor:
    axes = tuple(range(len(vertex.first.shape)))
    length = vertex.add(Reduction(function="norm", axes=axes, keep_axes=True), vertex.first, part="length")
    return vertex.made(Binary(function="divide"), vertex.first, Tensor(source=length, shape=()))


def _reshaped_vertex(vertex: ConfiguredLayer) -> Tensor:
    _, *shape = vertex.required("newShape")
    return vertex.reshaped(vertex.first, tuple(shape))


def _repeated(vertex: ConfiguredLayer) -> Tensor:
    """Repeat a vector for every step of another tensor, which the network passes as the second."""
    steps = vertex.tensors[-1].shape[0]
    return vertex.made(Expand(shape=(steps, *vertex.first.shape)), vertex.first)


def _pool_helper(vertex: ConfiguredLayer) -> Tensor:
    channels, height, width = vertex.first.shape
    return vertex.made(Slice(shape=(channels, height - 1, width - 1)), vertex.first)


TRANSLATORS: Final[Mapping[str, Translator]] = {
    "MergeVertex": _merged,
    "ElementWiseVertex": _element_wise,
    "SubsetVertex": _subset,
    "ScaleVertex": lambda vertex: vertex.each(Unary(function="multiply_by_number"), vertex.first),
    "ShiftVertex": lambda vertex: vertex.each(Unary(function="add_number"), vertex.first),
    "L2NormalizeVertex": _unit_length,
    "ReshapeVertex": _reshaped_vertex,
    "LastTimeStepVertex": lambda vertex: vertex.made(Slice(shape=vertex.first.shape[1:]), vertex.first),
    "DuplicateToTimeSeriesVertex": _repeated,
    "ReverseTimeSeriesVertex": lambda vertex: vertex.made(Rearrange(shape=tuple(vertex.first.shape)), vertex.first),
    "PoolHelperVertex": _pool_helper,
    "PreprocessorVertex": lambda vertex: preprocessed(inside(vertex, vertex.required("preProcessor"))),
}
"""Class of a vertex that is no layer -> the function that plans its layers in the graph."""


def _flat(processor: ConfiguredLayer) -> Tensor:
    return (
        processor.made(Flatten(), processor.first, part="input") if len(processor.first.shape) > 1 else processor.first
    )


def _image(processor: ConfiguredLayer) -> Tensor:
    shape = tuple(processor.count(name) for name in ("numChannels", "inputHeight", "inputWidth"))
    if tuple(processor.first.shape) == shape:
        return processor.first
    return processor.reshaped(processor.first, shape, "input")


def _flat_images(processor: ConfiguredLayer) -> Tensor:
    steps, *image = processor.first.shape
    return processor.reshaped(processor.first, (steps, math.prod(image)), "input")


def _images(processor: ConfiguredLayer) -> Tensor:
    shape = tuple(processor.count(name) for name in ("numChannels", "inputHeight", "inputWidth"))
    return processor.reshaped(processor.first, (processor.first.shape[0], *shape), "input")


def _several(processor: ConfiguredLayer) -> Tensor:
    tensor = processor.first
    for stated in processor.required("inputPreProcessors"):
        tensor = preprocessed(inside(processor, stated, tensors=(tensor,)))
    return tensor


PREPROCESSORS: Final[Mapping[str, Translator]] = {
    **dict.fromkeys(("CnnToFeedForwardPreProcessor", "Cnn3DToFeedForwardPreProcessor"), _flat),
    "FeedForwardToCnnPreProcessor": _image,
    "CnnToRnnPreProcessor": _flat_images,
    "RnnToCnnPreProcessor": _images,
    # steps stay an axis of a sample, and a dense layer works row by row
    **dict.fromkeys(
        ("RnnToFeedForwardPreProcessor", "FeedForwardToRnnPreProcessor"), lambda processor: processor.first
    ),
    "ComposableInputPreProcessor": _several,
}
"""Class of a preprocessor -> the function that plans its layers in the graph."""


def preprocessed(processor: ConfiguredLayer) -> Tensor:
    """Return a layer's input in the shape that it needs."""
    translator = PREPROCESSORS.get(processor.class_name)
    if translator is None:
        decline(f"its preprocessor {processor.class_name!r} is not known")
    return translator(processor)
