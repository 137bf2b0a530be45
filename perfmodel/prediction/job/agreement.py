"""How a job's workers agree: without waiting or all together, among themselves or through a server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from perfmodel.cost.overlap import (
    arrival_stall,
    chained_exchange,
    ends,
    exposed_exchange,
    last_end,
    slowed_exchange,
)
from perfmodel.cost.pipeline_ends import TurnMessages
from perfmodel.cost.prefetching import gather_stall
from perfmodel.derived import record
from perfmodel.numeric import maximum, running_total, total
from perfmodel.prediction.job.gradients import (
    MERGED,
    Buckets,
    Stretches,
    merged_reduced,
    merged_served,
    wanted_at_once,
)
from perfmodel.prediction.job.messages import messages_of, slices_of
from perfmodel.prediction.job.sharing import crowded_s
from perfmodel.simulation.asynchronous import fed_asynchronous_tasks, server_resources
from perfmodel.simulation.synchronous import Following, PlayedExchange, synchronous_tasks
from perfmodel.sync.placed import Placed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perfmodel.hardware.source import SpecFile
    from perfmodel.prediction.device.step_time import StepTime
    from perfmodel.prediction.job.compose import Composed, DeviceWork
    from perfmodel.prediction.job.exchange_times import OnLink
    from perfmodel.prediction.job.gradients import GradientSchedule
    from perfmodel.prediction.job.job import Job
    from perfmodel.prediction.job.parameter_server import ServerCalls, ServerMemory
    from perfmodel.prediction.job.straggler import Straggler
    from perfmodel.simulation import Task
    from perfmodel.simulation.synchronous import PlayedStep
    from perfmodel.symbolic import Quantity
    from perfmodel.sync.asynchronous_scheme import AsynchronousNumbers, AsynchronousScheme, AsynchronousTimes
    from perfmodel.sync.registry import LibraryCollective


@record
class Agreement(ABC):
    """How workers that train one network agree on its parameters."""

    name: str
    worker_count: int
    sources: tuple[SpecFile, ...] = ()
    server: ServerMemory | None = None
    calls: ServerCalls | None = None
    asked: Job | None = None

    @property
    def counted_workers(self) -> int:
        """Workers whose gradients of a step are used. [1]"""
        return self.worker_count

    @property
    def waited_for(self) -> tuple[int, int]:
        """Workers that end a step together, and all of whom they are the fastest; one if none waits for others. [1]"""
        return 1, 1

    @property
    def batches_per_update(self) -> int:
        """Mini-batches of one worker behind each update. [1]"""
        return self.counted_workers

    @property
    def delays_copies(self) -> bool:
        """Whether no mini-batch can be copied while another step computes."""
        return False

    @property
    def hides_copies(self) -> bool:
        """Whether copies can hide while workers wait; not if they share the links to a server. [-]"""
        return False

    @property
    def serves(self) -> bool:
        """Whether a parameter server applies updates instead of the workers."""
        return self.server is not None

    def with_calls(self, slower: float) -> Agreement:
        """Slow down a worker's calls to servers on other machines by this factor [1]."""
        return self

    def visits(self, alone: StepTime) -> AsynchronousTimes | None:
        """Return the times of server visits, with knee and utilisation; None if workers wait for one another."""
        return None

    def exchanged(self, device: DeviceWork) -> tuple[Quantity, Quantity]:
        """Time that a device's exchanges with other workers take in a step, total and exposed. [s]"""
        return 0.0, 0.0

    def gathered(self, device: DeviceWork) -> tuple[Quantity, Quantity]:
        """Time to gather shared parameters for one micro-batch, total and exposed. [s]"""
        return 0.0, 0.0

    def messages_of_device(self, device: DeviceWork) -> Sequence[tuple[int, TurnMessages]]:
        """Messages that slow down a device's turns, by chunk; ``exchanged`` leaves out their exposed time. [s]"""
        return ()

    def sent_bytes(self, size_bytes: float, place: int) -> float:
        """Bytes that one device of a worker sends for this many bytes of gradients [B]. [B]"""
        return 0.0

    @abstractmethod
    def applied(self, alone: StepTime, exchanged: tuple[Quantity, Quantity]) -> StepTime:
        """Add the agreement to the parts of a step."""

    @abstractmethod
    def played(
        self, fed: Iterable[Task], composed: Composed, *, step: PlayedStep, step_count: int, seed: int
    ) -> tuple[Iterable[Task], Mapping[str, int], Mapping[str, float]]:
        """Return the steps of all workers as tasks, with their resources and channels beyond the system's links."""


