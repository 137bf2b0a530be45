"""Workers of a sweep: each timed alone for all batch sizes at once, in sections that exchange alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.derived import derived_property
from perfmodel.errors import PerfmodelError
from perfmodel.planning.sweeps.known_jobs import FAST_TARGETS, KnownJobs, groups
from perfmodel.planning.sweeps.results import Needs
from perfmodel.planning.sweeps.space import DEFAULTS, OF_WORKER, Space
from perfmodel.prediction.bill import processor_count, server_power_w
from perfmodel.prediction.device.gpu_target import GpuTarget
from perfmodel.prediction.device.step_time import StepTime
from perfmodel.prediction.device_prices import price_names
from perfmodel.prediction.energy import Draws, energy_of_all, worker_draws
from perfmodel.prediction.job.agreement import Agreement, Synchronous
from perfmodel.prediction.job.agreement_options import LIBRARY
from perfmodel.prediction.job.agreements import Blocks, blocks_on
from perfmodel.prediction.job.compose import StageWork, is_served
from perfmodel.prediction.job.gradients import GradientSchedule
from perfmodel.prediction.job.parameter_server import without_served_state
from perfmodel.prediction.job.prepare import prepare, refused_if_strict
from perfmodel.prediction.job.prepared import Prepared
from perfmodel.prediction.job.stage import TimedStep
from perfmodel.records import Phase

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.hardware.cpu import Cpu
    from perfmodel.hardware.gpu import Gpu
    from perfmodel.hardware.wiring import Wired
    from perfmodel.prediction.device.target import Target
    from perfmodel.prediction.memory.footprint import MemoryFootprint


@dataclass(frozen=True, eq=False, kw_only=True)
class WorkerKind:
    """Workers that differ only in batch size."""

    prepared: Prepared
    timed: TimedStep
    footprint: MemoryFootprint
    """Memory of workers that update their own parameters. [B]"""
    places: NDArray[np.int64]
    asked: Mapping[str, Any]
    slower: dict[tuple[int, int], TimedStep] = field(default_factory=dict)
    """Steps of such workers that wait for the slowest of some; other kinds with these times share them. [s]"""

    @derived_property
    def schedule(self) -> GradientSchedule | None:
        """Times at which gradients are ready; None without a backward pass. [s]"""
        if Phase.BACKWARD not in self.prepared.subject.phase.parts:
            return None
        return self.timed.shown.gradients

    @property
    def target(self) -> Target:
        """The target that the workers run on."""
        return self.prepared.target

    @derived_property
    def copies_ahead(self) -> bool:
        """Whether prefetching copies the next mini-batch during a step, so that two are on the device."""
        return bool(np.any(self.prepared.copied_ahead(self.prepared.stages[0]).copied_bytes))

    @property
    def one_input_bytes(self) -> Any:
        """Size of one mini-batch, of which the footprint may hold two. [B]"""
        return self.footprint.input_bytes / (1 + self.copies_ahead)

    @property
    def system(self) -> str:
        """Name of the device's system; empty without one."""
        return "" if self.target.system_part is None else self.target.system_part.system.name

    @property
    def device(self) -> tuple[str, ...]:
        """Names under which the device may have a price."""
        return price_names(self.target)


@dataclass(frozen=True, kw_only=True, slots=True)
class Alike:
    """Key of a section."""

    wiring: Hashable
    exchanged: Hashable
    unit_count: int | None
    layers: tuple[str, ...]


