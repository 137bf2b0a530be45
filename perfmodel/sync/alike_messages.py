"""Rounds of very many messages among equal machines: one message stands for all that are equally fast.

Machines are told apart only by what they exchange. Two have the same colour if they send and receive as many messages
of each kind, between the same places, to and from machines of the same colours. Then messages of one kind between
machines of the same two colours share their channels with equally many others, so that max-min fairness gives them
one rate: it is found for one of each class, with n times the uses of a class of n. Where machines hang on several
leaf switches, a kind of message also says whether it leaves its leaf, leaves have colours by their links and by the
colours of their machines, and machines have that of their leaf besides their own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.transfer import max_min_rates
from perfmodel.sync.base import Message, Round
from perfmodel.sync.placed_round import PlacedRound, to_servers
from perfmodel.sync.ring_order import way_between

if TYPE_CHECKING:
    from perfmodel.hardware.topology import Route, Topology

MANY_MESSAGES: Final = 4096
"""Fewest messages of a collective, over all rounds, that are sorted into classes below one switch. [1]"""

MANY_OF_KIND: Final = 4
"""Fewest messages for each kind below one switch; with fewer, looking at each message costs less. [1]"""

MANY_OVER_LEAVES: Final = 512
"""The same where machines hang on several leaf switches, so that three of them cannot stand for all. [1]"""

FEW_MESSAGES: Final = 4
"""Most messages of a round that is compared with others, message by message. [1]"""

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ends:
    """Numbers of machines, by name and of every rank and server, of places in a machine, and each machine's leaf."""

    topology: Topology
    through_host: bool
    names: tuple[str, ...]
    first: int
    number: Mapping[str, int]
    machine: Integers
    place: Integers
    leaves: tuple[str, ...]
    leaf: Integers

    @property
    def leaf_kind(self) -> Integers:
        """Number of the kind of each leaf by its links to other switches. [1]"""
        links = [self.topology.leaf_links(leaf) for leaf in self.leaves]
        return np.array([links.index(own) for own in links])

    @classmethod
    def of(cls, topology: Topology, names: Mapping[int, str], *, through_host: bool) -> _Ends:
        first = min(names)
        ordered = tuple(names[rank] for rank in range(first, max(names) + 1))
        parts = [name.rpartition("/") for name in ordered]
        machines = {node: index for index, node in enumerate(dict.fromkeys(node for node, _, _ in parts))}
        places = {place: index for index, place in enumerate(dict.fromkeys(place for _, _, place in parts))}
        leaf_of = [topology.leaf(node) for node in machines]
        leaves = {leaf: index for index, leaf in enumerate(dict.fromkeys(leaf_of))}
        return cls(
            topology=topology,
            through_host=through_host,
            names=ordered,
            first=first,
            number=machines,
            machine=np.array([machines[node] for node, _, _ in parts]),
            place=np.array([places[place] for _, _, place in parts]),
            leaves=tuple(leaves),
            leaf=np.array([leaves[leaf] for leaf in leaf_of]),
        )


def classes_of_rounds(
    rounds: Sequence[Round], topology: Topology, names: Mapping[int, str], *, through_host: bool
) -> tuple[PlacedRound, ...] | None:
    """Return one message of each class for every round, equal rounds once; None if there are too few messages.

    Parameters
    ----------
    rounds : sequence of Round
        Rounds of a collective among all its ranks. [-]
    topology : Topology
        The system. [-]
    names : mapping of int to str
        Node of each rank and server. [-]
    through_host : bool
        Whether copies between devices go through host memory. [-]

    Returns
    -------
    tuple of PlacedRound or None
        In the order of the rounds; a round equal to an earlier one only adds to its ``repeat``. [-]
    """
    if not topology.equal_machines:
        return None
    count = sum(len(round_.messages) for round_ in rounds)
    if count < (MANY_MESSAGES if topology.alike else MANY_OVER_LEAVES):
        return None
    ends = _Ends.of(topology, names, through_host=through_host)
    if topology.alike and count < MANY_OF_KIND * _kind_count(rounds, ends):
        return None
    classes: dict[object, PlacedRound] = {}
    for round_ in rounds:
        key = _recognised(round_, ends)
        if key in classes:
            known = classes[key]
            classes[key] = replace(known, repeat=known.repeat + round_.repeat)
        else:
            classes[key] = _classes(round_, ends)
    return tuple(classes.values())


def _kind_count(rounds: Sequence[Round], ends: _Ends) -> int:
    """Count the kinds of messages, by their places in machines and whether they leave one. [1]"""
    ranks = np.array([message[:2] for round_ in rounds for message in round_.messages], dtype=np.int64).T - ends.first
    machines = ends.machine[ranks]
    return int(_numbered(*ends.place[ranks], machines[0] == machines[1]).max()) + 1


