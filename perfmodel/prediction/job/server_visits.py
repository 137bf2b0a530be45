"""Visits to a parameter server: their time alone, and the channel that visitors queue for.

Among equal machines, visitors that lie alike are one kind, and so are machines with the same shards and visitors. Each
kind is looked at once, however many there are of it and of the shards. Other systems, and few messages, are looked at
as one machine.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from perfmodel.sync.alike_messages import place_of

if TYPE_CHECKING:
    from perfmodel.hardware.topology import Topology

MANY_WAYS: Final = 1024
"""Pairs of a device and a shard from which on equal machines are looked at by kind. [1]"""

Brought = Sequence[tuple[str, float]]
"""Devices of one visitor, each with the bytes that it exchanges with all shards together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """Times of a visit to a parameter server, with the parts visitors queue for."""

    push_latency_s: float
    pull_latency_s: float
    push_s: float
    pull_s: float
    push_sharers: int
    pull_sharers: int


def visit_of(
    topology: Topology, visitors: Sequence[Brought], servers: Sequence[str], *, pulls_per_push: float = 1.0
) -> Visit:
    r"""Return the times of a visit that pushes to all shards and pulls from them.

    .. math:: c = \arg\max_c \sum_w \frac{b_{w,c}}{B_c}, \qquad K = \max\{k : k \mid W,\; k n_c \le W\}, \qquad
        S = \frac{K}{W} \sum_w \frac{b_{w,c}}{B_c}

    where visitor w sends :math:`b_{w,c}` bytes over channel c of capacity :math:`B_c`, shared by :math:`n_c` visitors.

    Notes
    -----
    Bytes flow over all channels of a route at once, so a lone visitor takes the time of its slowest channel, plus
    latency. The shared channel with the largest total load bounds all visitors, since equal steps cannot be shorter
    than :math:`T \ge W S / K`. They queue for that channel, W / K visitors for each of K equal channels, and the rest
    of a lone visit counts as latency. A channel used by both pushes and pulls, such as a memory bus or the adapter of a
    worker that also holds a shard, counts both with the push.

    If queues differ in length (four workers in one machine, two in another), all visitors are given the pace of the
    longest queue; visitors in shorter queues would be faster.

    Valid for: equal visitors. Ignores: queues for less loaded channels, and the load of updates and input on the same
    channels.
    """
    by_kind = topology.equal_machines and sum(map(len, visitors)) * len(servers) >= MANY_WAYS
    shards = _Shards(topology, servers, by_kind=by_kind)
    crowd = _Crowd(shards, visitors)
    ways = [crowd.ways(inwards=inwards) for inwards in (True, False)]
    loads = [_both_loads(users, pulls_per_push) for users in crowd.users(*ways)]
    (push_s, push_sharers), (pull_s, pull_sharers) = (
        _most_loaded(chain.from_iterable(of_way), visitor_count=len(visitors)) for of_way in zip(*loads, strict=True)
    )
    push_alone_s, pull_alone_s = (max(way.alone_s for way in of_kinds) for of_kinds in ways)
    beyond_s = max(0.0, push_s - push_alone_s)  # of a channel that counts both directions with the push
    return Visit(
        push_latency_s=max(0.0, push_alone_s - push_s),
        pull_latency_s=max(0.0, pull_alone_s - pull_s - beyond_s),
        push_s=push_s,
        pull_s=pull_s,
        push_sharers=push_sharers,
        pull_sharers=pull_sharers,
    )


DEVICE, SHARD, DEVICE_LEAF, SHARD_LEAF, TOP = range(5)
"""Owner of a channel on the way between a device and a shard: either's machine, either's leaf switch, or none."""

ShardPlaces: TypeAlias = tuple[str, ...]
"""Places of the shards in one machine."""

Taken: TypeAlias = Mapping[str, float]
"""Time of a visitor on each channel of one owner. [s]"""


class _Relation(NamedTuple):
    """How a device's machine lies to one with shards: the same, below the same leaf, and links of both leaves."""

    is_same: bool
    is_near: bool
    links: Hashable
    shard_links: Hashable


class _Targets(NamedTuple):
    """Equal machines with shards, as seen from a device's machine: how many, and one of them."""

    machine_count: int
    shards: ShardPlaces
    relation: _Relation
    example: str


class _Message(NamedTuple):
    """Latency of messages between a device and one machine's shards [s], and the capacity of each pass [B/s]."""

    latency_s: float
    passes: tuple[tuple[int, str, float], ...]


class _LeafKind(NamedTuple):
    """Links of a leaf to other switches, and its machines by the places of their shards."""

    links: Hashable
    machines: frozenset[tuple[ShardPlaces, int]]


