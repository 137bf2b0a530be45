"""Evaluation of layouts: rows are grouped by structure; those with the same turns are composed in one call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from perfmodel.cost.pipeline_order import kept_counts, orders_of
from perfmodel.derived import derived_property
from perfmodel.errors import PerfmodelError
from perfmodel.numeric import maximum
from perfmodel.parallelism.base import Layout
from perfmodel.parallelism.registry import SHARING
from perfmodel.planning.sweeps.known_jobs import FAST_TARGETS, KnownJobs, groups
from perfmodel.planning.sweeps.micro_batches import Exchanges, LayoutKind, Unit, memory_of_units, worker_of_cuts
from perfmodel.planning.sweeps.results import Outcome, epoch_size
from perfmodel.planning.sweeps.space import DEFAULTS, DEVICES, OF_WORKER
from perfmodel.prediction.arguments.checks import resolved_batch_size
from perfmodel.prediction.arguments.table import names_of
from perfmodel.prediction.bill import paid_count, processor_count, server_power_w
from perfmodel.prediction.device.step_time import NO_TIME
from perfmodel.prediction.energy import Draws, energy_of_all, step_work
from perfmodel.prediction.job.agreement import Asynchronous, Synchronous
from perfmodel.prediction.job.compose import Composed, fed_with, is_served, stepped
from perfmodel.prediction.job.parameter_server import held_beside, server_of, without_served_state
from perfmodel.prediction.job.prepare import Known, lowering_of
from perfmodel.prediction.job.stacking import stacked, taken
from perfmodel.prediction.job.turns import all_turned, slow_places, slowed_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.cost.pipeline_order import Orders
    from perfmodel.planning.sweeps.space import Space
    from perfmodel.prediction.device.step_time import StepTime
    from perfmodel.prediction.device_prices import Prices
    from perfmodel.prediction.job.compose import DeviceWork, WorkerWork
    from perfmodel.prediction.job.job import Job
    from perfmodel.prediction.job.turns import Turned

    Ints = NDArray[np.int64]

BATCH: Final = ("batch_size", "global_batch_size")
PASSES: Final = "accumulation_steps"
"""Axis that counts passes of all micro-batches, which take the same turns."""
SHARED: Final = ("shard_stage", "no_sync")
"""Axes that only concern sharing among workers: the steps of a single worker do not depend on them."""
TURNS: Final = ("schedule", "micro_batches", PASSES)
"""Axes that decide the number and order of turns."""
ORDERED_BY: Final = ("phase", "workers", DEVICES, *(name for name in names_of("spread") if name not in SHARING))
"""Axes that the rules of a schedule and of a parallelism constrain."""


class Answer(NamedTuple):
    """Results of some possible rows."""

    places: Ints
    outcome: Outcome
    devices: Sequence[tuple[str, ...]]
    device_of_row: Ints


@dataclass(eq=False)
class Layouts:
    """Evaluates rows of layouts, and caches intermediate results for later rows."""

    space: Space
    prices: Prices
    dataset_size: int | None

    def __post_init__(self) -> None:
        self._known = KnownJobs(self.space)

    def answers(
        self, rows: Ints, *, refuse: Callable[[Ints, str], None], slow: Callable[[Ints], None]
    ) -> Iterator[Answer]:
        """Evaluate rows."""
        request = _Request(self.space, rows, refuse)
        jobs = request.grouped([name for name in self.space.by_name if name not in (*BATCH, *TURNS)], self._job)
        layouts = request.grouped(
            [name for name in self.space.by_name if name in ORDERED_BY], self._layout, alike=PASSES
        )
        kinds = []
        for job, places in jobs:
            if job is None:
                slow(request.left(places))
                continue
            with request.refusing(places):
                kinds.append((self._known.once(("kind", id(job)), partial(self._kind, job)), places))
        micro, passes = request.numbers("micro_batches"), request.numbers(PASSES)
        batch = self._batch_sizes(request, kinds)
        self._refuse_uneven(request, batch, micro, passes)
        turns = np.zeros(len(rows), dtype=np.int64)
        ordered: dict[Layout, int] = {}
        for layout, places in layouts:
            turns[places] = ordered.setdefault(_in_order(layout), len(ordered))
        orders = list(ordered)
        sizes = batch // (micro * passes)
        among = tuple(np.unique(sizes[request.is_open]).tolist())
        depths: dict[Any, list[tuple[Unit, Ints, Ints]]] = defaultdict(list)
        for kind, places in kinds:
            places = places[request.is_open[places]]
            if len(places):
                for unit, unit_places, at in self._units(request, kind, places, sizes[places], among):
                    depths[unit.alike].append((unit, unit_places, at))
        ordered_rows = []
        for listed in depths.values():
            units = [unit for unit, _, _ in listed]
            stack = _Stack(units, self._numbers(units))
            row_places = np.concatenate([places for _, places, _ in listed])
            of_unit = np.repeat(np.arange(len(listed)), [len(places) for _, places, _ in listed])
            at = stack.starts[of_unit] + np.concatenate([at for _, _, at in listed])
            for (index,), some in groups([turns[row_places]]):
                ordered_rows.append(_OrderedRows(stack, orders[index], of_unit[some], at[some], row_places[some]))
        for some_rows, turned in zip(ordered_rows, _turned(ordered_rows), strict=True):
            yield self._answer(some_rows, turned, passes[some_rows.places], batch[some_rows.places])

    def _job(self, codes: Mapping[str, int]) -> _UnplacedJob | None:
        """Return the job that configurations share; None if predict must evaluate each."""
        return self._known.once(("job", tuple(codes.items())), lambda: self._made(codes))  # type: ignore[no-any-return]

    def _made(self, codes: Mapping[str, int]) -> _UnplacedJob | None:
        arguments = self.space.resolved(codes)
        interleave = arguments.pop("interleave", 1)
        job = self._known.job(codes, arguments)
        if job.target.lowered_for not in FAST_TARGETS or not job.target.takes_parts:
            return None
        on = tuple((name, code) for name, code in codes.items() if name in OF_WORKER)
        shared = tuple((name, code) for name, code in codes.items() if name not in SHARED)
        return _UnplacedJob(job, interleave, on, shared)

    def _kind(self, request: _UnplacedJob) -> LayoutKind:
        job = request.job
        layout = replace(job.layout, interleave=request.interleave)
        job = job.resolved(subject=job.subject, layout=layout, target=job.target, profile=job.profile)
        # dies of a board slow down as more of them work
        known = self._known.once(("known", request.on, id(job.target.processor_spec)), Known)
        lowering = lowering_of(job, known=known)
        return LayoutKind(job=job, lowering=lowering, shared=request.shared)

    def _layout(self, codes: Mapping[str, int]) -> Layout:
        """Return the layout, checked against the rules of its schedule."""
        return self._known.unplaced(self.space.resolved(codes)).layout

    def _batch_sizes(self, request: _Request, kinds: Sequence[tuple[LayoutKind, Ints]]) -> Ints:
        """Return the samples per worker and step; reject batches that the workers cannot share."""
        graph = self.space.graph
        workers = np.ones(len(request.rows), dtype=np.int64)
        for kind, places in kinds:
            workers[places] = kind.job.workers
        batch_sizes = np.ones(len(request.rows), dtype=np.int64)
        codes = [request.codes.get(name, np.zeros(len(request.rows), dtype=np.int64)) for name in BATCH]
        for (batch, whole, count), places in groups([*codes, workers]):
            requested = [self.space.value(name, code) for name, code in zip(BATCH, (batch, whole), strict=True)]
            requested[0] = graph.fixed_batch_size if requested == [None, None] else requested[0]
            with request.refusing(places):
                batch_sizes[places] = graph.samples(resolved_batch_size(*requested, workers=count))
        return batch_sizes

    @staticmethod
    def _refuse_uneven(request: _Request, batch: Ints, micro: Ints, passes: Ints) -> None:
        uneven = np.flatnonzero(request.is_open & (batch % (micro * passes) != 0))
        for (samples, count, times), places in groups([column[uneven] for column in (batch, micro, passes)]):
            with request.refusing(uneven[places]):
                Layout(micro_batches=count, accumulation_steps=times).micro_batch_size(samples)

    def _units(
        self, request: _Request, kind: LayoutKind, places: Ints, sizes: Ints, among: tuple[int, ...]
    ) -> Iterator[tuple[Unit, Ints, Ints]]:
        """Yield the units of a kind, each with its rows and their columns in the unit."""
        known = self._known.once(("units", id(kind)), dict)
        different, of_row = np.unique(sizes, return_inverse=True)
        missing = [size for size in different.tolist() if size not in known]
        with request.refusing(places):
            for unit in kind.units(missing, among=among):
                known.update((size, (unit, at)) for at, size in enumerate(unit.alone.sizes))
        by_unit: dict[int, tuple[Unit, list[tuple[int, int]]]] = {}
        for index, size in enumerate(different.tolist()):
            if size in known:
                unit, at = known[size]
                by_unit.setdefault(id(unit), (unit, []))[1].append((index, at))
        for unit, listed in by_unit.values():
            place_of = np.full(len(different), -1)
            for index, at in listed:
                place_of[index] = at
            at_rows = place_of[of_row]
            is_of_unit = at_rows >= 0
            yield unit, places[is_of_unit], at_rows[is_of_unit]

    def _answer(self, rows: _OrderedRows, turned: _TurnedRows, passes: Ints, batch: Ints) -> Answer:
        stack, layout, of_unit, at, places = rows
        parts, units = layout.micro_batches * passes, stack.units
        composed = stack.composed(layout, turned, of_unit, passes=passes)
        agreement = units[0].agreement
        fed = None
        if units[0].prepared.data_path is not None and units[0].prepared.data_path.dataset is not None:
            fed = partial(stack.fed, of_unit=of_unit, batch=batch)
        copies_s = tuple(parts * copy_s for copy_s in taken(stack.copies_s, stack.alone[at]))
        composed = fed_with(composed, agreement=agreement, copies_s=copies_s, fed=fed)
        memory_bytes, capacity_bytes = stack.memory(layout, at, parts=parts, passes=passes)
        servers = [server_of(unit.prepared) for unit in stack.units]
        missing_elsewhere = np.array([0.0 if server is None else server.missing_bytes for server in servers])
        outcome = Outcome(
            parts=composed.parts,
            batch_size=batch,
            memory_bytes=memory_bytes,
            capacity_bytes=capacity_bytes,
            missing_elsewhere_bytes=missing_elsewhere[of_unit],
            energy_of=partial(stack.energy_j, of_unit=of_unit, at=at, parts=parts),
            **{name: values[of_unit] for name, values in stack.numbers.items()},
        )
        return Answer(places=places, outcome=outcome, devices=stack.names, device_of_row=stack.device_of_unit[of_unit])

    def _numbers(self, units: Sequence[Unit]) -> dict[str, Any]:
        """Return further numbers of an outcome that all rows of a unit share."""
        jobs = [unit.prepared for unit in units]
        paths = [job.data_path for job in jobs]
        return {
            "counted_workers": np.array([job.counted_workers for job in jobs]),
            "device_count": np.array([paid_count(job.target, job.agreement) for job in jobs]),
            "usd_per_hour": np.array([self.prices.of(*unit.device_names) for unit in units]),
            "dataset_size": np.array(
                [epoch_size(self.dataset_size, None if path is None else path.dataset) for path in paths]
            ),
        }


def _in_order(layout: Layout) -> Layout:
    """Reduce a layout to the fields that determine the order of turns in a pass."""
    schedule = layout.schedule
    if layout.stages == 1 or (layout.interleave == 1 and schedule == "interleaved"):
        schedule = "1f1b"
    return Layout(
        workers=layout.stages,
        stages=layout.stages,
        micro_batches=layout.micro_batches,
        interleave=layout.interleave,
        schedule=schedule,
    )


class _UnplacedJob(NamedTuple):
    """A job before it is laid out, shared by many configurations."""

    job: Job
    interleave: int
    on: Hashable
    shared: tuple[Hashable, ...]


class _Request:
    """The rows of a request, each marked if it is still unanswered."""

    def __init__(self, space: Space, rows: Ints, refuse: Callable[[Ints, str], None]) -> None:
        self.space, self.rows, self.refuse = space, rows, refuse
        self.codes = {axis.name: space.codes(axis.name, rows) for axis in space.axes if len(axis) > 1}
        self.is_open = np.ones(len(rows), dtype=bool)

    def left(self, places: Ints) -> Ints:
        """Return the given rows that are still unanswered, and mark them as answered."""
        left = places[self.is_open[places]]
        self.is_open[left] = False
        return left

    @contextmanager
    def refusing(self, places: Ints) -> Iterator[None]:
        """Reject the rows that are still open if the block raises."""
        try:
            yield
        except PerfmodelError as error:
            self.refused(places, error)

    def refused(self, places: Ints, error: PerfmodelError) -> None:
        """Reject the rows among some that are still open."""
        left = self.left(places)
        if len(left):
            self.refuse(left, str(error))

    def numbers(self, name: str) -> Ints:
        """Return an axis's value for each row."""
        if name not in self.codes:
            return np.full(len(self.rows), self.space.value(name, 0))
        values = [self.space.value(name, code) for code in range(len(self.space.by_name[name]))]
        return np.array(values, dtype=np.int64)[self.codes[name]]

    def grouped(
        self, names: Sequence[str], make: Callable[[dict[str, int]], Any], *, alike: str | None = None
    ) -> list[tuple[Any, Ints]]:
        """Call ``make`` for each combination of some axes' values; return values and rows; reject failures.

        On the axis ``alike``, all values but the default give one result; each fails separately only if the error
        names that axis.
        """
        made = []
        fixed = dict.fromkeys(names, 0)
        columns = {name: self.codes[name] for name in names if name in self.codes}
        everything = [np.zeros(len(self.rows), dtype=np.int64)]
        if alike in columns:
            columns[alike] = self._first_alike(alike)[columns[alike]]
        for key, places in groups(list(columns.values()) or everything):
            if not self.is_open[places].any():
                continue
            codes = fixed | dict(zip(columns, key, strict=bool(columns)))
            try:
                made.append((make(codes), places))
            except PerfmodelError as error:
                if alike not in columns or getattr(error, "argument", alike) != alike:
                    self.refused(places, error)
                    continue
                for (code,), some in groups([self.codes[alike][places]]):
                    with self.refusing(places[some]):
                        made.append((make(codes | {alike: code}), places[some]))
        return made

    def _first_alike(self, name: str) -> Ints:
        """Map each value of an axis to the first default or, for other values, to the first that is not the default."""
        values = [self.space.value(name, code) == DEFAULTS[name] for code in range(len(self.space.by_name[name]))]
        return np.array([values.index(value) for value in values])


