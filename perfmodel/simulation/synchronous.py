"""Tasks of synchronous training: turns of each device, transfers, and messages between workers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from perfmodel.derived import derived_property
from perfmodel.simulation import engine
from perfmodel.simulation.pipeline import (
    Hop,
    Piece,
    ending,
    fed_besides_computing,
    pipeline_resources,
    pipeline_schedule_tasks,
)
from perfmodel.simulation.timeline import Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from perfmodel.cost.input_pipeline import SharedCores
    from perfmodel.cost.pipeline_order import Orders, Turn
    from perfmodel.hardware.topology import Route
    from perfmodel.sync.placed import Placed
    from perfmodel.sync.placed_round import PlacedRound
    from perfmodel.sync.registry import LibraryCollective


def collective_tasks(
    placed: Placed,
    size_bytes: float,
    *,
    name: str = "collective",
    after: tuple[str, ...] = (),
    beside: tuple[str, ...] = (),
) -> tuple[Task, ...]:
    """Tasks of a collective.

    Notes
    -----
    Valid for: ranks that each take part in one round at a time. A message starts once its source and sink have finished
    the previous round, and a chunk of a tree once all have. On many equal machines, and for algorithms that only
    libraries have, it is one task of the closed form. Ignores: barriers of a library.
    """
    placed = placed.fastest(size_bytes)
    if not (placed.is_complete and placed.collective.plays):
        messages = f"{name}/messages" if beside else name
        whole = Task(messages, duration_s=float(placed.time(size_bytes)), after=after, kind="sync")
        return (whole, Task(name, after=(messages, *beside), kind="sync")) if beside else (whole,)
    tasks = _rounds(placed, size_bytes, name=name, after=after)
    followed = {earlier for task in tasks for earlier in task.after}
    last = tuple(task.name for task in tasks if task.name not in followed) or after
    return (*tasks, Task(name, after=(*last, *beside), kind="sync"))


def _rounds(placed: Placed, size_bytes: float, *, name: str, after: tuple[str, ...]) -> list[Task]:
    ready: dict[int, tuple[str, ...]] = defaultdict(lambda: after)
    tasks: list[Task] = []
    number = 0
    for round_ in placed.rounds:
        for _ in range(round_.repeat):
            passed = _one_round(placed, round_, size_bytes, name=f"{name}/{number}", ready=ready)
            tasks += passed
            if placed.collective.chunk_counts:
                end = Task(f"{name}/{number}", after=tuple(task.name for task in passed), kind="sync")
                tasks.append(end)
                ready = defaultdict(lambda end=end: (end.name,))  # type: ignore[misc]
            number += 1
    return tasks


def _one_round(
    placed: Placed, round_: PlacedRound, size_bytes: float, *, name: str, ready: dict[int, tuple[str, ...]]
) -> list[Task]:
    tasks: list[Task] = []
    done: dict[int, list[str]] = defaultdict(list)
    received: dict[int, float] = defaultdict(float)
    label_counts: dict[str, int] = defaultdict(int)
    for message, route, latency_s in zip(round_.messages, placed.routes(round_), round_.latencies_s, strict=True):
        label = f"{name}/{message.source}>{message.sink}"
        label_counts[label] += 1
        label += f" ({label_counts[label]})" if label_counts[label] > 1 else ""  # a ring of two is the same both ways
        before = tuple(dict.fromkeys((*ready[message.source], *ready[message.sink])))
        tasks.append(_message(label, route, latency_s, message.share * size_bytes, after=before))
        received[message.sink] += message.share
        for rank in (message.source, message.sink):
            done[rank].append(label)
    for rank, names in done.items():
        ready[rank] = tuple(names)
        added_s = received[rank] * size_bytes * placed.reduce_s_per_byte if round_.reduced_share else 0.0
        if added_s:
            tasks.append(Task(f"{name}/add{rank}", duration_s=added_s, after=tuple(names), kind="add"))
            ready[rank] = (f"{name}/add{rank}",)
    return tasks


def _message(name: str, route: Route, latency_s: float, flow_bytes: float, *, after: tuple[str, ...]) -> Task:
    channels = route.channel_names if flow_bytes else ()
    return Task(name, flow_bytes=flow_bytes, channels=channels, latency_s=latency_s, after=after, kind="message")


@dataclass(frozen=True, kw_only=True)
class PlayedExchange:
    """How workers sum one bucket of gradients."""

    gather: Placed | LibraryCollective
    pull: Placed | None = None
    server_s_per_byte: float = 0.0
    slowdown: float = 0.0
    calls: str = "calls"
    """Kind of calls, for the name of the channel that holds their share of a device. [-]"""
    following: Following | None = None

    @derived_property
    def resources(self) -> Mapping[str, int]:
        """Resources of a sum apart from the workers, one unit each."""
        return {f"{name} server": 1 for name in self.gather.servers} if self.server_s_per_byte else {}

    def channels(self, workers: Sequence[str]) -> Mapping[str, float]:
        """Channels shared by computing and library calls on each device: of all work, and of calls by kind. [s/s]"""
        channels = {} if self.following is None else dict(self.following.exchange.channels(workers))
        if self.slowdown:
            channels |= dict.fromkeys(map(_units, workers), 1.0)
            channels |= dict.fromkeys(map(self._units_of_calls, workers), self.slowdown)
        return channels

    @property
    def takes_units(self) -> bool:
        """Whether messages take a part of each device from computing."""
        return bool(self.slowdown) or (self.following is not None and self.following.exchange.takes_units)

    def _units_of_calls(self, worker: str) -> str:
        return f"{worker} units of {self.calls}"

    def estimated_tasks(self, size_bytes: float, worker_count: int) -> int:
        """Tasks of the exchange of one bucket, with one chunk where parts are cut into chunks. [1]"""
        placed = self.gather.call(size_bytes).placed
        held = worker_count if self.slowdown else 0
        if (held and self.gather.by_library) or not (placed.is_complete and placed.collective.plays):
            return held + 1
        adds = placed.reduce_s_per_byte > 0
        return held + sum(
            round_.repeat * (len(round_.messages) + (adds and round_.reduced_share > 0) * len(placed.order))
            for round_ in placed.rounds
        )

    def gathered(
        self, size_bytes: float, *, name: str, after: tuple[str, ...], workers: Sequence[str]
    ) -> Iterator[Task]:
        """Yield the messages of a bucket among workers; the last task is called ``name``."""
        blocks = tuple(self._blocks(size_bytes, name=name, after=after, workers=workers))
        yield from blocks
        held = tuple(task.name for task in blocks)
        if held and self.gather.by_library:
            yield Task(name, after=held, kind="sync")
            return
        call = self.gather.call(size_bytes)
        if call.launch_s:
            yield Task(f"{name}/launch", duration_s=call.launch_s, after=after, kind="launch")
            after = (f"{name}/launch",)
        yield from collective_tasks(call.placed, call.wire_bytes, name=name, after=after, beside=held)

    def _blocks(
        self, size_bytes: float, *, name: str, after: tuple[str, ...], workers: Sequence[str]
    ) -> Iterator[Task]:
        """Yield the share of each device that a bucket's messages occupy, for the time of the closed form."""
        if not self.slowdown:
            return
        work = self.slowdown * float(self.gather.time(size_bytes))
        for worker in workers:
            shared = (_units(worker), self._units_of_calls(worker))
            taken = f"blocks of {name} on {worker}"
            yield Task(taken, flow_bytes=work, channels=shared, after=after, kind="blocks")

    def served(self, size_bytes: float, *, name: str, after: tuple[str, ...]) -> Iterator[Task]:
        """Yield the work of servers; the last task is called ``name``."""
        parts = {f"{name} at {server}": server for server in self.resources}
        for part, server in parts.items():
            seconds = self.server_s_per_byte * size_bytes
            yield Task(part, resource=server, duration_s=seconds, after=after, kind="serve")
        yield Task(name, after=tuple(parts) or after, kind="sync")

    def pulling(self, size_bytes: float, *, name: str, after: tuple[str, ...]) -> Iterator[Task]:
        """Yield the messages that return parameters; the last task is called ``name``."""
        if self.pull is None:
            yield Task(name, after=after, kind="sync")
        else:
            yield from collective_tasks(self.pull, size_bytes, name=name, after=after)


