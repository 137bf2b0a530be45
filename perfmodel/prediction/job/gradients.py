"""Times at which gradients are ready and weights are needed, and the messages that carry them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from perfmodel.cost.gradient_buckets import bucket_sums
from perfmodel.cost.overlap import Lane, cheapest_messages, spans
from perfmodel.derived import derived
from perfmodel.numeric import minima_of_runs, running_total
from perfmodel.prediction.arguments.table import MERGED as MERGED
from perfmodel.records import Phase
from perfmodel.symbolic import named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from perfmodel.framework.kernel_table import KernelTable
    from perfmodel.prediction.device.step_time import GroupTimes, ProcessorNumbers


@dataclass(frozen=True, eq=False, kw_only=True)
class GradientSchedule:
    """Gradients of a step, in the order in which they become ready, chunk by chunk of a network that is cut."""

    chunks: tuple[tuple[str, ...], ...]
    sizes_bytes: NDArray[np.float64]
    ready_s: NDArray[np.float64]
    wanted_s: NDArray[np.float64]
    forward_s: Any
    backward_s: Any

    @property
    def layers(self) -> tuple[str, ...]:
        """Layers of all chunks; equal chunks have layers of the same names."""
        return tuple(chain.from_iterable(self.chunks))

    def slowed(self, factor: Any) -> GradientSchedule:
        """Scale the schedule to a worker whose phases take this many times as long."""
        return replace(self, **{name: getattr(self, name) * factor for name in TIMES})

    def later(self, seconds: Any) -> GradientSchedule:
        """Delay each gradient by the passes over it and those before it, which take ``seconds`` [s] over all."""
        if isinstance(seconds, float | int) and not seconds:
            return self
        share = np.cumsum(self.sizes_bytes) / self.sizes_bytes.sum()
        delay_s, ready_s = np.multiply.outer(share, seconds), self.ready_s
        if delay_s.ndim > ready_s.ndim:
            ready_s = ready_s[:, None]
        elif delay_s.ndim < ready_s.ndim:
            delay_s = delay_s[:, None]
        return replace(self, ready_s=ready_s + delay_s, backward_s=self.backward_s + seconds)

    def taken(self, places: Any) -> GradientSchedule:
        """Keep the schedule of some configurations."""
        return replace(self, **{name: getattr(self, name)[..., places] for name in TIMES})


TIMES: Final = ("ready_s", "wanted_s", "forward_s", "backward_s")
"""Fields of a schedule that are times. [s]"""


def gradient_schedule(
    table: KernelTable,
    groups: GroupTimes,
    numbers: ProcessorNumbers,
    *,
    parameter_counts: Mapping[str, int],
    element_bytes: float,
) -> GradientSchedule:
    """Follow a step's operations in execution order.

    Notes
    -----
    Valid for: operations one after the other, in the order of the table. A layer's gradient is ready after its last
    operation of the backward phase. Shared parameters belong to one layer and are ready when that layer's are.
    """
    busy_s = groups.compute_s + groups.memory_s + groups.launches * numbers.launch_s
    seconds = named(busy_s + groups.exposed_dispatch_s, "operation")
    order = _gradient_order(table, tuple(parameter_counts))
    forward, backward = (running_total(seconds[listed]) for listed in (order.forward, order.backward))
    starts = np.concatenate([np.zeros_like(forward[:1]), forward])
    return GradientSchedule(
        chunks=(order.layers,),
        sizes_bytes=element_bytes * np.array([parameter_counts[name] for name in order.layers], dtype=float),
        ready_s=backward[order.last],
        wanted_s=starts[order.first],
        forward_s=forward[-1],
        backward_s=backward[-1],
    )


class _GradientOrder(NamedTuple):
    """Groups of the operations of each phase, and trained layers by their last operation of the backward phase."""

    forward: NDArray[np.intp]
    backward: NDArray[np.intp]
    layers: tuple[str, ...]
    first: NDArray[np.intp]
    """Place of each layer's first operation in the forward phase. [1]"""
    last: NDArray[np.intp]
    """Place of its last one in the backward phase. [1]"""


@derived
def _gradient_order(table: KernelTable, trained: tuple[str, ...]) -> _GradientOrder:
    forward, backward = (
        [occurrence for occurrence in table.occurrences if occurrence.phase is phase]
        for phase in (Phase.FORWARD, Phase.BACKWARD)
    )
    first: dict[str, int] = {}
    for place, occurrence in enumerate(forward):
        first.setdefault(occurrence.layer, place)
    last = {occurrence.layer: place for place, occurrence in enumerate(backward)}
    first = _with_fused(first, trained, default=0)
    last = _with_fused(last, trained, default=len(backward) - 1)
    layers = tuple(sorted(last, key=lambda name: last[name]))
    places = [[occurrence.group for occurrence in listed] for listed in (forward, backward)]
    places += [[places_of[name] for name in layers] for places_of in (first, last)]
    of_forward, of_backward, of_first, of_last = (np.array(listed, dtype=np.intp) for listed in places)
    return _GradientOrder(of_forward, of_backward, layers, of_first, of_last)