@record
class Asynchronous(Agreement):
    """Workers visit a parameter server without waiting for others, except for those far behind."""

    scheme: AsynchronousScheme
    numbers: AsynchronousNumbers

    @property
    def waited_for(self) -> tuple[int, int]:  # noqa: D102
        used = self.scheme.in_effect(self.numbers)
        count = used.group_size if used.staleness_bound is None else used.worker_count
        return count, count

    @property
    def batches_per_update(self) -> int:
        """Mini-batches of one worker, or one group, behind each update. [1]"""
        return int(self.times(1.0).batches_per_update)

    def with_calls(self, slower: float) -> Agreement:  # noqa: D102
        if self.calls is None:
            return self
        latency_s = self.numbers.push_latency_s + (slower - 1) * self.calls.worker_s
        return replace(self, numbers=replace(self.numbers, push_latency_s=latency_s))

    def times(self, computing_s: Quantity) -> AsynchronousTimes:
        """Return the times of the scheme for workers that compute this long. [s]"""
        return self.scheme.times(replace(self.numbers, compute_s=computing_s))

    def visits(self, alone: StepTime) -> AsynchronousTimes:
        """Return the times of the scheme, given one worker's own step."""
        return self.times(self.computing_s(alone))

    @staticmethod
    def computing_s(alone: StepTime) -> Quantity:
        """Return the computing time of a worker without the update, which the server applies. [s]"""
        return alone.device_s - alone.update_s

    def applied(self, alone: StepTime, exchanged: tuple[Quantity, Quantity]) -> StepTime:  # noqa: D102
        times = self.visits(alone)
        visit_s = times.group_sync_s + times.wait_s
        return alone._replace(
            update_s=0.0,
            straggler_s=times.straggler_s,
            sync_s=alone.sync_s + visit_s,
            exposed_sync_s=alone.exposed_sync_s + visit_s,
        )

    def played(  # noqa: D102
        self, fed: Iterable[Task], composed: Composed, *, step: PlayedStep, step_count: int, seed: int
    ) -> tuple[Iterable[Task], Mapping[str, int], Mapping[str, float]]:
        numbers = self.scheme.in_effect(replace(self.numbers, compute_s=float(self.computing_s(composed.alone))))
        tasks = fed_asynchronous_tasks(
            fed, numbers, workers=list(step.lanes), cores=step.cores, step_count=step_count, seed=seed
        )
        return tasks, server_resources(numbers), {}


class Reduction(ABC):
    """Sum of the gradients of one device per worker."""

    waits_for_all: bool = False
    """Whether the forward phase waits for all parameters, in whatever order they arrive."""
    is_all_reduce: bool = False
    """Whether every worker ends with all sums."""

    def wanted(self, schedule: GradientSchedule) -> GradientSchedule:
        """Return the schedule, as it is or with all parameters wanted at the start of the forward phase."""
        return wanted_at_once(schedule) if self.waits_for_all else schedule

    @abstractmethod
    def cheapest(self, stretches: Stretches, *, overlap: bool) -> list[slice]:
        """Group gradients into the messages that make the step shortest. [-]"""

    @abstractmethod
    def exchanged(
        self, messages: Buckets, schedule: GradientSchedule, *, overlap: bool, cast_s: Quantity = 0.0
    ) -> tuple[Quantity, Quantity]:
        """Time of messages and of passes that take ``cast_s`` before all of them, total and exposed. [s]"""

    @property
    def slows_turns(self) -> bool:
        """Whether messages take a part of the device from the turns of a pipeline."""
        return False

    def messages_of_turn(self, sizes_bytes: Any, *, ready_s: Any, computed_s: Quantity) -> TurnMessages:
        """Messages of these sizes [B] that become ready during a turn. [s]"""
        raise NotImplementedError

    @abstractmethod
    def played(self, *, overlap: bool) -> PlayedExchange:
        """Tasks for each message in a simulation."""

    @abstractmethod
    def sent_bytes(self, size_bytes: float) -> float:
        """Mean bytes that a device sends for a message of this many bytes [B]. [B]"""