def _units(worker: str) -> str:
    return f"{worker} units"


@dataclass(frozen=True, kw_only=True)
class Following:
    """Messages that each follow another one, on a channel of their own unless the two take turns."""

    exchange: PlayedExchange
    share: float
    in_turn: bool = False


@dataclass(frozen=True, kw_only=True)
class PlayedDevice:
    """A device of a worker: its exchanges with other workers, and its work at the end of a step."""

    exchange: PlayedExchange | None = None
    sizes_bytes: Sequence[float] = ()
    ready: Sequence[tuple[int, float]] = ()
    wanted: Sequence[tuple[int, float]] = ()
    waits_s: float = 0.0
    update_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class PlayedStep:
    """A step of equal workers, each with one device or several."""

    orders: Orders
    passes: int = 1
    forward_s: Sequence[tuple[float, float]]
    backward_s: Sequence[tuple[float, float]]
    forward_hops: Sequence[Hop] = ()
    backward_hops: Sequence[Hop] = ()
    joined_s: Sequence[float] = ()
    """Time that readying gradients for their messages adds to the last backward turn of each chunk. [s]"""
    devices: Sequence[PlayedDevice]
    overlap: bool = True
    lanes: Mapping[str, Sequence[str]]
    cores: SharedCores | None = None
    """Shared cores of workers that do not wait for others; with waiting, decoding is in ``update_s``. [-]"""

    @derived_property
    def resources(self) -> Mapping[str, int]:
        """Resources, one unit each: devices, boundaries between stages, servers."""
        resources: dict[str, int] = {}
        for lanes in self.lanes.values():
            resources |= pipeline_resources(self.orders, chunk_count=len(self.forward_s), names=lanes)
        return resources | {name: 1 for device in self.devices if device.exchange for name in device.exchange.resources}

    @derived_property
    def channels(self) -> Mapping[str, float]:
        """Channels that computing and calls share on each device. [s/s]"""
        return {
            name: rate
            for place, device in enumerate(self.devices)
            if device.exchange
            for name, rate in device.exchange.channels(self.peers(place)).items()
        }

    def peers(self, place: int) -> list[str]:
        """Devices in one place of every worker."""
        return [lanes[place] for lanes in self.lanes.values()]

    def exchanging(self) -> Iterator[tuple[int, PlayedDevice, PlayedExchange]]:
        """Yield the devices of a worker that exchange with other workers."""
        for place, device in enumerate(self.devices):
            if device.exchange is not None and device.sizes_bytes:
                yield place, device, device.exchange

    @property
    def estimated_tasks(self) -> int:
        """Tasks of one step, to a few per cent. [1]"""
        count = 0
        for _, device, exchange in self.exchanging():
            count += sum(exchange.estimated_tasks(size, len(self.lanes)) for size in device.sizes_bytes)
            count += (len(self.lanes) + 3) * len(device.sizes_bytes)  # pieces of computing; start, end, servers
        return count

    def bucket(self, number: int, place: int) -> str:
        """Prefix of the bucket names of a device in a step."""
        return f"sync/{number}/" + (f"{place}/" if len(self.devices) > 1 else "")


