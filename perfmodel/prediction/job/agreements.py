"""Agreements placed on the devices of a system."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.staleness import extra_service_time
from perfmodel.derived import derived, derived_property, record
from perfmodel.errors import ArgumentError
from perfmodel.hardware.library import CollectiveLibrary, load_collective_library
from perfmodel.numeric import maximum
from perfmodel.parallelism.base import ALL_SHARED, Layout, Placement, whole_on_each
from perfmodel.prediction.arguments.checks import NO_SYNC
from perfmodel.prediction.job.agreement import (
    Agreement,
    AllReduced,
    AmongCopies,
    Asynchronous,
    Reduction,
    Synchronous,
    ThroughServer,
)
from perfmodel.prediction.job.agreement_options import (
    LIBRARY,
    PARAMETER_SERVER,
    WITH_SERVER,
    message_bytes_of,
    with_habits_of,
)
from perfmodel.prediction.job.exchange_times import Groups, worker_groups
from perfmodel.prediction.job.parameter_server import Server, calls_of
from perfmodel.prediction.job.server_visits import visit_of
from perfmodel.records import ELEMENT_BYTES, Phase
from perfmodel.sync.asynchronous import SCHEMES, scheme_of
from perfmodel.sync.asynchronous_scheme import AsynchronousNumbers
from perfmodel.sync.placed import Call, Placed, place
from perfmodel.sync.placed_alike import placed_once
from perfmodel.sync.registry import (
    ALL_REDUCES,
    LibraryCollective,
    collective,
    for_machines,
    place_library,
    taken_share,
)
from perfmodel.sync.stars import InNetwork

if TYPE_CHECKING:
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.hardware.measured_machine import AllReduce
    from perfmodel.hardware.topology import Topology
    from perfmodel.prediction.device.system_part import SystemPart
    from perfmodel.prediction.job.job import Job
    from perfmodel.prediction.job.prepared import Prepared
    from perfmodel.prediction.job.subject import Subject
    from perfmodel.sync.base import Collective

GROUP_SUM: Final = "ring_all_reduce"
"""Sum of gradients inside a group that visits a server as one."""
SHARED: Final = "reduce_scatter"
"""Sum of gradients when each worker needs only its own part."""


@record
class Workers:
    """The workers of a job: their devices, and each device's share of the network."""

    asked: Job
    system_part: SystemPart
    layout: Layout
    parameter_counts: tuple[int, ...]
    subject: Subject
    profile: FrameworkProfile
    element_bytes: int

    @property
    def count(self) -> int:
        """Workers. [1]"""
        return self.layout.data_size

    @property
    def scatters(self) -> bool:
        """Whether each worker gets the sum of its own share of gradients only."""
        stage = self.layout.shard_stage
        return stage > 0 and not self.profile.exchange.adds_up_whole(stage)

    @property
    def names(self) -> tuple[str, ...]:
        """All devices, in the order of the job."""
        return self.system_part.names

    def groups(self, place_: int) -> Groups:
        """Devices in one place of every worker, in groups that hold the same part of the layers."""
        return worker_groups(self.layout, self.names, place_, size=self.count)

    def sharing_groups(self, place_: int) -> Groups:
        """Devices in one place of the workers that share state."""
        return worker_groups(self.layout, self.names, place_, size=self.layout.sharing_size)

    def copies_groups(self, place_: int) -> Groups:
        """Devices in one place that hold copies of the same share."""
        size = self.layout.sharing_size
        return tuple(group[first::size] for group in self.groups(place_) for first in range(size))

    def label(self) -> dict[str, Any]:
        """Label of an agreement, with the number of workers in it."""
        return {"name": self.asked.sync, "asked": self.asked, "worker_count": self.count}

    def synchronous(self, reductions: list[Reduction], **more: Any) -> Synchronous:
        """Make the agreement of workers that all wait for each other."""
        return Synchronous(
            reductions=tuple(reductions),
            overlap=self.asked.overlap,
            message_bytes=message_bytes_of(self.profile, self.asked),
            straggler=self.asked.straggler,
            gathers_ahead=self.layout.gathers_ahead,
            reduces_each=self.layout.reduces_each,
            gathers_once=self.layout.gathers_once,
            **self.label(),
            **more,
        )

    @derived_property
    def server(self) -> Server:
        """The parameter server that they exchange with."""
        return Server(
            system_part=self.system_part,
            subject=self.subject,
            shard_count=self.asked.server_count,
            worker_count=self.count,
            element_bytes=self.element_bytes,
            node=self.asked.server_on,
        )

    @property
    def places(self) -> range:
        """Places within a worker whose devices have different layers."""
        return range(self.layout.stages)


