"""Workers of a sweep: each timed alone for all batch sizes at once, in sections that exchange alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.cost.power import energy_ratio
from perfmodel.derived import derived, derived_property
from perfmodel.errors import PerfmodelError
from perfmodel.planning.sweeps.known_jobs import FAST_TARGETS, KnownJobs, groups
from perfmodel.planning.sweeps.results import Needs
from perfmodel.planning.sweeps.space import DEFAULTS, OF_WORKER, Space
from perfmodel.prediction.bill import processor_count, server_power_w
from perfmodel.prediction.device.factors import NO_FACTORS
from perfmodel.prediction.device.gpu_target import GpuTarget
from perfmodel.prediction.device.step_time import StepTime
from perfmodel.prediction.device_prices import price_names
from perfmodel.prediction.energy import Draws, energy_of_all, worker_draws
from perfmodel.prediction.job.agreement import Agreement, Synchronous
from perfmodel.prediction.job.agreement_options import LIBRARY
from perfmodel.prediction.job.agreements import Blocks, blocks_on
from perfmodel.prediction.job.compose import StageWork, is_served
from perfmodel.prediction.job.gradients import TIMES, GradientSchedule
from perfmodel.prediction.job.parameter_server import without_served_state
from perfmodel.prediction.job.prepare import prepare, refused_if_strict
from perfmodel.prediction.job.prepared import Prepared
from perfmodel.prediction.job.stacking import taken
from perfmodel.records import Phase

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.hardware.cpu import Cpu
    from perfmodel.hardware.gpu import Gpu
    from perfmodel.hardware.wiring import Wired
    from perfmodel.prediction.device.target import Target
    from perfmodel.prediction.memory.footprint import MemoryFootprint


COLUMNS_AT_ONCE: Final = 80
"""Columns of workers timed at once, if each number of workers takes others: larger arrays leave the caches. [1]"""


@dataclass(frozen=True, eq=False, kw_only=True)
class TimedKind:
    """Workers that differ only in batch size, each timed alone; those on other links share the times."""

    prepared: Prepared
    columns: slice = field(default_factory=lambda: slice(None))
    """The workers among the columns of ``prepared``. [1]"""
    foreseen: tuple[int, ...] = ()
    """Numbers of devices the slowest of which may be waited for; many are timed at once. [1]"""
    drawing: dict[float, TimedKind] = field(default_factory=dict)
    """The same workers on such devices."""
    footprints: dict[bytes, MemoryFootprint] = field(default_factory=dict)
    """Their memory by the alternatives that they choose. [B]"""

    @derived_property
    def batch_size(self) -> NDArray[np.float64]:
        """Samples of each worker. [samples]"""
        return self.prepared.batch_size[self.columns]  # type: ignore[index, no-any-return]

    @derived_property
    def parts(self) -> StepTime:
        """The step of each worker alone. [s]"""
        return taken(self.prepared.step().parts, self.columns)  # type: ignore[no-any-return]

    def copied_s(self, agreement: Agreement) -> Any:
        """Return the time of copies of gradients into the messages of an exchange and back. [s]"""
        return taken(self.prepared.copied_s(self.prepared.step().stages[0], agreement), self.columns)

    @property
    def draws(self) -> tuple[Any, Any, Any, Any]:
        """Power of a device at rest and at its limit [W]; energy of its arithmetic and its memory in a step [J]."""
        return taken(worker_draws(self.prepared, self.prepared.step()), self.columns)  # type: ignore[no-any-return]

    @derived_property
    def footprint(self) -> MemoryFootprint:
        """Memory of workers that update their own parameters, one for all that choose the same alternatives. [B]"""
        chosen = self.prepared.step().stages[0].chosen.chosen
        key = chosen[:, self.columns].tobytes() if chosen.ndim > 1 else b""
        if key not in self.footprints:
            self.footprints[key] = taken(self.prepared.footprint(self.prepared.step()), self.columns)
        return self.footprints[key]

    @derived_property
    def schedule(self) -> GradientSchedule | None:
        """Times at which gradients are ready; None without a backward pass. [s]"""
        if Phase.BACKWARD not in self.prepared.subject.phase.parts:
            return None
        return self.prepared.step().shown.gradients.taken(self.columns)

    @derived_property
    def beside_working_dies(self) -> TimedKind:
        """The same workers at the clock that a die keeps while other dies of its board work."""
        target = self.prepared.target
        assert isinstance(target, GpuTarget)
        slower = GpuTarget(target.device.beside_working_dies(), host=target.host, system_part=target.system_part)
        return TimedKind(prepared=replace(self.prepared, target=slower))

    def on(self, rank: float, count: float) -> TimedKind:
        """Return the workers on the device of a rank [1] among so many [1]; the same ones if no power limit acts."""
        ratio = self._ratio(rank, count)
        if not self._differs_on(ratio):
            return self
        if ratio not in self.drawing:
            most = max(1, COLUMNS_AT_ONCE // len(self.batch_size))
            others = (self._ratio(other, other) for other in self.foreseen)
            missing = [other for other in others if other not in self.drawing and self._differs_on(other)]
            self._time_on(tuple(dict.fromkeys([ratio, *missing]))[:most])
        return self.drawing[ratio]

    def _ratio(self, rank: float, count: float) -> float:
        """Energy of a FLOP on that device over that of the mean one. [1]"""
        variation = self.prepared.target.energy_variation(NO_FACTORS)
        return float(energy_ratio(rank=rank, count=count, variation=variation))

    def _differs_on(self, ratio: float) -> bool:
        """Tell whether a power limit gives such devices a clock of their own; below 1 it may be a higher one."""
        return ratio < 1 or self.prepared.target.drawing(ratio).slowest_clock < 1

    def _time_on(self, ratios: tuple[float, ...]) -> None:
        """Time the workers once on each of these devices, in columns beside one another."""
        count = len(self.batch_size)
        sizes: Any = np.tile(self.batch_size, len(ratios))
        prepared = replace(self.prepared, batch_size=sizes, stated_energy_ratio=np.repeat(ratios, count))
        for place, ratio in enumerate(ratios):
            columns = slice(place * count, (place + 1) * count)
            self.drawing[ratio] = TimedKind(prepared=prepared, columns=columns, footprints=self.footprints)


@dataclass(eq=False, kw_only=True)
class WorkerTimes:
    """Times of a section's workers, each alone; sections that differ only in their links share them."""

    kinds: tuple[TimedKind, ...]
    only: NDArray[np.int64] | None = None
    _works: dict[Hashable, StageWork] = field(default_factory=dict)
    _on: dict[tuple[float, float], WorkerTimes | None] = field(default_factory=dict)
    """The same workers on the device of a rank among some; None where no power limit slows it. [s]"""

    def joined(self, per_kind: Sequence[Any]) -> NDArray[Any]:
        """Join each kind's value or array."""
        return joined(per_kind, self.counts, self.only)

    def joined_unless_none(self, values: Sequence[Any]) -> Any:
        """Join each kind's value unless all are zero."""
        return 0.0 if _are_zero(values) else self.joined(values)

    @derived_property
    def counts(self) -> list[int]:
        """Number of workers of each kind. [1]"""
        return [len(kind.batch_size) for kind in self.kinds]

    @derived_property
    def batch_size(self) -> NDArray[np.float64]:
        """Samples per worker. [samples]"""
        return self.joined([kind.batch_size for kind in self.kinds])

    @derived_property
    def whole(self) -> StepTime:
        """Step of each worker. [s]"""
        return StepTime._make(map(self.joined_unless_none, zip(*(kind.parts for kind in self.kinds), strict=True)))

    @property
    def forward(self) -> StepTime:
        """Not available: workers of a sweep hold the whole network. [s]"""
        raise AssertionError

    backward = update = adding = copying_s = forward

    @derived_property
    def gradients(self) -> GradientSchedule:
        """Times at which each worker's gradients are ready. [s]"""
        schedules = [kind.schedule for kind in self.kinds]
        varied: dict[str, Any] = {name: self.joined([getattr(of, name) for of in schedules]) for name in TIMES}
        assert schedules[0] is not None
        return replace(schedules[0], **varied)

    def work(self, agreement: Agreement | None) -> StageWork:
        """Work of each worker in a step, with copies of gradients into the messages of an exchange and back. [s]"""
        key = (agreement is not None, _all_reduces(agreement))
        if key not in self._works:
            copied_s: list[Any] = [0.0]
            if agreement is not None:
                copied_s = [kind.copied_s(agreement) for kind in self.kinds]
            self._works[key] = StageWork(
                times=self._bare,  # which does not refer back to what is cached here
                exchanges_gradients=agreement is not None,
                copied_s=self.joined_unless_none(copied_s),
            )
        return self._works[key]

    @derived_property
    def _bare(self) -> WorkerTimes:
        return WorkerTimes(kinds=self.kinds, only=self.only)

    def among(self, agreement: Agreement | None) -> WorkerTimes:
        """Return the times of the same workers at the clock of the slowest device that each waits for. [s]"""
        rank, count = (1, 1) if agreement is None else agreement.waited_for
        if count == 1:
            return self
        if (rank, count) not in self._on:
            kinds = tuple([kind.on(rank, count) for kind in self.kinds])
            self._on[rank, count] = None if kinds == self.kinds else WorkerTimes(kinds=kinds, only=self.only)
        return self._on[rank, count] or self

    @derived_property
    def footprints(self) -> tuple[MemoryFootprint, ...]:
        """Memory of each kind of workers. [B]"""
        return tuple([kind.footprint for kind in self.kinds])

    def energy_j(self, target: Target, agreement: Agreement | None, links: int, step_s: Any) -> Any:
        """Energy of all devices in each worker's step of this time, on so many links one after the other [1]. [J]"""
        per_kind = zip(*[kind.draws for kind in self.kinds], strict=True)
        idle_w, limit_w, *work_j = (np.tile(self.joined(values), links) for values in per_kind)
        how = {"step_s": step_s, "count": processor_count(target)}
        return energy_of_all(Draws(idle_w, limit_w), [work_j], **how) + server_power_w(target, agreement) * step_s


