"""An ONNX file as read: nodes, inputs and initialisers, with all checks that need no shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from perfmodel.derived import derived_property
from perfmodel.errors import SpecError, package_for
from perfmodel.files import file_bytes, is_file, user_path
from perfmodel.layers.checks import check_path

CONTROL_FLOW: Final = ("If", "Loop", "Scan", "SequenceMap")
"""Operators with nested graphs: only a run shows which of their nodes run, and how often."""
STANDARD_DOMAINS: Final = ("", "ai.onnx")
"""Two spellings of the domain of the standard operators."""
DIMENSION_TEXT: Final = "{input}[{axis}]"
"""Name of an axis without a known extent or name."""

MOST_FILE_BYTES: Final = 2**31
"""Largest file that the format allows; the content of larger models lies in files beside it. [B]"""

Extent = int | str
"""A number, or the name of a free size [1]."""


@dataclass(frozen=True, slots=True)
class ModelInput:
    """An input of the file's graph."""

    name: str
    extents: tuple[Extent, ...]
    element_type: int


@dataclass(frozen=True)
class OnnxModel:
    """Content of an ONNX file."""

    path: Path
    graph: Any
    versions: Mapping[str, int]

    @property
    def version(self) -> int:
        """Version of the standard operators."""
        return self.versions.get("", 1)

    @property
    def nodes(self) -> tuple[Any, ...]:
        """Its nodes, in order of execution."""
        return tuple(self.graph.node)

    @derived_property
    def initialisers(self) -> dict[str, Any]:
        """Stored tensors by name; the content may lie in another file."""
        return {tensor.name: tensor for tensor in self.graph.initializer}

    @property
    def sparse_initialisers(self) -> dict[str, Any]:
        """Sparse stored tensors, by name."""
        return {tensor.values.name: tensor for tensor in self.graph.sparse_initializer}

    @derived_property
    def inputs(self) -> tuple[ModelInput, ...]:
        """Inputs of the network, without the initialisers that old files list among them."""
        stored = self.initialisers.keys() | self.sparse_initialisers.keys()
        return tuple(self._input(value) for value in self.graph.input if value.name not in stored)

    def _input(self, value: Any) -> ModelInput:
        kind = value.type.WhichOneof("value")
        if kind != "tensor_type":
            raise SpecError(self.path, [f"input {value.name!r} is a {kind}: must be a tensor"])
        if not value.type.tensor_type.HasField("shape"):
            raise SpecError(self.path, [f"input {value.name!r} states no shape: must state its axes"])
        return ModelInput(value.name, extents_of(value), value.type.tensor_type.elem_type)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of its results."""
        return tuple(output.name for output in self.graph.output)

    @derived_property
    def stated_extents(self) -> dict[str, tuple[int, tuple[Extent, ...]]]:
        """Data type and extents that the file states for intermediate tensors and results."""
        stated = (*self.graph.value_info, *self.graph.output)
        return {
            value.name: (value.type.tensor_type.elem_type, extents_of(value))
            for value in stated
            if value.type.HasField("tensor_type") and value.type.tensor_type.HasField("shape")
        }


def extents_of(value: Any) -> tuple[Extent, ...]:
    """Return the extents in an onnx.ValueInfoProto, with a made-up name for each missing one [1]."""
    dimensions = value.type.tensor_type.shape.dim
    return tuple(
        dimension.dim_value
        if dimension.dim_value >= 1  # some programs write 0 or -1 where they mean any
        else dimension.dim_param or DIMENSION_TEXT.format(input=value.name, axis=axis)
        for axis, dimension in enumerate(dimensions)
    )


def is_standard(node: Any) -> bool:
    """Tell whether an onnx.NodeProto is of the standard domain."""
    return node.domain in STANDARD_DOMAINS


def node_name(node: Any) -> str:
    """Return a node's name; the name of its first result if it has none."""
    return node.name or next(filter(None, node.output), "") or node.op_type


def read_model(path: str | Path) -> OnnxModel:
    """Read an ONNX file, without the content of its large tensors."""
    check_path("path", path)
    file = user_path(path)
    proto = _parsed(file)
    _check_stored_tensors(file, proto.graph)
    proto = _with_functions_inlined(file, proto)
    _check_texts(file, proto.graph)
    _name_all_outputs(proto.graph)
    versions = {opset.domain if opset.domain != "ai.onnx" else "": opset.version for opset in proto.opset_import}
    _check_nodes(file, proto.graph, versions)
    return OnnxModel(file, proto.graph, versions)


