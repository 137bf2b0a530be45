"""Steps of a sweep's workers: each timed alone for all batch sizes at once, then joint steps of equal exchanges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.derived import derived_property
from perfmodel.errors import PerfmodelError
from perfmodel.planning.sweeps.known_jobs import AGREED_BY, FAST_TARGETS, JobValues, KnownJobs, groups
from perfmodel.planning.sweeps.results import Outcome, epoch_size
from perfmodel.planning.sweeps.space import DEFAULTS, FED_BY, OF_WORKER, Space
from perfmodel.prediction.bill import paid_count, processor_count, server_power_w
from perfmodel.prediction.device.gpu_target import GpuTarget
from perfmodel.prediction.device.step_time import StepTime
from perfmodel.prediction.device.targets import resolve_target
from perfmodel.prediction.device_prices import Prices, price_names
from perfmodel.prediction.energy import Draws, energy_of_all, worker_draws
from perfmodel.prediction.job.agreement import Agreement, Asynchronous
from perfmodel.prediction.job.agreement_options import LIBRARY, WITH_SERVER
from perfmodel.prediction.job.agreements import agreement_of, beside_blocks, blocks_on
from perfmodel.prediction.job.compose import Composed, StageWork, agreed, fed_with, is_served
from perfmodel.prediction.job.data_path import DataPath, resolve_data_path
from perfmodel.prediction.job.gradients import MERGED, GradientSchedule
from perfmodel.prediction.job.job import Job
from perfmodel.prediction.job.parameter_server import without_served_state
from perfmodel.prediction.job.prepare import prepare, refused_if_strict
from perfmodel.prediction.job.prepared import Prepared, TimedStep
from perfmodel.records import Phase

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    places: NDArray[np.int64]
    asked: Mapping[str, Any]

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

    def one_input_bytes(self, footprint: MemoryFootprint) -> Any:
        """Return the size of one mini-batch of a footprint that may hold two. [B]"""
        ahead_bytes = self.prepared.copied_ahead(self.prepared.stages[0]).copied_bytes
        return footprint.input_bytes / (1 + bool(np.any(ahead_bytes)))

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

    def copied_s(self, agreement: Agreement) -> Any:
        """Time to copy gradients into the messages of an exchange and back. [s]"""
        return self._of_messages(agreement, "copied_s", lambda kind: (kind.timed.stages[0], agreement))

    def buckets_bytes(self, agreement: Agreement | None) -> Any:
        """Second copies of gradients in buckets, where workers exchange copies. [B]"""
        return self._of_messages(agreement, "buckets_bytes", lambda _: (agreement,))

    def _of_messages(self, agreement: Agreement | None, name: str, given: Callable[[WorkerKind], Any]) -> Any:
        """Ask the job of each kind for a number that it has if workers exchange copies of gradients."""
        key = (name, getattr(agreement, "all_reduces", False))  # nothing else of an agreement counts
        if key not in self.kept:
            numbers = [getattr(kind.prepared, name)(*given(kind)) for kind in self.kinds]
            self.kept[key] = self._joined_unless_none(numbers)
        return self.kept[key]

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

    @derived_property
    def footprints(self) -> list[MemoryFootprint]:
        """Memory of workers of each kind that update their own parameters. [B]"""
        return [kind.prepared.footprint(kind.timed) for kind in self.kinds]

    def memory_bytes(
        self, agreement: Agreement | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Memory of each worker with one mini-batch on the device, size of one mini-batch, and capacity. [B]"""
        key = ("memory", is_served(agreement))
        if key not in self.kept:
            self.kept[key] = self._memory_bytes([without_served_state(each, agreement) for each in self.footprints])
        memory: tuple[Any, Any, Any] = self.kept[key]
        return memory

    def _memory_bytes(self, footprints: Sequence[MemoryFootprint]) -> tuple[Any, Any, Any]:
        one = [kind.one_input_bytes(footprint) for kind, footprint in zip(self.kinds, footprints, strict=True)]
        kept = [
            footprint.total_bytes - footprint.input_bytes + input_bytes
            for footprint, input_bytes in zip(footprints, one, strict=True)
        ]
        return self.joined(kept), self.joined(one), self.joined([footprint.capacity_bytes for footprint in footprints])

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
    def blocks(self) -> list[tuple[str | None, int]]:
        """Libraries whose blocks make sums on the device of each kind, and the units that they share."""
        return [blocks_on(kind.prepared) for kind in self.kinds]

    @derived_property
    def numbered_devices(self) -> tuple[list[tuple[str, ...]], NDArray[np.intp]]:
        """The different names under which devices may have prices, and each worker's index among them."""
        names = list(dict.fromkeys(kind.device for kind in self.kinds))
        return names, self.joined([np.full(1, names.index(kind.device)) for kind in self.kinds])

    def some(self, members: NDArray[np.int64]) -> Section:
        """Return some of the workers, by their index in the section."""
        return Section(kinds=self.kinds, alike=self.alike, only=members)

    @derived_property
    def beside_working_dies(self) -> Section:
        """The same workers at the clock that a die keeps while other dies of its board work."""
        return Section(kinds=[_slower(kind) for kind in self.kinds], alike=self.alike, only=self.only)


