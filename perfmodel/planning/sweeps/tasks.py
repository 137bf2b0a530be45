"""Tasks of a sweep: cut from a space, evaluated in arrays if possible, here or by an executor."""

from __future__ import annotations

import math
import pickle
from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from threading import local
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from perfmodel.derived import uncollected
from perfmodel.errors import ArgumentError, PerfmodelError
from perfmodel.measurements.table import Run
from perfmodel.planning.sweeps.joint_steps import JointSteps, Refusal, Unlike
from perfmodel.planning.sweeps.known_jobs import JobValues
from perfmodel.planning.sweeps.layouts import Layouts
from perfmodel.planning.sweeps.results import FITS, REASON, RESULTS, Needs, Outcome, Reasons, epoch_size, memory_reason
from perfmodel.planning.sweeps.space import DEFAULTS, DEVICES, OF_JOB, OF_WORKER, Axis, Space
from perfmodel.planning.sweeps.worker_steps import Block, Section, Workers
from perfmodel.prediction.arguments.finite import overflow
from perfmodel.prediction.arguments.table import names_of
from perfmodel.prediction.bill import mean_power_of, paid_count
from perfmodel.prediction.certainty.basis import fault_of_times
from perfmodel.prediction.device.step_time import StepTime
from perfmodel.prediction.device_prices import Prices, price_names
from perfmodel.prediction.predict import predict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Columns = dict[str, NDArray[Any]]

GRADIENTS_AT_ONCE: Final = 2**20
"""Gradients of all workers timed at once: eight megabytes of times. [1]"""

WORKERS_PER_TASK: Final = 4096
"""Worker configurations timed at once in any case, however many gradients they have. [1]"""

BATCHES_AT_ONCE: Final = 1024
"""Batch sizes of one network timed at once: the times of its kernels then stay in a processor's caches. [1]"""

ROWS_PER_TASK: Final = 200_000
"""Configurations of a task: a few megabytes of columns. [1]"""

SLOW_ROWS_PER_TASK: Final = 256
"""Configurations of a task if predict evaluates each: about a second of work. [1]"""

LAYOUT_ROWS_PER_TASK: Final = 1_000_000
"""Layouts of a task: their common parts are made once per task. [1]"""

OF_AN_EPOCH: Final = frozenset({"epoch_s", "usd_per_epoch"})
"""Columns that may overflow although the time of a step does not."""

OF_LAYOUT: Final = (*names_of("spread"), "global_batch_size", DEVICES)
"""Arguments that make a configuration a layout if they differ from their defaults."""


