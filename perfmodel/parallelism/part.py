"""Parts of a graph: layers that follow one another, as a graph of their own; and which graphs are alike."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Final

from perfmodel.graph import LayerGraph
from perfmodel.graph.node import Node

MOST_PARTS: Final = 1024
"""Parts kept of one graph; the oldest goes first. [1]"""

_PARTS: weakref.WeakKeyDictionary[LayerGraph, dict[object, LayerGraph]] = weakref.WeakKeyDictionary()


def part_of(graph: LayerGraph, nodes: Sequence[Node], *, name: str) -> tuple[LayerGraph, dict[str, int]]:
    """Return some layers of a graph as a graph; what they read of others are its inputs.

    Parameters
    ----------
    graph : LayerGraph
        The whole. [-]
    nodes : sequence of Node
        The layers, in order. [-]
    name : str
        What the part is called. [-]

    Returns
    -------
    tuple
        The part, and the parameters it has twice because their owner is outside, by layer [1].
    """
    own = {node.name for node in nodes}
    read = dict.fromkeys(each for node in nodes for each in node.input_names if each not in own)
    inputs = {each: graph.shape(each) for each in read}
    part = LayerGraph(name, inputs=inputs, fixed_batch_size=graph.fixed_batch_size)
    copied: dict[str, int] = {}
    owners: dict[tuple[str, str], tuple[str, str]] = {}
    for node in nodes:
        options, shapes = node.usage.options, node.layer.parameter_shapes(node.input_shapes)
        shared = {}
        for parameter, of in node.usage.shared_parameters.items():
            owner = owners.get(of, of)
            if owner[0] in own:
                shared[parameter] = owner
            else:
                owners[of] = (node.name, parameter)
                copied[node.name] = copied.get(node.name, 0) + math.prod(shapes[parameter])
        options = {key: value for key, value in options.items() if key != "shared_parameters"}
        part.add(node.name, node.layer, inputs=node.input_names, shared_parameters=shared or None, **options)
    return part, copied


def structure_of(graph: LayerGraph) -> tuple[object, ...]:
    """Return what two graphs have in common that differ in names alone; it can be the key of a mapping.

    Examples
    --------
    >>> from perfmodel.layers import Dense
    >>> first, second = LayerGraph("a", input_shape=(3,)), LayerGraph("b", inputs={"x": (3,)})
    >>> _ = first.add("one", Dense(units=2), inputs="input"), second.add("two", Dense(units=2), inputs="x")
    >>> structure_of(first) == structure_of(second)
    True
    """
    places = {name: place for place, name in enumerate([*graph.input_shapes, *(node.name for node in graph.layers)])}
    regions: dict[str | None, int] = {None: -1}

    def of_node(node: Node) -> tuple[object, ...]:
        usage = node.usage
        return (
            node.layer,
            tuple(places[name] for name in node.input_names),
            tuple((key, places[of[0]], of[1]) for key, of in usage.shared_parameters.items()),
            (usage.is_trained, usage.frozen_parameters, usage.in_place, usage.reruns_all),
            regions.setdefault(usage.recomputed_in, len(regions)),
        )

    inputs = tuple((type(shape).__name__, tuple(shape)) for shape in graph.input_shapes.values())
    return (graph.fixed_batch_size, inputs, tuple(of_node(node) for node in graph.layers))


def first_alike(part: LayerGraph, *, of: LayerGraph) -> LayerGraph:
    """Return the first part of a graph that differs from this one in names alone: what was made of it still holds."""
    if part is of:
        return of
    parts = _PARTS.setdefault(of, {})
    structure = structure_of(part)
    if structure not in parts:
        while len(parts) >= MOST_PARTS:
            del parts[next(iter(parts))]
        parts[structure] = part
    return parts[structure]
