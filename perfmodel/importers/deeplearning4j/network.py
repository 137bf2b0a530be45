"""Networks of deeplearning4j as layer graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from perfmodel.calls import CALLER, in_words
from perfmodel.errors import SpecError
from perfmodel.graph import LayerGraph
from perfmodel.importers.archives import JSON_TEXT
from perfmodel.importers.assembly import (
    TRANSLATION_FAULTS,
    Assembly,
    ConfiguredLayer,
    Tensor,
    Weights,
    reason_of_hole,
    stated_shapes,
    warn_of_holes,
)
from perfmodel.importers.deeplearning4j import layers, vertices
from perfmodel.importers.deeplearning4j.configuration import NetworkRecord, VertexRecord, in_order, read_network
from perfmodel.layers import Shape
from perfmodel.layers.checks import check_text, checked_shape

IMAGE_FIELDS: Final = ("numChannels", "inputHeight", "inputWidth")
"""Fields of a preprocessor with the shape of the image that it makes of a flat input."""
OF_VECTORS: Final = ("DenseLayer", "OutputLayer", "AutoEncoder", "VariationalAutoencoder")
"""Layers whose input is a vector of ``nin`` features."""


@in_words
def from_deeplearning4j(
    path_or_text: str | Path,
    *,
    input_shapes: Mapping[str, Sequence[int]] | Sequence[int] | None = None,
    name: str | None = None,
) -> LayerGraph:
    """Build the layer graph of a deeplearning4j network, from its configuration alone.

    Parameters
    ----------
    path_or_text : str or Path
        The path of a JSON file with a ``MultiLayerConfiguration`` or ``ComputationGraphConfiguration``, or of a saved
        model (a zip with a ``configuration.json``); or the JSON text. [-]
    input_shapes : mapping of str to sequence of int, sequence of int or None
        Sample shapes of the inputs where the configuration does not say them: images as (channels, height, width),
        sequences as (steps, features); a single shape for the only input. [1]
    name : str or None
        Name of the graph; None for the file's name without its suffix, ``network`` for a text. [-]

    Returns
    -------
    LayerGraph
        The network, layers under their names in the configuration, with the losses of its output layers. [-]

    Raises
    ------
    ArgumentError
        If an argument is of the wrong kind.
    SpecError
        If the file is no configuration, truncated, too large when decompressed, or holds members outside itself; if
        the shape of an input does not follow; if vertices do not fit. Names the file and the vertex, input or member.
    UnknownNameError
        If a shape is given for an input that the network does not have.

    Warns
    -----
    OpaqueLayerWarning
        For classes without a layer, which become opaque layers; their weights are not counted, because the
        configuration does not show them.

    Notes
    -----
    Nothing of Java is run and no weights are read. Sequences are counted as everywhere here, (steps, features), where
    deeplearning4j has (features, steps). deeplearning4j's own number of parameters includes the moving averages of
    batch normalisation, which are not trained and not counted here.

    Examples
    --------
    >>> text = '''{"confs": [
    ...     {"layer": {"@class": "org.deeplearning4j.nn.conf.layers.DenseLayer", "nin": 8, "nout": 4}},
    ...     {"layer": {"@class": "org.deeplearning4j.nn.conf.layers.OutputLayer", "nin": 4, "nout": 2,
    ...                "activationFn": {"@class": "org.nd4j.linalg.activations.impl.ActivationSoftmax"},
    ...                "lossFn": {"@class": "org.nd4j.linalg.lossfunctions.impl.LossMCXENT"}}}]}'''
    >>> from_deeplearning4j(text).parameter_count
    46
    """
    if name is not None:
        check_text("name", name)
    network = read_network(path_or_text)
    vertices_in_order = in_order(network)
    shapes = _input_shapes(network, input_shapes)
    of_file = "network" if network.where == JSON_TEXT else Path(network.where).stem
    assembly = Assembly(name or of_file, inputs=shapes, where=network.where)
    values = {name: Tensor(source=name, shape=shape) for name, shape in shapes.items()}
    for vertex in vertices_in_order:
        values[vertex.name] = _result(vertex, assembly, values)
    for tensor in dict.fromkeys(values[name] for name in network.outputs):
        assembly.ended(tensor)
    built = assembly.built()
    warn_of_holes(built, where=network.where, stacklevel=CALLER)
    return built.graph


def _result(vertex: VertexRecord, assembly: Assembly, values: Mapping[str, Tensor]) -> Tensor:
    """Plan a vertex; one that no translator covers becomes a hole."""
    names = [*vertex.inputs]
    extra = vertex.entry.fields.get("inputName")
    if isinstance(extra, str) and extra in values:  # whose steps it takes
        names.append(extra)
    layer = ConfiguredLayer(
        assembly=assembly,
        path=vertex.name,
        class_name=vertex.entry.class_name,
        config=vertex.entry.fields,
        tensors=tuple(values[name] for name in names),
    )
    try:
        made: Tensor = assembly.attempt(lambda: _translated(vertex, layer))
    except TRANSLATION_FAULTS as error:
        return assembly.hole(
            layer.path,
            layer.class_name,
            layer.tensors,
            shape=_hole_shape(vertex, layer.tensors),
            reason=reason_of_hole(error, where=assembly.where, layer=layer.path, class_name=layer.class_name),
            weights=Weights(owner=layer.path),
            is_guess=not _count(layer.config.get("nout")),
        )
    return made


def _translated(vertex: VertexRecord, layer: ConfiguredLayer) -> Tensor:
    """Return the result of a vertex, after the change of shape of its input."""
    if vertex.before is not None:
        processor = replace(layer, class_name=vertex.before.class_name, config=vertex.before.fields)
        layer = replace(layer, tensors=(vertices.preprocessed(processor),))
    translator = vertices.TRANSLATORS.get(layer.class_name)
    return translator(layer) if translator is not None else layers.translated(layer)


def _hole_shape(vertex: VertexRecord, tensors: Sequence[Tensor]) -> Shape:
    """Return the shape of an opaque layer: its stated number of features, else its input's."""
    if not tensors:
        return (1,)
    shape, features = tensors[0].shape, vertex.entry.fields.get("nout")
    if features is None or not _count(features):
        return shape
    is_image = len(shape) >= layers.IMAGE_AXES
    return (features, *shape[1:]) if is_image else (*shape[:-1], features)


