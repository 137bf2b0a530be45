"""A collective on a topology: the channels that its messages use, and their rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from operator import mul
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.message_protocols import pipelined_time
from perfmodel.cost.transfer import longest_byte_time, rates_of_passes
from perfmodel.derived import derived_property, record, uncollected
from perfmodel.errors import ArgumentError
from perfmodel.numeric import largest, minimum
from perfmodel.symbolic import Quantity, is_symbolic
from perfmodel.sync import alike_messages
from perfmodel.sync.alike_messages import (
    MANY_ALIKE,
    Ends,
    Groups,
    classes_of_rounds,
    one_by_one,
    recognised,
    standing_for_all,
    worth_sorting,
)
from perfmodel.sync.base import SERVER, Collective, Message, Round
from perfmodel.sync.folding import representatives, roles_among
from perfmodel.sync.placed_round import Line, PlacedRound, pairs_that_meet, to_servers
from perfmodel.sync.ring_order import ring_order, ring_starts

if TYPE_CHECKING:
    from perfmodel.hardware.topology import Route, Topology


def byte_times(routes: Sequence[Route], weights: Sequence[float] | None = None) -> list[Quantity]:
    """Time per byte of each flow; a route has one flow, or as many as its weight. [s/B]"""
    counts: Sequence[float] = [1] * len(routes) if weights is None else weights
    flows: dict[str, float] = {}
    for route, count in zip(routes, counts, strict=True):
        for channel in route.channels:
            flows[channel.name] = flows.get(channel.name, 0) + count
    return [
        longest_byte_time(
            capacity=[channel.capacity_bytes_per_s for channel in route.channels],
            flow_counts=[flows[channel.name] / count for channel in route.channels],
        )
        for route, count in zip(routes, counts, strict=True)
    ]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Call:
    """A collective of one size, as it is run and simulated.

    Parameters
    ----------
    placed : Placed
        The algorithm, with the latency that its rounds have in this call. [-]
    wire_bytes : float
        Bytes, n, on the links, including a protocol's flags. [B]
    launch_s : float
        Cost of the call before the first message. [s]
    """

    placed: Placed
    wire_bytes: float
    launch_s: float = 0.0


@record
class Placed:
    """A collective among some devices of a system.

    Parameters
    ----------
    collective : Collective
        The algorithm. [-]
    order : tuple of str
        Devices by rank; in a ring, neighbours are near each other. [-]
    servers : tuple of str
        Nodes of its servers. [-]
    rounds : tuple of PlacedRound
        Its messages with their rates. [-]
    way : callable
        Takes a source and a sink, and returns the route between them. [-]
    reduce_s_per_byte : float
        Time to add one byte to another. [s/B]
    device_count : int
        Devices that take part, including those of simultaneous groups; 0 for those of the messages. [1]
    rank_share : float
        Share of the devices that send the messages in ``rounds``; those of the others are like them. [1]
    cut : tuple of Placed
        The same with its message cut into more chunks; the fastest runs. [-]
    """

    collective: Collective
    order: tuple[str, ...]
    servers: tuple[str, ...]
    rounds: tuple[PlacedRound, ...]
    way: Callable[[int, int], Route]
    reduce_s_per_byte: float = 0.0
    device_count: int = 0
    rank_share: float = 1.0
    cut: tuple[Placed, ...] = ()
    by_library: ClassVar[bool] = False

    @derived_property
    def _ways(self) -> tuple[Placed, ...]:
        """The collective with each number of chunks that it may be cut into."""
        return (replace(self, cut=()), *self.cut)

    def fastest(self, size_bytes: float) -> Placed:
        """Return the collective with the number of chunks that is best for this many bytes [B]."""
        return min(self._ways, key=lambda way: float(way.time(size_bytes))) if self.cut else self

    @derived_property
    def fill_rounds(self) -> int:
        """Rounds that fill a pipeline, in both directions; 0 where nothing is cut into chunks. [1]."""
        return self.collective.fill_rounds(len(self.order)) if self.rounds else 0

    @property
    def rank_count(self) -> int:
        """Devices that take part, including those of simultaneous groups. [1]."""
        if self.device_count:
            return self.device_count
        ranks = [max(message.source, message.sink) for round_ in self.rounds for message in round_.messages]
        return 1 + max(ranks, default=len(self.order) - 1)

    @property
    def is_complete(self) -> bool:
        """Whether every message is in ``rounds``, so that all can be played."""
        return self.rank_share == 1 and not any(round_.counts for round_ in self.rounds)

    @derived_property
    def different_rates(self) -> tuple[Quantity, ...]:
        """Rates that messages have. [B/s]"""
        return tuple(dict.fromkeys(rate for round_ in self.rounds for rate in round_.rates_bytes_per_s))

    @derived_property
    def reduced_share(self) -> float:
        """Part of the n bytes that the busiest rank adds up. [1]."""
        return sum(round_.repeat * round_.reduced_share for round_ in self.rounds)

    def time(self, size_bytes: Quantity) -> Quantity:
        """Time of a collective of this many bytes. [s]

        Notes
        -----
        Valid for: rounds in which all wait for the last message, at the rates while all are in flight. Those between
        a server and ranks in its own machine begin before those between machines, and are ahead of them on the channels
        that both pass. Ignores: that flows speed up when others end, except for these, and that a rank may begin its
        next message earlier. The simulator models both: there the collective ends no later, and at the same time if all
        messages are alike.
        """
        if self.cut:
            return reduce(minimum, [way.time(size_bytes) for way in self._ways])
        added = self.reduce_s_per_byte * self.reduced_share * size_bytes
        if fill_rounds := self.fill_rounds:
            fill_s, stream_s_per_byte = self._pipeline
            pipelined = pipelined_time(
                fill_s=fill_s,
                stream_s=stream_s_per_byte * size_bytes,
                fill_rounds=fill_rounds,
                chunk_count=self.collective.chunk_count,
            )
            return pipelined + added
        if self._line is not None and not is_symbolic(size_bytes):
            latency_s, per_byte = self._line
            return latency_s + per_byte * size_bytes + added
        return sum((round_.repeat * round_.time(size_bytes) for round_ in self.rounds), 0.0 * size_bytes) + added

    @derived_property
    def _pipeline(self) -> tuple[Quantity, Quantity]:
        """Latency before a pipeline is full [s], and seconds per byte that it streams. [s/B]"""
        latencies_s = [latency_s for round_ in self.rounds for latency_s in round_.latencies_s]
        near_s = latencies_s[0] if is_symbolic(*latencies_s) else min(latencies_s)
        far_s = largest(round_.latency_s for round_ in self.rounds)
        fill_s = self.collective.fill_latency(len(self.order), near_s=near_s, far_s=far_s)
        return fill_s, sum(round_.seconds_per_byte for round_ in self.rounds)

    @derived_property
    def _line(self) -> Line | None:
        """Latency and seconds per byte of all rounds; None where the size decides which message is last. [s, s/B]"""
        lines = [(round_.repeat, *round_.lines[0]) for round_ in self.rounds if len(round_.lines) == 1]
        if len(lines) < len(self.rounds) or is_symbolic(*chain(*lines)):
            return None
        repeats, latencies_s, per_byte = zip(*lines, strict=True) if lines else ((), (), ())
        return sum(map(mul, repeats, latencies_s)), sum(map(mul, repeats, per_byte))

    def call(self, size_bytes: float) -> Call:
        """Return the collective of this many bytes [B] as it is run."""
        return Call(placed=self.fastest(size_bytes), wire_bytes=size_bytes)

    def with_latencies(self, factor: float, *, network_s: float = 0.0) -> Placed:
        """Scale the latency of every message by a factor [1], and add a time [s] to those that leave a machine."""

        def slowed(round_: PlacedRound) -> PlacedRound:
            ways = zip(round_.latencies_s, round_.leaves, strict=True)
            latencies_s = tuple(factor * latency_s + network_s * leaves for latency_s, leaves in ways)
            return replace(round_, latencies_s=latencies_s)

        rounds = map(slowed, self.rounds)
        cut = tuple(way.with_latencies(factor, network_s=network_s) for way in self.cut)
        return replace(self, rounds=tuple(rounds), cut=cut)

    @property
    def latency_s(self) -> Quantity:
        """Time of an empty collective, A of T = A + B n. [s]."""
        latency_s = self.time(0.0)
        return latency_s if is_symbolic(latency_s) else float(latency_s)

    @property
    def path_latency_s(self) -> Quantity:
        """Latency of one part on its way through all ranks, if ranks do not wait for rounds to end. [s]"""
        if self.fill_rounds:
            return self.latency_s
        repeated = [round_.mean_latency_s if round_.repeat > 1 else round_.latency_s for round_ in self.rounds]
        return sum(round_.repeat * latency_s for round_, latency_s in zip(self.rounds, repeated, strict=True))

    @derived_property
    def network_rounds(self) -> float:
        """Rounds on the way of ``path_latency_s`` that leave a machine, averaged over rings. [1]"""
        crosses = any(any(round_.leaves) for round_ in self.rounds)
        if not crosses:
            return 0.0
        if self.fill_rounds:
            count = self.collective.fill_latency(len(self.order), near_s=0, far_s=1)
            return float(count)
        return sum(round_.repeat * (round_.mean_crossings if round_.repeat > 1 else 1.0) for round_ in self.rounds)

    @property
    def waits_for_network(self) -> bool:
        """Whether the network's latency is exposed: in trees, and where each machine has one rank."""
        return bool(self.fill_rounds) or self.network_rounds >= sum(round_.repeat for round_ in self.rounds)

    @property
    def seconds_per_byte(self) -> Quantity:
        """Time per byte of a large collective, B of T = A + B n. [s/B]."""
        if self.cut:
            return self.cut[-1].seconds_per_byte
        slopes = [round_.repeat * round_.seconds_per_byte for round_ in self.rounds]
        return sum(slopes) + self.reduce_s_per_byte * self.reduced_share

    @derived_property
    def paired_share(self) -> float:
        """Part of the n bytes that each adapter's trees send up and down between exactly two machines, else 0. [1]"""
        size = self.collective.group_size
        if not (self.fill_rounds and size and len(self.order) == 2 * size):
            return 0.0
        sent = [zip(round_.messages, round_.leaves, strict=True) for round_ in self.rounds]
        return sum(max(message.share for message, leaves in messages if leaves) for messages in sent)

    def sent_bytes(self, size_bytes: Quantity) -> Quantity:
        """Bytes of all messages together, including those of simultaneous groups. [B]"""
        return size_bytes * self._sent_share

    @derived_property
    def _sent_share(self) -> float:
        if self.rank_share < 1:
            return self.device_count / len(self.order) * self.collective.sent_share(len(self.order))
        return sum(round_.repeat * round_.sent_share for round_ in self.rounds)

    def routes(self, round_: PlacedRound) -> tuple[Route, ...]:
        """Return the route of each message of one of its rounds."""
        messages = round_.messages
        if messages not in self._routes:
            self._routes[messages] = tuple([self.way(source, sink) for source, sink, _ in messages])
        return self._routes[messages]

    @derived_property
    def _routes(self) -> dict[tuple[Message, ...], tuple[Route, ...]]:
        """Routes that are known, by messages."""
        return {}

    @property
    def channels(self) -> frozenset[str]:
        """Names of the channels that it uses."""
        return frozenset(self.channel_bytes(1.0))

    def channel_bytes(self, size_bytes: Quantity) -> Mapping[str, Quantity]:
        """Bytes over each channel. [B]"""
        shares: dict[str, float] = {}
        for round_ in self.rounds:
            for message, route in zip(round_.messages, self.routes(round_), strict=True):
                for name in route.channel_names if message.share else ():
                    shares[name] = shares.get(name, 0.0) + round_.repeat * message.share
        return {name: share * size_bytes for name, share in shares.items()}


