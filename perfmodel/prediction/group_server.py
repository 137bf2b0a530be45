"""A parameter server for workers that are groups of devices: each device brings the gradients of its own layers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perfmodel.prediction.agreement_arguments import resolve_agreement
from perfmodel.prediction.agreement_options import PARAMETER_SERVER
from perfmodel.prediction.asynchronous_agreement import Asynchronous
from perfmodel.prediction.parameter_server import served_s_per_byte, server_memories
from perfmodel.prediction.reading_devices import reading_devices
from perfmodel.prediction.server_visit import visit_of
from perfmodel.records import ELEMENT_BYTES
from perfmodel.sync.asynchronous import SCHEMES
from perfmodel.sync.collectives import collective
from perfmodel.sync.placed import place

if TYPE_CHECKING:
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.parallelism import Layout, Placement
    from perfmodel.prediction.machine import Machine
    from perfmodel.prediction.spread import SpreadAsked
    from perfmodel.prediction.subject import Subject

GROUP_SUM = "ring_all_reduce"
"""How workers that step together before they visit a server add up their gradients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedGroups:
    """A parameter server that adds up gradients for workers who wait for one another.

    Parameters
    ----------
    memories : tuple of str
        Host memories that hold its shards; none where no server takes part. [-]
    seconds_per_byte : float
        Time to add up and update with one byte of the gradient of all workers. [s/B]
    """

    memories: tuple[str, ...] = ()
    seconds_per_byte: float = 0.0


def served_groups(
    asked: SpreadAsked, placement: Placement, machine: Machine, subject: Subject, *, element_bytes: int
) -> ServedGroups:
    """Return the server that a caller asks for.

    Parameters
    ----------
    asked : SpreadAsked
        How the network is spread. [-]
    placement : Placement
        The network on devices. [-]
    machine : Machine
        All devices of the job. [-]
    subject : Subject
        What is trained. [-]
    element_bytes : int
        Size of an element of a gradient. [B]

    Returns
    -------
    ServedGroups
        Without memories where none takes part. [-]

    Raises
    ------
    ArgumentError
        If there are more shards than host memories.
    """
    workers, count = placement.layout.data_size, asked.agreed.server_count
    if asked.all_reduce != PARAMETER_SERVER or workers == 1:
        return ServedGroups()
    memories = server_memories(machine, count)
    # devices at other places of the network bring theirs at once
    seconds_per_byte = served_s_per_byte(machine, memories, subject, worker_count=workers, element_bytes=element_bytes)
    return ServedGroups(memories=memories, seconds_per_byte=seconds_per_byte)


def group_agreement(
    asked: SpreadAsked,
    placement: Placement,
    machine: Machine,
    subject: Subject,
    *,
    profile: FrameworkProfile,
    dtype: str,
) -> Asynchronous | None:
    """Return how workers train that do not wait for one another, each of them a group of devices.

    Parameters
    ----------
    asked : SpreadAsked
        How the network is spread. [-]
    placement : Placement
        The network on devices. [-]
    machine : Machine
        All devices of the job. [-]
    subject : Subject
        What is trained. [-]
    profile : FrameworkProfile
        The framework. [-]
    dtype : str
        Data type of gradients. [-]

    Returns
    -------
    Asynchronous or None
        None where workers wait for one another, or exchange nothing.

    Raises
    ------
    ArgumentError
        If a value is not allowed, or no link leads to the server.

    Notes
    -----
    Valid for: devices of a worker that visit the server at the same time, each with its own part; the worker is back
    when the last of them is. The server's links and memory take the parts of all of them one after the other.
    """
    if asked.agreed.sync not in SCHEMES:
        return None
    layout, names, count = placement.layout, machine.names, asked.agreed.server_count
    size = layout.stages * layout.tensor_size
    heads = reading_devices(machine.system, names[::size])
    found = resolve_agreement(asked.agreed, machine=heads, subject=subject, profile=profile, dtype=dtype)
    assert isinstance(found, Asynchronous)
    own_bytes = _device_bytes(placement, element_bytes=ELEMENT_BYTES[dtype])
    shared = found.numbers
    visitors = [
        [
            (name, own_bytes[place_ // layout.tensor_size] / count)
            for place_, name in enumerate(names[first : first + size])
        ]
        for first in range(0, len(names), size * shared.group_size)  # the first worker of a group visits for it
    ]
    visit = visit_of(
        machine.system.topology,
        visitors,
        server_memories(machine, count),
        pulls_per_push=float(shared.push_period / shared.pull_period),
    )
    numbers = replace(
        shared,
        push_latency_s=visit.push_latency_s,
        pull_latency_s=visit.pull_latency_s,
        push_s=visit.push_s,
        pull_s=visit.pull_s,
        push_sharers=visit.push_sharers,
        pull_sharers=visit.pull_sharers,
        group_sync_s=_group_sync_s(placement, machine, own_bytes, group_size=shared.group_size),
    )
    return replace(found, numbers=numbers)


def _device_bytes(placement: Placement, *, element_bytes: int) -> list[float]:
    """Return the trained parameters of a device at each place of the pipeline. [B]"""
    found = [0.0] * placement.layout.stages
    for stage in placement.stages:
        found[stage.device] += float(element_bytes * stage.graph.trained_parameter_count)
    return found


def _group_sync_s(placement: Placement, machine: Machine, own_bytes: list[float], *, group_size: int) -> float:
    """Return what workers that step together take to add up gradients, devices at each place among themselves. [s]"""
    if group_size == 1:
        return 0.0
    layout, names = placement.layout, machine.names
    size = layout.stages * layout.tensor_size
    alike = [_counterparts(layout, names, place_) for place_ in range(size)]
    groups = [each[first : first + group_size] for each in alike for first in range(0, len(each), group_size)]
    ring = place(collective(GROUP_SUM), machine.system.topology, groups[0], beside=groups[1:])
    return float(ring.time(max(own_bytes)))


def _counterparts(layout: Layout, names: tuple[str, ...], position: int) -> tuple[str, ...]:
    """Return the devices of all workers that have the same part of the network."""
    return names[position :: layout.stages * layout.tensor_size]
