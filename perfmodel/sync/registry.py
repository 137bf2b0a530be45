"""The list of collective algorithms, and libraries that choose among them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from perfmodel.cost.message_protocols import protocol_time, units_taken_share
from perfmodel.errors import check_known
from perfmodel.numeric import largest, maximum, minimum
from perfmodel.symbolic import Quantity, is_symbolic
from perfmodel.sync.base import Collective
from perfmodel.sync.pairs import AllToAll, HalvingDoubling, RecursiveDoubling, SendReceive
from perfmodel.sync.placed import Call, Placed
from perfmodel.sync.placed_alike import placed_once
from perfmodel.sync.rings import AllGather, ChainBroadcast, Hierarchical, ReduceScatter, RingAllReduce
from perfmodel.sync.stars import (
    FabricSwitch,
    HostTree,
    InNetwork,
    MulticastSwitch,
    OneToAll,
    ParameterServer,
    SwitchTrees,
)
from perfmodel.sync.trees import BinomialTree, Broadcast, DoubleBinaryTree, LibraryTrees, MachineTrees
from perfmodel.units import GIGA, MICROSECOND

if TYPE_CHECKING:
    from perfmodel.hardware.library import BlocksTable, CollectiveLibrary
    from perfmodel.hardware.topology import Topology

ALL_REDUCES: Final[dict[str, Collective]] = {
    strategy.name: strategy
    for strategy in (
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
"""Algorithms that give every worker the sum, by name."""
COLLECTIVES: Final[dict[str, Collective]] = ALL_REDUCES | {
    strategy.name: strategy
    for strategy in (
        *(ReduceScatter(), AllGather(), AllToAll(), Broadcast(), SendReceive()),
        *(
            LibraryTrees(),
            MachineTrees(),
            MulticastSwitch(),
            FabricSwitch(),
            SwitchTrees(),
            ChainBroadcast(),
        ),  # of libraries only
    )
}
"""All algorithms by name."""


def collective(name: str) -> Collective:
    """Look up a collective algorithm by name.

    Raises
    ------
    UnknownNameError
        If no algorithm has that name; suggests the nearest.

    Examples
    --------
    >>> collective("ring_all_reduce").time(size_bytes=8e6, worker_count=4, latency_s=0.0, seconds_per_byte=1e-9)
    0.012
    """
    check_known("collective algorithm", name, COLLECTIVES)
    return COLLECTIVES[name]


def for_machines(
    algorithm: Collective,
    topology: Topology,
    ranks: Sequence[str],
    *,
    among: Iterable[Collective] = COLLECTIVES.values(),
    by_name: bool = False,
) -> Collective:
    """Return the special form that an algorithm has on these machines, or the algorithm itself.

    Parameters
    ----------
    algorithm : Collective
        The algorithm. [-]
    topology : Topology
        The system. [-]
    ranks : sequence of str
        Names of devices. [-]
    among : iterable of Collective
        Algorithms that may run. [-]
    by_name : bool
        Whether the user named the algorithm, and so presumes that switches can run it. [-]

    Returns
    -------
    Collective
        An algorithm of a subclass if one runs on them, else ``algorithm``. [-]

    Examples
    --------
    >>> from perfmodel.hardware.catalogue import load_system
    >>> tree, topology = collective("double_binary_tree"), load_system("dgx_a100", machines=2).topology
    >>> [for_machines(tree, topology, topology.devices()[:count]).name for count in (8, 16)]
    ['double_binary_tree', 'machine_trees']
    """
    special = (other for other in among if isinstance(other, type(algorithm)) and other is not algorithm)
    return next((form for form in special if (form.fits if by_name else form.runs_on)(topology, ranks)), algorithm)


def taken_share(algorithms: Iterable[Placed], blocks: BlocksTable | None, *, unit_count: Any) -> Quantity:
    """Share of a device that a library's blocks occupy to carry messages at the highest rate of these algorithms.

    Parameters
    ----------
    algorithms : iterable of Placed
        The algorithms on their devices. [-]
    blocks : BlocksTable or None
        The library's blocks; None if it has none. [-]
    unit_count : int or ndarray
        Multiprocessors of a device. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Share, 0 without blocks or messages. [1]

    Examples
    --------
    >>> from perfmodel.hardware.catalogue import load_system
    >>> from perfmodel.hardware.library import load_collective_library
    >>> from perfmodel.sync.placed import place
    >>> topology = load_system("dgx_a100").topology
    >>> ring = place(collective("ring_all_reduce"), topology, topology.devices())
    >>> round(taken_share([ring], load_collective_library("nccl_2_27").blocks, unit_count=108), 3)
    0.222
    """
    rates = [rate for placed in algorithms for rate in placed.different_rates]
    if blocks is None or not rates:
        return 0.0
    share = units_taken_share(
        bytes_per_s=largest(rates),
        block_bytes_per_s=blocks.gb_per_s * GIGA,
        fewest=blocks.fewest,
        most=blocks.most,
        unit_count=unit_count,
    )
    return share if is_symbolic(share) or np.ndim(share) else float(share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """How a library moves bytes between two devices.

    Parameters
    ----------
    name : str
        Its name. [-]
    launch_s : float
        Cost of a call without data. [s]
    hop_factor : float
        Ratio of a round's latency to the links' latency. [1]
    bandwidth_efficiency : float
        Share of the links' bandwidth that carries the message. [1]
    chunk_s : float
        Cost of handing over a chunk. [s]
    network_s, tree_network_s : float
        What a round between machines costs beyond its links, in rings of several ranks of a machine and elsewhere. [s]
    algorithms : tuple of str
        Algorithms to which this protocol is reserved; empty if all others use it. [-]
    pair_bytes_per_s : float
        Most of a message that the trees of an adapter carry between two machines. [B/s]
    """

    name: str
    launch_s: float
    hop_factor: float
    bandwidth_efficiency: float
    chunk_s: float = 0.0
    network_s: float = 0.0
    tree_network_s: float = 0.0
    algorithms: tuple[str, ...] = ()
    pair_bytes_per_s: float = float("inf")

    def links_share(self, placed: Placed) -> Quantity:
        """Share of the links' bandwidth that carries the message of an algorithm. [1]"""
        if not placed.paired_share:
            return self.bandwidth_efficiency
        at_most = self.pair_bytes_per_s * placed.seconds_per_byte
        return 1 / maximum(1 / self.bandwidth_efficiency, placed.paired_share / at_most)

    def network_round_s(self, placed: Placed) -> float:
        """Cost of a round of an algorithm between machines beyond that of its links. [s]"""
        return self.tree_network_s if placed.waits_for_network else self.network_s


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryCollective:
    """An operation of a library among some devices.

    Parameters
    ----------
    algorithms : tuple of Placed
        Its algorithms on these devices. [-]
    protocols : tuple of Protocol
        Its protocols. [-]
    blocks : BlocksTable or None
        Device blocks that carry its messages. [-]
    """

    algorithms: tuple[Placed, ...]
    protocols: tuple[Protocol, ...]
    blocks: BlocksTable | None = None
    by_library: ClassVar[bool] = True
    """Whether a call is played as one task where it takes blocks. [-]"""

    def beginning_in(self, launch_s: float) -> LibraryCollective:
        """Return the operation with a measured cost of a call without data [s] in place of its protocols'."""
        return replace(self, protocols=tuple(replace(protocol, launch_s=launch_s) for protocol in self.protocols))

    @property
    def rank_count(self) -> int:
        """Devices that take part, including those of simultaneous groups. [1]"""
        return self.algorithms[0].rank_count

    @property
    def servers(self) -> tuple[str, ...]:
        """Nodes of servers: none, because a library sends directly from rank to rank."""
        return ()

    def time(self, size_bytes: Quantity) -> Quantity:
        """Time of a call. [s]"""
        return reduce(minimum, [self._time(placed, protocol, size_bytes) for placed, protocol in self._ways()])

    def choice(self, size_bytes: float) -> tuple[str, str]:
        """Algorithm and protocol that the library chooses for a message size."""
        placed, protocol = self._way(size_bytes)
        return placed.collective.name, protocol.name

    def taken_share(self, *, unit_count: int) -> Quantity:
        """Share of a device that messages occupy. [1]"""
        return taken_share(self.algorithms, self.blocks, unit_count=unit_count)

    def call(self, size_bytes: float) -> Call:
        """Call that the library makes for this many bytes."""
        placed, protocol = self._way(size_bytes)
        if not placed.rounds:
            return placed.call(size_bytes)
        wire_bytes = size_bytes / protocol.links_share(placed)
        handed_s = 2 * (protocol.chunk_s * placed.seconds_per_byte * wire_bytes) ** 0.5
        return Call(
            placed=placed.with_latencies(protocol.hop_factor, network_s=protocol.network_round_s(placed)),
            wire_bytes=wire_bytes,
            launch_s=protocol.launch_s + handed_s,
        )

    def sent_bytes(self, size_bytes: float) -> float:
        """Bytes of all messages of a call of this many bytes [B], without a protocol's flags. [B]"""
        return float(self._way(size_bytes)[0].sent_bytes(size_bytes))

    @property
    def channels(self) -> frozenset[str]:
        """Names of the channels that any of its algorithms uses, as a symbol may decide which one runs."""
        return frozenset().union(*(placed.channels for placed in self.algorithms))

    def _way(self, size_bytes: float) -> tuple[Placed, Protocol]:
        return min(self._ways(), key=lambda way: float(self._time(way[0], way[1], size_bytes)))

    def _ways(self) -> list[tuple[Placed, Protocol]]:
        special = {name for protocol in self.protocols for name in protocol.algorithms}
        return [
            (placed, protocol)
            for placed in self.algorithms
            for protocol in self.protocols
            if placed.collective.name in (protocol.algorithms or {placed.collective.name} - special)
        ]

    @staticmethod
    def _time(placed: Placed, protocol: Protocol, size_bytes: Quantity) -> Quantity:
        if not placed.rounds:
            return 0.0 * size_bytes
        return protocol_time(
            fill_s=placed.path_latency_s,
            stream_s=placed.seconds_per_byte * size_bytes,
            launch_s=protocol.launch_s,
            hop_factor=protocol.hop_factor,
            bandwidth_efficiency=protocol.links_share(placed),
            network_s=placed.network_rounds * protocol.network_round_s(placed),
            chunk_s=protocol.chunk_s,
            fill_rounds=placed.fill_rounds,
        )


