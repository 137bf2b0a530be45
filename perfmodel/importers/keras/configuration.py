"""A Keras configuration as plain records: layers, their calls, and the tensors that these read.

It lies in a model object, an archive, an HDF5 file or a text, which are read as data, within limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from perfmodel.errors import ArgumentError, SpecError, package_for, short_repr
from perfmodel.files import user_path
from perfmodel.importers.archives import JSON_TEXT, config_text, is_json_text, parsed, printable
from perfmodel.importers.assembly import Weight

MODEL_CLASSES: Final = {"Functional": "functional", "Model": "functional", "Sequential": "sequential"}
"""Classes whose configuration is a network of layers; ``Model`` is what Keras 2 called a functional one."""
MOST_NESTING: Final = 32
"""Most models inside one another; real ones are two or three deep [1]."""
BUILTIN_MODULES: Final = ("keras", "keras.", "tensorflow.keras.", "tf_keras.", "tensorflow.python.keras.")
"""Modules, and their prefixes, of Keras's own classes."""
INPUT_CLASS: Final = "InputLayer"


@dataclass(frozen=True, slots=True)
class Reference:
    """A tensor as the result of a call of a layer, with its shape if the configuration states it."""

    layer: str
    call: int
    index: int
    shape: tuple[int | None, ...] | None = None

    @classmethod
    def of(cls, layer: Any, call: Any, index: Any, shape: Any = None) -> Reference:
        """Return the tensor that a configuration names; raise ValueError if it is no name."""
        if not isinstance(layer, str) or type(call) is not int or type(index) is not int:
            raise ValueError([layer, call, index])
        extents = shape if isinstance(shape, list) else []
        is_shape = bool(extents) and all(size is None or type(size) is int for size in extents)
        return cls(layer, call, index, tuple(extents[1:]) if is_shape else None)

    @property
    def key(self) -> tuple[str, int, int]:
        """Key of the tensor within its model."""
        return self.layer, self.call, self.index


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call of a layer: positional and named arguments, tensors among them as references."""

    arguments: tuple[Any, ...]
    options: Mapping[str, Any]

    @property
    def references(self) -> tuple[Reference, ...]:
        """The tensors that it reads, in order."""
        return tuple(references_in((self.arguments, tuple(self.options.values()))))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRecord:
    """A layer of a configuration."""

    name: str
    class_name: str
    module: str
    config: Mapping[str, Any]
    build_shape: Any = None
    calls: tuple[CallRecord, ...] = ()
    model: ModelRecord | None = None

    @property
    def is_builtin(self) -> bool:
        """Whether its class is Keras's own, as far as the configuration tells."""
        return not self.module or self.module == "keras" or self.module.startswith(BUILTIN_MODULES[1:])

    @property
    def is_trained(self) -> bool:
        """Whether its weights are trained."""
        return self.config.get("trainable", True) is not False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecord:
    """A network of a configuration; a sequential one is stored as a chain of calls."""

    name: str
    layers: tuple[LayerRecord, ...]
    inputs: tuple[Reference, ...]
    outputs: tuple[Reference, ...]
    input_shapes: Mapping[str, Any] = field(default_factory=dict)
    is_trained: bool = True


def references_in(value: Any) -> Iterator[Reference]:
    """Yield the tensors within an argument, in order."""
    if isinstance(value, Reference):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from references_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from references_in(part)


def model_of(content: Mapping[str, Any], *, where: str, depth: int = 0) -> ModelRecord:
    """Return the network in a configuration; raise SpecError if there is none or it is malformed."""
    if depth > MOST_NESTING:
        raise SpecError(where, [f"has models more than {MOST_NESTING} deep in one another"])
    class_name, config = content.get("class_name"), content.get("config")
    if isinstance(config, list):  # of a sequential model, before Keras 2.2.3
        config = {"layers": config}
    is_known = isinstance(class_name, str) and class_name in MODEL_CLASSES
    if not is_known or not isinstance(config, Mapping) or not isinstance(config.get("layers"), list):
        kinds = " or ".join(name for name in MODEL_CLASSES if name != "Model")
        problem = (
            f"class_name={short_repr(class_name)}: must be {kinds}, with its layers (a subclassed model has no "
            "graph of them)"
        )
        raise SpecError(where, [problem])
    try:
        layers = [_layer(entry, where=where, depth=depth) for entry in config["layers"]]
        make = _functional if MODEL_CLASSES[str(class_name)] == "functional" else _sequential
        return make(config, layers, content)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, RecursionError) as error:
        if isinstance(error, SpecError):
            raise
        problem = f"model {config.get('name')!r}: its configuration is malformed ({type(error).__name__}: {error})"
        raise SpecError(where, [problem]) from error