def agreement_of(
    asked: Job,
    *,
    system_part: SystemPart | None,
    subject: Subject,
    profile: FrameworkProfile,
    dtype: str,
    placement: Placement | None = None,
) -> Agreement | None:
    """Make the agreement that a job asks for; None if its workers do not exchange gradients."""
    _check_speeds(asked, system_part, subject)
    if system_part is None:
        _refuse_server_without_system(asked)
    gathers = asked.shard_stage == ALL_SHARED  # parameters, in inference too
    if asked.sync == NO_SYNC or system_part is None or not (gathers or Phase.BACKWARD in subject.phase.parts):
        return None
    layout = whole_on_each(system_part.worker_count) if placement is None else placement.layout
    if layout.data_size == 1 and asked.sync not in WITH_SERVER:
        return None
    counts = [0] * layout.stages
    if placement is None:
        counts[0] = subject.graph.trained_parameter_count
    else:
        for stage in placement.stages:
            counts[stage.device] += stage.graph.trained_parameter_count
    workers = Workers(
        asked=with_habits_of(profile, asked),
        system_part=system_part,
        layout=layout,
        parameter_counts=tuple(counts),
        subject=subject,
        profile=profile,
        element_bytes=ELEMENT_BYTES[dtype],
    )
    return AGREEMENT_OF.get(asked.sync, _all_reduced)(workers)


def _refuse_server_without_system(asked: Job) -> None:
    """Raise if a job on a device alone says where its server is, or in how many shards."""
    why = "with device= alone, which has no server; pass system= to have one"
    if asked.server_on is not None:
        raise ArgumentError("server_on", asked.server_on, f"None {why}")
    if asked.server_count > 1:
        raise ArgumentError("server_count", asked.server_count, f"1 {why}")


def _check_speeds(asked: Job, system_part: SystemPart | None, subject: Subject) -> None:
    """Raise if workers of unequal speed exchange nothing, since each would have its own step time."""
    straggler = asked.straggler
    if straggler is None or straggler.times.lasting_count is None:
        return
    alone = system_part is None or (asked.workers == 1 and asked.sync not in SCHEMES)
    apart = alone or asked.sync == NO_SYNC or Phase.BACKWARD not in subject.phase.parts
    if apart and straggler != straggler.as_predicted:
        allowed = (
            "None or random times if workers exchange nothing: at lasting speeds each would have its own step time"
        )
        raise ArgumentError("straggler", {"distribution": straggler.times.name}, allowed)


def _all_reduced(workers: Workers) -> Agreement:
    name = SHARED if workers.scatters else workers.asked.sync
    algorithm = collective(name)
    options: dict[str, Any] = {}
    if "group_size" in algorithm.option_names:
        options["group_size"] = workers.asked.group_size
    if workers.layout.shard_stage and workers.layout.sharing_size < workers.count:
        allowed = f"None with sync={workers.asked.sync!r}; only 'all_reduce' also adds up the copies of groups"
        raise ArgumentError("shard_group", workers.layout.shard_group, allowed)
    system_part = workers.system_part
    library = _library_beside(_added_by(workers.profile, system_part), algorithm)
    reductions: list[Reduction] = []
    for at in workers.places:
        placed = _placed(workers, algorithm, at, **options)
        slowdown = _slowdown_beside(library, placed, unit_count=system_part.unit_count)
        reductions.append(AllReduced(placed=placed, slowdown=slowdown))
    return workers.synchronous(reductions, sources=() if library is None else (library,))


def _added_by(profile: FrameworkProfile, part: SystemPart | None) -> CollectiveLibrary | None:
    """Return the library whose thread blocks add gradients on a job's devices; None on hosts, and without one."""
    named = profile.exchange.collectives
    return None if named is None or part is None or part.computes_on_hosts else load_collective_library(named)


def _library_beside(library: CollectiveLibrary | None, algorithm: Collective) -> CollectiveLibrary | None:
    """Return the library whose thread blocks add gradients for an algorithm; None where hosts or engines add them."""
    return None if algorithm.server_kind == "memory" else library


