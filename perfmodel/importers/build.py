"""Build a layer graph from a translated program: which layers are needed, their names, who owns shared parameters."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from perfmodel.errors import GraphError
from perfmodel.graph import LayerGraph
from perfmodel.graph.node import ParameterName
from perfmodel.importers.translation import Program, Source, TranslatedNode, TranslatedProgram
from perfmodel.layers import Output, Shape, SharedShape
from perfmodel.layers.shapes import element_count
from perfmodel.layers.translation import Operand, Translator
from perfmodel.plain_text import escaped_name

NAMES_SHOWN: Final = 5
"""Names that a note lists [1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """A call that no layer translates."""

    layer: str
    step: int
    operator: str
    reason: str
    is_guess: bool = False  # its shape or its use of inputs is unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A graph and the calls that its layers came from."""

    graph: LayerGraph
    steps: dict[str, int]
    holes: tuple[Hole, ...]
    notes: tuple[str, ...] = ()


def build(program: Program, translators: Mapping[str, tuple[Translator, ...]]) -> Built:
    """Return the graph of a program."""
    translation = TranslatedProgram(program, translators)
    ends = [translation.result(operand) for operand in program.outputs]
    read = {id(source) for node in _needed_layers(translation.nodes, ends) for source in node.inputs}
    starting = {id(end) for operand, end in zip(program.outputs, ends, strict=True) if _starts(program, operand)}
    ends = [
        translation.ended(end)
        if isinstance(end, TranslatedNode)
        and _starts(program, operand)
        and (
            id(end) in read or (end.layer.is_loss and len(starting) > 1)
        )  # with several losses, training starts at all
        else end
        for operand, end in zip(program.outputs, ends, strict=True)
    ]
    nodes = _needed_layers(translation.nodes, ends)
    read = {id(source) for node in nodes for source in node.inputs}
    inputs = _inputs_read(program, nodes)
    if not nodes or not inputs:
        raise GraphError(problem=f"graph {program.name!r}: the network computes nothing from its inputs")
    graph = LayerGraph(
        escaped_name(program.name),
        inputs=inputs,
        fixed_batch_size=program.fixed_batch_size,
        image_layout=program.image_layout,
    )
    emission = _Emission(graph, translation, _names(nodes, taken=inputs))
    for node in nodes:
        emission.add(node)
    for node in nodes:
        if id(node) not in read and not _is_end(node, program, ends):
            emission.add_sink(node)
    return emission.built()


def _is_end(node: TranslatedNode, program: Program, ends: Sequence[Source]) -> bool:
    """Tell whether training starts at a layer: the loss, or without one every output with a gradient."""
    if node.layer.is_metric:
        return True
    pairs = zip(program.outputs, ends, strict=True)
    return any(end is node and _starts(program, operand) for operand, end in pairs)


def _starts(program: Program, output: Operand) -> bool:
    """Tell whether back-propagation starts at an output."""
    return not output.is_index if program.starts is None else output.key in program.starts


def _needed_layers(nodes: Sequence[TranslatedNode], ends: Iterable[Source]) -> list[TranslatedNode]:
    """Return the layers that lead to an output, and unread layers that are computed from an input.

    Unread views, and counters and tables that depend on no input, are excluded.
    """
    fed: set[int] = set()
    for node in nodes:
        if any(isinstance(source, str) or id(source) in fed for source in node.inputs):
            fed.add(id(node))
    used = {id(end) for end in ends if isinstance(end, TranslatedNode)}
    for node in reversed(nodes):
        if id(node) in used or (id(node) in fed and not node.layer.is_view):
            used.add(id(node))
            used |= {id(source) for source in node.inputs if isinstance(source, TranslatedNode)}
    return [node for node in nodes if id(node) in used]


def _inputs_read(program: Program, nodes: Sequence[TranslatedNode]) -> dict[str, Shape]:
    read = {source for node in nodes for source in node.inputs if isinstance(source, str)}
    return {name: operand.shape for name, operand in program.inputs.items() if name in read}


def _names(nodes: Sequence[TranslatedNode], *, taken: Iterable[str]) -> dict[int, str]:
    """Return a name for each layer: the path of its place, with the operator appended where that is not unique."""
    parts = [node.place.path.split(".") for node in nodes]
    holders = {".".join(part[:count]) for part in parts for count in range(len(part))}
    visits = Counter((node.place.path, node.place.visit) for node in nodes if not node.layer.is_view)
    only_views = Counter((node.place.path, node.place.visit) for node in nodes if node.layer.is_view)
    taken_names = set(taken)
    counts: Counter[str] = Counter()
    names: dict[int, str] = {}
    for node in nodes:
        place = (node.place.path, node.place.visit)
        of_kind = only_views[place] if not visits[place] else visits[place]
        is_alone = of_kind == 1 and (not visits[place] or not node.layer.is_view)
        name = (
            node.place.path
            if is_alone and node.place.path and node.place.path not in holders
            else ".".join(filter(None, (node.place.path, node.operator)))
        )
        unique = name = escaped_name(name)
        while unique in taken_names:
            counts[name] += 1
            unique = f"{name}_{counts[name]}"
        taken_names.add(unique)
        names[id(node)] = unique
    return names


class _Emission:
    """A graph under construction."""

    def __init__(self, graph: LayerGraph, translation: TranslatedProgram, names: Mapping[int, str]) -> None:
        self.graph = graph
        self.translation = translation
        self.names = names
        self.owners: dict[str, ParameterName] = {}
        self.steps: dict[str, int] = {}
        self.holes: list[Hole] = []
        self.notes: list[str] = []

    def name(self, source: Source) -> str:
        return source if isinstance(source, str) else self.names[id(source)]

    def add(self, node: TranslatedNode) -> None:
        name = self.names[id(node)]
        shapes = node.layer.parameter_shapes(tuple(map(self.translation.shape, node.inputs)))
        shared = {}
        for parameter, key in node.parameters.items():
            owner = self.owners.get(key)
            if owner is not None and self._can_share(owner, shapes[parameter]):
                shared[parameter] = owner
            elif owner is None:
                self.owners[key] = (name, parameter)
        self.graph.add(
            name,
            node.layer,
            inputs=tuple(map(self.name, node.inputs)),
            shared_parameters=shared,
            **self._training(node),
            weight_dtype=self._weight_dtype(node),
            in_place=node.place.in_place if node.inputs else None,
            recomputed_in=node.place.region or None,
            reruns_all=node.place.reruns_all,
        )
        if node.step is not None:
            self.steps[name] = node.step
        if node.problem and node.step is not None:
            operator = self.translation.program.steps[node.step].call.operator
            self.holes.append(Hole(layer=name, step=node.step, operator=operator, reason=node.problem))

    def _can_share(self, owner: ParameterName, shape: Shape) -> bool:
        """Tell whether a layer can share another's parameter; warn if one tensor has two sizes."""
        owners = self.graph.node(owner[0]).parameter_shapes[owner[1]]
        if math.prod(owners) == math.prod(shape):
            return True
        self.notes.append(
            f"parameter {owner[1]!r} of {owner[0]!r} is used in two sizes, {owners} and {shape}: it counts twice"
        )
        return False

    def _training(self, node: TranslatedNode) -> dict[str, Any]:
        """Return the parameters of a layer that are frozen."""
        frozen = tuple(name for name, key in node.parameters.items() if not self.translation.parameter(key).is_trained)
        if frozen and len(frozen) == len(node.parameters):
            return {"is_trained": False}
        return {"frozen_parameters": frozen}

    def _weight_dtype(self, node: TranslatedNode) -> str | None:
        """Return the data type in which a file stores the weights of a layer's products; None for the network's."""
        tensors = map(self.translation.parameter, node.parameters.values())
        return next((tensor.weight_dtype for tensor in tensors if tensor.weight_dtype and len(tensor.shape) > 1), None)

    def add_sink(self, node: TranslatedNode) -> None:
        """Add a reader to a result that no loss depends on, so that no gradient starts there."""
        name = self.names[id(node)]
        sink = f"{name}.output"
        while sink in self.graph:
            sink += "_1"
        self.graph.add(sink, Output(), inputs=name)

    def built(self) -> Built:
        notes = (*self.notes, *self._unused())
        return Built(graph=self.graph, steps=self.steps, holes=tuple(self.holes), notes=notes)

    def _unused(self) -> list[str]:
        used = {self.translation.parameter(key).name for key in self.owners}
        unused = sorted({tensor.name for tensor in self.translation.program.parameters.values()} - used)
        if not unused:
            return []
        return [f"{len(unused)} parameter(s) that the network never uses are not counted: {listed(unused)}"]


def listed(names: Sequence[str]) -> str:
    """Return the first few names, with dots if there are more."""
    return ", ".join(names[:NAMES_SHOWN]) + (" ..." if len(names) > NAMES_SHOWN else "")


def holes_by_operator(built: Built, *, batch_size: int) -> Iterator[tuple[str, list[Hole], str]]:
    """Yield each operator that no layer translates, its holes, and how their FLOP are counted."""
    by_operator: dict[str, list[Hole]] = {}
    for hole in built.holes:
        by_operator.setdefault(hole.operator, []).append(hole)
    for operator, holes in by_operator.items():
        yield operator, holes, _counted_by_bytes(built.graph, holes, batch_size=batch_size)


def _counted_by_bytes(graph: LayerGraph, holes: Sequence[Hole], *, batch_size: int) -> str:
    """Describe the counting of the FLOP of opaque layers, and its bounds."""
    bounds = [hole_bounds(graph, hole.layer, batch_size=batch_size) for hole in holes]
    least, most = (sum(ends) for ends in zip(*bounds, strict=True))
    counted = f"counted by its bytes and {least:,} FLOP forward at batch size {batch_size}, one per element"
    if any(hole.is_guess for hole in holes):
        return f"{counted}; its shape and its work are guesses, and the most that it takes is unknown"
    return (
        f"{counted}; it takes up to {most:,} if every element of the output takes a multiply-add with every element of "
        "the inputs"
    )


def hole_bounds(graph: LayerGraph, layer: str, *, batch_size: int) -> tuple[int, int]:
    """Return the least and the most forward arithmetic of an opaque layer."""
    node = graph.node(layer)
    runs = node.runs(batch_size)
    work = node.layer.work(node.input_shapes, batch_size=runs, phase="forward")
    # samples do not interact in a layer, unless all share its output or the batch size is fixed
    do_meet = isinstance(node.output_shape, SharedShape) or graph.fixed_batch_size is not None
    samples_met = runs if do_meet else 1
    read = sum(element_count(shape, batch_size=samples_met) for shape in node.input_shapes)
    most = 2 * element_count(node.output_shape, batch_size=runs) * read
    return work.flop_count, max(work.flop_count, most)
