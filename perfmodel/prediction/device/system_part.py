"""The part of a system that a job uses: the devices of its workers, and the links they share."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.cost.transfer import disjoint_sets, max_min_rates
from perfmodel.derived import derived, derived_property
from perfmodel.errors import ArgumentError, check_known, whole_numbers_text
from perfmodel.hardware.topology import Route, Topology
from perfmodel.hardware.wires import Channel
from perfmodel.numeric import largest, minimum
from perfmodel.symbolic import is_symbolic

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from perfmodel.hardware.link import Link
    from perfmodel.hardware.measured_machine import AllReduce, MeasuredMachine
    from perfmodel.hardware.system import System
    from perfmodel.hardware.wiring import Wired


@dataclass(frozen=True, kw_only=True)
class Host:
    """Cores and memory of a machine, and the number of workers in it."""

    name: str = ""
    worker_count: int = 1
    core_count: int = 1
    memory_bytes: float = 0.0
    memory_bytes_per_s: float = math.inf


@dataclass(frozen=True, eq=False, kw_only=True)
class SystemPart:
    """The devices on which a job's workers run: the first ones in the system's file."""

    system: Wired
    worker_count: int
    chosen: tuple[str, ...] = ()
    measured: MeasuredMachine | None = None

    def __post_init__(self) -> None:
        devices = self.system.devices
        if not 1 <= self.worker_count <= len(devices):
            allowed = f"{whole_numbers_text(1, len(devices))}, the devices of {self.system.name}"
            if len(devices) == 1:
                allowed = f"1: {self.system.name} has one device"
            raise ArgumentError("workers", self.worker_count, allowed)
        kinds = dict.fromkeys(device.name for _, device in devices[: self.worker_count])
        if len(kinds) > 1:
            allowed = f"one whose first {self.worker_count} devices are alike, not {' and '.join(kinds)}"
            raise ArgumentError("system", self.system.name, allowed)

        machines = self.system.hosts if self.computes_on_hosts else {}
        kinds = dict.fromkeys(machines[self.node_of(name)].name for name in self.names if machines)
        if len(kinds) > 1:
            allowed = f"one whose first {self.worker_count} machines are alike, not {' and '.join(kinds)}"
            raise ArgumentError("system", self.system.name, allowed)

    @property
    def machine(self) -> System:
        """The machine of the first worker."""
        return self.machines[self.node_of(self.names[0])]

    @derived_property
    def computes_on_hosts(self) -> bool:
        """Whether each worker computes on the cores of a machine."""
        return self.system.computes_on_hosts

    @property
    def unit_count(self) -> int:
        """Units of a device among which a library's calls are divided. [1]"""
        return int(self.device.core_count if self.computes_on_hosts else self.device.unit_count)

    @derived_property
    def worker_nodes(self) -> tuple[str, ...]:
        """Machines of the workers' devices, in the order of the job."""
        return tuple(dict.fromkeys(map(self.node_of, self.names)))

    @derived_property
    def free_nodes(self) -> tuple[str, ...]:
        """Machines free for a server, without GPUs and workers on their cores; that of the system's file first."""
        names = self.names if self.computes_on_hosts else self.system.topology.devices()
        busy = {self.node_of(name) for name in names}
        machines = dict.fromkeys(map(self.node_of, self.system.topology.memories()))
        declared = list(self.system.hosts)[self.system.node_count :]
        return tuple(sorted(machines.keys() - busy, key=[*declared, *machines].index))

    def with_workers(self, worker_count: int) -> SystemPart:
        """Return the same system with another number of workers."""
        return replace(self, worker_count=worker_count)

    def only(self, names: tuple[str, ...]) -> SystemPart:
        """Return the same system with these devices as workers."""
        return replace(self, worker_count=len(names), chosen=names)

    def describe(self, device: str | None = None) -> str:
        """Name the devices in a few words, as their slots do or by another name."""
        return f"{self.worker_count} x {device or self.device.name} of {self.system.name}"

    @derived_property
    def measured_sum(self) -> AllReduce | None:
        """The measured sum over exactly these workers and links; None without one."""
        changed = any(machine.is_changed for machine in self.system.hosts.values())
        alike = self.worker_count == len(self.system.devices)
        if self.measured is None or changed or not alike or len(self.hosts) > 1 or self.computes_on_hosts:
            return None
        sums = self.measured.all_reduce
        return next((sum_ for sum_ in sums if sum_.process_count == self.worker_count), None)

    @property
    def measured_between_hosts(self) -> AllReduce | None:
        """The measured sum of two processes of a CPU, which times the software of exchanges; None without one."""
        return None if self.measured is None or not self.computes_on_hosts else sum_of_two(self.measured)

    @derived_property
    def device(self) -> Any:
        """The device of each worker, at the lower clock of a shared board if two of its dies work."""
        device = self.system.devices[0][1]
        return device.beside_working_dies() if self.shares_boards else device

    @derived_property
    def shares_boards(self) -> bool:
        """Whether two working devices are dies of one board, i.e. neighbours below the same node."""
        board = getattr(self.system.devices[0][1], "board", None)
        if board is None:
            return False
        upper = {wire.lower: wire.upper for wire in self.system.topology.wires if not wire.peer}
        by_place = defaultdict(list)
        for name, _ in self.system.devices:
            by_place[upper[name]].append(name)
        boards = [dies[at : at + board.dies] for dies in by_place.values() for at in range(0, len(dies), board.dies)]
        return any(len(set(dies).intersection(self.names)) > 1 for dies in boards)

    @property
    def alike_count(self) -> int:
        """Number of like devices, counted from the first. [1]"""
        devices = [device.name for _, device in self.system.devices]
        return next((count for count, name in enumerate(devices) if name != devices[0]), len(devices))

    def node_of(self, name: str) -> str:
        """Machine that contains a device; empty if there is only one."""
        return self.system.topology.places[name].node

    @derived_property
    def machines(self) -> Mapping[str, System]:
        """All machines of the system, by name."""
        return self.system.hosts

    @derived_property
    def measured_nodes(self) -> frozenset[str]:
        """Machines whose cores a measured machine replaces: all but a server that a cluster's file states."""
        stands = self.measured is not None and self.computes_on_hosts
        return frozenset(self.node_of(name) for name, _ in self.system.devices if stands)

    def measured_in(self, node: str) -> MeasuredMachine | None:
        """Return the measured machine whose cores replace those of a machine; None if it keeps its own."""
        return self.measured if node in self.measured_nodes else None

    def core_count_of(self, node: str) -> int:
        """Physical cores of a machine, or of the measured machine that replaces them. [1]"""
        measured = self.measured_in(node)
        return self.machines[node].core_count if measured is None else measured.machine.core_count

    def host_bytes_per_s(self, memory: str) -> Any:
        """Bytes of a host memory that the cores beside it read and write: at the bus's rate, or their own. [B/s]

        Valid for: long vectors, in which copies, sums and updates stream, on all cores of the socket.
        """
        node, topology = self.node_of(memory), self.system.topology
        measured, host = self.measured_in(node), self.machines[node]
        of_cores = (
            host.processor.streamed_bytes_per_s
            if measured is None
            else measured.peaks.stream_bytes_per_s / host.socket_count
        )
        return minimum(topology.upward(memory).capacity_bytes_per_s, of_cores)

    @derived_property
    def hosts(self) -> tuple[Host, ...]:
        """The machines of the workers' devices."""
        workers, machines = Counter(self.node_of(name) for name in self.names), self.machines
        topology = self.system.topology
        return tuple(
            Host(
                name=node,
                worker_count=count,
                core_count=self.core_count_of(node),
                memory_bytes=machine.memory_capacity_bytes,
                memory_bytes_per_s=sum(map(self.host_bytes_per_s, topology.of_node(node, "memory"))),
            )
            for node, count in workers.items()
            for machine in (machines[node],)
        )

    @property
    def core_count(self) -> int:
        """Physical cores of the host with the fewest. [1]"""
        return min(host.core_count for host in self.hosts)

    @property
    def memory_bytes(self) -> float:
        """Smallest host memory; each host reads its own workers' samples, reshuffled every epoch. [B]"""
        return min(host.memory_bytes for host in self.hosts)

    @derived_property
    def names(self) -> tuple[str, ...]:
        """Node names of the workers' devices."""
        names = self.chosen or tuple(name for name, _ in self.system.devices)
        return names[: self.worker_count]

    @derived_property
    def input_routes(self) -> tuple[Route, ...]:
        """Route of a mini-batch from host memory to each worker's device."""
        topology = self.system.topology
        return tuple(topology.route(topology.home_memory(name), name) for name in self.names)

    @derived_property
    def network_routes(self) -> tuple[tuple[Route, ...], ...]:
        """Routes of each worker's examples from the network to its host memory, one for each network adapter."""
        topology = self.system.topology
        ways = []
        for name in self.names:
            memory, node = topology.home_memory(name), self.node_of(name)
            ways.append(
                tuple(
                    _received(adapter, network).then(topology.route(adapter, memory))
                    for adapter, network in self.system.networks
                    if self.node_of(adapter) == node
                )
            )
        return tuple(ways)

    @property
    def unlike_machines(self) -> Iterator[Hashable]:
        """Yield a key for one worker, for two, and so on: equal keys mean machines used in the same ways."""
        if self.chosen or not self.system.topology.equal_machines:
            yield from range(self.worker_count)
            return
        whole: frozenset[tuple[str, ...]] = frozenset()
        for _, names in itertools.groupby(self.names, self.node_of):
            used: tuple[str, ...] = ()
            for name in names:
                used = (*used, name.partition("/")[2])
                yield whole | {used}
            whole |= {used}

    @derived_property
    def unlike_input_routes(self) -> tuple[Route, ...]:
        """Input routes on machines that differ in wiring or in the devices that run; alike ones copy as fast."""
        topology = self.system.topology
        if not topology.equal_machines:
            return self.input_routes
        return tuple(
            topology.route(topology.home_memory(name), name) for names in self._unlike.values() for name in names
        )

    @derived_property
    def _unlike(self) -> dict[tuple[str, ...], list[str]]:
        """For each set of devices that run in a machine: their names in the first machine with this set."""
        places = self.system.topology.places
        used: dict[str, list[str]] = {}
        for name in self.names:
            used.setdefault(places[name].node, []).append(name)
        unlike: dict[tuple[str, ...], list[str]] = {}
        for node, names in used.items():
            unlike.setdefault(tuple(name[len(node) :] for name in names), names)
        return unlike

    @property
    def copy_bytes_per_s(self) -> Any:
        """Copy rate of the slowest worker while all copy at once. [B/s]"""
        topology = self.system.topology
        if not topology.equal_machines:
            return slowest_rate(self.input_routes)
        return min(_copies_into(topology, parts)[0] for parts in self._unlike)

    @property
    def shares_alike(self) -> bool:
        """Whether all workers copy at the same rate while all copy at once."""
        rates = shared_rates(self.unlike_input_routes)
        return bool(rates.max() <= rates.min() * (1 + 1e-9))

    @property
    def copy_latency_s(self) -> Any:
        """Time before the first byte reaches a device. [s]"""
        topology = self.system.topology
        if not topology.equal_machines:
            return largest(route.latency_s for route in self.input_routes)
        return largest(_copies_into(topology, parts)[1] for parts in self._unlike)

    def link_of(self, name: str) -> Link:
        """Link between a device and its slot, as the two negotiated it."""
        from perfmodel.hardware.catalogue import load_link

        topology = self.system.topology
        return load_link(topology.route(topology.home_memory(name), name).channels[-1].link)

    @property
    def network_link(self) -> Link:
        """The network between machines, as the first worker's adapter has it."""
        topology = self.system.topology
        adapter = topology.own_nic(self.names[0])
        assert adapter is not None  # machines of a cluster have one
        return dict(self.system.networks)[adapter]

    def storage_routes(self, storage: str | None) -> tuple[Route, ...]:
        """Route from storage to the host memory of each worker."""
        topology = self.system.topology
        known = topology.storages()
        if not known:
            allowed = f"a storage file, by name or path; {self.system.name} lists no storage of its own"
            raise ArgumentError("input_from", storage, allowed)
        if storage is not None:
            check_known(f"storage of {self.system.name}", storage, known)
        of_node: dict[str, list[str]] = {}
        for other in known:
            of_node.setdefault(topology.places[other].node, []).append(other)
        routes = []
        for name in self.names:
            memory = topology.home_memory(name)
            near = of_node.get(topology.places[name].node, known)
            candidates = [storage] if storage is not None else near
            routes.append(
                max((topology.route(other, memory) for other in candidates), key=lambda way: way.capacity_bytes_per_s)
            )
        return tuple(routes)


