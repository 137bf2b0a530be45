"""Jobs of a space: jobs with equal arguments share values derived from them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.derived import derived_property
from perfmodel.planning.sweeps.space import FED_BY, PLACED_BY, Space
from perfmodel.prediction.arguments.table import names_of
from perfmodel.prediction.job.agreement_options import WITH_SERVER
from perfmodel.prediction.job.job import Job

if TYPE_CHECKING:
    from numpy.typing import NDArray


FAST_TARGETS: Final = ("gpu", "cpu")
"""Targets whose steps can be timed for many batch sizes at once."""


@dataclass(eq=False)
class KnownJobs:
    """Makes jobs, and caches their common values while their space is swept."""

    space: Space
    _kept: dict[Any, Any] = field(default_factory=dict)

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the cached value of a key; make it on first use."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def job(self, codes: Mapping[str, int], arguments: Mapping[str, Any]) -> Job:
        """Return the job of some arguments, which are at these indices on their axes."""
        job = self.unplaced(arguments)
        reordering = () if job.reordered_by is None else ("framework",)  # its file says where stages are placed
        names = (*PLACED_BY, *reordering)
        on = tuple((name, code) for name, code in codes.items() if name in names)
        key = ("target", on, job.device_count, job.reordered_by, job.sync in WITH_SERVER)
        job.__dict__["target"] = self.once(key, lambda: job.target)
        return job

    def unplaced(self, arguments: Mapping[str, Any]) -> Job:
        """Return a job that knows its network, but not its devices."""
        job = Job(self.space.graph, **arguments)
        key = ("subject", job.phase, id(job.optimizer), job.weight_penalty, job.weight_dtype)
        # the optimizer is kept too, so that no other object gets its id
        job.__dict__["subject"] = self.once(key, lambda: (job.optimizer, job.subject))[1]
        return job


def groups(columns: Sequence[NDArray[np.int64]]) -> Iterator[tuple[tuple[int, ...], NDArray[np.int64]]]:
    """Yield every combination of values that occurs, with its indices.

    >>> list(groups([np.array([7, 7]), np.array([1, 1])]))
    [((7, 1), array([0, 1]))]
    >>> list(groups([np.array([7, 7, 7]), np.array([2, 1, 2])]))
    [((7, 1), array([1])), ((7, 2), array([0, 2]))]
    """
    if not len(columns[0]):
        return
    key = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        low, high = int(column.min()), int(column.max())
        if high > low:
            key *= high - low + 1
            key += column
            key -= low
    narrow = key.astype(np.min_scalar_type(key.max()))  # numpy sorts keys of 16 bits ten times as fast
    order = np.argsort(narrow, kind="stable")
    ordered = narrow[order]
    for places in np.split(order, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1):
        yield tuple(int(column[places[0]]) for column in columns), places


AGREED_BY: Final = names_of("workers", "exchange")
"""Arguments of an agreement."""


@dataclass(frozen=True, eq=False)
class JobValues:
    """Values of the axes that decide the common work of workers."""

    codes: Mapping[str, int]
    values: Mapping[str, Any]

    def _key(self, names: tuple[str, ...]) -> Hashable:
        return tuple(self.codes.get(name) for name in names)

    @derived_property
    def size(self) -> Hashable:
        """Key of the number of workers."""
        return self._key(("workers",))

    @derived_property
    def agreed(self) -> Hashable:
        """Key of how the workers agree."""
        return self._key(AGREED_BY)

    @derived_property
    def agreed_alike(self) -> Hashable:
        """Key of how they agree, whether or not messages overlap with computing."""
        return self._key(tuple(name for name in AGREED_BY if name != "overlap"))

    @derived_property
    def fed(self) -> Hashable:
        """Key of how mini-batches arrive; those of no data set are in host memory, however many are prefetched."""
        prefetch = self.values["prefetch"]
        depth = min(prefetch, 1) if self.values["dataset"] is None else prefetch
        return depth, self._key(("workers", *(name for name in FED_BY if name != "prefetch")))

    @derived_property
    def alike(self) -> Hashable:
        """Key of jobs with the same results."""
        return self.fed, tuple(code for name, code in self.codes.items() if name not in FED_BY)