def joined(per_kind: Sequence[Any], counts: Sequence[int], only: NDArray[np.int64] | None = None) -> NDArray[Any]:
    """Concatenate a value or array of each kind of workers; configurations run along the last axis."""
    values = [np.asarray(value) for value in per_kind]
    joined: NDArray[Any]
    if any(value.ndim for value in values):
        parts = [  # a broadcast that changes nothing would take as long as all the rest
            value if value.shape[-1:] == (count,) else np.broadcast_to(value, (*value.shape[:-1], count))
            for value, count in zip(values, counts, strict=True)
        ]
        joined = np.concatenate(parts, axis=-1)
    else:
        joined = np.repeat(values, counts)
    return joined if only is None else joined[..., only]


def _are_zero(values: Sequence[Any]) -> bool:
    return all(np.ndim(value) == 0 and value == 0 for value in values)


@dataclass(frozen=True, eq=False, kw_only=True)
class WorkerKind:
    """Workers that differ only in batch size."""

    prepared: Prepared
    alone: TimedKind
    places: NDArray[np.int64]
    asked: Mapping[str, Any]
    unlinked: Hashable
    """Key of workers that differ only in the link between machines."""

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
        return self.alone.footprint.input_bytes / (1 + self.copies_ahead)

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
    habits: int
    exchanged: Hashable
    unit_count: int | None
    layers: tuple[str, ...]