@record
class AmongCopies:
    """Sum of a share of gradients over the workers that hold copies of it, after the message that scatters it."""

    placed: Placed | LibraryCollective
    sharing_size: int
    slowdown: Quantity = 0.0
    in_turn: bool = False
    """Whether the next message waits for this sum, since both need the same links."""

    def time(self, size_bytes: Any) -> Any:
        """Time for the shares of messages of this many bytes [B]. [s]"""
        return self.placed.time(size_bytes / self.sharing_size)

    def sent_bytes(self, size_bytes: float) -> float:
        """Mean bytes that a device sends for the share of a message of this many bytes [B]. [B]"""
        return float(self.placed.sent_bytes(size_bytes / self.sharing_size)) / self.placed.rank_count


@record
class AllReduced(Reduction):
    """Every worker gets the sum of all gradients, or its part of it, from the others."""

    is_all_reduce = True
    placed: Placed | LibraryCollective | OnLink
    slowdown: Quantity = 0.0
    among_copies: AmongCopies | None = None

    def cheapest(self, stretches: Stretches, *, overlap: bool) -> list[slice]:  # noqa: D102
        slowdown = self.slowdown if overlap else 1.0
        message_s = self.placed.time(stretches.sizes_bytes)
        if self.among_copies is not None:  # merged as if both messages took turns
            message_s = message_s + self.among_copies.time(stretches.sizes_bytes)
        return merged_reduced(stretches, message_s=message_s, slowdown=slowdown)

    def exchanged(  # noqa: D102
        self, messages: Buckets, schedule: GradientSchedule, *, overlap: bool, cast_s: Quantity = 0.0
    ) -> tuple[Quantity, Quantity]:
        message_s, copies = self.placed.time(messages.sizes_bytes), self.among_copies
        following_s = None if copies is None else copies.time(messages.sizes_bytes)
        total_s = cast_s + (total(message_s) if following_s is None else total(message_s + following_s))
        if not overlap:
            return total_s, total_s
        if copies is None or following_s is None:  # passes delay messages and computing alike
            return total_s, cast_s + slowed_exchange(
                ready_s=messages.ready_s,
                message_s=message_s,
                computed_s=schedule.backward_s,
                slowdown=self.slowdown,
            )
        return total_s, chained_exchange(
            ready_s=list(messages.ready_s),
            passes_s=[share * cast_s for share in (messages.sizes_bytes / messages.sizes_bytes.sum()).tolist()],
            message_s=(list(message_s), list(following_s)),
            computed_s=schedule.backward_s,
            slowdown=(self.slowdown, copies.slowdown),
            in_turn=copies.in_turn,
        )

    @property
    def slows_turns(self) -> bool:  # noqa: D102
        if self.among_copies is not None and not self.among_copies.in_turn:  # sums among copies use links of their own
            return False
        return not (isinstance(self.slowdown, float | int) and not self.slowdown)

    def messages_of_turn(self, sizes_bytes: Any, *, ready_s: Any, computed_s: Quantity) -> TurnMessages:  # noqa: D102
        if not len(sizes_bytes):
            return TurnMessages(slowdown=self.slowdown)
        message_s, slowdown = self.placed.time(sizes_bytes), self.slowdown
        if (copies := self.among_copies) is not None:  # in turn, like one message
            following_s = copies.time(sizes_bytes)
            lost_s = slowdown * total(message_s) + copies.slowdown * total(following_s)
            message_s = message_s + following_s
            slowdown = lost_s / total(message_s)
        speed = 1 - slowdown
        end_s = last_end(ready_s=ready_s, message_s=message_s, share=speed)
        return TurnMessages(
            taken_s=total(message_s), after_s=maximum(end_s - computed_s, 0.0) / speed, slowdown=slowdown
        )

    def played(self, *, overlap: bool) -> PlayedExchange:  # noqa: D102
        copies, following = self.among_copies, None
        if copies is not None:
            following = Following(
                exchange=PlayedExchange(
                    gather=cast("Placed", copies.placed), slowdown=copies.slowdown if overlap else 0.0, calls="copies"
                ),
                share=1 / copies.sharing_size,
                in_turn=copies.in_turn,
            )
        return PlayedExchange(
            gather=cast("Placed", self.placed),
            slowdown=self.slowdown if overlap else 0.0,
            following=following,
        )

    def sent_bytes(self, size_bytes: float) -> float:  # noqa: D102
        placed = cast("Placed | LibraryCollective", self.placed)
        scattered_bytes = float(placed.sent_bytes(size_bytes)) / placed.rank_count
        return scattered_bytes + (0.0 if self.among_copies is None else self.among_copies.sent_bytes(size_bytes))


