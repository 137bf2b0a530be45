"""A prepared job: complete except for the numbers of hardware and software, one configuration or many at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from perfmodel.cost.pipeline_order import Orders
from perfmodel.cost.power import energy_ratio
from perfmodel.derived import derived_property
from perfmodel.framework.profile import shortfalls
from perfmodel.hardware.dataset import DatasetFile
from perfmodel.numeric import exceeds, where
from perfmodel.prediction.device.factors import NO_FACTORS, AskedNames, Factors, framework_constants
from perfmodel.prediction.device.step_time import ProcessorNumbers
from perfmodel.prediction.device.target import NO_COPY, Copy, Feed
from perfmodel.prediction.job.beside import alike_exchanges, rings_s, runs_beside, started_s
from perfmodel.prediction.job.compose import Composed, Longest, PhaseTimes, StageWork, compose
from perfmodel.prediction.job.lowered import exchanged_dtype, gradient_dtype
from perfmodel.prediction.job.sends import exchanged_s, shares_of, waited_s, waits_for_sends
from perfmodel.prediction.job.sharing import gathered, moved_s
from perfmodel.prediction.job.stage import SlowedTimes, Stage, TimedStage, TimedStep
from perfmodel.prediction.memory.footprint import device_memory, fullest_of
from perfmodel.records import ELEMENT_BYTES, Phase
from perfmodel.symbolic import is_symbolic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.graph.execution import Recompute
    from perfmodel.hardware.source import SpecFile
    from perfmodel.parallelism.base import Exchange, Group, Layout, Placement
    from perfmodel.prediction.device.target import Libraries, Target
    from perfmodel.prediction.job.agreement import Agreement
    from perfmodel.prediction.job.data_path import DataPath
    from perfmodel.prediction.job.exchange_times import Exchanges
    from perfmodel.prediction.job.lowered import LoweredGraph
    from perfmodel.prediction.job.subject import Subject

    _StageTimes = TimedStage | SlowedTimes
    _ExchangeTimes = dict[tuple[Phase, str], list[tuple[Exchange, Any]]]
    from perfmodel.prediction.memory.footprint import MemoryFootprint
    from perfmodel.symbolic import Quantity


LEAST_LONGER: Final = 5e-4
"""Least share by which the slowest device computes longer than the mean one that is worth a remark. [1]"""


@dataclass(frozen=True, eq=False, kw_only=True)
class Prepared:
    """A lowered job that only lacks numbers: predict fills them in once, a fit many times."""

    subject: Subject
    target: Target
    profile: FrameworkProfile
    libraries: Libraries
    batch_size: int
    dtype: str
    pinned: bool
    placement: Placement
    stages: tuple[Stage, ...]
    exchanges: Exchanges | None
    recompute: Recompute = None
    data_path: DataPath | None = None
    agreement: Agreement | None = None
    stated_energy_ratio: Quantity | None = None
    """Energy of a FLOP over that of the mean device, in place of the slowest one's of the job. [1]"""

    @derived_property
    def layout(self) -> Layout:
        """How the devices are divided among roles."""
        return self.placement.layout

    @derived_property
    def gradient_bytes(self) -> int:
        """Size of an element of a gradient. [B]"""
        asked = self.layout.gradient_dtype
        return ELEMENT_BYTES[gradient_dtype(self.profile, self.target.processor, dtype=self.dtype, asked=asked)]

    @derived_property
    def exchanged_bytes(self) -> int:
        """Size of an element of a gradient that workers exchange. [B]"""
        return ELEMENT_BYTES[self.exchanged_dtype]

    @derived_property
    def exchanged_dtype(self) -> str:
        """Type of gradients that workers exchange. [-]"""
        return exchanged_dtype(self.profile, self.target.processor, dtype=self.dtype, asked=self.layout.gradient_dtype)

    @property
    def names(self) -> tuple[str, ...]:
        """Devices of the job, in order."""
        return (self.target.name,) if self.target.system_part is None else self.target.system_part.names

    @property
    def is_whole(self) -> bool:
        """Whether each worker is one device that runs the whole network and mini-batch at once."""
        return len(self.stages) == 1 and self.layout.is_whole and not self.layout.shard_stage

    @property
    def lowered(self) -> LoweredGraph:
        """The lowered graph of the stage that is shown."""
        return self.shown.lowered

    @property
    def shown(self) -> Stage:
        """The first stage of the device that works longest."""
        return self.stages[0] if len(self.stages) == 1 else self.nominal.shown.stage

    def with_lowered(self, lowered: LoweredGraph) -> Prepared:
        """Replace the lowered graph of a network that is whole on one device."""
        (stage,) = self.stages
        return replace(self, stages=(replace(stage, lowered=lowered),))

    def with_subject(self, subject: Subject) -> Prepared:
        """Replace the subject with another of the same graph, if the network is whole on one device."""
        (stage,) = self.stages
        feed = stage.feed if subject.feed is None else subject.feed
        return replace(self, subject=subject, stages=(replace(stage, subject=subject, feed=feed),))

    @derived_property
    def workspace_limit_bytes(self) -> float:
        """Most scratch memory that one convolution may take. [B]"""
        return float(getattr(self.profile, self.target.processor).lowering.workspace_limit_bytes)

    def like(self, **changes: Any) -> Prepared:
        """Change fields of an untimed job that lowering does not depend on, six times as fast as ``replace``."""
        # computed once for all of them
        _ = self.layout, self._turn_options, self.gradient_bytes, self.exchanged_bytes, self.workspace_limit_bytes
        other = object.__new__(Prepared)
        other.__dict__.update(self.__dict__, **changes)
        return other

    @property
    def worker_count(self) -> int:
        """Workers of the job, each with its own mini-batch. [1]"""
        return self.layout.batch_count

    @property
    def counted_workers(self) -> int:
        """Workers whose gradients are used: all but the backups. [1]"""
        return self.worker_count if self.agreement is None else self._of_batches(self.agreement.counted_workers)

    def _of_batches(self, copies: Any) -> Any:
        """Mini-batches of so many copies of the network [1], of which a context group has one. [1]"""
        return copies if self.layout.context_size == 1 else copies // self.layout.context_size

    @property
    def batches_per_update(self) -> int:
        """Mini-batches behind each update of a network. [1]"""
        return 1 if self.agreement is None else self._of_batches(self.agreement.batches_per_update)

    @property
    def network_count(self) -> int:
        """Networks trained or run: one if workers agree, else one per worker. [1]"""
        return self.worker_count if self.agreement is None else 1

    @property
    def exchanges_by_library(self) -> bool:
        """Whether a library of collectives chooses the algorithms."""
        return self.exchanges is not None and self.exchanges.library is not None

    @property
    def trains(self) -> bool:
        """Whether there is a backward phase."""
        return Phase.BACKWARD in self.subject.phase.parts

    @derived_property
    def orders(self) -> Orders:
        """Order in which a worker's devices process micro-batches."""
        return self.layout.orders(len(self.stages), trains=self.trains)

    def samples(self, stage: Stage) -> Any:
        """Return the samples of a micro-batch at a stage; those of all workers if they share its layers. [samples]"""
        parts = self.layout.parts
        return (self.batch_size if parts == 1 else self._micro_batch_size) * stage.placed.batch_factor

    @property
    def _micro_batch_size(self) -> Any:
        if isinstance(self.batch_size, int | np.integer):
            return self.layout.micro_batch_size(self.batch_size)
        return self.batch_size / self.layout.parts

    @derived_property
    def constant_names(self) -> tuple[str, ...]:
        """Full names of the file constants that the step time depends on."""
        asked = AskedNames()
        self.numbers(asked)
        self.feed_times(asked)
        if self.data_path is not None:
            self.data_path.stages(self.batch_size, factors=asked)
        return tuple(asked.names)

    @derived_property
    def specs(self) -> dict[str, SpecFile]:
        """Files whose constants the step time may depend on, by kind folder and stem."""
        libraries = {f"libraries/{library.stem}": library for library in self.libraries.values()}
        fed_by = () if self.data_path is None else self.data_path.sources
        inputs = {f"{'datasets' if isinstance(spec, DatasetFile) else 'storage'}/{spec.stem}": spec for spec in fed_by}
        return {f"frameworks/{self.profile.stem}": self.profile} | libraries | self.target.specs_by_place | inputs

    @property
    def shortfalls(self) -> tuple[str, ...]:
        """Wishes of the job that its framework cannot fulfil, with the evidence."""
        return shortfalls(
            self.profile,
            self.subject.graph,
            processor=self.target.processor,
            phases=[part.value for part in self.subject.phase.parts],
            dtype=self.dtype,
            workers=self.layout.workers,
            optimizer=self.subject.optimizer.kind,
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """Notes for the user on framework, target, libraries, data set and parameter server."""
        notes = (*self.shortfalls, *self.target.remarks(self.profile, self.libraries, dtype=self.dtype))
        if self.agreement is not None or (self.layout.workers > 1 and not self.is_whole):
            from perfmodel.prediction.job.agreements import measured_sum_of, presumed_switches

            if self.target.system_part is not None:
                system = self.target.system_part.system
                for switch in presumed_switches(self.agreement, system.topology):
                    presumed = f"presumes that {switch} adds what passes it (sync='in_network')"
                    notes = (*notes, f"{presumed}: the file of {system.name} does not say so (reduces = true)")
            as_measured = measured_sum_of(self.agreement) is not None
            by_library = self.exchanges_by_library
            notes = (*notes, *self.target.exchange_remarks(by_library=by_library, as_measured=as_measured))
        if abs(longer := self._slowed - 1) >= LEAST_LONGER:
            rank, count, _ = self.devices_waited_for
            among = f"{count} devices" if rank == count else f"the {rank} fastest of {count} workers"
            why = "as devices of one model differ in the power that they draw for the same work"
            how = "longer" if longer > 0 else "shorter"
            waits = f"a step waits for the slowest of {among}, {why}"
            notes = (*notes, f"{waits}: it computes {abs(longer):.1%} {how} than the mean one")
        if self.data_path is not None:
            notes = (*notes, *self.data_path.remarks(self.subject))
        server = None if self.agreement is None else self.agreement.server
        return notes if server is None else (*notes, *server.remarks)

    @property
    def sources(self) -> tuple[SpecFile, ...]:
        """Files in use: framework, libraries, hardware, data set and storage."""
        library = None if self.exchanges is None else self.exchanges.library
        agreed = () if self.agreement is None else self.agreement.sources
        exchanging = () if library is None or library in agreed else (library,)
        files = (*self.target.sources(self.profile, self.libraries), *exchanging, *agreed)
        return files if self.data_path is None else (*files, *self.data_path.sources)

    def numbers(self, factors: Factors = NO_FACTORS) -> ProcessorNumbers:
        """Plain numbers of hardware, libraries and framework, on the slowest device."""
        target = self.target.drawing(self._energy_ratio(factors))
        return target.numbers(self.profile, self.libraries, dtype=self.dtype, factors=factors)

    @property
    def energy_ratio(self) -> Quantity:
        """Energy of a FLOP on the slowest device that a step waits for, over that of the mean device. [1]"""
        return self._energy_ratio(NO_FACTORS)

    def _energy_ratio(self, factors: Factors) -> Quantity:
        if self.stated_energy_ratio is not None:
            return self.stated_energy_ratio
        if self.agreement is None and self.layout.workers == 1:
            return 1.0
        rank, count, each = self.devices_waited_for
        variation = self.target.energy_variation(factors)
        return energy_ratio(rank=rank, count=count, each=each, variation=variation)

    @property
    def _slowed(self) -> float:
        """Computing of a stage on that device over that on the mean device. [1]"""
        ratio = self.energy_ratio
        if is_symbolic(ratio) or self.target.drawing(ratio) is self.target:
            return 1.0
        mean = replace(self, stated_energy_ratio=1.0).timed_stages()[0].whole.compute_s
        return float(self.nominal.stages[0].whole.compute_s / mean) if mean else 1.0

    @property
    def devices_waited_for(self) -> tuple[Any, Any, int]:
        """Devices, or workers of several, that end a step together, and all of whom they are the fastest. [1]

        And the devices of each.
        """
        layout, agreement = self.layout, self.agreement
        counted, copies = (layout.context_size,) * 2 if agreement is None else agreement.waited_for
        if layout.is_whole:
            return counted, copies, 1
        working = layout.tensor_size * len({stage.placed.device for stage in self.stages if stage.placed.graph.layers})
        return (counted, copies, working) if counted < copies else (working * copies, working * copies, 1)

    @derived_property
    def nominal(self) -> TimedStep:
        """The step with the constants as filed. [s]"""
        return self._timed(NO_FACTORS)

    def step(self, factors: Factors = NO_FACTORS) -> TimedStep:
        """Time the step."""
        return self._timed(factors) if factors else self.nominal

    def _timed(self, factors: Factors) -> TimedStep:
        stages = self.timed_stages(factors)
        return TimedStep(stages=stages, composed=self.composed(stages, factors))

    def timed_stages(
        self, factors: Factors = NO_FACTORS, *, known: dict[Any, Any] | None = None
    ) -> tuple[TimedStage, ...]:
        """Time each stage for one micro-batch; stages of the same structure only once. [s]"""
        if len(self.stages) == 1 and known is None:
            return (self._timed_stage(self.stages[0], self.numbers(factors)),)
        known = {} if known is None else known
        if "numbers" not in known:
            known["numbers"] = self.numbers(factors)
        numbers = known["numbers"]
        timed_stages = []
        for stage in self.stages:
            key = (id(stage.lowered), stage.placed.batch_factor, self.exchanged_bytes)
            if key not in known:
                known[key] = self._timed_stage(stage, numbers, known=known.setdefault("shared", {}))
            timed = known[key]
            timed_stages.append(timed if timed.stage is stage else replace(timed, stage=stage, alike=timed))
        return tuple(timed_stages)

    def _timed_stage(self, stage: Stage, numbers: ProcessorNumbers, known: dict[Any, Any] | None = None) -> TimedStage:
        table, samples = stage.lowered.table, self.samples(stage)
        numbers = self.target.in_step(numbers, table, stage.subject.graph, batch_size=samples)
        return TimedStage(
            stage=stage,
            numbers=numbers,
            known=known,
            element_bytes=self.exchanged_bytes,
            how={
                "batch_size": samples,
                "workspace_limit_bytes": self.workspace_limit_bytes,
                "scheduler_threads": self.target.scheduler_threads(self.profile),
                "subnormal_s": self.target.subnormal_time(
                    numbers, samples * stage.subject.subnormal_products_per_sample
                ),
            },
        )

    def composed(self, stages: Sequence[TimedStage], factors: Factors = NO_FACTORS) -> Composed:
        """Compose the step of timed stages. [s]"""
        fed = None
        if (path := self.data_path) is not None and path.dataset is not None:
            fed = partial(path.fed, batch_size=self.batch_size, factors=factors)
        return compose(
            self.works(stages),
            copies_s=self.feed_times(factors),
            first_step_s=self._share_of_first_step(factors),
            fed=fed,
            **self._turn_options,
        )

    @derived_property
    def _turn_options(self) -> dict[str, Any]:
        layout, agreement = self.layout, self.agreement
        return {
            "orders": self.orders,
            "micro_batches": layout.micro_batches,
            "accumulation_steps": layout.accumulation_steps,
            "update_share": self.shared_share if layout.shard_stage else 1.0,
            "adding_share": self.shared_share if layout.reduces_each else 1.0,
            "agreement": agreement,
        }

    def step_with_exchanges(self, timed: TimedStep, *, slower: float, calls_slower: float = 1.0) -> float:
        """Step time if exchanges between devices, and calls to servers, take this many times as long. [s]"""
        shorter = [SlowedTimes(stage_times, 1 / slower) for stage_times in timed.stages]
        how = self._turn_options
        if self.agreement is not None:
            how = {**how, "agreement": self.agreement.with_calls(calls_slower / slower)}
        device_s = compose(self.works(shorter), **how).parts.device_s
        waits_s = timed.parts.exposed_transfer_s + timed.parts.input_wait_s
        return float(waits_s + slower * device_s)

    def works(self, times: Sequence[_StageTimes]) -> list[StageWork]:
        """Numbers of stages with their exchanges. [s]"""
        return [self.work(stage, stage_times) for stage, stage_times in zip(self.stages, times, strict=True)]

    def work(self, stage: Stage, times: _StageTimes) -> StageWork:
        """Numbers of a stage with its exchanges. [s]"""
        placed = stage.placed
        if self.agreement is None and self.exchanges is None:
            return StageWork(times=times, device=placed.device)
        work = StageWork(times=times, device=placed.device, **self._adding_up(stage, times))
        if self.exchanges is None or not alike_exchanges(placed):
            return work
        seconds_of = self._exchange_times(stage)
        beside, samples = self.profile.exchange.tensor_beside, self.samples(stage)
        started = started_s(stage, times, beside, self.exchanges, samples=samples) if beside else 0

        def seconds(phase: Phase, group: str, *, kind: str | None = None, waited_for: bool = False) -> Any:
            listed = seconds_of.get((phase, group))
            if listed is None:
                return 0
            return sum(
                exchange_s
                for exchange, exchange_s in listed
                if kind in (None, exchange.kind) and not (waited_for and runs_beside(exchange, beside))
            )

        def passed_on_s(phase: Phase) -> Any:
            of_phase = (exchange for (when, _), listed in seconds_of.items() if when is phase for exchange, _ in listed)
            if not any(exchange.kind == "pass_on" for exchange in of_phase):
                return 0
            return rings_s(stage, times, phase, self.exchanges, samples=samples, placement=self.placement)

        phases = (Phase.FORWARD, Phase.BACKWARD)
        forward_s, backward_s = (
            seconds(phase, "tensor", waited_for=True) + seconds(phase, "context", waited_for=True) + passed_on_s(phase)
            for phase in phases
        )
        sends_s = (seconds(Phase.FORWARD, "pipeline", kind="send"), seconds(Phase.BACKWARD, "pipeline", kind="send"))
        waits_s = waited_s(self, *sends_s)
        return replace(
            work,
            group_s=(forward_s + waits_s[0], backward_s + started + waits_s[1]),
            exchanged_s=sum(seconds(phase, group) for phase in phases for group in ("tensor", "context", "pipeline")),
            send_s=tuple(0 * send_s for send_s in sends_s) if waits_for_sends(self) else sends_s,
            tied_s=sum(seconds(Phase.UPDATE, group) for group in ("tensor", "pipeline")),
            **self._gathering(stage, times, seconds_of),
        )

    def _adding_up(self, stage: Stage, times: PhaseTimes) -> dict[str, Any]:
        if self.agreement is None or not self.trains or not stage.exchanges_gradients:
            return {"exchanges_gradients": False, **dict.fromkeys(("copied_s", "cast_s", "joined_s"), 0.0)}
        copied_s, cast_s, joined_s = self.copied_s(times, self.agreement), 0.0, 0.0
        if self.layout.scatters:
            joined_s, cast_s = (moved_s(self, times, kind) for kind in ("gradients", "messages"))
            copied_s = copied_s + self.shared_share * moved_s(self, times, "message_shares")
        if self.layout.stages > 1:  # the stage before waits for them too, and no message hides them
            copied_s, joined_s = copied_s + joined_s, 0.0
        return {"exchanges_gradients": True, "copied_s": copied_s, "cast_s": cast_s, "joined_s": joined_s}

    @property
    def shared_share(self) -> Any:
        """Share of the shared state that one worker holds; in a formula it may be symbolic. [1]"""
        layout, agreement = self.layout, self.agreement
        return 1 / (layout.sharing_size if agreement is None or layout.shard_group else agreement.worker_count)

    def has_buckets(self, agreement: Agreement | None) -> bool:
        """Whether workers exchange copies of gradients that lie in buckets of their own."""
        if not getattr(agreement, "all_reduces", False):
            return False
        is_whole = not self.layout.shard_stage or self.profile.exchange.adds_up_whole(self.layout.shard_stage)
        return is_whole and bool(getattr(self.profile, self.target.processor).lowering.message_copies)

    def buckets_bytes(self, agreement: Agreement | None) -> float:
        """Bytes of gradients copied into buckets, of a network on one device. [B]"""
        if not self.has_buckets(agreement):
            return 0.0
        memory = self.stages[0].lowered.memory(self.stages[0].subject.graph)
        return memory.gradient_bytes * memory.pool_overhead

    def copied_s(self, times: PhaseTimes, agreement: Agreement) -> Any:
        """Time to copy gradients into the messages of an all-reduce and back, if the framework does. [s]"""
        if not self.has_buckets(agreement):
            return 0.0
        copies = getattr(self.profile, self.target.processor).lowering.message_copies
        seconds, worker_count = copies * times.copying_s, agreement.worker_count
        return where(exceeds(worker_count, 1), seconds, 0.0) if is_symbolic(worker_count) else seconds

    def _exchange_times(self, stage: Stage, *, among: Group | None = None) -> _ExchangeTimes:
        """Time of each exchange of a stage, or of those among one group, with repetitions, by phase and group. [s]"""
        seconds_of: _ExchangeTimes = {}
        samples = self.samples(stage)
        for exchange, count in () if self.exchanges is None else alike_exchanges(stage.placed).values():
            if among not in (None, exchange.group):
                continue
            size_bytes = exchange.size_bytes(0 if exchange.phase is Phase.UPDATE else samples)
            seconds = count * exchanged_s(self, exchange, size_bytes, stage.placed)
            seconds_of.setdefault((exchange.phase, exchange.group), []).append((exchange, seconds))
        return seconds_of

    def _gathering(self, stage: Stage, times: _StageTimes, seconds_of: _ExchangeTimes) -> dict[str, Any]:
        """Parameters of a stage that workers gather because they share them. [s]"""
        gathers = tuple(
            gathered(self, stage, times, phase)
            for phase in (Phase.FORWARD, Phase.BACKWARD)
            if (phase, "data") in seconds_of
        )
        last_s = sum(exchange_s for _, exchange_s in seconds_of.get((Phase.UPDATE, "data"), ()))
        if self.layout.scatters and last_s:
            shares_s = self.shared_share * moved_s(self, times, "parameter_shares")
            last_s = last_s + shares_s + moved_s(self, times, "parameters")
        return {"gathers": gathers, "gathered_s": last_s}

    def work_like(self, stage: Stage, work: StageWork) -> StageWork:
        """Numbers of a stage of a job that differs only in what workers share. [s]"""
        seconds_of = self._exchange_times(stage, among="data")
        gathering = self._gathering(stage, cast("_StageTimes", work.times), seconds_of)
        return replace(work, alike=None, **self._adding_up(stage, work.times), **gathering)

    def sent_bytes(self, exchange: Exchange, stage: Stage) -> float:
        """Mean bytes a device of a stage sends in an exchange of a micro-batch or step. [B]"""
        size_bytes = exchange.size_bytes(self.samples(stage)) / shares_of(self, exchange)
        if exchange.group == "data" and exchange.kind != "all_gather":
            return 0.0 if self.agreement is None else self.agreement.sent_bytes(size_bytes, stage.placed.device)
        return 0.0 if self.exchanges is None else self.exchanges.sent_bytes(exchange, size_bytes, stage.placed)

    def _share_of_first_step(self, factors: Factors) -> Any:
        """Share of the first step's library and memory set-up in each averaged step. [s]"""
        if not self.subject.averaged_steps:
            return 0.0
        constants = framework_constants(self.profile, self.target.processor, factors=factors)
        return self.target.host_slowdown(factors) * constants.get("first_step_ms", 0.0) / self.subject.averaged_steps

    def footprint(self, timed: TimedStep) -> MemoryFootprint:
        """Memory of the fullest device."""
        return fullest_of(self.footprints(timed))

    def footprints(self, timed: TimedStep) -> tuple[MemoryFootprint, ...]:
        """Memory of each device of a worker. [B]"""
        layout, has_buckets = self.layout, self.has_buckets(self.agreement)
        footprints = tuple(
            device_memory(self, timed.stages, place, in_parts=layout.parts > 1).footprint(
                order, layout, has_buckets=has_buckets
            )
            for place, order in enumerate(timed.composed.orders)
        )
        server = None if self.agreement is None else self.agreement.server
        return footprints if server is None else server.added_to(footprints, self)

    def stage_copies(self, stage: Stage, factors: Factors = NO_FACTORS) -> tuple[Copy, Copy]:
        """Return the copies of a stage for one micro-batch: those before it and those during the previous one."""
        before, meanwhile, together = stage.copies
        if not self.copies_ahead:
            return self._copy_of(stage, together, factors), NO_COPY
        return self._copy_of(stage, before, factors), self._copy_of(stage, meanwhile, factors)

    def copied_ahead(self, stage: Stage) -> Copy:
        """Return the copies of a stage for one micro-batch during the previous one."""
        return self._copy_of(stage, stage.copies[1], NO_FACTORS) if self.copies_ahead else NO_COPY

    @property
    def copies_ahead(self) -> bool:
        """Whether a mini-batch is copied while the one before it is computed."""
        return self.data_path is None or self.data_path.prefetch > 0

    def _copy_of(self, stage: Stage, feed: Feed, factors: Factors) -> Copy:
        if not feed.items:
            return NO_COPY
        return self.target_of(stage).copy_of(
            self.profile, feed, batch_size=self.samples(stage), pinned=self.pinned, factors=factors
        )

    def target_of(self, stage: Stage) -> Target:
        """Devices that share the host link with those of a stage."""
        return self.target if stage.target is None else stage.target

    def _copying(self, factors: Factors) -> list[tuple[tuple[Copy, Copy], tuple[Any, Any]]]:
        """List the copies of each stage, before a step and during the previous one, with the times of both. [s]"""
        parts, copying = self.layout.parts, []
        for stage in self.stages:
            if not stage.feed:
                continue
            before, meanwhile = self.stage_copies(stage, factors)
            if parts > 1:
                before, meanwhile = before.repeated(parts), meanwhile.repeated(parts)
            shared = self.target_of(stage).shared_bytes_per_s
            times = before.time(shared_bytes_per_s=shared), meanwhile.time(shared_bytes_per_s=shared)
            copying.append(((before, meanwhile), times))
        return copying

    def copies(self, factors: Factors = NO_FACTORS) -> tuple[Copy, Copy]:
        """Return the copies before the step, and copies during the previous one."""
        copying = self._copying(factors)
        if not copying:
            return NO_COPY, NO_COPY
        return copying[Longest([sum(times) for _, times in copying]).first][0]

    def feed_times(self, factors: Factors = NO_FACTORS) -> tuple[Any, Any]:
        """Copy time before the step, and copy time that the previous step may hide. [s]"""
        times = [times_of_stage for _, times_of_stage in self._copying(factors)] or [(0.0, 0.0)]
        if len(times) == 1:
            return times[0]
        longest = Longest([before_s + meanwhile_s for before_s, meanwhile_s in times])
        return longest.of([before_s for before_s, _ in times]), longest.of([meanwhile_s for _, meanwhile_s in times])