def _input_shapes(network: NetworkRecord, given: Any) -> dict[str, Shape]:
    """Return the sample shape of each input: as given, or as the layers that read it say."""
    given = stated_shapes(given, network.inputs, where=network.where)
    shapes, faults = {}, []
    for name in network.inputs:
        shape = tuple(given[name]) if name in given else _stated_shape(network, name)
        if shape is None:
            readers = [f"{v.name!r} ({v.entry.class_name})" for v in network.vertices if name in v.inputs] or [
                "no vertex"
            ]
            faults.append(
                f"input {name!r}: its shape does not follow from the configuration, where {' and '.join(readers)} "
                f"reads it; pass input_shapes={{{name!r}: ...}}, an image as (channels, height, width), "
                "a sequence as (steps, features)"
            )
        else:
            shapes[name] = checked_shape(name, shape)
    if faults:
        raise SpecError(network.where, faults)
    return shapes


def _stated_shape(network: NetworkRecord, name: str) -> Shape | None:
    """Return the shape of an input if a layer that reads it says it."""
    for vertex in network.vertices:
        if name not in vertex.inputs:
            continue
        fields = vertex.entry.fields
        if vertex.before is not None and vertex.before.class_name == "FeedForwardToCnnPreProcessor":
            sizes = tuple(_count(vertex.before.fields.get(field)) for field in IMAGE_FIELDS)
            return sizes if all(sizes) else None
        if vertex.before is None and vertex.entry.class_name in OF_VECTORS and _count(fields.get("nin")):
            return (_count(fields["nin"]),)
        if vertex.entry.class_name == "EmbeddingLayer":
            return (1,)
        if vertex.entry.class_name == "EmbeddingSequenceLayer" and _count(fields.get("inputLength")):
            return (_count(fields["inputLength"]),)
    return None


def _count(value: Any) -> int:
    """Return a whole number above zero as it is, anything else as zero [1]."""
    return value if type(value) is int and value > 0 else 0
