"""Keras models as layer graphs, from their saved configuration, which is read and never run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from warnings import warn

from perfmodel.calls import CALLER, in_words
from perfmodel.errors import ArgumentError, ParameterWarning, PrecisionWarning, SpecError
from perfmodel.graph import LayerGraph
from perfmodel.importers.assembly import (
    TRANSLATION_FAULTS,
    Assembly,
    Tensor,
    Weights,
    decline,
    reason_of_hole,
    stated_shapes,
    warn_of_holes,
)
from perfmodel.importers.build import listed
from perfmodel.importers.keras import dense, maps, operations, pointwise, sequences
from perfmodel.importers.keras.call import LAST, LayerCall, Result, Translator
from perfmodel.importers.keras.configuration import (
    INPUT_CLASS,
    MODEL_CLASSES,
    CallRecord,
    Document,
    LayerFacts,
    LayerRecord,
    ModelRecord,
    Reference,
    model_of,
    read_document,
    wrapped_layer,
)
from perfmodel.layers import Shape
from perfmodel.layers.checks import check_text, checked_shape
from perfmodel.layers.shapes import shape_text
from perfmodel.records import PACKED_BYTES

MIXED_POLICIES: Final = {"mixed_bfloat16": "bf16", "bfloat16": "bf16", "mixed_float16": "fp16", "float16": "fp16"}
"""Data-type policy of Keras -> ``dtype`` of a prediction."""


@in_words
def from_keras(
    model_or_path: Any,
    *,
    input_shapes: Mapping[str, Sequence[int]] | Sequence[int] | None = None,
    name: str | None = None,
) -> LayerGraph:
    """Build the layer graph of a Keras model, from its configuration alone.

    Parameters
    ----------
    model_or_path : keras.Model, str or Path
        A functional or sequential model of Keras 3; the path of a ``.keras`` archive, an HDF5 file (``.h5``) or a JSON
        file; or the text of ``to_json()``. Keras is needed for none but the first, h5py for HDF5. [-]
    input_shapes : mapping of str to sequence of int, sequence of int or None
        Sample shapes of the inputs, in the model's own order of axes, where the model leaves axes open, e.g.
        ``{"words": (128,)}``; a single shape for the only input. [1]
    name : str or None
        Name of the graph; None for the model's. [-]

    Returns
    -------
    LayerGraph
        The network, layers under their names in Keras, those of nested models behind the model's name. [-]

    Raises
    ------
    MissingPackageError
        If the file is HDF5 and h5py is not installed.
    ArgumentError
        If an argument is of the wrong kind, or the model is a subclassed one, which has no configuration.
    SpecError
        If the file is no saved model, truncated, too large when decompressed, or holds members outside itself; if an
        input leaves an axis open; if layers do not fit. Names the file and the layer, input or member.
    UnknownNameError
        If a shape is given for an input that the model does not have.

    Warns
    -----
    OpaqueLayerWarning
        For classes without a layer (custom ones, ``Lambda``), which become opaque layers.
    PrecisionWarning
        If the model computes in half precision, for which ``predict`` needs ``dtype``, or has quantised weights.
    ParameterWarning
        If layers have low-rank adapters (LoRA), whose weights are left out.

    Notes
    -----
    The configuration is data: no weights are read, no code is run, no class is looked up. Images whose channels come
    last are counted as everywhere here, channels first, and ``image_layout`` says how they lie; a layer that works on
    the last axis sees them through a view. The number of samples stays free. Training starts at the outputs: what
    ``compile()`` states is not read. In a recurrence, unusual activations count as the usual ones, and dropout
    of its states is left out. A layer that is random in training only counts as dropout. An opaque layer of a file has
    no weights, because the configuration does not show them; of a model object it has them.

    Examples
    --------
    >>> text = '''{"class_name": "Sequential", "config": {"name": "small", "layers": [
    ...     {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 8]}},
    ...     {"class_name": "Dense", "config": {"name": "fc", "units": 4, "activation": "relu"}}]}}'''
    >>> from_keras(text).parameter_count
    36
    """
    if name is not None:
        check_text("name", name)
    document = read_document(model_or_path)
    model = model_of(document.content, where=document.where)
    shapes = _input_shapes(document, model, input_shapes)
    turned = {source: _sees_maps(model, len(shape)) for source, shape in shapes.items()}
    assembly = Assembly(
        name or model.name,
        inputs={source: (shape[-1], *shape[:-1]) if turned[source] else shape for source, shape in shapes.items()},
        where=document.where,
        image_layout=next(_layouts(model), None),
    )
    inputs = [
        Tensor(source=reference.layer, shape=shapes[reference.layer], is_turned=turned[reference.layer])
        for reference in model.inputs
    ]
    walk = _Walk(document, assembly)
    for tensor in dict.fromkeys(walk.run(model, inputs, path="", is_trained=True)):
        assembly.ended(tensor)
    built = assembly.built()
    warn_of_holes(built, where=document.where, stacklevel=CALLER)
    _warn_of_precision(document, model)
    warn_of_adapted_weights(_all_layers(model), where=document.where, stacklevel=CALLER)
    return built.graph


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a layer is called: its path through nested models, and whether its weights are trained."""

    record: LayerRecord
    path: str
    is_trained: bool


