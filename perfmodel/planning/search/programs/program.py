"""Training programs as a search sees them: the layouts they cannot run, and the flags that start one."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from perfmodel.graph.execution import blocks_of
from perfmodel.prediction.arguments.table import DEFAULTS
from perfmodel.prediction.utilisation import tokens_per_sample

if TYPE_CHECKING:
    from perfmodel.graph import LayerGraph
    from perfmodel.prediction.job.job import Job

Flag = tuple[str, object]
"""A flag and its value; True for a flag without one."""

Layout = Mapping[str, Any]
"""Arguments of one layout, or columns of many, ``positions`` and ``block_count`` of the network, and ``profile``."""


class Rule(NamedTuple):
    """Layouts that a program refuses: the argument at fault, a test of a layout, and what is allowed instead."""

    argument: str
    refuses: Callable[[Layout], Any]
    allowed: str


class Program(NamedTuple):
    """A training program: the script that torchrun starts, flags and environment of a job, layouts it cannot run."""

    script: str
    flags: Callable[[Job], Iterator[Flag]]
    rules: tuple[Rule, ...]
    environment: Callable[[Job], str] = lambda _: ""


def read_by_rules(graph: LayerGraph) -> dict[str, int]:
    """Numbers of a network that rules need: its positions, and the blocks by which programs cut it. [1]"""
    return {"positions": tokens_per_sample(graph) or 0, "block_count": len(blocks_of(graph.layers))}


def layout_of(job: Job) -> dict[str, Any]:
    """Return the layout of a job as rules read it."""
    return {name: getattr(job, name) for name in ("profile", *DEFAULTS)} | read_by_rules(job.subject.graph)


NO_BLOCKS: Final = Rule(
    "stages", lambda at: (at["stages"] > 1) & (at["block_count"] == 0),
    "1 for a training program, which cuts between blocks: layer names of this network hold no block numbers",
)  # fmt: skip
"""No program runs a network without blocks as a pipeline."""


def none_of(name: str, allowed: Container[Any]) -> Callable[[Layout], Any]:
    """Return a test that refuses some values of an argument."""
    return lambda at: np.array([value not in allowed for value in np.ravel(np.array(at[name], dtype=object))])


def is_set(value: Any) -> Any:
    """Tell whether a flag is set, of one layout or of each."""
    return np.asarray(value, dtype=bool)


def one_of_names(names: Iterable[str]) -> str:
    """Name the values that an argument may have."""
    return " or ".join(map(repr, names))


def micro_batch_size(job: Job) -> int:
    """Return the samples of a micro-batch. [samples]"""
    return job.layout.micro_batch_size(job.samples)


def blocks_of_chunks(job: Job) -> tuple[int, ...]:
    """Return the blocks of each chunk of a pipeline; a block that a cut halves counts where it begins. [1]"""
    counted: set[str] = set()
    counts = []
    for stage in job.prepared.stages:
        begun = set(blocks_of(stage.placed.graph.layers)) - counted
        counts.append(len(begun))
        counted |= begun
    return tuple(counts)
