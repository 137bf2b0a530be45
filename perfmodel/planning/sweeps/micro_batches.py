"""One worker's micro-batch of a layout, timed for all its sizes at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from perfmodel.cost.pipeline_ends import NO_MESSAGES, TurnMessages
from perfmodel.derived import derived_property
from perfmodel.prediction.arguments.checks import MERGED
from perfmodel.prediction.device_prices import price_names
from perfmodel.prediction.energy import BoardPower, StageEnergy, board_power, stage_energy
from perfmodel.prediction.job.beside import alike_exchanges
from perfmodel.prediction.job.compose import DeviceWork, StageWork, WorkerWork, devices_of, fields_of_stages, worker_of
from perfmodel.prediction.job.exchange_times import PlacedExchanges
from perfmodel.prediction.job.stacking import stacked, tabled, taken
from perfmodel.prediction.job.turns import Turned, messages_of_chunks
from perfmodel.prediction.memory.footprint import DeviceMemory, SharedMemory, device_memory
from perfmodel.records import Phase

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.prediction.job.agreement import Agreement
    from perfmodel.prediction.job.compose import PhaseTimes
    from perfmodel.prediction.job.gradients import GradientSchedule
    from perfmodel.prediction.job.job import Job
    from perfmodel.prediction.job.prepare import Lowering
    from perfmodel.prediction.job.prepared import Prepared
    from perfmodel.prediction.job.stage import Stage, TimedStage

NO_EXCHANGE = (0.0, 0.0, 0.0, 0.0)
"""No exchanges: total and exposed, per step and per micro-batch. [s]"""


class Exchanges(NamedTuple):
    """Exchanges with other workers: totals and exposed times by device, and messages by chunk. [s]"""

    devices: tuple[tuple[Any, ...], ...]
    messages: tuple[TurnMessages, ...]


class Draft(NamedTuple):
    """A unit that is not timed yet: a job for one of its micro-batch sizes, its cuts, all its sizes, its device."""

    prepared: Prepared
    cut: tuple[int, ...]
    sizes: tuple[int, ...]
    energy_ratio: float

    def among(self, columns: Columns) -> Prepared:
        """Return the job in the columns of all configurations."""
        return replace(self.prepared, batch_size=columns.sizes, stated_energy_ratio=columns.ratios)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns in which stages are timed: sizes of a micro-batch, each on devices that draw more for a FLOP or less."""

    place_of: Mapping[tuple[int, float], int]

    @classmethod
    def of(cls, drafts: Iterable[Draft]) -> Columns:
        """Return a column for each size and device that occurs."""
        different = {(size, draft.energy_ratio) for draft in drafts for size in draft.sizes}
        return cls({pair: place for place, pair in enumerate(sorted(different))})

    @derived_property
    def sizes(self) -> NDArray[np.float64]:
        """Samples of a micro-batch. [samples]"""
        return np.array([size for size, _ in self.place_of], dtype=float)

    @derived_property
    def ratios(self) -> Any:
        """Energy of a FLOP on the slowest device, over that of the mean device; one number if all are equal. [1]"""
        ratios = [ratio for _, ratio in self.place_of]
        return ratios[0] if len({*ratios}) == 1 else np.array(ratios)

    def places(self, sizes: Sequence[int], ratio: float) -> NDArray[np.intp]:
        """Return the columns of some sizes on one device."""
        return np.array([self.place_of[size, ratio] for size in sizes])


