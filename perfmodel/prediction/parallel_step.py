"""The step of a network on several devices: stages, schedule, exchanges, bubbles, and the memory of each device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from perfmodel.cost.model_state import model_state_bytes
from perfmodel.cost.pipeline_order import SCHEDULES, Orders, Turn, most_kept, pipeline_makespan
from perfmodel.cost.pipeline_schedule import bubble_fraction, schedule_bounds
from perfmodel.parallelism.recompute import with_repeated_exchanges
from perfmodel.prediction.parallel_sync import DataSync, ExchangeTime, SyncOfDevice, data_sync_of
from perfmodel.prediction.step_time import StepTime
from perfmodel.records import Phase

if TYPE_CHECKING:
    from perfmodel.parallelism import Placement, StageGraph
    from perfmodel.prediction.memory import MemoryFootprint
    from perfmodel.prediction.parallel_stage import StageTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelStep:
    """A step on several devices.

    Parameters
    ----------
    parts : StepTime
        Of the device that works longest, with the bubbles it waits. [s]
    memory : tuple of MemoryFootprint
        Of each device of a pipeline; of one that all others are like, elsewhere. [B]
    longest : int
        The device that works longest, by its place in the pipeline. [1]
    orders : tuple of tuple of Turn
        What each device of a pipeline does, in order. [-]
    forward_s, backward_s : tuple of float
        Of one micro-batch in each stage, with what its group exchanges. [s]
    forward_send_s, backward_send_s : tuple of float
        From each stage to the next, and back. [s]
    tail_s : float
        What follows the last backward phase: the exchange that is left then, and the update. [s]
    agreeing_s : float
        What of that is the exchange of data-parallel workers; the rest of the step is each worker's own. [s]
    bounds_s : tuple of float
        What the micro-batches take at least and at most by the schedule's closed forms, without transfers. [s]
    equal_bubble_fraction : float
        Share of the micro-batches' time that devices would wait if all stages were equal. [1]
    """

    parts: StepTime
    memory: tuple[MemoryFootprint, ...]
    longest: int
    orders: Orders
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    forward_send_s: tuple[float, ...]
    backward_send_s: tuple[float, ...]
    tail_s: float
    agreeing_s: float
    bounds_s: tuple[float, float]
    equal_bubble_fraction: float


def parallel_step(
    placement: Placement,
    *,
    batch_size: int,
    predict_stage: Callable[[StageGraph, int], StageTimes],
    exchange_time: ExchangeTime,
    recompute: str | None = None,
    data_sync: SyncOfDevice | None = None,
    phase: Phase = Phase.STEP,
) -> ParallelStep:
    """Return the step of a placed network.

    Parameters
    ----------
    placement : Placement
        The network on devices. [-]
    batch_size : int
        Samples of a data-parallel worker per step. [samples]
    predict_stage : callable
        Time and memory of a stage at a micro-batch. [-]
    exchange_time : callable
        Seconds of an exchange of so many bytes of a stage. [s]
    recompute : str or None
        Where checkpoints lie; None where the graph marks them, if anywhere. [-]
    data_sync : callable or None
        What data-parallel workers' exchange costs; None for all of it after the last backward phase. [s]
    phase : Phase
        What runs; with ``forward`` micro-batches follow one another through the stages, and none comes back. [-]

    Returns
    -------
    ParallelStep
        Parts that sum to the step, and the memory of each device. [-]

    Raises
    ------
    ArgumentError
        If the micro-batches do not divide the batch.

    Notes
    -----
    The micro-batches take the longest path through the schedule, exact for stages of any length. Parts are those of the
    device that works longest; what it waits for others without transfers is ``bubble_s``, what transfers add to that,
    and what tensor groups and workers exchange while nothing else goes on, ``exposed_sync_s``. An exchange that may be
    hidden is exposed only as far as it is longer than the phase it lies in. ``sync_s`` is what this device exchanges,
    hidden or not, or what is exposed, where transfers between other devices delay it by more. Valid for: equal devices,
    groups that do not share links. Ignores: contention of exchanges with one another.
    """
    layout = placement.layout
    size = layout.micro_batch_size(batch_size)
    trains = Phase.BACKWARD in phase.parts
    stages = list(placement.stages)
    if trains:
        stages = [with_repeated_exchanges(stage, recompute=recompute) for stage in stages]
    times = [predict_stage(stage, size * stage.batch_factor) for stage in stages]
    synced = [_phase_sync(stage, each, size, exchange_time) for stage, each in zip(stages, times, strict=True)]
    forward_s = tuple(each.forward.step_s + sync[0] for each, sync in zip(times, synced, strict=True))
    backward_s = tuple(each.backward.step_s + sync[1] for each, sync in zip(times, synced, strict=True))
    sends = _sends(stages, size, exchange_time)
    orders = _orders(placement, trains=trains)
    makespans = _makespans(orders, forward_s, backward_s, sends)
    devices = [[index for index, stage in enumerate(stages) if stage.device == device] for device in range(len(orders))]
    busy_s = [layout.micro_batches * sum(forward_s[index] + backward_s[index] for index in own) for own in devices]
    longest = max(range(len(devices)), key=busy_s.__getitem__)
    sync = data_sync_of(placement, exchange_time) if data_sync is None else data_sync
    tail, data = _tail(stages, times, devices, sync=sync, exchange_time=exchange_time, placement=placement)
    inside_s = layout.micro_batches * sum(sum(synced[index]) for index in devices[longest])
    sends_s = layout.micro_batches * sum(_total(stages[index], size, exchange_time) for index in devices[longest])
    phases = [each for index in devices[longest] for each in (times[index].forward, times[index].backward)]
    parts = _scaled_sum([_scaled_sum(phases, layout.micro_batches), tail], 1)
    exposed_s = parts.exposed_sync_s + inside_s + makespans[1] - makespans[0]
    parts = replace(
        parts,
        exposed_sync_s=exposed_s,
        # rounding may leave less than nothing, or more where there is no other device
        bubble_s=max(0.0, makespans[0] - busy_s[longest]) if len(devices) > 1 else 0.0,
        sync_s=max(sends_s + data.total_s, exposed_s),  # transfers between others may delay it by more than its own
    )
    memory = tuple(_memory(own, times, orders[device], placement) for device, own in enumerate(devices))
    return ParallelStep(
        parts=parts,
        memory=memory,
        longest=longest,
        orders=orders,
        forward_s=forward_s,
        backward_s=backward_s,
        forward_send_s=sends[0],
        backward_send_s=sends[1],
        tail_s=float(tail.step_s),
        agreeing_s=data.exposed_s,
        bounds_s=_bounds(placement, forward_s, backward_s),
        equal_bubble_fraction=bubble_fraction(
            stage_count=layout.stages, micro_batch_count=layout.micro_batches, interleave=layout.interleave
        ),
    )


def _makespans(
    orders: Orders, forward_s: Sequence[float], backward_s: Sequence[float], sends: tuple[tuple[float, ...], ...]
) -> list[float]:
    """Return what the micro-batches take if transfers take no time, and as they are. [s]"""
    none = (0.0,) * (len(forward_s) - 1)
    return [
        float(
            pipeline_makespan(
                orders, forward_s=forward_s, backward_s=backward_s, forward_send_s=there, backward_send_s=back
            )
        )
        for there, back in ((none, none), sends)
    ]


def _orders(placement: Placement, *, trains: bool) -> Orders:
    """Return what each device does; stages of one device alone follow one another for each micro-batch."""
    layout = placement.layout
    if layout.stages > 1:
        orders = SCHEDULES[layout.schedule](
            stage_count=layout.stages, micro_batch_count=layout.micro_batches, interleave=layout.interleave
        )
    else:
        orders = _of_one_device(placement)
    if trains:
        return orders
    return tuple(tuple(turn for turn in order if turn.phase == "forward") for order in orders)


def _of_one_device(placement: Placement) -> Orders:
    places = range(len(placement.stages))
    return (
        tuple(
            turn
            for batch in range(placement.layout.micro_batches)
            for turn in (
                *(Turn("forward", place, batch) for place in places),
                *(Turn("backward", place, batch) for place in reversed(places)),
            )
        ),
    )


def _bounds(placement: Placement, forward_s: Sequence[float], backward_s: Sequence[float]) -> tuple[float, float]:
    """Return what closed forms say of the schedule; one device works all the time. [s]"""
    layout = placement.layout
    if layout.stages == 1:
        works_s = layout.micro_batches * (sum(forward_s) + sum(backward_s))
        return works_s, works_s
    least_s, most_s = schedule_bounds(
        layout.schedule,
        forward_s=forward_s,
        backward_s=backward_s,
        stage_count=layout.stages,
        micro_batch_count=layout.micro_batches,
    )
    return float(least_s), float(most_s)


def _phase_sync(stage: StageGraph, times: StageTimes, size: int, exchange_time: ExchangeTime) -> tuple[float, float]:
    """Return what a tensor group's exchanges add to the forward and the backward phase of a micro-batch. [s]"""
    found = []
    for phase, lasting_s in ((Phase.FORWARD, times.forward.step_s), (Phase.BACKWARD, times.backward.step_s)):
        seconds = {True: 0.0, False: 0.0}
        for exchange in stage.exchanges:
            if exchange.group == "tensor" and exchange.phase is phase:
                size_bytes = exchange.size_bytes(size * stage.batch_factor)
                seconds[exchange.hidden] += exchange_time(exchange, size_bytes, stage)
        found.append(seconds[False] + max(0.0, seconds[True] - float(lasting_s)))
    return found[0], found[1]