@dataclass(eq=False, kw_only=True)
class Section:
    """Workers with the same exchange (contents and route); their computing before it may differ."""

    kinds: Sequence[WorkerKind]
    alike: Alike
    only: NDArray[np.int64] | None = None
    kept: dict[Any, Any] = field(default_factory=dict)
    known: dict[Any, Any] = field(default_factory=dict)
    """What does not depend on the times of the workers. [-]"""

    @property
    def first(self) -> WorkerKind:
        """One worker that stands for every kind in the section."""
        return self.kinds[0]

    def joined(self, per_kind: Sequence[Any]) -> NDArray[Any]:
        """Concatenate each kind's value or array; configurations run along the last axis."""
        values = [np.asarray(value) for value in per_kind]
        joined: NDArray[Any]
        if any(value.ndim for value in values):
            sized = zip(values, self.counts, strict=True)
            parts = [  # a broadcast that changes nothing would take as long as all the rest
                value if value.shape[-1:] == (count,) else np.broadcast_to(value, (*value.shape[:-1], count))
                for value, count in sized
            ]
            joined = np.concatenate(parts, axis=-1)
        else:
            joined = np.repeat(values, self.counts)
        return joined if self.only is None else joined[..., self.only]

    @derived_property
    def bare(self) -> Section:
        """The same workers with an empty cache."""
        return replace(self, kept={})

    @derived_property
    def counts(self) -> list[int]:
        """Number of workers of each kind. [1]"""
        return [len(kind.places) for kind in self.kinds]

    @derived_property
    def places(self) -> NDArray[np.int64]:
        """Index of each worker within the task. [1]"""
        return self.joined([kind.places for kind in self.kinds])

    @derived_property
    def batch_size(self) -> NDArray[np.float64]:
        """Samples per worker. [samples]"""
        return self.joined([kind.prepared.batch_size for kind in self.kinds])

    @derived_property
    def whole(self) -> StepTime:
        """Step of each worker alone. [s]"""
        return StepTime._make(
            map(self._joined_unless_none, zip(*(kind.timed.parts for kind in self.kinds), strict=True))
        )

    def _joined_unless_none(self, values: Sequence[Any]) -> Any:
        return 0.0 if all(np.ndim(value) == 0 and value == 0 for value in values) else self.joined(values)

    def work(self, agreement: Agreement | None) -> StageWork:
        """Work of each worker in a step, with copies of gradients into the messages of an exchange and back. [s]"""
        key = ("work", agreement is not None, _all_reduces(agreement))
        if key not in self.kept:
            copied_s: list[Any] = [0.0]
            if agreement is not None:
                copied_s = [kind.prepared.copied_s(kind.timed.stages[0], agreement) for kind in self.kinds]
            self.kept[key] = StageWork(
                times=self.bare,  # which does not refer back to what is cached here
                exchanges_gradients=agreement is not None,
                copied_s=self._joined_unless_none(copied_s),
            )
        work: StageWork = self.kept[key]
        return work

    @property
    def forward(self) -> StepTime:
        """Not available: workers of a sweep hold the whole network. [s]"""
        raise AssertionError

    backward = update = adding = copying_s = forward

    @derived_property
    def gradients(self) -> GradientSchedule:
        """Times at which each worker's gradients are ready. [s]"""
        schedules = [kind.schedule for kind in self.kinds]
        varied: dict[str, Any] = {
            name: self.joined([getattr(schedule, name) for schedule in schedules])
            for name in ("ready_s", "wanted_s", "forward_s", "backward_s")
        }
        assert schedules[0] is not None
        return replace(schedules[0], **varied)

    def needs(
        self, agreement: Agreement | None, *, has_two: tuple[bool, ...], server_bytes: tuple[float, float]
    ) -> Needs:
        """Memory of each worker, in frameworks that have two mini-batches on the device and others. [B]

        ``server_bytes`` are those of a parameter server beside the worker, and those that it lacks elsewhere.
        """
        key = ("needs", has_two, server_bytes, is_served(agreement), _all_reduces(agreement))
        if key not in self.known:
            of_server, missing_elsewhere_bytes = server_bytes
            kept_bytes, input_bytes, capacity_bytes = self._memory_bytes(agreement)
            buffers = np.ones(len(self.batch_size))
            for (_, places), with_two in zip(self.by_framework, has_two, strict=True):
                buffers[places] += with_two
            self.known[key] = Needs(
                memory_bytes=kept_bytes + (buffers - 1) * input_bytes + of_server,
                capacity_bytes=capacity_bytes,
                missing_elsewhere_bytes=missing_elsewhere_bytes,
            )
        needs: Needs = self.known[key]
        return needs

    def _memory_bytes(self, agreement: Agreement | None) -> tuple[Any, Any, Any]:
        """Memory of each worker with one mini-batch on the device, size of one mini-batch, and capacity. [B]"""
        key = ("memory", is_served(agreement), _all_reduces(agreement))
        if key not in self.known:
            footprints = [without_served_state(kind.footprint, agreement) for kind in self.kinds]
            one = [kind.one_input_bytes for kind in self.kinds]
            kept_bytes = [
                footprint.total_bytes - footprint.input_bytes + input_bytes
                for footprint, input_bytes in zip(footprints, one, strict=True)
            ]
            buckets_bytes = self._joined_unless_none([kind.prepared.buckets_bytes(agreement) for kind in self.kinds])
            capacity_bytes = self.joined([footprint.capacity_bytes for footprint in footprints])
            self.known[key] = self.joined(kept_bytes) + buckets_bytes, self.joined(one), capacity_bytes
        memory: tuple[Any, Any, Any] = self.known[key]
        return memory

    def energy_j(self, target: Target, agreement: Agreement | None, step_s: Any) -> Any:
        """Energy of all devices in each worker's step of this time. [J]"""
        per_kind = [worker_draws(kind.prepared, kind.timed) for kind in self.kinds]
        idle_w, limit_w, *work_j = (self.joined(values) for values in zip(*per_kind, strict=True))
        how = {"step_s": step_s, "count": processor_count(target)}
        return energy_of_all(Draws(idle_w, limit_w), [work_j], **how) + server_power_w(target, agreement) * step_s

    @derived_property
    def by_framework(self) -> list[tuple[WorkerKind, NDArray[np.int64]]]:
        """One kind per framework, and the workers that share its copies."""
        by_profile: dict[Hashable, tuple[WorkerKind, list[bool]]] = {}
        for index, kind in enumerate(self.kinds):
            key = (id(kind.prepared.profile), kind.prepared.pinned)
            by_profile.setdefault(key, (kind, [False] * len(self.kinds)))[1][index] = True
        return [(kind, np.flatnonzero(self.joined(alike))) for kind, alike in by_profile.values()]

    @derived_property
    def blocks(self) -> Blocks:
        """Libraries whose thread blocks add up on workers' devices, and the units that they share."""
        return blocks_on([kind.prepared for kind in self.kinds], joined=self.joined)

    @derived_property
    def numbered_devices(self) -> tuple[list[tuple[str, ...]], NDArray[np.intp]]:
        """The different names under which devices may have prices, and each worker's index among them."""
        place_of = {names: place for place, names in enumerate(dict.fromkeys(kind.device for kind in self.kinds))}
        return list(place_of), self.joined([place_of[kind.device] for kind in self.kinds])

    def some(self, members: NDArray[np.int64]) -> Section:
        """Return some of the workers, by their index in the section."""
        return Section(kinds=self.kinds, alike=self.alike, only=members)

    @derived_property
    def beside_working_dies(self) -> Section:
        """The same workers at the clock that a die keeps while other dies of its board work."""
        return Section(kinds=[_slower(kind) for kind in self.kinds], alike=self.alike, only=self.only)

    def among_devices(self, agreement: Agreement | None) -> Section:
        """Return the same workers, each at the clock of the slowest device that it waits for."""
        waited_for = (1, 1) if agreement is None else agreement.waited_for
        if waited_for == (1, 1):
            return self
        known = self.kept.setdefault("among", {})
        if waited_for not in known:
            kinds = [_among_devices(kind, waited_for) for kind in self.kinds]
            is_same = all(one is other for one, other in zip(kinds, self.kinds, strict=True))
            known[waited_for] = self if is_same else replace(self, kinds=kinds, kept={})
        among: Section = known[waited_for]
        return among