@record
class ThroughServer(Reduction):
    """Workers push gradients to a server in host memory, which updates the parameters, and pull the parameters back."""

    push: Placed
    pull: Placed
    server_s_per_byte: Quantity
    pulls_in_order: bool = True

    @property
    def waits_for_all(self) -> bool:  # type: ignore[override]  # noqa: D102
        return not self.pulls_in_order

    def cheapest(self, stretches: Stretches, *, overlap: bool) -> list[slice]:  # noqa: D102
        sizes_bytes = stretches.sizes_bytes
        return merged_served(
            stretches,
            push_s=self.push.time(sizes_bytes),
            serve_s=self.server_s_per_byte * sizes_bytes,
            pull_s=self.pull.time(sizes_bytes),
            overlap=overlap,
        )

    def exchanged(  # noqa: D102
        self, messages: Buckets, schedule: GradientSchedule, *, overlap: bool, cast_s: Quantity = 0.0
    ) -> tuple[Quantity, Quantity]:
        push_s, pull_s = self.push.time(messages.sizes_bytes), self.pull.time(messages.sizes_bytes)
        served_s = self.server_s_per_byte * messages.sizes_bytes
        total_s = cast_s + total(push_s + served_s + pull_s)
        if not overlap:
            return total_s, total_s
        arrived = ends(ready_s=messages.ready_s, message_s=push_s)
        updated_s = last_end(ready_s=arrived, message_s=served_s)
        exposed_s = cast_s + exposed_exchange(last_end_s=updated_s, computed_s=schedule.backward_s)
        pulled = running_total(pull_s[::-1])  # parameters of the first layers are pulled first
        exposed_s = exposed_s + arrival_stall(wanted_s=messages.wanted_s[::-1], arrival_s=pulled)
        return total_s, exposed_s

    def played(self, *, overlap: bool) -> PlayedExchange:  # noqa: D102
        return PlayedExchange(gather=self.push, pull=self.pull, server_s_per_byte=self.server_s_per_byte)

    def sent_bytes(self, size_bytes: float) -> float:  # noqa: D102
        sent = self.push.sent_bytes(size_bytes) + self.pull.sent_bytes(size_bytes)
        return float(sent) / self.push.rank_count


