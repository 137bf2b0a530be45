"""Layer graphs as JSON files: versioned, data only; all faults of a file are reported together.

A file holds ``format_version``, ``name``, ``inputs`` (sample shape by name) and ``layers``, a list in any
order of ``{"name", "kind", "inputs", "options"}``.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Final

from perfmodel import layers
from perfmodel.errors import ArgumentError, GraphError, SpecError, UnknownNameError, is_one_of, meant
from perfmodel.files import MOST_DATA_BYTES, file_text, json_of
from perfmodel.graph.node import Usage
from perfmodel.layers import Layer, Shape

FORMAT_VERSION: Final = 2
"""Version of the format that is written."""
READABLE_VERSIONS: Final = {
    1: "no layer shares parameters or is frozen, no graph has a fixed batch size",
    2: "this one",
}
"""Readable versions -> their differences from the present one."""

IMAGE_LAYOUTS: Final = ("channels_first", "channels_last")
"""Orders of images in memory. [-]"""
GRAPH_FIELDS: Final = ("format_version", "name", "inputs", "layers", "fixed_batch_size", "image_layout")
LAYER_FIELDS: Final = ("name", "kind", "inputs", "options", *(field.name for field in fields(Usage)))


@dataclass(frozen=True, slots=True)
class LayerEntry:
    """One layer of a file."""

    name: str
    layer: Layer
    inputs: tuple[str, ...]
    usage: Usage


@dataclass(frozen=True, slots=True)
class GraphDocument:
    """Content of a graph file."""

    name: str
    inputs: dict[str, Shape]
    layers: tuple[LayerEntry, ...]
    fixed_batch_size: int | None = None
    image_layout: str | None = None

    def to_text(self) -> str:
        """Return the JSON text."""
        content: dict[str, Any] = {
            "format_version": FORMAT_VERSION,
            "name": self.name,
            "inputs": self.inputs,
            "layers": [
                {
                    "name": entry.name,
                    "kind": entry.layer.kind,
                    "inputs": entry.inputs,
                    "options": entry.layer.options(),
                    **entry.usage.options,
                }
                for entry in self.layers
            ],
        }
        if self.fixed_batch_size is not None:
            content["fixed_batch_size"] = self.fixed_batch_size
        if self.image_layout is not None:
            content["image_layout"] = self.image_layout
        # numpy integers, which builders may pass, become plain ones
        return json.dumps(content, indent=1, allow_nan=False, default=operator.index) + "\n"


def read_document(path: str | Path) -> GraphDocument:
    """Read and check a graph file."""
    content = json_of(path, file_text(path, most_bytes=MOST_DATA_BYTES), refusal=_no_graph, finite=True)
    _check_graph_fields(path, content)
    faults: list[str] = []
    entries = [_entry(path, index, entry, faults) for index, entry in enumerate(content["layers"])]
    if faults:
        raise SpecError(path, faults)
    inputs = {name: tuple(shape) for name, shape in content["inputs"].items()}
    parsed = [entry for entry in entries if entry is not None]
    ordered = _in_order(path, inputs, parsed)
    return GraphDocument(content["name"], inputs, ordered, content.get("fixed_batch_size"), content.get("image_layout"))


def _no_graph(path: Path, faults: list[str]) -> SpecError:
    return SpecError(
        path, [fault if fault.startswith("is not JSON") else f"is not a graph file: {fault}" for fault in faults]
    )


def _field_faults(
    where: str, noun: str, stated: Iterable[str], *, allowed: Sequence[str], required: Sequence[str]
) -> list[str]:
    """Return a line for each field that is unknown or missing."""
    names = list(stated)
    faults = []
    for name in names:
        if name not in allowed:
            known = ", ".join(allowed) or "none"
            faults.append(f"{where}: unknown {noun} {name!r}{meant(name, allowed)} (allowed: {known})")
    return faults + [f"{where}: {noun} {name!r} is missing" for name in required if name not in names]


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_shape(value: object) -> bool:
    return isinstance(value, list) and all(type(extent) is int and extent >= 1 for extent in value)


def _check_graph_fields(path: str | Path, content: Any) -> None:
    """Raise SpecError unless the top-level fields exist and have the right kind."""
    if not isinstance(content, dict):
        raise SpecError(path, [f"must be a JSON object with the fields {', '.join(GRAPH_FIELDS)}"])
    version = content.get("format_version", FORMAT_VERSION)
    if not is_one_of(version, READABLE_VERSIONS):
        known = " or ".join(map(str, READABLE_VERSIONS))
        raise SpecError(path, [f"format_version={version!r} is not supported: must be {known}"])
    faults = _field_faults("graph", "field", content, allowed=GRAPH_FIELDS, required=GRAPH_FIELDS[:4])
    fixed = content.get("fixed_batch_size")
    if fixed is not None and not (type(fixed) is int and fixed >= 1):
        faults.append(f"fixed_batch_size={fixed!r}: must be a whole number >= 1")
    if not is_one_of(layout := content.get("image_layout"), (None, *IMAGE_LAYOUTS)):
        faults.append(f"image_layout={layout!r}: must be {' or '.join(IMAGE_LAYOUTS)}")
    if "name" in content and not _is_text(content["name"]):
        faults.append(f"name={content['name']!r}: must be a string")
    inputs = content.get("inputs", {})
    if not isinstance(inputs, dict):
        faults.append(f"inputs={inputs!r}: must be an object of sample shapes by name")
    else:
        faults += [
            f"inputs: {name!r}={shape!r}: must be a list of whole numbers >= 1"
            for name, shape in inputs.items()
            if not _is_shape(shape)
        ]
    if not isinstance(content.get("layers", []), list):
        faults.append("layers: must be a list")
    if faults:
        raise SpecError(path, faults)


def _entry(path: str | Path, index: int, entry: Any, faults: list[str]) -> LayerEntry | None:
    """Return one layer of the file; None after adding its faults to ``faults``."""
    if not isinstance(entry, dict):
        faults.append(f"layers[{index}]={entry!r}: must be an object")
        return None
    name = entry.get("name")
    where = f"layer {name!r}" if _is_text(name) else f"layers[{index}]"
    entry_faults = _field_faults(where, "field", entry, allowed=LAYER_FIELDS, required=LAYER_FIELDS[:3])
    if "name" in entry and not _is_text(name):
        entry_faults.append(f"{where}: name={name!r} must be a string")
    inputs = entry.get("inputs", [])
    if not isinstance(inputs, list) or not all(map(_is_text, inputs)):
        entry_faults.append(f"{where}: inputs={inputs!r} must be a list of names")
    kind = entry.get("kind")
    if "kind" in entry and not (isinstance(kind, str) and kind in layers.LAYERS):
        raise UnknownNameError(kind=f"layer kind in {path}, {where}:", name=kind, known=layers.LAYERS)
    faults += entry_faults
    if entry_faults:
        return None
    layer = _layer(where, layers.LAYERS[entry["kind"]], entry.get("options", {}), faults)
    usage = _usage(where, entry, faults)
    return None if layer is None or usage is None else LayerEntry(entry["name"], layer, tuple(inputs), usage)


def _are_owners(value: Any) -> bool:
    pairs = value.values() if isinstance(value, dict) else (None,)
    return all(isinstance(pair, list) and len(pair) == 2 and all(map(_is_text, pair)) for pair in pairs)


_FLAG: Final = (lambda value: type(value) is bool, "true or false")
_TEXT: Final = (_is_text, "a string")
_USAGE: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "shared_parameters": (_are_owners, "an object of [layer, parameter] by parameter"),
    "frozen_parameters": (lambda value: isinstance(value, list) and all(map(_is_text, value)), "a list of names"),
    "recomputed_in": (lambda value: value is None or _is_text(value), "a string"),
    "density": (lambda value: isinstance(value, int | float), "a number"),
    **dict.fromkeys(("weight_dtype", "sparsity"), _TEXT),
    "reruns_all": (lambda value: value is None or type(value) is bool, "true, false or null"),
    **dict.fromkeys(("is_trained", "in_place", "keeps_result"), _FLAG),
}
"""Field of a layer's usage -> its check, and what it must be."""


