"""A parameter server in host memory: its place, the rate of its memory, and what it holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from perfmodel.cost.staleness import extra_flop_count
from perfmodel.derived import derived_property, kept
from perfmodel.errors import ArgumentError, check_known, whole_numbers_text
from perfmodel.framework.profile import in_base_units
from perfmodel.prediction.device.factors import StatedConstant
from perfmodel.prediction.job.compose import is_served
from perfmodel.prediction.memory.footprint import optimizer_bytes
from perfmodel.presentation.quantities import bytes_text

if TYPE_CHECKING:
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.hardware.cpu import Cpu
    from perfmodel.hardware.source import SpecFile
    from perfmodel.prediction.device.system_part import SystemPart
    from perfmodel.prediction.job.agreement import Agreement
    from perfmodel.prediction.job.prepared import Prepared
    from perfmodel.prediction.job.subject import Subject
    from perfmodel.prediction.memory.footprint import MemoryFootprint
    from perfmodel.sync.asynchronous_scheme import AsynchronousScheme


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerMemory:
    """Bytes in each shard of a parameter server, and the host memories they are in.

    ``machines`` holds the machine of each shard, ``capacities_bytes`` the memory of that machine, and ``computing`` the
    machines on whose cores a worker computes: there its step and the shards share the memory.
    """

    memories: tuple[str, ...]
    machines: tuple[str, ...]
    computing: frozenset[str]
    parameters_bytes: float
    optimizer_bytes: float
    gradients_bytes: float
    backups_bytes: float
    capacities_bytes: tuple[float, ...]
    compensation_flop_count: float = 0.0

    @property
    def shard_bytes(self) -> float:
        """Bytes in each shard. [B]"""
        whole = self.parameters_bytes + self.optimizer_bytes + self.gradients_bytes + self.backups_bytes
        return whole / len(self.memories)

    @property
    def is_beside_workers(self) -> bool:
        """Whether a shard is in memory in which a worker's step is too."""
        return not self.computing.isdisjoint(self.machines)

    @property
    def room_bytes(self) -> float:
        """Memory for each shard where there is least: the machine's, divided among its shards. [B]"""
        shares = zip(self.capacities_bytes, self.machines, strict=True)
        return min(capacity / self.machines.count(machine) for capacity, machine in shares)

    def beside(self, machines: Iterable[str]) -> float:
        """Return the most memory that shards take on any of these machines, beside its worker. [B]"""
        return self.shard_bytes * max((self.machines.count(name) for name in self.computing & {*machines}), default=0)

    def added_to(self, footprints: tuple[MemoryFootprint, ...], prepared: Prepared) -> tuple[MemoryFootprint, ...]:
        """Return the footprints of a worker's devices with the servers. [B]"""
        added = {"missing_elsewhere_bytes": self.missing_bytes}
        return tuple(
            replace(without_served_state(footprint, prepared.agreement), server_bytes=beside, **added)
            for footprint, beside in zip(footprints, held_beside(prepared), strict=True)
        )

    @property
    def missing_bytes(self) -> float:
        """Most that shards lack on a machine without workers; 0 if they fit, or all machines have workers. [B]"""
        apart = zip(self.machines, self.capacities_bytes, strict=True)
        lacking = [
            self.shard_bytes * self.machines.count(machine) - capacity
            for machine, capacity in apart
            if machine not in self.computing
        ]
        return max([0.0, *lacking])

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remark on shards that do not fit into host memory without a worker."""
        if not self.missing_bytes:
            return ()
        held, room = bytes_text(self.shard_bytes), bytes_text(self.room_bytes)
        return (f"each shard of the parameter server holds {held}, more than {room} of memory",)

    def to_dict(self) -> dict[str, Any]:
        """Memories and bytes as plain values."""
        return {
            "memories": list(self.memories),
            "parameters_bytes": self.parameters_bytes,
            "optimizer_bytes": self.optimizer_bytes,
            "gradients_bytes": self.gradients_bytes,
            "backups_bytes": self.backups_bytes,
            "shard_bytes": self.shard_bytes,
            "capacity_bytes": self.room_bytes,
        }


def server_of(prepared: Prepared) -> ServerMemory | None:
    """Return the memory of a job's parameter server; None if it has none."""
    return None if prepared.agreement is None else prepared.agreement.server