@dataclass(frozen=True, eq=False, kw_only=True)
class LayoutKind:
    """Layouts that differ only in batch size, and in number and order of micro-batches."""

    job: Job
    lowering: Lowering
    shared: Hashable

    def drafts(self, sizes: Sequence[int]) -> list[Draft]:
        """Return drafts of units for some micro-batch sizes; sizes with the same cuts share one."""
        by_cut: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for size, cut in zip(sizes, self.lowering.cuts(sizes), strict=True):
            by_cut[cut].append(size)
        jobs = [(self._prepared(cut, alike[0]), cut, tuple(alike)) for cut, alike in by_cut.items()]
        return [Draft(*job, job[0].energy_ratio) for job in jobs]

    def _prepared(self, cut: tuple[int, ...], size: int) -> Prepared:
        job, known = self.job, self.lowering.known.timed
        key = (self.shared, self.lowering.gradient_sizes, cut)
        if key in known and job.subject.phase is Phase.STEP:
            return self.lowering.shared(known[key], job)
        known[key] = self.lowering.prepared(size, pinned=job.pinned, data_path=job.data_path, job=job, cuts=cut)
        return known[key]  # type: ignore[no-any-return]

    def _alike(self, among: Columns) -> tuple[Hashable, ...]:
        """Key of jobs whose stages take the same times in the same columns."""
        # parameters that are gathered in the type of the products need no casts
        return self.shared, self.lowering.gradient_sizes, self.lowering.gathers_narrow, among

    def timed(self, draft: Draft, among: Columns) -> Sequence[TimedStage]:
        """Return the stages of a draft, timed in the columns of all configurations."""
        known, key = self.lowering.known.timed, ("timed", *self._alike(among), draft.cut)
        if key not in known:
            known[key] = draft.among(among).timed_stages(known=known.setdefault(among, {}))
        return known[key]  # type: ignore[no-any-return]

    def unit(self, draft: Draft, among: Columns) -> Unit:
        """Make a unit of a draft."""
        known, alike = self.lowering.known.timed, self._alike(among)
        prepared, key = draft.among(among), (*alike, *draft[1:])
        stage_works = known.setdefault(("stages", alike, prepared.layout), {})
        if key not in known:
            timed, columns = self.timed(draft, among), among.places(draft.sizes, draft.energy_ratio)
            how = {"known": stage_works, "of_memory": known.setdefault(("memory", *alike[1:]), {})}
            known[key] = Alone.of(prepared, timed, draft.sizes, columns, **how)
        alone: Alone = known[key]
        layout, has_buckets = prepared.layout, prepared.has_buckets(prepared.agreement)
        memory = tuple(device.shared(layout, has_buckets=has_buckets) for device in alone.memory)
        return Unit(
            prepared=prepared,
            works=alone.works if prepared is alone.prepared else _works_like(prepared, alone.works, stage_works),
            memory=memory,
            alone=alone,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Alone:
    """The part of a unit that does not depend on the stage of sharing among workers."""

    prepared: Prepared
    works: Sequence[StageWork]
    sizes: tuple[int, ...]
    columns: Any
    memory: tuple[DeviceMemory, ...]
    copies_s: tuple[Any, Any]
    timed: Sequence[TimedStage]
    exchanged: dict[Hashable, Exchanges] = field(default_factory=dict)
    works_at: dict[Hashable, Sequence[StageWork]] = field(default_factory=dict)

    @property
    def device_of_chunk(self) -> tuple[int, ...]:
        """Device of each chunk of layers."""
        return tuple([work.device for work in self.works])

    @classmethod
    def of(
        cls,
        prepared: Prepared,
        timed: Sequence[TimedStage],
        sizes: tuple[int, ...],
        columns: Any,
        *,
        known: Any,
        of_memory: Any,
    ) -> Alone:
        """Make the numbers of a cut at some micro-batch sizes; ``columns`` are their indices in the stages' times.

        ``known`` caches the work of stages for cuts of one layout, ``of_memory`` their memory for those of all.
        """
        works = works_of(prepared, timed, known)
        devices = range(prepared.layout.stages)
        memory = tuple(device_memory(prepared, timed, place, in_parts=True, known=of_memory) for place in devices)
        return cls(
            prepared=prepared,
            works=works,
            sizes=sizes,
            columns=columns,
            memory=memory,
            copies_s=taken(prepared.feed_times(), columns),
            timed=timed,
        )

    @derived_property
    def board(self) -> BoardPower:
        """Power of each device."""
        return board_power(self.prepared)

    @derived_property
    def energies(self) -> tuple[StageEnergy, ...]:
        """Energy of the work of each chunk, once for a micro-batch and once for an update. [J]"""
        return taken(tuple([stage_energy(stage, self.board) for stage in self.timed]), self.columns)  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False, kw_only=True)