def _usage(where: str, entry: Mapping[str, Any], faults: list[str]) -> Usage | None:
    """Return the usage of a layer; None after adding its faults to ``faults``."""
    stated = {name: entry[name] for name in _USAGE if name in entry}
    mistakes = [
        f"{where}: {name}={value!r} must be {_USAGE[name][1]}"
        for name, value in stated.items()
        if not _USAGE[name][0](value)
    ]
    faults += mistakes
    if mistakes:
        return None
    owners = {name: (layer, of) for name, (layer, of) in stated.pop("shared_parameters", {}).items()}
    frozen = tuple(stated.pop("frozen_parameters", ()))
    return Usage(shared_parameters=owners, frozen_parameters=frozen, **stated)


def _layer(where: str, kind: type[Layer], options: Any, faults: list[str]) -> Layer | None:
    """Build a layer from its options; None after adding their faults to ``faults``."""
    if not isinstance(options, dict):
        faults.append(f"{where}: options={options!r} must be an object")
        return None
    allowed = [field.name for field in fields(kind)]
    required = [field.name for field in fields(kind) if field.default is MISSING]
    option_faults = _field_faults(f"{where} ({kind.kind})", "option", options, allowed=allowed, required=required)
    faults += option_faults
    if option_faults:
        return None
    try:
        return kind(**{name: _without_lists(value) for name, value in options.items()})
    except ArgumentError as error:
        faults.append(f"{where} ({kind.kind}): {error}")
        return None