Blocks: TypeAlias = Sequence[tuple[CollectiveLibrary | None, NDArray[np.intp], int | NDArray[np.int64]]]
"""Libraries whose thread blocks add gradients, each with its configurations and the units that they share."""


def blocks_on(jobs: Sequence[Prepared], *, joined: Callable[[Any], Any]) -> Blocks:
    """List the libraries whose thread blocks add gradients on the devices of jobs; none on hosts."""
    parts = [job.target.system_part for job in jobs]
    added_by = [_added_by(job.profile, part) for job, part in zip(jobs, parts, strict=True)]
    units = joined([1 if part is None else part.unit_count for part in parts])
    blocks: list[tuple[CollectiveLibrary | None, NDArray[np.intp], int | NDArray[np.int64]]] = []
    for library in {id(library): library for library in added_by}.values():
        places = np.flatnonzero(joined([other is library for other in added_by]))
        shared = units[places]
        blocks.append((library, places, int(shared[0]) if (shared == shared[0]).all() else shared))
    return blocks


def slowed_by_blocks(agreement: Agreement | None, blocks: Blocks) -> Agreement | None:
    """Slow the device of each configuration by the thread blocks of a named algorithm."""
    if not isinstance(agreement, Synchronous) or agreement.name == LIBRARY:
        return agreement
    reduction = agreement.reduction
    if not isinstance(reduction, AllReduced) or not isinstance(placed := reduction.placed, Placed):
        return agreement
    algorithm = collective(agreement.name)
    taken = [
        _slowdown_beside(_library_beside(beside, algorithm), placed, unit_count=units) for beside, _, units in blocks
    ]
    slowdown = taken[0]
    if len(blocks) > 1:
        slowdown = np.zeros(sum(len(places) for _, places, _ in blocks))
        for (_, places, _), share in zip(blocks, taken, strict=True):
            slowdown[places] = share
    return replace(agreement, reductions=(replace(reduction, slowdown=slowdown),))


def _slowdown_beside(library: CollectiveLibrary | None, placed: Placed, *, unit_count: Any) -> Any:
    """Share of a device that a library's thread blocks take while they add gradients for an algorithm. [1]"""
    return taken_share([placed], None if library is None else library.blocks, unit_count=unit_count)


def _placed(workers: Workers, algorithm: Any, place_: int, **options: Any) -> Placed:
    first, *beside = workers.sharing_groups(place_) if workers.scatters else workers.groups(place_)
    topology = workers.system_part.system.topology
    return placed_once(_form(topology, algorithm, first), topology, first, beside=tuple(beside), **options)


@derived
def _form(topology: Topology, algorithm: Collective, ranks: tuple[str, ...]) -> Collective:
    """Return the algorithm, in its form for machines if two of its devices are in one."""
    if len({topology.places[name].node for name in ranks}) == len(ranks):
        return algorithm
    return for_machines(algorithm, topology, ranks, by_name=True)


def collectives_of(profile: FrameworkProfile, *, on_hosts: bool = False) -> CollectiveLibrary:
    """Load the framework's library of collectives among GPUs, or among the processors of hosts."""
    named = profile.exchange.cpu_collectives if on_hosts else profile.exchange.collectives
    if named is None:
        lacking = "no library of collectives" + (" for tensors in host memory" if on_hosts else "")
        allowed = f"one of {', '.join(ALL_REDUCES)} with {profile.name}, which names {lacking}"
        raise ArgumentError("sync", LIBRARY, allowed)
    return load_collective_library(named)


@dataclass(frozen=True, eq=False, kw_only=True)
class MeasuredSum:
    """A library's sum of gradients, as it was measured on a machine."""

    placed: LibraryCollective
    measured: AllReduce

    def time(self, size_bytes: Any) -> Any:
        """Time of messages of this many bytes [B]. [s]"""
        return self.measured.latency_s + size_bytes / self.measured.bytes_per_s

    def call(self, size_bytes: float) -> Call:
        """Return a call whose messages, all sent at once, take the measured time."""
        messages = self.placed.call(size_bytes).placed.with_latencies(0.0)
        alone_s = float(messages.time(1.0))
        wire_bytes = size_bytes / (self.measured.bytes_per_s * alone_s)
        return Call(placed=messages, wire_bytes=wire_bytes, launch_s=self.measured.latency_s)

    def __getattr__(self, name: str) -> Any:
        """Forward other attributes to the library's messages on the system's links."""
        return getattr(self.placed, name)


