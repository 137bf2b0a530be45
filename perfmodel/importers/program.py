"""What an importer hands on to be built: calls of operators in order, and the tensors they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perfmodel.layers.shapes import Shape
from perfmodel.layers.translation import Operand, OperatorCall

VIEW = "perfmodel.view"
"""Operator of a step that only looks at its input in another shape."""
OVERWRITE = "perfmodel.overwrite"
"""Operator of a step whose first input is the second one's memory, changed by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterTensor:
    """A trained tensor of the network.

    Parameters
    ----------
    name : str
        What the other program calls it. [-]
    shape : tuple of int
        Its extents. [1]
    is_trained : bool
        Whether it wants a gradient. [-]
    """

    name: str
    shape: Shape
    is_trained: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call of an operator in its place.

    Parameters
    ----------
    call : OperatorCall
        The call. [-]
    path : str
        Where it stands in the other program: path of the module, or name of the node. [-]
    visit : int
        Which visit of that place it belongs to; calls of one visit are named together. [-]
    in_place : bool or None
        Whether the result overwrites an input; None where the other program does not say. [-]
    detached : frozenset of str
        Keys of operands through which no gradient flows back. [-]
    region : str
        What runs again with it in the backward phase; empty where it is kept. [-]
    reruns_all : bool
        Whether all of that runs again, not only what the backward phase reads. [-]
    """

    call: OperatorCall
    path: str = ""
    visit: int = 0
    in_place: bool | None = None
    detached: frozenset[str] = frozenset()
    region: str = ""
    reruns_all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A network as another program runs it.

    Parameters
    ----------
    name : str
        Name of the graph. [-]
    inputs : mapping of str to Operand
        Tensors that are fed, by name. [-]
    parameters : mapping of str to ParameterTensor
        Trained tensors by the keys of the operands that are them, whole or seen otherwise. [-]
    constants : mapping of str to str
        Names of other tensors that no step makes, by key. [-]
    steps : sequence of Step
        The calls, each after those whose results it reads. [-]
    outputs : sequence of Operand
        What the network returns. [-]
    starts : frozenset of str or None
        Keys of the outputs at which back-propagation starts; None where it starts at all that can have a gradient. [-]
    fixed_batch_size : int or None
        The only batch size the shapes hold for, if any. [samples]
    wholes : mapping of str to tuple of int
        Shapes of whole tensors by key, for calls that mix samples; only where the batch size is fixed. [1]
    """

    name: str
    inputs: Mapping[str, Operand]
    parameters: Mapping[str, ParameterTensor]
    constants: Mapping[str, str] = field(default_factory=dict)
    steps: Sequence[Step]
    outputs: Sequence[Operand]
    starts: frozenset[str] | None = None
    fixed_batch_size: int | None = None
    wholes: Mapping[str, Shape] = field(default_factory=dict)
