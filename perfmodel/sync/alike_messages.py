"""Rounds of very many messages among equal machines: one message stands for all that are equally fast.

Messages of one kind have the same share of the bytes and go between the same places of machines, over the same links of
other machines: one route says which. Max-min fairness gives each of them its rate, by the channels that it really
passes, and those of one kind with one rate are a class. Where machines hang on several leaf switches, a kind of message
also says whether it leaves its leaf, and what links its leaves have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.transfer import rates_of_passes
from perfmodel.sync.base import Message, Round, message_arrays
from perfmodel.sync.placed_round import PlacedRound, to_servers
from perfmodel.sync.ring_order import way_between

if TYPE_CHECKING:
    from perfmodel.hardware.topology import Route, Topology
    from perfmodel.hardware.wires import Channel

MANY_MESSAGES: Final = 4096
"""Fewest messages of a collective, over all rounds, that are sorted into classes below one switch. [1]"""

MANY_OF_KIND: Final = 4
"""Fewest messages for each kind below one switch; with fewer, looking at each message costs less. [1]"""

MANY_OVER_LEAVES: Final = 512
"""The same where machines hang on several leaf switches, so that three of them cannot stand for all, and where no
simulation sends them one by one. [1]"""

MOST_SENT: Final = 500_000
"""Most messages, in all repetitions of rounds, that a simulation sends one by one, of a million events in all. [1]"""

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
    rounds: Sequence[Round], topology: Topology, names: Mapping[int, str], *, through_host: bool, plays: bool = True
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
    plays : bool
        Whether a simulation sends each message of the algorithm. [-]

    Returns
    -------
    tuple of PlacedRound or None
        In the order of the rounds; a round equal to an earlier one only adds to its ``repeat``. [-]
    """
    if not topology.equal_machines:
        return None
    count = sum(len(round_.messages) for round_ in rounds)
    is_sent = plays and sum(round_.repeat * len(round_.messages) for round_ in rounds) <= MOST_SENT
    if count < (MANY_MESSAGES if topology.alike and is_sent else MANY_OVER_LEAVES):
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
    ranks = message_arrays(*rounds)[0] - ends.first
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
    (source, sink), share = message_arrays(round_)
    source, sink = source - ends.first, sink - ends.first
    machines = np.stack([ends.machine[source], ends.machine[sink]])

    def route_of(index: int) -> Route:
        one, other = ends.names[source[index]], ends.names[sink[index]]
        return way_between(ends.topology, one, other, through_host=ends.through_host)

    shares = np.unique(share, return_inverse=True)[1]
    leaves = ends.leaf[machines]
    apart = machines[0] == machines[1], leaves[0] == leaves[1], *ends.leaf_kind[leaves]
    kind = _numbered(shares, ends.place[source], ends.place[sink], *apart)
    _, of_kind = np.unique(kind, return_index=True)
    passes = _passes_of(kind, machines, [route_of(index) if share[index] else None for index in of_kind], ends)
    weights = np.array([round_.weight(share[index]) for index in of_kind])[kind]
    flows = share > 0
    rates = passes.rates(flows, weights)
    meet_later = to_servers(round_) and bool((flows & apart[0]).any() and (flows & ~apart[0]).any())
    alone = np.minimum(passes.rates(flows & apart[0], weights), passes.rates(flows & ~apart[0], weights))
    told = (rates, alone) if meet_later else (rates,)
    member = _numbered(kind, *(np.unique(each, return_inverse=True)[1] for each in told))
    _, chosen, sizes = np.unique(member, return_index=True, return_counts=True)
    order = np.argsort(chosen)  # classes in the order of their first messages
    chosen, sizes = chosen[order], sizes[order]
    return PlacedRound(
        messages=tuple(
            Message(int(source[index] + ends.first), int(sink[index] + ends.first), float(share[index]))
            for index in chosen
        ),
        routes=tuple(map(route_of, chosen)),
        rates_bytes_per_s=tuple(rates[chosen].tolist()),
        reduced_share=round_.reduced_share,
        repeat=round_.repeat,
        sent_share=float(share.sum()),
        counts=tuple(sizes.tolist()),
        apart_bytes_per_s=tuple(alone[chosen].tolist()) if meet_later else (),
        met=passes.meetings(np.argsort(order)[member], near=apart[0]) if meet_later else None,
    )