def _sums_of(agreement: Agreement | None) -> list[MeasuredSum]:
    reductions = agreement.reductions if isinstance(agreement, Synchronous) else ()
    placed = [getattr(reduction, "placed", None) for reduction in reductions]
    return [sum_ for sum_ in placed if isinstance(sum_, MeasuredSum)]


def presumed_switches(agreement: Agreement | None, topology: Topology) -> tuple[str, ...]:
    """Return the switches that add gradients although the system's file does not say that they can."""
    reductions = agreement.reductions if isinstance(agreement, Synchronous) else ()
    placed = [getattr(reduction, "placed", None) for reduction in reductions]
    adding = [sum_ for sum_ in placed if isinstance(sum_, Placed) and isinstance(sum_.collective, InNetwork)]
    switches = dict.fromkeys(name for sum_ in adding for name in sum_.servers)
    return tuple(name for name in switches if not topology.places[name].reduces)


def measured_sum_of(agreement: Agreement | None) -> AllReduce | None:
    """Return the measured sum that an agreement uses, or None."""
    return next((sum_.measured for sum_ in _sums_of(agreement)), None)


def with_measured_sum(agreement: Agreement | None, measured: AllReduce) -> Agreement:
    """Replace the measured sum of an agreement."""
    assert isinstance(agreement, Synchronous)
    (reduction,), (summed,) = agreement.reductions, _sums_of(agreement)
    assert isinstance(reduction, AllReduced)
    return replace(agreement, reductions=(replace(reduction, placed=replace(summed, measured=measured)),))  # type: ignore[arg-type]


def _by_library(workers: Workers) -> Agreement:
    system_part = workers.system_part
    library = collectives_of(workers.profile, on_hosts=system_part.computes_on_hosts)
    topology, unit_count = system_part.system.topology, system_part.unit_count

    def placed_on(operation: str, groups: Sequence[tuple[str, ...]]) -> tuple[LibraryCollective | Placed, Any]:
        first, *beside = groups
        if operation not in library.operation:
            return placed_once(collective(operation), topology, first, beside=tuple(beside)), 0.0
        placed: Any = place_library(library, operation, topology, first, beside=beside)
        slowdown = placed.taken_share(unit_count=unit_count)
        if (begun := system_part.measured_between_hosts) is not None:
            placed = placed.beginning_in(begun.latency_s)
        measured = system_part.measured_sum
        if measured is not None and operation == LIBRARY and len(first) == measured.process_count:
            placed = MeasuredSum(placed=placed, measured=measured)
        return placed, slowdown

    reductions: list[Reduction] = []
    scatters = workers.scatters and workers.layout.sharing_size > 1  # a group of one has nothing to scatter
    for at in workers.places:
        if scatters:
            placed, slowdown = placed_on(SHARED, workers.sharing_groups(at))
        else:
            placed, slowdown = placed_on(LIBRARY, workers.groups(at))
        copies = None
        if scatters and workers.layout.sharing_size < workers.count:
            added, taken = placed_on(LIBRARY, workers.copies_groups(at))
            copies = AmongCopies(
                placed=added,
                sharing_size=workers.layout.sharing_size,
                slowdown=taken,
                in_turn=not placed.channels.isdisjoint(added.channels),
            )
        reductions.append(AllReduced(placed=placed, slowdown=slowdown, among_copies=copies))
    return workers.synchronous(reductions, sources=(library,))


@dataclass(frozen=True, eq=False, kw_only=True)
class SharedServerLinks:
    """Messages of one place to a server, over links that a worker's other places use too."""

    alone: Placed
    together: Placed
    beside_share: float

    def time(self, size_bytes: Any) -> Any:
        """Time of messages of this many bytes [B]. [s]"""
        alone_s = self.alone.time(size_bytes)
        return alone_s + maximum(self.together.time(size_bytes) - alone_s, 0.0) * self.beside_share

    def __getattr__(self, name: str) -> Any:
        """Forward other attributes to the messages at one place."""
        return getattr(self.alone, name)


