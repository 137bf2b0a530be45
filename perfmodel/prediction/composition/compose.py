"""The one composition of a step: plain numbers of a job's stages, exchanges, copies and input to its parts.

``predict`` gives floats, a sweep and an interval arrays over configurations, a formula symbols. A worker with the whole
network is the case of one device, a mini-batch in one piece that of one micro-batch, workers that share nothing that of
a share of one: all by the same lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.cost.pipeline_order import Orders, pipeline_ends
from perfmodel.cost.transfer import exposed_copy_time
from perfmodel.numeric import exceeds, maximum, minimum, where
from perfmodel.prediction.composition.work import DeviceWork, Gather, StageWork
from perfmodel.prediction.gradients import joined
from perfmodel.prediction.step_time import StepTime
from perfmodel.symbolic import is_symbolic, named

if TYPE_CHECKING:
    from perfmodel.prediction.agreement import Agreement
    from perfmodel.prediction.gradients import GradientSchedule

Quantity = Any
Exchanged = tuple[Quantity, Quantity]
"""What a device exchanges with other workers, hidden or not, and what of it is exposed. [s]"""


@dataclass(frozen=True, eq=False, kw_only=True)
class Composed:
    """A step composed.

    Parameters
    ----------
    parts : StepTime
        The step. [s]
    own : StepTime
        What a worker does by itself, on the device that works longest, without copies and input. [s]
    longest : int
        That device, by its place among those of a worker; of several configurations the first one's. [1]
    stages : tuple of StageWork
        What was composed. [s]
    devices : tuple of DeviceWork
        What each device of a worker exchanges with other workers; empty where these do not agree. [s]
    orders : tuple of tuple of Turn
        Turns of the devices in a pass over all micro-batches. [-]
    """

    parts: StepTime
    own: StepTime
    longest: int
    stages: tuple[StageWork, ...]
    devices: tuple[DeviceWork, ...]
    orders: Orders


def compose(
    stages: Sequence[StageWork],
    *,
    orders: Orders,
    micro_batches: int = 1,
    accumulation_steps: int = 1,
    update_share: Quantity = 1.0,
    agreement: Agreement | None = None,
    copies_s: tuple[Quantity, Quantity] = (0.0, 0.0),
    first_step_s: Quantity = 0.0,
    fed: Callable[[StepTime], StepTime] | None = None,
) -> Composed:
    r"""Compose the step of a job from the numbers of its stages.

    .. math:: T = \max_d \left[(a - 1) E + E_d + X_d + U_d\right] + W

    with passes a of all micro-batches through the pipeline, each of which takes E, device d through with the last at
    :math:`E_d`, exposed exchange :math:`X_d`, update :math:`U_d`, and W for slower workers, copies and input.

    Parameters
    ----------
    stages : sequence of StageWork
        In the order of the network. [s]
    orders : tuple of tuple of Turn
        Turns of each device of a worker in a pass. [-]
    micro_batches, accumulation_steps : int
        Micro-batches of a pass, and passes before the update. [1]
    update_share : float, ndarray or sympy.Expr
        Part of the update that a device does, where workers share the optimizer's state. [1]
    agreement : Agreement or None
        How workers agree; None where they do not. [-]
    copies_s : tuple of 2 float, ndarray or sympy.Expr
        Copies of a step's mini-batch: before it begins, and while the one before computes. [s]
    first_step_s : float, ndarray or sympy.Expr
        Share of what the first step of a process costs besides. [s]
    fed : callable or None
        Adds to a StepTime what it waits for its input; None where that is there. [-]

    Returns
    -------
    Composed
        Exclusive parts and totals, and what they were made of. [s]

    Notes
    -----
    Valid for: workers that are alike, passes that each fill and drain the pipeline, gradients exchanged in the last
    backward phase. Ignores: exchanges of several devices of a worker that meet on a link.
    """
    composed = agreed(
        stages,
        orders=orders,
        micro_batches=micro_batches,
        accumulation_steps=accumulation_steps,
        update_share=update_share,
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
    agreement: Agreement | None = None,
) -> Composed:
    """Compose a step up to the copies of mini-batches and what brings them.

    Parameters
    ----------
    stages : sequence of StageWork
        In the order of the network. [s]
    orders : tuple of tuple of Turn
        Turns of each device of a worker in a pass. [-]
    micro_batches, accumulation_steps : int
        Micro-batches of a pass, and passes before the update. [1]
    update_share : float, ndarray or sympy.Expr
        Part of the update that a device does. [1]
    agreement : Agreement or None
        How workers agree; None where they do not. [-]

    Returns
    -------
    Composed
        As ``compose`` returns it, without copies and input. [s]
    """
    if agreement is None and len(stages) == 1 and micro_batches * accumulation_steps == 1 and not stages[0].is_shared:
        own = stages[0].times.whole  # nothing to put together
        return Composed(parts=own, own=own, longest=0, stages=tuple(stages), devices=(), orders=orders)
    devices: tuple[DeviceWork, ...] = ()
    run = _Run(stages, orders, micro_batches=micro_batches, passes=accumulation_steps, update_share=update_share)
    if agreement is None:
        own, _ = run.own([(0.0, 0.0)] * len(orders))
        parts = own
    else:
        devices = run.timed_by(tuple(_devices(stages, orders, micro_batches * accumulation_steps)))
        own, exchanged = run.own([agreement.exchanged(device) for device in devices], served=agreement.serves)
        parts = agreement.applied(own, exchanged)
    return Composed(
        parts=parts,
        own=own,
        longest=run.longest.first,
        stages=tuple(stages),
        devices=devices,
        orders=orders,
    )


def fed_with(
    composed: Composed,
    *,
    agreement: Agreement | None,
    copies_s: tuple[Quantity, Quantity],
    first_step_s: Quantity = 0.0,
    fed: Callable[[StepTime], StepTime] | None = None,
) -> Composed:
    """Add to a step in which workers agree the copies of mini-batches, and what it waits for their input.

    Parameters
    ----------
    composed : Composed
        The step without them. [s]
    agreement : Agreement or None
        How workers agree: what copies may hide behind. [-]
    copies_s : tuple of 2 float, ndarray or sympy.Expr
        Copies of a step's mini-batch: before it begins, and while the one before computes. [s]
    first_step_s : float, ndarray or sympy.Expr
        Share of what the first step of a process costs besides. [s]
    fed : callable or None
        Adds to a StepTime what it waits for its input; None where that is there. [-]

    Returns
    -------
    Composed
        The whole step. [s]
    """
    before_s, meanwhile_s = copies_s
    copied_s = before_s + meanwhile_s
    if agreement is not None and agreement.delays_copies:
        before_s, meanwhile_s = copied_s, 0.0
    hiding = composed.parts if agreement is not None and agreement.hides_copies else composed.own
    parts = replace(
        composed.parts,
        overhead_s=composed.parts.overhead_s + first_step_s,
        exposed_transfer_s=exposed_copy_time(before_s=before_s, meanwhile_s=meanwhile_s, computing_s=hiding.device_s),
        transfer_s=copied_s,
    )
    return replace(composed, parts=parts if fed is None else fed(parts))


def _devices(stages: Sequence[StageWork], orders: Orders, count: int) -> list[DeviceWork]:
    """Return what each device exchanges with other workers, its chunks of layers one after the other."""
    found = []
    for place in range(len(orders)):
        own = [stage for stage in stages if stage.device == place]
        exchanging = [stage.times.gradients for stage in own if stage.exchanges_gradients]
        found.append(
            DeviceWork(
                place=place,
                schedule=_one_after_another(own) if exchanging else None,
                gathers=tuple(
                    Gather(seconds=seconds, hidden_by_s=phase.step_s, count=count)
                    for stage in own
                    if any(map(_is_something, stage.gather_s))
                    for seconds, phase in zip(stage.gather_s, (stage.times.forward, stage.times.backward), strict=True)
                ),
                gathered_s=sum(stage.gathered_s for stage in own),
            )
        )
    return found


def _is_something(seconds: Quantity) -> bool:
    return not (isinstance(seconds, float | int) and not seconds)


def _one_after_another(stages: Sequence[StageWork]) -> GradientSchedule:
    """Return the gradients of stages whose phases follow one another on a device."""
    if len(stages) == 1:
        return stages[0].times.gradients
    schedules = [stage.times.gradients for stage in stages]
    before_s = [sum(each.forward_s for each in schedules[:place]) for place in range(len(stages))]
    after_s = [sum(each.backward_s for each in schedules[place + 1 :]) for place in range(len(stages))]
    return joined(
        [schedule for schedule, stage in zip(schedules, stages, strict=True) if stage.exchanges_gradients],
        forward_from_s=[each for each, stage in zip(before_s, stages, strict=True) if stage.exchanges_gradients],
        backward_from_s=[each for each, stage in zip(after_s, stages, strict=True) if stage.exchanges_gradients],
        forward_s=sum(each.forward_s for each in schedules),
        backward_s=sum(each.backward_s for each in schedules),
    )


class _Longest:
    """The device that works longest, configuration by configuration."""

    def __init__(self, works_s: Sequence[Quantity]) -> None:
        self.works_s = works_s
        self.first, self.places = 0, None
        self.is_open = len(works_s) > 1 and is_symbolic(*works_s)
        if len(works_s) > 1 and not self.is_open:
            places = np.argmax(np.stack(np.broadcast_arrays(*works_s)), axis=0)
            self.first = int(np.ravel(places)[0]) if np.size(places) else 0
            if np.any(places != self.first):
                self.places = places

    def of(self, values: Sequence[Quantity]) -> Quantity:
        """Return the value of that device."""
        if self.is_open:
            return of_largest(self.works_s, values)
        if self.places is None:
            return values[self.first]
        return np.take_along_axis(np.stack(np.broadcast_arrays(*values, self.places)[:-1]), self.places[None], axis=0)[
            0
        ]

    def step(self, steps: Sequence[StepTime]) -> StepTime:
        """Return the parts of that device."""
        if self.places is None and not self.is_open:
            return steps[self.first]
        return StepTime(*(self.of([getattr(step, part.name) for step in steps]) for part in fields(StepTime)))


def of_largest(keys: Sequence[Quantity], values: Sequence[Quantity]) -> Quantity:
    """Return the value that belongs to the largest key, the first of several that are as large."""
    largest, found = keys[0], values[0]
    for key, value in zip(keys[1:], values[1:], strict=True):
        found = named(where(exceeds(key, largest), value, found), "of the longest")
        largest = named(maximum(largest, key), "longest")
    return found


class _Run:
    """All micro-batches through the stages of a worker."""

    def __init__(
        self, stages: Sequence[StageWork], orders: Orders, *, micro_batches: int, passes: int, update_share: Quantity
    ) -> None:
        self.stages, self.orders, self.passes = stages, orders, passes
        self.count = micro_batches * passes
        self.update_share = update_share
        self.chunks = [[stage for stage in stages if stage.device == place] for place in range(len(orders))]
        if len(orders) == 1:
            self.works_s: list[Quantity] = [0.0]
        else:
            self.works_s = [
                named(self.count * sum(each.forward_s + each.backward_s for each in own), "work of a device")
                for own in self.chunks
            ]
            there = tuple(stage.send_s[0] for stage in stages[:-1])
            back = tuple(stage.send_s[1] for stage in stages[1:])
            self.ends = self._ends(there, back)
            self.free = self._ends((0.0,) * len(there), (0.0,) * len(back))
        self.longest = _Longest(self.works_s)

    def _ends(self, there: Sequence[Quantity], back: Sequence[Quantity]) -> Any:
        return pipeline_ends(
            self.orders,
            forward_s=[stage.forward_s for stage in self.stages],
            backward_s=[stage.backward_s for stage in self.stages],
            forward_send_s=there,
            backward_send_s=back,
        )

    def timed_by(self, devices: tuple[DeviceWork, ...]) -> tuple[DeviceWork, ...]:
        """Return what devices exchange, chunks of one at the times at which the schedule really ends them."""
        if len(self.orders) == 1 or all(len(own) == 1 for own in self.chunks):
            return devices
        return tuple(self._device_timed(device) for device in devices)

    def _device_timed(self, device: DeviceWork) -> DeviceWork:
        if device.schedule is None:
            return device
        places = [place for place, stage in enumerate(self.stages) if stage.device == device.place]
        of_chunks = [self.stages[place].times.gradients for place in places]
        starts = [self.ends.chunk_s[place] - each.backward_s for place, each in zip(places, of_chunks, strict=True)]
        first = reduce(minimum, starts)
        exchanging = [place for place, stage in enumerate(self.chunks[device.place]) if stage.exchanges_gradients]
        before_s = [sum(each.forward_s for each in of_chunks[:place]) for place in range(len(places))]
        return replace(
            device,
            schedule=joined(
                [of_chunks[place] for place in exchanging],
                forward_from_s=[before_s[place] for place in exchanging],
                backward_from_s=[starts[place] - first for place in exchanging],
                forward_s=device.schedule.forward_s,
                backward_s=self.ends.device_s[device.place] - first,
            ),
        )

    def own(self, exchanged: Sequence[Exchanged], *, served: bool = False) -> tuple[StepTime, Exchanged]:
        """Return what the device that works longest does by itself, and what it exchanges with other workers."""
        updates = [
            reduce(StepTime.__add__, [stage.times.update for stage in own]).times(self.update_share)
            if not self._is_whole
            else None
            for own in self.chunks
        ]
        tied_s = [sum(stage.tied_s for stage in own) for own in self.chunks]
        computed = [self._computed(own, update) for own, update in zip(self.chunks, updates, strict=True)]
        if len(self.orders) == 1:
            return self._exchanging(computed[0], self.chunks[0], tied_s[0]), exchanged[0]
        tails_s = [
            tied + exposed + _without_server(update, served=served).step_s  # type: ignore[arg-type]
            for tied, update, (_, exposed) in zip(tied_s, updates, exchanged, strict=True)
        ]
        ends_s, free_s = (
            [(self.passes - 1) * ends.latest_s + end for end in ends.device_s] for ends in (self.ends, self.free)
        )
        finish_s = [named(end + tail, "end of a device") for end, tail in zip(ends_s, tails_s, strict=True)]
        last_s = reduce(maximum, finish_s)
        of = self.longest.of
        total_s, exposed_s = (of([each[place] for each in exchanged]) for place in (0, 1))
        waits_s = maximum(last_s - of(finish_s), 0.0)
        # of what the last device is later, its exchange is as much as it is longer
        of_exchange_s = minimum(
            waits_s, maximum(of_largest(finish_s, [each for _, each in exchanged]) - exposed_s, 0.0)
        )
        own = self.longest.step([self._exchanging(*each) for each in zip(computed, self.chunks, tied_s, strict=True)])
        transfers_s = of(ends_s) - of(free_s)
        own = replace(
            own,
            exposed_sync_s=own.exposed_sync_s + transfers_s,
            bubble_s=maximum(of(free_s) - of(self.works_s), 0.0) + waits_s - of_exchange_s,
        )
        own = replace(own, sync_s=maximum(own.sync_s, own.exposed_sync_s))
        exposed_s = exposed_s + of_exchange_s
        return own, (maximum(total_s, exposed_s), exposed_s)

    @property
    def _is_whole(self) -> bool:
        """Whether a worker does all phases of its one stage once."""
        return (
            len(self.stages) == 1
            and self.count == 1
            and isinstance(self.update_share, float)
            and self.update_share == 1
        )

    def _computed(self, stages: Sequence[StageWork], update: StepTime | None) -> StepTime:
        """Return what a device computes in all micro-batches, with its update."""
        if update is None:
            return stages[0].times.whole
        phases = [phase for stage in stages for phase in (stage.times.forward, stage.times.backward)]
        once = reduce(StepTime.__add__, phases)
        return (once if self.count == 1 else once.times(self.count)) + update

    def _exchanging(self, computed: StepTime, stages: Sequence[StageWork], tied_s: Quantity) -> StepTime:
        """Return what a device computes and exchanges with others of its worker."""
        exposed_s = self.count * sum(sum(stage.group_s) for stage in stages) + tied_s
        total_s = self.count * sum(stage.exchanged_s for stage in stages) + tied_s
        if not (_is_something(exposed_s) or _is_something(total_s)):
            return computed
        return replace(computed, exposed_sync_s=exposed_s, sync_s=total_s)


def _without_server(update: StepTime, *, served: bool) -> StepTime:
    return replace(update, update_s=0.0) if served else update