def _layer(entry: Mapping[str, Any], *, where: str, depth: int) -> LayerRecord:
    """Return one entry of a model's list of layers."""
    config = entry["config"]
    name = entry.get("name") or (config.get("name") if isinstance(config, Mapping) else None) or entry["class_name"]
    class_name = str(entry["class_name"])
    is_model = class_name in MODEL_CLASSES and isinstance(config, Mapping | list)
    has_layers = is_model and (isinstance(config, list) or isinstance(config.get("layers"), list))
    registered = entry.get("registered_name") or ""
    return LayerRecord(
        name=printable(where, "layer", str(name)),
        class_name=printable(where, "class", class_name),
        module=registered if ">" in registered else str(entry.get("module") or ""),
        config=config if isinstance(config, Mapping) else {},
        build_shape=(entry.get("build_config") or {}).get("input_shape"),
        calls=tuple(map(_call, entry.get("inbound_nodes") or ())),
        model=model_of(entry, where=where, depth=depth + 1) if has_layers else None,
    )


def wrapped_layer(record: LayerRecord, *, where: str) -> LayerRecord:
    """Return the layer that a wrapper such as ``TimeDistributed`` calls."""
    inner = record.config.get("layer")
    if not isinstance(inner, Mapping) or not isinstance(inner.get("config"), Mapping):
        raise SpecError(where, [f"layer {record.name!r} must say the layer that it calls, with its config"])
    return _layer(inner, where=where, depth=0)


def _call(node: Any) -> CallRecord:
    """Return one call, stored by Keras 3 as an object of arguments, by Keras 2 as [layer, call, index, options]."""
    if isinstance(node, Mapping):
        options = {name: _argument(value) for name, value in (node.get("kwargs") or {}).items()}
        return CallRecord(tuple(map(_argument, node.get("args") or ())), options)
    entries = [node] if node and isinstance(node[0], str) else list(node)
    references = tuple(Reference.of(*entry[:3]) for entry in entries)
    stated = next((entry[3] for entry in entries if len(entry) > 3 and isinstance(entry[3], Mapping)), {})
    options = {name: _argument_of_keras2(value) for name, value in stated.items()}
    return CallRecord(references if len(references) == 1 else (references,), options)


def _argument_of_keras2(value: Any) -> Any:
    """Return a named argument, which holds tensors as [layer, call, index]."""
    is_reference = isinstance(value, list) and len(value) == 3 and isinstance(value[0], str)
    if is_reference and all(isinstance(number, int) for number in value[1:]):
        return Reference(*value)
    return tuple(map(_argument_of_keras2, value)) if isinstance(value, list) else value


def _argument(value: Any) -> Any:
    """Return an argument with tensors as references, slices as slices and lists as tuples."""
    if isinstance(value, list):
        return tuple(map(_argument, value))
    if not isinstance(value, Mapping):
        return value
    special = SPECIAL_ARGUMENTS.get(str(value.get("class_name")))
    if special is not None:
        return special(value["config"])
    return {name: _argument(part) for name, part in value.items()}


def _tensor(config: Mapping[str, Any]) -> Reference:
    layer, call, index = config["keras_history"]
    return Reference.of(layer, call, index, config.get("shape"))


SPECIAL_ARGUMENTS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "__keras_tensor__": _tensor,
    "__slice__": lambda config: slice(config["start"], config["stop"], config["step"]),
    "__tuple__": lambda config: tuple(map(_argument, config)),
}
"""Class of an argument that is written as a table -> function that reads it."""


def _functional(config: Mapping[str, Any], layers: Sequence[LayerRecord], content: Mapping[str, Any]) -> ModelRecord:
    """Return a functional model."""
    return ModelRecord(
        name=str(config.get("name") or "model"),
        layers=tuple(layers),
        inputs=tuple(_ends(config["input_layers"])),
        outputs=tuple(_ends(config["output_layers"])),
        input_shapes={layer.name: input_shape(layer) for layer in layers if layer.class_name == INPUT_CLASS},
        is_trained=config.get("trainable", True) is not False,
    )


def _ends(value: Any) -> Iterator[Reference]:
    """Yield the inputs or outputs of a model, nested as they may be."""
    if isinstance(value, Mapping):
        for part in value.values():
            yield from _ends(part)
    elif not isinstance(value, list):
        raise TypeError(value)
    elif len(value) == 3 and isinstance(value[0], str) and not isinstance(value[1], str):
        yield Reference.of(*value)
    else:
        for part in value:
            yield from _ends(part)


