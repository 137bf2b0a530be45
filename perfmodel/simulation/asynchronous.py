"""Simulates asynchronous training: every step, push, update and pull of each worker, at random times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.input_pipeline import SharedCores
from perfmodel.errors import ArgumentError
from perfmodel.simulation.engine import simulate
from perfmodel.simulation.pipeline import cores_task, fed_besides_computing
from perfmodel.simulation.timeline import Task, Timeline
from perfmodel.sync.asynchronous_scheme import AsynchronousNumbers

BATCHES: Final = 20
"""Batches into which simulated time is cut to estimate the error of means. [1]"""

WARM_UP: Final = 0.1
"""Share of simulated time excluded because all workers begin together. [1]"""

_STATIONS: Final = ("push", "update", "pull")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedScheme:
    """Measured results of a simulated scheme, with standard errors from batch means."""

    step_s: float
    step_s_error: float
    mean_staleness: float
    server_utilisation: float
    timeline: Timeline


def play_asynchronous(numbers: AsynchronousNumbers, *, step_count: int, seed: int = 0) -> PlayedScheme:
    """Simulate workers with a parameter server, and measure what the closed forms predict.

    Notes
    -----
    Valid for: service times that are gamma distributed (exponential at a variation of 1), steps drawn from
    ``numbers.times``, all independent.

    Examples
    --------
    >>> numbers = AsynchronousNumbers(compute_s=8.2e-3, update_s=0.5e-3, worker_count=4)
    >>> played = play_asynchronous(numbers, step_count=400)
    >>> abs(played.step_s / (4 / 454.753) - 1) < 0.01, round(played.mean_staleness)
    (True, 3)
    """
    if step_count < 2 * BATCHES:
        raise ArgumentError("step_count", step_count, f"at least {2 * BATCHES}")
    tasks = tuple(asynchronous_tasks(numbers, step_count=step_count, seed=seed))
    timeline = simulate(tasks, channels={}, resources=server_resources(numbers))
    return _measured(numbers, timeline, step_count=step_count)


def server_resources(numbers: AsynchronousNumbers) -> Mapping[str, int]:
    """Parts of the server and of the links to it that visitors queue for, one unit each."""
    return dict.fromkeys(_parts(numbers).values(), 1)


def _parts(numbers: AsynchronousNumbers) -> dict[tuple[str, int, int], str]:
    """Name the part that a visitor queues for at a station of a shard, with its neighbours or with all."""
    stations = _STATIONS if numbers.each_part_queues else (_STATIONS[numbers.busiest_part],)
    sharers, visitors = int(numbers.sharers), int(numbers.visitors)
    return {
        (station, shard, visitor): f"{station}{shard}" + ("" if sharers == visitors else f"/{visitor // sharers}")
        for station in stations
        for shard in range(int(numbers.server_count))
        for visitor in range(visitors)
    }


def asynchronous_tasks(numbers: AsynchronousNumbers, *, step_count: int, seed: int = 0) -> Iterator[Task]:
    """Tasks of workers, or groups of them, that train with a parameter server.

    A step begins when the one before has ended. With a bound s, a worker that has pushed step i pulls and continues
    once all workers have pushed step i - s. A visitor visits the shards in turn and starts one shard later each time.
    """
    generator = np.random.default_rng(seed)
    group, visitors = int(numbers.group_size), int(numbers.visitors)
    draws = (step_count, visitors, group)
    relative = np.ones(draws) if numbers.times is None else _drawn(numbers, draws, generator)
    compute_s = np.broadcast_to(np.asarray(numbers.compute_s, dtype=float), (visitors,))
    parts = _parts(numbers)
    for step in range(step_count):
        for visitor in range(visitors):
            yield from _step(
                numbers, visitor, step, float(compute_s[visitor]) * relative[step, visitor], generator, parts
            )


def fed_asynchronous_tasks(
    fed: Iterable[Task],
    numbers: AsynchronousNumbers,
    *,
    workers: Sequence[str],
    cores: SharedCores | None = None,
    step_count: int,
    seed: int = 0,
) -> Iterator[Task]:
    """Tasks of workers that read their own input, which ``cores`` decode beside the step, and train with a server."""
    after = yield from fed_besides_computing(fed)
    group = int(numbers.group_size)
    for task in asynchronous_tasks(numbers, step_count=step_count, seed=seed):
        visitor, kind, step, *place = task.name.split("/")
        if kind == "compute":
            worker = workers[int(visitor) * group + int(place[0])]
            needs = (*task.after, *after[f"{worker}/compute/{step}"])
            if cores is not None:
                yield cores_task(cores, worker, int(step), computing_s=task.duration_s)
                needs = (*needs, f"{worker}/cores/{int(step) - 1}") if int(step) else needs
            yield replace(task, resource=worker, after=needs)
        else:
            yield task
        if kind == "end":
            for worker in workers[int(visitor) * group : (int(visitor) + 1) * group]:
                yield Task(f"{worker}/compute/{step}", after=(task.name,), kind="end")


def _drawn(
    numbers: AsynchronousNumbers, draws: tuple[int, int, int], generator: np.random.Generator
) -> NDArray[np.float64]:
    assert numbers.times is not None
    return numbers.times.draw(int(np.prod(draws)), generator=generator).reshape(draws)


def _step(
    numbers: AsynchronousNumbers,
    visitor: int,
    step: int,
    compute_s: NDArray[np.float64],
    generator: np.random.Generator,
    parts: Mapping[tuple[str, int, int], str],
) -> Iterator[Task]:
    """Yield the tasks of one step of a visitor, in sequence."""
    before: tuple[str, ...] = (f"{visitor}/end/{step - 1}",) if step else ()
    computed = tuple(f"{visitor}/compute/{step}/{worker}" for worker in range(len(compute_s)))
    for name, seconds in zip(computed, compute_s, strict=True):
        yield Task(name, duration_s=float(seconds), after=before, kind="compute")
    last = f"{visitor}/group/{step}"
    yield Task(last, duration_s=float(numbers.group_sync_s), after=computed, kind="sync")
    pushes, pulls = ((step + 1) % int(period) == 0 for period in (numbers.push_period, numbers.pull_period))
    visits = [
        ("push", pushes, numbers.push_latency_s, numbers.push_s),
        ("update", pushes, 0.0, numbers.update_s + numbers.compensation_s),
        ("pull", pulls, numbers.pull_latency_s, numbers.pull_s),
    ]
    for station, is_visited, latency_s, service_s in visits:
        if station == "pull" and numbers.staleness_bound is not None:
            yield Task(f"{visitor}/pushed/{step}", after=(last,))
            behind = step - int(numbers.staleness_bound)
            awaited = (f"{other}/pushed/{behind}" for other in range(int(numbers.visitors)) if behind >= 0)
            last = f"{visitor}/wait/{step}"
            yield Task(last, after=(f"{visitor}/pushed/{step}", *awaited))
        if is_visited and latency_s:
            yield Task(
                f"{visitor}/way to {station}/{step}", duration_s=float(latency_s), after=(last,), kind="transfer"
            )
            last = f"{visitor}/way to {station}/{step}"
        if is_visited:
            for place in range(int(numbers.server_count)):
                shard = (visitor + step + place) % int(numbers.server_count)
                name = f"{visitor}/{station}/{step}/{place}"
                seconds = _service(float(service_s) / int(numbers.server_count), numbers.service_variation, generator)
                part = parts.get((station, shard, visitor))
                yield Task(name, resource=part, duration_s=seconds, after=(last,), kind=station)
                last = name
    yield Task(f"{visitor}/end/{step}", after=(last,), kind="end")


def _service(mean_s: float, variation: float, generator: np.random.Generator) -> float:
    if not mean_s or not variation:
        return mean_s
    shape = variation**-2
    return mean_s * float(generator.standard_gamma(shape)) / shape


def _measured(numbers: AsynchronousNumbers, timeline: Timeline, *, step_count: int) -> PlayedScheme:
    visitors = int(numbers.visitors)
    ends = _ends(timeline, visitors, step_count)
    first_s, last_s = WARM_UP * ends[:, -1].min(), ends[:, -1].min()
    edges = np.linspace(first_s, last_s, BATCHES + 1)
    finished = np.histogram(ends, bins=edges)[0]
    steps_s = visitors * np.diff(edges) / finished
    stale, when = _staleness(numbers, timeline, visitors, step_count)
    kept = (when > first_s) & (when < last_s)
    busy = [timeline.utilisation(name) for name in timeline.resources]
    step_s = visitors * (last_s - first_s) / finished.sum()
    return PlayedScheme(
        step_s=float(step_s),
        step_s_error=float(steps_s.std(ddof=1) / np.sqrt(BATCHES)),
        mean_staleness=float(stale[kept].mean()),
        server_utilisation=float(max(busy)),
        timeline=timeline,
    )


def _ends(timeline: Timeline, visitors: int, step_count: int) -> NDArray[np.float64]:
    """End of each step of each visitor. [s]"""
    ends = [span.end_s for span in timeline.spans if span.kind == "end"]  # spans are in the order of the tasks
    return np.array(ends).reshape(step_count, visitors).T


def _staleness(
    numbers: AsynchronousNumbers, timeline: Timeline, visitors: int, step_count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the updates by others that each step missed [1], and the time at which it was applied [s]."""
    applied_steps = np.arange(int(numbers.push_period) - 1, step_count, int(numbers.push_period))
    pulled_steps = np.arange(int(numbers.pull_period) - 1, step_count, int(numbers.pull_period))
    last_place = int(numbers.server_count) - 1
    spans = {span.task: span for span in timeline.spans if span.kind in ("update", "pull")}
    applied = np.array(
        [[spans[f"{v}/update/{step}/{last_place}"].end_s for step in applied_steps] for v in range(visitors)]
    )
    # the server copies the parameters it sends after applying the gradient that came with the request
    pulled = np.array(
        [
            [
                spans[f"{v}/update/{step}/{last_place}"].end_s
                if (step + 1) % int(numbers.push_period) == 0 and numbers.staleness_bound is None
                else spans[f"{v}/pull/{step}/0"].start_s
                for step in pulled_steps
            ]
            for v in range(visitors)
        ]
    )
    all_updates = np.sort(applied.ravel())
    # a step's gradient uses parameters of the last pull before it and is applied with the next push
    steps = np.arange(int(numbers.pull_period), applied_steps[-1] + 1)
    push = np.searchsorted(applied_steps, steps)
    pull = np.searchsorted(pulled_steps, steps) - 1
    counts, when = [], []
    for visitor in range(visitors):
        of_all = np.searchsorted(all_updates, applied[visitor][push]) - np.searchsorted(
            all_updates, pulled[visitor][pull]
        )
        of_itself = push - np.searchsorted(
            applied[visitor], pulled[visitor][pull]
        )  # the update at that moment cancels out
        counts.append(of_all - of_itself)
        when.append(applied[visitor][push])
    return np.concatenate(counts).astype(float), np.concatenate(when)