@dataclass(eq=False, kw_only=True)
class Section:
    """Workers with the same exchange (contents and route); their computing before it may differ.

    If each of several links joins the same workers, ``of_links`` has a section for each.
    """

    kinds: Sequence[WorkerKind]
    times: WorkerTimes
    """Times of the workers on one link. [s]"""
    alike: Alike
    of_links: tuple[Section, ...] = ()
    kept: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def on_links(cls, of_links: Sequence[Section]) -> Section:
        """Join sections that differ only in links."""
        first, *others = of_links
        if not others:
            return first
        kinds = [kind for section in of_links for kind in section.kinds]
        return cls(kinds=kinds, times=first.times, alike=first.alike, of_links=tuple(of_links))

    @property
    def first(self) -> WorkerKind:
        """One worker that stands for every kind in the section."""
        return self.kinds[0]

    @property
    def links(self) -> int:
        """Links, each with the same workers. [1]"""
        return len(self.of_links) or 1

    def joined(self, per_kind: Sequence[Any]) -> NDArray[Any]:
        """Join each kind's value or array."""
        return joined(per_kind, self.times.counts * self.links, self.times.only)

    @derived_property
    def places(self) -> NDArray[np.int64]:
        """Index of each worker within the task. [1]"""
        return self.joined([kind.places for kind in self.kinds])

    @derived_property
    def batch_size(self) -> NDArray[np.float64]:
        """Samples per worker. [samples]"""
        return np.tile(self.times.batch_size, self.links)

    def needs(
        self, agreement: Agreement | None, *, has_two: tuple[bool, ...], server_bytes: tuple[float, float]
    ) -> Needs:
        """Memory of each worker, in frameworks that have two mini-batches on the device and others. [B]

        ``server_bytes`` are those of a parameter server beside the worker, and those that it lacks elsewhere.
        """
        footprints = self.times.among(agreement).footprints
        how = (*map(id, footprints), is_served(agreement), _all_reduces(agreement))
        key = ("needs", has_two, server_bytes, *how)
        if key not in self.kept:
            of_server, missing_elsewhere_bytes = server_bytes
            kept_bytes, input_bytes, capacity_bytes = self._memory_bytes(agreement, footprints, how)
            buffers = np.ones(len(self.batch_size))
            for (_, places), with_two in zip(self.by_framework, has_two, strict=True):
                buffers[places] += with_two
            self.kept[key] = Needs(
                memory_bytes=kept_bytes + (buffers - 1) * input_bytes + of_server,
                capacity_bytes=capacity_bytes,
                missing_elsewhere_bytes=missing_elsewhere_bytes,
            )
        needs: Needs = self.kept[key]
        return needs

    def _memory_bytes(
        self, agreement: Agreement | None, of_kinds: Sequence[MemoryFootprint], how: tuple[Hashable, ...]
    ) -> tuple[Any, Any, Any]:
        """Memory of each worker with one mini-batch on the device, size of one mini-batch, and capacity. [B]"""
        key = ("memory", *how)
        if key not in self.kept:
            footprints = self.links * [without_served_state(footprint, agreement) for footprint in of_kinds]
            one = [kind.one_input_bytes for kind in self.kinds]
            kept_bytes = [
                footprint.total_bytes - footprint.input_bytes + input_bytes
                for footprint, input_bytes in zip(footprints, one, strict=True)
            ]
            in_buckets = [kind.prepared.buckets_bytes(agreement) for kind in self.kinds]
            buckets_bytes = 0.0 if _are_zero(in_buckets) else self.joined(in_buckets)
            capacity_bytes = self.joined([footprint.capacity_bytes for footprint in footprints])
            self.kept[key] = self.joined(kept_bytes) + buckets_bytes, self.joined(one), capacity_bytes
        memory: tuple[Any, Any, Any] = self.kept[key]
        return memory

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
        return replace(self, times=WorkerTimes(kinds=self.times.kinds, only=members), kept={})

    @derived_property
    def beside_working_dies(self) -> Section:
        """The same workers at the clock that a die keeps while other dies of its board work."""
        kinds = [replace(kind, alone=kind.alone.beside_working_dies) for kind in self.kinds]
        slower = tuple([kind.beside_working_dies for kind in self.times.kinds])
        times = WorkerTimes(kinds=slower, only=self.times.only)
        return replace(self, kinds=kinds, times=times, kept={})


