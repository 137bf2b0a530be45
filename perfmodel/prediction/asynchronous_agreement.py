"""Workers that visit a parameter server and wait for nobody, or only for those far behind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perfmodel.prediction.agreement import Agreement
from perfmodel.simulation.asynchronous import fed_asynchronous_tasks, server_resources

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from perfmodel.prediction.composition.compose import Composed
    from perfmodel.prediction.step_time import StepTime
    from perfmodel.simulation import Task
    from perfmodel.simulation.synchronous import PlayedStep
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
    """

    scheme: AsynchronousScheme
    numbers: AsynchronousNumbers

    @property
    def batches_per_update(self) -> int:
        """Mini-batches of one worker, or of a group, that make up an update. [1]"""
        return int(self.times(1.0).batches_per_update)

    def times(self, computing_s: Quantity) -> AsynchronousTimes:
        """Return what the scheme comes to for workers that compute so long. [s]"""
        return self.scheme.times(replace(self.numbers, compute_s=computing_s))

    def visits(self, own: StepTime) -> AsynchronousTimes:
        """Return what the scheme comes to for what a worker does by itself."""
        return self.times(self.computing_s(own))

    @staticmethod
    def computing_s(own: StepTime) -> Quantity:
        """Return what a worker's own step takes, without the update, which is the server's. [s]"""
        return own.device_s - own.update_s

    def applied(self, own: StepTime, exchanged: tuple[Quantity, Quantity]) -> StepTime:  # noqa: D102
        del exchanged
        times = self.visits(own)
        visit_s = times.group_sync_s + times.wait_s
        return replace(
            own,
            update_s=0.0,
            straggler_s=times.straggler_s,
            sync_s=own.sync_s + visit_s,
            exposed_sync_s=own.exposed_sync_s + visit_s,
        )

    def played(  # noqa: D102
        self, fed: Iterable[Task], composed: Composed, *, step: PlayedStep, step_count: int, seed: int
    ) -> tuple[Iterable[Task], Mapping[str, int], Mapping[str, float]]:
        numbers = self.scheme.in_effect(replace(self.numbers, compute_s=float(self.computing_s(composed.own))))
        tasks = fed_asynchronous_tasks(fed, numbers, workers=list(step.lanes), step_count=step_count, seed=seed)
        return tasks, server_resources(numbers), {}