@uncollected
def place(
    collective: Collective,
    topology: Topology,
    ranks: Sequence[str],
    *,
    servers: Sequence[str] = (),
    beside: Sequence[Sequence[str]] = (),
    reduce_s_per_byte: float = 0.0,
    through_host: bool = False,
    **options: Any,
) -> Placed:
    """Put a collective on devices of a system.

    Parameters
    ----------
    collective : Collective
        The algorithm. [-]
    topology : Topology
        The system. [-]
    ranks : sequence of str
        Devices, or host memories if CPUs are the workers. [-]
    servers : sequence of str
        Nodes of its servers, used even by a single rank; by default the hosts' memories in turn, or the switch above
        all ranks. [-]
    beside : sequence of sequence of str
        Further groups of the same size that run at the same time and share channels with ``ranks``. [-]
    reduce_s_per_byte : float
        Time to add one byte to another. [s/B]
    through_host : bool
        Whether copies between devices go through host memory, e.g. without peer access. [-]
    **options : object
        Options of the algorithm; ``group_size`` defaults to the devices of a machine. [-]

    Returns
    -------
    Placed
        The collective with its time and the bytes over each channel.

    Raises
    ------
    ArgumentError
        If a name occurs twice, the number of servers or an option is wrong, or no link joins the ends of a message.
    UnknownNameError
        If a node does not exist.

    Examples
    --------
    Eight A100 on NVSwitch, 12 x 25 GB/s each way at 85 % efficiency and packets of 256 of 272 bytes:

    >>> from perfmodel.hardware.catalogue import load_system
    >>> from perfmodel.sync.registry import collective
    >>> topology = load_system("dgx_a100").topology
    >>> ring = place(collective("ring_all_reduce"), topology, topology.devices())
    >>> round(1.75 / ring.seconds_per_byte / 1e9)  # bus bandwidth, GB/s
    255
    """
    _check_groups(collective, topology, ranks, beside)
    if "group_size" in collective.option_names and options.get("group_size") is None:
        options["group_size"] = _machine_size(topology, ranks)
    collective = collective.given(**options)
    orders = stated = [tuple(group) for group in (ranks, *beside)]
    if topology.equal_machines and _exchanges_many(stated, servers, options.get("server_count")):
        ends = Ends(topology=topology, names={}, through_host=through_host)
        return _between_roles(collective, ends, stated, tuple(servers), reduce_s_per_byte)
    if not servers:
        orders = representatives(topology, tuple(stated), few=collective.folds)
    if collective.ring and len(ranks) > 1:
        orders = [ring_order(topology.stated, order, through_host=through_host) for order in orders]
    rounds = collective.rounds(len(orders[0]))
    if len(orders[0]) < len(ranks):
        rounds = collective.folded(rounds, worker_count=len(ranks))
    if servers and len(ranks) == 1:  # a single worker only talks to the servers
        rounds = collective.schedule(1)
    needed = collective.server_count_of() if rounds else 0
    hosts = [tuple(servers) or _default_servers(collective, topology, order, needed) for order in orders]
    for nodes in hosts:
        if len(nodes) != needed:
            raise ArgumentError("servers", nodes, f"{needed} nodes: one for each server of {collective.name}")
    if collective.per_adapter and rounds:
        rings = ring_starts(topology.stated, orders[0], through_host=through_host)
        rounds = tuple(_on_rings(round_, rings) for round_ in rounds)
    groups = Groups(topology, orders, hosts, through_host=through_host)
    merged = list(map(groups.merged, rounds))
    ends = groups.ends()
    by_class = worth_sorting(merged, ends, plays=collective.plays)
    if by_class and len(kept := standing_for_all(merged, len(orders), ends)) < len(orders):
        groups = groups.only(kept)
        merged, ends = list(map(groups.merged, rounds)), groups.ends()
    placing = _Placing(ends, by_class=by_class)
    placed = Placed(
        collective=collective,
        order=orders[0] if orders[0] and len(orders[0]) == len(ranks) else stated[0],
        servers=hosts[0],
        rounds=classes_of_rounds(merged, ends) if by_class else tuple(map(placing, merged)),
        way=ends.route,
        reduce_s_per_byte=reduce_s_per_byte,
        device_count=len(ranks) * len(stated),
        rank_share=len(groups.orders) * len(orders[0]) / (len(stated) * len(ranks)),
    )
    if rounds and collective.chunk_count is None:
        placed = replace(placed, cut=_cut(placed, groups.merged, placing))
    return placed