class _OrderedRows(NamedTuple):
    """Rows of a stack with one order of turns: the unit and the configuration in the stack of each, and its place."""

    stack: _Stack
    layout: Layout
    of_unit: Ints
    at: Ints
    places: Ints


class _TurnedRows(NamedTuple):
    """The ends of turns, and the exchanges, of the configurations that rows of one order of turns share."""

    used: Ints
    row: Ints
    turns: Turned
    exchanged: tuple[tuple[Any, ...], ...]


class _Stack:
    """Units that are composed together, their configurations concatenated."""

    def __init__(self, units: Sequence[Unit], numbers: Mapping[str, Any]) -> None:
        self.units, self.numbers = units, numbers
        self.names = tuple(dict.fromkeys(unit.device_names for unit in units))
        self.device_of_unit = np.array([self.names.index(unit.device_names) for unit in units])
        self.counts = [len(unit.alone.sizes) for unit in units]
        self.starts = np.cumsum([0, *self.counts[:-1]])
        # sharing among workers does not change the rest
        first = {id(unit.alone): unit.alone for unit in reversed(units)}
        counts = [len(alone.sizes) for alone in first.values()]
        alone_starts = dict(zip(first, np.cumsum([0, *counts]), strict=False))
        self.alone = np.concatenate([alone_starts[id(unit.alone)] + np.arange(len(unit.alone.sizes)) for unit in units])
        turns_like: dict[Hashable, Ints] = {}
        spans = [start + np.arange(count) for start, count in zip(self.starts, self.counts, strict=True)]
        self.turns_like = np.concatenate(
            [turns_like.setdefault(unit.turns_like, span) for unit, span in zip(units, spans, strict=True)]
        )
        """The first configuration with the turns of each."""
        worker = worker_of_cuts(list(first.values()))
        turns: dict[str, Any] = dict.fromkeys(("forward_s", "backward_s", "forward_send_s", "backward_send_s"), ())
        self.without_turns = replace(worker, **turns)
        self.turns = replace(worker, per_micro_batch=NO_TIME, update=NO_TIME, updates=(), tied_s=())
        self.devices = memory_of_units(units)
        self.copies_s = stacked([alone.copies_s for alone in first.values()], counts)
        self.alones, self.alone_counts = tuple(first.values()), counts
        layouts = [unit.prepared.layout for unit in units]
        self.shares = np.array([layout.update_share for layout in layouts])
        self.adding_shares = np.repeat([layout.adding_share for layout in layouts], self.counts)
        self.memories: dict[Hashable, tuple[Any, Any]] = {}
        self.exchanged = None
        if not any(unit.waits_for_turns for unit in units):
            self.exchanged = stacked([unit.exchanged_by_itself for unit in units], self.counts)

    def orders(self, layout: Layout) -> Orders:
        """Return the turns of a layout."""
        prepared = self.units[0].prepared
        return orders_of(
            layout.schedule,
            stage_count=layout.stages,
            micro_batch_count=layout.micro_batches,
            interleave=len(prepared.stages) // layout.stages,
            trains=prepared.trains,
        )

    def exchanges(self, turns: Sequence[Turned], used: Sequence[Ints]) -> list[Exchanges]:
        """Return the exchanges of configurations at the ends of their turns, in each of several orders."""
        if self.exchanged is not None:
            return [taken(self.exchanged, some) for some in used]
        counts = [len(some) for some in used]
        exchanged = self._exchanged(
            stacked(turns, counts), np.concatenate(used), np.repeat(np.arange(len(counts)), counts)
        )
        return [taken(exchanged, slice(*span)) for span in pairwise(np.cumsum([0, *counts]).tolist())]

    def composed(self, layout: Layout, rows: _TurnedRows, of_unit: Ints, *, passes: Ints) -> Composed:
        """Return the joint steps of rows, without copies and input."""
        agreement = self.units[0].agreement
        count = layout.micro_batches * passes
        own_parts, between = stepped(
            self.adding_up(self.without_turns, rows.used[rows.row], layout),
            taken(rows.turns, rows.row),
            exchanged=None
            if agreement is None
            else [
                (total_s + count * gathered_s, exposed_s + count * waited_s)
                for total_s, exposed_s, gathered_s, waited_s in taken(rows.exchanged, rows.row)
            ],
            micro_batches=layout.micro_batches,
            passes=passes,
            update_share=self.shares[of_unit],
            served=is_served(agreement),
        )
        parts = own_parts if agreement is None else self._applied(own_parts, between, of_unit)
        return Composed(parts=parts, alone=own_parts, longest=0, stages=(), devices=(), orders=self.orders(layout))

    def adding_up(self, worker: WorkerWork, used: Ints, layout: Layout) -> WorkerWork:
        """Return the work of some configurations with their sums of gradients."""
        shares = self.adding_shares[used]
        return taken(worker, self.alone[used]).adding_up(  # type: ignore[no-any-return]
            layout.micro_batches, share=1.0 if (shares == 1).all() else shares
        )

    def _exchanged(self, turns: Turned, used: Ints, order: Ints) -> Exchanges:
        """Return the exchanges at the ends of turns, unit by unit for all orders of turns at once."""
        devices: dict[Hashable, Sequence[DeviceWork]] = {}
        exchanges: dict[Hashable, Exchanges] = {}
        exchanged, everywhere = [], []
        for (index,), places in groups([np.searchsorted(self.starts, used, side="right") - 1]):
            unit = self.units[index]
            columns = unit.alone.columns[used[places] - self.starts[index]]
            alone, like = (
                (of, columns.tobytes(), order[places].tobytes()) for of in (unit.turns_like, unit.exchanges_like)
            )
            if alone not in devices:
                devices[alone] = unit.devices(taken(turns, places), columns)
            if like not in exchanges:
                exchanges[like] = unit.exchanged(devices[alone], columns)
            exchanged.append(exchanges[like])
            everywhere.append(places)
        back = np.argsort(np.concatenate(everywhere))
        return taken(stacked(exchanged, [len(places) for places in everywhere]), back)  # type: ignore[no-any-return]

    def _applied(self, own_parts: StepTime, exchanged: tuple[Any, Any], of_unit: Ints) -> StepTime:
        agreements = [unit.agreement for unit in self.units]
        if all(isinstance(agreement, Synchronous) and agreement.straggler is None for agreement in agreements):
            assert agreements[0] is not None
            return agreements[0].applied(own_parts, exchanged)

        def applied(index: int, rows: slice) -> StepTime:
            agreement = agreements[index]
            assert agreement is not None
            is_varied = isinstance(agreement, Asynchronous) and agreement.numbers.times is not None
            alone = [slice(row, row + 1) for row in range(rows.start, rows.stop)] if is_varied else [rows]
            return stacked(  # type: ignore[no-any-return]
                [agreement.applied(taken(own_parts, some), taken(exchanged, some)) for some in alone],
                [some.stop - some.start for some in alone],
            )

        return self._by_unit(applied, of_unit)

    def fed(self, parts: StepTime, *, of_unit: Ints, batch: Ints) -> StepTime:
        """Return steps, including the time they wait for input."""

        def fed(index: int, rows: slice) -> StepTime:
            path = self.units[index].prepared.data_path
            assert path is not None
            return path.fed(taken(parts, rows), batch_size=batch[rows].astype(float))

        return self._by_unit(fed, of_unit)

    @staticmethod
    def _by_unit(make: Callable[[int, slice], StepTime], of_unit: Ints) -> StepTime:
        """Call ``make`` for each unit and join the steps; rows are sorted by unit."""
        edges = [0, *(np.flatnonzero(np.diff(of_unit)) + 1).tolist(), len(of_unit)]
        slices = [slice(*span) for span in pairwise(edges)]
        steps = [make(int(of_unit[rows.start]), rows) for rows in slices]
        return stacked(steps, [rows.stop - rows.start for rows in slices])  # type: ignore[no-any-return]

    def energy_j(self, step_s: Any, *, of_unit: Ints, at: Ints, parts: Ints) -> Any:
        """Return the energy of all devices in steps of these times. [J]"""
        targets = [(unit.prepared.target, unit.agreement) for unit in self.units]
        count, beside_w = (
            np.array([of(target, agreement) for target, agreement in targets])[of_unit]
            for of in (lambda target, _: processor_count(target), server_power_w)
        )
        boards = [unit.alone.board for unit in self.units]
        draws = Draws(*(np.array([getattr(board, name) for board in boards])[of_unit] for name in Draws._fields))
        works = step_work(
            taken(self._energies, self.alone[at]),
            self.units[0].alone.device_of_chunk,
            parts=parts,
            update_share=self.shares[of_unit],
        )
        return energy_of_all(draws, works, step_s=step_s, count=count) + beside_w * step_s

    @derived_property
    def _energies(self) -> Any:
        """Energy of the work of each chunk, of all configurations. [J]"""
        return stacked([alone.energies for alone in self.alones], self.alone_counts)

    def memory(self, layout: Layout, at: Ints, *, parts: Ints, passes: Ints) -> tuple[Any, Any]:
        """Return the memory that the fullest device of a worker needs, and its capacity. [B]"""
        orders, has_several = self.orders(layout), passes > 1
        needed = np.zeros(len(at))
        for cut, times, rows in ((1, 1, parts == 1), (2, 1, (parts > 1) & ~has_several), (2, 2, has_several)):
            if rows.any():
                of_all, capacity = self._memory_of(orders, parts=cut, passes=times)
                needed[rows] = of_all[at[rows]]
        return needed, capacity[at]

    def _memory_of(self, orders: Orders, *, parts: int, passes: int) -> tuple[Any, Any]:
        """Return the memory, and its capacity, of all configurations; orders that hold as much share it. [B]"""
        shares_late = any(device.shares_late for device in self.devices)
        moments = (
            kept_counts(order, device.chunks, with_working=passes == 1 and device.shares_late)
            for device, order in zip(self.devices, orders, strict=True)
        )
        key = (parts, passes if shares_late else 1, *moments)
        if key not in self.memories:
            agreement, needed = self.units[0].agreement, []
            for device, order, held in zip(self.devices, orders, self._held_beside, strict=True):
                footprint = without_served_state(device.footprint(order, parts=parts, passes=passes), agreement)
                needed.append(footprint.total_bytes + held)
            count, capacity_bytes = sum(self.counts), self.devices[0].alone.capacity_bytes
            self.memories[key] = (
                np.broadcast_to(reduce(maximum, needed), count),
                np.broadcast_to(capacity_bytes, count),
            )
        return self.memories[key]

    @derived_property
    def _held_beside(self) -> list[Any]:
        """What each device holds beside a worker, of all configurations. [B]"""
        beside = zip(*[held_beside(unit.prepared) for unit in self.units], strict=True)
        return [np.repeat(of_units, self.counts) for of_units in beside]


