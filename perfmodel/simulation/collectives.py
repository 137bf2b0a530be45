"""Tasks of a collective algorithm on a topology: each rank waits for what it receives before it goes on."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from perfmodel.simulation.engine import simulate
from perfmodel.simulation.timeline import Task
from perfmodel.sync.trees import two_trees

if TYPE_CHECKING:
    from perfmodel.hardware.topology import Route
    from perfmodel.simulation.timeline import Timeline
    from perfmodel.sync.placed import Placed, PlacedRound

MOST_CHUNKS: Final = 64
"""Chunks that a pipelined algorithm is played with at most: each is a task on every edge. [1]"""


def collective_tasks(
    placed: Placed, size_bytes: float, *, name: str = "collective", after: tuple[str, ...] = ()
) -> tuple[Task, ...]:
    """Return what a collective does, as tasks.

    Parameters
    ----------
    placed : Placed
        The algorithm on its devices. [-]
    size_bytes : float
        Bytes, n, as the algorithm counts them. [B]
    name : str
        First part of the names of its tasks; the last task has this name alone. [-]
    after : tuple of str
        Tasks that must have ended before. [-]

    Returns
    -------
    tuple of Task
        Messages, additions, and one at the end that comes after all of them. [-]

    Notes
    -----
    Valid for: ranks of which each takes part in one round at a time. A message starts once its source and its sink have
    done with the round before; the additions of a pipelined algorithm come last. Ignores: progress of other ranks that
    a library's barriers may hold up.
    """
    if placed.fill_rounds:
        tasks = _Pipeline(placed, size_bytes, name=name, after=after).tasks()
        added_s = placed.reduced_share * size_bytes * placed.reduce_s_per_byte
    else:
        tasks = _rounds(placed, size_bytes, name=name, after=after)
        added_s = 0.0
    followed = {earlier for task in tasks for earlier in task.after}
    last = tuple(task.name for task in tasks if task.name not in followed) or after
    return (*tasks, Task(name, duration_s=added_s, after=last, kind="sync"))


def play_collective(placed: Placed, size_bytes: float) -> Timeline:
    """Play a collective by itself.

    Parameters
    ----------
    placed : Placed
        The algorithm on its devices. [-]
    size_bytes : float
        Bytes, n, as the algorithm counts them. [B]

    Returns
    -------
    Timeline
        With a span for each message. [-]

    Examples
    --------
    >>> from perfmodel.hardware.catalogue import load_system
    >>> from perfmodel.sync.collectives import collective
    >>> from perfmodel.sync.placed import place
    >>> topology = load_system("dgx_a100").topology
    >>> ring = place(collective("ring_all_reduce"), topology, topology.devices())
    >>> abs(play_collective(ring, 1e8).makespan_s / ring.time(1e8) - 1) < 1e-9
    True
    """
    channels = {
        channel.name: channel.capacity_bytes_per_s
        for each in placed.rounds
        for route in each.routes
        for channel in route.channels
    }
    return simulate(collective_tasks(placed, size_bytes), channels=channels, resources={})


def _rounds(placed: Placed, size_bytes: float, *, name: str, after: tuple[str, ...]) -> list[Task]:
    ready: dict[int, tuple[str, ...]] = defaultdict(lambda: after)
    tasks: list[Task] = []
    number = 0
    for each in placed.rounds:
        for _ in range(each.repeat):
            tasks += _one_round(each, size_bytes, placed.reduce_s_per_byte, name=f"{name}/{number}", ready=ready)
            number += 1
    return tasks


def _one_round(
    each: PlacedRound, size_bytes: float, reduce_s_per_byte: float, *, name: str, ready: dict[int, tuple[str, ...]]
) -> list[Task]:
    tasks: list[Task] = []
    done: dict[int, list[str]] = defaultdict(list)
    received: dict[int, float] = defaultdict(float)
    seen: dict[str, int] = defaultdict(int)
    for message, route in zip(each.messages, each.routes, strict=True):
        label = f"{name}/{message.source}>{message.sink}"
        seen[label] += 1
        label += f" ({seen[label]})" if seen[label] > 1 else ""  # two workers' ring is the same both ways
        before = tuple(dict.fromkeys((*ready[message.source], *ready[message.sink])))
        tasks.append(_message(label, route, message.share * size_bytes, after=before))
        received[message.sink] += message.share
        for rank in (message.source, message.sink):
            done[rank].append(label)
    for rank, names in done.items():
        ready[rank] = tuple(names)
        added_s = received[rank] * size_bytes * reduce_s_per_byte if each.reduced_share else 0.0
        if added_s:
            tasks.append(Task(f"{name}/add{rank}", duration_s=added_s, after=tuple(names), kind="add"))
            ready[rank] = (f"{name}/add{rank}",)
    return tasks


def _message(name: str, route: Route, flow_bytes: float, *, after: tuple[str, ...]) -> Task:
    channels = route.channel_names if flow_bytes else ()
    return Task(name, flow_bytes=flow_bytes, channels=channels, latency_s=route.latency_s, after=after, kind="message")


class _Pipeline:
    """Two trees, up and then down, in chunks of which each edge sends one at a time."""

    def __init__(self, placed: Placed, size_bytes: float, *, name: str, after: tuple[str, ...]) -> None:
        self.name, self.after = name, after
        self.trees = two_trees(len(placed.order))
        self.routes = {
            (message.source, message.sink): route
            for each in placed.rounds
            for message, route in zip(each.messages, each.routes, strict=True)
        }
        chunk_count = placed.chunk_count or best_chunk_count(placed, size_bytes)
        self.per_tree = max(1, round(chunk_count / 2))
        self.chunk_bytes = size_bytes / 2 / self.per_tree

    def tasks(self) -> list[Task]:
        """Return the messages of both trees."""
        tasks: list[Task] = []
        for tree, edges in enumerate(self.trees):
            reduced = self._up(tree, edges, tasks)
            self._down(tree, edges, tasks, after=reduced)
        return tasks

    def _up(self, tree: int, edges: tuple[tuple[int, int], ...], tasks: list[Task]) -> tuple[str, ...]:
        children: dict[int, list[int]] = defaultdict(list)
        for parent, child in edges:
            children[parent].append(child)
        root = ({parent for parent, _ in edges} - {child for _, child in edges}).pop()
        for parent, child in edges:
            for chunk in range(self.per_tree):
                needed = [self._label("up", tree, chunk, other, child) for other in children[child]]
                label = self._label("up", tree, chunk, child, parent)
                before = self._before("up", tree, chunk, child, parent)
                flow = _message(label, self.routes[child, parent], self.chunk_bytes, after=(*needed, *before))
                tasks.append(flow)
        return tuple(self._label("up", tree, self.per_tree - 1, child, root) for child in children[root])

    def _down(
        self, tree: int, edges: tuple[tuple[int, int], ...], tasks: list[Task], *, after: tuple[str, ...]
    ) -> None:
        parent_of = {child: parent for parent, child in edges}
        for parent, child in edges:
            above = parent_of.get(parent)
            for chunk in range(self.per_tree):
                needed = after if above is None else (self._label("down", tree, chunk, above, parent),)
                label = self._label("down", tree, chunk, parent, child)
                before = self._before("down", tree, chunk, parent, child)
                tasks.append(_message(label, self.routes[parent, child], self.chunk_bytes, after=(*needed, *before)))

    def _label(self, way: str, tree: int, chunk: int, source: int, sink: int) -> str:
        return f"{self.name}/{way}{tree}/{chunk}/{source}>{sink}"

    def _before(self, way: str, tree: int, chunk: int, source: int, sink: int) -> tuple[str, ...]:
        if chunk:
            return (self._label(way, tree, chunk - 1, source, sink),)
        return self.after if way == "up" else ()


def best_chunk_count(placed: Placed, size_bytes: float) -> int:
    """Return how many chunks a pipelined algorithm does best with, a whole number.

    Parameters
    ----------
    placed : Placed
        The algorithm on its devices. [-]
    size_bytes : float
        Bytes of the collective. [B]

    Returns
    -------
    int
        Chunks for each direction, at most ``MOST_CHUNKS``. [1]
    """
    latency_s = max(latency for each in placed.rounds for latency, _ in each.lines)
    if not latency_s:
        return MOST_CHUNKS
    streamed_s = placed.seconds_per_byte * size_bytes
    return min(MOST_CHUNKS, max(1, round(math.sqrt(placed.fill_rounds * streamed_s / (4 * latency_s)))))