class _Walk:
    """Calls the layers of a model in order."""

    def __init__(self, document: Document, assembly: Assembly) -> None:
        self._document = document
        self._assembly = assembly

    def run(self, model: ModelRecord, inputs: Sequence[Tensor], *, path: str, is_trained: bool) -> list[Tensor]:
        """Return the results of a model for its inputs."""
        values = {reference.key: tensor for reference, tensor in zip(model.inputs, inputs, strict=True)}
        records = {record.name: record for record in model.layers}
        calls = [(record, index, call) for record in model.layers for index, call in enumerate(record.calls)]
        references = [reference for _, _, call in calls for reference in call.references] + list(model.outputs)
        stated = {reference.key: reference.shape for reference in references if reference.shape is not None}
        read = {reference.key for reference in references}
        while calls:
            waiting = []
            for record, index, call in calls:
                if record.class_name == INPUT_CLASS and not call.references:
                    continue
                if any(reference.key not in values for reference in call.references):
                    waiting.append((record, index, call))
                    continue
                place = _Place(record, f"{path}{record.name}", is_trained and record.is_trained)
                indices = frozenset(entry[2] for entry in read if entry[:2] == (record.name, index))
                shapes = {position: stated.get((record.name, index, position)) for position in indices}
                results = self._results(place, call, values, shapes)
                values |= {(record.name, index, position): tensor for position, tensor in results.items()}
            if len(waiting) == len(calls):
                record, _, call = waiting[0]
                reads = next(reference for reference in call.references if reference.key not in values)
                why = "which waits for it" if reads.layer in records else "which does not exist"
                raise SpecError(self._document.where, [f"layer {record.name!r} reads {reads.layer!r}, {why}"])
            calls = waiting
        missing = [reference for reference in model.outputs if reference.key not in values]
        if missing:
            raise SpecError(self._document.where, [f"output {missing[0].layer!r} is made by no layer"])
        return [values[reference.key] for reference in model.outputs]

    def _results(
        self,
        place: _Place,
        call: CallRecord,
        values: Mapping[tuple[str, int, int], Tensor],
        shapes: Mapping[int, Any],
    ) -> dict[int, Tensor]:
        """Return the results of a call that are read, checked against the shapes that the configuration states."""
        tensors = tuple(values[reference.key] for reference in call.references)
        seen = LayerCall(
            assembly=self._assembly,
            path=place.path,
            class_name=place.record.class_name,
            config=place.record.config,
            tensors=tensors,
            arguments=_with_tensors(call.arguments, values),
            options=_with_tensors(dict(call.options), values),
            read=frozenset(shapes),
            is_trained=place.is_trained,
            weight_dtype=stored_dtype(place.record.config),
        )
        try:
            made = self._assembly.attempt(lambda: self._translated(place, seen))
        except TRANSLATION_FAULTS as error:
            reason = reason_of_hole(error, where=seen.assembly.where, layer=seen.path, class_name=seen.class_name)
            return self._hole(place, seen, shapes, reason=reason)
        results = {index: tensor for index, tensor in enumerate(_as_tuple(made)) if tensor is not None}
        for index, shape in shapes.items():
            if index not in results:
                raise SpecError(self._document.where, [f"layer {place.path!r} has no result {index}"])
            self._check_shape(place, results[index], shape)
        return results

    def _check_shape(self, place: _Place, tensor: Tensor, stated: tuple[int | None, ...] | None) -> None:
        if stated is None:
            return
        fits = len(stated) == len(tensor.shape) and all(
            size in (None, made) for size, made in zip(stated, tensor.shape, strict=True)
        )
        if not fits:
            problem = (
                f"layer {place.path!r} ({place.record.class_name}) makes {shape_text(tensor.shape)}, but the file says "
                f"{tuple(stated)}"
            )
            raise SpecError(self._document.where, [problem])

    def _translated(self, place: _Place, call: LayerCall) -> Result:
        """Return the results of a call by the translator of its class."""
        record = place.record
        if record.model is not None:
            if len(call.tensors) != len(record.model.inputs):
                decline(f"it is called with {len(call.tensors)} tensors")
            outputs = self.run(record.model, call.tensors, path=f"{place.path}.", is_trained=place.is_trained)
            return tuple(outputs)
        if record.class_name == "TimeDistributed" and record.is_builtin:
            return self._over_time(place, call)
        translator = translator_of(record)
        if translator is None:
            decline(_why_unknown(record))
        return translator(call)

    def _over_time(self, place: _Place, call: LayerCall) -> Result:
        """Return the results of a layer that is called for every step of a sequence."""
        plain = call.plain(call.first)
        if plain.rows or len(plain.shape) < 2:
            decline("it is a TimeDistributed inside another")
        inner = wrapped_layer(place.record, where=self._document.where)
        step = Tensor(source=plain.source, shape=plain.shape[1:], rows=plain.shape[:1])
        within = call.of(inner.config, class_name=inner.class_name, tensors=(step,), arguments=(step,), options={})
        made = self._translated(_Place(inner, place.path, call.is_trained and inner.is_trained), within)
        (tensor,) = _as_tuple(made)
        if tensor is None or not tensor.rows:
            decline(f"its layer {inner.class_name!r} does not keep the steps apart")
        ordered = self._assembly.plain(tensor)
        return Tensor(source=ordered.source, shape=(*ordered.rows, *ordered.shape))

    def _hole(self, place: _Place, call: LayerCall, shapes: Mapping[int, Any], *, reason: str) -> dict[int, Tensor]:
        """Return the results of an opaque layer: the first, and views of its work for the others."""
        facts = self._document.facts.get(place.path)
        weights = Weights(owner=place.path)
        if facts is not None:
            weights = Weights(owner=place.path, tensors=facts.weights, are_known=True)
        results: dict[int, Tensor] = {}
        for index in sorted(shapes) or [0]:
            shape = self._hole_shape(place, call, shapes.get(index), facts)
            reads = call.tensors if not results else (next(iter(results.values())),)
            held = weights if not results else Weights(owner=place.path, are_known=True)
            results[index] = self._assembly.hole(
                place.path,
                place.record.class_name,
                reads,
                shape=shape,
                reason=reason,
                weights=held,
                is_guess=shapes.get(index) is None and (facts is None or facts.output_shape is None),
            )
        return results

    def _hole_shape(self, place: _Place, call: LayerCall, stated: Any, facts: LayerFacts | None) -> Shape:
        """Return the shape of an opaque layer: as stated, with open axes from its input; else the input's shape."""
        shape = stated if stated is not None else None if facts is None else facts.output_shape
        if shape is None:
            if not call.tensors:
                raise SpecError(self._document.where, [f"layer {place.path!r} reads nothing and has no known shape"])
            return tuple(call.first.shape)
        like = call.first.shape if call.tensors and len(call.first.shape) == len(shape) else (None,) * len(shape)
        pairs = zip(shape, like, strict=True)
        filled = tuple(int(known) for size, other in pairs if (known := other if size is None else size) is not None)
        if len(filled) < len(shape):
            problem = f"layer {place.path!r} ({place.record.class_name}) has a result of unknown shape {tuple(shape)}"
            raise SpecError(self._document.where, [problem])
        return filled


