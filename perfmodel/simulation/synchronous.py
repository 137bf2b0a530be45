"""Tasks of workers that agree in every step: what each computes, and the messages between them, bucket by bucket."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from perfmodel.simulation.collectives import collective_tasks
from perfmodel.simulation.tasks import Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from perfmodel.sync.library import LibraryCollective
    from perfmodel.sync.placed import Placed


@dataclass(frozen=True, kw_only=True)
class PlayedExchange:
    """How workers agree on the sum of one bucket.

    Parameters
    ----------
    gather : Placed or LibraryCollective
        Messages in which gradients come together: those that a library chooses at a bucket's size; where its calls slow
        computing down, one call that lasts as long as its time says. [-]
    spread : Placed or None
        Messages in which parameters come back; None where the first ones leave the sum with everybody. [-]
    server_s_per_byte : float
        Time that each server takes between both. [s/B]
    slowdown : float
        Share of a device that a library's call keeps from computing, at most a half. [1]
    """

    gather: Placed | LibraryCollective
    spread: Placed | None = None
    server_s_per_byte: float = 0.0
    slowdown: float = 0.0

    @cached_property
    def resources(self) -> Mapping[str, int]:
        """What works on a sum besides the workers, a unit each."""
        return {f"{name} server": 1 for name in self.gather.servers} if self.server_s_per_byte else {}

    def channels(self, workers: Sequence[str]) -> Mapping[str, float]:
        """Return what computing and calls share, device by device, and what calls get of it. [s/s]"""
        if not self.slowdown:
            return {}
        return dict.fromkeys(map(_units, workers), 1.0) | dict.fromkeys(map(_units_of_calls, workers), self.slowdown)

    def gathered(
        self, size_bytes: float, *, name: str, after: tuple[str, ...], workers: Sequence[str]
    ) -> Iterator[Task]:
        """Yield the messages of a bucket among workers; the last task is ``name``."""
        if self.slowdown:
            yield from self._beside_computing(size_bytes, name=name, after=after, workers=workers)
            return
        call = self.gather.call(size_bytes)
        if call.launch_s:
            yield Task(f"{name}/launch", duration_s=call.launch_s, after=after, kind="launch")
            after = (f"{name}/launch",)
        yield from collective_tasks(call.placed, call.wire_bytes, name=name, after=after)

    def _beside_computing(
        self, size_bytes: float, *, name: str, after: tuple[str, ...], workers: Sequence[str]
    ) -> Iterator[Task]:
        """Yield a call as work on a share of each device: that is at most a half, and computing gets what is left."""
        work = self.slowdown * float(self.gather.time(size_bytes))
        parts = tuple(f"{name} on {worker}" for worker in workers)
        for part, worker in zip(parts, workers, strict=True):
            shared = (_units(worker), _units_of_calls(worker))
            yield Task(part, flow_bytes=work, channels=shared, after=after, kind="message")
        yield Task(name, after=parts, kind="sync")

    def served(self, size_bytes: float, *, name: str, after: tuple[str, ...]) -> Iterator[Task]:
        """Yield what servers do with it; the last task is ``name``."""
        parts = {f"{name} at {server}": server for server in self.resources}
        for part, server in parts.items():
            seconds = self.server_s_per_byte * size_bytes
            yield Task(part, resource=server, duration_s=seconds, after=after, kind="serve")
        yield Task(name, after=tuple(parts) or after, kind="sync")

    def spread_again(self, size_bytes: float, *, name: str, after: tuple[str, ...]) -> Iterator[Task]:
        """Yield the messages in which parameters come back; the last task is ``name``."""
        if self.spread is None:
            yield Task(name, after=after, kind="sync")
        else:
            yield from collective_tasks(self.spread, size_bytes, name=name, after=after)


def _units(worker: str) -> str:
    return f"{worker} units"


def _units_of_calls(worker: str) -> str:
    return f"{worker} units of calls"


@dataclass(frozen=True, kw_only=True)
class SynchronousStep:
    """A step of workers that are alike.

    Parameters
    ----------
    forward_s, backward_s, rest_s : float
        The two phases, and what follows them: the update, and what the host does once in a step. [s]
    sizes_bytes : sequence of float
        Buckets in the order in which they become ready. [B]
    ready_s : sequence of float
        When each is ready in the backward phase. [s]
    wanted_s : sequence of float
        When the forward phase first wants the parameters of each; all at once where they come in no set order. [s]
    overlap : bool
        Whether a bucket is exchanged while others are computed, or all after the backward phase. [-]
    exchange : PlayedExchange
        What happens with each. [-]
    """

    forward_s: float
    backward_s: float
    rest_s: float
    sizes_bytes: Sequence[float]
    ready_s: Sequence[float]
    wanted_s: Sequence[float]
    overlap: bool
    exchange: PlayedExchange

    @cached_property
    def pulls(self) -> bool:
        """Whether parameters come back while the next forward phase runs."""
        return self.overlap and self.exchange.spread is not None

    @cached_property
    def forward_pieces(self) -> tuple[tuple[float, tuple[int, ...]], ...]:
        """Length of each piece of the forward phase [s], and the buckets that must be back before it."""
        wanted = self.wanted_s if self.pulls else ()
        cuts = sorted({0.0, *wanted})
        return tuple(
            (end - start, tuple(place for place, when in enumerate(wanted) if when == start))
            for start, end in pairwise((*cuts, self.forward_s))
        )

    @cached_property
    def backward_pieces(self) -> tuple[float, ...]:
        """Length of each piece of the backward phase: up to each bucket's readiness, and what is left. [s]"""
        cuts = self.ready_s if self.overlap else ()
        return tuple(end - start for start, end in pairwise((0.0, *cuts, self.backward_s)))