def _with_fused(places: Mapping[str, int], trained: Sequence[str], *, default: int) -> dict[str, int]:
    """Place of each trained layer; one whose operations are fused into another's has the place of the layer before."""
    with_fused: dict[str, int] = {}
    for name in trained:
        default = with_fused[name] = places.get(name, default)
    return with_fused


def joined(
    schedules: Sequence[GradientSchedule],
    *,
    forward_from_s: Sequence[Any],
    backward_from_s: Sequence[Any],
    forward_s: Any,
    backward_s: Any,
) -> GradientSchedule:
    """Join the schedules of chunks of layers on one device, later layers first."""
    last_first = list(zip(schedules, forward_from_s, backward_from_s, strict=True))[::-1]
    return GradientSchedule(
        chunks=tuple(chunk for schedule, _, _ in last_first for chunk in schedule.chunks),
        sizes_bytes=np.concatenate([schedule.sizes_bytes for schedule, _, _ in last_first]),
        ready_s=np.concatenate([schedule.ready_s + start for schedule, _, start in last_first]),
        wanted_s=np.concatenate([schedule.wanted_s + start for schedule, start, _ in last_first]),
        forward_s=forward_s,
        backward_s=backward_s,
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Buckets:
    """Gradients grouped into messages, in the order in which they become ready."""

    sizes_bytes: NDArray[np.float64]
    ready_s: NDArray[np.float64]
    wanted_s: NDArray[np.float64]
    last: NDArray[np.intp]
    """Place of the last gradient of each message. [1]"""

    @classmethod
    def of(cls, schedule: GradientSchedule, slices: Sequence[slice]) -> Buckets:
        """Group gradients into messages."""
        if len(slices) == len(schedule.sizes_bytes):  # every layer by itself
            every = np.arange(len(slices))
            sizes_bytes, ready_s, wanted_s = schedule.sizes_bytes, schedule.ready_s, schedule.wanted_s
            return cls(sizes_bytes=sizes_bytes, ready_s=ready_s, wanted_s=wanted_s, last=every)
        starts = np.array([message.start for message in slices], dtype=np.intp)
        last = np.array([message.stop - 1 for message in slices], dtype=np.intp)
        return cls(
            sizes_bytes=bucket_sums(schedule.sizes_bytes, slices),
            ready_s=schedule.ready_s[last],
            wanted_s=minima_of_runs(schedule.wanted_s, starts),
            last=last,
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Stretches:
    """Every run of consecutive gradients that could share a message, at times averaged over configurations."""

    sizes_bytes: NDArray[np.float64]
    ready_s: NDArray[np.float64]
    wanted_s: NDArray[np.float64]
    backward_s: float

    @classmethod
    def of(cls, schedule: GradientSchedule) -> Stretches:
        """Find the runs of a step's gradients."""
        count = len(schedule.sizes_bytes)
        ready_s, wanted_s = (
            np.broadcast_to(times_s.reshape(count, -1).mean(axis=1), (count, count))
            for times_s in (schedule.ready_s, schedule.wanted_s)
        )
        from_first_on = np.where(np.tri(count, k=-1, dtype=bool), np.inf, wanted_s)
        first_wanted_s = np.minimum.accumulate(from_first_on, axis=1)
        return cls(
            sizes_bytes=spans(schedule.sizes_bytes),
            ready_s=ready_s,
            wanted_s=np.where(np.isfinite(first_wanted_s), first_wanted_s, 0.0),
            backward_s=float(np.mean(schedule.backward_s)),
        )


def merged_reduced(stretches: Stretches, *, message_s: NDArray[np.float64], slowdown: float) -> list[slice]:
    """Merge gradients summed among workers."""
    sent = Lane(floor_s=stretches.ready_s, taken_s=(1 - slowdown) * message_s)
    lost = Lane(floor_s=np.zeros_like(message_s), taken_s=slowdown * message_s)
    if slowdown in (0, 1):
        return cheapest_messages([lost if slowdown else sent], cost_s=lambda until: until[0])
    return cheapest_messages([sent, lost], cost_s=lambda until: np.maximum(until[0], stretches.backward_s) + until[1])


def merged_served(
    stretches: Stretches,
    *,
    push_s: NDArray[np.float64],
    serve_s: NDArray[np.float64],
    pull_s: NDArray[np.float64],
    overlap: bool,
) -> list[slice]:
    """Merge gradients sent through a server, which returns the parameters of the last message first."""
    idle = np.zeros_like(push_s)
    if not overlap:
        return cheapest_messages([Lane(floor_s=idle, taken_s=push_s + serve_s + pull_s)], cost_s=lambda until: until[0])
    lanes = [
        Lane(floor_s=stretches.ready_s, taken_s=push_s),
        Lane(floor_s=idle, taken_s=serve_s, after_the_one_before=True),
        # delay of the next forward phase: parameters of a message come after those of all later messages
        Lane(floor_s=-stretches.wanted_s, taken_s=pull_s),
    ]
    return cheapest_messages(
        lanes, cost_s=lambda until: np.maximum(until[1], stretches.backward_s) + np.maximum(until[2], 0.0)
    )


@derived
def wanted_at_once(schedule: GradientSchedule) -> GradientSchedule:
    """Schedule of a forward phase that starts once all parameters have arrived."""
    return replace(schedule, wanted_s=np.zeros_like(schedule.wanted_s))
