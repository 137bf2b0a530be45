"""The one composition of a step, from plain numbers of stages, exchanges, copies and input to its parts.

The numbers may be floats (predict), arrays over configurations (sweep, interval) or symbols (formula). The same lines
also compute a whole network (one device), an uncut mini-batch (one micro-batch) and unshared state (a share of one).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from perfmodel.cost.transfer import exposed_copy_time
from perfmodel.derived import derived_property, record
from perfmodel.numeric import exceeds, maximum, minimum, where
from perfmodel.prediction.device.step_time import StepTime
from perfmodel.prediction.job.gradients import joined
from perfmodel.prediction.job.turns import Turned, messages_of_chunks, sent_s, slow_turns, turned
from perfmodel.symbolic import NUMBER_TYPES, Quantity, is_symbolic, named

if TYPE_CHECKING:
    from perfmodel.cost.pipeline_order import Orders
    from perfmodel.prediction.job.agreement import Agreement
    from perfmodel.prediction.job.gradients import GradientSchedule
    from perfmodel.prediction.job.sharing import Gather

_ROUNDING = 1e-9
"""Relative difference up to which devices take equally long: rows of a sweep round in another order. [1]"""


class PhaseTimes(Protocol):
    """Times of a stage for one micro-batch, without copies and exchanges, computed when read."""

    @property
    def whole(self) -> StepTime:
        """All phases, with the update. [s]"""

    @property
    def forward(self) -> StepTime:
        """The forward phase. [s]"""

    @property
    def backward(self) -> StepTime:
        """The backward phase; zero if there is none. [s]"""

    @property
    def update(self) -> StepTime:
        """The update, once for all micro-batches; zero if there is none. [s]"""

    @property
    def adding(self) -> StepTime:
        """Adding the gradients of one micro-batch to those of the micro-batches before. [s]"""

    @property
    def copying_s(self) -> Quantity:
        """One copy of all gradients into the messages that exchange them, or back. [s]"""

    @property
    def gradients(self) -> GradientSchedule:
        """Times at which the gradients of its layers are ready. [s]"""


class StageNumbers(NamedTuple):
    """Times of a stage for one micro-batch, from which the work of a worker's devices is added up. [s]"""

    forward_s: Quantity
    backward_s: Quantity
    forward_send_s: Quantity
    backward_send_s: Quantity
    per_micro_batch: StepTime
    update: StepTime
    update_s: tuple[Quantity, Quantity]
    adding: StepTime
    adding_s: Quantity
    tied_s: Quantity


@record
class StageWork:
    """Work of a stage for one micro-batch: floats, arrays of shape (configurations,), or expressions."""

    times: PhaseTimes
    device: int = 0
    exchanges_gradients: bool = False
    group_s: tuple[Quantity, Quantity] = (0.0, 0.0)
    exchanged_s: Quantity = 0.0
    send_s: tuple[Quantity, Quantity] = (0.0, 0.0)
    gathers: tuple[Gather, ...] = ()
    tied_s: Quantity = 0.0
    gathered_s: Quantity = 0.0
    copied_s: Quantity = 0.0
    """Passes over all gradients and over shares of them, around an exchange of all at once; nothing hides them. [s]"""
    cast_s: Quantity = 0.0
    """Passes over all gradients, each just before its message on the same stream, while computing stands still. [s]"""
    joined_s: Quantity = 0.0
    """Passes over all gradients, unit by unit, on the stream where layers compute, beside earlier messages. [s]"""
    alike: StageWork | None = None
    """Work of another stage with the same times, computed once for both. [-]"""

    @derived_property
    def forward_s(self) -> Quantity:
        """Forward turn of a micro-batch. [s]"""
        return named(self.times.forward.step_s + self.group_s[0], "forward turn")

    @derived_property
    def backward_s(self) -> Quantity:
        """Backward turn of a micro-batch. [s]"""
        return named(self.times.backward.step_s + self.group_s[1], "backward turn")

    @derived_property
    def alone(self) -> StageNumbers:
        """Numbers of a stage that is a whole worker, without turns. [s]"""
        update, adding = self.times.update, self.times.adding
        return StageNumbers(
            forward_s=0.0,
            backward_s=0.0,
            forward_send_s=self.send_s[0],
            backward_send_s=self.send_s[1],
            per_micro_batch=_exchanging(self.times.forward + self.times.backward, self),
            update=update,
            update_s=(update.step_s - update.update_s, update.update_s),
            adding=adding,
            adding_s=adding.step_s,
            tied_s=self.tied_s,
        )

    @derived_property
    def device_alone(self) -> DeviceWork:
        """Exchanges of a device that is all of a worker, with other workers."""
        return devices_of([self], Turned(None, None))[0]

    @derived_property
    def numbers(self) -> StageNumbers:
        """Numbers of a stage that takes turns with those on other devices. [s]"""
        return self.alone._replace(forward_s=self.forward_s, backward_s=self.backward_s)


