"""Rounds of very many messages among equal machines: one message stands for all that are equally fast.

Messages of one kind have the same share of the bytes and go between the same places of equal machines, so that one
route shows the links of all. Max-min fairness gives each message a rate by the channels that it really passes; messages
of one kind with the same rate are a class. With several leaf switches, the kind also says whether a message leaves its
leaf, and what links its leaves have.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.transfer import disjoint_sets, rates_of_passes
from perfmodel.derived import derived, derived_property
from perfmodel.sync.base import SERVER, Integers, Message, Round, joined
from perfmodel.sync.folding import Roles
from perfmodel.sync.placed_round import PlacedRound, to_servers
from perfmodel.sync.ring_order import way_between

if TYPE_CHECKING:
    from perfmodel.hardware.topology import Route, Topology
    from perfmodel.hardware.wires import Channel

MANY_MESSAGES: Final = 4096
"""Fewest messages of a collective, over all rounds, that are sorted into classes below one switch. [1]"""

MANY_TO_SERVERS: Final = 65_536
"""Fewest messages between all ranks and all servers for which two machines of each role stand for all of them; being
more than four of each kind, they are sorted into classes in any case. [1]"""

MANY_ALIKE: Final = 64
"""Fewest messages of a round among equal machines whose routes are found by kind; arrays of fewer take longer. [1]"""

MANY_OF_KIND: Final = 4
"""Fewest messages for each kind below one switch; with fewer, looking at each message costs less. [1]"""

MANY_OVER_LEAVES: Final = 512
"""``MANY_MESSAGES`` for machines on several leaf switches, or if no simulation sends messages one by one. [1]"""

MOST_SENT: Final = 500_000
"""Most messages, in all repetitions of rounds, that a simulation sends one by one, of a million events in all. [1]"""

MOST_NUMBERS: Final = 8
"""Most possible numbers per message for which a list of all takes less time than sorting. [1]"""

FEW_MESSAGES: Final = 64
"""Most messages of a round that is compared with others, message by message. [1]"""


@dataclass(frozen=True, eq=False, kw_only=True)
class Ends:
    """Nodes between which messages go.

    Parameters
    ----------
    topology : Topology
        The system. [-]
    names : mapping of int to str
        Node of each rank from 0 and of each server from ``SERVER`` down. [-]
    through_host : bool
        Whether copies between devices go through host memory. [-]
    roles : Roles or None
        Roles of machines that stand for others; None if each stands for itself. [-]
    """

    topology: Topology
    names: Mapping[int, str]
    through_host: bool
    roles: Roles | None = None

    def route(self, source: int, sink: int) -> Route:
        """Return the route between two ranks or servers."""
        return way_between(self.topology, self.names[source], self.names[sink], through_host=self.through_host)

    @derived_property
    def _nodes(self) -> tuple[tuple[str, ...], Integers, tuple[str, ...], Integers]:
        """Names of machines, and the number of each rank's and server's machine; then the same for places in a machine.

        Servers come last, where their negative numbers index.
        """
        parts = (self.names[rank].rpartition("/") for rank in sorted(self.names, key=lambda rank: (rank < 0, rank)))
        nodes, _, places = zip(*parts, strict=True)
        return *_of_names(nodes), *_of_names(places)

    @property
    def machine(self) -> Integers:
        """Number of the machine of each rank and server. [1]"""
        return self._nodes[1]

    @property
    def place(self) -> Integers:
        """Number of the place of each rank and server in its machine, the same in equal machines. [1]"""
        return self._nodes[3]

    def stood_for(self, machines: Integers) -> NDArray[np.float64]:
        """Machines and pairs for which those of each message stand, as ``Roles.stood_for`` counts them. [1]"""
        if self.roles is None:
            return np.broadcast_to(1.0, (3, machines.shape[1]))
        nodes = self._nodes[0]
        pairs = self.roles.stood_for(*zip(*itertools.product(nodes, repeat=2), strict=True))
        return pairs.reshape(3, len(nodes), len(nodes))[:, machines[0], machines[1]]

    @derived_property
    def _leaves(self) -> tuple[tuple[str, ...], Integers]:
        """Names of leaf switches, and the number of each machine's."""
        return _of_names(map(self.topology.leaf, self._nodes[0]))

    @property
    def leaf(self) -> Integers:
        """Number of the leaf of each machine. [1]"""
        return self._leaves[1]

    @derived_property
    def leaf_kind(self) -> Integers:
        """Number of the kind of each leaf by its links to other switches. [1]"""
        links = list(map(self.topology.leaf_links, self._leaves[0]))
        return np.array([links.index(links_of_leaf) for links_of_leaf in links])

    def kinds(self, source: Integers, sink: Integers) -> tuple[NDArray[np.int64 | np.bool_], ...]:
        """Return what tells the way of each message: its places, if it leaves its machine and leaf, kinds of leaves."""
        machines = np.stack([self.machine[source], self.machine[sink]])
        leaves = self.leaf[machines]
        inside = machines[0] == machines[1], leaves[0] == leaves[1]
        return self.place[source], self.place[sink], *inside, *self.leaf_kind[leaves]

    def ways(self, source: Integers, sink: Integers) -> list[Way]:
        """Return the way of each message."""
        keys = np.stack(self.kinds(source, sink)).T.tolist()
        return [self._way(tuple(key), *ends) for key, *ends in zip(keys, source.tolist(), sink.tolist(), strict=True)]

    @derived_property
    def _ways(self) -> dict[Hashable, Way]:
        """Ways that are known, by kind of message; below one switch all collectives share them."""
        return _known_ways(self.topology) if self.topology.alike else {}

    def _way(self, kind: tuple[int, ...], source: int, sink: int) -> Way:
        """Return the way of all messages of a kind, from the route of the first one."""
        places = self._nodes[2]
        key = places[kind[0]], places[kind[1]], *kind[2:], self.through_host
        if key not in self._ways:
            route = self.route(source, sink)
            machines = tuple(name.rpartition("/")[0] for name in (route.nodes[0], route.nodes[-1]))
            passes = tuple(
                _Pass(*place_of(channel, machines, self.topology), channel.capacity_bytes_per_s)
                for channel in route.channels
            )
            self._ways[key] = Way(route.latency_s, route.leaves_machine, passes)
        return self._ways[key]


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Simultaneous groups: the devices of each by rank, and its servers."""

    topology: Topology
    orders: Sequence[tuple[str, ...]]
    hosts: Sequence[tuple[str, ...]]
    through_host: bool

    def ends(self) -> Ends:
        """Return the node of each rank and server, whose numbers continue from group to group."""
        names = dict(enumerate(itertools.chain(*self.orders)))
        names |= {SERVER - index: name for index, name in enumerate(itertools.chain(*self.hosts))}
        return Ends(topology=self.topology, names=names, through_host=self.through_host)

    def merged(self, round_: Round) -> Round:
        """Return the messages of all groups in a round of one, group by group."""
        if len(self.orders) == 1:
            return round_
        groups = np.arange(len(self.orders))[:, np.newaxis]

        def of_all(ends: Integers) -> Integers:
            return (ends + groups * np.where(ends >= 0, len(self.orders[0]), -len(self.hosts[0]))).ravel()

        share = np.tile(round_.shares, len(groups)) if np.ndim(round_.share) else round_.share
        return replace(round_, sources=of_all(round_.sources), sinks=of_all(round_.sinks), share=share)

    def only(self, kept: Sequence[int]) -> Groups:
        """Return some of them, by number."""
        return replace(self, orders=[self.orders[at] for at in kept], hosts=[self.hosts[at] for at in kept])


class _Pass(NamedTuple):
    """A channel on a way: its name within its owner, the owner as ``place_of`` numbers it, and its capacity [B/s]."""

    place: str
    owner: int
    capacity: float

    @property
    def lane(self) -> tuple[str, int]:
        """What like channels of machines, of leaves, or of neither have in common."""
        return self.place, self.owner // 2


class Way(NamedTuple):
    """Latency of a message [s], whether it leaves its machine, and the channels it passes."""

    latency_s: float
    leaves: bool
    passes: tuple[_Pass, ...]


@derived
def _known_ways(topology: Topology) -> dict[Hashable, Way]:
    del topology
    return {}


def _of_names(names: Iterable[str]) -> tuple[tuple[str, ...], Integers]:
    """Return the names that occur, and the number of each one among them. [-], [1]"""
    numbers: dict[str, int] = {}
    of_all = np.array([numbers.setdefault(name, len(numbers)) for name in names])
    return tuple(numbers), of_all


def worth_sorting(rounds: Sequence[Round], ends: Ends, *, plays: bool) -> bool:
    """Whether a collective has enough messages for one of each class to stand for the others.

    Parameters
    ----------
    rounds : sequence of Round
        Its rounds among all its ranks. [-]
    ends : Ends
        Node of each rank and server. [-]
    plays : bool
        Whether a simulation sends each message of the algorithm. [-]

    Returns
    -------
    bool
        False where machines differ. [-]
    """
    topology = ends.topology
    if not topology.equal_machines:
        return False
    count = sum(map(len, rounds))
    is_sent = plays and sum(round_.repeat * len(round_) for round_ in rounds) <= MOST_SENT
    if count < (MANY_MESSAGES if topology.alike and is_sent else MANY_OVER_LEAVES):
        return False
    return not topology.alike or count >= MANY_OF_KIND * _kind_count(rounds, ends)


def standing_for_all(rounds: Sequence[Round], group_count: int, ends: Ends) -> Sequence[int]:
    """Return the simultaneous groups whose messages are as fast as those of all.

    Groups that share no channel do not slow each other down. Of sets of groups that share none, the first stands for
    all if every set sends between the same machines, over channels that are related alike.

    Parameters
    ----------
    rounds : sequence of Round
        Rounds of all groups; each has the messages of one group after those of another. [-]
    group_count : int
        Groups. [1]
    ends : Ends
        Node of each rank and server. [-]

    Returns
    -------
    sequence of int
        Their numbers: all, if some sets differ. [1]
    """
    every = range(group_count)
    sources = np.hstack([round_.sources.reshape(group_count, -1) for round_ in rounds])
    sinks = np.hstack([round_.sinks.reshape(group_count, -1) for round_ in rounds])
    machines = np.stack([ends.machine[sources], ends.machine[sinks]], axis=1)
    between = [of_group.tobytes() for of_group in machines]
    if sources.shape[1] < MANY_ALIKE or min(Counter(between).values()) == 1:
        return every
    kinds, ways = [], []  # of each group, in the order in which its messages have them
    for source, sink in zip(sources, sinks, strict=True):
        kind = _numbered(*ends.kinds(source, sink))
        first = _first_of(kind)
        order = np.argsort(first)
        kinds.append(np.argsort(order)[kind].tobytes())
        ways.append(ends.ways(source[first[order]], sink[first[order]]))

    def likeness(groups: Sequence[int]) -> object:
        numbers: dict[Hashable, int] = {}
        passes = [
            (way.latency_s, [(numbers.setdefault(of.lane, len(numbers)), of.owner, of.capacity) for of in way.passes])
            for group in groups
            for way in ways[group]
        ]
        return [between[group] for group in groups], [kinds[group] for group in groups], passes

    sets = disjoint_sets([{passed.lane for way in of_group for passed in way.passes} for of_group in ways])
    first_alike = likeness(sets[0])
    return sets[0] if all(likeness(groups) == first_alike for groups in sets[1:]) else every


def classes_of_rounds(rounds: Sequence[Round], ends: Ends) -> tuple[PlacedRound, ...]:
    """Return one message of each class for every round, equal rounds once.

    Parameters
    ----------
    rounds : sequence of Round
        Rounds among equal machines. [-]
    ends : Ends
        Node of each rank and server. [-]

    Returns
    -------
    tuple of PlacedRound
        In the order of the rounds; a round equal to an earlier one only adds to its ``repeat``. [-]
    """
    classes: dict[object, PlacedRound] = {}
    for round_ in rounds:
        key = recognised(round_, ends) or id(round_)
        if key in classes:
            known = classes[key]
            classes[key] = replace(known, repeat=known.repeat + round_.repeat)
        else:
            classes[key] = _classes(round_, ends)
    return tuple(classes.values())


def _kind_count(rounds: Sequence[Round], ends: Ends) -> int:
    """Count the kinds of messages, by their places in machines and whether they leave one. [1]"""
    every = joined(*rounds)
    source, sink = every.sources, every.sinks
    is_inside = ends.machine[source] == ends.machine[sink]
    return int(_numbered(ends.place[source], ends.place[sink], is_inside).max()) + 1


def recognised(round_: Round, ends: Ends) -> Hashable | None:
    """Return a key shared by rounds that take the same time; None for a long round."""
    if len(round_) > FEW_MESSAGES:
        return None
    machine_numbers: dict[int, int] = {}
    leaves: dict[int, int] = {}
    kinds = ends.leaf_kind
    messages: list[tuple[float, ...]] = []
    for message in round_.messages:
        for rank in (message.source, message.sink):
            machine, place = int(ends.machine[rank]), int(ends.place[rank])
            leaf = int(ends.leaf[machine])
            above = leaves.setdefault(leaf, len(leaves)), int(kinds[leaf])
            messages.append((machine_numbers.setdefault(machine, len(machine_numbers)), place, *above))
        messages.append((message.share,))
    return round_.reduced_share, tuple(messages)


@dataclass(frozen=True, kw_only=True)
class _Sorted:
    """Kind of each message of a round, way of each kind, and rates."""

    kind: Integers
    ways: list[Way]
    passes: _Passes
    pairs: NDArray[np.float64]
    """Messages that each message stands for, on other machines of the same roles. [1]"""
    inside: NDArray[np.bool_]
    rates: NDArray[np.float64]
    apart: NDArray[np.float64] | None
    """Rates while only messages between machines are in flight, or only those inside machines. [B/s]"""

    @property
    def member(self) -> Integers:
        """Number of the class of each message: those of a kind at equal rates. [1]"""
        rates = (self.rates,) if self.apart is None else (self.rates, self.apart)
        return _numbered(self.kind, *(np.unique(values, return_inverse=True)[1] for values in rates))


def _sorted(round_: Round, ends: Ends) -> _Sorted:
    source, sink, share = round_.sources, round_.sinks, round_.shares
    machines = np.stack([ends.machine[source], ends.machine[sink]])
    inside = machines[0] == machines[1]
    shares = np.unique(share, return_inverse=True)[1] if np.ndim(round_.share) else np.zeros_like(source)
    kind = _numbered(shares, *ends.kinds(source, sink))
    first = _first_of(kind)
    ways = ends.ways(source[first], sink[first])
    passed = [way.passes if share[at] else () for way, at in zip(ways, first, strict=True)]
    stood_for = ends.stood_for(machines)
    passes = _passes_of(kind, machines, passed, ends, stood_for)
    weights = np.array([round_.weight(share[at]) for at in first])[kind]
    flows = share > 0
    near, far = flows & inside, flows & ~inside
    apart = None
    if to_servers(round_) and near.any() and far.any():
        apart = np.minimum(passes.rates(near, weights), passes.rates(far, weights))
    rates = passes.rates(flows, weights)
    return _Sorted(kind=kind, ways=ways, passes=passes, pairs=stood_for[-1], inside=inside, rates=rates, apart=apart)


def _fields_of(round_: Round, kinds: _Sorted, chosen: Integers, stands_for: Integers) -> dict[str, Any]:
    """Return the fields of a placed round that shows the chosen messages, one of which stands for each message."""
    ways = [kinds.ways[kind] for kind in kinds.kind[chosen].tolist()]
    columns = round_.sources[chosen].tolist(), round_.sinks[chosen].tolist(), round_.shares[chosen].tolist()
    return {
        "messages": tuple(map(Message, *columns)),
        "latencies_s": tuple(way.latency_s for way in ways),
        "leaves": tuple(way.leaves for way in ways),
        "rates_bytes_per_s": tuple(kinds.rates[chosen].tolist()),
        "apart_bytes_per_s": () if kinds.apart is None else tuple(kinds.apart[chosen].tolist()),
        "meetings": () if kinds.apart is None else kinds.passes.meetings(stands_for, near=kinds.inside),
        "reduced_share": round_.reduced_share,
        "repeat": round_.repeat,
    }


def one_by_one(round_: Round, ends: Ends) -> PlacedRound:
    """Place a round among equal machines with each message by itself."""
    kinds = _sorted(round_, ends)
    member = kinds.member
    return PlacedRound(**_fields_of(round_, kinds, np.arange(len(round_)), _first_of(member)[member]))


def _classes(round_: Round, ends: Ends) -> PlacedRound:
    kinds = _sorted(round_, ends)
    member = kinds.member
    chosen, sizes = _first_of(member), np.bincount(member, weights=kinds.pairs)
    order = np.argsort(chosen)  # classes in the order of their first messages
    return PlacedRound(
        **_fields_of(round_, kinds, chosen[order], np.argsort(order)[member]),
        counts=tuple(sizes[order].tolist()),
    )


@dataclass(frozen=True, kw_only=True)
class _Passes:
    """For each pass of a message over a channel: numbers of both, like messages there; then all capacities [B/s]."""

    message: Integers
    channel: Integers
    alike: NDArray[np.float64]
    capacity: NDArray[np.float64]

    def rates(self, together: NDArray[np.bool_], weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the rate of each message while only those of a set are in flight; infinite for others. [B/s]"""
        rates = np.full(len(together), np.inf)
        passing = together[self.message]
        number = np.cumsum(together) - 1
        rates[together] = rates_of_passes(
            capacity=self.capacity,
            flow=number[self.message[passing]],
            channel=self.channel[passing],
            uses=self.alike[passing],
            weights=weights[together],
        )
        return rates

    def meetings(self, member: Integers, *, near: NDArray[np.bool_]) -> tuple[tuple[int, int], ...]:
        """Return pairs of a class inside machines and one between machines that meet on any channel."""
        inside = near[self.message]
        count = int(member.max(initial=0)) + 1
        passed_by = self.channel * count + member[self.message]
        at, of_near = np.divmod(np.unique(passed_by[inside]), count)
        channels, of_far = np.divmod(np.unique(passed_by[~inside]), count)
        first, last = (np.searchsorted(at, channels, side) for side in ("left", "right"))
        counts = last - first
        place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts - first, counts)
        pairs = np.unique(of_near[place] * count + np.repeat(of_far, counts))
        return tuple((int(pair // count), int(pair % count)) for pair in pairs)


def _passes_of(
    kind: Integers,
    machines: Integers,
    passed: Sequence[tuple[_Pass, ...]],
    ends: Ends,
    stood_for: NDArray[np.float64],
) -> _Passes:
    """Return the channels that each message passes; ``passed`` has them for each kind, none without bytes."""
    owners = np.stack([*machines, *ends.leaf[machines], np.zeros_like(kind)])
    most = [int(owners[sort : sort + 2].max()) + 1 for sort in (0, 2, 4)]
    begins: dict[tuple[str, int], int] = {}  # first channel number of each lane
    shape = len(passed), max(map(len, passed), default=0)
    begin, owner, capacity = np.zeros(shape, dtype=np.int64), np.full(shape, -1), np.zeros(shape)
    count = 0
    for row, of_kind in enumerate(passed):
        for column, pass_ in enumerate(of_kind):
            at = begins.setdefault(pass_.lane, count)
            count += most[pass_.owner // 2] * (at == count)
            begin[row, column], owner[row, column], capacity[row, column] = at, pass_.owner, pass_.capacity
    message, place_in_route = np.nonzero(owner[kind] >= 0)
    at_pass = kind[message], place_in_route
    channel_number = begin[at_pass] + owners[owner[at_pass], message]
    of_channel = np.ones(count)
    of_channel[channel_number] = capacity[at_pass]
    alike = stood_for[np.minimum(owner[at_pass], 2), message]
    return _Passes(message=message, channel=channel_number, alike=alike, capacity=of_channel)


def place_of(channel: Channel, machines: tuple[str, ...], topology: Topology) -> tuple[str, int]:
    """Return a channel's name within its owner, and the owner: a machine (0, 1), a leaf (2, 3) or none (4).

    Parameters
    ----------
    channel : Channel
        A channel on the way of a message. [-]
    machines : tuple of str
        Machines of its source and its sink. [-]
    topology : Topology
        The system. [-]

    Returns
    -------
    tuple of (str, int)
        Equal for like channels of equal machines and leaves. [-], [1]
    """
    ends = channel.ends
    leaves = [topology.leaf(machine) for machine in machines]
    for owner, name in enumerate((*machines, *leaves)):
        if name and any(end == name or end.startswith(f"{name}/") for end in ends):
            leaf = leaves[owner % 2]
            return "".join("leaf" if end == leaf else end.removeprefix(f"{name}/") for end in ends), owner
    return channel.name, 4


def _numbered(*keys: NDArray[np.int64 | np.bool_]) -> Integers:
    """Return one number for every combination of keys that occurs, in the order of the keys. [1]"""
    number = np.zeros(len(keys[0]), dtype=np.int64)
    for key in keys:
        number = number * (int(key.max(initial=0)) + 1) + key
        if number.max(initial=0) > MOST_NUMBERS * len(number):
            _, number = np.unique(number, return_inverse=True)
    occurs = np.zeros(int(number.max(initial=0)) + 1, dtype=bool)
    occurs[number] = True
    return (np.cumsum(occurs) - 1)[number]


def _first_of(number: Integers) -> Integers:
    """Return where each number from 0 on occurs first. [1]"""
    first = np.zeros(int(number.max(initial=-1)) + 1, dtype=np.int64)
    first[number[::-1]] = np.arange(len(number))[::-1]  # what is written last stays
    return first
