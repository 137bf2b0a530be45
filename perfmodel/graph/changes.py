"""How a network was changed since it was built, so that the same can be done to another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from perfmodel.graph.layer_graph import LayerGraph
    from perfmodel.graph.structure import GraphStructure

Graph = TypeVar("Graph", bound="GraphStructure")


def with_history(graph: Graph, method: str, options: Mapping[str, Any], *, before: Graph) -> Graph:
    """Keep with a network that a method made of another how that one was built, and what was done to it since."""
    if graph is not before:
        changes = before.kept("changes")
        graph.kept("recipes").update(before.kept("recipes"))
        graph.kept("changes").update({**changes, len(changes): (method, dict(options))})
    return graph


def changes_of(graph: GraphStructure) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """Return the methods that changed a network since it was built and their options; none once layers were added."""
    return tuple(graph.kept("changes").values())


def changed_like(graph: LayerGraph, other: GraphStructure) -> LayerGraph:
    """Return a network quantised, pruned or brought to inference as another one was."""
    for method, options in changes_of(other):
        graph = getattr(graph, method)(**options)
    return graph