def synchronous_tasks(
    fed: Iterable[Task], step: PlayedStep, *, relative: NDArray[np.float64], together: bool = True
) -> Iterator[Task]:
    """Tasks of workers that read their own input and agree in every step."""
    estimated = len(relative) * step.estimated_tasks
    if estimated > engine.MOST_TASKS:  # to make them would take as long as to play some of them
        raise engine.beyond_limit(estimated, "about ")
    after = yield from fed_besides_computing(fed)
    workers = list(step.lanes)
    for number, factors in enumerate(relative.tolist()):
        if number and together:
            before = tuple(f"{worker}/compute/{number - 1}" for worker in workers)
            yield Task(f"sync/{number}/start", after=before, kind="sync")
        for worker in workers:
            started = f"sync/{number}/start" if together else f"{worker}/compute/{number - 1}"
            needs = (*after[f"{worker}/compute/{number}"], *((started,) if number else ()))
            yield Task(f"{worker}/begin/{number}", after=needs, kind="begin")
        pulling = step.overlap and any(exchange.pull for _, _, exchange in step.exchanging())
        if pulling:
            yield from _pull_tasks(step, number)
        ends = []
        for worker, factor in zip(workers, factors, strict=True):
            turns = _Turns(step, number, worker, factor)
            yield from turns.tasks()
            ends.append(turns)
        exchanged = yield from _exchange_tasks(step, number, ends)
        for worker, factor, turns in zip(workers, factors, ends, strict=True):
            yield from _end_tasks(step, number, worker, factor=factor, after=[
                (turns.last[place], *exchanged.get(place, ())) for place in range(len(step.devices))
            ])  # fmt: skip