def _recognised(round_: Round, ends: _Ends) -> object:
    """Return a key shared by rounds that take the same time; a long round has a key of its own."""
    if len(round_.messages) > FEW_MESSAGES:
        return id(round_)
    met: dict[int, int] = {}
    leaves: dict[int, int] = {}
    kinds = ends.leaf_kind
    messages: list[tuple[float, ...]] = []
    for message in round_.messages:
        for rank in (message.source, message.sink):
            machine, place = int(ends.machine[rank - ends.first]), int(ends.place[rank - ends.first])
            leaf = int(ends.leaf[machine])
            above = leaves.setdefault(leaf, len(leaves)), int(kinds[leaf])
            messages.append((met.setdefault(machine, len(met)), place, *above))
        messages.append((message.share,))
    return round_.reduced_share, tuple(messages)


def _classes(round_: Round, ends: _Ends) -> PlacedRound:
    messages = round_.messages
    source = np.fromiter((message.source for message in messages), dtype=np.int64, count=len(messages)) - ends.first
    sink = np.fromiter((message.sink for message in messages), dtype=np.int64, count=len(messages)) - ends.first
    share = np.fromiter((message.share for message in messages), dtype=float, count=len(messages))
    machines = np.stack([ends.machine[source], ends.machine[sink]])

    def route_of(index: int) -> Route:
        one, other = ends.names[source[index]], ends.names[sink[index]]
        return way_between(ends.topology, one, other, through_host=ends.through_host)

    shares = np.unique(share, return_inverse=True)[1]
    leaves = ends.leaf[machines]
    apart = machines[0] == machines[1], leaves[0] == leaves[1], *ends.leaf_kind[leaves]
    kind = _numbered(shares, ends.place[source], ends.place[sink], *apart)
    _, of_kind = np.unique(kind, return_index=True)
    meets = (share > 0) & _meeting(
        kind, machines, [route_of(index) if share[index] else None for index in of_kind], ends
    )
    colour, leaf_colour = _colours(kind[meets], machines[:, meets], ends)
    member = _numbered(kind, meets, *np.where(meets, colour[machines], 0))
    _, chosen, sizes = np.unique(member, return_index=True, return_counts=True)
    order = np.argsort(chosen)  # classes in the order of their first messages
    chosen, sizes = chosen[order], sizes[order]
    routes = tuple(map(route_of, chosen))
    crowd = [place for place, index in enumerate(chosen) if meets[index]]
    near, far = ([place for place in crowd if routes[place].leaves_machine == leaves] for leaves in (False, True))
    owned = partial(_owned, colour=colour, leaf_colour=leaf_colour, ends=ends)

    def rates_of(*together: list[int]) -> tuple[float, ...]:
        rates = np.full(len(chosen), np.inf)
        for some in filter(None, together):
            weights = [round_.weight(share[chosen[place]]) for place in some]
            of_some = [routes[place] for place in some]
            rates[some] = _rates(of_some, sizes[some].tolist(), weights, colour, leaf_colour, ends)
        for place, index in enumerate(chosen):
            if share[index] and not meets[index]:
                rates[place] = routes[place].capacity_bytes_per_s
        return tuple(rates.tolist())

    meet_later = to_servers(round_) and bool(near) and bool(far)
    return PlacedRound(
        messages=tuple(
            Message(int(source[index] + ends.first), int(sink[index] + ends.first), float(share[index]))
            for index in chosen
        ),
        routes=routes,
        rates_bytes_per_s=rates_of(crowd),
        reduced_share=round_.reduced_share,
        repeat=round_.repeat,
        sent_share=float(share.sum()),
        counts=tuple(sizes.tolist()),
        apart_bytes_per_s=rates_of(near, far) if meet_later else (),
        met_by={channel.name: owned(channel.name, route) for route in routes for channel in route.channels}
        if meet_later
        else {},
    )


def _meeting(kind: Integers, machines: Integers, routes: Sequence[Route | None], ends: _Ends) -> NDArray[np.bool_]:
    """Tell for each message whether it shares a channel with another; ``routes`` has one route per kind."""
    passed: dict[tuple[str, str], Integers] = {}
    over: list[tuple[Integers, Integers, tuple[str, str]]] = []
    owners = {MACHINE: machines, LEAF: ends.leaf[machines], NEITHER: np.zeros_like(machines)}
    for index, route in enumerate(routes):
        if route is None:
            continue
        members = np.flatnonzero(kind == index)
        for channel in dict.fromkeys(route.channels):
            place, owner, way = _place_of(channel.name, route, ends.topology)
            at = owners[owner][way, members]
            count = int(owners[owner].max()) + 1
            np.add.at(passed.setdefault((place, owner), np.zeros(count, dtype=np.int64)), at, 1)
            over.append((members, at, (place, owner)))
    meets = np.zeros(len(kind), dtype=bool)
    for members, at, key in over:
        meets[members] |= passed[key][at] > 1
    return meets