def _slower(kind: WorkerKind) -> WorkerKind:
    target = kind.target
    assert isinstance(target, GpuTarget)
    slower = GpuTarget(target.device.beside_working_dies(), host=target.host, system_part=target.system_part)
    prepared = replace(kind.prepared, target=slower)
    return replace(kind, prepared=prepared, timed=prepared.step())


@dataclass(frozen=True, eq=False, kw_only=True)
class Block:
    """The workers of a task."""

    sections: tuple[Section, ...]
    refused: tuple[tuple[NDArray[np.int64], str], ...]
    slow: NDArray[np.int64]


@dataclass(eq=False)
class Workers:
    """Times the workers of tasks, and caches intermediate results for later tasks."""

    space: Space

    def __post_init__(self) -> None:
        self._known = KnownJobs(self.space)
        self._processors: list[tuple[Gpu, Cpu | None]] = []
        self._numbers: dict[Hashable, int] = {}

    def block(self, codes: Mapping[str, NDArray[np.int64]], count: int) -> Block:
        """Return the workers of a task, grouped into sections."""
        no_codes = np.zeros(count, dtype=np.int64)
        names = [name for name in OF_WORKER if name in codes and name != "batch_size"]
        sections: dict[Alike, list[WorkerKind]] = defaultdict(list)
        refused, slow = [], []
        timed: dict[Hashable, TimedStep] = {}
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
        timed: dict[Hashable, TimedStep],
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
            timed[key] = prepared.step()
        return WorkerKind(prepared=prepared, timed=timed[key], places=places, asked=asked)

    def _batch_size(self, code: int) -> int:
        batch_size = self.space.value("batch_size", code)
        graph = self.space.graph
        return int(graph.samples(graph.fixed_batch_size if batch_size is None else batch_size))

    def _processor(self, target: Target, codes: Mapping[str, int]) -> Hashable:
        """Return a key that processors with the same times share."""
        if not isinstance(target, GpuTarget):
            return tuple((name, codes.get(name)) for name in ("device", "system"))
        processor = target.device, target.host
        for index, known in enumerate(self._processors):
            if all(one is other or one == other for one, other in zip(known, processor, strict=True)):
                return index
        self._processors.append(processor)
        return len(self._processors) - 1

    def _section_key(self, kind: WorkerKind) -> Alike:
        """Return the key of the section that workers belong to."""
        prepared, target = kind.prepared, kind.target
        by_library = LIBRARY in self._strategies
        habits = prepared.profile.exchange
        exchange: Hashable = id(prepared.profile) if by_library else habits.model_copy(update={"collectives": None})
        subject = prepared.subject
        return Alike(
            wiring=self._wiring(target),
            exchanged=self._number((exchange, prepared.exchanged_dtype, id(subject.optimizer), subject.phase)),
            unit_count=target.device.unit_count if by_library and isinstance(target, GpuTarget) else None,
            layers=() if kind.schedule is None else kind.schedule.layers,
        )

    @derived_property
    def _strategies(self) -> frozenset[Any]:
        axis = self.space.by_name.get("sync")
        return frozenset({DEFAULTS["sync"]} if axis is None else axis.values)

    def _wiring(self, target: Target) -> Hashable:
        """Return a key for the route of mini-batches and gradients."""
        if not isinstance(target, GpuTarget):
            return (target.processor, target.name)
        if target.system_part is None:
            return (target.processor, target.link.name)
        return self._wired(target.system_part.system)

    def _wired(self, system: Wired) -> int:
        """Return a number for the wiring of a system; devices in its slots do not count."""
        devices = [device for _, device in system.devices]
        alike = tuple(devices.index(device) for device in devices)
        boards = tuple(dict.fromkeys(device.board for device in devices))
        places = tuple((place.name, place.kind, place.node, place.has_rdma) for place in system.wiring.places)
        drives = tuple((array.name, array.drive, array.drive_count, array.efficiency) for array in system.storages)
        networks = tuple(system.networks)
        hosts = tuple((name, host.core_count, host.memory_capacity_bytes) for name, host in system.hosts.items())
        key = (system.wiring.wires, places, alike, boards, drives, networks, hosts)
        return self._number(key)

    def _number(self, key: Hashable) -> int:
        """Return a number for a key that takes long to hash and compare."""
        return self._numbers.setdefault(key, len(self._numbers))