class _Turns:
    """Turns of one worker in one step."""

    def __init__(self, step: PlayedStep, number: int, worker: str, factor: float) -> None:
        self.step, self.number, self.factor = step, number, factor
        self.begin = f"{worker}/begin/{number}"
        self.lanes = step.lanes[worker]
        self.last = [self.begin] * len(step.devices)
        self.ready: dict[tuple[int, int], str] = {}
        """Bucket of a device -> piece that completes it."""

    def tasks(self) -> Iterator[Task]:
        """Yield all passes, each starting when the previous one has left the pipeline."""
        after: tuple[str, ...] = (self.begin,)
        for index in range(self.step.passes):
            if index and len(self.lanes) > 1:
                yield Task(f"{self.begin}/{index}", after=tuple(self.last), kind="begin")
                after = (f"{self.begin}/{index}",)
            elif index:
                after = (self.last[0],)
            names = self._names(index)
            pieces = self._pieces(index, names)
            yield from pipeline_schedule_tasks(
                self.step.orders,
                forward_s=[self.factor * sum(pieces_s) for pieces_s in self.step.forward_s],
                backward_s=[self.factor * sum(pieces_s) for pieces_s in self.step.backward_s],
                forward_hops=[replace(hop, duration_s=self.factor * hop.duration_s) for hop in self.step.forward_hops],
                backward_hops=[
                    replace(hop, duration_s=self.factor * hop.duration_s) for hop in self.step.backward_hops
                ],
                names=self.lanes,
                after=after,
                called=names,
                pieces=pieces,
                computing=self._computing,
            )
            self.last = [
                ending(names(lane, order[-1]), order[-1], pieces)
                for lane, order in zip(self.lanes, self.step.orders, strict=True)
            ]

    def _names(self, index: int) -> Callable[[str, Turn], str]:
        is_alone = {
            phase: self.step.passes == 1 and sum(turn.phase == phase for turn in self.step.orders[0]) == 1
            for phase in ("forward", "backward")
        }

        def name(lane: str, turn: Turn) -> str:
            place = "" if is_alone[turn.phase] else f"/{index}.{turn.chunk}.{turn.micro_batch}"
            return f"{lane}/{turn.phase}/{self.number}{place}"

        return name

    def _pieces(self, index: int, names: Callable[[str, Turn], str]) -> dict[Turn, list[Piece]]:
        """Pieces of turns, cut where buckets become ready or parameters are needed."""
        pieces_of = {}
        for place, device, exchange in self.step.exchanging():
            order, lane = self.step.orders[place], self.lanes[place]
            bucket = self.step.bucket(self.number, place)
            for chunk in {turn.chunk for turn in order}:
                of_phase = {
                    phase: [turn for turn in order if turn.chunk == chunk and turn.phase == phase]
                    for phase in ("forward", "backward")
                }
                if self.step.overlap and exchange.pull and not index:
                    wanted = {
                        bucket_: when for bucket_, (of_chunk, when) in enumerate(device.wanted) if of_chunk == chunk
                    }
                    turn = of_phase["forward"][0]
                    pieces_of[turn] = _forward_pieces(self.step.forward_s[chunk], wanted, bucket)
                if index == self.step.passes - 1 and of_phase["backward"]:
                    ready = {
                        bucket_: when for bucket_, (of_chunk, when) in enumerate(device.ready) if of_chunk == chunk
                    }
                    turn = of_phase["backward"][-1]
                    kernels_s, besides_s = self.step.backward_s[chunk]
                    kernels_s += self.step.joined_s[chunk] if self.step.joined_s else 0.0
                    pieces_of[turn] = _backward_pieces((kernels_s, besides_s), ready if self.step.overlap else {})
                    last_turn = names(lane, turn)
                    self.ready |= {(place, reduction): f"{last_turn}/{piece}" for piece, reduction in enumerate(ready)}
        return {
            turn: [replace(piece, seconds=self.factor * piece.seconds) for piece in pieces]
            for turn, pieces in pieces_of.items()
        }

    def _computing(self, lane: str, seconds: float) -> dict[str, Any]:
        """How a device computes: for a fixed time, or on a channel shared with library calls."""
        exchange = self.step.devices[self.lanes.index(lane)].exchange
        if exchange is None or not exchange.takes_units:
            return {"duration_s": seconds}
        return {"flow_bytes": seconds, "channels": (_units(lane),)}


