"""How the workers of a job agree, and what that adds to a step: all together, through a server, or without waiting."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from perfmodel.cost.overlap import arrival_stall, buckets, ends, exposed_exchange, slowed_exchange
from perfmodel.prediction.messages import MERGED, Buckets, Stretches, merged_reduced, merged_served
from perfmodel.simulation.asynchronous import fed_asynchronous_tasks, server_resources
from perfmodel.simulation.synchronous import PlayedExchange, SynchronousStep, synchronous_tasks
from perfmodel.sync.asynchronous_scheme import AsynchronousNumbers, AsynchronousScheme, AsynchronousTimes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perfmodel.hardware.source import SpecFile
    from perfmodel.numeric import Quantity
    from perfmodel.prediction.gradients import GradientSchedule
    from perfmodel.prediction.parameter_server import ServerMemory
    from perfmodel.prediction.step_time import StepTime
    from perfmodel.prediction.straggler import Straggler
    from perfmodel.simulation import Task
    from perfmodel.sync.library import LibraryCollective
    from perfmodel.sync.placed import Placed


@dataclass(frozen=True, eq=False, kw_only=True)
class Agreement(ABC):
    """How workers with the same network agree on its parameters.

    Parameters
    ----------
    name : str
        The strategy, as a caller names it. [-]
    worker_count : int
        Workers. [1]
    sources : tuple of SpecFile
        Files whose numbers it takes, besides the system's. [-]
    server : ServerMemory or None
        What a parameter server holds; None where there is none. [-]
    """

    name: str
    worker_count: int
    sources: tuple[SpecFile, ...] = ()
    server: ServerMemory | None = None

    @property
    def counted_workers(self) -> int:
        """Workers whose gradients of a step are used. [1]"""
        return self.worker_count

    @property
    def batches_per_update(self) -> int:
        """Mini-batches of one worker that make up an update. [1]"""
        return self.counted_workers

    @property
    def delays_copies(self) -> bool:
        """Whether a step waits for mini-batches that other steps would copy while the last one computes."""
        return False

    @property
    def hides_copies(self) -> bool:
        """Whether mini-batches are copied ahead while workers wait for one another: not on the way of a server. [-]"""
        return False

    def staleness(self, parts: StepTime) -> float:
        """Return the updates that a gradient has missed on average when it is applied. [1]"""
        del parts
        return 0.0

    def played_channels(self, workers: Sequence[str]) -> Mapping[str, float]:
        """Return what is shared in a timeline besides the system's links: device by device. [s/s]"""
        del workers
        return {}

    def visits(self, parts: StepTime) -> AsynchronousTimes | None:
        """Return what visits of a server come to, with knee and utilisation; None where all wait for all."""
        del parts
        return None

    @abstractmethod
    def applied(self, parts: StepTime, schedule: GradientSchedule) -> StepTime:
        """Return the parts of a step in which workers agree.

        Parameters
        ----------
        parts : StepTime
            The step of a worker by itself. [s]
        schedule : GradientSchedule
            When its gradients are ready. [s]

        Returns
        -------
        StepTime
            The same with ``sync_s``, ``exposed_sync_s`` and ``straggler_s``. [s]
        """

    @abstractmethod
    def played(
        self,
        fed: Iterable[Task],
        parts: StepTime,
        schedule: GradientSchedule,
        *,
        workers: Sequence[str],
        step_count: int,
        seed: int,
    ) -> tuple[Iterable[Task], Mapping[str, int]]:
        """Return the steps of all workers as tasks, and what these hold besides the workers.

        Parameters
        ----------
        fed : iterable of Task
            What brings mini-batches; its tasks of computing are left out for those of the agreement. [-]
        parts : StepTime
            The step as ``applied`` returns it. [s]
        schedule : GradientSchedule
            When its gradients are ready. [s]
        workers : sequence of str
            Names of the devices. [-]
        step_count : int
            Steps. [1]
        seed : int
            What times that vary are drawn with. [-]

        Returns
        -------
        tuple of (iterable of Task, mapping of str to int)
            Tasks, and units of resources. [-]
        """


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
        return Buckets.of(schedule, buckets(schedule.sizes_bytes, bucket_bytes=float(self.bucket_bytes)))

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
        total_s = float(np.sum(message_s))
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
        at_once = schedule if self.pulls_in_order else replace(schedule, wanted_s=np.zeros_like(schedule.wanted_s))
        return super().merged(at_once)

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
        total_s = float(np.sum(push_s + served_s + pull_s))
        if not self.overlap:
            return replace(parts, sync_s=total_s, exposed_sync_s=total_s)
        arrived = ends(ready_s=list(messages.ready_s), message_s=list(push_s))
        updated_s = ends(ready_s=arrived, message_s=list(served_s))[-1]
        exposed_s = exposed_exchange(last_end_s=updated_s, computed_s=schedule.backward_s)
        pulled = np.cumsum(pull_s[::-1])  # what the first layers want is pulled first
        exposed_s = exposed_s + arrival_stall(wanted_s=list(messages.wanted_s[::-1]), arrival_s=list(pulled))
        return replace(parts, sync_s=total_s, exposed_sync_s=exposed_s)


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
