"""Machines that compute on their sockets: all cores of a machine as one device beside its memory."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from perfmodel.derived import derived
from perfmodel.hardware.wires import Place, Wire
from perfmodel.hardware.wiring import Wired

if TYPE_CHECKING:
    from perfmodel.hardware.system import System

CORES: Final = "cpu0"
"""Name of a machine's cores as a place. [-]"""


@derived
def computing_on_hosts(system: Wired, most_bytes_per_s: float = math.inf) -> Wired:
    """Return a system in which the cores of every machine but a server are a device, wired to its memory.

    Messages between two machines then pass the memory of both, as sockets of the operating system copy them, and those
    to a parameter server of the same machine pass its memory only. A process, of a worker or of a server's shard, sends
    at most ``most_bytes_per_s`` [B/s]. A system that is already one is returned as it is.
    """
    if system.computes_on_hosts:
        return system
    wiring = system.wiring
    hosts = list(system.hosts.items())[: system.node_count]
    serving = [place for place in wiring.places if place.kind == "memory" and most_bytes_per_s < math.inf]
    processors: Any = tuple((_within(name, CORES), host.processor) for name, host in hosts)
    changed: Any = copy.copy(system)
    changed.__dict__["wiring"] = replace(
        wiring,
        places=(*wiring.places, *(_cores(name, host) for name, host in hosts), *map(_process, serving)),
        wires=(
            *wiring.wires,
            *(_wire(name, host, most_bytes_per_s) for name, host in hosts),
            *(_wire_of_process(memory, most_bytes_per_s) for memory in serving),
        ),
        devices=processors,
    )
    changed.__dict__.pop("topology", None)
    whole: Wired = changed
    return whole


def _within(machine: str, name: str) -> str:
    return f"{machine}/{name}" if machine else name


def _cores(name: str, host: System) -> Place:
    cores = Place(name=CORES, kind="device", detail=host.processor.name, copy_engine_count=2)
    return cores.within(name) if name else cores


def _wire(name: str, host: System, most_bytes_per_s: float) -> Wire:
    """Return the way between a machine's cores and its first socket: as wide as all of its memory."""
    sockets, processor = host.socket_count, host.processor
    return Wire.between(
        _within(name, CORES),
        _within(name, "socket0"),
        capacity_bytes_per_s=min(most_bytes_per_s, sockets * processor.sustained_memory_bandwidth_bytes_per_s),
        raw_bytes_per_s=sockets * processor.memory_bandwidth_bytes_per_s,
        link="memory bus",
    )


def _process(memory: Place) -> Place:
    """Return the process that serves parameters out of a host memory."""
    name = memory.name.removeprefix(f"{memory.node}/").replace("memory", "process")
    return Place(name=_within(memory.node, name), kind="process", node=memory.node)


def _wire_of_process(memory: Place, most_bytes_per_s: float) -> Wire:
    """Return the way between a memory and the process that serves out of it."""
    return Wire.between(
        _process(memory).name,
        memory.name,
        capacity_bytes_per_s=most_bytes_per_s,
        raw_bytes_per_s=most_bytes_per_s,
        link="memory bus",
    )