class _Shards:
    """Shards of a server by machine and leaf, and the messages between devices and them."""

    def __init__(self, topology: Topology, servers: Sequence[str], *, by_kind: bool) -> None:
        self.topology, self.count, self.by_kind = topology, len(servers), by_kind
        places: dict[str, list[str]] = {}
        for machine, place in map(self.split, servers):
            places.setdefault(machine, []).append(place)
        self.on: dict[str, ShardPlaces] = {machine: tuple(of_it) for machine, of_it in places.items()}
        self.below: dict[str, dict[ShardPlaces, list[str]]] = {}
        for machine, of_it in self.on.items():
            self.below.setdefault(topology.leaf(machine), {}).setdefault(of_it, []).append(machine)
        self._kinds: dict[str, _LeafKind] = {}
        self.leaves: dict[_LeafKind, list[str]] = {}
        for leaf in self.below:
            self.leaves.setdefault(self.kind(leaf), []).append(leaf)

    def split(self, name: str) -> tuple[str, str]:
        """Return the machine of a node and its place there; all count as one without a name if not ``by_kind``."""
        machine = name.rpartition("/")[0] if self.by_kind else ""
        return machine, name[len(machine) :]

    def kind(self, leaf: str) -> _LeafKind:
        """Return the kind of a leaf."""
        if leaf not in self._kinds:
            machines = frozenset((places, len(names)) for places, names in self.below.get(leaf, {}).items())
            self._kinds[leaf] = _LeafKind(self.topology.leaf_links(leaf), machines)
        return self._kinds[leaf]

    def targets(self, machine: str) -> Iterator[_Targets]:
        """Yield all machines with shards as they are seen from a machine."""
        leaf = self.topology.leaf(machine)
        links = self.kind(leaf).links
        if machine in self.on:
            yield _Targets(1, self.on[machine], _Relation(True, True, links, links), machine)
        for places, machines in self.below.get(leaf, {}).items():
            others = len(machines) - (self.on.get(machine) == places)
            if others:
                example = machines[machines[0] == machine]
                yield _Targets(others, places, _Relation(False, True, links, links), example)
        for kind, leaves in self.leaves.items():
            other_leaves = len(leaves) - (leaf in self.below and self.kind(leaf) == kind)
            if other_leaves:
                far = _Relation(False, False, links, kind.links)
                for places, machines in self.below[leaves[leaves[0] == leaf]].items():
                    yield _Targets(other_leaves * len(machines), places, far, machines[0])

    def message(self, place: str, shards: ShardPlaces, ends: tuple[str, str], *, inwards: bool) -> _Message:
        """Return the messages between a device and shards; ``ends`` are their machines."""
        machines = ends if inwards else ends[::-1]
        is_near = self.topology.leaf(ends[0]) == self.topology.leaf(ends[1])
        latency_s, passes = 0.0, list[tuple[int, str, float]]()
        device = ends[0] + place
        for of_shard in shards:
            shard = ends[1] + of_shard
            route = self.topology.route(device, shard) if inwards else self.topology.route(shard, device)
            latency_s = max(latency_s, route.latency_s)
            for channel in route.channels:
                name, owner = place_of(channel, machines, self.topology)
                if owner < TOP and not inwards:
                    owner ^= 1  # the shard's machine and leaf come first there
                if (owner == SHARD and ends[0] == ends[1]) or (owner == SHARD_LEAF and is_near):
                    owner -= 1
                passes.append((owner, name, channel.capacity_bytes_per_s))
        return _Message(latency_s, tuple(passes))


class _Part(NamedTuple):
    """A visitor's devices on one machine, with their bytes [B], its shards, and the number of its leaf."""

    brought: tuple[tuple[str, float], ...]
    shards: ShardPlaces
    leaf: int


class _VisitorKind(NamedTuple):
    """Parts of a visitor, and the kinds of the leaves that they are below."""

    parts: tuple[_Part, ...]
    leaves: tuple[_LeafKind, ...]


class _Visitor(NamedTuple):
    """A visitor: its kind, and the machines and leaves where it is."""

    kind: _VisitorKind
    machines: tuple[str, ...]
    leaves: tuple[str, ...]


def _visitor(shards: _Shards, brought: Brought) -> _Visitor:
    of_machine: dict[str, list[tuple[str, float]]] = {}
    for device, size_bytes in brought:
        machine, place = shards.split(device)
        of_machine.setdefault(machine, []).append((place, size_bytes))
    leaves: dict[str, int] = {}
    parts = tuple(
        _Part(tuple(devices), shards.on.get(machine, ()), leaves.setdefault(shards.topology.leaf(machine), len(leaves)))
        for machine, devices in of_machine.items()
    )
    return _Visitor(_VisitorKind(parts, tuple(map(shards.kind, leaves))), tuple(of_machine), tuple(leaves))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """One direction of a visit: its latency [s], and its time on the channels of each owner [s].

    Owners are ``("machine", part)`` and ``("leaf", leaf)`` of the visitor by number, ``("near", leaf, shards)`` for any
    other machine below that leaf, ``("far", kind, shards)`` and ``("far leaf", kind)`` for all others, and ``"top"``.
    """

    latency_s: float
    taken_s: Mapping[Hashable, Taken]

    @property
    def alone_s(self) -> float:
        """Time without other traffic. [s]"""
        return self.latency_s + max(seconds for taken_s in self.taken_s.values() for seconds in taken_s.values())


