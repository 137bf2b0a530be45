"""Ways through a graph of channels: the widest, and of the widest ones the quickest."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfmodel.hardware.channel import Channel


def widest(edges: dict[str, list[tuple[str, Channel]]], source: str, sink: str) -> float | None:
    """Return the largest capacity that all channels of some way have.

    Parameters
    ----------
    edges : dict of str to list of tuple
        From each node the next ones and the channels to them. [-]
    source, sink : str
        Ends of the way. [-]

    Returns
    -------
    float or None
        Capacity of the widest way; None where there is none. [B/s]
    """
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
            heapq.heappush(heap, (-min(-width, channel.capacity_bytes_per_s), following))
    return None


def quickest(
    edges: dict[str, list[tuple[str, Channel]]], source: str, sink: str, *, width: float
) -> tuple[tuple[str, ...], tuple[Channel, ...]]:
    """Return the way of lowest latency over channels that are wide enough.

    Parameters
    ----------
    edges : dict of str to list of tuple
        From each node the next ones and the channels to them. [-]
    source, sink : str
        Ends of the way. [-]
    width : float
        Capacity that each channel must have, which some way has. [B/s]

    Returns
    -------
    tuple
        Nodes and channels in order; of equally quick ways the one with fewest hops, then the first by name. [-]
    """
    heap: list[tuple[float, int, tuple[str, ...], tuple[str, ...]]] = [(0.0, 0, (source,), ())]
    by_name: dict[str, Channel] = {}
    done: set[str] = set()
    while heap:
        latency, hops, nodes, names = heapq.heappop(heap)
        if nodes[-1] == sink:
            return nodes, tuple(by_name[name] for name in names)
        if nodes[-1] in done:
            continue
        done.add(nodes[-1])
        for following, channel in edges[nodes[-1]]:
            if channel.capacity_bytes_per_s >= width:
                by_name[channel.name] = channel
                label = (latency + channel.latency_s, hops + 1, (*nodes, following), (*names, channel.name))
                heapq.heappush(heap, label)
    message = f"no way from {source} to {sink}"
    raise AssertionError(message)
