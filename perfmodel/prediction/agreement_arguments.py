"""The agreement of workers that the arguments of a prediction ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from perfmodel.cost.delay_compensation import extra_service_time
from perfmodel.errors import ArgumentError
from perfmodel.hardware.collective_library import CollectiveLibrary, load_collective_library
from perfmodel.prediction.agreement import Agreement
from perfmodel.prediction.agreement_options import LIBRARY, PARAMETER_SERVER, WITH_SERVER
from perfmodel.prediction.arguments import NO_SYNC
from perfmodel.prediction.asynchronous_agreement import Asynchronous
from perfmodel.prediction.parameter_server import (
    memory_bytes_per_s,
    served_s_per_byte,
    server_memories,
    server_memory,
    update_passes,
)
from perfmodel.prediction.server_visit import visit_of
from perfmodel.prediction.synchronous_agreement import AllReduced, ThroughServer
from perfmodel.records import ELEMENT_BYTES, Phase
from perfmodel.sync.asynchronous import SCHEMES, scheme_of
from perfmodel.sync.asynchronous_scheme import AsynchronousNumbers
from perfmodel.sync.collectives import ALL_REDUCES, collective
from perfmodel.sync.library import place_library
from perfmodel.sync.placed import place
from perfmodel.sync.placed_once import placed_once
from perfmodel.units import MIB

if TYPE_CHECKING:
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.prediction.job import Job
    from perfmodel.prediction.machine import Machine
    from perfmodel.prediction.subject import Subject


def resolve_agreement(
    asked: Job, *, machine: Machine | None, subject: Subject, profile: FrameworkProfile, dtype: str
) -> Agreement | None:
    """Return how the workers of a job agree.

    Parameters
    ----------
    asked : Job
        What the caller says. [-]
    machine : Machine or None
        The workers' devices in a system; None for one device. [-]
    subject : Subject
        What is trained. [-]
    profile : FrameworkProfile
        The framework, whose habits of exchange hold where the caller says nothing. [-]
    dtype : str
        Data type of gradients. [-]

    Returns
    -------
    Agreement or None
        None where workers have nothing to agree on: without training, or with ``none``.

    Raises
    ------
    ArgumentError
        If a value is not allowed, or the system has no way between two of the devices.
    UnknownNameError
        If there is no such strategy; names the nearest.
    """
    _check_speeds(asked, machine, subject)
    if asked.sync == NO_SYNC or machine is None or Phase.BACKWARD not in subject.phase.parts:
        return None
    if machine.worker_count == 1 and asked.sync not in WITH_SERVER:
        return None
    asked = with_habits_of(profile, asked)
    how = AGREEMENT_OF.get(asked.sync, _all_reduced)
    return how(asked, machine, subject, profile, ELEMENT_BYTES[dtype])


def with_habits_of(profile: FrameworkProfile, job: Job) -> Job:
    """Return the same job with a framework's size of messages, where it asks for none."""
    if job.bucket_bytes is not None or profile.exchange.bucket_mib is None:
        return job
    return job.resolved(bucket_bytes=profile.exchange.bucket_mib * MIB)


def _check_speeds(asked: Job, machine: Machine | None, subject: Subject) -> None:
    """Refuse workers of unequal speed where they do not agree, since each then has a step of its own."""
    straggler = asked.straggler
    if straggler is None or straggler.times.lasting_count is None:
        return
    alone = machine is None or (machine.worker_count == 1 and asked.sync not in SCHEMES)
    apart = alone or asked.sync == NO_SYNC or Phase.BACKWARD not in subject.phase.parts
    if apart and straggler != straggler.as_predicted:
        allowed = "None, or times that vary, for workers that do not agree: with unequal ones each has its own step"
        raise ArgumentError("straggler", {"distribution": straggler.times.name}, allowed)


def _common(asked: Job, machine: Machine) -> dict[str, Any]:
    return {
        "name": asked.sync,
        "asked": asked,
        "worker_count": machine.worker_count,
        "overlap": asked.overlap,
        "bucket_bytes": 0.0 if asked.bucket_bytes is None else asked.bucket_bytes,
        "straggler": asked.straggler,
    }


def _all_reduced(
    asked: Job, machine: Machine, subject: Subject, profile: FrameworkProfile, element_bytes: int
) -> Agreement:
    del subject, profile, element_bytes
    algorithm = collective(asked.sync)
    options: dict[str, Any] = {"group_size": asked.group_size} if "group_size" in algorithm.option_names else {}
    placed = placed_once(algorithm, machine.system.topology, machine.names, **options)
    return AllReduced(placed=placed, **_common(asked, machine))


