"""A layer that an importer will add to a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perfmodel.layers import Layer, MatMul, Reshape, Shape


@dataclass(slots=True, kw_only=True, eq=False)
class PlannedNode:
    """A layer that will be added to the graph.

    Parameters
    ----------
    layer : Layer
        What it computes. [-]
    inputs : tuple of PlannedNode or str
        What it reads: other planned layers, or graph inputs by name. [-]
    shape : tuple of int
        Sample shape of its output. [1]
    parameters : mapping of str to str
        Keys of the tensors that are its parameters, by their names in the layer. [-]
    step : int or None
        Index of the step it came from; None for layers between steps. [-]
    path, operator : str
        What it is named after. [-]
    visit : int
        Which visit of that place it belongs to. [-]
    in_place : bool or None
        Whether it overwrites its input; None where the other program does not say. [-]
    wants_gradient : bool
        Whether a gradient of its output is of use. [-]
    problem : str
        Why no layer took the call; empty where one did. [-]
    region : str
        What runs again with it in the backward phase; empty where it is kept. [-]
    reruns_all : bool
        Whether all of that runs again, not only what the backward phase reads. [-]
    """

    layer: Layer
    inputs: tuple[PlannedNode | str, ...]
    shape: Shape
    parameters: Mapping[str, str] = field(default_factory=dict)
    step: int | None = None
    path: str = ""
    operator: str = ""
    visit: int = 0
    in_place: bool | None = None
    wants_gradient: bool = False
    problem: str = ""
    region: str = ""
    reruns_all: bool = False


Source = PlannedNode | str
"""A planned layer, or the name of a graph input."""


def is_seen_otherwise(source: Source) -> bool:
    """Tell whether a tensor is a view with its axes in another order of something that was reshaped before.

    The gradient of a copy of it comes in the new order. Before it can be reshaped back it is copied once more. Where
    nothing was reshaped, whoever wants the gradient reads it as it lies.

    Parameters
    ----------
    source : PlannedNode or str
        What is copied into the order in which it is seen. [-]

    Returns
    -------
    bool
        Also of the result of products of several matrices, which are made as one row of matrices. [-]
    """
    is_turned = False
    while isinstance(source, PlannedNode) and source.inputs and source.layer.is_view:
        if source.layer.gradient_is_joined:
            return False
        if is_turned and isinstance(source.layer, Reshape):
            return True
        is_turned |= source.layer.turns_axes
        source = source.inputs[0]
    return is_turned and isinstance(source, PlannedNode) and isinstance(source.layer, MatMul)
