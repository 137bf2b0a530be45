"""The way of visitors to the shards of a parameter server: what of it they have to share, and with how many."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfmodel.hardware.topology import Topology

Brought = Sequence[tuple[str, float]]
"""Devices of one visitor, each with the bytes that it exchanges with every shard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """What a visit of a parameter server takes, and who keeps whom waiting on the way.

    Parameters
    ----------
    push_latency_s, pull_latency_s : float
        Time on the way that keeps nobody else waiting. [s]
    push_s, pull_s : float
        Time that the most loaded part of the way is taken. [s]
    push_sharers, pull_sharers : int
        Visitors that share one such part; a divisor of all. [1]
    """

    push_latency_s: float
    pull_latency_s: float
    push_s: float
    pull_s: float
    push_sharers: int
    pull_sharers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """One direction of a visitor's way: latency [s], and how long it takes each channel [s]."""

    latency_s: float
    taken_s: Mapping[str, float]

    @property
    def alone_s(self) -> float:
        """Time with nobody else there. [s]"""
        return self.latency_s + max(self.taken_s.values())


def visit_of(
    topology: Topology, visitors: Sequence[Brought], servers: Sequence[str], *, pulls_per_push: float = 1.0
) -> Visit:
    r"""Return what a visit takes that pushes to all shards and pulls from them.

    .. math:: c = \arg\max_c \sum_w \frac{b_{w,c}}{B_c}, \qquad K = \max\{k : k \mid W,\; k n_c \le W\}, \qquad
        S = \frac{K}{W} \sum_w \frac{b_{w,c}}{B_c}

    where visitor w takes :math:`b_{w,c}` bytes through channel c of capacity :math:`B_c`, which :math:`n_c` visitors
    pass.

    Parameters
    ----------
    topology : Topology
        The system. [-]
    visitors : sequence of sequence of (str, float)
        The devices of each of W visitors, with the bytes that each exchanges with every shard. [B]
    servers : sequence of str
        Memory of each shard. [-]
    pulls_per_push : float
        How often a visitor pulls for each time that it pushes. [1]

    Returns
    -------
    Visit
        Both directions. [s]

    Notes
    -----
    Bytes flow through all channels of a way at once, so that a lone visitor takes as long as his slowest channel, and
    latency. Of all channels that several visitors pass the one that all together take longest bounds them all: with
    equal steps of T no channel is taken longer than :math:`T \ge W S / K`. So visitors queue before that one, W / K
    before each of K alike, and what a lone visit takes besides is latency to them. A channel that pushes and
    pulls both pass, as the bus of a memory, or the adapter of a worker's machine that also holds a shard, is counted
    for both with the push.

    Where the crowds before parts of one kind differ (four workers in one machine, two in another) all are taken to be
    in one crowd of the same total load, as slow as those in the largest: those in a smaller one would be faster.

    Valid for: equal visitors. Ignores: queues before channels that are less loaded, what update and reading of
    mini-batches take of the same channels.
    """
    inwards = [_way(topology, brought, servers, inwards=True) for brought in visitors]
    outwards = [_way(topology, brought, servers, inwards=False) for brought in visitors]
    inward_names = dict.fromkeys(name for way in inwards for name in way.taken_s)
    both = [
        {name: way.taken_s.get(name, 0.0) + pulls_per_push * back.taken_s.get(name, 0.0) for name in inward_names}
        for way, back in zip(inwards, outwards, strict=True)
    ]
    push_s, push_sharers = _most_loaded(both)
    pull_s, pull_sharers = _most_loaded([way.taken_s for way in outwards])
    push_alone_s, pull_alone_s = (max(way.alone_s for way in ways) for ways in (inwards, outwards))
    beyond_s = max(0.0, push_s - push_alone_s)  # of a channel that is counted for both directions with the push
    return Visit(
        push_latency_s=max(0.0, push_alone_s - push_s),
        pull_latency_s=max(0.0, pull_alone_s - pull_s - beyond_s),
        push_s=push_s,
        pull_s=pull_s,
        push_sharers=push_sharers,
        pull_sharers=pull_sharers,
    )


def _way(topology: Topology, brought: Brought, servers: Sequence[str], *, inwards: bool) -> _Way:
    taken_s: dict[str, float] = {}
    latency_s = 0.0
    for device, size_bytes in brought:
        for server in servers:
            route = topology.route(device, server) if inwards else topology.route(server, device)
            latency_s = max(latency_s, route.latency_s)
            for channel in route.channels:
                seconds = size_bytes / channel.capacity_bytes_per_s
                taken_s[channel.name] = taken_s.get(channel.name, 0.0) + seconds
    return _Way(latency_s=latency_s, taken_s=taken_s)


def _most_loaded(taken: Sequence[Mapping[str, float]]) -> tuple[float, int]:
    """Return how long a visitor takes the most loaded channel that is shared [s], and how many share it [1]."""
    passing = Counter(name for each in taken for name, seconds in each.items() if seconds)
    load_s = {name: math.fsum(each.get(name, 0.0) for each in taken) for name in passing}
    shared = [name for name, count in passing.items() if count > 1 or count == len(taken)]
    if not shared:
        return 0.0, len(taken)
    busiest = max(shared, key=lambda name: (load_s[name], passing[name]))
    copies = max(k for k in range(1, len(taken) // passing[busiest] + 1) if len(taken) % k == 0)
    sharers = len(taken) // copies
    return load_s[busiest] / sharers, sharers