@dataclass(frozen=True, eq=False)
class Side:
    """Some of a space's axes, with their combinations of values numbered."""

    axes: tuple[Axis, ...]

    @classmethod
    def of(cls, space: Space, names: tuple[str, ...]) -> Side:
        """Return the axes of a space that are in ``names``, in that order."""
        return cls(tuple(space.by_name[name] for name in names if name in space.by_name))

    @property
    def size(self) -> int:
        """Number of combinations. [1]"""
        return math.prod(len(axis) for axis in self.axes)

    def codes(self, numbers: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """Return the index of each combination's value in every axis."""
        codes, stride = {}, 1
        for axis in reversed(self.axes):
            codes[axis.name] = (numbers // stride) % len(axis)
            stride *= len(axis)
        return codes

    def numbers(self, space: Space, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of each configuration's combination."""
        numbers = np.zeros(len(rows), dtype=np.int64)
        for axis in self.axes:
            numbers = numbers * len(axis) + space.codes(axis.name, rows)
        return numbers

    def offsets(self, space: Space, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the offset that each combination contributes to a configuration's row in the product."""
        offsets = np.zeros(len(numbers), dtype=np.int64)
        for name, codes in self.codes(numbers).items():
            offsets += codes * space.strides[name]
        return offsets


@dataclass(frozen=True, eq=False, kw_only=True)
class SweepTask:
    """Configurations that are timed together."""

    workers: NDArray[np.int64]
    jobs: NDArray[np.int64]
    pairs: tuple[NDArray[np.int64], ...] | None = None
    rows: NDArray[np.int64] | None = field(default=None, repr=False)

    @property
    def size(self) -> int:
        """Number of configurations. [1]"""
        return len(self.workers) * len(self.jobs) if self.pairs is None else sum(map(len, self.pairs))

    def rows_in(self, space: Space, order: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Return the row of each configuration in the table, job by job, of workers in this order."""
        if self.rows is not None:
            return self.rows
        of_jobs = Side.of(space, OF_JOB).offsets(space, self.jobs)
        of_workers = Side.of(space, OF_WORKER).offsets(space, self.workers)
        rows: NDArray[np.int64] = (of_jobs[:, None] + (of_workers if order is None else of_workers[order])).ravel()
        return rows


@dataclass(frozen=True, kw_only=True)
class LayoutTask:
    """Consecutive configurations, some of which are layouts."""

    first: int
    size: int

    def rows_in(self, space: Space, order: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Return the row of each configuration in the table."""
        del space, order
        return np.arange(self.first, self.first + self.size)


AnyTask: TypeAlias = SweepTask | LayoutTask


def is_slow(space: Space) -> bool:
    """Tell whether predict must evaluate each configuration separately: for a Run, or with fitted factors."""
    return isinstance(space.graph, Run) or _varies(space, ("calibration",))


def _varies(space: Space, names: tuple[str, ...]) -> bool:
    """Tell whether some axes have a value other than the default."""
    axes = [space.by_name[name] for name in names if name in space.by_name]
    return any(value != DEFAULTS[axis.name] for axis in axes for value in axis.values)


def tasks_of(space: Space) -> Iterator[AnyTask]:
    """Cut a space into tasks; the same ones for any executor."""
    if not is_slow(space) and _varies(space, OF_LAYOUT):
        for first in range(0, space.size, LAYOUT_ROWS_PER_TASK):
            yield LayoutTask(first=first, size=min(LAYOUT_ROWS_PER_TASK, space.size - first))
        return
    most_rows = SLOW_ROWS_PER_TASK if is_slow(space) else ROWS_PER_TASK
    workers, jobs = Side.of(space, OF_WORKER), Side.of(space, OF_JOB)
    wide = min(WORKERS_PER_TASK, most_rows)
    if not is_slow(space):
        wide = max(wide, min(GRADIENTS_AT_ONCE // (1 + len(space.graph.trained_parameter_counts)), most_rows))
    if len(space.by_name.get("batch_size", ())) > BATCHES_AT_ONCE:  # they vary fastest
        wide = min(wide, BATCHES_AT_ONCE)
    if space.is_product:
        for first in range(0, workers.size, wide):
            some = np.arange(first, min(first + wide, workers.size))
            deep = max(1, most_rows // len(some))
            for start in range(0, jobs.size, deep):
                yield SweepTask(workers=some, jobs=np.arange(start, min(start + deep, jobs.size)))
        return
    rows = np.arange(space.size)
    of_worker, of_job = workers.numbers(space, rows), jobs.numbers(space, rows)
    block = np.unique(of_worker, return_inverse=True)[1] // wide
    order = np.lexsort((of_worker, of_job, block))
    edges = np.flatnonzero(np.diff(block[order])) + 1
    for part in np.split(order, edges):
        for start in range(0, len(part), most_rows):
            yield _listed(part[start : start + most_rows], of_worker, of_job)


def _listed(rows: NDArray[np.int64], of_worker: NDArray[np.int64], of_job: NDArray[np.int64]) -> SweepTask:
    """Return the task of some rows that are sorted by job."""
    workers, place = np.unique(of_worker[rows], return_inverse=True)
    jobs, starts = np.unique(of_job[rows], return_index=True)
    return SweepTask(workers=workers, jobs=jobs, pairs=tuple(np.split(place, starts[1:])), rows=rows)


ROWS_PER_KIND: Final = 4
"""Configurations per worker at or above which timing them at once beats single predictions. [1]"""


@dataclass(frozen=True, eq=False)
class TaskColumns:
    """The result columns of a task."""

    columns: Columns
    reasons: list[str]
    order: NDArray[np.int64] | None = None
    """Index of the worker of each row of a job; None where rows are as ``rows_in`` lists them. [1]"""


@dataclass(eq=False)
class Evaluation:
    """The results requested of every configuration of a space."""

    space: Space
    columns: tuple[str, ...]
    prices: Prices
    dataset_size: int | None
    _last: tuple[NDArray[np.int64], Block] | None = field(default=None, repr=False)
    _layouts: Layouts | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._workers = Workers(self.space)
        self.jobs = JointSteps(self.prices, self.dataset_size)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.space, self.columns, self.prices, self.dataset_size)

    def of(self, task: AnyTask) -> TaskColumns:
        """Return the columns of a task."""
        rows, order = _ResultRows(self, task.size), None
        with np.errstate(over="ignore", invalid="ignore"):  # an overflow becomes a reason
            if isinstance(task, LayoutTask):
                self._layouts = self._layouts or Layouts(self.space, self.prices, self.dataset_size)
                rows.layouts(self._layouts, task.rows_in(self.space))
            else:
                evaluation = _TaskEvaluation(rows, self, task)
                evaluation.every_job()
                order = evaluation.order
        return TaskColumns(rows.columns, rows.reasons.texts, order)

    def workers(self, task: SweepTask) -> Block:
        """Return the workers of a task, timed alone; cached for an equal next task."""
        if self._last is None or not np.array_equal(self._last[0], task.workers):
            codes = Side.of(self.space, OF_WORKER).codes(task.workers)
            self._last = None  # nothing needs the last block while the next one is made
            self._last = task.workers, self._workers.block(codes, len(task.workers))
        return self._last[1]


class _ResultRows:
    """Result rows of a task while they are written."""

    def __init__(self, evaluation: Evaluation, size: int) -> None:
        self.evaluation, self.space = evaluation, evaluation.space
        self.reasons = Reasons()
        self.columns = empty_columns(evaluation.columns, size)
        self._formulas = [
            (column, RESULTS[name], name in OF_AN_EPOCH) for name, column in self.columns.items() if name != REASON
        ]

    def layouts(self, layouts: Layouts, rows: NDArray[np.int64]) -> None:
        """Evaluate rows of layouts."""

        def refuse(places: NDArray[np.int64], reason: str) -> None:
            self.columns[REASON][places] = self.reasons.code(reason)

        def slow(places: NDArray[np.int64]) -> None:
            codes = {name: self.space.codes(name, rows[places]) for name in self.space.by_name}
            for index, place in enumerate(places.tolist()):
                self.predicted(place, {name: int(column[index]) for name, column in codes.items()})

        for answer in layouts.answers(rows, refuse=refuse, slow=slow):
            self.write(answer.places, answer.outcome, self.remarks(answer.outcome.needs, *answer[2:]))

    def write(self, rows: Any, outcome: Outcome, remarks: Any) -> None:
        """Write the results of possible configurations, and the codes of their remarks."""
        is_finite, self.columns[REASON][rows] = outcome.has_times, remarks
        for column, formula, is_of_epoch in self._formulas:
            values = column[rows] = formula(outcome)
            if is_of_epoch and np.isinf(values).any():
                is_finite = False
        if not is_finite:
            every_row = np.arange(len(self.columns[REASON]))
            self._refuse_overflow(np.atleast_1d(every_row[rows]), outcome)

    def _refuse_overflow(self, rows: NDArray[np.int64], outcome: Outcome) -> None:
        """Replace results that are not finite by a reason; for times, the reason that predict gives."""
        step_s = np.broadcast_to(outcome.step_s, len(rows))
        for place in np.flatnonzero(~((step_s >= 0) & (step_s < math.inf))).tolist():
            of_row = [
                float(np.broadcast_to(values, len(rows))[place]) for values in (*outcome.parts, outcome.batch_size)
            ]
            fault = fault_of_times(StepTime._make(of_row[:-1]), batch_size=int(of_row[-1]), graph=self.space.graph)
            for name, column in empty_columns(tuple(self.columns), 1).items():
                self.columns[name][rows[place]] = column[0]
            self.columns[REASON][rows[place]] = self.reasons.code(str(fault))
        stated = {"usd_per_hour": np.max(outcome.usd_per_hour), "dataset_size": np.max(outcome.dataset_size)}
        for name in self.columns.keys() & OF_AN_EPOCH:
            infinite = rows[np.isinf(self.columns[name][rows])]
            if len(infinite):
                self.columns[name][infinite] = math.nan
                self.columns[REASON][infinite] = self.reasons.code(str(overflow(name, math.inf, stated)))

    def remarks(self, *lacking: Any) -> NDArray[np.int32]:
        """Return reason codes of possible configurations, which lack what ``lacks`` says."""
        reasons, of_row = self.lacks(*lacking)
        return self.codes(reasons)[of_row]

    def codes(self, reasons: Sequence[tuple[str, ...]]) -> NDArray[np.int32]:
        """Return the code of each reason, joined of several texts."""
        return np.array([self.reasons.code(*texts) for texts in reasons], dtype=np.int32)

    def lacks(
        self, needs: Needs, devices: Sequence[tuple[str, ...]], device_of_row: NDArray[np.intp]
    ) -> tuple[list[tuple[str, ...]], NDArray[np.intp]]:
        """Return what possible configurations lack, memory or a known price, and the index of each one's reason."""
        unpriced = [self.price_reason(device) for device in devices]
        reasons: list[tuple[str, ...]] = [(reason,) for reason in unpriced]
        full = np.flatnonzero(~needs.fits)
        if not len(full):
            return reasons, device_of_row
        needed, offered, elsewhere = np.broadcast_arrays(
            needs.memory_bytes, needs.capacity_bytes, needs.missing_elsewhere_bytes
        )
        missing = np.stack([needed[full], offered[full], elsewhere[full], device_of_row[full]])
        order = np.lexsort(missing[::-1])  # as np.unique(axis=1) sorts, without comparing columns as bytes
        is_new = np.diff(missing[:, order], axis=1, prepend=np.nan).any(axis=0)
        of_row = device_of_row.copy()
        of_row[full[order]] = len(reasons) - 1 + np.cumsum(is_new)
        for need, offer, apart, device in missing[:, order[is_new]].T.tolist():
            reasons.append((memory_reason(need, offer, apart), unpriced[int(device)]))
        return reasons, of_row

    def predicted(self, row: int, codes: Mapping[str, int]) -> None:
        """Evaluate one configuration with predict."""
        try:
            arguments = self.space.resolved(codes)
            p = predict(self.space.graph, **arguments)
        except PerfmodelError as error:
            self.columns[REASON][row] = self.reasons.code(str(error))
            return
        assert p.basis is not None
        target = p.basis.prepared.target
        device, memory = price_names(target), p.memory
        lacking = memory.total_bytes, memory.capacity_bytes, memory.missing_elsewhere_bytes
        outcome = Outcome(
            parts=p.parts,
            batch_size=p.batch_size,
            counted_workers=p.counted_workers,
            device_count=paid_count(target, p.agreement),
            needs=Needs(memory_bytes=lacking[0], capacity_bytes=lacking[1], missing_elsewhere_bytes=lacking[2]),
            usd_per_hour=self.evaluation.prices.of(*device),
            dataset_size=epoch_size(self.evaluation.dataset_size, arguments.get("dataset")),
            energy_of=lambda _: math.nan if mean_power_of(p) is None else p.energy_j(),
        )
        fit = memory_reason(*map(float, lacking))
        self.write(row, outcome, self.reasons.code(fit, self.price_reason(device)))

    def price_reason(self, device: tuple[str, ...]) -> str:
        """Reason why a device has no price; empty if it has one or no prices are requested."""
        asked = "usd_per_epoch" in self.evaluation.columns
        return self.evaluation.prices.missing(*device) if asked else ""


class _TaskEvaluation:
    """A task of workers and jobs during evaluation."""

    def __init__(self, rows: _ResultRows, evaluation: Evaluation, task: SweepTask) -> None:
        self.rows, self.evaluation, self.task, self.space = rows, evaluation, task, evaluation.space
        self.reasons, self.columns = rows.reasons, rows.columns
        self.of_workers = Side.of(self.space, OF_WORKER).codes(task.workers)
        self.is_slow = self._is_sparse() or is_slow(self.space)
        self._written: dict[Hashable, int] = {}
        """First row of each job whose results every worker has."""

    def _is_sparse(self) -> bool:
        """Tell whether hardly any two configurations share a worker, ignoring batch size."""
        batches = self.space.by_name.get("batch_size")
        kinds = np.unique(self.task.workers // (1 if batches is None else len(batches)))
        return self.task.pairs is not None and self.task.size < ROWS_PER_KIND * len(kinds)

    def every_job(self) -> None:
        of_jobs = Side.of(self.space, OF_JOB).codes(self.task.jobs)
        start, everyone = 0, np.arange(len(self.task.workers))
        for index in range(len(self.task.jobs)):
            codes = {name: int(column[index]) for name, column in of_jobs.items()}
            job = JobValues(codes, {name: self.space.value(name, codes.get(name, 0)) for name in OF_JOB})
            places = None if self.task.pairs is None else self.task.pairs[index]
            if self.is_slow:
                those = everyone if places is None else places
                self._one_by_one(job, those, np.arange(start, start + len(those)))
            else:
                self._together(job, start, places)
            start += len(everyone if places is None else places)

    def _together(self, job: JobValues, start: int, places: NDArray[np.int64] | None) -> None:
        """Evaluate a job for all its workers at once, or for those at ``places``, which may repeat."""
        block = self.evaluation.workers(self.task)
        if places is None:
            self._every_worker(block, job, start)
            return
        for refused, reason in block.refused:
            self.columns[REASON][start + np.flatnonzero(np.isin(places, refused))] = self.reasons.code(reason)
        is_slow = np.isin(places, block.slow)
        self._one_by_one(job, places[is_slow], start + np.flatnonzero(is_slow))
        for section in block.sections:
            is_member = np.isin(places, section.places)
            if is_member.any():
                order = np.argsort(section.places)
                some = order[np.searchsorted(section.places, places[is_member], sorter=order)]
                self._section(section.some(some), job, start + np.flatnonzero(is_member))

    def _every_worker(self, block: Block, job: JobValues, start: int) -> None:
        """Evaluate a job for all workers of a block, in the block's order, whose slices take a fifth of an index."""
        if (first := self._written.setdefault(job.alike, start)) < start:
            count = len(self.task.workers)
            for column in self.columns.values():
                column[start : start + count] = column[first : first + count]
            return
        for section in block.sections:
            rows = slice(start, start := start + len(section.places))
            self._section(section, job, rows)
        for refused, reason in block.refused:
            self.columns[REASON][start : (start := start + len(refused))] = self.reasons.code(reason)
        self._one_by_one(job, block.slow, np.arange(start, start + len(block.slow)))

    @property
    def order(self) -> NDArray[np.int64] | None:
        """Index of the worker of each row of a job; None where rows are as listed."""
        if self.is_slow or self.task.pairs is not None:
            return None
        return self.evaluation.workers(self.task).order

    def _section(self, section: Section, job: JobValues, rows: slice | NDArray[np.int64]) -> None:
        try:
            outcome = self.evaluation.jobs.outcome(section, job)
        except Unlike:
            places = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
            for of_link, places_of in zip(section.of_links, np.split(places, section.links), strict=True):
                self._section(of_link, job, places_of)
            return
        except Refusal as refusal:
            codes = [self.reasons.code(refusal.of(kind.system)) for kind in section.kinds]
            self.columns[REASON][rows] = section.joined(codes)
            return
        self.rows.write(rows, outcome, self._remarks(section, outcome.needs))

    def _remarks(self, section: Section, needs: Needs) -> NDArray[np.int32]:
        """Return reason codes of a section's configurations: too little memory, or no known price."""
        key = ("remarks", needs)
        if key not in section.kept:
            section.kept[key] = None, None, *self.rows.lacks(needs, *section.numbered_devices)
        codes: NDArray[np.int32]
        of, codes, reasons, of_row = section.kept[key]
        if of is not self.reasons:  # codes belong to one task's list of reasons
            codes = self.rows.codes(reasons)[of_row]
            section.kept[key] = self.reasons, codes, reasons, of_row
        return codes

    def _one_by_one(self, job: JobValues, places: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        """Evaluate a job with predict, for each of the workers at ``places``."""
        for place, row in zip(places.tolist(), rows.tolist(), strict=True):
            worker = {name: int(codes[place]) for name, codes in self.of_workers.items()}
            self.rows.predicted(row, worker | dict(job.codes))


def empty_columns(names: tuple[str, ...], size: int) -> Columns:
    """Return columns of configurations without results: zeros and NaN."""
    empty: Columns = {FITS: np.zeros(1, dtype=bool), REASON: np.zeros(1, dtype=np.int32)}
    return {name: np.repeat(empty.get(name, np.full(1, math.nan)), size) for name in names}


AT_ONCE: Final = 64
"""Tasks that an executor has at once: enough for its workers, with a few megabytes of columns. [1]"""

TRIES: Final = 3
"""Attempts on an executor before a task is evaluated here. [1]"""


class _Open(local):
    """The evaluation of a thread's present sweep, with its pickle, so that its tasks share caches."""

    pickled: bytes = b""
    evaluation: Evaluation


_OPEN: Final = _Open()


@uncollected
def evaluate_pickled(pickled: bytes, task: AnyTask) -> TaskColumns:
    """Evaluate a task in a worker process, or a thread."""
    if _OPEN.pickled != pickled:
        _OPEN.evaluation = pickle.loads(pickled)  # pickled by this library in the parent process
        _OPEN.pickled = pickled
    return _OPEN.evaluation.of(task)


def outcomes(
    evaluation: Evaluation, tasks: Iterator[AnyTask], *, executor: Executor | None
) -> Iterator[tuple[AnyTask, TaskColumns]]:
    """Evaluate tasks, and yield each with its columns when it is done."""
    if executor is None:
        for task in tasks:
            yield task, evaluation.of(task)
        return
    yield from _ExecutorTasks(evaluation, tasks, executor).done()


class _ExecutorTasks:
    """Tasks of an executor: lost ones are retried, and those that keep failing are evaluated here."""

    def __init__(self, evaluation: Evaluation, tasks: Iterator[AnyTask], executor: Executor) -> None:
        self.evaluation, self.tasks, self.executor = evaluation, tasks, executor
        self.pickled = pickle.dumps(evaluation)
        self.running: dict[Future[TaskColumns], tuple[AnyTask, int]] = {}
        self.left: deque[AnyTask] = deque()

    def done(self) -> Iterator[tuple[AnyTask, TaskColumns]]:
        try:
            while self._fill() or self.running:
                for future in wait(self.running, return_when=FIRST_COMPLETED).done:
                    task, tries = self.running.pop(future)
                    if future.cancelled() or future.exception() is not None:
                        self._again(task, tries)
                    else:
                        yield task, future.result()
                while self.left:
                    task = self.left.popleft()
                    yield task, self.evaluation.of(task)
        finally:
            for future in self.running:
                future.cancel()

    def _fill(self) -> bool:
        """Submit tasks up to the limit; return whether any are running or left to evaluate here."""
        while len(self.running) < AT_ONCE and not self.left:
            task = next(self.tasks, None)
            if task is None:
                break
            self._again(task, 0)
        return bool(self.running or self.left)

    def _again(self, task: AnyTask, tries: int) -> None:
        """Submit a task once more; if that fails, or has failed too often, keep it to evaluate here."""
        if tries < TRIES:
            with suppress(Exception):  # an executor may fail in any way once its workers are gone
                future: Future[TaskColumns] = self.executor.submit(evaluate_pickled, self.pickled, task)
                self.running[future] = (task, tries + 1)
                return
        self.left.append(task)


def check_executor(executor: Any) -> None:
    """Reject anything that is not an executor of concurrent.futures."""
    if executor is not None and not (isinstance(executor, Executor) and callable(getattr(executor, "submit", None))):
        allowed = "an executor of concurrent.futures, e.g. ProcessPoolExecutor(), or client.get_executor() of dask"
        raise ArgumentError("executor", executor, allowed)
