"""Tasks of pipelines: stages of a worker's input, and turns of devices with micro-batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from perfmodel.cost.input_pipeline import SharedCores
from perfmodel.cost.pipeline_order import Orders, Turn, following_turn
from perfmodel.errors import ArgumentError
from perfmodel.numeric import is_real
from perfmodel.simulation import engine
from perfmodel.simulation.timeline import Task

VARIATIONS_DRAWN: Final = (1e-7, 1e7)
"""Smallest and largest variation of random factors; below it all are 1, above it nearly all are 0. [1]"""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a worker's input pipeline; the last stage is the computation."""

    kind: str
    resource: str | None = None
    duration_s: float = 0.0
    flow_bytes: float = 0.0
    channels: tuple[str, ...] = ()
    latency_s: float = 0.0
    ahead: int | None = None
    variation: float = 0.0


def input_pipeline_tasks(
    workers: Mapping[str, Sequence[Stage]], *, step_count: int, prefetch: int = 1, seed: int = 0
) -> tuple[Task, ...]:
    """Tasks of workers whose mini-batches pass through the stages of a pipeline.

    A stage takes mini-batches in order, each part one at a time. Without prefetching, a step's first stage waits until
    the previous step has computed, so nothing overlaps. With depth d, two stages have d + 1 buffers between them, one
    in use and d ahead of it: a stage begins step i once the next one has ended step i - d - 1.

    If a stage varies, its duration and bytes are multiplied by a factor per step, gamma distributed with mean 1. The
    factor belongs to the mini-batch: stages and workers of equal variation share it, whatever the depth.

    Notes
    -----
    Valid for: mini-batches with independent times. Without sharing and variation, s steps take s times the sum of the
    stages without prefetching, and the sum plus (s - 1) times the longest stage with any depth from 1 on. Ignores:
    workers that wait for each other, as in synchronous training.

    Examples
    --------
    >>> from perfmodel.simulation import simulate
    >>> stages = (Stage("transfer", flow_bytes=2.0, channels=("link",)), Stage("compute", "gpu0", duration_s=3.0))
    >>> for prefetch in (0, 1):
    ...     tasks = input_pipeline_tasks({"worker0": stages}, step_count=10, prefetch=prefetch)
    ...     simulate(tasks, channels={"link": 1.0}, resources={"gpu0": 1}).makespan_s
    50.0
    32.0
    """
    _check(workers, step_count=step_count, prefetch=prefetch, seed=seed)
    count = step_count * sum(map(len, workers.values()))
    if count > engine.MOST_TASKS:
        raise engine.beyond_limit(count)
    variations = {stage.variation for stages in workers.values() for stage in stages}
    factors = {variation: _factors(variation, step_count=step_count, seed=seed) for variation in variations}
    return tuple(
        task
        for step in range(step_count)
        for worker, stages in workers.items()
        for task in _tasks_of_step(worker, stages, step=step, prefetch=prefetch, factors=factors)
    )


def _factors(variation: float, *, step_count: int, seed: int) -> list[float]:
    """Factors of mean 1, one per step. [1]"""
    if not variation:
        return [1.0] * step_count
    shape = float(np.clip(variation, *VARIATIONS_DRAWN)) ** -2
    drawn: list[float] = (np.random.default_rng(seed).standard_gamma(shape, step_count) / shape).tolist()
    return drawn


def _check(workers: Mapping[str, Sequence[Stage]], *, step_count: int, prefetch: int, seed: int) -> None:
    if not workers:
        raise ArgumentError(argument="workers", given=dict(workers), allowed="a mapping with at least one worker")
    if step_count < 1:
        raise ArgumentError(argument="step_count", given=step_count, allowed="a whole number >= 1")
    if prefetch < 0:
        raise ArgumentError(argument="prefetch", given=prefetch, allowed="0 or more mini-batches")
    if not is_real(seed) or isinstance(seed, float | np.floating) or seed < 0:
        raise ArgumentError(argument="seed", given=seed, allowed="a whole number >= 0")
    for worker, stages in workers.items():
        kinds = [stage.kind for stage in stages]
        if not kinds or len(set(kinds)) < len(kinds):
            allowed = "at least one stage, each of a different kind"
            raise ArgumentError(argument=f"workers[{worker!r}]", given=kinds, allowed=allowed)
        for stage in stages:
            if not (math.isfinite(stage.variation) and stage.variation >= 0):
                argument = f"workers[{worker!r}], {stage.kind}: variation"
                raise ArgumentError(argument=argument, given=stage.variation, allowed="a finite number >= 0")