def _forward_pieces(forward_s: tuple[float, float], wanted: Mapping[int, float], bucket: str) -> list[Piece]:
    """Return the first forward turn of a chunk, cut where parameters may still be missing."""
    kernels_s, besides_s = forward_s
    cuts = [*sorted({0.0, *wanted.values()}), kernels_s]
    pieces = [
        Piece(end - start, tuple(f"{bucket}{place}/pull" for place, when in wanted.items() if when == start))
        for start, end in pairwise(cuts)
    ]
    return [*pieces[:-1], replace(pieces[-1], seconds=pieces[-1].seconds + besides_s)]


def _backward_pieces(backward_s: tuple[float, float], ready: Mapping[int, float]) -> list[Piece]:
    """Return the last backward turn of a chunk, cut where buckets become ready."""
    kernels_s, besides_s = backward_s
    pieces = [Piece(max(0.0, end - start)) for start, end in pairwise((0.0, *ready.values(), kernels_s))]
    return [replace(pieces[0], seconds=pieces[0].seconds + besides_s), *pieces[1:]]


def _pull_tasks(step: PlayedStep, number: int) -> Iterator[Task]:
    """Yield messages with parameters, one bucket after another, starting with the last to become ready."""
    for place, device, exchange in step.exchanging():
        bucket = step.bucket(number, place)
        last = f"{bucket}pull"
        yield Task(last, after=tuple(f"{worker}/begin/{number}" for worker in step.lanes), kind="sync")
        for index in reversed(range(len(device.sizes_bytes))):
            name = f"{bucket}{index}/pull"
            yield from exchange.pulling(device.sizes_bytes[index], name=name, after=(last,))
            last = name


def _exchange_tasks(
    step: PlayedStep, number: int, turns: Sequence[_Turns]
) -> Generator[Task, None, dict[int, tuple[str, ...]]]:
    """Yield the exchange of each device's buckets, and return its last task by device place."""
    last_tasks = {}
    for place, device, exchange in step.exchanging():
        bucket, peers = step.bucket(number, place), step.peers(place)
        last = f"{bucket}ready"
        served = []
        followed: tuple[str, ...] = ()
        earlier: tuple[str, ...] = ()
        if not step.overlap:
            yield Task(last, after=tuple(worker.last[place] for worker in turns), kind="sync")
            earlier = (last,)
        for index, size_bytes in enumerate(device.sizes_bytes):
            name = f"{bucket}{index}"
            ready = earlier
            if step.overlap:
                ready = (f"{name}/ready",)
                yield Task(ready[0], after=(*(worker.ready[place, index] for worker in turns), *earlier), kind="sync")
            yield from exchange.gathered(size_bytes, name=name, after=ready, workers=peers)
            earlier = gathered = (name,)
            if (following := exchange.following) is not None:
                gathered, after = (f"{name}/copies",), (name, *followed)
                part_bytes, followed = following.share * size_bytes, gathered
                yield from following.exchange.gathered(part_bytes, name=gathered[0], after=after, workers=peers)
                earlier = gathered if following.in_turn else earlier
            yield from exchange.served(size_bytes, name=f"{name}/served", after=gathered)
            if not step.overlap:
                yield from exchange.pulling(size_bytes, name=f"{name}/pull", after=(f"{name}/served",))
                earlier = (f"{name}/pull",)
            served.append(f"{name}/served")
        if step.overlap:
            yield Task(f"{bucket}end", after=tuple(served), kind="sync")
            earlier = (f"{bucket}end",)
        last_tasks[place] = earlier
    return last_tasks


def _end_tasks(
    step: PlayedStep, number: int, worker: str, *, factor: float, after: Sequence[tuple[str, ...]]
) -> Iterator[Task]:
    """Yield the tasks that end a step on each device, and the end of the worker's step."""
    lanes = step.lanes[worker]
    ends = []
    for lane, device, earlier in zip(lanes, step.devices, after, strict=True):
        name = f"{worker}/compute/{number}" if len(lanes) == 1 else f"{lane}/update/{number}"
        seconds = factor * device.update_s + device.waits_s
        yield Task(name, resource=lane, duration_s=seconds, after=earlier, kind="update")
        ends.append(name)
    if len(lanes) > 1:
        yield Task(f"{worker}/compute/{number}", after=tuple(ends), kind="end")