def _sequential(config: Mapping[str, Any], layers: Sequence[LayerRecord], content: Mapping[str, Any]) -> ModelRecord:
    """Return a sequential model as a chain from its input."""
    has_input = bool(layers) and layers[0].class_name == INPUT_CLASS
    built = config.get("build_input_shape") or (content.get("build_config") or {}).get("input_shape")
    if has_input:
        first, rest, stated = layers[0].name, layers[1:], input_shape(layers[0])
    else:
        first, rest = "input", layers
        stated = input_shape(layers[0]) if layers and input_shape(layers[0]) else built
    before = Reference(first, 0, 0)
    chain = [LayerRecord(name=first, class_name=INPUT_CLASS, module="", config={})]
    for place, layer in enumerate(rest):
        chain.append(replace(layer, calls=(CallRecord((before,), {}),)))
        after = rest[place + 1].build_shape if place + 1 < len(rest) else None
        before = Reference.of(layer.name, 0, 0, after)
    return ModelRecord(
        name=str(config.get("name") or "sequential"),
        layers=tuple(chain),
        inputs=(Reference(first, 0, 0),),
        outputs=(before,),
        input_shapes={first: stated},
        is_trained=config.get("trainable", True) is not False,
    )


def input_shape(layer: LayerRecord) -> Any:
    """Return the shape that a layer states for its input, the batch first; None if it states none [1]."""
    return layer.config.get("batch_shape") or layer.config.get("batch_input_shape")


CONFIG_MEMBER: Final = "config.json"
"""The configuration in a ``.keras`` archive."""
H5_ATTRIBUTE: Final = "model_config"
"""The configuration in an HDF5 file: an attribute of its root."""
H5_SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"
BINARY_SUFFIXES: Final = (".keras", ".h5", ".hdf5")


@dataclass(frozen=True, slots=True)
class LayerFacts:
    """Facts of a layer that only a model object has, not its configuration."""

    output_shape: tuple[int | None, ...] | None
    weights: Mapping[str, Weight]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A configuration and where it came from."""

    where: str
    content: Mapping[str, Any]
    facts: Mapping[str, LayerFacts] = field(default_factory=dict)


def read_document(model_or_path: Any) -> Document:
    """Read the configuration of a model object, an archive, an HDF5 file, a JSON file or a JSON text."""
    if isinstance(model_or_path, str) and is_json_text(model_or_path):
        return Document(where=JSON_TEXT, content=parsed(JSON_TEXT, model_or_path))
    if isinstance(model_or_path, str | Path) and model_or_path:
        path = user_path(model_or_path)
        text = config_text(path, CONFIG_MEMBER, readers={H5_SIGNATURE: _text_in_h5}, binary_suffixes=BINARY_SUFFIXES)
        return Document(where=str(path), content=parsed(str(path), text))
    if hasattr(model_or_path, "to_json") and hasattr(model_or_path, "layers"):
        return _document_of_model(model_or_path)
    allowed = "a Keras model, the path of a .keras, .h5 or .json file, or the text of to_json()"
    raise ArgumentError("model_or_path", model_or_path, allowed)


def _text_in_h5(path: Path) -> str | bytes:
    """Return the attribute of an HDF5 file that holds the configuration."""
    h5py = package_for("h5py", "from_keras", "keras")
    try:
        with h5py.File(path, "r") as file:
            text = file.attrs.get(H5_ATTRIBUTE)
    except (OSError, RuntimeError, KeyError) as error:
        raise SpecError(path, [f"is no HDF5 file, or a truncated one ({error})"]) from error
    if not isinstance(text, str | bytes):
        raise SpecError(path, [f"has no {H5_ATTRIBUTE}: must be a saved model, not its weights alone"])
    return text


def _document_of_model(model: Any) -> Document:
    """Return the configuration of a model object, with the facts that only the object has."""
    try:
        text = model.to_json()
    except (NotImplementedError, TypeError, ValueError) as error:
        allowed = (
            "a model that has a configuration (Functional or Sequential); on torch's backend pm.from_torch reads any"
        )
        raise ArgumentError("model_or_path", model, f"{allowed}: {error}") from error
    where = f"model {model.name!r}"
    return Document(where=where, content=parsed(where, text), facts=dict(_facts(model, "")))


def _facts(model: Any, path: str) -> Iterator[tuple[str, LayerFacts]]:
    """Yield the facts that a model object has of each layer, by the layer's path through nested models."""
    for layer in model.layers:
        place = f"{path}{layer.name}"
        if hasattr(layer, "layers"):
            yield from _facts(layer, f"{place}.")
        try:
            shape = tuple(layer.output.shape)[1:]
        except (AttributeError, ValueError):  # of several calls, or several outputs
            shape = None
        weights = {
            f"{variable.name}_{index}" if index else variable.name: Weight(
                shape=tuple(variable.shape) or (1,), is_trained=bool(variable.trainable)
            )
            for index, variable in enumerate(layer.trainable_weights if layer.trainable else layer.weights)
        }
        yield place, LayerFacts(shape, weights)
