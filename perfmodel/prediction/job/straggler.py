"""Times that vary between workers and steps, as a user gives them, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.cost.order_statistics import (
    AS_PREDICTED,
    Empirical,
    LogNormal,
    Normal,
    RelativeTimes,
    ShiftedExponential,
    Unequal,
)
from perfmodel.errors import ArgumentError, check_known, meant
from perfmodel.symbolic import Quantity, is_symbolic

if TYPE_CHECKING:
    from numpy.typing import NDArray

DISTRIBUTIONS: Final[dict[str, type[RelativeTimes]]] = {
    kind.name: kind for kind in (Normal, LogNormal, ShiftedExponential, Empirical, Unequal)
}
"""Name -> distribution of relative times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """Workers of varying speed; the slowest few may be ignored.

    >>> straggler = straggler_of({"distribution": "normal", "cv": 0.1})
    >>> round(straggler.straggler_s(compute_s=1.0, worker_count=40), 4)
    0.2161
    >>> tail = straggler_of({"distribution": "shifted_exponential", "cv": 0.1}, backup_workers=2)
    >>> round(tail.slowest_s(compute_s=1.0, worker_count=40), 5)
    1.17785
    """

    times: RelativeTimes
    backup_workers: int = 0

    def slowest_s(self, *, compute_s: Quantity, worker_count: Quantity) -> Quantity:
        """Mean time at which the last counted worker has computed. [s]

        Notes
        -----
        Valid for: independent workers that are alike, or that each keep their own speed.
        """
        self.check_backups(worker_count)
        rank = worker_count - self.backup_workers
        return compute_s * self.times.order_statistic(rank=rank, count=worker_count)

    def check_backups(self, worker_count: Quantity) -> None:
        """Raise if all workers would be backups."""
        if not is_symbolic(worker_count) and np.any(np.asarray(worker_count) <= self.backup_workers):
            allowed = f"below workers={worker_count}, so that one is left to wait for"
            raise ArgumentError("backup_workers", self.backup_workers, allowed)

    def counted(self, worker_count: int) -> int:
        """Workers that the others wait for. [1]"""
        return worker_count - self.backup_workers

    def straggler_s(self, *, compute_s: Quantity, worker_count: Quantity) -> Quantity:
        """Wait for the last worker beyond the mean; negative where many are ignored. [s]"""
        return self.slowest_s(compute_s=compute_s, worker_count=worker_count) - compute_s

    def of_first(self, worker_count: int) -> Straggler:
        """Keep the times of the first workers."""
        return replace(self, times=self.times.of_first(worker_count))

    @property
    def as_predicted(self) -> Straggler:
        """The same straggler for one worker at the predicted speed."""
        return self if self.times.lasting_count is None else replace(self, times=Unequal((AS_PREDICTED,)))

    def check_workers(self, worker_count: int) -> None:
        """Raise if the number of listed times is not the number of workers."""
        if self.times.lasting_count not in (None, worker_count):
            stated = {"distribution": self.times.name, "times": getattr(self.times, "times", None)}
            raise ArgumentError("straggler", stated, f"must give one time for each of the {worker_count} workers")

    def drawn(self, *, step_count: int, worker_count: int, seed: int) -> NDArray[np.float64]:
        """Draw each worker's time in each step, relative to the mean."""
        times = self.times.draw(step_count * worker_count, generator=np.random.default_rng(seed))
        times = times.reshape(step_count, worker_count)
        last = np.sort(times)[:, worker_count - self.backup_workers - 1]
        return np.minimum(times, last[:, None])


def straggler_of(stated: Mapping[str, Any] | Straggler, *, backup_workers: int = 0) -> Straggler:
    """Parse a user's ``straggler``."""
    if isinstance(backup_workers, bool) or not isinstance(backup_workers, int) or backup_workers < 0:
        raise ArgumentError("backup_workers", backup_workers, "a whole number >= 0")
    if isinstance(stated, Straggler):
        return Straggler(times=stated.times, backup_workers=backup_workers or stated.backup_workers)
    if not isinstance(stated, Mapping) or "distribution" not in stated:
        allowed = f"a mapping with 'distribution', one of {', '.join(DISTRIBUTIONS)}, and its parameters"
        raise ArgumentError("straggler", stated, allowed)
    name = stated["distribution"]
    check_known("distribution of straggler", name, DISTRIBUTIONS)
    distribution = DISTRIBUTIONS[name]
    wanted = [field.name for field in fields(distribution)]  # type: ignore[arg-type]
    parameters = {key: value for key, value in stated.items() if key != "distribution"}
    for key in [*parameters, *wanted]:
        if key not in wanted or key not in parameters:
            hint = meant(key, wanted) if key not in wanted else ""
            allowed = f"must give {', '.join(wanted)} and nothing else for distribution {name}{hint}"
            raise ArgumentError("straggler", dict(stated), allowed)
    return Straggler(times=distribution(**parameters), backup_workers=backup_workers)


def straggler_of_job(asked: Mapping[str, Any]) -> Straggler | None:
    """Make the straggler of a job, with its backup workers."""
    straggler: Straggler | None = asked.get("straggler")
    if straggler is None or "backup_workers" not in asked:
        return straggler
    return replace(straggler, backup_workers=asked["backup_workers"])


def parameter_of(distribution: str) -> str:
    """Name of a distribution's one parameter, ``cv`` or ``times``; ``cv`` if the name is unknown."""
    return fields(DISTRIBUTIONS[distribution])[0].name if distribution in DISTRIBUTIONS else "cv"  # type: ignore[arg-type]
