"""A parameter server in host memory: where it is, and what its memory gives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from perfmodel.cost.delay_compensation import extra_flop_count
from perfmodel.errors import ArgumentError
from perfmodel.prediction.machine import bus_bytes_per_s
from perfmodel.prediction.memory import optimizer_bytes
from perfmodel.presentation.quantities import bytes_text

if TYPE_CHECKING:
    from perfmodel.layers.optimizers import Optimizer
    from perfmodel.prediction.machine import Machine
    from perfmodel.prediction.subject import Subject
    from perfmodel.sync.asynchronous_scheme import AsynchronousScheme


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerMemory:
    """What the shards of a parameter server hold, and the host memories that they are in.

    Parameters
    ----------
    memories : tuple of str
        Host memory of each shard. [-]
    parameters_bytes, optimizer_bytes, gradients_bytes : float
        Parameters, the optimizer's state, and the gradient that comes in or is added up, of all shards together. [B]
    backups_bytes : float
        Copies of the parameters that delay compensation keeps, one for each worker. [B]
    capacities_bytes : tuple of float
        Memory of the machine of each shard, over the shards in it. [B]
    compensation_flop_count : float
        What delay compensation computes for each update besides. [FLOP]
    """

    memories: tuple[str, ...]
    parameters_bytes: float
    optimizer_bytes: float
    gradients_bytes: float
    backups_bytes: float
    capacities_bytes: tuple[float, ...]
    compensation_flop_count: float = 0.0

    @property
    def shard_bytes(self) -> float:
        """What each shard holds. [B]"""
        whole = self.parameters_bytes + self.optimizer_bytes + self.gradients_bytes + self.backups_bytes
        return whole / len(self.memories)

    @property
    def fits(self) -> bool:
        """Whether every machine has room for its shards."""
        return self.shard_bytes <= min(self.capacities_bytes)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the user should know: that a shard does not fit into the memory of its machine."""
        if self.fits:
            return ()
        room = bytes_text(min(self.capacities_bytes))
        return (f"each shard of the parameter server holds {bytes_text(self.shard_bytes)}, more than {room} of memory",)

    def to_dict(self) -> dict[str, Any]:
        """Return memories, bytes and whether they fit as plain values."""
        return {
            "memories": list(self.memories),
            "parameters_bytes": self.parameters_bytes,
            "optimizer_bytes": self.optimizer_bytes,
            "gradients_bytes": self.gradients_bytes,
            "backups_bytes": self.backups_bytes,
            "shard_bytes": self.shard_bytes,
            "capacity_bytes": min(self.capacities_bytes),
            "fits": self.fits,
        }


def server_memory(
    machine: Machine,
    servers: tuple[str, ...],
    subject: Subject,
    *,
    element_bytes: int,
    scheme: AsynchronousScheme | None,
    worker_count: int,
) -> ServerMemory:
    """Return what the shards of a parameter server hold.

    Parameters
    ----------
    machine : Machine
        The workers' devices in a system. [-]
    servers : tuple of str
        Host memory of each shard. [-]
    subject : Subject
        What is trained. [-]
    element_bytes : int
        Size of a parameter. [B]
    scheme : AsynchronousScheme or None
        How workers train that do not wait for all; None for those that do. [-]
    worker_count : int
        Workers. [1]

    Returns
    -------
    ServerMemory
        Of all shards.

    Notes
    -----
    Valid for: one gradient at a time, which is applied or added up as it comes. Ignores: buffers of the transport, and
    what else the machine's memory holds.
    """
    places = machine.system.topology.places
    nodes = [places[name].node for name in servers]
    parameter_count = subject.graph.trained_parameter_count
    parameter_bytes = float(element_bytes * parameter_count)
    copies = 0.0
    if scheme is not None:
        copies = float(scheme.backup_bytes(parameter_bytes=parameter_bytes, worker_count=worker_count))
    return ServerMemory(
        memories=servers,
        parameters_bytes=parameter_bytes,
        optimizer_bytes=optimizer_bytes(subject.graph, subject.optimizer, element_bytes=element_bytes),
        gradients_bytes=parameter_bytes,
        backups_bytes=copies,
        capacities_bytes=tuple(machine.system.hosts[node].memory_capacity_bytes / nodes.count(node) for node in nodes),
        compensation_flop_count=float(extra_flop_count(parameter_count=parameter_count)) if copies else 0.0,
    )


def server_memories(machine: Machine, server_count: int) -> tuple[str, ...]:
    """Return the host memories that hold the shards of a parameter server.

    Parameters
    ----------
    machine : Machine
        The workers' devices in a system. [-]
    server_count : int
        Shards. [1]

    Returns
    -------
    tuple of str
        Memories of machines without devices, where the system has such; else those of the workers, in turn. [-]

    Raises
    ------
    ArgumentError
        If there are more shards than memories.
    """
    topology = machine.system.topology
    with_devices = {topology.places[name].node for name in topology.devices()}
    apart = [name for name in topology.memories() if topology.places[name].node not in with_devices]
    beside = list(dict.fromkeys(topology.home_memory(name) for name in machine.names))
    memories = apart if len(apart) >= server_count else beside
    if server_count > len(memories):
        allowed = f"a whole number from 1 to {len(memories)}, the host memories of {machine.system.name} at hand"
        raise ArgumentError("server_count", server_count, allowed)
    return tuple(memories[:server_count])


def memory_bytes_per_s(machine: Machine, servers: tuple[str, ...]) -> float:
    """Return what the memory of a shard carries, of the slowest of them. [B/s]"""
    return min(bus_bytes_per_s(machine.system.topology, name) for name in servers)


def update_passes(subject: Subject, *, element_bytes: int) -> float:
    """Return how many bytes an update moves for each byte of the gradient. [1]"""
    counts = tuple(subject.graph.trained_parameter_counts.items())
    return _update_passes(counts, subject.optimizer, element_bytes)


@lru_cache(maxsize=16)
def _update_passes(counts: tuple[tuple[str, int], ...], optimizer: Optimizer, element_bytes: int) -> float:
    operations = optimizer.operations(dict(counts), batch_size=1)
    moved = sum(each.work(element_bytes=element_bytes).moved_bytes for each in operations)
    return float(moved) / (element_bytes * sum(count for _, count in counts))


def served_s_per_byte(
    machine: Machine, servers: tuple[str, ...], subject: Subject, *, worker_count: int, element_bytes: int
) -> float:
    """Return how long servers take for a byte of the gradients that all workers bring at once.

    Parameters
    ----------
    machine : Machine
        The workers' devices in a system. [-]
    servers : tuple of str
        Memories of the shards. [-]
    subject : Subject
        What is trained. [-]
    worker_count : int
        Workers whose gradients are added up. [1]
    element_bytes : int
        Size of an element of a gradient. [B]

    Returns
    -------
    float
        Time to read every gradient, write the sum and update with it, shared by the shards. [s/B]
    """
    passes = (worker_count + 1 + update_passes(subject, element_bytes=element_bytes)) / len(servers)
    return passes / memory_bytes_per_s(machine, servers)
