"""Groups that lie alike in equal machines: a collective among some of them is placed once for all.

Two lists of groups lie alike if swapping equal machines, and equal sockets inside them, turns one into the other. Then
messages are equally fast and meet as often; only their routes have other names, which are found on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from perfmodel.derived import derived, kept
from perfmodel.sync.base import Collective
from perfmodel.sync.placed import Placed, place
from perfmodel.sync.ring_order import devices_of, way_between

if TYPE_CHECKING:
    from perfmodel.hardware.topology import Route, Topology

MOST_PLACED: Final = 1024
"""Collectives cached per topology; the oldest is dropped first. [1]"""

Groups = tuple[tuple[str, ...], ...]


@derived
def _placements(topology: Topology) -> dict[Hashable, tuple[Groups, Placed]]:
    del topology
    return {}


def placed_once(
    collective: Collective,
    topology: Topology,
    ranks: Sequence[str],
    *,
    servers: Sequence[str] = (),
    beside: Sequence[Sequence[str]] = (),
    **options: Any,
) -> Placed:
    """Put a collective on devices of a system, once for all groups that lie alike.

    Parameters
    ----------
    collective : Collective
        The algorithm. [-]
    topology : Topology
        The system. [-]
    ranks : sequence of str
        Devices. [-]
    servers : sequence of str
        Nodes of its servers. [-]
    beside : sequence of sequence of str
        Further groups that run the same collective at the same time. [-]
    **options : object
        The algorithm's own. [-]

    Returns
    -------
    Placed
        As ``place`` returns it. [-]

    Raises
    ------
    ArgumentError, UnknownNameError
        As ``place`` raises them.
    """
    groups = tuple(map(tuple, (ranks, *beside)))
    has_servers = bool(servers or collective.given(**options).server_count_of())
    likeness = groups if has_servers else likeness_of(topology, groups)

    def make() -> tuple[Groups, Placed]:
        return groups, place(collective, topology, ranks, servers=servers, beside=beside, **options)

    key = collective.name, likeness, tuple(servers), tuple(sorted(options.items()))
    known: tuple[Groups, Placed] = kept(_placements(topology), key, make, most=MOST_PLACED)
    alike, placed = known
    if alike == groups:
        return placed
    names = zip(sum(alike, ()), sum(groups, ()), strict=True)
    return _moved(placed, topology, dict(names))


@derived
def likeness_of(topology: Topology, groups: Groups) -> Hashable:
    """Return a key shared by groups that lie alike; the groups themselves where machines may differ."""
    if not topology.alike or not all(map(devices_of(topology).issuperset, groups)):
        return groups
    names = list(chain(*groups))
    nodes = [topology.places[name].node for name in names]
    machines: dict[str, list[str]] = {}
    for name, node in zip(names, nodes, strict=True):
        machines.setdefault(node, []).append(name[len(node) :])
    numbers = dict(zip(machines, range(len(machines)), strict=True))
    of_machines = list(map(tuple, machines.values()))
    likened = {parts: topology.likened(*parts) for parts in set(of_machines)}
    return (
        tuple(map(len, groups)),
        tuple(map(numbers.__getitem__, nodes)),
        tuple(map(likened.__getitem__, of_machines)),
    )


def _moved(placed: Placed, topology: Topology, names: Mapping[str, str]) -> Placed:
    """Move a collective to groups that lie alike; ``names`` gives the device in place of each."""
    return replace(
        placed,
        order=tuple(map(names.__getitem__, placed.order)),
        way=partial(_way_there, placed.way, topology, names),
        cut=tuple(_moved(way, topology, names) for way in placed.cut),
    )


def _way_there(
    way: Callable[[int, int], Route], topology: Topology, names: Mapping[str, str], source: int, sink: int
) -> Route:
    nodes = way(source, sink).nodes
    return way_between(topology, names[nodes[0]], names[nodes[-1]])
