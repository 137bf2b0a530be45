"""Searches for a path: the widest one, and among equally wide ones that of the lowest latency."""

from __future__ import annotations

import heapq

from perfmodel.hardware.wires import Channel


def widest(edges: dict[str, list[tuple[str, Channel]]], source: str, sink: str) -> float | None:
    """Return the largest bottleneck capacity of any path."""
    best: dict[str, float] = {}
    heap = [(-float("inf"), source)]
    while heap:
        width, name = heapq.heappop(heap)
        if name in best:
            continue
        best[name] = -width
        if name == sink:
            return -width
        for following, channel in edges[name]:
            if following not in best:
                heapq.heappush(heap, (-min(-width, channel.capacity_bytes_per_s), following))
    return None


def quickest(
    edges: dict[str, list[tuple[str, Channel]]], source: str, sink: str, *, width: float
) -> tuple[tuple[str, ...], tuple[Channel, ...]]:
    """Return the path of lowest latency over channels that are wide enough."""
    heap: list[tuple[float, int, tuple[str, ...], tuple[str, ...]]] = [(0.0, 0, (source,), ())]
    by_name: dict[str, Channel] = {}
    done: set[str] = set()
    soonest: dict[str, tuple[float, int]] = {}
    while heap:
        latency, hops, nodes, names = heapq.heappop(heap)
        if nodes[-1] == sink:
            return nodes, tuple(by_name[name] for name in names)
        if nodes[-1] in done:
            continue
        done.add(nodes[-1])
        for following, channel in edges[nodes[-1]]:
            if channel.capacity_bytes_per_s < width:
                continue
            reached = latency + channel.latency_s, hops + 1
            if following not in done and reached <= soonest.setdefault(following, reached):
                soonest[following] = reached
                by_name[channel.name] = channel
                heapq.heappush(heap, (*reached, (*nodes, following), (*names, channel.name)))
    message = f"no way from {source} to {sink}"
    raise AssertionError(message)
