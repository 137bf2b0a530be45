"""Workers that all wait for all in every step: they reduce among themselves, or through a server."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from perfmodel.cost.overlap import arrival_stall, buckets, ends, exposed_exchange, slowed_exchange
from perfmodel.derived import derived
from perfmodel.numeric import running_total, total
from perfmodel.prediction.agreement import Agreement
from perfmodel.prediction.messages import MERGED, Buckets, Stretches, merged_reduced, merged_served
from perfmodel.simulation.synchronous import PlayedExchange, SynchronousStep, synchronous_tasks
from perfmodel.sync.placed import Placed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perfmodel.prediction.gradients import GradientSchedule
    from perfmodel.prediction.step_time import StepTime
    from perfmodel.prediction.straggler import Straggler
    from perfmodel.simulation import Task
    from perfmodel.symbolic import Quantity
    from perfmodel.sync.library import LibraryCollective


@dataclass(frozen=True, eq=False, kw_only=True)
class Synchronous(Agreement):
    """All workers wait for all in every step.

    Parameters
    ----------
    overlap : bool
        Whether a gradient is exchanged while those of lower layers are computed. [-]
    bucket_bytes : float or str
        Gradients are exchanged once so many bytes of them are ready, or merged so that a step is shortest. [B]
    straggler : Straggler or None
        How the times of workers vary; None where they do not. [-]
    """

    overlap: bool = True
    bucket_bytes: float | str = 0.0
    straggler: Straggler | None = None

    @property
    def counted_workers(self) -> int:
        """Workers that are waited for. [1]"""
        return self.worker_count - (0 if self.straggler is None else self.straggler.backup_workers)

    def applied(self, parts: StepTime, schedule: GradientSchedule) -> StepTime:
        """Return the parts of a step in which all wait for the slowest and for the exchange."""
        if self.straggler is not None:
            waited_s = self.straggler.straggler_s(compute_s=self.own_s(parts), worker_count=self.worker_count)
            parts = replace(parts, straggler_s=waited_s)
            # a message leaves when the last has it ready, whose phases hide more of the exchange as they are longer
            schedule = schedule.slowed(self.straggler.slowest_s(compute_s=1.0, worker_count=self.worker_count))
        return self.exchanged(parts, schedule, self.merged(schedule))

    def own_s(self, parts: StepTime) -> Quantity:
        """Return what a worker does itself in a step, all of which a slow one takes longer for. [s]"""
        return parts.device_s

    def merged(self, schedule: GradientSchedule) -> Buckets:
        """Return the gradients in messages."""
        if self.bucket_bytes == MERGED:
            return Buckets.of(schedule, self.cheapest(Stretches.of(schedule)))
        return _messages(schedule, float(self.bucket_bytes))

    def played_channels(self, workers: Sequence[str]) -> Mapping[str, float]:  # noqa: D102
        return self.exchange.channels(workers)

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
        messages = self.merged(schedule)
        own_s = parts.device_s - parts.exposed_sync_s - parts.straggler_s
        step = SynchronousStep(
            forward_s=float(schedule.forward_s),
            backward_s=float(schedule.backward_s),
            rest_s=max(0.0, float(own_s - schedule.forward_s - schedule.backward_s)),
            sizes_bytes=messages.sizes_bytes.tolist(),
            ready_s=messages.ready_s.tolist(),
            wanted_s=messages.wanted_s.tolist(),
            overlap=self.overlap,
            exchange=self.exchange,
        )
        relative = np.ones((step_count, self.worker_count))
        if self.straggler is not None:
            relative = self.straggler.drawn(step_count=step_count, worker_count=self.worker_count, seed=seed)
        return synchronous_tasks(fed, step, workers=workers, relative=relative), self.exchange.resources

    @property
    @abstractmethod
    def exchange(self) -> PlayedExchange:
        """What is played for each message."""

    @abstractmethod
    def cheapest(self, stretches: Stretches) -> list[slice]:
        """Return the gradients of each message with which a step is shortest. [-]"""

    @abstractmethod
    def exchanged(self, parts: StepTime, schedule: GradientSchedule, messages: Buckets) -> StepTime:
        """Return the parts with those of the exchange.

        Parameters
        ----------
        parts : StepTime
            The step without it. [s]
        schedule : GradientSchedule
            Lengths of the phases. [s]
        messages : Buckets
            What is exchanged. [-]

        Returns
        -------
        StepTime
            All parts. [s]
        """


@dataclass(frozen=True, eq=False, kw_only=True)
class AllReduced(Synchronous):
    """Every worker gets the sum of all gradients, and updates its own copy of the parameters.

    Parameters
    ----------
    placed : Placed or LibraryCollective
        The algorithm on the workers' devices, or a library's choice of them. [-]
    slowdown : float
        Share of a device that messages keep from computing. [1]
    """

    placed: Placed | LibraryCollective
    slowdown: float = 0.0

    @property
    def calls_library(self) -> bool:  # noqa: D102
        return not isinstance(self.placed, Placed)

    @property
    def hides_copies(self) -> bool:  # noqa: D102
        return True

    @property
    def exchange(self) -> PlayedExchange:  # noqa: D102
        return PlayedExchange(gather=self.placed, slowdown=self.slowdown if self.overlap else 0.0)

    def cheapest(self, stretches: Stretches) -> list[slice]:  # noqa: D102
        slowdown = self.slowdown if self.overlap else 1.0
        return merged_reduced(stretches, message_s=self.placed.time(stretches.sizes_bytes), slowdown=slowdown)

    def exchanged(self, parts: StepTime, schedule: GradientSchedule, messages: Buckets) -> StepTime:  # noqa: D102
        message_s = self.placed.time(messages.sizes_bytes)
        total_s = total(message_s)
        if not self.overlap:
            return replace(parts, sync_s=total_s, exposed_sync_s=total_s)
        exposed_s = slowed_exchange(
            ready_s=list(messages.ready_s),
            message_s=list(message_s),
            computed_s=schedule.backward_s,
            slowdown=self.slowdown,
        )
        return replace(parts, sync_s=total_s, exposed_sync_s=exposed_s)


@dataclass(frozen=True, eq=False, kw_only=True)
class ThroughServer(Synchronous):
    """Workers push gradients to a server in host memory, which updates the parameters, and pull these again.

    Parameters
    ----------
    push, pull : Placed
        Messages of all workers at once, one way and back. [-]
    server_s_per_byte : float
        Time that the server takes to add up one byte of the gradients of all workers and to update with it. [s/B]
    pulls_in_order : bool
        Whether parameters come as the forward phase wants them; else it waits for all, and for every other copy. [-]
    """

    push: Placed
    pull: Placed
    server_s_per_byte: float
    pulls_in_order: bool = True

    @property
    def delays_copies(self) -> bool:  # noqa: D102
        return self.overlap and not self.pulls_in_order

    def merged(self, schedule: GradientSchedule) -> Buckets:  # noqa: D102
        return super().merged(schedule if self.pulls_in_order else _wanted_at_once(schedule))

    def own_s(self, parts: StepTime) -> Quantity:
        """Return what a worker does itself in a step: no update, which is the server's. [s]"""
        return parts.device_s - parts.update_s

    @property
    def exchange(self) -> PlayedExchange:  # noqa: D102
        return PlayedExchange(gather=self.push, spread=self.pull, server_s_per_byte=self.server_s_per_byte)

    def cheapest(self, stretches: Stretches) -> list[slice]:  # noqa: D102
        sizes_bytes = stretches.sizes_bytes
        return merged_served(
            stretches,
            push_s=self.push.time(sizes_bytes),
            serve_s=self.server_s_per_byte * sizes_bytes,
            pull_s=self.pull.time(sizes_bytes),
            overlap=self.overlap,
        )

    def exchanged(self, parts: StepTime, schedule: GradientSchedule, messages: Buckets) -> StepTime:  # noqa: D102
        parts = replace(parts, update_s=0.0)  # it is the server's
        push_s, pull_s = self.push.time(messages.sizes_bytes), self.pull.time(messages.sizes_bytes)
        served_s = self.server_s_per_byte * messages.sizes_bytes
        total_s = total(push_s + served_s + pull_s)
        if not self.overlap:
            return replace(parts, sync_s=total_s, exposed_sync_s=total_s)
        arrived = ends(ready_s=list(messages.ready_s), message_s=list(push_s))
        updated_s = ends(ready_s=arrived, message_s=list(served_s))[-1]
        exposed_s = exposed_exchange(last_end_s=updated_s, computed_s=schedule.backward_s)
        pulled = running_total(pull_s[::-1])  # what the first layers want is pulled first
        exposed_s = exposed_s + arrival_stall(wanted_s=list(messages.wanted_s[::-1]), arrival_s=list(pulled))
        return replace(parts, sync_s=total_s, exposed_sync_s=exposed_s)


@derived
def _messages(schedule: GradientSchedule, bucket_bytes: float) -> Buckets:
    """Return gradients in messages of so many bytes, which many ways to agree exchange."""
    return Buckets.of(schedule, buckets(schedule.sizes_bytes, bucket_bytes=bucket_bytes))


@derived
def _wanted_at_once(schedule: GradientSchedule) -> GradientSchedule:
    """Return the schedule of a forward phase that begins when all parameters are there."""
    return replace(schedule, wanted_s=np.zeros_like(schedule.wanted_s))