def collectives_of(profile: FrameworkProfile) -> CollectiveLibrary:
    """Return the library of collectives that a framework calls.

    Parameters
    ----------
    profile : FrameworkProfile
        The framework. [-]

    Returns
    -------
    CollectiveLibrary
        The library. [-]

    Raises
    ------
    ArgumentError
        If the framework names none.
    """
    named = profile.exchange.collectives
    if named is None:
        allowed = (
            f"an algorithm by its name, as {profile.name} states no library of collectives: {', '.join(ALL_REDUCES)}"
        )
        raise ArgumentError("sync", LIBRARY, allowed)
    return load_collective_library(named)


def _by_library(
    asked: Job, machine: Machine, subject: Subject, profile: FrameworkProfile, element_bytes: int
) -> Agreement:
    del subject, element_bytes
    library = collectives_of(profile)
    placed = place_library(library, LIBRARY, machine.system.topology, machine.names)
    slowdown = placed.taken_share(unit_count=machine.device.unit_count)
    return AllReduced(placed=placed, slowdown=slowdown, sources=(library,), **_common(asked, machine))


def _through_server(
    asked: Job, machine: Machine, subject: Subject, profile: FrameworkProfile, element_bytes: int
) -> Agreement:
    servers = server_memories(machine, asked.server_count)
    both = placed_once(
        collective(asked.sync), machine.system.topology, machine.names, servers=servers, server_count=asked.server_count
    )
    push, pull = (replace(both, rounds=each) for each in (both.rounds[:1], both.rounds[1:]))
    served = served_s_per_byte(
        machine, servers, subject, worker_count=machine.worker_count, element_bytes=element_bytes
    )
    return ThroughServer(
        push=push,
        pull=pull,
        server_s_per_byte=served,
        pulls_in_order=profile.exchange.pull_order == "layers",
        server=server_memory(machine, servers, subject, element_bytes=element_bytes, scheme=None),
        **_common(asked, machine),
    )


def _asynchronous(
    asked: Job, machine: Machine, subject: Subject, profile: FrameworkProfile, element_bytes: int
) -> Agreement:
    del profile
    scheme = scheme_of(asked.sync)
    parameter_bytes = float(element_bytes * subject.graph.trained_parameter_count)
    shard_bytes = parameter_bytes / asked.server_count
    servers = server_memories(machine, asked.server_count)
    memory_rate = memory_bytes_per_s(machine, servers)
    topology, names = machine.system.topology, machine.names
    size = asked.group_size or machine.worker_count
    group_size = size if asked.sync == "mixed" else 1
    visit = visit_of(
        topology,
        [((name, shard_bytes),) for name in names[::group_size]],
        servers,
        pulls_per_push=asked.push_period / asked.pull_period,
    )
    group_sync_s = 0.0
    if group_size > 1:
        groups = [names[first : first + group_size] for first in range(0, len(names), group_size)]
        ring = place(collective("ring_all_reduce"), topology, groups[0], beside=groups[1:])
        group_sync_s = float(ring.time(parameter_bytes))
    numbers = AsynchronousNumbers(
        compute_s=0.0,
        worker_count=machine.worker_count,
        push_latency_s=visit.push_latency_s,
        pull_latency_s=visit.pull_latency_s,
        push_s=visit.push_s,
        pull_s=visit.pull_s,
        push_sharers=visit.push_sharers,
        pull_sharers=visit.pull_sharers,
        update_s=shard_bytes * update_passes(subject, element_bytes=element_bytes) / memory_rate,
        compensation_s=extra_service_time(parameter_bytes=shard_bytes, memory_bytes_per_s=memory_rate),
        server_count=1,
        push_period=asked.push_period,
        pull_period=asked.pull_period,
        staleness_bound=asked.staleness_bound,
        group_size=group_size,
        group_sync_s=group_sync_s,
        times=None if asked.straggler is None else asked.straggler.times,
    )
    return Asynchronous(
        name=asked.sync,
        asked=asked,
        worker_count=machine.worker_count,
        scheme=scheme,
        numbers=numbers,
        server=server_memory(machine, servers, subject, element_bytes=element_bytes, scheme=scheme),
    )


AGREEMENT_OF: Final[Mapping[str, Callable[[Job, Machine, Subject, FrameworkProfile, int], Agreement]]] = {
    LIBRARY: _by_library,
    PARAMETER_SERVER: _through_server,
    **dict.fromkeys(SCHEMES, _asynchronous),
}
"""Strategies with an agreement of their own; all others reduce among the workers."""