@record
class Synchronous(Agreement):
    """All workers wait for each other in every step."""

    reductions: tuple[Reduction, ...]
    overlap: bool = True
    message_bytes: float | str = 0.0
    straggler: Straggler | None = None
    gathers_ahead: int | None = 1
    """Units whose parameters may be gathered ahead of the one that computes; None for all. [1]"""
    reduces_each: bool = False
    """Whether workers add up the gradients of every micro-batch, so that none keeps all of them whole."""
    gathers_once: bool = False
    """Whether parameters that are gathered stay for all micro-batches of a step. [-]"""
    calls_s: float = 0.0
    """Calls to servers on other machines, which every step waits for. [s]"""

    @property
    def reduction(self) -> Reduction:
        """Sum of the gradients of a worker's first device."""
        return self.reductions[0]

    @property
    def counted_workers(self) -> int:
        """Workers that the others wait for. [1]"""
        return self.worker_count if self.straggler is None else self.straggler.counted(self.worker_count)

    @property
    def waited_for(self) -> tuple[int, int]:  # noqa: D102
        return self.counted_workers, self.worker_count

    @property
    def hides_copies(self) -> bool:  # noqa: D102
        return not self.serves

    @property
    def delays_copies(self) -> bool:  # noqa: D102
        return self.overlap and self.reduction.waits_for_all

    @property
    def all_reduces(self) -> bool:
        """Whether every worker ends with the sums of all gradients."""
        return self.reduction.is_all_reduce

    @property
    def slowdown(self) -> Quantity:
        """Share of a device that messages occupy. [1]"""
        return getattr(self.reduction, "slowdown", 0.0)

    def lost_s(self, sync_s: Quantity, composed: Composed) -> Quantity:
        """Time by which messages that take ``sync_s`` [s] in all slow down the device that works longest. [s]"""
        device = composed.devices[composed.longest]
        reduction = self.reductions[device.place]
        copies = getattr(reduction, "among_copies", None)
        if copies is None or device.schedule is None:
            return self.slowdown * sync_s
        among_s = total(copies.time(self.messages(reduction, device.schedule).sizes_bytes))
        among_s = (composed.count if self.reduces_each else 1) * among_s
        return self.slowdown * (sync_s - among_s) + copies.slowdown * among_s

    def with_calls(self, slower: float) -> Agreement:  # noqa: D102
        if self.calls is None:
            return self
        return replace(self, calls_s=self.calls_s + (slower - 1) * self.calls.worker_s)

    @property
    def _slowest(self) -> Quantity:
        """Ratio of the last counted worker's time to the mean. [1]"""
        if self.straggler is None:
            return 1.0
        return self.straggler.slowest_s(compute_s=1.0, worker_count=self.worker_count)

    def exchanged(self, device: DeviceWork) -> tuple[Quantity, Quantity]:  # noqa: D102
        total_s, exposed_s = (0.0, 0.0) if self.reduces_each else self._reduced(device)
        if self._slows_turns(device):
            last_s = self._reduced(device)[1] if self.reduces_each else 0.0  # turns include it, but not its casts
            exposed_s = device.cast_s - last_s
        beside_s = device.gathered_s + self.calls_s + (0.0 if self.reduces_each else device.copied_s)
        if self.gathers_once:
            gathered_s, waited_s = self._gathered(device)
            total_s, exposed_s = total_s + gathered_s, exposed_s + waited_s
        return beside_s + total_s, beside_s + exposed_s

    def _slows_turns(self, device: DeviceWork) -> bool:
        """Whether messages slow down the turns that a device takes with others."""
        is_turning = bool(device.turns) and device.schedule is not None and len(device.schedule.sizes_bytes) > 0
        return is_turning and self.overlap and self.reductions[device.place].slows_turns

    def messages_of_device(self, device: DeviceWork) -> Sequence[tuple[int, TurnMessages]]:  # noqa: D102
        if not self._slows_turns(device):
            return ()
        slowest, reduction = self._slowest, self.reductions[device.place]
        schedule: Any = device.schedule
        messages = self.messages(reduction, schedule if self.straggler is None else schedule.slowed(slowest))
        of_turns, first = [], 0
        for chunk, gradients in device.turns:
            if gradients is None:
                of_turns.append((chunk, reduction.messages_of_turn([], ready_s=[], computed_s=0.0)))
                continue
            here = slice(*np.searchsorted(messages.last, (first, first + len(gradients.sizes_bytes))))
            ready_s = slowest * gradients.ready_s[messages.last[here] - first]
            first += len(gradients.sizes_bytes)
            computed_s = slowest * gradients.backward_s
            sizes_bytes = messages.sizes_bytes[here]
            of_turns.append((chunk, reduction.messages_of_turn(sizes_bytes, ready_s=ready_s, computed_s=computed_s)))
        return of_turns

    def _reduced(self, device: DeviceWork) -> tuple[Quantity, Quantity]:
        """Time to add up a device's gradients once, total and exposed. [s]"""
        # a message leaves once the slowest worker has it ready; that worker's longer phases hide more of the exchange
        slowest, reduction = self._slowest, self.reductions[device.place]
        if device.schedule is None or not len(device.schedule.sizes_bytes):
            return 0.0, 0.0
        schedule = device.schedule if self.straggler is None else device.schedule.slowed(slowest)
        schedule = schedule.later(device.joined_s)
        how: dict[str, Any] = {"overlap": self.overlap, "cast_s": device.cast_s}
        total_s, exposed_s = reduction.exchanged(self.messages(reduction, schedule), schedule, **how)
        return total_s + device.joined_s, exposed_s + device.joined_s

    def gathered(self, device: DeviceWork) -> tuple[Quantity, Quantity]:  # noqa: D102
        total_s, exposed_s = (0.0, 0.0) if self.gathers_once else self._gathered(device)
        if not self.reduces_each:
            return total_s, exposed_s
        reduced_s, waited_s = self._reduced(device)
        return total_s + reduced_s + device.copied_s, exposed_s + waited_s + device.copied_s

    def _gathered(self, device: DeviceWork) -> tuple[Quantity, Quantity]:
        """Time to gather shared parameters once, total and exposed. [s]"""
        slowdown = self.slowdown if self.overlap else 0.0
        total_s: Quantity = 0.0
        exposed_s: Quantity = 0.0
        for gather in device.gathers:
            total_s = total_s + gather.total_s + gather.copied_s
            waited_s = slowdown * gather.total_s + gather_stall(
                gather_s=[(1 - slowdown) * seconds for seconds in gather.seconds],
                computed_s=[self._slowest * seconds for seconds in gather.computed_s],
                ahead=self.gathers_ahead if self.overlap else 0,
            )
            if gather.meets_sums:
                waits = {"waited_s": waited_s, "reduced_s": self._reduced(device), "slowest": self._slowest}
                waited_s = waited_s + crowded_s(gather, device, **waits)
            exposed_s = exposed_s + waited_s + gather.copied_s
        return total_s, exposed_s

    def sent_bytes(self, size_bytes: float, place: int) -> float:  # noqa: D102
        return self.reductions[place].sent_bytes(size_bytes)

    def applied(self, alone: StepTime, exchanged: tuple[Quantity, Quantity]) -> StepTime:  # noqa: D102
        total_s, exposed_s = exchanged
        update_s = 0.0 if self.serves else alone.update_s
        waited_s: Quantity = 0.0
        if self.straggler is not None:
            computing_s = alone.device_s - alone.update_s + update_s
            waited_s = self.straggler.straggler_s(compute_s=computing_s, worker_count=self.worker_count)
        return alone._replace(
            update_s=update_s,
            sync_s=alone.sync_s + total_s,
            exposed_sync_s=alone.exposed_sync_s + exposed_s,
            straggler_s=waited_s,
        )

    def slices(self, reduction: Reduction, schedule: GradientSchedule) -> Sequence[slice]:
        """Gradients of each message."""
        if self.message_bytes == MERGED:
            return reduction.cheapest(Stretches.of(reduction.wanted(schedule)), overlap=self.overlap)
        return slices_of(schedule, self.message_bytes)

    def messages(self, reduction: Reduction, schedule: GradientSchedule) -> Buckets:
        """Gradients grouped into messages."""
        wanted = reduction.wanted(schedule)
        if self.message_bytes == MERGED:
            return Buckets.of(wanted, self.slices(reduction, schedule))
        return messages_of(wanted, self.message_bytes)

    def played(  # noqa: D102
        self, fed: Iterable[Task], composed: Composed, *, step: PlayedStep, step_count: int, seed: int
    ) -> tuple[Iterable[Task], Mapping[str, int], Mapping[str, float]]:
        devices = tuple(
            replace(
                played,
                waits_s=played.waits_s + self.calls_s + self._gathered_s(device, composed),
                **self._exchange(device, composed),
            )
            for played, device in zip(step.devices, composed.devices, strict=True)
        )
        step = replace(step, devices=devices, overlap=self.overlap)
        relative = np.ones((step_count, self.worker_count))
        if self.straggler is not None:
            relative = self.straggler.drawn(step_count=step_count, worker_count=self.worker_count, seed=seed)
        return synchronous_tasks(fed, step, relative=relative), step.resources, step.channels

    def _gathered_s(self, device: DeviceWork, composed: Composed) -> float:
        again_s: Quantity = 0.0
        if self.reduces_each:  # the copies of the last micro-batch are among the work at the end of a step
            again_s = (composed.count - 1) * (self._reduced(device)[1] + device.copied_s)
        gathers = 1 if self.gathers_once else composed.count
        # casts are among that work too; messages among copies hide a part of them
        uncast_s = self._reduced(replace(device, cast_s=0.0))[1]
        beside_s = self._reduced(device)[1] - uncast_s - device.cast_s
        return float(device.gathered_s + gathers * self._gathered(device)[1] + again_s + beside_s)

    def _exchange(self, device: DeviceWork, composed: Composed) -> dict[str, Any]:
        """Messages of a device, each with the chunk that completes it and the chunk that needs it first."""
        if device.schedule is None or not len(device.schedule.sizes_bytes):
            return {}
        reduction = self.reductions[device.place]
        chunks = [
            (chunk, stage.times.gradients.later(stage.joined_s))
            for chunk, stage in enumerate(composed.stages)
            if stage.device == device.place and stage.exchanges_gradients
        ][::-1]
        ready = [(chunk, float(when)) for chunk, schedule in chunks for when in schedule.ready_s]
        wanted = [
            (chunk, 0.0 if reduction.waits_for_all else float(when))
            for chunk, schedule in chunks
            for when in schedule.wanted_s
        ]
        slices = self.slices(reduction, device.schedule.later(device.joined_s))
        sizes = device.schedule.sizes_bytes
        return {
            "exchange": reduction.played(overlap=self.overlap),
            "sizes_bytes": [float(sizes[message].sum()) for message in slices],
            "ready": [ready[message.stop - 1] for message in slices],
            "wanted": [min(wanted[message]) for message in slices],
        }