def _exchanges_many(groups: Sequence[Sequence[str]], servers: Sequence[str], server_count: int | None) -> bool:
    """Whether so many messages go between all ranks and all servers that two machines of each role stand for all."""
    message_count = 2 * sum(map(len, groups)) * len(servers)
    return len(servers) == server_count and message_count >= alike_messages.MANY_TO_SERVERS


def _between_roles(
    collective: Collective,
    ends: Ends,
    groups: Sequence[tuple[str, ...]],
    servers: tuple[str, ...],
    reduce_s_per_byte: float,
) -> Placed:
    """Place messages between all ranks and all servers by those of two machines of each role."""
    every = [name for group in groups for name in group]
    roles = roles_among(ends.topology, every, servers)
    ranks, hosts = roles.kept(every), roles.kept(servers)
    rounds = collective.given(server_count=len(hosts)).schedule(len(ranks))
    rounds = collective.folded(rounds, worker_count=len(groups[0]))
    names = dict(enumerate(ranks)) | {SERVER - index: name for index, name in enumerate(hosts)}
    ends = replace(ends, names=names, roles=roles)
    return Placed(
        collective=collective,
        order=groups[0],
        servers=servers,
        rounds=classes_of_rounds(rounds, ends),
        way=ends.route,
        reduce_s_per_byte=reduce_s_per_byte,
        device_count=len(every),
    )


