"""A Keras configuration as plain records: layers, their calls, and the tensors that these read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from perfmodel.errors import SpecError, short_repr
from perfmodel.importers.archives import printable

MODEL_CLASSES: Final = {"Functional": "functional", "Model": "functional", "Sequential": "sequential"}
"""Classes whose configuration is a network of layers; ``Model`` is what Keras 2 called a functional one."""
MOST_NESTING: Final = 32
"""Most models inside one another; real ones are two or three deep [1]."""
BUILTIN_MODULES: Final = ("keras", "keras.", "tensorflow.keras.", "tf_keras.", "tensorflow.python.keras.")
"""What the module of a class of Keras itself is or begins with."""
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
        """Return a tensor as a configuration names it; raise ValueError where that is no name."""
        if not isinstance(layer, str) or type(call) is not int or type(index) is not int:
            raise ValueError([layer, call, index])
        extents = shape if isinstance(shape, list) else []
        is_shape = bool(extents) and all(size is None or type(size) is int for size in extents)
        return cls(layer, call, index, tuple(extents[1:]) if is_shape else None)

    @property
    def key(self) -> tuple[str, int, int]:
        """What identifies it within its model."""
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
    """A network of a configuration; of a sequential one calls and references are those of a chain."""

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
    """Return the network in a configuration; raise SpecError where it is none, or is malformed."""
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
    """Return one call: of Keras 3 an object of arguments, of Keras 2 a list of [layer, call, index, options]."""
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