def fields_of_stages(stages: Sequence[StageWork]) -> dict[str, Any]:
    """Fields of a device's work that join those of its stages: units that it gathers, and passes. [s]"""
    passes_s = {
        name: sum(getattr(stage, name) for stage in stages) for name in ("gathered_s", "copied_s", "cast_s", "joined_s")
    }
    return {"gathers": tuple(gather for stage in stages for gather in stage.gathers), **passes_s}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DeviceWork:
    """Exchanges of a device with the corresponding devices of other workers."""

    place: int
    schedule: GradientSchedule | None
    turns: tuple[tuple[int, GradientSchedule | None], ...] = ()
    """The device's chunks, later layers first, with the gradients that each exchanges; empty without turns."""
    gathers: tuple[Gather, ...] = ()
    gathered_s: Quantity = 0.0
    copied_s: Quantity = 0.0
    cast_s: Quantity = 0.0
    joined_s: Quantity = 0.0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class WorkerWork:
    """Work of a worker's devices for one micro-batch.

    ``longest`` is the device that works longest; works that are symbols stay in ``compared_s``, to choose it later. [s]
    Adding up gradients lengthens ``works_s`` and changes neither.
    """

    device_of_chunk: tuple[int, ...]
    forward_s: tuple[Quantity, ...]
    backward_s: tuple[Quantity, ...]
    forward_send_s: tuple[Quantity, ...]
    backward_send_s: tuple[Quantity, ...]
    works_s: tuple[Quantity, ...]
    updates: tuple[tuple[Quantity, Quantity], ...]
    tied_s: tuple[Quantity, ...]
    adding_s: tuple[Quantity, ...]
    longest: int
    longest_places: Quantity
    compared_s: tuple[Quantity, ...]
    per_micro_batch: StepTime
    update: StepTime
    adding: StepTime

    def adding_up(self, micro_batches: Quantity, *, share: Quantity) -> WorkerWork:
        """Spread adding up gradients, of which a device does a share [1], evenly over the backward turns."""
        worker, sums = self, 1 - 1 / micro_batches
        if not (isinstance(share, float) and share == 1):
            adding_s = tuple(share * adding_s for adding_s in self.adding_s)
            worker = replace(self, adding=self.adding.times(share), adding_s=adding_s)
        if len(self.works_s) == 1 or (isinstance(micro_batches, int) and micro_batches == 1):
            return worker
        turns = zip(worker.backward_s, worker.adding_s, strict=False)
        works = zip(worker.works_s, worker.added_s, strict=True)
        return replace(
            worker,
            backward_s=tuple(turn_s + sums * adding_s for turn_s, adding_s in turns),
            works_s=tuple(work_s + sums * added_s for work_s, added_s in works),
        )

    @property
    def added_s(self) -> tuple[Quantity, ...]:
        """Time to add a micro-batch's gradients, on each device. [s]"""
        of_device: list[Quantity] = [0.0] * len(self.works_s)
        for device, adding_s in zip(self.device_of_chunk, self.adding_s, strict=True):
            of_device[device] = of_device[device] + adding_s
        return tuple(of_device)


Exchanged = tuple[Quantity, Quantity]
"""Exchange time of a device with other workers, total and exposed. [s]"""


