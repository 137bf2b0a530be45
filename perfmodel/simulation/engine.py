"""The event loop: a heap holds the next ends of waits, work and flows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from itertools import islice
from typing import Final

import numpy as np

from perfmodel.cost.transfer import max_min_rates
from perfmodel.errors import ArgumentError, TaskError, UnknownNameError, check_known, nearest_match
from perfmodel.presentation.progress import progress_bar
from perfmodel.simulation.timeline import Span, Task, Timeline

_TIMED = 0
"""Version of events that do not belong to a flow; versions of flows count from one."""


def simulate(tasks: Iterable[Task], *, channels: Mapping[str, float], resources: Mapping[str, int]) -> Timeline:
    """Run tasks, and record when each starts and ends.

    A task starts once the tasks it comes after have ended and a unit of its resource is free. Units go to the task that
    has waited longest, then to the one listed first. Flows share channels max-min fairly; a rate changes only when a
    flow begins or ends on a channel connected to it by shared channels.

    Notes
    -----
    Valid for: flows much longer than a round trip; tasks that hold resources from start to end. Ignores: preemption.
    Times are sums of durations and quotients of bytes and rates, never of small time steps, so nothing drifts.

    Examples
    --------
    Two copies share a root of 10 B/s; once the second, shorter one ends, the first has the root to itself:

    >>> copies = [Task("a", flow_bytes=100, channels=("root",)), Task("b", flow_bytes=50, channels=("root",))]
    >>> timeline = simulate(copies, channels={"root": 10.0}, resources={})
    >>> [span.end_s for span in timeline.spans]
    [15.0, 10.0]
    """
    listed = _listed(tasks)
    _check_capacities(channels, resources)
    _check_names(listed, channels, resources)
    return _Run(listed, channels, resources).play()


MOST_TASKS: Final = 1_000_000
"""Tasks that are played, in about a minute and 2 GB. [1]"""
MOST_COUNTED: Final = 2_000_000
"""Tasks up to which those of a refused simulation are counted one by one, in some ten seconds. [1]"""


def _listed(tasks: Iterable[Task]) -> tuple[Task, ...]:
    """Return all tasks; raise if playing them would take minutes, before they fill the memory."""
    rest = iter(tasks)
    listed = tuple(islice(rest, MOST_TASKS))
    beyond = sum(1 for _ in islice(rest, MOST_COUNTED - len(listed)))
    if beyond:
        count = len(listed) + beyond
        raise beyond_limit(count, "at least " if count == MOST_COUNTED else "")
    return listed


def beyond_limit(count: int, how_exact: str = "") -> ArgumentError:
    """Return the error of a simulation that would take minutes, with its number of events and how exact that is."""
    allowed = f"at most {MOST_TASKS:,} events; fewer steps, workers, layers or messages (bucket_bytes=) need fewer"
    return ArgumentError("tasks", f"{how_exact}{count:,}", allowed)


def _check_capacities(channels: Mapping[str, float], resources: Mapping[str, int]) -> None:
    for name, capacity in channels.items():
        if not 0 < capacity < math.inf:
            raise ArgumentError(argument=f"channels[{name!r}]", given=capacity, allowed="a finite number above 0 B/s")
    for name, units in resources.items():
        if not units >= 1 or units % 1:
            raise ArgumentError(argument=f"resources[{name!r}]", given=units, allowed="a whole number >= 1")
    both = sorted(set(channels) & set(resources))
    if both:
        raise ArgumentError(argument="resources", given=both[0], allowed="names that differ from those of channels")


def _check_names(tasks: tuple[Task, ...], channels: Mapping[str, float], resources: Mapping[str, int]) -> None:
    names = {task.name for task in tasks}
    if len(names) < len(tasks):
        twice, _ = Counter(task.name for task in tasks).most_common(1)[0]
        raise TaskError(twice, "must be the name of one task only")
    for task in tasks:
        if task.resource is not None and task.resource not in resources:
            raise UnknownNameError(kind=f"resource of task {task.name!r}", name=task.resource, known=resources)
        for channel in task.channels:
            check_known(f"channel of task {task.name!r}", channel, channels)
        for earlier in task.after:
            if earlier not in names:
                nearest = nearest_match(earlier, names)
                hint = f"; did you mean {nearest!r}?" if nearest else ""
                raise TaskError(task.name, f"must come after existing tasks; there is no {earlier!r}{hint}")


PATIENCE_S: Final = 2.0
"""Time after which a long simulation shows on a terminal how far it is. [s]"""
TOLD_TASKS: Final = 5000
"""Tasks between two looks at the progress. [1]"""


class _Run:
    """State of one simulation. Tasks are numbered; lists over tasks have one entry for each."""

    def __init__(self, tasks: tuple[Task, ...], channels: Mapping[str, float], resources: Mapping[str, int]) -> None:
        self.tasks, self.channels, self.resources = tasks, dict(channels), dict(resources)
        place = {task.name: index for index, task in enumerate(tasks)}
        self.missing = [len(task.after) for task in tasks]
        self.followers: list[list[int]] = [[] for _ in tasks]
        for index, task in enumerate(tasks):
            for earlier in task.after:
                self.followers[place[earlier]].append(index)
        self.free = dict(resources)
        self.queues: dict[str, list[tuple[float, int]]] = {name: [] for name in resources}
        self.shared = SharedChannels(channels)
        self.start_s, self.flow_start_s, self.end_s = ([math.nan] * len(tasks) for _ in range(3))
        self.heap: list[tuple[float, int, int]] = []
        self.event_count = 0

    def play(self) -> Timeline:
        """Process one moment after another until no events are left."""
        heap, shared = self.heap, self.shared
        self._begin([index for index, count in enumerate(self.missing) if not count], freed={}, now_s=0.0)
        ended_count, told_count = 0, 0
        with progress_bar("playing tasks", shown=None, patience_s=PATIENCE_S, vanishes=True) as report_progress:
            while heap:
                now_s = heap[0][0]
                ended = self._events_of(now_s)
                ended_count += len(ended)
                ready: list[int] = []
                freed: dict[str, None] = {}
                for index in ended:
                    self._end(index, now_s, ready=ready, freed=freed)
                for ending in shared.endings(now_s):
                    heappush(heap, ending)
                ready.sort()
                self._begin(ready, freed=freed, now_s=now_s)
                if ended_count - told_count >= TOLD_TASKS:
                    told_count = ended_count
                    report_progress(ended_count, len(self.tasks))
        if ended_count < len(self.tasks):
            raise self._circle()
        return self._timeline()

    def _events_of(self, now_s: float) -> list[int]:
        """Take the events of one moment off the heap, begin flows that are due, and return the tasks that end."""
        heap, tasks, shared = self.heap, self.tasks, self.shared
        ended = []
        while heap and heap[0][0] == now_s:
            _, index, version = heappop(heap)
            if version != _TIMED:
                if not shared.ends(index, version):
                    continue  # its rate has changed since, and another entry holds the new end
                ended.append(index)
            elif tasks[index].flow_bytes:
                self.flow_start_s[index] = now_s
                shared.add(index, tasks[index].channels, flow_bytes=tasks[index].flow_bytes, now_s=now_s)
            else:
                self.flow_start_s[index] = now_s
                ended.append(index)
            self.event_count += 1
        return ended

    def _end(self, index: int, now_s: float, *, ready: list[int], freed: dict[str, None]) -> None:
        """End a task: free its unit, and find the tasks that waited only for it."""
        self.end_s[index] = now_s
        resource = self.tasks[index].resource
        if resource is not None:
            self.free[resource] += 1
            freed[resource] = None
        missing = self.missing
        for follower in self.followers[index]:
            missing[follower] -= 1
            if not missing[follower]:
                ready.append(follower)

    def _begin(self, ready: list[int], *, freed: dict[str, None], now_s: float) -> None:
        """Start or queue the tasks that are ready, then give free units to those that waited longest."""
        asked = freed
        for index in ready:
            resource = self.tasks[index].resource
            if resource is None:
                self._start(index, now_s)
            else:
                heappush(self.queues[resource], (now_s, index))
                asked[resource] = None
        for resource in asked:
            queue = self.queues[resource]
            while queue and self.free[resource]:
                self.free[resource] -= 1
                self._start(heappop(queue)[1], now_s)

    def _start(self, index: int, now_s: float) -> None:
        task = self.tasks[index]
        self.start_s[index] = now_s
        heappush(self.heap, (now_s + (task.duration_s + task.latency_s), index, _TIMED))

    def _circle(self) -> TaskError:
        """Return the names of tasks that wait for each other in a circle."""
        left = {
            task.name: list(task.after) for task, end_s in zip(self.tasks, self.end_s, strict=True) if math.isnan(end_s)
        }
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            circle = list(reversed(error.args[1]))
            return TaskError(circle[0], f"waits for itself: {' after '.join(map(repr, circle))}")
        msg = "tasks are left over, but none waits for itself"
        raise AssertionError(msg)

    def _timeline(self) -> Timeline:
        spans = tuple(
            Span(
                task=task.name,
                kind=task.kind,
                start_s=start_s,
                flow_start_s=flow_start_s,
                end_s=end_s,
                resource=task.resource,
                channels=task.channels if task.flow_bytes else (),
                flow_bytes=task.flow_bytes,
            )
            for task, start_s, flow_start_s, end_s in zip(
                self.tasks, self.start_s, self.flow_start_s, self.end_s, strict=True
            )
        )
        return Timeline(
            spans=spans,
            makespan_s=max(self.end_s, default=0.0),
            event_count=self.event_count,
            channels=self.channels,
            resources=self.resources,
        )


MOST_KNOWN_RATES: Final = 4096
"""Sets of flows whose rates are cached; random flows rarely repeat and would fill the memory. [1]"""


class _Flow:
    """Bytes of one task in transit; every change of rate makes a new version."""

    __slots__ = ("announced", "end_s", "index", "left_bytes", "rate", "since_s", "version")

    def __init__(self, index: int, flow_bytes: float, now_s: float) -> None:
        self.index, self.left_bytes, self.since_s = index, flow_bytes, now_s
        self.rate, self.end_s = 0.0, np.inf
        self.version = self.announced = 0


class SharedChannels:
    """Flows over channels; a rate changes only when a flow begins or ends on a connected channel.

    All flows on a route have the same rate, so rates are computed per route, once per set of connected routes.
    """

    def __init__(self, capacity: Mapping[str, float]) -> None:
        self._capacity = np.array(list(capacity.values()), dtype=float)
        self._places = {name: place for place, name in enumerate(capacity)}
        self._route_ids: dict[tuple[str, ...], int] = {}
        self._routes: list[dict[int, int]] = []
        self._uses = np.zeros((0, len(capacity)))
        self._flows: list[dict[int, _Flow]] = []
        self._route_of: dict[int, int] = {}
        self._busy_routes: list[dict[int, None]] = [{} for _ in capacity]
        self._touched: dict[int, None] = {}
        self._known_rates: dict[tuple[int, ...], list[float]] = {}

    def add(self, index: int, channels: tuple[str, ...], *, flow_bytes: float, now_s: float) -> None:
        """Begin a flow; ``endings`` yields its end."""
        route = self._route_ids.get(channels)
        if route is None:
            route = self._route_ids[channels] = len(self._routes)
            self._routes.append(Counter(self._places[name] for name in channels))
            self._flows.append({})
            if route == len(self._uses):  # capacity doubles
                self._uses = np.concatenate([self._uses, np.zeros((max(route, 16), len(self._capacity)))])
            self._uses[route, list(self._routes[route])] = list(self._routes[route].values())
        self._route_of[index] = route
        self._flows[route][index] = _Flow(index, flow_bytes, now_s)
        for place in self._routes[route]:
            self._busy_routes[place][route] = None
            self._touched[place] = None

    def ends(self, index: int, version: int) -> bool:
        """End the flow of a task, unless its rate has changed since this version was announced."""
        route = self._route_of.get(index, -1)
        if route < 0 or self._flows[route][index].version != version:
            return False
        del self._route_of[index]
        del self._flows[route][index]
        for place in self._routes[route]:
            if not self._flows[route]:
                del self._busy_routes[place][route]
            self._touched[place] = None
        return True

    def endings(self, now_s: float) -> list[tuple[float, int, int]]:
        """Share channels again among flows connected to those that began or ended since the last call.

        Among connected flows, only the first to end are announced, because their end changes the others' rates.
        """
        endings: list[tuple[float, int, int]] = []
        visited: set[int] = set()
        for place in self._touched:
            if place in visited:
                continue
            routes = self._connected_routes(place, visited)
            first_s, first = np.inf, []
            for route, rate in zip(routes, self._rates(routes), strict=True):
                for flow in self._flows[route].values():
                    if flow.rate != rate:
                        left_bytes = flow.left_bytes - flow.rate * (now_s - flow.since_s)
                        flow.left_bytes = left_bytes if left_bytes > 0 else 0.0
                        flow.since_s, flow.rate = now_s, rate
                        flow.end_s = now_s + flow.left_bytes / rate
                        flow.version += 1
                    if flow.end_s < first_s:
                        first_s, first = flow.end_s, [flow]
                    elif flow.end_s == first_s:
                        first.append(flow)
            for flow in first:
                if flow.announced != flow.version:
                    flow.announced = flow.version
                    endings.append((flow.end_s, flow.index, flow.version))
        self._touched.clear()
        return endings

    def _connected_routes(self, place: int, visited: set[int]) -> list[int]:
        """Routes in use connected to a channel through shared channels, which are marked as visited."""
        routes: set[int] = set()
        to_visit = [place]
        visited.add(place)
        while to_visit:
            for route in self._busy_routes[to_visit.pop()]:
                if route not in routes:
                    routes.add(route)
                    new = [other for other in self._routes[route] if other not in visited]
                    visited.update(new)
                    to_visit += new
        return sorted(routes)

    def _rates(self, routes: list[int]) -> list[float]:
        """Rate of one flow on each route. [B/s]"""
        if not routes:
            return []
        flow_counts = [len(self._flows[route]) for route in routes]
        key = (*routes, *flow_counts)
        rates = self._known_rates.get(key)
        if rates is None:
            uses = self._uses[routes] * np.array(flow_counts)[:, None]
            used = uses.any(axis=0)
            rates = max_min_rates(capacity=self._capacity[used], uses=uses[:, used]).tolist()
            if len(self._known_rates) == MOST_KNOWN_RATES:
                self._known_rates.clear()
            self._known_rates[key] = rates
        return rates