def _why_unknown(record: LayerRecord) -> str:
    if not record.is_builtin:
        return f"its class is not Keras's own ({record.module})"
    return "it holds code, which is not run" if record.class_name == "Lambda" else "no layer translates it"


def _as_tuple(made: Result) -> tuple[Tensor | None, ...]:
    return (made,) if isinstance(made, Tensor) else tuple(made)


def _with_tensors(value: Any, values: Mapping[tuple[str, int, int], Tensor]) -> Any:
    """Return arguments with tensors in the place of references."""
    if isinstance(value, Reference):
        return values[value.key]
    if isinstance(value, tuple):
        return tuple(_with_tensors(part, values) for part in value)
    if isinstance(value, dict):
        return {name: _with_tensors(part, values) for name, part in value.items()}
    return value


def _all_layers(model: ModelRecord) -> Iterator[LayerRecord]:
    """Yield the layers of a model and of those inside it."""
    for record in model.layers:
        yield record
        if record.model is not None:
            yield from _all_layers(record.model)


def _layouts(model: ModelRecord) -> Iterator[str]:
    """Yield the order of axes of each layer that states one."""
    for record in _all_layers(model):
        if record.config.get("data_format") in (LAST, "channels_first"):
            yield record.config["data_format"]


def _sees_maps(model: ModelRecord, axis_total: int) -> bool:
    """Tell whether samples with this number of axes [1] are maps whose channels come last."""
    ending = f"{axis_total - 1}D"
    return axis_total > len(("steps", "features")) and any(
        ending in record.class_name and record.config.get("data_format", LAST) == LAST for record in _all_layers(model)
    )