def held_beside(prepared: Prepared) -> tuple[float, ...]:
    """Memory that shards take beside each device of a worker; the most over all workers. [B]"""
    server, part = server_of(prepared), prepared.target.system_part
    depth, width = prepared.layout.stages, prepared.layout.tensor_size
    if server is None or part is None or not server.is_beside_workers:
        return (0.0,) * depth
    machines: list[set[str]] = [set() for _ in range(depth)]
    for at, name in enumerate(part.names):
        machines[at // width % depth].add(part.node_of(name))
    return tuple(map(server.beside, machines))


def without_served_state(footprint: MemoryFootprint, agreement: Agreement | None) -> MemoryFootprint:
    """Leave out the optimizer's state of a worker if servers run the update. [B]

    Valid for: servers that update with state of their own, as TensorFlow's slots and MXNet's ``update_on_kvstore`` are;
    steps that workers take by themselves between two pushes are plain ones without state, as Downpour's are.
    """
    return replace(footprint, optimizer_bytes=0.0) if is_served(agreement) else footprint


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCalls:
    """Times of a framework's calls during one worker's visit to server processes, beside the messages.

    ``session_s`` is that of the worker's session over several machines, ``tensors_s`` that of sending and receiving its
    tensors. ``operation_s`` is an operation at the servers, ``operation_count`` of them for each of ``tensor_count``
    tensors. ``profile`` states both times on another processor than ``host``.
    """

    session_s: float = 0.0
    tensors_s: float = 0.0
    operation_s: float = 0.0
    operation_count: float = 0.0
    tensor_count: float = 0.0
    profile: FrameworkProfile | None = None
    host: Cpu | None = None

    @property
    def worker_s(self) -> float:
        """Calls of the worker. [s]"""
        return self.session_s + self.tensors_s

    @property
    def timed(self) -> dict[StatedConstant, float]:
        """Constants of the calls' times, each with d ln(``worker_s``) / d ln(constant). [1]"""
        if self.profile is None:
            return {}
        shares = {"server_step_us": self.session_s, "server_tensor_us": self.tensors_s}
        return {
            self._stated(self.profile, "frameworks", f"exchange.{name}", value=getattr(self.profile.exchange, name)): (
                seconds / self.worker_s
            )
            for name, seconds in shares.items()
        }

    @property
    def speeds(self) -> dict[StatedConstant, float]:
        """Constants of both processors' speeds of calls, each with the same derivative. [1]"""
        if self.profile is None or self.host is None:
            return {}
        timed_on, name = self.profile.exchange.server_host_call_slowdown, "exchange.server_host_call_slowdown"
        return {
            self._stated(self.host, "devices", "call_slowdown", value=self.host.call_slowdown): 1.0,
            self._stated(self.profile, "frameworks", name, value=timed_on): -1.0,
        }

    @staticmethod
    def _stated(spec: SpecFile, folder: str, field: str, *, value: float) -> StatedConstant:
        return StatedConstant(
            name=f"{folder}/{spec.stem}/{field}",
            value=value,
            unit="us" if field.endswith("_us") else "1",
            described=None,
            source=spec.source_of(field),
        )

    @property
    def update_s(self) -> float:
        """Operations of a plain update. [s]"""
        return self.tensor_count * self.operation_count * self.operation_s


def calls_of(profile: FrameworkProfile, server: Server) -> ServerCalls:
    """Return the times of a framework's calls to its servers; none if one process holds them and all workers.

    One process drives all GPUs of a job on a single machine. Beside a worker on a machine's cores, a server is a
    process of its own. Valid for: workers and servers of like processors. Ignores: frameworks whose files state none.
    """
    system_part, habits = server.system_part, profile.exchange
    nodes = {system_part.node_of(name) for name in (*system_part.names, *server.memories)}
    is_one_process = len(nodes) == 1 and not system_part.computes_on_hosts
    if is_one_process or not habits.server_step_us:
        return ServerCalls()
    node = system_part.node_of(server.memories[0])
    host = system_part.machines[node]
    slowdown = host.processor.call_slowdown / habits.server_host_call_slowdown
    tensors = sum(len(shapes) for shapes in server.subject.graph.updated_shapes.values())
    step_s, tensor_s = (habits.in_base_units(name) for name in ("server_step_us", "server_tensor_us"))
    # variables are updated independently, each operation by one thread of a core
    at_once = system_part.core_count_of(node) * server.shard_count
    return ServerCalls(
        session_s=slowdown * step_s,
        tensors_s=slowdown * tensors * tensor_s,
        profile=profile,
        host=host.processor,
        operation_s=in_base_units(profile.cpu.constants)["dispatch_us"] / at_once,
        operation_count=habits.server_operations_per_tensor,
        tensor_count=tensors,
    )


MOST_UPDATES: Final = 16
"""Optimizers and element sizes for which the bytes of an update are kept per graph. [1]"""


@dataclass(frozen=True, eq=False, kw_only=True)
class Server:
    """A parameter server of a job's workers, in shards in the memories of hosts."""

    system_part: SystemPart
    subject: Subject
    shard_count: int
    worker_count: int
    element_bytes: int
    node: str | None = None

    @derived_property
    def memories(self) -> tuple[str, ...]:
        """Host memory of each shard: on the named machine, or one on each machine before any has two.

        Machines without workers come first, of these that of the system's ``[server]``; then those of workers in order.
        """
        topology = self.system_part.system.topology
        if self.node is not None and self.system_part.system.node_count == 1 and not self.system_part.free_nodes:
            allowed = f"None on {self.system_part.system.name}, a single machine, which holds the server itself"
            raise ArgumentError("server_on", self.node, allowed)
        if self.node is not None:
            check_known(f"machine of {self.system_part.system.name}", self.node, self.system_part.system.hosts)
        machines = (*self.system_part.free_nodes, *self.system_part.worker_nodes) if self.node is None else (self.node,)
        near_workers = dict.fromkeys(topology.home_memory(name) for name in self.system_part.names)
        of_machine: dict[str, dict[str, None]] = {machine: {} for machine in machines}
        for memory in near_workers:  # first on each machine
            of_machine.get(topology.places[memory].node, {})[memory] = None
        for machine, listed in of_machine.items():
            listed.update(dict.fromkeys(topology.of_node(machine, "memory")))
        rounds = zip_longest(*of_machine.values())
        memories = [memory for round_ in rounds for memory in round_ if memory is not None]
        if self.shard_count > len(memories):
            system = self.system_part.system.name
            name = system if self.node is None else f"{self.node} of {system}"
            if len(memories) == 1:
                allowed = f"1: {name} has one host memory that can hold a shard"
            else:
                allowed = f"{whole_numbers_text(1, len(memories))}, the host memories of {name} that can hold shards"
            raise ArgumentError("server_count", self.shard_count, allowed)
        return tuple(memories[: self.shard_count])

    @property
    def processes(self) -> tuple[str, ...]:
        """Where each shard's messages end: its process, or its memory if processes send at any rate."""
        return tuple(map(self.system_part.system.topology.serving, self.memories))

    @property
    def memory_bytes_per_s(self) -> Any:
        """Rate at which the slowest shard's cores read and write its memory. [B/s]"""
        return min(map(self.system_part.host_bytes_per_s, self.memories))

    @property
    def update_passes(self) -> float:
        """Bytes moved by an update for each byte of gradient. [1]"""
        graph, optimizer, size = self.subject.graph, self.subject.optimizer, self.element_bytes

        def make() -> float:
            counts = graph.trained_parameter_counts
            operations = optimizer.operations(counts, batch_size=1, shapes=graph.updated_shapes)
            moved = sum(operation.work(element_bytes=size).moved_bytes for operation in operations)
            return float(moved) / (size * sum(counts.values()))

        passes: float = kept(graph.kept("update_passes"), (optimizer, size), make, most=MOST_UPDATES)
        return passes

    @property
    def s_per_byte(self) -> Any:
        """Time that the shards take for one byte of every worker's gradient. [s/B]"""
        passes = (self.worker_count + 1 + self.update_passes) / self.shard_count
        return passes / self.memory_bytes_per_s

    def memory(self, scheme: AsynchronousScheme | None = None) -> ServerMemory:
        """Find the state that each shard holds; ``scheme`` is None for synchronous workers.

        Valid for: one gradient at a time, applied or added as it arrives. Ignores: buffers of the transport, and other
        contents of host memory.
        """
        hosts = self.system_part.system.hosts
        machines = tuple(self.system_part.node_of(name) for name in self.memories)
        graph, optimizer = self.subject.graph, self.subject.optimizer
        parameter_count = graph.trained_parameter_count
        parameter_bytes = float(self.element_bytes * parameter_count)
        copies = 0.0
        if scheme is not None:
            copies = float(scheme.backup_bytes(parameter_bytes=parameter_bytes, worker_count=self.worker_count))
        return ServerMemory(
            memories=self.memories,
            machines=machines,
            computing=frozenset(self.system_part.worker_nodes if self.system_part.computes_on_hosts else ()),
            parameters_bytes=parameter_bytes,
            optimizer_bytes=optimizer_bytes(graph, optimizer, element_bytes=self.element_bytes),
            gradients_bytes=parameter_bytes,
            backups_bytes=copies,
            capacities_bytes=tuple(hosts[machine].memory_capacity_bytes for machine in machines),
            compensation_flop_count=float(extra_flop_count(parameter_count=parameter_count)) if copies else 0.0,
        )