def _through_server(workers: Workers) -> Agreement:
    per_byte = workers.server.s_per_byte
    reductions: list[Reduction] = []
    for at in workers.places:
        beside_ratio = _beside_ratio(workers, at)
        push, pull = (_to_server(workers, at, way, beside_ratio=beside_ratio) for way in (slice(0, 1), slice(1, None)))
        reductions.append(
            ThroughServer(
                push=push,
                pull=pull,
                server_s_per_byte=(1 + beside_ratio) * workers.layout.tensor_size * per_byte,
                pulls_in_order=workers.profile.exchange.pull_order == "layers",
            )
        )
    calls = calls_of(workers.profile, workers.server)
    calls_s = calls.worker_s + workers.count * calls.update_s  # the servers receive a gradient of every worker
    return workers.synchronous(reductions, server=workers.server.memory(), calls=calls, calls_s=calls_s)


def _beside_ratio(workers: Workers, place_: int) -> float:
    """Gradients that a worker's other places send meanwhile, over those of this place. [1]"""
    counts = workers.parameter_counts
    here = counts[place_]
    others = counts[:place_] + counts[place_ + 1 :]
    return sum(min(other, here) for other in others) / here if here else 0.0


def _to_server(workers: Workers, place_: int, way: slice, *, beside_ratio: float) -> Any:
    topology, algorithm = workers.system_part.system.topology, collective(workers.asked.sync)
    how: dict[str, Any] = {"servers": workers.server.processes, "server_count": workers.asked.server_count}
    (first, *beside), depth = workers.groups(place_), workers.layout.stages
    both = placed_once(algorithm, topology, first, beside=tuple(beside), **how)
    alone = replace(both, rounds=both.rounds[way])
    if depth == 1:
        return alone
    every, *others = [group for at in workers.places for group in workers.groups(at)]
    crowd = placed_once(algorithm, topology, every, beside=tuple(others), **how)
    together = replace(crowd, rounds=crowd.rounds[way])
    return SharedServerLinks(alone=alone, together=together, beside_share=beside_ratio / (depth - 1))


def _asynchronous(workers: Workers) -> Agreement:
    asked, system_part, layout = workers.asked, workers.system_part, workers.layout
    scheme = scheme_of(asked.sync)
    own_bytes = [float(workers.element_bytes * count) for count in workers.parameter_counts]
    shard_bytes = float(workers.element_bytes * workers.subject.graph.trained_parameter_count) / asked.server_count
    memory_rate = workers.server.memory_bytes_per_s
    topology, names = system_part.system.topology, workers.names
    size, width = layout.stages * layout.tensor_size, layout.tensor_size
    group_size = (asked.group_size or workers.count) if asked.sync == "mixed" else 1
    visit = visit_of(
        topology,
        [
            [(name, own_bytes[at // width]) for at, name in enumerate(names[first : first + size])]
            for first in range(0, len(names), size * group_size)  # the first worker of a group visits for it
        ],
        workers.server.processes,
        pulls_per_push=asked.push_period / asked.pull_period,
    )
    group_sync_s = 0.0
    if group_size > 1:
        groups = [group for at in workers.places for group in worker_groups(layout, names, at, size=group_size)]
        ring = place(collective(GROUP_SUM), topology, groups[0], beside=groups[1:])
        group_sync_s = float(ring.time(max(own_bytes)))
    calls = calls_of(workers.profile, workers.server)
    numbers = AsynchronousNumbers(
        compute_s=0.0,
        worker_count=workers.count,
        **asdict(replace(visit, push_latency_s=visit.push_latency_s + calls.worker_s)),
        update_s=shard_bytes * workers.server.update_passes / memory_rate + calls.update_s,
        compensation_s=extra_service_time(
            parameter_bytes=shard_bytes,
            memory_bytes_per_s=memory_rate,
            variable_count=calls.tensor_count,
            dispatch_s=calls.operation_s,
        ),
        server_count=1,
        push_period=asked.push_period,
        pull_period=asked.pull_period,
        staleness_bound=asked.staleness_bound,
        group_size=group_size,
        group_sync_s=group_sync_s,
        times=None if asked.straggler is None else asked.straggler.times,
    )
    memory = workers.server.memory(scheme)
    return Asynchronous(scheme=scheme, numbers=numbers, server=memory, calls=calls, **workers.label())


AGREEMENT_OF: Final[Mapping[str, Callable[[Workers], Agreement]]] = {
    LIBRARY: _by_library,
    PARAMETER_SERVER: _through_server,
    **dict.fromkeys(SCHEMES, _asynchronous),
}
"""Strategies with their own agreement; in all others the workers reduce among themselves."""
