"""What a training program is to a search: the layouts it does not have, and the flags that start one."""

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
    """Layouts that a program refuses: the argument at fault, whether a layout is one, and what is allowed instead."""

    argument: str
    refuses: Callable[[Layout], Any]
    allowed: str


class Program(NamedTuple):
    """A training program: what torchrun starts, flags and environment of a job, layouts that it does not have."""

    script: str
    flags: Callable[[Job], Iterator[Flag]]
    rules: tuple[Rule, ...]
    environment: Callable[[Job], str] = lambda _: ""


def read_by_rules(graph: LayerGraph) -> dict[str, int]:
    """Return what rules read of a network: its positions, and the blocks by which programs cut it."""
    return {"positions": tokens_per_sample(graph) or 0, "block_count": len(blocks_of(graph.layers))}


def layout_of(job: Job) -> dict[str, Any]:
    """Return the layout of a job as rules read it."""
    return {name: getattr(job, name) for name in ("profile", *DEFAULTS)} | read_by_rules(job.subject.graph)


NO_BLOCKS: Final = Rule(
    "stages", lambda at: (at["stages"] > 1) & (at["block_count"] == 0),
    "1 for a training program, which cuts between blocks: the names of this network's layers hold no numbers of them",
)  # fmt: skip
"""Pipelines of networks without blocks, which no program has."""


def none_of(name: str, allowed: Container[Any]) -> Callable[[Layout], Any]:
    """Return the test whether an argument is none of some values."""
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
    met: set[str] = set()
    counts = []
    for stage in job.prepared.stages:
        begun = set(blocks_of(stage.placed.graph.layers)) - met
        counts.append(len(begun))
        met |= begun
    return tuple(counts)