def _tasks_of_step(
    worker: str, stages: Sequence[Stage], *, step: int, prefetch: int, factors: Mapping[float, Sequence[float]]
) -> Iterator[Task]:
    for place, stage in enumerate(stages):
        after: list[str] = []
        if place:
            after.append(_name(worker, stages[place - 1], step))
        if not prefetch and not place and step:
            after.append(_name(worker, stages[-1], step - 1))
        ahead = prefetch if stage.ahead is None else stage.ahead
        if place + 1 < len(stages) and step > ahead:
            after.append(_name(worker, stages[place + 1], step - ahead - 1))
        factor = factors[stage.variation][step]
        if step:
            after.append(_name(worker, stage, step - 1))
        yield Task(
            _name(worker, stage, step),
            resource=stage.resource,
            duration_s=factor * stage.duration_s,
            after=tuple(after),
            flow_bytes=factor * stage.flow_bytes,
            channels=stage.channels,
            latency_s=stage.latency_s,
            kind=stage.kind,
        )


def _name(worker: str, stage: Stage, step: int) -> str:
    """Task name of a stage in one step."""
    return f"{worker}/{stage.kind}/{step}"


def fed_besides_computing(fed: Iterable[Task]) -> Generator[Task, None, dict[str, tuple[str, ...]]]:
    """Yield the input tasks, and return for each computation the names of the tasks it waits for. [-]"""
    after: dict[str, tuple[str, ...]] = {}
    for task in fed:
        if task.kind == "compute":
            after[task.name] = task.after
        else:
            yield task
    return after


def cores_task(cores: SharedCores, worker: str, step: int, *, computing_s: float) -> Task:
    """Work of shared cores in a step: to compute it, and to decode a mini-batch once a buffer is free."""
    before = [(f"{worker}/cores", step - 1), (f"{worker}/compute", step - cores.prefetch)]
    after = tuple(f"{name}/{earlier}" for name, earlier in before if earlier >= 0)
    return Task(f"{worker}/cores/{step}", duration_s=float(cores.busy_s(computing_s)), after=after, kind="cores")