def _total(stage: StageGraph, size: int, exchange_time: ExchangeTime) -> float:
    """Return what a stage exchanges for a micro-batch, hidden or not. [s]"""
    return sum(
        exchange_time(exchange, exchange.size_bytes(size * stage.batch_factor), stage)
        for exchange in stage.exchanges
        if exchange.group != "data" and exchange.phase is not Phase.UPDATE
    )


def _sends(
    stages: Sequence[StageGraph], size: int, exchange_time: ExchangeTime
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the transfers of a micro-batch to the next stage, and of its gradient back. [s]"""

    def seconds(stage: StageGraph, phase: Phase) -> float:
        return sum(
            exchange_time(exchange, exchange.size_bytes(size * stage.batch_factor), stage)
            for exchange in stage.exchanges
            if exchange.kind == "send" and exchange.phase is phase
        )

    there = tuple(seconds(stage, Phase.FORWARD) for stage in stages[:-1])
    back = tuple(seconds(stage, Phase.BACKWARD) for stage in stages[1:])
    return there, back


def _tail(
    stages: Sequence[StageGraph],
    times: Sequence[StageTimes],
    devices: Sequence[Sequence[int]],
    *,
    sync: SyncOfDevice,
    exchange_time: ExchangeTime,
    placement: Placement,
) -> tuple[StepTime, DataSync]:
    """Return what follows the last backward phase on the device where it takes longest, and what it exchanges. [s]"""
    layout = placement.layout
    share = layout.data_size if layout.shard_stage else 1
    found = []
    for own in devices:
        data = sync([stages[index] for index in own], [times[index] for index in own])
        others_s = sum(
            exchange_time(exchange, exchange.size_bytes(0), stages[index])
            for index in own
            for exchange in stages[index].exchanges
            if exchange.group != "data" and exchange.phase is Phase.UPDATE
        )
        update = _scaled_sum([times[index].update for index in own], 1 / share)
        tail = replace(update, exposed_sync_s=update.exposed_sync_s + data.exposed_s + others_s)
        found.append((tail, DataSync(data.total_s + others_s, data.exposed_s)))
    return max(found, key=lambda pair: float(pair[0].step_s))


def _scaled_sum(phases: Sequence[StepTime], factor: float) -> StepTime:
    names = [each.name for each in fields(StepTime)]
    return StepTime(**{name: factor * sum(getattr(phase, name) for phase in phases) for name in names})


def _memory(
    own: Sequence[int], times: Sequence[StageTimes], order: Sequence[Turn], placement: Placement
) -> MemoryFootprint:
    """Return what a device keeps: its stages' parameters, and the micro-batches on their way through them."""
    layout = placement.layout
    footprints = {index: times[index].memory for index in own}
    first = footprints[own[0]]
    waits = {index: times[index].kept_bytes for index in own}
    several = layout.micro_batches > 1 or len(own) > 1
    beyond = max(footprints[index].activations_bytes - waits[index] for index in own)
    activations = beyond + most_kept(order, kept_bytes=waits)
    arriving = {index: footprints[index].input_bytes for index in own}
    waits_for_backward = any(turn.phase == "backward" for turn in order)
    inputs = most_kept(order, kept_bytes=arriving) if waits_for_backward else max(arriving.values())
    gradients = sum(times[index].all_gradients_bytes if several else footprints[index].gradients_bytes for index in own)
    weights, gradients, optimizer = model_state_bytes(
        weights_bytes=sum(each.weights_bytes for each in footprints.values()),
        gradients_bytes=gradients,
        optimizer_bytes=sum(each.optimizer_bytes for each in footprints.values()),
        shard_stage=layout.shard_stage,
        worker_count=layout.data_size,
    )
    return replace(
        first,
        weights_bytes=weights,
        gradients_bytes=gradients,
        optimizer_bytes=optimizer,
        activations_bytes=activations,
        workspace_bytes=max(each.workspace_bytes for each in footprints.values()),
        input_bytes=inputs,
    )