@derived
def _copies_into(topology: Topology, parts: tuple[str, ...]) -> tuple[Any, Any]:
    """Rate [B/s] and latency [s] of the slowest copy into devices of one of equal machines, while all copy at once."""
    node = topology.places[topology.devices()[0]].node
    routes = tuple(topology.route(topology.home_memory(node + part), node + part) for part in parts)
    return slowest_rate(routes), largest(route.latency_s for route in routes)


def sum_of_two(measured: MeasuredMachine) -> AllReduce | None:
    """Return the measured sum of two processes in host memory; None if it was not measured."""
    sums = measured.all_reduce
    return next((sum_ for sum_ in sums if sum_.library == "gloo" and sum_.process_count == 2), None)


def _received(adapter: str, network: Link) -> Route:
    """Route from a network into one of its adapters."""
    link = Channel(
        name=f"network>{adapter}",
        capacity_bytes_per_s=network.effective_bandwidth_bytes_per_s,
        raw_bytes_per_s=network.raw_bandwidth_bytes_per_s,
        link=network.name,
    )
    return Route(nodes=("network", adapter), channels=(link,), latency_s=network.latency_s)


def slowest_rate(routes: tuple[Route, ...]) -> Any:
    """Rate of the slowest flow if each route has one flow and channels are shared fairly. [B/s]"""
    if is_symbolic(*(channel.capacity_bytes_per_s for route in routes for channel in route.channels)):
        from perfmodel.sync.placed import byte_times

        return 1 / largest(byte_times(routes))
    return float(shared_rates(routes).min(initial=math.inf))


