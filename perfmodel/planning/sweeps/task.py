"""Tasks of a sweep: blocks of worker configurations with the jobs that they may do together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from perfmodel.measurements.table import Run
from perfmodel.planning.sweeps.axes import DEFAULTS, DEVICES, OF_JOB, OF_WORKER
from perfmodel.prediction.arguments.table import names_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.planning.sweeps.axes import Axis
    from perfmodel.planning.sweeps.space import Space

WORKERS_PER_TASK: Final = 4096
"""Worker configurations timed at once: their gradients' times take some ten megabytes. [1]"""

ROWS_PER_TASK: Final = 200_000
"""Configurations of a task: a few megabytes of columns. [1]"""

SLOW_ROWS_PER_TASK: Final = 256
"""Configurations of a task if predict evaluates each: about a second of work. [1]"""

LAYOUT_ROWS_PER_TASK: Final = 1_000_000
"""Layouts of a task: their common parts are made once per task. [1]"""

OF_LAYOUT: Final = (*names_of("spread"), "global_batch_size", DEVICES)
"""Arguments that make a configuration a layout unless they have their default."""


@dataclass(frozen=True, eq=False)
class Side:
    """Some of a space's axes, with their combinations of values numbered."""

    axes: tuple[Axis, ...]

    @classmethod
    def of(cls, space: Space, names: tuple[str, ...]) -> Side:
        """Return those axes of a space that are among ``names``, in that order."""
        return cls(tuple(space.by_name[name] for name in names if name in space.by_name))

    @property
    def size(self) -> int:
        """Number of combinations. [1]"""
        return math.prod(len(axis) for axis in self.axes)

    def codes(self, numbers: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """Return the index of each combination's value in every axis."""
        found, stride = {}, 1
        for axis in reversed(self.axes):
            found[axis.name] = (numbers // stride) % len(axis)
            stride *= len(axis)
        return found

    def numbers(self, space: Space, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of each configuration's combination."""
        found = np.zeros(len(rows), dtype=np.int64)
        for axis in self.axes:
            found = found * len(axis) + space.codes(axis.name, rows)
        return found

    def offsets(self, space: Space, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the offset that each combination contributes to a configuration's row in the product."""
        found = np.zeros(len(numbers), dtype=np.int64)
        for name, codes in self.codes(numbers).items():
            found += codes * space.strides[name]
        return found


@dataclass(frozen=True, eq=False, kw_only=True)
class SweepTask:
    """Configurations that are timed together."""

    workers: NDArray[np.int64]
    jobs: NDArray[np.int64]
    pairs: tuple[NDArray[np.int64], ...] | None = None
    rows: NDArray[np.int64] | None = field(default=None, repr=False)

    @property
    def size(self) -> int:
        """Number of configurations. [1]"""
        return len(self.workers) * len(self.jobs) if self.pairs is None else sum(map(len, self.pairs))

    def rows_in(self, space: Space) -> NDArray[np.int64]:
        """Return the row of each configuration in the table, job by job."""
        if self.rows is not None:
            return self.rows
        of_jobs = Side.of(space, OF_JOB).offsets(space, self.jobs)
        of_workers = Side.of(space, OF_WORKER).offsets(space, self.workers)
        found: NDArray[np.int64] = (of_jobs[:, None] + of_workers[None, :]).ravel()
        return found


@dataclass(frozen=True, kw_only=True)
class LayoutTask:
    """Consecutive configurations, some of which are layouts."""

    first: int
    size: int

    def rows_in(self, space: Space) -> NDArray[np.int64]:
        """Return the row of each configuration in the table."""
        del space
        return np.arange(self.first, self.first + self.size)


def is_slow(space: Space) -> bool:
    """Tell whether predict must evaluate every configuration by itself: of a Run, or with fitted factors."""
    return isinstance(space.graph, Run) or _varies(space, ("calibration",))


def _varies(space: Space, names: tuple[str, ...]) -> bool:
    """Tell whether some axes have a value other than the default."""
    axes = [space.by_name[name] for name in names if name in space.by_name]
    return any(value != DEFAULTS[axis.name] for axis in axes for value in axis.values)


def tasks_of(space: Space) -> Iterator[SweepTask | LayoutTask]:
    """Cut a space into tasks; the same ones for any executor."""
    if not is_slow(space) and _varies(space, OF_LAYOUT):
        for first in range(0, space.size, LAYOUT_ROWS_PER_TASK):
            yield LayoutTask(first=first, size=min(LAYOUT_ROWS_PER_TASK, space.size - first))
        return
    most_rows = SLOW_ROWS_PER_TASK if is_slow(space) else ROWS_PER_TASK
    workers, jobs = Side.of(space, OF_WORKER), Side.of(space, OF_JOB)
    if space.is_product:
        wide = min(WORKERS_PER_TASK, most_rows)
        for first in range(0, workers.size, wide):
            some = np.arange(first, min(first + wide, workers.size))
            deep = max(1, most_rows // len(some))
            for start in range(0, jobs.size, deep):
                yield SweepTask(workers=some, jobs=np.arange(start, min(start + deep, jobs.size)))
        return
    rows = np.arange(space.size)
    of_worker, of_job = workers.numbers(space, rows), jobs.numbers(space, rows)
    wide = min(WORKERS_PER_TASK, most_rows)
    block = np.unique(of_worker, return_inverse=True)[1] // wide
    order = np.lexsort((of_worker, of_job, block))
    edges = np.flatnonzero(np.diff(block[order])) + 1
    for part in np.split(order, edges):
        for start in range(0, len(part), most_rows):
            yield _listed(part[start : start + most_rows], of_worker, of_job)


def _listed(rows: NDArray[np.int64], of_worker: NDArray[np.int64], of_job: NDArray[np.int64]) -> SweepTask:
    """Return the task of some rows that are sorted by job."""
    workers, place = np.unique(of_worker[rows], return_inverse=True)
    jobs, starts = np.unique(of_job[rows], return_index=True)
    return SweepTask(workers=workers, jobs=jobs, pairs=tuple(np.split(place, starts[1:])), rows=rows)