@record
class Composed:
    """A composed step."""

    parts: StepTime
    alone: StepTime
    longest: int
    stages: tuple[StageWork, ...]
    devices: tuple[DeviceWork, ...]
    orders: Orders
    count: int = 1

    def of(self, parts: StepTime) -> Composed:
        """Replace the parts of the step [s]."""
        return Composed(
            parts=parts,
            alone=self.alone,
            longest=self.longest,
            stages=self.stages,
            devices=self.devices,
            orders=self.orders,
            count=self.count,
        )

    @derived_property
    def together_s(self) -> Quantity:
        """Device time of the step with its exchanges. [s]"""
        return self.parts.device_s

    @derived_property
    def alone_s(self) -> Quantity:
        """Device time of the step without exchanges between workers. [s]"""
        return self.alone.device_s


def is_served(agreement: Agreement | None) -> bool:
    """Whether a parameter server applies updates, so that a worker has neither their time nor their state."""
    return agreement is not None and agreement.serves


def compose(
    stages: Sequence[StageWork],
    *,
    orders: Orders,
    micro_batches: int = 1,
    accumulation_steps: int = 1,
    update_share: Quantity = 1.0,
    adding_share: Quantity = 1.0,
    agreement: Agreement | None = None,
    copies_s: tuple[Quantity, Quantity] = (0.0, 0.0),
    first_step_s: Quantity = 0.0,
    fed: Callable[[StepTime], StepTime] | None = None,
) -> Composed:
    r"""Compose the step of a job from the numbers of its stages.

    .. math:: T = \max_d \left[(a - 1) E + E_d + X_d + U_d\right] + W

    with a passes of all micro-batches through the pipeline at E each, :math:`E_d` the end of the last pass on device d,
    :math:`X_d` its exposed exchange, :math:`U_d` its update, and W the time for slower workers, copies and input.

    Notes
    -----
    Valid for: equal workers, passes that each fill and drain the pipeline, gradients exchanged in the last backward
    phase. Ignores: that exchanges of several devices of a worker may share a link.
    """
    composed = agreed(
        stages,
        orders=orders,
        micro_batches=micro_batches,
        accumulation_steps=accumulation_steps,
        update_share=update_share,
        adding_share=adding_share,
        agreement=agreement,
    )
    return fed_with(composed, agreement=agreement, copies_s=copies_s, first_step_s=first_step_s, fed=fed)


def agreed(
    stages: Sequence[StageWork],
    *,
    orders: Orders,
    micro_batches: int = 1,
    accumulation_steps: int = 1,
    update_share: Quantity = 1.0,
    adding_share: Quantity = 1.0,
    agreement: Agreement | None = None,
) -> Composed:
    """Compose a step up to its copies and input.

    ``orders`` are the turns of each device of a worker in a pass; ``micro_batches`` of a pass [1] and
    ``accumulation_steps``, passes before the update [1], say how often they are taken. Each device does an
    ``update_share`` [1] of the update and an ``adding_share`` [1] of adding up micro-batches, below 1 where workers
    share the optimizer's state and scatter gradients.
    """
    count = micro_batches * accumulation_steps
    if len(stages) == len(orders) == count == 1 and isinstance(update_share, float) and update_share == 1:
        longest = 0  # nothing to put together
        alone = _tied(_exchanging(stages[0].times.whole, stages[0]), stages[0].tied_s)
        devices: tuple[DeviceWork, ...] = () if agreement is None else (stages[0].device_alone,)
        exchanged = None if agreement is None else exchanges(agreement, devices[0], count=1)
    else:
        numbers = [stage.numbers if len(orders) > 1 else stage.alone for stage in stages]
        devices_of_chunks = [stage.device for stage in stages]
        worker = worker_of(numbers, device_of_chunk=devices_of_chunks, device_count=len(orders))
        worker = worker.adding_up(micro_batches, share=adding_share)
        longest, ends = worker.longest, turned(worker, orders)
        devices = () if agreement is None else devices_of(stages, ends)
        messages = () if agreement is None else messages_of_chunks(agreement, devices, chunk_count=len(stages))
        if slow_turns(messages):
            ends = replace(ends, slowed=turned(worker, orders, messages))
        alone, exchanged = stepped(
            worker,
            ends,
            exchanged=None if agreement is None else [exchanges(agreement, device, count=count) for device in devices],
            micro_batches=micro_batches,
            passes=accumulation_steps,
            update_share=update_share,
            served=is_served(agreement),
        )
    return Composed(
        parts=alone if agreement is None or exchanged is None else agreement.applied(alone, exchanged),
        alone=alone,
        longest=longest,
        stages=tuple(stages),
        devices=devices,
        orders=orders,
        count=count,
    )