MACHINE, LEAF, NEITHER = "machine", "leaf", ""
"""Owners of a channel."""


def _place_of(channel: str, route: Route, topology: Topology) -> tuple[str, str, int]:
    """Return a channel's name within its owner, who that is, and at which end of a route the owner is."""
    ends = re.split("([>=])", channel)
    of_route = [end.rpartition("/")[0] for end in (route.nodes[0], route.nodes[-1])]
    for owner, named in ((MACHINE, of_route), (LEAF, [topology.leaf(node) for node in of_route])):
        for way, name in enumerate(named):
            if name and any(end == name or end.startswith(f"{name}/") for end in ends):
                leaf = topology.leaf(of_route[way])
                return "".join(LEAF if end == leaf else end.removeprefix(f"{name}/") for end in ends), owner, way
    return channel, NEITHER, 0


def _owned(channel: str, route: Route, *, colour: Integers, leaf_colour: Integers, ends: _Ends) -> tuple[str, str, int]:
    """Return a channel's name within its owner, who that is, and the owner's colour."""
    place, owner, way = _place_of(channel, route, ends.topology)
    machine = ends.number[route.nodes[-way].rpartition("/")[0]]
    colours = {MACHINE: colour[machine], LEAF: leaf_colour[ends.leaf[machine]], NEITHER: 0}
    return place, owner, int(colours[owner])


def _numbered(*keys: NDArray[np.int64 | np.bool_]) -> Integers:
    """Return one number for every combination of keys that occurs. [1]"""
    number = np.zeros(len(keys[0]), dtype=np.int64)
    for key in keys:
        _, number = np.unique(number * (int(key.max(initial=0)) + 1) + key, return_inverse=True)
    return number


def _colours(kind: Integers, machines: Integers, ends: _Ends) -> tuple[Integers, Integers]:
    """Return the colour of each machine and leaf, refined until those of one colour exchange alike. [1]"""
    count = int(ends.machine.max()) + 1
    colour, leaf_colour = np.zeros(count, dtype=np.int64), ends.leaf_kind
    random = np.random.default_rng(0)
    while True:
        marks = random.integers(
            0, 2**63, size=(2, int(kind.max(initial=0)) + 1, int(colour.max()) + 1), dtype=np.uint64
        )
        met = np.zeros(count, dtype=np.uint64)
        for way, (one, other) in enumerate((machines, machines[::-1])):
            np.add.at(met, one, marks[way, kind, colour[other]])  # a sum does not depend on the order of messages
        _, exchanged = np.unique(met, return_inverse=True)
        refined = _numbered(colour, exchanged, leaf_colour[ends.leaf])
        below = np.zeros(len(ends.leaves), dtype=np.uint64)
        np.add.at(below, ends.leaf, random.integers(0, 2**63, size=int(refined.max()) + 1, dtype=np.uint64)[refined])
        refined_leaf = _numbered(leaf_colour, np.unique(below, return_inverse=True)[1])
        if refined.max() == colour.max() and refined_leaf.max() == leaf_colour.max():
            return refined, refined_leaf
        colour, leaf_colour = refined, refined_leaf


def _rates(
    routes: Sequence[Route],
    sizes: Sequence[int],
    weights: Sequence[float],
    colour: Integers,
    leaf_colour: Integers,
    ends: _Ends,
) -> NDArray[np.float64]:
    """Return the rate of each class of messages that meet others. [B/s]"""
    members = {MACHINE: Counter(colour.tolist()), LEAF: Counter(leaf_colour.tolist()), NEITHER: {0: 1}}
    column: dict[tuple[str, str, int], int] = {}
    capacity: list[float] = []
    uses: list[dict[int, float]] = []
    for route, size in zip(routes, sizes, strict=True):
        used: dict[int, float] = {}
        for channel in route.channels:
            owned = _owned(channel.name, route, colour=colour, leaf_colour=leaf_colour, ends=ends)
            at = column.setdefault(owned, len(column))
            if at == len(capacity):
                capacity.append(channel.capacity_bytes_per_s)
            used[at] = used.get(at, 0.0) + size / members[owned[1]][owned[2]]
        uses.append(used)
    table = np.zeros((len(routes), len(capacity)))
    for row, used in enumerate(uses):
        table[row, list(used)] = list(used.values())
    return max_min_rates(capacity=capacity, uses=table, weights=weights)