def _input_shapes(document: Document, model: ModelRecord, given: Any) -> dict[str, Shape]:
    """Return the sample shape of each input: as stated by the model, open axes as given."""
    names = list(dict.fromkeys(reference.layer for reference in model.inputs))
    given = stated_shapes(given, names, where=document.where)
    faults, shapes = [], {}
    for name in names:
        stated = model.input_shapes.get(name)
        extents = tuple(stated[1:]) if isinstance(stated, list | tuple) else None
        if name in given:
            shape = checked_shape(name, tuple(given[name]))
            fits = extents is None or (
                len(extents) == len(shape)
                and all(size in (None, asked) for size, asked in zip(extents, shape, strict=True))
            )
            if not fits:
                raise ArgumentError("input_shapes", given, f"of {name!r} a shape that fits its own, {extents}")
            shapes[name] = shape
        elif extents is None or None in extents:
            example = tuple(8 if size is None else size for size in extents or (None,))
            remedy = f"give its extents by input_shapes={{{name!r}: {example}}}"
            faults.append(f"input {name!r} leaves axes open {'' if extents is None else extents}: {remedy}")
        else:
            shapes[name] = checked_shape(name, extents)
    if faults:
        raise SpecError(document.where, faults)
    return shapes


def _warn_of_precision(document: Document, model: ModelRecord) -> None:
    """Warn of a model whose layers compute in half precision: a graph has no data type."""
    for record in _all_layers(model):
        stated = record.config.get("dtype")
        inner = stated.get("config") if isinstance(stated, Mapping) else None
        policy = inner.get("name") if isinstance(inner, Mapping) else stated
        if (
            isinstance(policy, str)
            and policy in MIXED_POLICIES
            and record.class_name not in (INPUT_CLASS, *MODEL_CLASSES)
        ):
            message = (
                f"{document.where}: its policy is {policy}, but a graph has no data type: predict it with "
                f"dtype={MIXED_POLICIES[policy]!r}"
            )
            warn(PrecisionWarning(message), stacklevel=CALLER + 1)
            return