def fed_with(
    composed: Composed,
    *,
    agreement: Agreement | None,
    copies_s: tuple[Quantity, Quantity],
    first_step_s: Quantity = 0.0,
    fed: Callable[[StepTime], StepTime] | None = None,
) -> Composed:
    """Add copies of mini-batches and waiting for input to a step."""
    before_s, meanwhile_s = copies_s
    copied_s = before_s + meanwhile_s
    if agreement is not None and agreement.delays_copies:
        before_s, meanwhile_s = copied_s, 0.0
    hiding_s = composed.together_s if agreement is not None and agreement.hides_copies else composed.alone_s
    parts = composed.parts.copying(
        exposed_s=exposed_copy_time(before_s=before_s, meanwhile_s=meanwhile_s, computing_s=hiding_s),
        total_s=copied_s,
        first_step_s=first_step_s,
    )
    return composed.of(parts if fed is None else fed(parts))


def _is_something(seconds: Quantity) -> bool:
    return type(seconds) not in NUMBER_TYPES or bool(seconds)


def worker_of(numbers: Sequence[StageNumbers], *, device_of_chunk: Sequence[int], device_count: int) -> WorkerWork:
    """Work of a worker's devices for one micro-batch."""
    chunks: list[list[StageNumbers]] = [[] for _ in range(device_count)]
    for stage, device in zip(numbers, device_of_chunk, strict=True):
        chunks[device].append(stage)
    is_cut = device_count > 1
    works_s = [
        named(sum(stage.forward_s + stage.backward_s for stage in chunk), "work of a device") if is_cut else 0.0
        for chunk in chunks
    ]
    per_micro_batch, updates, adding = (
        [reduce(StepTime.__add__, [getattr(stage, name) for stage in chunk]) for chunk in chunks]
        for name in ("per_micro_batch", "update", "adding")
    )
    longest = Longest(works_s)
    return WorkerWork(
        device_of_chunk=tuple(device_of_chunk),
        forward_s=tuple(stage.forward_s for stage in numbers) if is_cut else (),
        backward_s=tuple(stage.backward_s for stage in numbers) if is_cut else (),
        forward_send_s=tuple(stage.forward_send_s for stage in numbers[:-1]),
        backward_send_s=tuple(stage.backward_send_s for stage in numbers[1:]),
        works_s=tuple(works_s),
        updates=tuple(reduce(_both_added, [stage.update_s for stage in chunk]) for chunk in chunks),
        tied_s=tuple(sum(stage.tied_s for stage in chunk) for chunk in chunks),
        adding_s=tuple(stage.adding_s for stage in numbers),
        longest=longest.first,
        longest_places=longest.places,
        compared_s=tuple(works_s) if longest.is_open else (),
        per_micro_batch=longest.step(per_micro_batch),
        update=longest.step(updates),
        adding=longest.step(adding),
    )


def _both_added(one: tuple[Quantity, Quantity], other: tuple[Quantity, Quantity]) -> tuple[Quantity, Quantity]:
    return one[0] + other[0], one[1] + other[1]


def _exchanging(computed: StepTime, stage: StageWork) -> StepTime:
    """Device time for one micro-batch, with exchanges inside the worker. [s]"""
    exposed_s, total_s = sum(stage.group_s), stage.exchanged_s
    if not (_is_something(exposed_s) or _is_something(total_s)):
        return computed
    return computed._replace(exposed_sync_s=exposed_s, sync_s=total_s)


def _tied(step: StepTime, tied_s: Quantity) -> StepTime:
    """Add the exposed sums of gradients of tied tables. [s]"""
    if not _is_something(tied_s):
        return step
    return step._replace(exposed_sync_s=step.exposed_sync_s + tied_s, sync_s=step.sync_s + tied_s)