def _turned(rows: Sequence[_OrderedRows]) -> list[_TurnedRows]:
    """Return the ends of turns and the exchanges of rows, whose turns are all added up at once."""
    stacks, layouts = [some.stack for some in rows], [some.layout for some in rows]
    shared = [np.unique(some.at, return_inverse=True) for some in rows]  # many rows share a few micro-batch sizes
    alike = [
        np.unique(stack.turns_like[used], return_inverse=True) for stack, (used, _) in zip(stacks, shared, strict=True)
    ]
    orders = [stack.orders(layout) for stack, layout in zip(stacks, layouts, strict=True)]

    def worker(row: int, used: Ints) -> WorkerWork:
        return stacks[row].adding_up(stacks[row].turns, used, layouts[row])

    turns = all_turned([worker(row, some) for row, (some, _) in enumerate(alike)], orders)
    turns = [taken(of_alike, places) for of_alike, (_, places) in zip(turns, alike, strict=True)]
    exchanges: list[Exchanges] = []
    for stack, of_stack in groupby(range(len(rows)), key=stacks.__getitem__):
        those = list(of_stack)
        exchanges += stack.exchanges([turns[row] for row in those], [shared[row][0] for row in those])
    slow = {
        row: places
        for row, (used, _) in enumerate(shared)
        if len(orders[row]) > 1 and len(places := slow_places(exchanges[row].messages, count=len(used)))
    }
    slowed = all_turned(
        [worker(row, shared[row][0][places]) for row, places in slow.items()],
        [orders[row] for row in slow],
        [taken(exchanges[row].messages, places) for row, places in slow.items()],
    )
    for (row, places), to in zip(slow.items(), slowed, strict=True):
        turns[row] = replace(turns[row], slowed=slowed_at(places, of=turns[row], to=to))
    return [
        _TurnedRows(used, row, of_row, exchanged.devices)
        for (used, row), of_row, exchanged in zip(shared, turns, exchanges, strict=True)
    ]