MOST_OUTCOMES: Final = 4
"""Outcomes cached per section for jobs with equal results: without a data set, prefetch of 1 and 2 are equal. [1]"""


class Refusal(Exception):  # noqa: N818 - not an error: a row of the table
    """Why a job is impossible, in the words of predict, and the name of the system in them."""

    def __init__(self, reason: str, system: str) -> None:
        self.reason, self.system = reason, system
        super().__init__(reason)

    def of(self, system: str) -> str:
        """Return the reason for another system with the same wiring."""
        return self.reason.replace(self.system, system) if self.system else self.reason


@dataclass(eq=False)
class JointSteps:
    """Evaluates jobs of sections, and caches intermediate results for later jobs."""

    prices: Prices
    dataset_size: int | None
    _kept: dict[Hashable, Any] = field(default_factory=dict)

    def outcome(self, section: Section, job: JobValues) -> tuple[Outcome, Hashable]:
        """Return the outcome of a job for each worker of a section, and the key of its memory."""
        try:
            return self._outcome(section, job)
        except PerfmodelError as error:
            raise Refusal(str(error), section.first.system) from error

    def _outcome(self, section: Section, job: JobValues) -> tuple[Outcome, Hashable]:
        target = self._target(section, job)
        if target.system_part is not None and target.system_part.shares_boards:
            section = section.beside_working_dies
        path = self._data_path(section, job, target)
        agreement = self._agreement(section, job, target)
        has_buckets = np.ndim(section.buckets_bytes(agreement)) > 0
        memory = (job.size, path.prefetch > 0, has_buckets, is_served(agreement), _of_server(agreement, target))
        alike = (id(agreement), memory, None if path.dataset is None else job.fed)
        kept = section.kept.setdefault("outcomes", {})
        if alike not in kept:
            if len(kept) >= MOST_OUTCOMES:
                kept.clear()
            kept[alike] = agreement, self._agreed(section, job, target, path, agreement)
        return kept[alike][1], memory

    def _agreed(
        self, section: Section, job: JobValues, target: Target, path: DataPath, agreement: Agreement | None
    ) -> Outcome:
        before_s, meanwhile_s, buffers = self._feed(section, job, target, path)
        composed = fed_with(
            self._applied(section, agreement),
            agreement=agreement,
            copies_s=(before_s, meanwhile_s),
            fed=partial(path.fed, batch_size=section.batch_size),
        )
        kept_bytes, input_bytes, capacity_bytes = section.memory_bytes(agreement)
        server_bytes, missing_elsewhere_bytes = _of_server(agreement, target)
        return Outcome(
            parts=composed.parts,
            batch_size=section.batch_size,
            counted_workers=path.worker_count if agreement is None else agreement.counted_workers,
            device_count=paid_count(target, agreement),
            memory_bytes=kept_bytes + section.buckets_bytes(agreement) + (buffers - 1) * input_bytes + server_bytes,
            capacity_bytes=capacity_bytes,
            missing_elsewhere_bytes=missing_elsewhere_bytes,
            usd_per_hour=self._usd_per_hour(section),
            dataset_size=epoch_size(self.dataset_size, path.dataset),
            energy_of=partial(Section.energy_j, section.bare, target, agreement),
        )

    def _once(self, section: Section, key: Hashable, make: Any) -> Any:
        """Return the cached value of a key, or raise its refusal; make either on first use."""
        if key not in self._kept:
            try:
                self._kept[key] = make()
            except PerfmodelError as error:
                self._kept[key] = Refusal(str(error), section.first.system)
        kept = self._kept[key]
        if isinstance(kept, Refusal):  # a new exception: a cached one would keep the frames in its traceback alive
            raise Refusal(kept.reason, kept.system)
        return kept

    def _usd_per_hour(self, section: Section) -> Any:
        if "usd_per_hour" not in section.kept:
            devices, of_rows = section.numbered_devices
            section.kept["usd_per_hour"] = np.array([self.prices.of(*device) for device in devices])[of_rows]
        return section.kept["usd_per_hour"]

    def _target(self, section: Section, job: JobValues) -> Target:
        workers, has_server = job.values["workers"], job.values["sync"] in WITH_SERVER

        def resolved() -> Target:
            target = resolve_target(workers=workers, **section.first.asked)
            return target.beside_server() if has_server else target

        return self._once(  # type: ignore[no-any-return]
            section,
            ("target", section.alike.wiring, section.alike.unit_count, job.size, has_server),
            resolved,
        )

    def _data_path(self, section: Section, job: JobValues, target: Target) -> DataPath:
        return self._once(  # type: ignore[no-any-return]
            section,
            ("path", section.alike.wiring, job.fed),
            lambda: resolve_data_path(target, self._asked(section, job, job.fed, (*FED_BY, "workers"))),
        )

    def _agreement(self, section: Section, job: JobValues, target: Target) -> Agreement | None:
        prepared, alike = section.first.prepared, section.alike
        return self._once(  # type: ignore[no-any-return]
            section,
            ("agreement", alike.wiring, alike.exchanged, alike.unit_count, job.agreed),
            lambda: agreement_of(
                self._asked(section, job, job.agreed, AGREED_BY),
                system_part=target.system_part,
                subject=prepared.subject,
                profile=prepared.profile,
                dtype=prepared.exchanged_dtype,
            ),
        )

    def _asked(self, section: Section, job: JobValues, key: Hashable, names: tuple[str, ...]) -> Job:
        """Return some arguments of a job, checked as predict checks them."""
        values: Any = {name: job.values[name] for name in names}
        graph = section.first.prepared.subject.graph
        asked: Job = self._once(section, ("asked", names, key), lambda: Job(graph, **values))
        return asked

    def _feed(self, section: Section, job: JobValues, target: Target, path: DataPath) -> tuple[Any, Any, Any]:
        """Return the time of copies before a step and during it, and the mini-batches on each device."""
        key = ("feed", job.size, path.prefetch > 0)
        if key not in section.kept:
            before_s, meanwhile_s, buffers = (np.zeros(len(section.batch_size)) for _ in range(3))
            for kind, places in section.by_framework:
                changed: dict[str, Any] = {
                    "target": target,
                    "data_path": path,
                    "batch_size": section.batch_size[places],
                }
                fed = replace(kind.prepared, **changed)
                before, meanwhile = fed.copies()
                shared = target.shared_bytes_per_s
                before_s[places] = before.time(shared_bytes_per_s=shared)
                meanwhile_s[places] = meanwhile.time(shared_bytes_per_s=shared)
                buffers[places] = 1 + bool(np.any(meanwhile.copied_bytes))
            section.kept[key] = (before_s, meanwhile_s, buffers)
        return section.kept[key]  # type: ignore[no-any-return]

    def _applied(self, section: Section, agreement: Agreement | None) -> Composed:
        """Return the joint step, without copies."""
        last = section.kept.get("applied")
        if last is None or last[0] is not agreement:
            last = section.kept["applied"] = (agreement, _applied(section, agreement))
        return last[1]


