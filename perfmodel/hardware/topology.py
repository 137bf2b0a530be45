"""The topology of a system: sockets, memories, PCIe roots and switches, devices, storage and NICs, and routes.

Data take the route that is fastest for a large message. Devices, storage, memories and processes are only ends of
routes: a GPU does not forward data for another one. If two ends cannot reach each other directly, a copy is staged in
host memory.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Final

from perfmodel.derived import derived, derived_property
from perfmodel.errors import ArgumentError, UnknownNameError, check_known
from perfmodel.hardware.alike_sockets import Branches, branches_of, numbers
from perfmodel.hardware.ways import quickest, widest
from perfmodel.hardware.wires import Channel, MachineWires, Place, Wire, Wires
from perfmodel.numeric import largest


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """The path of a copy: one leg, or several with pauses in host memory."""

    nodes: tuple[str, ...]
    channels: tuple[Channel, ...]
    latency_s: float
    copy_count: int = 1

    @property
    def capacity_bytes_per_s(self) -> float:
        """Bandwidth of a single large copy whose legs run at once, chunk by chunk. [B/s]."""
        passes = Counter(channel.name for channel in self.channels)
        rates = [channel.capacity_bytes_per_s / passes[channel.name] for channel in self.channels]
        return min(rates, default=math.inf)

    @property
    def channel_names(self) -> tuple[str, ...]:
        """Names of the channels in order."""
        return tuple([channel.name for channel in self.channels])

    @property
    def leaves_machine(self) -> bool:
        """Whether its ends are in different machines of a cluster."""
        return self.nodes[0].rpartition("/")[0] != self.nodes[-1].rpartition("/")[0]

    @property
    def is_staged(self) -> bool:
        """Whether the copy pauses in host memory on its way."""
        return self.copy_count > 1

    def then(self, other: Route) -> Route:
        """Return this route followed by another one that starts where it ends."""
        return Route(
            nodes=(*self.nodes, *other.nodes[1:]),
            channels=(*self.channels, *other.channels),
            latency_s=self.latency_s + other.latency_s,
            copy_count=self.copy_count + other.copy_count,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Joints:
    """For each node: its neighbours with the channels there, the node above it, and the nodes on its peer links."""

    ways: dict[str, list[tuple[str, Channel]]]
    above: dict[str, str]
    peers: dict[str, set[str]]


def _joined_by(wires: Iterable[Wire], *, outside: _Joints | None = None) -> _Joints:
    """Return what some wires join; channels that lead ``outside`` come first."""
    before = {} if outside is None else outside.ways
    joints = _Joints(ways={}, above={}, peers={})
    for wire in wires:
        for one, other, channel in ((wire.lower, wire.upper, wire.upward), (wire.upper, wire.lower, wire.downward)):
            joints.ways.setdefault(one, [*before.get(one, ())]).append((other, channel))
            if wire.peer:
                joints.peers.setdefault(one, set()).add(other)
        if not wire.peer:
            joints.above[wire.lower] = wire.upper
    return joints


ENDS: Final = frozenset({"memory", "device", "storage", "process"})
"""Kinds of nodes that data do not pass through."""
NO_HUBS: Final = ENDS | {"nic"}
"""Kinds of nodes that data do not pass through, except for the NICs chosen for a copy."""


class Topology:
    """Places and the channels between them."""

    def __init__(
        self, places: Iterable[Place], wires: Iterable[Wire] | MachineWires, *, equal_machines: bool = False
    ) -> None:
        self.equal_machines = equal_machines
        self.places = {place.name: place for place in places}
        self.wires: Wires = wires if isinstance(wires, MachineWires) else tuple(wires)
        self._members: dict[str, list[str]] = {}
        for name, place in self.places.items():
            self._members.setdefault(place.node, []).append(name)
        self._between = _joined_by(self.wires.of("") if isinstance(self.wires, MachineWires) else self.wires)
        self._inside: dict[str, _Joints] = {}
        self.alike = equal_machines and len(self.fabrics) == 1
        self._first_of_equal: dict[Hashable, tuple[tuple[str, ...], tuple[Route, ...]]] = {}

    def _joints(self, name: str) -> _Joints:
        """Return what joins the places of a node's machine, found when first asked for."""
        node = self.places[name].node
        if not node or not isinstance(self.wires, MachineWires):
            return self._between
        if node not in self._inside:
            self._inside[node] = _joined_by(self.wires.of(node), outside=self._between)
        return self._inside[node]

    def _ways(self, name: str) -> list[tuple[str, Channel]]:
        """Return the neighbours of a node and the channels there."""
        return self._joints(name).ways.get(name) or self._between.ways.get(name, [])

    def above(self, name: str) -> str | None:
        """Return the node above a node, towards the sockets, if there is one."""
        like, moved = self._in_first_machine(name)
        above = self._joints(like).above.get(like)
        return above if above is None else moved(above)

    def _in_first_machine(self, name: str) -> tuple[str, Callable[[str], str]]:
        """Return the like node of the first equal machine, and a function that names its neighbours in this one.

        So the wires of one machine are enough for all.
        """
        node, first = self.places[name].node, self._first_node
        if not node or not first:
            return name, str
        return first + name[len(node) :], lambda other: node + other[len(first) :]

    @derived_property
    def _first_node(self) -> str:
        """The first of equal machines; empty if machines differ."""
        return next(filter(None, self._members), "") if self.equal_machines else ""

    @property
    def top_fabrics(self) -> tuple[str, ...]:
        """Names of the switches between machines above which there is no other."""
        between = self.wires.of("") if isinstance(self.wires, MachineWires) else self.wires
        fabrics = self.fabrics
        below = {wire.upper for wire in between if wire.lower in fabrics}  # a wire leads towards the sockets
        return tuple(name for name in self.of_kind("fabric") if name not in below)

    def __reduce__(self) -> tuple[Callable[..., Topology], tuple[tuple[Place, ...], Wires]]:
        made = partial(Topology, equal_machines=self.equal_machines)  # the rest can be recomputed and is not pickled
        return made, (tuple(self.places.values()), self.wires)

    @property
    def stated(self) -> Topology:
        """The same topology with numbers for symbols, to choose routes; itself if no link is symbolic."""
        return self

    @derived
    def of_kind(self, kind: str) -> tuple[str, ...]:
        """Return the names of all nodes of a ``kind`` [-], e.g. ``switch``, in file order."""
        return tuple(name for name, place in self.places.items() if place.kind == kind)

    def devices(self) -> tuple[str, ...]:
        """Return the names of all devices, in file order."""
        return self.of_kind("device")

    def storages(self) -> tuple[str, ...]:
        """Return the names of all drives and arrays, in file order."""
        return self.of_kind("storage")

    def nics(self) -> tuple[str, ...]:
        """Return the names of all network adapters, in file order."""
        return self.of_kind("nic")

    def memories(self) -> tuple[str, ...]:
        """Return the names of all host memories, in file order."""
        return self.of_kind("memory")

    def serving(self, memory: str) -> str:
        """Return the process that serves out of a host memory; the memory itself if processes send at any rate."""
        like, moved = self._in_first_machine(memory)
        return moved(next((other for other in self._beside(like) if self.places[other].kind == "process"), like))

    def upward(self, name: str) -> Channel:
        """Return the channel from a node to the one above it."""
        like, moved = self._in_first_machine(name)
        channel = self.channels_to(like)[self._joints(like).above[like]][0]
        one, sign, other = channel.ends
        return channel.renamed(f"{moved(one)}{sign}{moved(other)}")

    @property
    def channels(self) -> dict[str, Channel]:
        """Every channel by name."""
        both = (channel for wire in self.wires for channel in (wire.upward, wire.downward))
        return {channel.name: channel for channel in both}

    def copy_engine_count(self, device: str) -> int:
        """Count the copies that a device can run at once; if two, one in each direction. [1]"""
        return self._place(device).copy_engine_count

    def route(self, source: str, sink: str, *, through_host: bool = False) -> Route:
        """Return the path of a large copy: direct if possible, else staged in host memory.

        Parameters
        ----------
        source, sink : str
            Names of nodes. [-]
        through_host : bool
            Always stage it in host memory. [-]

        Returns
        -------
        Route
            The widest path; among equally wide ones, the one with the lowest latency, then fewest hops, then first by
            name. [-]

        Raises
        ------
        UnknownNameError
            If there is no node of that name.
        ArgumentError
            If both are the same, or no link leads from one to the other.

        Notes
        -----
        Valid for: large copies, whose time is bytes over the narrowest channel. Ignores: GPUDirect Storage, and
        forwarding by devices.

        Examples
        --------
        >>> from perfmodel.hardware.catalogue import load_system
        >>> load_system("survey_fig5").topology.route("memory0", "gpu0").nodes
        ('memory0', 'socket0', 'root0', 'gpu0')
        """
        return self._joined_legs(source, sink, through_host)

    @derived
    def _joined_legs(self, source: str, sink: str, through_host: bool) -> Route:
        return reduce(Route.then, self.legs(source, sink, through_host=through_host))

    def legs(self, source: str, sink: str, *, through_host: bool = False) -> tuple[Route, ...]:
        """Return the legs of a large copy: one direct leg, or several with pauses in host memory."""
        return self._legs(source, sink, through_host)

    @derived
    def _legs(self, source: str, sink: str, through_host: bool) -> tuple[Route, ...]:
        start, end = self._place(source), self._place(sink)
        if not self._is_like_others(start, end):
            return self._legs_between(source, sink, through_host)
        likens = {start.kind, end.kind} <= {"device", "memory"}
        legs, nodes, of_node = self._like_legs(start, end, through_host, likens=likens)
        return tuple(self._moved(leg, nodes, of_node) for leg in legs)

    def reach(self, source: str, sink: str, *, through_host: bool = False) -> tuple[float, float]:
        """Rate [B/s] and latency [s] of the path of a large copy: those of a path that lies alike, if one is known."""
        start, end = self._place(source), self._place(sink)
        if self._is_like_others(start, end):
            of_devices = start.kind == end.kind == "device"
            legs, *_ = self._like_legs(start, end, through_host, likens=of_devices or start.node == end.node)
        else:
            legs = self.legs(source, sink, through_host=through_host)
        route = reduce(Route.then, legs)
        return route.capacity_bytes_per_s, route.latency_s

    def _is_like_others(self, start: Place, end: Place) -> bool:
        """Tell whether the way between two places may be like one between other places of equal machines."""
        is_in_equal = self._members.keys() == {""} or bool(self.equal_machines and start.node and end.node)
        return is_in_equal and start.name != end.name

    def _like_legs(
        self, start: Place, end: Place, through_host: bool, *, likens: bool
    ) -> tuple[tuple[Route, ...], Mapping[str, str], Mapping[str, Mapping[str, str]]]:
        """Return legs between two places that lie alike, and the machines and parts to put in place of theirs."""
        ends = start.name.removeprefix(start.node), end.name.removeprefix(end.node)
        orders: tuple[Mapping[str, str], ...] = ({}, {})
        if likens:
            ends, orders = self._likened(ends, is_one_machine=start.node == end.node)
        leaves = self.leaf(start.node), self.leaf(end.node)
        key = (*ends, start.node == end.node, leaves[0] == leaves[1], *map(self.leaf_links, leaves), through_host)
        moved = (start.node, end.node, *leaves)
        if key not in self._first_of_equal:
            legs = self._legs_between(start.node + ends[0], end.node + ends[1], through_host)
            self._first_of_equal[key] = moved, legs
        before, legs = self._first_of_equal[key]
        return legs, dict(zip(before, moved, strict=True)), dict(zip(before, orders, strict=False))

    def _likened(
        self, ends: tuple[str, str], *, is_one_machine: bool
    ) -> tuple[tuple[str, str], tuple[Mapping[str, str], ...]]:
        """Return equivalent ends below the first alike sockets, and for each the map back to its machine's parts."""
        branches = self._branches
        if is_one_machine:
            (one, other), order = branches.likened(*ends)
            return (one, other), (order, order)
        ((one,), order), ((other,), of_other) = branches.likened(ends[0]), branches.likened(ends[1])
        return (one, other), (order, of_other)

    def likened(self, *parts: str) -> tuple[str, ...]:
        """Return parts of the first alike sockets of a machine that are related as these are, named without it."""
        return self._branches.likened(*parts)[0]

    @derived_property
    def _branches(self) -> Branches:
        """Parts of a machine, all of which are equal, by their sockets."""
        return branches_of(self, self._device_node)

    @derived
    def leaf(self, node: str) -> str:
        """Return the switch between machines on which a machine hangs; empty if there is none."""
        over_nics = (other for nic in self.of_node(node, "nic") for other, _ in self._between.ways.get(nic, ()))
        return next((other for other in over_nics if self.places[other].kind == "fabric"), "")

    @derived
    def leaf_links(self, leaf: str) -> tuple[tuple[float, ...], ...]:
        """Return rate, latency and start-up of the links from a leaf to other switches, and back. [B/s], [s], [s]"""
        others = {other: None for other, _ in (self._ways(leaf) if leaf else ()) if self.places[other].kind == "fabric"}
        both = [(leaf, other) for other in others] + [(other, leaf) for other in others]
        return tuple(numbers(channel) for one, other in both for channel in self.channels_to(one)[other])

    def _moved(self, leg: Route, nodes: Mapping[str, str], orders: Mapping[str, Mapping[str, str]]) -> Route:
        """Return a leg over the same links of other machines and leaves.

        ``nodes`` has the names of machines and leaves that it is moved to, ``orders`` the parts of each machine that
        stand in place of others.
        """
        names = []
        for name in leg.nodes:
            node = self.places[name].node
            if node or name not in nodes:
                part = name[len(node) :]
                names.append(f"{nodes.get(node, node)}{orders.get(node, {}).get(part, part)}")
            else:
                names.append(nodes[name])
        if names == list(leg.nodes):
            return leg
        stands = dict(zip(leg.nodes, names, strict=True))
        channels = (channel.renamed("".join(stands.get(end, end) for end in channel.ends)) for channel in leg.channels)
        return Route(nodes=tuple(names), channels=tuple(channels), latency_s=leg.latency_s, copy_count=leg.copy_count)

    @derived
    def channels_to(self, name: str) -> dict[str, list[Channel]]:
        """Map the neighbours of a node to the channels that lead there."""
        channels: dict[str, list[Channel]] = {}
        for other, channel in self._ways(name):
            channels.setdefault(other, []).append(channel)
        return channels

    def _legs_between(self, source: str, sink: str, through_host: bool) -> tuple[Route, ...]:
        start, end = self._place(source), self._place(sink)
        if source == sink:
            raise ArgumentError("sink", sink, "a node other than source")
        nics = self._nics_between(start, end)
        if not {start.kind, end.kind} <= ENDS or (self._is_straight(start, end) and not through_host):
            return (self._leg(source, sink, nics),)
        stops = [source, self.home_memory(source), self.home_memory(sink), sink]
        if start.node == end.node:
            del stops[1 if start.kind == "storage" else 2]
        return tuple(self._leg(*leg, nics) for leg in itertools.pairwise(dict.fromkeys(stops)))

    def _leg(self, source: str, sink: str, nics: frozenset[str]) -> Route:
        """Return a leg of a copy, found once for all copies with these NICs in the machines of the leg."""
        nodes = {self.places[source].node, self.places[sink].node}
        return self._route(source, sink, frozenset(nic for nic in nics if self.places[nic].node in nodes))

    def _is_straight(self, start: Place, end: Place) -> bool:
        """Tell whether data can go from one end to another without a pause in host memory."""
        devices = [place.name for place in (start, end) if place.kind == "device"]
        if len(devices) == 2:
            return self.peer_to_peer(*devices) or self.rdma(*devices)
        has_memory = "memory" in (start.kind, end.kind)
        return has_memory and (start.node == end.node or all(self.rdma_nics(name) for name in devices))

    def home_memory(self, name: str) -> str:
        """Return the memory of the socket that a node is attached to."""
        if self._place(name).kind == "memory":
            return name
        like, moved = self._in_first_machine(name)
        memory = self._memory_near(like)
        if memory is None:
            raise ArgumentError("name", name, "a node attached to a socket")
        return moved(memory)

    @derived
    def _memory_near(self, name: str) -> str | None:
        """Return the memory of the socket above a node, if there is one."""
        socket = next((above for above in self.upwards(name) if self.places[above].kind == "socket"), None)
        return socket and next(other for other in self._beside(socket) if self.places[other].kind == "memory")

    def root_complex(self, name: str) -> str:
        """Return the PCIe root above a node: one that the file lists, else the socket."""
        for above in self.upwards(name):
            if self.places[above].kind in ("root", "socket"):
                return above
        raise ArgumentError("name", name, "a node attached to a root or socket")

    def peer_to_peer(self, first: str, second: str) -> bool:
        """Tell whether two devices can copy directly from one to the other (GPUDirect P2P).

        Notes
        -----
        Valid for: the limits of the wiring. Ignores: drivers that disable it on consumer boards, and the limit of
        eight peers per device.
        """
        one, other = self._device(first), self._device(second)
        if one.node != other.node:
            return False
        if first == second or self.root_complex(first) == self.root_complex(second):
            return True
        return second in self._peers(first)

    def rdma(self, first: str, second: str) -> bool:
        """Tell whether NICs can read and write the memories of two devices in different machines (GPUDirect RDMA)."""
        one, other = self._device(first), self._device(second)
        return one.node != other.node and all(self.rdma_nics(name) for name in (first, second))

    @derived
    def rdma_nics(self, device: str) -> tuple[str, ...]:
        """Return the NICs that can reach a device's memory without passing through host memory."""
        like, moved = self._in_first_machine(self._device(device).name)
        nics = self._rdma_nics_by_root(self.places[like].node).get(self.root_complex(like), ())
        return tuple(map(moved, nics))

    @derived
    def _rdma_nics_by_root(self, node: str) -> dict[str, tuple[str, ...]]:
        """Return the NICs of a machine that reach device memory, by the PCIe root above them."""
        by_root: dict[str, tuple[str, ...]] = {}
        for nic in self.of_node(node, "nic"):
            if self.places[nic].has_rdma and self._is_networked(nic):
                root = self.root_complex(nic)
                by_root[root] = (*by_root.get(root, ()), nic)
        return by_root

    def own_nic(self, device: str) -> str | None:
        """Return the NIC for a device's messages to other machines."""
        node = self._device(device).node
        if not self.equal_machines:
            return self._own_nics(node)[device]
        nic = self._own_nics(self._device_node)[self._device_node + device.removeprefix(node)]
        return nic if nic is None else node + nic.removeprefix(self._device_node)

    @derived_property
    def _device_node(self) -> str:
        """The first machine with devices, or else the first; among equal machines it stands for all."""
        with_devices = (node for node, names in self._members.items() if any(map(self._is_device, names)))
        return next(with_devices, next(iter(self._members)))

    def _is_device(self, name: str) -> bool:
        return self.places[name].kind == "device"

    @derived
    def _own_nics(self, node: str) -> dict[str, str | None]:
        """Return the NIC of each device of a machine; devices near the same NICs take them in turn."""
        nic_of: dict[str, str | None] = {}
        turns: Counter[tuple[str, ...]] = Counter()
        for device in self.of_node(node, "device"):
            nearest = self._nearest_nics(device)
            nic_of[device] = nearest[turns[nearest] % len(nearest)] if nearest else None
            turns[nearest] += 1
        return nic_of

    def _nearest_nics(self, device: str) -> tuple[str, ...]:
        """Return the NICs that are the fewest links away from a device, in file order."""
        node, above = self._device(device).node, list(self.upwards(device))
        links: dict[str, float] = {}
        reaching = self.rdma_nics(device)
        for nic in reaching or [name for name in self.of_node(node, "nic") if self._is_networked(name)]:
            ways = [above.index(name) + steps for steps, name in enumerate(self.upwards(nic)) if name in above]
            links[nic] = min(ways, default=math.inf)
        return tuple(nic for nic, count in links.items() if count == min(links.values()))

    def _nics_between(self, *ends: Place) -> frozenset[str]:
        """Return the NICs that a copy may use: the NIC of each end device, and all NICs in machines without one."""
        if len({end.node for end in ends}) == 1:
            return frozenset()
        nic_of_node = {end.node: self.own_nic(end.name) for end in ends if end.kind == "device"}
        nics = (nic for end in ends for nic in self.of_node(end.node, "nic"))
        return frozenset(nic for nic in nics if nic_of_node.get(self.places[nic].node, nic) == nic)

    @derived
    def of_node(self, node: str, kind: str) -> tuple[str, ...]:
        """Return the nodes of a kind in one machine, in file order."""
        return tuple(name for name in self.members(node) if self.places[name].kind == kind)

    def members(self, node: str) -> Sequence[str]:
        """Return the names of everything in one machine, in file order."""
        return self._members.get(node, ())

    @property
    def fabrics(self) -> frozenset[str]:
        """Names of the switches between machines."""
        return frozenset(self.of_kind("fabric"))

    def joined_to(self, name: str) -> frozenset[str]:
        """Return the nodes that peer links join to a node."""
        like, moved = self._in_first_machine(name)
        return frozenset(map(moved, self._joints(like).peers.get(like, ())))

    @derived
    def attachment(self, name: str) -> Hashable:
        """Return what a node hangs on; those that hang on the same, e.g. one root, are equally far from any other."""
        ways = [
            (other, tuple(map(numbers, channels)), tuple(map(numbers, self.channels_to(other)[name])))
            for other, channels in self.channels_to(name).items()
        ]
        return self._place(name).kind, self.above(name), tuple(ways)

    def _is_networked(self, nic: str) -> bool:
        """Tell whether a link leads from a NIC to another machine."""
        beyond = (self.places[name] for name in self._beside(nic))
        return any(place.kind == "fabric" or place.node != self.places[nic].node for place in beyond)

    def _beside(self, name: str) -> Iterator[str]:
        """Yield the neighbours of a node, in file order."""
        return (other for other, _ in self._ways(name))

    def _place(self, name: str) -> Place:
        try:
            return self.places[name]
        except (KeyError, TypeError):  # it may not even be hashable
            check_known("node of the system", name, self.places)
            raise

    def _device(self, name: str) -> Place:
        place = self._place(name)
        if place.kind != "device":
            raise UnknownNameError(kind="device of the system", name=name, known=self.devices())
        return place

    def _peers(self, device: str) -> frozenset[str]:
        """Return the devices that a device reaches over one peer link or one peer switch."""
        over = self.joined_to(device)
        switches = {name for name in over if self.places[name].kind == "switch"}
        return over.union(*map(self.joined_to, switches)) - switches

    def upwards(self, name: str) -> Iterator[str]:
        """Yield the nodes from a node up to its socket."""
        while True:
            yield name
            above = self.above(name)
            if self.places[name].kind in ("socket", "fabric") or above is None:
                return
            name = above

    @derived
    def _route(self, source: str, sink: str, nics: frozenset[str]) -> Route:
        """Return the widest path; among equals, by lowest latency, then fewest hops, then name."""
        edges = self._edges(source, sink, nics)
        width = widest(edges, source, sink)
        if width is None:
            raise ArgumentError("sink", sink, f"a node that can be reached from {source!r}")
        nodes, channels = quickest(edges, source, sink, width=width)
        latency = sum(channel.latency_s for channel in channels) + self._startup_s(nodes, channels)
        return Route(nodes=nodes, channels=channels, latency_s=latency)

    def _startup_s(self, nodes: tuple[str, ...], channels: tuple[Channel, ...]) -> float:
        """Return the start-up time of a message: of its network adapters if it uses any, else of the copy. [s]"""
        ends = zip(itertools.pairwise(nodes), channels, strict=True)
        over_network = [channel for pair, channel in ends if "fabric" in {self.places[name].kind for name in pair}]
        startups_s = [channel.startup_s for channel in over_network or channels]
        return largest(startups_s) if startups_s else 0.0

    def _edges(self, source: str, sink: str, nics: frozenset[str]) -> dict[str, list[tuple[str, Channel]]]:
        """Map each node that data may leave to its neighbours and the channels to them."""
        hubs = self._between_hubs(frozenset({self.places[source].node, self.places[sink].node}), nics)
        edges = dict(hubs)
        for end in {source, sink} - hubs.keys():
            near = self.channels_to(end)
            edges[end] = [
                (name, channel)
                for name, channels in near.items()
                if name in hubs or name in (source, sink)
                for channel in channels
            ]
            for name in near.keys() & hubs.keys():
                edges[name] = [*edges[name], *((end, channel) for channel in self.channels_to(name)[end])]
        return edges

    @derived
    def _between_hubs(self, inside: frozenset[str], nics: frozenset[str]) -> dict[str, list[tuple[str, Channel]]]:
        """Map each node that data may pass, inside these machines or through these NICs, to neighbours and channels."""
        crosses = len(inside) > 1
        near = [name for node in {*inside, ""} for name in self.members(node)]
        hubs = {
            name
            for name in near
            if name in nics
            or (self.places[name].kind not in NO_HUBS and (self.places[name].node in inside or name in self.fabrics))
        }
        if not crosses and inside != {""}:
            hubs = {name for name in hubs if self.places[name].node in inside}
        return {name: [way for way in self._ways(name) if way[0] in hubs] for name in hubs}
