"""What one traced run of a network is: its tensors, and the operators called on them, in plain values."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

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


Progress = Callable[[], None]
"""Called for each part of the work that begins."""

PATIENCE_S: Final = 1.0
"""How long an import runs before its progress is shown [s]."""


@contextmanager
def import_progress(description: str, total: int, *, shown: bool | None) -> Iterator[Progress]:
    """Show on the error stream how far a block is.

    Parameters
    ----------
    description : str
        What is going on. [-]
    total : int
        Parts of the work, about. [1]
    shown : bool or None
        Whether to show it; None: on a terminal, after a second. [-]

    Yields
    ------
    callable
        To be called for each part that begins. [-]
    """
    if shown is False or (shown is None and not sys.stderr.isatty()):
        yield lambda: None
        return
    with ExitStack() as stack:
        yield _Display(description, total, stack, patience_s=0.0 if shown else PATIENCE_S).advance


class _Display:
    """A bar that appears when patience is over."""

    def __init__(self, description: str, total: int, stack: ExitStack, *, patience_s: float) -> None:
        self.description, self.total, self.done = description, total, 0
        self._stack = stack
        self._due = time.monotonic() + patience_s
        self._show: Callable[[int], None] | None = None

    def advance(self) -> None:
        self.done += 1
        if self._show is None and time.monotonic() >= self._due:
            self._show = self._begun()
        if self._show is not None:
            self._show(min(self.done, self.total))

    def _begun(self) -> Callable[[int], None]:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        console = Console(stderr=True)
        bar = self._stack.enter_context(Progress(*columns, console=console, transient=console.is_terminal))
        task = bar.add_task(self.description, total=self.total)
        return lambda done: bar.update(task, completed=done)