def _without_lists(value: Any) -> Any:
    """Convert JSON's lists to the tuples that layers hold."""
    return tuple(map(_without_lists, value)) if isinstance(value, list) else value


def _in_order(path: str | Path, inputs: Mapping[str, Shape], entries: Sequence[LayerEntry]) -> tuple[LayerEntry, ...]:
    """Sort the layers so that each follows all that it reads, otherwise in the order of the file."""
    position: dict[str, int] = dict.fromkeys(inputs, -1)
    for index, entry in enumerate(entries):
        if entry.name in position:
            raise GraphError(problem=f"{path}: the name {entry.name!r} appears twice")
        position[entry.name] = index
    for entry in entries:
        for name in entry.inputs:
            if name not in position:
                raise GraphError(problem=f"{path}: {unknown_input(entry.name, name, position)}")
    if all(position[name] < position[entry.name] for entry in entries for name in entry.inputs):
        return tuple(entries)
    import networkx as nx  # which takes longer to load than most files to read

    digraph: nx.DiGraph[str] = nx.DiGraph()
    digraph.add_nodes_from(position)
    digraph.add_edges_from((name, entry.name) for entry in entries for name in entry.inputs)
    if not nx.is_directed_acyclic_graph(digraph):
        names = [source for source, _ in nx.find_cycle(digraph)]
        raise GraphError(problem=f"{path}: layers form a cycle: {' -> '.join([*names, names[0]])}")
    ordered = nx.lexicographical_topological_sort(digraph, key=position.__getitem__)
    return tuple(entries[position[name]] for name in ordered if name not in inputs)


def unknown_input(layer: str, name: str, known: Iterable[str]) -> str:
    """Return a sentence that names the missing input and the nearest existing one.

    >>> unknown_input("fc", "conv", ["input", "conv1"])
    "layer 'fc' reads 'conv', which is not a layer or input of the graph; did you mean 'conv1'?"
    """
    return f"layer {layer!r} reads {name!r}, which is not a layer or input of the graph{meant(name, known)}"