def _cut(
    placed: Placed, merged: Callable[[Round], Round], placed_round: Callable[[Round], PlacedRound]
) -> tuple[Placed, ...]:
    """Return the same collective with its message cut into more chunks."""

    def of_count(count: int) -> Placed:
        rounds = placed.collective.rounds(len(placed.order), chunk_count=count)
        return replace(placed, rounds=tuple(map(placed_round, map(merged, rounds))))

    return tuple(of_count(count) for count in placed.collective.chunk_counts[1:])


class _Placing:
    """Rounds on a topology: one with the ends of another, and its shares or equal ones, is as fast."""

    def __init__(self, ends: Ends, *, by_class: bool) -> None:
        self.ends, self.by_class = ends, by_class
        self.known: dict[Hashable, PlacedRound] = {}
        self.like: dict[Hashable, PlacedRound] = {}

    def __call__(self, round_: Round) -> PlacedRound:
        equal_share = 0.0 if np.ndim(round_.share) or round_.ring_share else float(round_.share)
        shares = () if equal_share else (round_.shares.tobytes(), round_.ring_share)
        key = round_.sources.tobytes(), round_.sinks.tobytes(), shares
        like = self.known.get(key)
        if like is None:
            like = self.known[key] = self._placed(round_)
            return like
        messages = like.messages
        if equal_share and messages and equal_share != messages[0].share:
            messages = tuple([Message(source, sink, equal_share) for source, sink, _ in messages])
        return replace(like, messages=messages, reduced_share=round_.reduced_share, repeat=round_.repeat)

    def _placed(self, round_: Round) -> PlacedRound:
        """Place a round with new ends; one of few messages by another among equal machines that takes the same time."""
        if self.by_class:
            return classes_of_rounds([round_], self.ends)[0]
        kind = recognised(round_, self.ends) if _are_equal(self.ends.topology) else None
        if kind is None:
            return _placed(round_, self.ends)
        if kind not in self.like:
            self.like[kind] = _placed(round_, self.ends)
        return replace(self.like[kind], messages=round_.messages, repeat=round_.repeat)


