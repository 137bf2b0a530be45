"""Workers that visit a parameter server and wait for nobody, or only for those far behind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perfmodel.prediction.agreement import Agreement
from perfmodel.simulation.asynchronous import fed_asynchronous_tasks, server_resources

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perfmodel.prediction.gradients import GradientSchedule
    from perfmodel.prediction.step_time import StepTime
    from perfmodel.simulation import Task
    from perfmodel.symbolic import Quantity
    from perfmodel.sync.asynchronous_scheme import AsynchronousNumbers, AsynchronousScheme
    from perfmodel.sync.asynchronous_times import AsynchronousTimes


@dataclass(frozen=True, eq=False, kw_only=True)
class Asynchronous(Agreement):
    """Workers visit a parameter server when they are done, and wait for nobody, or only for those far behind.

    Parameters
    ----------
    scheme : AsynchronousScheme
        What they do there. [-]
    numbers : AsynchronousNumbers
        Times and counts, with no time of the worker's own step. [-]
    inner_s : float
        What devices of one worker exchange among themselves in a step, where several have its network. [s]
    """

    scheme: AsynchronousScheme
    numbers: AsynchronousNumbers
    inner_s: Quantity = 0.0

    @property
    def batches_per_update(self) -> int:
        """Mini-batches of one worker, or of a group, that make up an update. [1]"""
        return int(self.times(1.0).batches_per_update)

    def times(self, computing_s: Quantity) -> AsynchronousTimes:
        """Return what the scheme comes to for workers that compute so long. [s]"""
        return self.scheme.times(replace(self.numbers, compute_s=computing_s))

    def visits(self, parts: StepTime) -> AsynchronousTimes:
        """Return what the scheme comes to for the step of a worker as ``applied`` returns it."""
        return self.times(self.computing_s(parts))

    def staleness(self, parts: StepTime) -> float:
        """Return the updates of others that a gradient has missed on average. [1]"""
        return float(self.visits(parts).mean_staleness)

    def computing_s(self, parts: StepTime) -> Quantity:
        """Return what a worker's own step takes, without the update, which is the server's. [s]"""
        return parts.device_s - parts.update_s - parts.exposed_sync_s - parts.straggler_s + self.inner_s

    def applied(self, parts: StepTime, schedule: GradientSchedule) -> StepTime:  # noqa: D102
        del schedule
        return self.visited(parts)

    def visited(self, parts: StepTime) -> StepTime:
        """Return the parts of a worker's step [s] with its visits of the server, which updates."""
        parts = replace(parts, update_s=0.0)
        times = self.times(self.computing_s(parts))
        visit_s = times.group_sync_s + times.wait_s
        return replace(
            parts,
            straggler_s=times.straggler_s,
            sync_s=parts.sync_s + visit_s,
            exposed_sync_s=self.inner_s + visit_s,
        )

    def played(  # noqa: D102
        self,
        fed: Iterable[Task],
        parts: StepTime,
        schedule: GradientSchedule,
        *,
        workers: Sequence[str],
        step_count: int,
        seed: int,
    ) -> tuple[Iterable[Task], Mapping[str, int]]:
        del schedule
        numbers = self.scheme.in_effect(replace(self.numbers, compute_s=float(self.computing_s(parts))))
        tasks = fed_asynchronous_tasks(fed, numbers, workers=workers, step_count=step_count, seed=seed)
        return tasks, server_resources(numbers)