def _all_reduces(agreement: Agreement | None) -> bool:
    """Whether workers exchange copies of gradients: all of an agreement that counts for these copies."""
    return isinstance(agreement, Synchronous) and agreement.all_reduces


def _slower(kind: WorkerKind) -> WorkerKind:
    target = kind.target
    assert isinstance(target, GpuTarget)
    slower = GpuTarget(target.device.beside_working_dies(), host=target.host, system_part=target.system_part)
    prepared = replace(kind.prepared, target=slower)
    timed = prepared.step()
    return replace(kind, prepared=prepared, timed=timed, footprint=prepared.footprint(timed), slower={})


def _among_devices(kind: WorkerKind, waits_for: tuple[int, int]) -> WorkerKind:
    """Return workers that wait for the slowest of some; the same ones if no power limit slows it."""
    prepared = replace(kind.prepared, waits_for=waits_for)
    ratio = prepared.energy_ratio  # below 1, its clock may be higher than the mean one's
    if ratio >= 1 and kind.target.drawing(ratio).slowest_clock == 1:
        return kind
    if waits_for not in kind.slower:
        kind.slower[waits_for] = prepared.step()
    return replace(kind, prepared=prepared, timed=kind.slower[waits_for])


@dataclass(frozen=True, eq=False, kw_only=True)
class Block:
    """The workers of a task."""

    sections: tuple[Section, ...]
    refused: tuple[tuple[NDArray[np.int64], str], ...]
    slow: NDArray[np.int64]

    @derived_property
    def order(self) -> NDArray[np.int64]:
        """Index of each worker within the task: section by section, then those refused and the slow ones. [1]"""
        return np.concatenate(
            [*[of.places for of in self.sections], *[places for places, _ in self.refused], self.slow]
        )