def _are_equal(topology: Topology) -> bool:
    """Whether a topology is of equal machines, and is the one that was stated."""
    return topology.equal_machines and topology.stated is topology


def _check_groups(
    collective: Collective, topology: Topology, ranks: Sequence[str], beside: Sequence[Sequence[str]]
) -> None:
    """Raise if groups share devices or differ in size, or the algorithm does not run among them."""
    known = Counter([*ranks, *(name for group in beside for name in group)])
    twice = [name for name, count in known.items() if count > 1]
    if twice:
        raise ArgumentError("ranks", twice[0], "distinct devices")
    if any(len(group) != len(ranks) for group in beside):
        raise ArgumentError("beside", [len(group) for group in beside], f"groups of {len(ranks)} devices, as ranks has")
    if not collective.fits(topology, ranks):
        raise ArgumentError("ranks", ", ".join(ranks), f"devices of one machine whose switch runs {collective.name}")


def _on_rings(round_: Round, rings: NDArray[np.int64]) -> Round:
    """Share a round's bytes among several rings; messages between the same two ranks become one."""
    ring_count, rank_count = rings.shape
    if ring_count == 1 and bool((np.diff(rings[0]) == 1).all()):
        return round_
    pairs = rings[:, round_.sources] * rank_count + rings[:, round_.sinks]
    pair, first, number = np.unique(pairs.ravel(), return_index=True, return_inverse=True)
    shares = np.bincount(number, weights=np.tile(round_.shares / ring_count, ring_count)).astype(float)
    order = np.argsort(first)
    sources, sinks = np.divmod(pair[order], rank_count)
    ring_share = float(round_.shares[0]) / ring_count
    return replace(round_, sources=sources, sinks=sinks, share=shares[order], ring_share=ring_share)


