"""What one traced run of a network is: its tensors, and the operators called on them, in plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Origin = Literal["input", "parameter", "constant", "result"]


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor among the arguments of a call.

    Parameters
    ----------
    key : int
        Index of the tensor in the recording. [-]
    is_detached : bool
        Whether no gradient flows back from this use of it. [-]
    """

    key: int
    is_detached: bool = False


@dataclass(slots=True, kw_only=True)
class TensorFacts:
    """One tensor of a run.

    Parameters
    ----------
    shape : tuple of int
        Its whole shape. [1]
    is_index : bool
        Whether it holds whole numbers or truth values. [-]
    origin : str
        ``input``, ``parameter``, ``constant``, or ``result`` of a call. [-]
    is_complex : bool
        Whether it holds complex numbers. [-]
    name : str
        What the network calls it, or the parameter it is a view of. [-]
    part : tuple of int or None
        First element and number of elements of the parameter that it is a view of, in the order of memory; None
        where it is no such view. [1]
    is_transposed : bool
        Whether a view of a parameter has its two axes exchanged. [-]
    """

    shape: tuple[int, ...]
    is_index: bool
    origin: Origin
    is_complex: bool = False
    name: str = ""
    part: tuple[int, int] | None = None
    is_transposed: bool = False


@dataclass(slots=True, kw_only=True)
class Call:
    """One call of an operator.

    Parameters
    ----------
    operator, overload : str
        Name, e.g. ``aten.add``, and overload of it. [-]
    arguments : mapping of str to object
        By name in the schema: plain values, or Ref. [-]
    outputs : tuple of Ref
        Its results. [-]
    path : str
        Path of the module it is called in. [-]
    visit : int
        Which call of a module it belongs to. [-]
    occurrence : int
        How many calls of the operator the module made before. [1]
    in_place : bool
        Whether it overwrites an argument. [-]
    can_decompose : bool
        Whether it could be recorded as the operators it is made of. [-]
    sequence : tuple of int
        Autograd's numbers of the nodes it made: first, and one after the last. [-]
    product_flop_count : int
        Arithmetic of its matrix products as torch counts it. [FLOP]
    has_uncounted_products : bool
        Whether it holds products that torch counts as nothing. [-]
    region : str
        Checkpointed region that it is in, which runs again in the backward phase; empty where it is in none. [-]
    reruns_all : bool
        Whether all of that region runs again, not only what the backward phase reads. [-]
    parts : tuple of str
        Operators that ran within it, where it is taken whole and runs by them. [-]
    moved : tuple of str
        Names of the arguments whose elements it first brings into another order in memory, by a copy. [-]
    is_gradient : bool
        Whether it computes a gradient of which gradients are wanted in turn. [-]
    """

    operator: str
    overload: str = ""
    arguments: Mapping[str, Any]
    outputs: tuple[Ref, ...]
    path: str = ""
    visit: int = 0
    occurrence: int = 0
    in_place: bool = False
    can_decompose: bool = False
    sequence: tuple[int, int] = (0, 0)
    product_flop_count: int = 0
    has_uncounted_products: bool = False
    region: str = ""
    reruns_all: bool = False
    parts: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    is_gradient: bool = False

    @property
    def site(self) -> tuple[str, str, int]:
        """What identifies the call in every trace of the same network."""
        return (self.path, self.operator, self.occurrence)

    @property
    def inputs(self) -> tuple[Ref, ...]:
        """The tensors it reads."""
        return tuple(refs_of(tuple(self.arguments.values())))


def refs_of(value: Any) -> list[Ref]:
    """Return the tensors within a value, in order.

    Parameters
    ----------
    value : object
        A plain value, a Ref, or tuples of them. [-]

    Returns
    -------
    list of Ref
        The tensors. [-]
    """
    if isinstance(value, Ref):
        return [value]
    if isinstance(value, tuple):
        return [ref for each in value for ref in refs_of(each)]
    return []


@dataclass(slots=True, kw_only=True)
class Recording:
    """One traced run of a network.

    Parameters
    ----------
    batch_size : int
        Samples it was run with. [samples]
    tensors : list of TensorFacts
        All tensors, by their key. [-]
    calls : list of Call
        All calls, in order. [-]
    outputs : list of tuple
        What the network returned: label and tensor. [-]
    differentiable : set of int
        Which of the outputs, by index, want gradients. [-]
    keeps_some : bool
        Whether a checkpointed region chooses what it keeps. [-]
    """

    batch_size: int
    tensors: list[TensorFacts] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    outputs: list[tuple[str, Ref]] = field(default_factory=list)
    differentiable: set[int] = field(default_factory=set)
    keeps_some: bool = False
