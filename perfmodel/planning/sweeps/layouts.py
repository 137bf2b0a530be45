"""Evaluation of layouts: rows are grouped by structure; those with the same turns are composed in one call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from perfmodel.errors import PerfmodelError
from perfmodel.parallelism.base import Layout
from perfmodel.parallelism.registry import SHARING
from perfmodel.planning.sweeps.known_jobs import FAST_TARGETS, KnownJobs, groups
from perfmodel.planning.sweeps.micro_batches import Columns, Draft, LayoutKind, Unit
from perfmodel.planning.sweeps.results import Needs, Outcome, epoch_size
from perfmodel.planning.sweeps.space import DEFAULTS, DEVICES, OF_WORKER
from perfmodel.planning.sweeps.stacks import Stack, StackRows, TurnedRows, turned_rows
from perfmodel.prediction.arguments.checks import resolved_batch_size
from perfmodel.prediction.arguments.table import names_of
from perfmodel.prediction.bill import paid_count
from perfmodel.prediction.job.compose import fed_with
from perfmodel.prediction.job.parameter_server import server_of
from perfmodel.prediction.job.prepare import Known, lowering_of
from perfmodel.prediction.job.stacking import taken
from perfmodel.prediction.job.stage import time_together

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.planning.sweeps.space import Space
    from perfmodel.prediction.device_prices import Prices
    from perfmodel.prediction.job.job import Job
    from perfmodel.prediction.job.stage import TimedStage

    Ints = NDArray[np.int64]

BATCH: Final = ("batch_size", "global_batch_size")
PASSES: Final = "accumulation_steps"
"""Axis that counts passes of all micro-batches, which take the same turns."""
SHARED: Final = ("shard_stage", "no_sync")
"""Axes that only concern sharing among workers: the steps of a single worker do not depend on them."""
RERUN: Final = ("recompute",)
"""Axes that do not change how workers agree, besides those that decide the turns."""
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
            [name for name in self.space.by_name if name in ORDERED_BY], self._layout, alike=(PASSES, "tensor_size")
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
        sizes = _Sizes(batch // (micro * passes), request.is_open)
        depths: dict[Any, list[tuple[Unit, Ints, Ints]]] = defaultdict(list)
        self._draw_up(request, kinds, sizes)
        for kind, places in kinds:
            places = places[request.is_open[places]]
            for unit, unit_places, at in self._units(kind, places, sizes):
                depths[unit.alike].append((unit, unit_places, at))
        of_stacks = []
        for listed in depths.values():
            units = [unit for unit, _, _ in listed]
            stack = Stack(units, self._numbers(units))
            row_places = np.concatenate([places for _, places, _ in listed])
            of_unit = np.repeat(np.arange(len(listed)), [len(places) for _, places, _ in listed])
            at = stack.starts[of_unit] + np.concatenate([at for _, _, at in listed])
            present, order = np.unique(turns[row_places], return_inverse=True)
            layouts_of_stack = tuple(orders[index] for index in present.tolist())
            of_stacks.append(StackRows(stack, layouts_of_stack, order, of_unit, at, row_places))
        for rows_of_stack, turned in zip(of_stacks, turned_rows(of_stacks), strict=True):
            for some in rows_of_stack.pieces():
                yield self._answer(rows_of_stack, some, turned, passes, batch)

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
        shared, agreed = (
            tuple((name, code) for name, code in codes.items() if name not in names) for names in (SHARED, RERUN)
        )
        return _UnplacedJob(job, interleave, on, shared, agreed)

    def _kind(self, request: _UnplacedJob) -> LayoutKind:
        job = request.job
        layout = replace(job.layout, interleave=request.interleave)
        job = job.resolved(subject=job.subject, layout=layout, target=job.target, profile=job.profile)
        # dies of a board slow down as more of them work
        known = self._known.once(("known", request.on, id(job.target.processor_spec)), Known)
        lowering = lowering_of(job, known=known)
        lowering.__dict__["_agreements"] = self._known.once(("agreements", request.agreed), dict)
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

    def _draw_up(self, request: _Request, kinds: Sequence[tuple[LayoutKind, Ints]], sizes: _Sizes) -> None:
        """Make the units that are missing: all are drafted before any is timed, as stages are timed in like columns."""
        drafts: list[tuple[LayoutKind, Ints, Draft]] = []
        for kind, places in kinds:
            places, known = places[request.is_open[places]], self._units_of(kind)
            missing = [size for size in sizes.among(places) if size not in known]
            with request.refusing(places):
                drafts += [(kind, places, draft) for draft in kind.drafts(missing)]
        among = Columns.of(draft for _, _, draft in drafts)
        timed: dict[bool, list[TimedStage]] = defaultdict(list)
        for kind, places, draft in drafts:
            with request.refusing(places):
                timed[kind.lowering.gathers_narrow] += kind.timed(draft, among)
        for stages in timed.values():
            time_together(stages)
        for kind, places, draft in drafts:
            with request.refusing(places):
                unit = kind.unit(draft, among)
                self._units_of(kind).update((size, (unit, at)) for at, size in enumerate(draft.sizes))

    def _units_of(self, kind: LayoutKind) -> dict[int, tuple[Unit, int]]:
        """Units of a kind by micro-batch size, with the place of the size in the unit."""
        return self._known.once(("units", id(kind)), dict)  # type: ignore[no-any-return]

    def _units(self, kind: LayoutKind, places: Ints, sizes: _Sizes) -> Iterator[tuple[Unit, Ints, Ints]]:
        """Yield the units of a kind, each with its rows and their columns in the unit."""
        known = self._units_of(kind)
        by_unit: dict[int, tuple[Unit, list[tuple[int, int]]]] = {}
        for size, code in sizes.among(places).items():
            if size in known:
                unit, at = known[size]
                by_unit.setdefault(id(unit), (unit, []))[1].append((code, at))
        for unit, listed in by_unit.values():
            place_of = np.full(len(sizes.different), -1)
            for code, at in listed:
                place_of[code] = at
            at_rows = place_of[sizes.codes[places]]
            is_of_unit = at_rows >= 0
            yield unit, places[is_of_unit], at_rows[is_of_unit]

    def _answer(self, rows: StackRows, some: slice, turned: TurnedRows, passes: Ints, batch: Ints) -> Answer:
        stack, layouts, *columns = rows
        order, of_unit, at, places = (column[some] for column in columns)
        passes, batch, units = passes[places], batch[places], stack.units
        micro_batches = rows.micro_batches[order]
        parts = micro_batches * passes
        composed = stack.composed(turned, turned.row[some], of_unit, micro_batches=micro_batches, passes=passes)
        agreement = units[0].agreement
        fed = None
        if units[0].prepared.data_path is not None and units[0].prepared.data_path.dataset is not None:
            fed = partial(stack.fed, of_unit=of_unit, batch=batch)
        copies_s = tuple(parts * copy_s for copy_s in taken(stack.copies_s, stack.alone[at]))
        composed = fed_with(composed, agreement=agreement, copies_s=copies_s, fed=fed)
        memory_bytes, capacity_bytes = stack.memory(layouts, order, at, parts=parts, passes=passes)
        servers = [server_of(unit.prepared) for unit in stack.units]
        missing_elsewhere = np.array([0.0 if server is None else server.missing_bytes for server in servers])
        outcome = Outcome(
            parts=composed.parts,
            batch_size=batch,
            needs=Needs(
                memory_bytes=memory_bytes,
                capacity_bytes=capacity_bytes,
                missing_elsewhere_bytes=missing_elsewhere[of_unit],
            ),
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
    agreed: Hashable


class _Sizes:
    """Micro-batch sizes of the rows of a request that are open, as codes."""

    def __init__(self, sizes: Ints, is_open: NDArray[np.bool_]) -> None:
        self.codes = np.zeros(len(sizes), dtype=np.intp)
        different, self.codes[is_open] = np.unique(sizes[is_open], return_inverse=True)
        self.different: list[int] = different.tolist()

    def among(self, places: Ints) -> dict[int, int]:
        """Return the sizes of some rows, rising, with their codes."""
        present = np.flatnonzero(np.bincount(self.codes[places], minlength=1)).tolist()
        return {self.different[code]: code for code in present} if len(places) else {}


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
        self, names: Sequence[str], make: Callable[[dict[str, int]], Any], *, alike: tuple[str, ...] = ()
    ) -> list[tuple[Any, Ints]]:
        """Call ``make`` for each combination of some axes' values; return values and rows; reject failures.

        On the axes ``alike``, all values but the default give one result; each fails separately only if the error
        names one of these axes.
        """
        made = []
        fixed = dict.fromkeys(names, 0)
        columns = {name: self.codes[name] for name in names if name in self.codes}
        alike = tuple([name for name in alike if name in columns])
        compared = columns | {name: self._first_alike(name)[columns[name]] for name in alike}
        everything = [np.zeros(len(self.rows), dtype=np.int64)]
        for _, places in groups(list(compared.values()) or everything):
            left = places[self.is_open[places]]
            if not len(left):
                continue
            codes = fixed | {name: int(column[left[0]]) for name, column in columns.items()}
            try:
                made.append((make(codes), places))
            except PerfmodelError as error:
                if not alike or getattr(error, "argument", alike[0]) not in alike:
                    self.refused(places, error)
                    continue
                for key, some in groups([columns[name][places] for name in alike]):
                    with self.refusing(places[some]):
                        made.append((make(codes | dict(zip(alike, key, strict=True))), places[some]))
        return made

    def _first_alike(self, name: str) -> Ints:
        """Map each value of an axis to the first default or, for other values, to the first that is not the default."""
        values = [self.space.value(name, code) == DEFAULTS[name] for code in range(len(self.space.by_name[name]))]
        return np.array([values.index(value) for value in values])
