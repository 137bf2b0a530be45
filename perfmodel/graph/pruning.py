"""Structured pruning: layers with fewer output channels, and its effect on the layers that read them.

Nothing here knows what a layer does: the shapes that layers infer show where a smaller output goes. A layer absorbs it
if its weights shrink with its input and its output keeps its shape. It is stuck where shapes no longer fit (a sum of
branches), where a layer ignores it, and at the outputs of the network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from perfmodel.graph.node import Node
from perfmodel.layers import Layer, Shape, ShapeMismatchError
from perfmodel.layers.checks import is_open_size, refuse
from perfmodel.layers.shapes import shape_text

STRUCTURED = "structured"
"""Pattern of pruning that leaves out whole output channels."""


@dataclass(frozen=True, slots=True)
class _Flow:
    """Where smaller outputs go: layers whose options change, and the first layer that cannot take its input."""

    layers: Mapping[str, Layer]
    stuck_at: str | None = None
    problem: str = ""


def shrunk_layers(nodes: Sequence[Node], *, density: float, chosen: Sequence[str] | None) -> dict[str, Layer]:
    """Return the layers whose options change if others keep a share of their output channels."""
    thinner = {node.name: layer for node in nodes if (layer := _thinner(node, density)) != node.layer}
    if chosen is None:
        flows = (_flow(nodes, {name: layer}) for name, layer in thinner.items())
        chosen = [name for name, flow in zip(thinner, flows, strict=True) if flow.stuck_at is None]
        if not chosen:
            refuse("density", density, "one that shrinks a layer by itself, or pass the layers= that shrink together")
    for name in chosen:
        if name not in thinner:
            refuse("layers", name, f"dense layers or convolutions that lose channels at density {density}")
    flow = _flow(nodes, {name: thinner[name] for name in chosen})
    if flow.stuck_at is not None:
        _refuse_stuck(nodes, thinner, chosen, flow)
    return dict(flow.layers)


def _thinner(node: Node, density: float) -> Layer:
    """Return a layer with a share of its output channels, rounded to whole groups; itself if it has none."""
    option = node.layer.width_option
    width = None if option is None else getattr(node.layer, option)
    if option is None or width is None or is_open_size(width):
        return node.layer
    group_count = getattr(node.layer, "groups", 1)
    kept = group_count * max(1, round(density * width / group_count))
    return replace(node.layer, **{option: kept})


def _flow(nodes: Sequence[Node], changed: Mapping[str, Layer]) -> _Flow:
    """Follow the shapes of changed layers until weights absorb them, or a layer cannot take its input."""
    owners = {owner for node in nodes for owner, _ in node.usage.shared_parameters.values()}
    readers = {name for node in nodes for name in node.input_names}
    layers, shapes = dict(changed), dict[str, Shape]()
    for node in nodes:
        inputs = tuple(shapes.get(name, shape) for name, shape in zip(node.input_names, node.input_shapes, strict=True))
        if inputs == node.input_shapes and node.name not in changed:
            continue
        layer = layers.get(node.name, node.layer).following(node.input_shapes, inputs)
        try:
            output = layer.output_shape(inputs)
        except ShapeMismatchError as error:
            return _Flow(layers, node.name, error.problem)
        has_other_weights = layer.parameter_shapes(inputs) != node.layer.parameter_shapes(node.input_shapes)
        if has_other_weights and (node.name in owners or node.usage.shared_parameters):
            return _Flow(layers, node.name, "shares its parameters with another layer")
        if output != node.output_shape:
            if node.name not in readers:
                return _Flow(layers, node.name, "is an output of the network")
            shapes[node.name] = output
        elif not has_other_weights:
            taken = " and ".join(map(shape_text, inputs))
            return _Flow(layers, node.name, f"has no weights that could shrink with its input {taken}")
        if layer is not node.layer:
            layers[node.name] = layer
    return _Flow(layers)


def _refuse_stuck(nodes: Sequence[Node], thinner: Mapping[str, Layer], chosen: Sequence[str], flow: _Flow) -> NoReturn:
    """Raise an error that names the layers which must shrink together, or the one that no other can help."""
    stuck_at, problem = flow.stuck_at, flow.problem
    alone = {name: _flow(nodes, {name: layer}).stuck_at for name, layer in thinner.items()}
    together = list(chosen)
    while flow.stuck_at is not None:
        added = [name for name, place in alone.items() if place == flow.stuck_at and name not in together]
        if not added:
            allowed = f"layers whose outputs others can take in any width; {flow.stuck_at!r} {flow.problem}"
            refuse("layers", list(chosen), allowed)
        together += added
        flow = _flow(nodes, {name: thinner[name] for name in together})
    missing = ", ".join(map(repr, together[len(chosen) :]))
    refuse("layers", list(chosen), f"given with {missing}, which must shrink together: {stuck_at!r} {problem}")
