"""A configuration of deeplearning4j as plain records: vertices, their inputs and their fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from perfmodel.errors import ArgumentError, SpecError, short_repr
from perfmodel.files import file_toml, user_path
from perfmodel.importers.archives import JSON_TEXT, config_text, is_json_text, parsed, printable
from perfmodel.importers.assembly import NotTranslatedError, decline

CONFIG_MEMBER: Final = "configuration.json"
"""The configuration in a saved model."""
CLASS_FIELD: Final = "@class"
INPUT: Final = "input"
"""Name of the input of a network whose layers form a chain."""
LAYER_VERTEX: Final = "LayerVertex"


@cache
def _legacy_names() -> dict[str, str]:
    """Name of a class before 1.0.0-beta -> its name since."""
    return file_toml(Path(__file__).with_name("legacy_names.toml"))


@dataclass(frozen=True, slots=True)
class Entry:
    """An object of the configuration: its class, without the package, and its fields."""

    class_name: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class VertexRecord:
    """A layer, or another vertex of a graph."""

    name: str
    entry: Entry
    inputs: tuple[str, ...]
    before: Entry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRecord:
    """A network of deeplearning4j."""

    where: str
    vertices: tuple[VertexRecord, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


def entry_of(value: Any) -> Entry:
    """Return an object with its class: named in a field, or as the only key around the fields.

    >>> entry_of({"@class": "org.deeplearning4j.nn.conf.layers.DenseLayer", "nout": 3}).class_name
    'DenseLayer'
    >>> entry_of({"dense": {"nout": 3}}).class_name
    'DenseLayer'
    """
    if not isinstance(value, Mapping):
        decline(f"{str(value)[:40]!r} must be an object with its class")
    if CLASS_FIELD in value:
        return Entry(str(value[CLASS_FIELD]).rpartition(".")[2].rpartition("$")[2], value)
    name, fields = next(iter(value.items())) if len(value) == 1 else ("", None)
    if not isinstance(fields, Mapping):
        decline(f"an object with the fields {', '.join(list(value)[:4])} must say its class ({CLASS_FIELD})")
    return Entry(_legacy_names().get(name, name), fields)


def read_network(path_or_text: str | Path) -> NetworkRecord:
    """Read the configuration in a file, a saved model or a text."""
    if isinstance(path_or_text, str) and is_json_text(path_or_text):
        return network_of(parsed(JSON_TEXT, path_or_text), where=JSON_TEXT)
    if not isinstance(path_or_text, str | Path) or not path_or_text:
        raise ArgumentError("path_or_text", path_or_text, "the path of a JSON file or a saved model, or a JSON text")
    path = user_path(path_or_text)
    return network_of(parsed(str(path), config_text(path, CONFIG_MEMBER)), where=str(path))


def is_network(content: Mapping[str, Any]) -> bool:
    """Tell whether a JSON object is a configuration of deeplearning4j."""
    return isinstance(content.get("confs"), list) or (
        isinstance(content.get("vertices"), Mapping) and "vertexInputs" in content
    )


def network_of(content: Mapping[str, Any], *, where: str) -> NetworkRecord:
    """Return the network that a JSON object describes; SpecError if it describes none or is malformed."""
    if not is_network(content):
        problem = (
            "must be a MultiLayerConfiguration (with 'confs') or a ComputationGraphConfiguration (with 'vertices')"
        )
        raise SpecError(where, [problem])
    try:
        return _chain(content, where) if isinstance(content.get("confs"), list) else _graph(content, where)
    except SpecError:
        raise
    except NotTranslatedError as error:
        raise SpecError(where, [f"its configuration is malformed: {error}"]) from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        problem = f"{error} is missing" if isinstance(error, KeyError) else "a field must be an object or a list"
        raise SpecError(where, [f"its configuration is malformed: {problem}"]) from error


def in_order(network: NetworkRecord) -> list[VertexRecord]:
    """Return the vertices, each after those it reads; SpecError if one reads itself, or a name that no vertex has."""
    made, ordered = set(network.inputs), list[VertexRecord]()
    waiting = list(network.vertices)
    while waiting:
        ready = [vertex for vertex in waiting if made.issuperset(vertex.inputs)]
        if not ready:
            missing = next(name for name in waiting[0].inputs if name not in made)
            problem = f"vertex {waiting[0].name!r} reads {missing!r}, which no vertex before it makes"
            raise SpecError(network.where, [problem])
        ordered += ready
        made |= {vertex.name for vertex in ready}
        waiting = [vertex for vertex in waiting if vertex.name not in made]
    unknown = [name for name in network.outputs if name not in made]
    if unknown:
        raise SpecError(network.where, [f"output {unknown[0]!r} is made by no vertex"])
    return ordered


def _chain(content: Mapping[str, Any], where: str) -> NetworkRecord:
    """Return a network whose layers follow one another."""
    processors = content.get("inputPreProcessors") or {}
    before, vertices = INPUT, []
    for index, configuration in enumerate(content["confs"]):
        if not isinstance(configuration, Mapping):
            decline(f"confs[{index}]={short_repr(configuration)}: must be an object with a 'layer'")
        entry = entry_of(configuration["layer"])
        name = printable(where, "layerName", str(entry.fields.get("layerName") or f"layer{index}"))
        processor = processors.get(str(index))
        vertices.append(
            VertexRecord(
                name=name, entry=entry, inputs=(before,), before=None if processor is None else entry_of(processor)
            )
        )
        before = name
    names = [vertex.name for vertex in vertices]
    if len(set(names)) != len(names):
        decline("layerName must differ from layer to layer")
    return NetworkRecord(where=where, vertices=tuple(vertices), inputs=(INPUT,), outputs=(before,), facts=content)


def _graph(content: Mapping[str, Any], where: str) -> NetworkRecord:
    """Return a network whose vertices form a graph."""
    vertices = []
    for name, value in content["vertices"].items():
        printable(where, "vertex", name)
        entry, before = entry_of(value), None
        if entry.class_name == LAYER_VERTEX:
            stated = entry.fields.get("preProcessor")
            before = None if stated is None else entry_of(stated)
            entry = entry_of(entry.fields["layerConf"]["layer"])
        inputs = tuple(map(str, content["vertexInputs"][name]))
        vertices.append(VertexRecord(name=name, entry=entry, inputs=inputs, before=before))
    return NetworkRecord(
        where=where,
        vertices=tuple(vertices),
        inputs=tuple(map(str, content["networkInputs"])),
        outputs=tuple(map(str, content["networkOutputs"])),
        facts=content,
    )