def protocols_of(library: CollectiveLibrary, *, in_order: bool = True) -> tuple[Protocol, ...]:
    """Protocols of a library in base units; where bytes arrive out of order, only those that allow it."""
    protocols = []
    for name, table in library.protocol.items():
        if table.needs_order and not in_order:
            continue
        constants: dict[str, Any] = table.constants
        launch_s = constants["launch_us"] * MICROSECOND
        protocols.append(
            Protocol(
                name=name,
                launch_s=launch_s,
                hop_factor=constants["hop_factor"],
                bandwidth_efficiency=constants["bandwidth_efficiency"],
                chunk_s=constants.get("chunk_us", 0.0) * MICROSECOND,
                network_s=constants.get("network_us", 0.0) * MICROSECOND,
                tree_network_s=constants.get("tree_network_us", 0.0) * MICROSECOND,
                algorithms=table.algorithms or (),
                pair_bytes_per_s=constants.get("pair_gb_per_s", float("inf")) * GIGA,
            )
        )
    return tuple(protocols)


def place_library(
    library: CollectiveLibrary,
    operation: str,
    topology: Topology,
    ranks: Sequence[str],
    *,
    beside: Sequence[Sequence[str]] = (),
) -> LibraryCollective:
    """Put an operation of a library on devices of a system.

    Parameters
    ----------
    library : CollectiveLibrary
        The library. [-]
    operation : str
        Name of the operation, e.g. ``all_reduce``. [-]
    topology : Topology
        The system. [-]
    ranks : sequence of str
        Names of devices. [-]
    beside : sequence of sequence of str
        Further groups of the same size that run the same operation at the same time. [-]

    Returns
    -------
    LibraryCollective
        The operation with its time. [-]

    Raises
    ------
    UnknownNameError
        If the library has no such operation, or a device does not exist.
    ArgumentError
        If no link leads from one device to another.

    Examples
    --------
    >>> from perfmodel.hardware.catalogue import load_system
    >>> from perfmodel.hardware.library import load_collective_library
    >>> topology = load_system("dgx_a100").topology
    >>> nccl = place_library(load_collective_library("nccl_2_27"), "all_reduce", topology, topology.devices())
    >>> [nccl.choice(size_bytes)[1] for size_bytes in (1e3, 5e5, 1e8)]
    ['ll', 'll128', 'simple']
    """
    how = library.operation_named(operation)
    placed = []
    named = [collective(name) for name in how.algorithms]
    forms = dict.fromkeys(for_machines(algorithm, topology, ranks, among=named) for algorithm in named)
    for algorithm in forms:
        if not algorithm.runs_on(topology, ranks):
            continue
        options: dict[str, Any] = {"at_once": True} if how.at_once and "at_once" in algorithm.option_names else {}
        placed.append(placed_once(algorithm, topology, ranks, beside=beside, **options))
    in_order = all(topology.places[name].in_order for name in topology.fabrics)
    protocols = protocols_of(library, in_order=in_order or not any(each.network_rounds for each in placed))
    return LibraryCollective(algorithms=tuple(placed), protocols=protocols, blocks=library.blocks)