@derived
def _facts(spec: Gpu | Cpu) -> Hashable:
    """Name of a processor with all that its file says."""
    return spec.stem, spec.model_dump_json(warnings=False)


def _all_reduces(agreement: Agreement | None) -> bool:
    """Whether workers exchange copies of gradients: all of an agreement that counts for these copies."""
    return isinstance(agreement, Synchronous) and agreement.all_reduces


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
        timed: dict[Hashable, TimedKind] = {}
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
        times: dict[tuple[TimedKind, ...], WorkerTimes] = {}
        on_links: dict[Hashable, list[Section]] = defaultdict(list)
        for alike, kinds in sections.items():
            alone = tuple([kind.alone for kind in kinds])
            shared = times.setdefault(alone, WorkerTimes(kinds=alone))
            section = Section(kinds=kinds, times=shared, alike=alike)
            # a list of configurations has other workers for each job
            likeness = (alone, *[kind.unlinked for kind in kinds]) if self.space.is_product else alike
            on_links[likeness].append(section)
        return Block(
            sections=tuple(map(Section.on_links, on_links.values())),
            refused=tuple(refused),
            slow=np.concatenate(slow) if slow else np.empty(0, dtype=np.int64),
        )

    def _kind(
        self,
        codes: dict[str, int],
        places: NDArray[np.int64],
        batches: NDArray[np.int64],
        timed: dict[Hashable, TimedKind],
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
        alone = timed.setdefault(key, TimedKind(prepared=prepared, foreseen=self._foreseen))
        alone.prepared.step()  # refuses, for these workers alone, what their device cannot compute
        unlinked = (*((name, code) for name, code in codes.items() if name != "link"),)
        return WorkerKind(prepared=prepared, alone=alone, places=places, asked=asked, unlinked=unlinked)

    @derived_property
    def _foreseen(self) -> tuple[int, ...]:
        """Numbers of workers the slowest of which are waited for, without backups. [1]"""
        axis = self.space.by_name.get("workers")
        if axis is None or not self.space.is_product:
            return ()
        return tuple(count for count in axis.values if count > 1)

    def _batch_size(self, code: int) -> int:
        batch_size = self.space.value("batch_size", code)
        graph = self.space.graph
        return int(graph.samples(graph.fixed_batch_size if batch_size is None else batch_size))

    def _processor(self, target: Target, codes: Mapping[str, int]) -> Hashable:
        """Return a key that processors with the same times share."""
        if not isinstance(target, GpuTarget):
            return tuple((name, codes.get(name)) for name in ("device", "system"))
        specs: list[Gpu | Cpu] = [target.device] if target.host is None else [target.device, target.host]
        return tuple(map(_facts, specs))

    def _section_key(self, kind: WorkerKind) -> Alike:
        """Return the key of the section that workers belong to."""
        prepared, target = kind.prepared, kind.target
        by_library = LIBRARY in self._strategies
        subject = prepared.subject
        return Alike(
            wiring=self._wiring(target),
            habits=self._exchange(prepared.profile, by_library=by_library),
            exchanged=(prepared.exchanged_dtype, id(subject.optimizer), subject.phase),
            unit_count=target.device.unit_count if by_library and isinstance(target, GpuTarget) else None,
            layers=() if kind.alone.schedule is None else kind.alone.schedule.layers,
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