Sent: TypeAlias = Mapping[tuple[str, Hashable], float]
"""Bytes of devices by their place in a machine and the links of its leaf. [B]"""


def _way(shards: _Shards, visitor: _Visitor, known: dict[Hashable, _Message], *, inwards: bool) -> _Way:
    """Return one direction of a visit; ``known`` are the messages of this direction that are known already."""
    taken_s: defaultdict[Hashable, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    latency_s = 0.0
    parts, leaves = visitor.kind
    sent: list[dict[tuple[str, Hashable], float]] = []
    for number, (part, machine) in enumerate(zip(parts, visitor.machines, strict=True)):
        owners = {DEVICE: ("machine", number), DEVICE_LEAF: ("leaf", part.leaf), TOP: "top"}
        targets = list(shards.targets(machine))
        sent.append({(place, leaves[part.leaf].links): size_bytes for place, size_bytes in part.brought})
        for (place, size_bytes), target in product(part.brought, targets):
            key = place, target.shards, target.relation
            if key not in known:
                known[key] = shards.message(place, target.shards, (machine, target.example), inwards=inwards)
            message = known[key]
            latency_s = max(latency_s, message.latency_s)
            message_bytes = size_bytes / shards.count * target.machine_count
            for owner, channel, capacity in message.passes:
                if owner in owners:
                    taken_s[owners[owner]][channel] += message_bytes / capacity
    for receiver in _receivers(shards, visitor, sent):
        for is_near, of_devices in ((True, receiver.near), (False, receiver.far)):
            for (place, links), size_bytes in of_devices.items():
                message = known[place, receiver.shards, _Relation(False, is_near, links, receiver.links)]
                message_bytes = size_bytes / shards.count * receiver.machine_count
                for owner, channel, capacity in message.passes:
                    if owner == receiver.owner:
                        taken_s[receiver.key][channel] += message_bytes / capacity
    return _Way(latency_s=latency_s, taken_s=taken_s)


class _Receiver(NamedTuple):
    """An owner of channels next to shards: bytes reach them from other machines below its leaf, and from elsewhere.

    ``key`` is its name in a ``_Way``, ``machine_count`` how many machines with such shards are behind it.
    """

    owner: int
    key: Hashable
    machine_count: int
    shards: ShardPlaces
    links: Hashable
    near: Sent
    far: Sent


def _receivers(shards: _Shards, visitor: _Visitor, sent: Sequence[Sent]) -> Iterator[_Receiver]:
    """Yield the owners of channels next to shards; ``sent`` are the bytes of each part of a visitor."""
    parts, leaves = visitor.kind
    of_leaf = [_added(sent[at] for at, part in enumerate(parts) if part.leaf == leaf) for leaf in range(len(leaves))]
    whole = _added(of_leaf)
    for leaf, (name, (links, _), near) in enumerate(zip(visitor.leaves, leaves, of_leaf, strict=True)):
        far = _less(whole, near)
        for places, machines in shards.below.get(name, {}).items():
            own = [at for at, part in enumerate(parts) if part.leaf == leaf and part.shards == places]
            for at in own:
                yield _Receiver(SHARD, ("machine", at), 1, places, links, _less(near, sent[at]), far)
            if len(own) < len(machines):
                yield _Receiver(SHARD, ("near", leaf, places), 1, places, links, near, far)
            yield _Receiver(SHARD_LEAF, ("leaf", leaf), len(machines), places, links, {}, far)
    for kind, names in shards.leaves.items():
        if not set(names).issubset(visitor.leaves):
            for places, machine_count in kind.machines:
                yield _Receiver(SHARD, ("far", kind, places), 1, places, kind.links, {}, whole)
                yield _Receiver(SHARD_LEAF, ("far leaf", kind), machine_count, places, kind.links, {}, whole)


def _added(several: Iterable[Sent]) -> Sent:
    whole: defaultdict[tuple[str, Hashable], float] = defaultdict(float)
    for sent in several:
        for device, size_bytes in sent.items():
            whole[device] += size_bytes
    return whole


def _less(whole: Sent, part: Sent) -> Sent:
    """Leave out a part; sizes are whole numbers of bytes, so that nothing is lost."""
    rest = {device: size_bytes - part.get(device, 0.0) for device, size_bytes in whole.items()}
    return {device: size_bytes for device, size_bytes in rest.items() if size_bytes}


Users: TypeAlias = list[tuple[int, Taken, Taken]]
"""Visitors that use channels of one owner, with the time of each on the way in and on the way out. [s]"""


class _Crowd:
    """All visitors of a server, by kind, and by the machines and leaves where they are."""

    def __init__(self, shards: _Shards, visitors: Sequence[Brought]) -> None:
        self.shards = shards
        numbers: dict[_VisitorKind, int] = {}
        self.firsts: list[_Visitor] = []
        self.counts: list[int] = []
        self.parts: defaultdict[str, Counter[tuple[int, int]]] = defaultdict(Counter)
        self.below: defaultdict[str, Counter[tuple[int, int]]] = defaultdict(Counter)
        for brought in visitors:
            visitor = _visitor(shards, brought)
            number = numbers.setdefault(visitor.kind, len(numbers))
            if number == len(self.firsts):
                self.firsts.append(visitor)
                self.counts.append(0)
            self.counts[number] += 1
            for place, names in ((self.parts, visitor.machines), (self.below, visitor.leaves)):
                for at, name in enumerate(names):
                    place[name][number, at] += 1

    def ways(self, *, inwards: bool) -> list[_Way]:
        """Return one direction of a visit of each kind of visitor."""
        known: dict[Hashable, _Message] = {}
        return [_way(self.shards, first, known, inwards=inwards) for first in self.firsts]

    def users(self, inwards: Sequence[_Way], outwards: Sequence[_Way]) -> Iterator[Users]:
        """Yield the users of the channels of each machine, leaf and the top, once for those that are alike."""

        def used(number: int, owner: Hashable, count: int) -> tuple[int, Taken, Taken]:
            return count, inwards[number].taken_s.get(owner, {}), outwards[number].taken_s.get(owner, {})

        yield [used(number, "top", count) for number, count in enumerate(self.counts)]
        known: set[Hashable] = set()
        machines: dict[str, list[str]] = {}
        for machine in self.parts | dict.fromkeys(self.shards.on):
            machines.setdefault(self.shards.topology.leaf(machine), []).append(machine)
        for leaf, names in machines.items():
            kind, below = self.shards.kind(leaf), self.below[leaf]
            others = Counter(dict(enumerate(self.counts)))
            for (number, _), count in below.items():
                others[number] -= count
            of_leaf = kind, frozenset(below.items())
            if of_leaf not in known:
                known.add(of_leaf)
                yield [
                    *(used(number, ("leaf", at), count) for (number, at), count in below.items()),
                    *(used(number, ("far leaf", kind), count) for number, count in others.items()),
                ]
            for machine in names:
                places, parts = self.shards.on.get(machine, ()), self.parts[machine]
                of_machine = of_leaf, places, frozenset(parts.items())
                if of_machine in known:
                    continue
                known.add(of_machine)
                near = Counter(below)
                for (number, at), count in parts.items():
                    near[number, self.firsts[number].kind.parts[at].leaf] -= count
                yield [
                    *(used(number, ("machine", at), count) for (number, at), count in parts.items()),
                    *(used(number, ("near", at, places), count) for (number, at), count in near.items()),
                    *(used(number, ("far", kind, places), count) for number, count in others.items()),
                ]


def _both_loads(users: Users, pulls_per_push: float) -> tuple[list[tuple[float, int]], list[tuple[float, int]]]:
    """Load [s] and users [1] of channels by pushes, and by pulls; pulls also count as pushes where both use one."""
    pushes: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    pulls: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    present = [of_kind for of_kind in users if of_kind[0]]
    inward_names = {name for _, inwards, _ in present for name in inwards}
    for count, inwards, outwards in present:
        for name in {**inwards, **outwards}:
            pulled_s = outwards.get(name, 0.0)
            pulls[name].append((count, pulled_s))
            if name in inward_names:
                pushes[name].append((count, inwards.get(name, 0.0) + pulls_per_push * pulled_s))
    return _summed(pushes.values()), _summed(pulls.values())


def _summed(channels: Iterable[list[tuple[int, float]]]) -> list[tuple[float, int]]:
    return [
        (math.fsum(count * seconds for count, seconds in of_it), sum(count for count, seconds in of_it if seconds))
        for of_it in channels
    ]


def _most_loaded(loads: Iterable[tuple[float, int]], *, visitor_count: int) -> tuple[float, int]:
    """Time of a visitor on the most loaded shared channel [s], and the number of visitors that share it [1]."""
    shared = [load for load in loads if load[1] > 1 or load[1] == visitor_count]
    if not shared:
        return 0.0, visitor_count
    load_s, user_count = max(shared)
    copies = max(k for k in range(1, visitor_count // user_count + 1) if visitor_count % k == 0)
    return load_s / (visitor_count // copies), visitor_count // copies