@dataclass(eq=False)
class Workers:
    """Times the workers of tasks, and caches intermediate results for later tasks."""

    space: Space

    def __post_init__(self) -> None:
        self._known = KnownJobs(self.space)
        self._numbers: dict[Hashable, int] = {}
        self._wirings: dict[int, tuple[Wired, int]] = {}  # by identity, as profiles are: kept, so that none is reused
        self._profiles: dict[int, tuple[FrameworkProfile, int]] = {}

    def block(self, codes: Mapping[str, NDArray[np.int64]], count: int) -> Block:
        """Return the workers of a task, grouped into sections."""
        no_codes = np.zeros(count, dtype=np.int64)
        names = [name for name in OF_WORKER if name in codes and name != "batch_size"]
        sections: dict[Alike, list[WorkerKind]] = defaultdict(list)
        refused, slow = [], []
        timed: dict[Hashable, tuple[TimedStep, MemoryFootprint, dict[tuple[int, int], TimedStep]]] = {}
        for key, places in groups([codes[name] for name in names] or [no_codes]):
            batches = codes.get("batch_size", no_codes)[places]
            try:
                kind = self._kind(dict(zip(names, key, strict=bool(names))), places, batches, timed)
            except PerfmodelError as error:
                refused.append((places, str(error)))
                continue
            if kind is None:
                slow.append(places)
            else:
                sections[self._section_key(kind)].append(kind)
        made = [Section(kinds=kinds_of, alike=key) for key, kinds_of in sections.items()]
        return Block(
            sections=tuple(made),
            refused=tuple(refused),
            slow=np.concatenate(slow) if slow else np.empty(0, dtype=np.int64),
        )

    def _kind(
        self,
        codes: dict[str, int],
        places: NDArray[np.int64],
        batches: NDArray[np.int64],
        timed: dict[Hashable, tuple[TimedStep, MemoryFootprint, dict[tuple[int, int], TimedStep]]],
    ) -> WorkerKind | None:
        """Return workers that differ only in batch size; None where predict must evaluate each."""
        arguments = self.space.resolved(codes)
        asked: dict[str, Any] = {name: arguments.get(name) for name in ("device", "system", "threads")}
        job = self._known.job(codes, arguments)
        depends_on_workers = job.strict and any(entry.several_workers for entry in job.profile.cannot)
        if job.target.lowered_for not in FAST_TARGETS or depends_on_workers:
            return None
        sizes = [self._batch_size(code) for code in batches.tolist()]
        prepared = prepare(
            job.subject,
            target=job.target,
            profile=job.profile,
            batch_size=sizes[0],
            dtype=job.dtype,
            library=job.library,
            pinned=job.pinned,
            recompute=job.recompute,
            image_layout=job.image_layout,
        )
        prepared = replace(refused_if_strict(prepared, job), batch_size=np.array(sizes, dtype=float))  # type: ignore[arg-type]
        same = (*((name, code) for name, code in codes.items() if name not in ("device", "system", "link", "pinned")),)
        key = (self._processor(job.target, codes), same, tuple(sizes))
        if key not in timed:
            timed[key] = prepared.step(), prepared.footprint(prepared.step()), {}
        step, footprint, slower = timed[key]
        how: dict[str, Any] = {"timed": step, "footprint": footprint, "slower": slower}
        return WorkerKind(prepared=prepared, places=places, asked=asked, **how)

    def _batch_size(self, code: int) -> int:
        batch_size = self.space.value("batch_size", code)
        graph = self.space.graph
        return int(graph.samples(graph.fixed_batch_size if batch_size is None else batch_size))

    def _processor(self, target: Target, codes: Mapping[str, int]) -> Hashable:
        """Return a key that processors with the same times share."""
        if not isinstance(target, GpuTarget):
            return tuple((name, codes.get(name)) for name in ("device", "system"))
        specs: list[Gpu | Cpu] = [target.device] if target.host is None else [target.device, target.host]
        return tuple([(spec.stem, spec.model_dump_json(warnings=False)) for spec in specs])

    def _section_key(self, kind: WorkerKind) -> Alike:
        """Return the key of the section that workers belong to."""
        prepared, target = kind.prepared, kind.target
        by_library = LIBRARY in self._strategies
        subject = prepared.subject
        return Alike(
            wiring=self._wiring(target),
            exchanged=(
                self._exchange(prepared.profile, by_library=by_library),
                prepared.exchanged_dtype,
                id(subject.optimizer),
                subject.phase,
            ),
            unit_count=target.device.unit_count if by_library and isinstance(target, GpuTarget) else None,
            layers=() if kind.schedule is None else kind.schedule.layers,
        )

    def _exchange(self, profile: FrameworkProfile, *, by_library: bool) -> int:
        """Return a number for how a framework exchanges gradients; ``sync`` may leave that to its library."""
        if id(profile) not in self._profiles:
            exchange = profile.exchange
            # calls to servers also take the time of the framework's operations on CPUs
            is_of_framework = by_library or exchange.server_step_us
            habits = id(profile) if is_of_framework else exchange.model_copy(update={"collectives": None})
            self._profiles[id(profile)] = profile, self._number(("habits", habits))
        return self._profiles[id(profile)][1]

    @derived_property
    def _strategies(self) -> frozenset[Any]:
        axis = self.space.by_name.get("sync")
        return frozenset({DEFAULTS["sync"]} if axis is None else axis.values)

    def _wiring(self, target: Target) -> Hashable:
        """Return a key for the route of mini-batches and gradients."""
        part = target.system_part
        if not isinstance(target, GpuTarget):
            return (target.processor, target.name, None if part is None else id(part.system))  # kept by known jobs
        if part is None:
            return (target.processor, target.link.name)
        system = part.system
        if id(system) not in self._wirings:
            self._wirings[id(system)] = system, self._wired(system)
        return self._wirings[id(system)][1]

    def _wired(self, system: Wired) -> int:
        """Return a number for the wiring of a system; devices in its slots do not count."""
        devices = [device for _, device in system.devices]
        alike = tuple(devices.index(device) for device in devices)
        boards = tuple(dict.fromkeys(device.board for device in devices))
        places = tuple((place.name, place.kind, place.node, place.has_rdma) for place in system.wiring.places)
        drives = tuple((array.name, array.drive, array.drive_count, array.efficiency) for array in system.storages)
        networks = tuple(system.networks)
        hosts = tuple(
            (name, id(host.processor), host.core_count, host.memory_capacity_bytes)
            for name, host in system.hosts.items()
        )
        key = (system.wiring.wires, places, alike, boards, drives, networks, hosts)
        return self._number(key)

    def _number(self, key: Hashable) -> int:
        """Return a number for a key that takes long to hash and compare."""
        return self._numbers.setdefault(key, len(self._numbers))
