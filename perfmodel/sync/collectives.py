"""The registry of collective algorithms: each is a class, and a line here."""

from __future__ import annotations

from typing import Final

from perfmodel.errors import UnknownNameError
from perfmodel.sync.base import Collective
from perfmodel.sync.pairs import AllToAll, HalvingDoubling, RecursiveDoubling, SendReceive
from perfmodel.sync.rings import AllGather, Hierarchical, ReduceScatter, RingAllReduce
from perfmodel.sync.stars import HostTree, InNetwork, OneToAll, ParameterServer
from perfmodel.sync.trees import BinomialTree, Broadcast, DoubleBinaryTree

ALL_REDUCES: Final[dict[str, Collective]] = {
    each.name: each
    for each in (
        OneToAll(),
        ParameterServer(),
        RingAllReduce(),
        BinomialTree(),
        RecursiveDoubling(),
        HalvingDoubling(),
        DoubleBinaryTree(),
        Hierarchical(),
        HostTree(),
        InNetwork(),
    )
}
"""Algorithms after which every worker has the sum of what all had, by name."""

COLLECTIVES: Final[dict[str, Collective]] = ALL_REDUCES | {
    each.name: each for each in (ReduceScatter(), AllGather(), AllToAll(), Broadcast(), SendReceive())
}
"""All algorithms by name."""


def collective(name: str) -> Collective:
    """Return a collective algorithm by name.

    Raises
    ------
    UnknownNameError
        If there is none of that name; names the nearest.

    Examples
    --------
    >>> collective("ring_all_reduce").time(size_bytes=8e6, worker_count=4, latency_s=0.0, seconds_per_byte=1e-9)
    0.012
    """
    if name not in COLLECTIVES:
        kind = "collective algorithm"
        raise UnknownNameError(kind, name, COLLECTIVES)
    return COLLECTIVES[name]