def devices_of(stages: Sequence[StageWork], turns: Turned) -> tuple[DeviceWork, ...]:
    """Exchanges of each device with other workers."""
    devices = []
    device_count = 1 + max(stage.device for stage in stages)
    for place in range(device_count):
        chunks = [(chunk, stage) for chunk, stage in enumerate(stages) if stage.device == place]
        schedule = _schedule(chunks, turns) if any(stage.exchanges_gradients for _, stage in chunks) else None
        taken_turns = () if device_count == 1 else _turns(chunks)
        beside = fields_of_stages([stage for _, stage in chunks])
        devices.append(DeviceWork(place=place, schedule=schedule, turns=taken_turns, **beside))
    return tuple(devices)


def _turns(chunks: Sequence[tuple[int, StageWork]]) -> tuple[tuple[int, GradientSchedule | None], ...]:
    """Chunks of a device that takes turns, later layers first, each with the gradients that it exchanges."""
    return tuple(
        [(chunk, stage.times.gradients if stage.exchanges_gradients else None) for chunk, stage in reversed(chunks)]
    )


def _schedule(chunks: Sequence[tuple[int, StageWork]], turns: Turned) -> GradientSchedule:
    """Gradients of a device's chunks, at the times at which its pipeline order produces them."""
    schedules = [stage.times.gradients for _, stage in chunks]
    if len(chunks) == 1:
        return schedules[0]
    backward_s: Quantity
    if turns.ends is None:
        after_s = [sum(schedule.backward_s for schedule in schedules[place + 1 :]) for place in range(len(chunks))]
        backward_s = sum(schedule.backward_s for schedule in schedules)
    else:
        starts = [
            turns.ends.chunk_s[chunk] - schedule.backward_s
            for (chunk, _), schedule in zip(chunks, schedules, strict=True)
        ]
        first = reduce(minimum, starts)
        after_s = [start - first for start in starts]
        backward_s = turns.ends.device_s[chunks[0][1].device] - first
    exchanging = [place for place, (_, stage) in enumerate(chunks) if stage.exchanges_gradients]
    return joined(
        [schedules[place] for place in exchanging],
        forward_from_s=[sum(schedule.forward_s for schedule in schedules[:place]) for place in exchanging],
        backward_from_s=[after_s[place] for place in exchanging],
        forward_s=sum(schedule.forward_s for schedule in schedules),
        backward_s=backward_s,
    )


def exchanges(agreement: Agreement, device: DeviceWork, *, count: Quantity) -> Exchanged:
    """Exchange times of a device with other workers in one step. [s]"""
    total_s, exposed_s = agreement.exchanged(device)
    if not device.gathers and not getattr(agreement, "reduces_each", False):
        return total_s, exposed_s
    gathered_s, waited_s = agreement.gathered(device)
    return total_s + count * gathered_s, exposed_s + count * waited_s


class Longest:
    """The device that works longest, for each configuration."""

    def __init__(self, works_s: Sequence[Quantity], places: Quantity = None) -> None:
        self.works_s, self.places, self.first = works_s, places, 0
        self.is_open = len(works_s) > 1 and is_symbolic(*works_s)
        if places is None and len(works_s) > 1 and not self.is_open:
            longest = of_largest(works_s, range(len(works_s)))
            self.first = int(np.ravel(longest)[0]) if np.size(longest) else 0
            if np.any(longest != self.first):
                self.places = longest

    @classmethod
    def again(cls, worker: WorkerWork) -> Longest:
        """Take the longest device that a worker already knows."""
        known = cls(worker.compared_s, worker.longest_places)
        known.first = worker.longest
        return known

    def of(self, values: Sequence[Quantity]) -> Quantity:
        """Pick the value of that device."""
        if self.is_open:
            return of_largest(self.works_s, values)
        if self.places is None:
            return values[self.first]
        if all(values[0] is value for value in values[1:]):
            return values[0]
        first, *others = self._masks
        value = values[first[0]]
        for place, is_longest in others:
            value = np.where(is_longest, values[place], value)
        return value if others or np.ndim(value) else np.broadcast_to(value, self.places.shape)

    @derived_property
    def _masks(self) -> list[tuple[int, Any]]:
        """Every device that works longest somewhere, with the configurations in which it does."""
        return [(int(place), self.places == place) for place in np.unique(self.places)]

    def step(self, steps: Sequence[StepTime]) -> StepTime:
        """Pick the parts of that device."""
        if self.places is None and not self.is_open:
            return steps[self.first]
        return StepTime._make(map(self.of, zip(*steps, strict=True)))