LAYERS: Final[Mapping[str, Translator]] = {
    **pointwise.TRANSLATORS,
    **maps.TRANSLATORS,
    **dense.TRANSLATORS,
    **sequences.TRANSLATORS,
}
"""Class of ``keras.layers`` -> the function that plans its layers."""
APPLICATIONS: Final = ("keras.src.applications", "keras.applications")
"""Start of the modules of classes that only ``keras.applications`` has."""


def translator_of(record: LayerRecord) -> Translator | None:
    """Return the translator of a class; None if it is unknown or not Keras's own."""
    if not record.is_builtin:
        return None
    if record.module.startswith(operations.MODULES):
        return operations.TRANSLATORS.get(record.class_name)
    if not record.module and "trainable" not in record.config:  # an operation without a stated module (HDF5)
        return operations.TRANSLATORS.get(record.class_name) or LAYERS.get(record.class_name)
    if record.module.startswith(APPLICATIONS):
        return pointwise.APPLICATION_TRANSLATORS.get(record.class_name)
    return LAYERS.get(record.class_name)


BITS_STATED: Final = ("gptq", "awq")
"""Modes that are followed by the bits of a weight, as in ``gptq/4/128``."""


def _mode(config: Mapping[str, Any]) -> str | None:
    """Return the mode of a layer's quantised data-type policy, e.g. ``int8`` or ``int4/128``."""
    policy = config.get("dtype")
    inner = policy.get("config") if isinstance(policy, Mapping) else None
    mode = inner.get("mode") if isinstance(inner, Mapping) else None
    return mode if isinstance(mode, str) else None


def stored_dtype(config: Mapping[str, Any]) -> str | None:
    """Return the data type in which a layer stores its tables of weights; None for that of the network.

    >>> stored_dtype({"dtype": {"config": {"mode": "gptq/4/128"}}}), stored_dtype({"dtype": "float32"})
    ('int4', None)
    """
    name, *details = (_mode(config) or "").split("/")
    dtype = f"int{details[0]}" if name in BITS_STATED and details else name
    return dtype if dtype in PACKED_BYTES else None


def warn_of_adapted_weights(records: Iterable[LayerRecord], *, where: str, stacklevel: int) -> None:
    """Warn of quantised layers, whose products need a ``dtype`` in a prediction, and of adapters that are left out."""
    quantised: dict[str, list[LayerRecord]] = {}
    adapted = []
    for record in records:
        if (mode := _mode(record.config)) is not None:
            quantised.setdefault(mode, []).append(record)
        if record.config.get("lora_rank"):
            adapted.append(record.name)
    for mode, layers in quantised.items():
        is_packed = stored_dtype(layers[0].config) is not None
        stored = "weights have their stored bytes" if is_packed else "weights count as those of other layers"
        names = listed([record.name for record in layers])
        dtype = "fp8" if mode.startswith("float8") else "int8"
        message = (
            f"{where}: {len(layers)} layers are quantised ({mode}): {names}: their {stored}; "
            f"products of eight bits are predicted with dtype={dtype!r} only"
        )
        warn(PrecisionWarning(message), stacklevel=stacklevel + 1)
    if adapted:
        message = (
            f"{where}: low-rank adapters (LoRA) of {len(adapted)} layers are left out: {listed(adapted)}; weights "
            "beside them, which Keras freezes, count as trained unless they are quantised"
        )
        warn(ParameterWarning(message), stacklevel=stacklevel + 1)