def shared_rates(routes: tuple[Route, ...], *, weights: ArrayLike | None = None) -> NDArray[np.float64]:
    """Rate of each flow if each route has one flow and channels are shared fairly. [B/s]"""
    capacity = {channel.name: channel.capacity_bytes_per_s for route in routes for channel in route.channels}
    return _rates([route.channel_names for route in routes], capacity, weights=weights)


def saturated_channels(ways: Sequence[tuple[str, ...]], *, capacity: Mapping[str, float]) -> tuple[str, ...]:
    """Channel that bounds each of several simultaneous flows."""
    rates = _rates(ways, capacity)
    load: Counter[str] = Counter()
    most: dict[str, float] = {}
    for way, rate in zip(ways, rates, strict=True):
        for name in way:
            load[name] += rate
            most[name] = max(most.get(name, 0.0), rate)
    slack = 1 - 1e-9
    return tuple(
        next(name for name in way if load[name] >= slack * capacity[name] and rate >= slack * most[name])
        for way, rate in zip(ways, rates, strict=True)
    )


MANY_FLOWS: Final = 64
"""From this many flows on, sets that share no channel are solved separately, and equal sets only once. [1]"""


def _rates(
    ways: Sequence[tuple[str, ...]], capacity: Mapping[str, float], *, weights: ArrayLike | None = None
) -> NDArray[np.float64]:
    if len(ways) < MANY_FLOWS:
        return _rates_of_set(ways, capacity, weights=weights)
    weight = np.ones(len(ways)) if weights is None else np.asarray(weights, dtype=float)
    rates = np.empty(len(ways))
    solved: dict[object, NDArray[np.float64]] = {}
    for flows in disjoint_sets(ways):
        some = [ways[flow] for flow in flows]
        place = {name: index for index, name in enumerate(dict.fromkeys(name for way in some for name in way))}
        key = (
            tuple(tuple(map(place.__getitem__, way)) for way in some),
            tuple(capacity[name] for name in place),
            tuple(weight[flows]),
        )
        if key not in solved:
            solved[key] = _rates_of_set(some, capacity, weights=None if weights is None else weight[flows])
        rates[flows] = solved[key]
    return rates


def _rates_of_set(
    ways: Sequence[tuple[str, ...]], capacity: Mapping[str, float], *, weights: ArrayLike | None
) -> NDArray[np.float64]:
    names = list(dict.fromkeys(name for way in ways for name in way))
    uses = np.array([[way.count(name) for name in names] for way in ways], dtype=float).reshape(len(ways), len(names))
    of_names = np.array([capacity[name] for name in names])
    rates: NDArray[np.float64] = max_min_rates(capacity=of_names, uses=uses, weights=weights)
    return rates