def _placed(round_: Round, ends: Ends) -> PlacedRound:
    if len(round_) >= MANY_ALIKE and _are_equal(ends.topology):
        return one_by_one(round_, ends)
    messages = round_.messages
    routes = [ends.route(source, sink) for source, sink, _ in messages]
    leaves = tuple([route.leaves_machine for route in routes])
    weights = [round_.weight(message.share) for message in messages]
    flows = [index for index, message in enumerate(messages) if message.share]
    apart: tuple[float, ...] = ()
    if to_servers(round_):
        near, far = ([at for at in flows if leaves[at] == leaving] for leaving in (False, True))
        apart = _rates_in_sets(weights, routes, near, far) if near and far else ()
    return PlacedRound(
        messages=messages,
        latencies_s=tuple([route.latency_s for route in routes]),
        leaves=leaves,
        rates_bytes_per_s=_rates_in_sets(weights, routes, flows),
        reduced_share=round_.reduced_share,
        repeat=round_.repeat,
        apart_bytes_per_s=apart,
        meetings=tuple(dict.fromkeys(pairs_that_meet(messages, routes))) if apart else (),
    )


def _rates_in_sets(weights: Sequence[float], routes: Sequence[Route], *sets: list[int]) -> tuple[float, ...]:
    """Rate of each message while only its own set is in flight; infinite for one in no set. [B/s]"""
    capacities = {channel.name: channel.capacity_bytes_per_s for route in routes for channel in route.channels}
    open_links = is_symbolic(*capacities.values())
    rates = np.full(len(routes), np.inf, dtype=object if open_links else float)
    for flows in filter(None, sets):
        used = [routes[index] for index in flows]
        weighed = [weights[index] for index in flows]
        if open_links:
            rates[flows] = [1 / per_byte for per_byte in byte_times(used, weighed)]
            continue
        names = [name for route in used for name in route.channel_names]
        number = {name: place for place, name in enumerate(dict.fromkeys(names))}
        rates[flows] = rates_of_passes(
            capacity=np.array([capacities[name] for name in number]),
            flow=np.repeat(np.arange(len(used)), [len(route.channels) for route in used]),
            channel=np.array([number[name] for name in names]),
            uses=np.ones(len(names)),
            weights=np.array(weighed),
        )
    return tuple(rates.tolist())


def _machine_size(topology: Topology, ranks: Sequence[str]) -> int:
    """Return the number of ranks in each machine."""
    sizes = Counter(topology.places[name].node if name in topology.places else "" for name in ranks)
    if len(set(sizes.values())) > 1:
        first = {count: node for node, count in reversed(sizes.items())}  # name one machine for each number
        counts = ", ".join(f"{count} in {node}" for count, node in reversed(first.items()))
        raise ArgumentError("ranks", counts, "the same number in each machine; otherwise pass group_size")
    return next(iter(sizes.values()), 1)


def _default_servers(collective: Collective, topology: Topology, ranks: Sequence[str], count: int) -> tuple[str, ...]:
    if not count:
        return ()
    if collective.server_kind == "switch":
        return (_switch(topology, ranks),)
    memories = list(dict.fromkeys(topology.home_memory(name) for name in ranks))
    return tuple(topology.serving(memories[index % len(memories)]) for index in range(count))


def _switch(topology: Topology, ranks: Sequence[str]) -> str:
    """Return the node above all ranks: the top of the fabric, a switch of peer links, or one PCIe root."""
    if len({topology.places[name].node for name in ranks}) > 1:
        nodes = list(topology.top_fabrics)
    else:
        near = topology.joined_to(ranks[0])
        switches = [name for name in topology.of_node(topology.places[ranks[0]].node, "switch") if name in near]
        nodes = [name for name in switches if topology.joined_to(name).issuperset(ranks)]
        roots = {topology.root_complex(name) for name in ranks}
        nodes += list(roots) if len(roots) == 1 else []
    if not nodes:
        raise ArgumentError("ranks", ", ".join(ranks), "devices below one switch, root or fabric")
    return nodes[0]