@dataclass(frozen=True, kw_only=True)
class _Passes:
    """Number of the message and of the channel of each pass, and capacity of each channel [B/s]."""

    message: Integers
    channel: Integers
    capacity: NDArray[np.float64]

    def rates(self, together: NDArray[np.bool_], weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the rate of each message while those of one set are in flight, infinite for others. [B/s]"""
        rates = np.full(len(together), np.inf)
        passing = together[self.message]
        number = np.cumsum(together) - 1
        rates[together] = rates_of_passes(
            capacity=self.capacity,
            flow=number[self.message[passing]],
            channel=self.channel[passing],
            uses=np.ones(int(passing.sum())),
            weights=weights[together],
        )
        return rates

    def meetings(self, member: Integers, *, near: NDArray[np.bool_]) -> tuple[tuple[int, int], ...]:
        """Return the classes of messages inside machines and between them that meet on any channel."""
        inside = near[self.message]
        count = int(member.max(initial=0)) + 1
        met = self.channel * count + member[self.message]
        at, of_near = np.divmod(np.unique(met[inside]), count)
        channels, of_far = np.divmod(np.unique(met[~inside]), count)
        first, last = (np.searchsorted(at, channels, side) for side in ("left", "right"))
        counts = last - first
        place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts - first, counts)
        pairs = np.unique(of_near[place] * count + np.repeat(of_far, counts))
        return tuple((int(pair // count), int(pair % count)) for pair in pairs)


def _passes_of(kind: Integers, machines: Integers, routes: Sequence[Route | None], ends: _Ends) -> _Passes:
    """Return the channels that each message passes; ``routes`` has one route per kind, None for no bytes."""
    owners = np.stack([*machines, *ends.leaf[machines], np.zeros_like(kind)])
    begins: dict[tuple[str, int], int] = {}  # numbers of channels, by place in an owner and the sort of owner
    places: dict[tuple[str, str, str], tuple[int, int]] = {}
    shape = len(routes), max((len(route.channels) for route in routes if route), default=0)
    begin, owner, capacity = np.zeros(shape, dtype=np.int64), np.full(shape, -1), np.zeros(shape)
    count = 0
    for row, route in enumerate(routes):
        if route is None:
            continue
        one, other = (name.rpartition("/")[0] for name in (route.nodes[0], route.nodes[-1]))
        for column, channel in enumerate(route.channels):
            key = channel.name, one, other
            if key not in places:
                place, of = _place_of(channel, (one, other), ends.topology)
                at = begins.setdefault((place, of // 2), count)
                count += (int(owners[of // 2 * 2 :][:2].max()) + 1) * (at == count)
                places[key] = at, of
            begin[row, column], owner[row, column] = places[key]
            capacity[row, column] = channel.capacity_bytes_per_s
    message, place_in_route = np.nonzero(owner[kind] >= 0)
    at_pass = kind[message], place_in_route
    channel_number = begin[at_pass] + owners[owner[at_pass], message]
    of_channel = np.ones(count)
    of_channel[channel_number] = capacity[at_pass]
    return _Passes(message=message, channel=channel_number, capacity=of_channel)


def _place_of(channel: Channel, machines: tuple[str, str], topology: Topology) -> tuple[str, int]:
    """Return a channel's name within its owner, and whose it is: a machine's (0, 1), a leaf's (2, 3), no one's (4)."""
    ends = channel.ends
    leaves = [topology.leaf(machine) for machine in machines]
    for owner, name in enumerate((*machines, *leaves)):
        if name and any(end == name or end.startswith(f"{name}/") for end in ends):
            leaf = leaves[owner % 2]
            return "".join("leaf" if end == leaf else end.removeprefix(f"{name}/") for end in ends), owner
    return channel.name, 4


def _numbered(*keys: NDArray[np.int64 | np.bool_]) -> Integers:
    """Return one number for every combination of keys that occurs. [1]"""
    number = np.zeros(len(keys[0]), dtype=np.int64)
    for key in keys:
        _, number = np.unique(number * (int(key.max(initial=0)) + 1) + key, return_inverse=True)
    return number