class Unit:
    """Configurations of a kind whose network is cut at the same places: one for each micro-batch size."""

    prepared: Prepared
    works: Sequence[StageWork]
    memory: tuple[SharedMemory, ...]
    """Memory of each device, in the columns of its stages' times."""
    alone: Alone

    @property
    def device_names(self) -> tuple[str, ...]:
        """Names under which the device that every stage runs on may have a price."""
        return price_names(self.prepared.target)

    @property
    def agreement(self) -> Agreement | None:
        """How the workers agree."""
        return self.prepared.agreement

    @derived_property
    def alike(self) -> Hashable:
        """Key of the units that can be composed together."""
        agreement, path = self.agreement, self.prepared.data_path
        how = None if agreement is None else (agreement.serves, agreement.hides_copies, agreement.delays_copies)
        is_fed = path is not None and path.dataset is not None
        chunks = tuple(device.chunks for device in self.memory)
        return (self.alone.device_of_chunk, chunks, self.prepared.trains, how, is_fed)

    @property
    def waits_for_turns(self) -> bool:
        """Whether gradients are ready depending on the order of turns: several stages on each device of a pipeline."""
        return len(self.works) > len(self.memory) > 1 and self.agreement is not None

    @property
    def turns_like(self) -> Hashable:
        """Key shared by units with the same turns; the share of gradients that a device adds up is part of a turn."""
        return (id(self.alone), self.prepared.layout.adding_share)

    @property
    def exchanges_like(self) -> Hashable:
        """Key shared by units with the same exchanges."""
        return (id(self.alone), self.prepared.layout)

    def devices(self, turns: Turned, columns: Any) -> tuple[DeviceWork, ...]:
        """Return the devices at the ends of their turns, which are the same for every shard stage."""
        kept, key = self.alone.works_at, columns.tobytes()
        if key not in kept:
            taken_at: list[Any] = [
                SimpleNamespace(gradients=work.times.gradients.taken(columns)) for work in self.works
            ]
            kept[key] = [replace(work, times=times) for work, times in zip(self.works, taken_at, strict=True)]
        return devices_of(kept[key], turns)

    def exchanged(self, devices: Sequence[DeviceWork], columns: Any) -> Exchanges:
        """Return the exchanges of devices in these configurations."""
        beside = [
            replace(device, **{name: taken(values, columns) for name, values in of_stages.items()})
            for device, of_stages in zip(devices, self._of_stages, strict=True)
        ]
        return self._exchanges(beside, np.arange(len(columns)))

    def _exchanges(self, devices: Sequence[DeviceWork], columns: Any) -> Exchanges:
        agreement, chunk_count = self.agreement, len(self.works)
        if agreement is None:
            return Exchanges((NO_EXCHANGE,) * len(self.memory), (NO_MESSAGES,) * chunk_count)

        def exchanges(of: Sequence[DeviceWork]) -> Exchanges:
            numbers = tuple([(*agreement.exchanged(device), *agreement.gathered(device)) for device in of])
            return Exchanges(numbers, messages_of_chunks(agreement, of, chunk_count=chunk_count))

        if getattr(agreement, "message_bytes", None) != MERGED:
            return taken(exchanges(devices), columns)  # type: ignore[no-any-return]
        # a search for the gradients that share a message runs for each size separately
        alone = [slice(place, place + 1) for place in columns.tolist()]
        by_size = [exchanges([_only(device, place) for device in devices]) for place in alone]
        return stacked(by_size, [1] * len(by_size))  # type: ignore[no-any-return]

    @derived_property
    def _of_stages(self) -> list[dict[str, Any]]:
        """Units that each device gathers for a micro-batch, and the time of passes beside turns. [s]"""
        return [
            fields_of_stages([work for work in self.works if work.device == place]) for place in range(len(self.memory))
        ]

    @derived_property
    def exchanged_by_itself(self) -> Exchanges:
        """The exchanges if the order of turns does not matter."""
        kept, key = self.alone.exchanged, self.exchanges_like
        if key not in kept:
            devices = () if self.agreement is None else devices_of(self.works, Turned(None, None))
            kept[key] = self._exchanges(devices, self.alone.columns)
        return kept[key]


def works_of(prepared: Prepared, timed: Sequence[TimedStage], known: dict[Any, Any]) -> list[StageWork]:
    """Numbers of stages with their exchanges; those known from other cuts are reused. [s]"""
    return [
        _work_alike(prepared, times.alike or times, stage, times, partial(prepared.work, stage, times), known)
        for stage, times in zip(prepared.stages, timed, strict=True)
    ]


