"""What a graph must have before anything is computed from it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from perfmodel.errors import GraphError, ShapeError, UnknownNameError
from perfmodel.graph.node import Node, ParameterName
from perfmodel.layers.shapes import shape_text
from perfmodel.numeric import expanded


def check_complete(name: str, *, input_names: Iterable[str], nodes: Sequence[Node]) -> None:
    """Raise GraphError for an empty graph, an input nobody reads, a layer that leads to no loss.

    Parameters
    ----------
    name : str
        Name of the graph. [-]
    input_names : iterable of str
        Its inputs. [-]
    nodes : sequence of Node
        Its layers. [-]
    """
    if not nodes:
        problem = f"graph {name!r} has no layers"
        raise GraphError(problem)
    read = {each for node in nodes for each in node.input_names}
    ends = [node for node in nodes if node.name not in read]
    has_loss = any(node.layer.is_loss for node in ends)
    dangling = [node.name for node in ends if has_loss and not (node.layer.is_loss or node.layer.is_metric)]
    problems = [f"no layer reads the input {each!r}" for each in input_names if each not in read]
    problems += [f"the output of layer {each!r} leads to no loss" for each in dangling]
    if problems:
        problem = f"graph {name!r}: {'; '.join(problems)}"
        raise GraphError(problem)


def check_frozen(node: Node) -> None:
    """Raise UnknownNameError unless the parameters that a graph freezes are the layer's."""
    known = node.layer.parameter_shapes(node.input_shapes)
    for name in node.usage.frozen_parameters:
        if name not in known:
            noun = f"parameter of layer {node.name!r}"
            raise UnknownNameError(noun, name, known)


def check_sharing(node: Node, *, owner: Node | None, parameter: str, of: ParameterName) -> None:
    """Raise ShapeError unless a layer's parameter can be another layer's.

    Parameters
    ----------
    node : Node
        The layer that uses it. [-]
    owner : Node or None
        The layer that has it; None where there is no such layer. [-]
    parameter : str
        The user's name of it. [-]
    of : tuple of str
        The owner's name, and its name there. [-]
    """
    wanted = node.layer.parameter_shapes(node.input_shapes).get(parameter)
    shapes = {} if owner is None else owner.parameter_shapes
    if wanted is None:
        problem = f"has no parameter {parameter!r} to share"
    elif of[1] not in shapes:
        problem = f"shares the parameter {of[1]!r} of layer {of[0]!r}, which does not exist or is itself shared"
    elif expanded(math.prod(shapes[of[1]]) - math.prod(wanted)) != 0:
        problem = (
            f"has a parameter {parameter!r} of {shape_text(wanted)}, but {of[1]!r} of layer {of[0]!r} is "
            f"{shape_text(shapes[of[1]])}"
        )
    else:
        return
    raise ShapeError(node.name, problem)
