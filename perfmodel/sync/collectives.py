"""The registry of collective algorithms: each is a file, and a line here."""

from __future__ import annotations

from typing import Final

from perfmodel.errors import UnknownNameError
from perfmodel.sync.all_gather import AllGather
from perfmodel.sync.all_to_all import AllToAll
from perfmodel.sync.base import Collective
from perfmodel.sync.binomial_tree import BinomialTree
from perfmodel.sync.broadcast import Broadcast
from perfmodel.sync.double_binary_tree import DoubleBinaryTree
from perfmodel.sync.halving_doubling import HalvingDoubling
from perfmodel.sync.hierarchical import Hierarchical
from perfmodel.sync.host_tree import HostTree
from perfmodel.sync.in_network import InNetwork
from perfmodel.sync.one_to_all import OneToAll
from perfmodel.sync.parameter_server import ParameterServer
from perfmodel.sync.recursive_doubling import RecursiveDoubling
from perfmodel.sync.reduce_scatter import ReduceScatter
from perfmodel.sync.ring_all_reduce import RingAllReduce
from perfmodel.sync.send_receive import SendReceive

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

    Parameters
    ----------
    name : str
        Its name. [-]

    Returns
    -------
    Collective
        The algorithm. [-]

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