def _works_like(prepared: Prepared, works: Sequence[StageWork], known: dict[Any, Any]) -> list[StageWork]:
    """Numbers of stages of a job that differs only in what workers share. [s]"""
    return [
        _work_alike(prepared, work.alike or work, stage, work.times, partial(prepared.work_like, stage, work), known)
        for stage, work in zip(prepared.stages, works, strict=True)
    ]


def _work_alike(
    prepared: Prepared,
    like: object,
    stage: Stage,
    times: PhaseTimes,
    make: Callable[[], StageWork],
    known: dict[Any, Any],
) -> StageWork:
    """Numbers of a stage of a layout, reused from an earlier one with equal exchanges over equal links. [s]

    The stages of all cuts stay, so that the id of what they are ``like`` is not reused.
    """
    placed, exchanges = stage.placed, prepared.exchanges
    key: tuple[Hashable, ...] = (id(like),)
    if isinstance(exchanges, PlacedExchanges):
        kinds = alike_exchanges(placed).items()
        key += tuple([(kind, count, exchanges.likeness(exchange, placed)) for kind, (exchange, count) in kinds])
    if key not in known:
        known[key] = make()
        return known[key]  # type: ignore[no-any-return]
    return replace(known[key], times=times, device=placed.device, alike=known[key])  # type: ignore[no-any-return]


PHASES: Final = ("forward", "backward", "update", "adding")
"""Times of a stage that its work is made of."""
VARIED: Final = ("group_s", "exchanged_s", "send_s", "tied_s")
"""Other fields of a stage's work that the devices of its worker need."""


def memory_of_units(units: Sequence[Unit]) -> tuple[SharedMemory, ...]:
    """Memory of each device of workers that are cut into as many chunks, for all their configurations. [B]"""
    width = max(len(unit.prepared.batch_size) for unit in units)  # type: ignore[arg-type]
    columns, counts = np.concatenate([unit.alone.columns for unit in units]), [len(unit.alone.sizes) for unit in units]
    devices = []
    for of_units in zip(*[unit.memory for unit in units], strict=True):
        different = {id(memory): memory for memory in of_units}  # units share most devices
        row_of = dict(zip(different, range(len(different)), strict=True))
        rows = np.repeat([row_of[id(memory)] for memory in of_units], counts)
        devices.append(taken(tabled(list(different.values()), width=width), (rows, columns)))
    return tuple(devices)


def worker_of_cuts(cuts: Sequence[Alone]) -> WorkerWork:
    """Work of the devices of workers that are cut into as many chunks, for all their configurations. [s]"""
    first = cuts[0]
    works = [[work.alike or work for work in cut.works] for cut in cuts]
    different = {id(work): work for of_cut in works for work in of_cut}  # cuts share most stages
    table = tabled(
        [
            (tuple([getattr(work.times, name) for name in PHASES]), tuple([getattr(work, name) for name in VARIED]))
            for work in different.values()
        ],
        width=max(len(cut.prepared.batch_size) for cut in cuts),  # type: ignore[arg-type]
    )
    phases, varied = table
    times: Any = SimpleNamespace(**dict(zip(PHASES, phases, strict=True)))
    stage = StageWork(times=times, **dict(zip(VARIED, varied, strict=True)))
    of_stages = stage.numbers if len(first.memory) > 1 else stage.alone  # of all different stages at once
    row_of = dict(zip(different, range(len(different)), strict=True))
    rows = np.array([[row_of[id(work)] for work in of_cut] for of_cut in works])
    columns = np.concatenate([cut.columns for cut in cuts])
    of_chunks = np.repeat(rows, [len(cut.sizes) for cut in cuts], axis=0).T
    numbers = [taken(of_stages, (of_chunk, columns)) for of_chunk in of_chunks]
    return worker_of(numbers, device_of_chunk=first.device_of_chunk, device_count=len(first.memory))


def _only(device: DeviceWork, place: slice) -> DeviceWork:
    """Return a device's exchanges in one configuration."""

    def only(schedule: GradientSchedule | None) -> GradientSchedule | None:
        return None if schedule is None else schedule.taken(place)

    turns = tuple([(chunk, only(gradients)) for chunk, gradients in device.turns])
    numbers = taken(replace(device, schedule=None, turns=()), place)
    return replace(numbers, schedule=only(device.schedule), turns=turns)  # type: ignore[no-any-return]