def synchronous_tasks(
    fed: Iterable[Task], step: SynchronousStep, *, workers: Sequence[str], relative: NDArray[np.float64]
) -> Iterator[Task]:
    """Tasks of workers that read on their own and agree in every step.

    Parameters
    ----------
    fed : iterable of Task
        What brings their mini-batches (``input_pipeline_tasks``), with a task ``worker/compute/step`` of each step. [-]
    step : SynchronousStep
        What takes the place of these. [-]
    workers : sequence of str
        Names. [-]
    relative : ndarray, shape (steps, workers)
        Time of each worker's computing in each step, relative to that in ``step``. [1]

    Yields
    ------
    Task
        ``worker/compute/step`` ends a step of a worker; those of messages begin with ``sync/step/bucket``.

    Notes
    -----
    A step begins for all once it has ended for all. A bucket leaves when all have it ready and the one before is
    through. Servers send parameters back when workers begin the next step, those of the first layers first; in the
    first step workers fetch what they begin with.
    """
    after: dict[str, tuple[str, ...]] = {}
    for task in fed:
        if task.kind == "compute":
            after[task.name] = task.after
        else:
            yield task
    for number, factors in enumerate(relative.tolist()):
        started: tuple[str, ...] = ()
        if number:
            started = (f"sync/{number}/start",)
            yield Task(started[0], after=tuple(f"{each}/compute/{number - 1}" for each in workers), kind="sync")
        for worker in workers:
            yield Task(f"{worker}/begin/{number}", after=(*after[f"{worker}/compute/{number}"], *started), kind="begin")
        if step.pulls:
            yield from _pulled(step, number, workers)
        for worker, factor in zip(workers, factors, strict=True):
            yield from _computed(step, number, worker, factor)
        last = yield from (_overlapped if step.overlap else _afterwards)(step, number, workers)
        for worker, factor in zip(workers, factors, strict=True):
            yield Task(
                f"{worker}/compute/{number}",
                resource=worker,
                duration_s=factor * step.rest_s,
                after=(_piece(worker, number, len(step.backward_pieces) - 1), last),
                kind="update",
            )


def _piece(worker: str, number: int, place: int) -> str:
    return f"{worker}/backward/{number}/{place}"


def _pulled(step: SynchronousStep, number: int, workers: Sequence[str]) -> Iterator[Task]:
    """Yield messages with parameters, one bucket after the other, the last that was ready first."""
    last = f"sync/{number}/pull"
    yield Task(last, after=tuple(f"{worker}/begin/{number}" for worker in workers), kind="sync")
    for place in reversed(range(len(step.sizes_bytes))):
        name = f"sync/{number}/{place}/pull"
        yield from step.exchange.spread_again(step.sizes_bytes[place], name=name, after=(last,))
        last = name


def _computed(step: SynchronousStep, number: int, worker: str, factor: float) -> Iterator[Task]:
    """Yield the two phases of a worker in pieces."""
    last = f"{worker}/begin/{number}"
    for place, (seconds, buckets) in enumerate(step.forward_pieces):
        name = f"{worker}/forward/{number}/{place}"
        pulls = tuple(f"sync/{number}/{bucket}/pull" for bucket in buckets)
        yield Task(name, resource=worker, duration_s=factor * seconds, after=(last, *pulls), kind="forward")
        last = name
    for place, seconds in enumerate(step.backward_pieces):
        name = _piece(worker, number, place)
        how: dict[str, Any] = {"duration_s": factor * seconds}
        if step.exchange.slowdown:
            how = {"flow_bytes": factor * seconds, "channels": (_units(worker),)}  # shared with calls of the library
        yield Task(name, resource=worker, after=(last,), kind="backward", **how)
        last = name


def _overlapped(step: SynchronousStep, number: int, workers: Sequence[str]) -> Generator[Task, None, str]:
    """Yield the exchange of buckets as they become ready, and return the task that ends it."""
    earlier: tuple[str, ...] = ()
    served = []
    for place, size_bytes in enumerate(step.sizes_bytes):
        name = f"sync/{number}/{place}"
        yield Task(f"{name}/ready", after=(*(_piece(each, number, place) for each in workers), *earlier), kind="sync")
        yield from step.exchange.gathered(size_bytes, name=name, after=(f"{name}/ready",), workers=workers)
        yield from step.exchange.served(size_bytes, name=f"{name}/served", after=(name,))
        earlier = (name,)
        served.append(f"{name}/served")
    last = f"sync/{number}"
    yield Task(last, after=tuple(served), kind="sync")
    return last


def _afterwards(step: SynchronousStep, number: int, workers: Sequence[str]) -> Generator[Task, None, str]:
    """Yield the exchange of all buckets after the backward phase, and return the task that ends it."""
    last = f"sync/{number}/ready"
    yield Task(last, after=tuple(_piece(each, number, 0) for each in workers), kind="sync")
    for place, size_bytes in enumerate(step.sizes_bytes):
        name = f"sync/{number}/{place}"
        yield from step.exchange.gathered(size_bytes, name=name, after=(last,), workers=workers)
        yield from step.exchange.served(size_bytes, name=f"{name}/served", after=(name,))
        yield from step.exchange.spread_again(size_bytes, name=f"{name}/pull", after=(f"{name}/served",))
        last = f"{name}/pull"
    return last