def of_largest(keys: Sequence[Quantity], values: Sequence[Quantity]) -> Quantity:
    """Pick the value with the largest key; among keys that only rounding tells apart, the first."""
    largest, value_of_largest = keys[0], values[0]
    for key, value in zip(keys[1:], values[1:], strict=True):
        same = largest if is_symbolic(key, largest) else largest * (1 + _ROUNDING)
        value_of_largest = named(where(exceeds(key, same), value, value_of_largest), "of the longest")
        largest = named(maximum(largest, key), "longest")
    return value_of_largest


def stepped(
    worker: WorkerWork,
    turns: Turned,
    *,
    exchanged: Sequence[Exchanged] | None,
    micro_batches: Quantity,
    passes: Quantity,
    update_share: Quantity,
    served: bool = False,
) -> tuple[StepTime, Exchanged]:
    """Step of the device that works longest, alone, and its exchanges with other workers. [s]"""
    longest, count = Longest.again(worker), micro_batches * passes
    alone = worker.per_micro_batch if isinstance(count, int) and count == 1 else worker.per_micro_batch.times(count)
    alone = _tied(alone + worker.update.times(update_share), longest.of(worker.tied_s))
    if not (isinstance(count, int) and count == 1):
        alone = alone + worker.adding.times(count - 1)
    if exchanged is None:
        exchanged = [(0.0, 0.0)] * len(worker.works_s)
    if turns.ends is None or turns.free is None:
        return alone, exchanged[0]
    slowed = turns if turns.slowed is None else turns.slowed
    assert slowed.ends is not None
    assert slowed.free is not None
    rest_s = [
        tied_s + (passes - 1) * added_s + exposed_s + update_share * (overhead_s if served else overhead_s + update_s)
        for tied_s, added_s, (overhead_s, update_s), (_, exposed_s) in zip(
            worker.tied_s, worker.added_s, worker.updates, exchanged, strict=True
        )
    ]
    earlier_s, free_earlier_s = ((passes - 1) * ends.latest_s for ends in (turns.ends, turns.free))
    free_s = [free_earlier_s + end for end in turns.free.device_s]
    ends_s, slowed_s = (
        [before_s + end for end in sent_s(last)]
        for before_s, last in ((earlier_s, slowed.ends), (free_earlier_s, slowed.free))
    )
    if turns.slowed is not None:  # what messages add to the end of each device, with the turns that they slow down
        exchanged = [
            (total_s, exposed_s + end_s - start_s)
            for (total_s, exposed_s), end_s, start_s in zip(exchanged, slowed_s, free_s, strict=True)
        ]
    last_s = reduce(maximum, [named(end + rest, "end of a device") for end, rest in zip(ends_s, rest_s, strict=True)])
    finish_s = [named(end + rest, "end with free links") for end, rest in zip(slowed_s, rest_s, strict=True)]
    unhindered_s = reduce(maximum, finish_s)
    of = longest.of
    total_s, exposed_s = (of([exchange_s[place] for exchange_s in exchanged]) for place in (0, 1))
    waits_s = maximum(unhindered_s - of(finish_s), 0.0)
    # the part of the last device's delay that its longer exchange explains counts as exchange
    of_exchange_s = minimum(
        waits_s, maximum(of_largest(finish_s, [exchange_s for _, exchange_s in exchanged]) - exposed_s, 0.0)
    )
    alone = alone._replace(
        exposed_sync_s=alone.exposed_sync_s + maximum(last_s - unhindered_s, 0.0),
        bubble_s=maximum(of(free_s) - count * of(worker.works_s), 0.0) + waits_s - of_exchange_s,
    )
    alone = alone._replace(sync_s=maximum(alone.sync_s, alone.exposed_sync_s))
    exposed_s = exposed_s + of_exchange_s
    return alone, (maximum(total_s, exposed_s), exposed_s)