def _of_server(agreement: Agreement | None, target: Target) -> tuple[float, float]:
    """Memory of a parameter server beside the worker with most of it, and what it lacks elsewhere. [B]"""
    part, server = target.system_part, None if agreement is None else agreement.server
    if server is None or part is None:
        return 0.0, 0.0
    return server.beside(part.worker_nodes), server.missing_bytes


def _applied(section: Section, agreement: Agreement | None) -> Composed:
    merged = getattr(agreement, "message_bytes", None) == MERGED
    varied = isinstance(agreement, Asynchronous) and agreement.numbers.times is not None
    if not (merged or varied):
        return _composed(section, agreement)
    # a search, or what follows from one, runs for each worker separately
    composed = [_composed(section.some(np.array([index])), agreement) for index in range(len(section.batch_size))]

    def joined(steps: list[StepTime]) -> StepTime:
        return StepTime._make(np.array([[float(np.ravel(part)[0]) for part in step] for step in steps]).T)

    return replace(
        composed[0], parts=joined([step.parts for step in composed]), alone=joined([step.alone for step in composed])
    )


def _composed(section: Section, agreement: Agreement | None) -> Composed:
    agreement = beside_blocks(agreement, section.blocks, joined=section.joined)
    copied_s = 0.0 if agreement is None else section.copied_s(agreement)
    work = StageWork(times=section, exchanges_gradients=agreement is not None, copied_s=copied_s)
    composed = agreed([work], orders=section.first.prepared.orders, agreement=agreement)
    return replace(composed, stages=())  # a section caches its composed step, whose stages would refer back to it