def _parsed(file: Path) -> Any:
    """Return the onnx.ModelProto in a file."""
    onnx = package_for("onnx", "from_onnx", "onnx")
    from google.protobuf.message import DecodeError  # which onnx brings

    content = file_bytes(file, most_bytes=MOST_FILE_BYTES)
    try:
        proto = onnx.load_model_from_string(content)
    except DecodeError as error:
        raise SpecError(file, [f"is no ONNX file, or a truncated one ({error})"]) from error
    # Random bytes often parse as fields of an unknown version.
    if not proto.graph.node or not proto.opset_import or not proto.graph.output:
        raise SpecError(
            file, ["is no ONNX file: must hold a graph of nodes with outputs and say its operators' version"]
        )
    return proto


def _with_functions_inlined(file: Path, proto: Any) -> Any:
    """Return the model with calls of its own functions replaced by their nodes."""
    if not proto.functions:
        return proto
    import onnx.inliner

    try:
        return onnx.inliner.inline_local_functions(proto)
    except RuntimeError as error:
        raise SpecError(file, [f"its functions cannot be put in the place of their calls ({error})"]) from error


def _check_texts(file: Path, graph: Any) -> None:
    """Raise SpecError if names are not valid text."""
    for node in graph.node:
        texts = (
            node.op_type,
            node.domain,
            node.name,
            *node.input,
            *node.output,
            *(attribute.name for attribute in node.attribute),
        )
        wrong = next((text for text in texts if not isinstance(text, str)), None)
        if wrong is not None:
            raise SpecError(file, [f"is no ONNX file, or a damaged one: a node has {wrong!r} for a name"])


def _name_all_outputs(graph: Any) -> None:
    """Name the results that a node omits before others, so that their shapes are inferred."""
    for node in graph.node:
        for index, name in enumerate(node.output):
            if not name:
                node.output[index] = f"{node_name(node)}:{index}"


def _check_stored_tensors(file: Path, graph: Any) -> None:
    """Raise SpecError unless all files with stored tensors exist and are long enough."""
    faults = []
    for name, tensor in _stored_tensors(graph):
        if tensor.data_location != tensor.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        beside = file.parent / location
        if not location or not is_file(beside):
            faults.append(f"tensor {name!r}: its file {location!r} is missing beside {file.name}")
            continue
        try:
            end = int(entries.get("offset", 0)) + int(entries.get("length", 0))
        except ValueError:
            faults.append(f"tensor {name!r}: offset and length in {location!r} must be whole numbers of bytes")
            continue
        if beside.stat().st_size < end:
            faults.append(
                f"tensor {name!r}: its file {location!r} has {beside.stat().st_size} B, but must have {end} B"
            )
    if faults:
        raise SpecError(file, faults)


def _stored_tensors(graph: Any) -> Iterator[tuple[str, Any]]:
    for tensor in graph.initializer:
        yield tensor.name, tensor
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield node_name(node), attribute.t


def _check_nodes(file: Path, graph: Any, versions: Mapping[str, int]) -> None:
    """Raise SpecError for nested graphs, duplicate names, and inputs that are missing or that nothing makes."""
    known = {
        "",
        *(value.name for value in (*graph.input, *graph.initializer)),
        *(tensor.values.name for tensor in graph.sparse_initializer),
    }
    faults = []
    for node in graph.node:
        name = node_name(node)
        if node.op_type in CONTROL_FLOW and is_standard(node):
            faults.append(
                f"node {name!r} is a {node.op_type}, whose nodes depend on data; export the network without it"
            )
        unmade = [read for read in node.input if read not in known]
        faults += [f"node {name!r} reads {read!r}, which no node before it makes" for read in unmade]
        faults += _count_faults(name, node, versions.get("", 1))
        faults += [
            f"node {name!r} makes {made!r}, which exists already" for made in node.output if made and made in known
        ]
        known.update(node.output)
    faults += [
        f"output {output.name!r} is made by no node" for output in graph.output if output.name not in known - {""}
    ]
    if faults:
        raise SpecError(file, faults)


def schema_of(node: Any, version: int) -> Any:
    """Return onnx's schema of an operator in a version of the standard operators; None if there is none."""
    import onnx

    if not is_standard(node) or not onnx.defs.has(node.op_type):
        return None
    try:
        known = min(max(version, 1), onnx.defs.onnx_opset_version())
        return onnx.defs.get_schema(node.op_type, known, "")
    except onnx.defs.SchemaError:
        return None  # it came with a later version


def _count_faults(name: str, node: Any, version: int) -> list[str]:
    """Return a fault for a node without required inputs or without results."""
    schema = schema_of(node, version)
    needed = 0 if schema is None else schema.min_input
    count = sum(map(bool, node.input[:needed]))
    faults = [f"node {name!r} is a {node.op_type} of {count} input(s): must have {needed}"] if count < needed else []
    return faults + ([] if node.output else [f"node {name!r} makes nothing"])