@dataclass(frozen=True, slots=True)
class Hop:
    """Transfer of a micro-batch's tensor from one chunk of layers to the next."""

    duration_s: float = 0.0
    flow_bytes: float = 0.0
    channels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a turn."""

    seconds: float
    after: tuple[str, ...] = ()


def _task_name(lane: str, turn: Turn) -> str:
    return f"{lane}/{turn.phase}/{turn.chunk}/{turn.micro_batch}"


def _for_itself(lane: str, seconds: float) -> Mapping[str, Any]:
    return {"duration_s": seconds}


def pipeline_schedule_tasks(
    orders: Orders,
    *,
    forward_s: Sequence[float],
    backward_s: Sequence[float],
    forward_hops: Sequence[Hop],
    backward_hops: Sequence[Hop],
    names: Sequence[str] | None = None,
    after: tuple[str, ...] = (),
    called: Callable[[str, Turn], str] = _task_name,
    pieces: Mapping[Turn, Sequence[Piece]] | None = None,
    computing: Callable[[str, float], Mapping[str, Any]] = _for_itself,
) -> tuple[Task, ...]:
    """Tasks of a pipeline's devices, and of the transfers between them.

    Notes
    -----
    Valid for: transfers that do not occupy a device; one at a time in each direction of each boundary.

    Examples
    --------
    >>> from perfmodel.cost.pipeline_order import one_forward_one_backward_order
    >>> from perfmodel.simulation import simulate
    >>> orders = one_forward_one_backward_order(stage_count=4, micro_batch_count=8)
    >>> tasks = pipeline_schedule_tasks(orders, forward_s=[1.0] * 4, backward_s=[2.0] * 4,
    ...     forward_hops=[Hop()] * 3, backward_hops=[Hop()] * 3)
    >>> simulate(tasks, channels={}, resources=pipeline_resources(orders, chunk_count=4)).makespan_s
    33.0
    """
    times = {"forward": forward_s, "backward": backward_s}
    hops = {"forward": forward_hops, "backward": backward_hops}
    chunk_count = 1 + max(turn.chunk for order in orders for turn in order)
    for argument, values, count in (
        *((f"{phase}_s", values, chunk_count) for phase, values in times.items()),
        *((f"{phase}_hops", values, chunk_count - 1) for phase, values in hops.items()),
    ):
        if len(values) != count:
            raise ArgumentError(argument, len(values), f"{count} of them for {chunk_count} chunks")
    lanes = stage_lanes(len(orders)) if names is None else names
    if len(lanes) != len(orders):
        raise ArgumentError("names", len(lanes), f"{len(orders)} of them, one for each device")
    pieces = {} if pieces is None else pieces
    followed: dict[Turn, tuple[str, bool]] = {}
    for lane, order in zip(lanes, orders, strict=True):
        for turn in order:
            following = following_turn(turn, chunk_count=chunk_count)
            if following is not None:
                followed[following] = ending(called(lane, turn), turn, pieces), following.chunk != turn.chunk
    sends = {turn: f"{task}/send" if is_sent else task for turn, (task, is_sent) in followed.items()}
    tasks: list[Task] = []
    for lane, order in zip(lanes, orders, strict=True):
        earlier = after
        for turn in order:
            whole = [Piece(times[turn.phase][turn.chunk])]
            task, cut = called(lane, turn), pieces.get(turn)
            needs = (*earlier, *((sends[turn],) if turn in sends else ()))
            for place, piece in enumerate(whole if cut is None else cut):
                name = task if cut is None else f"{task}/{place}"
                waits = tuple(dict.fromkeys((*needs, *piece.after)))
                tasks.append(Task(name, resource=lane, after=waits, kind=turn.phase, **computing(lane, piece.seconds)))
                needs = earlier = (name,)
            following = following_turn(turn, chunk_count=chunk_count)
            if following is not None and followed[following][1]:
                boundary = min(turn.chunk, following.chunk)
                hop, link = hops[turn.phase][boundary], _link_name(lanes, turn.phase, boundary)
                tasks.append(_send_task(hop, name=sends[following], after=earlier, link=link))
    return tuple(tasks)


def _send_task(hop: Hop, *, name: str, after: tuple[str, ...], link: str) -> Task:
    return Task(
        name,
        resource=link,
        duration_s=hop.duration_s,
        flow_bytes=hop.flow_bytes,
        channels=hop.channels,
        after=after,
        kind="send",
    )


def stage_lanes(device_count: int) -> list[str]:
    """Default lane names of a pipeline's devices. [-]"""
    return [f"stage{device}" for device in range(device_count)]


def ending(task: str, turn: Turn, pieces: Mapping[Turn, Sequence[Piece]]) -> str:
    """Name of the last task of a turn."""
    return f"{task}/{len(pieces[turn]) - 1}" if turn in pieces else task


def _link_name(names: Sequence[str], phase: str, boundary: int) -> str:
    """Resource of the transfers over a boundary in one direction."""
    first, second = names[boundary % len(names)], names[(boundary + 1) % len(names)]
    ends = (first, second) if phase == "forward" else (second, first)
    return f"{ends[0]} to {ends[1]}, boundary {boundary}"


def pipeline_resources(orders: Orders, *, chunk_count: int, names: Sequence[str] | None = None) -> dict[str, int]:
    """Resources of a pipeline's tasks: devices, and boundaries in each direction."""
    lanes = stage_lanes(len(orders)) if names is None else names
    links = (
        _link_name(lanes, phase, boundary) for phase in ("forward", "backward") for boundary in range(chunk_count - 1)
    )
    return dict.fromkeys([*lanes, *links], 1)
