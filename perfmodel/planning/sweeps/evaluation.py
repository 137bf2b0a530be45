"""Evaluation of a sweep's tasks: in arrays where that is possible, else one prediction at a time."""

from __future__ import annotations

import gc
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.errors import PerfmodelError
from perfmodel.planning.sweeps.axes import OF_JOB, OF_WORKER
from perfmodel.planning.sweeps.jobs import Job, Jobs, Refusal
from perfmodel.planning.sweeps.layouts import Layouts
from perfmodel.planning.sweeps.prices import Prices
from perfmodel.planning.sweeps.results import FITS, REASON, RESULTS, Outcome, Reasons, epoch_size, memory_reason
from perfmodel.planning.sweeps.task import LayoutTask, Side, is_slow
from perfmodel.planning.sweeps.workers import Block, Section, Workers
from perfmodel.prediction.predict import predict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.planning.sweeps.space import Space
    from perfmodel.planning.sweeps.task import SweepTask

    Columns = dict[str, NDArray[Any]]


ROWS_PER_KIND: Final = 4
"""Configurations per worker from which on timing them at once is cheaper than single predictions. [1]"""


@dataclass(frozen=True, eq=False)
class Evaluated:
    """The result columns of a task."""

    columns: Columns
    reasons: list[str]


@dataclass(eq=False)
class Evaluation:
    """The results asked of every configuration of a space."""

    space: Space
    columns: tuple[str, ...]
    prices: Prices
    dataset_size: int | None
    _last: tuple[NDArray[np.int64], Block, Jobs] | None = field(default=None, repr=False)
    _layouts: Layouts | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_last": None, "_layouts": None}

    def of(self, task: SweepTask | LayoutTask) -> Evaluated:
        """Return the columns of a task, in the order of its rows."""
        doing = _Rows(self, task.size)
        if isinstance(task, LayoutTask):
            self._layouts = self._layouts or Layouts(self.space, self.prices, self.dataset_size)
            with _uncollected():
                doing.layouts(self._layouts, task.rows_in(self.space))
        else:
            _Doing(doing, self, task).every_job()
        return Evaluated(doing.columns, doing.reasons.texts)

    def workers(self, task: SweepTask) -> tuple[Block, Jobs]:
        """Return the workers of a task, timed alone, and the evaluator of their jobs; kept from an equal last task."""
        last = self._last
        if last is None or not np.array_equal(last[0], task.workers):
            codes = Side.of(self.space, OF_WORKER).codes(task.workers)
            block = Workers(self.space).block(codes, len(task.workers))
            last = self._last = (task.workers, block, Jobs(self.prices, self.dataset_size))
        return last[1], last[2]


@contextmanager
def _uncollected() -> Iterator[None]:
    """Switch off cyclic garbage collection in the block: it makes millions of objects without cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Rows:
    """Result rows of a task while they are written."""

    def __init__(self, evaluation: Evaluation, size: int) -> None:
        self.evaluation, self.space = evaluation, evaluation.space
        self.reasons = Reasons()
        self.columns = empty_columns(evaluation.columns, size)

    def layouts(self, layouts: Layouts, rows: NDArray[np.int64]) -> None:
        """Evaluate rows of layouts."""

        def refuse(places: NDArray[np.int64], reason: str) -> None:
            self.columns[REASON][places] = self.reasons.code(reason)

        def slow(places: NDArray[np.int64]) -> None:
            codes = {name: self.space.codes(name, rows[places]) for name in self.space.by_name}
            for index, place in enumerate(places.tolist()):
                self.predicted(place, {name: int(each[index]) for name, each in codes.items()})

        for answer in layouts.answers(rows, refuse=refuse, slow=slow):
            for name, column in self.columns.items():
                if name != REASON:
                    column[answer.places] = RESULTS[name](answer.outcome)
            self.columns[REASON][answer.places] = self.remarks(answer.outcome, answer.devices, answer.device_of_row)

    def remarks(self, outcome: Outcome, devices: Sequence[str], device_of_row: NDArray[Any]) -> NDArray[np.int32]:
        """Return reason codes of possible configurations: too little memory, or no known price."""
        unpriced = [self.price_reason(device) for device in devices]
        said = np.array([self.reasons.code(reason) for reason in unpriced], dtype=np.int32)[device_of_row]
        needed, offered = outcome.memory_bytes, outcome.capacity_bytes
        full = np.flatnonzero(needed > offered)
        if len(full):
            missing = np.stack([needed[full], offered[full], device_of_row[full]])
            different, of_row = np.unique(missing, axis=1, return_inverse=True)
            codes = [
                self.reasons.code(memory_reason(float(need), float(offer)), unpriced[int(device)])
                for need, offer, device in different.T
            ]
            said[full] = np.array(codes, dtype=np.int32)[np.ravel(of_row)]
        marked: NDArray[np.int32] = said
        return marked

    def predicted(self, row: int, codes: Mapping[str, int]) -> None:
        """Evaluate one configuration with predict."""
        try:
            arguments = self.space.resolved(codes)
            p = predict(self.space.graph, **arguments)
        except PerfmodelError as error:
            self.columns[REASON][row] = self.reasons.code(str(error))
            return
        assert p.basis is not None
        device = p.basis.prepared.target.processor_spec.stem
        outcome = Outcome(
            parts=p.parts,
            batch_size=p.batch_size,
            counted_workers=p.counted_workers,
            device_count=p.worker_count * arguments.get("stages", 1) * arguments.get("tensor_size", 1),
            memory_bytes=p.memory.total_bytes,
            capacity_bytes=p.memory.capacity_bytes,
            usd_per_hour=self.evaluation.prices.of(device),
            dataset_size=epoch_size(self.evaluation.dataset_size, arguments.get("dataset")),
        )
        for name, column in self.columns.items():
            if name != REASON:
                column[row] = RESULTS[name](outcome)
        fit = memory_reason(float(outcome.memory_bytes), float(outcome.capacity_bytes))
        self.columns[REASON][row] = self.reasons.code(fit, self.price_reason(device))

    def price_reason(self, device: str) -> str:
        """Return why a device has no price; empty if it has one or prices are not asked for."""
        asked = "usd_per_epoch" in self.evaluation.columns
        return self.evaluation.prices.missing(device) if asked else ""


class _Doing:
    """A task of workers and jobs during evaluation."""

    def __init__(self, rows: _Rows, evaluation: Evaluation, task: SweepTask) -> None:
        self.rows, self.evaluation, self.task, self.space = rows, evaluation, task, evaluation.space
        self.reasons, self.columns = rows.reasons, rows.columns
        self.of_workers = Side.of(self.space, OF_WORKER).codes(task.workers)
        self.is_slow = self._is_sparse() or is_slow(self.space)

    def _is_sparse(self) -> bool:
        """Tell whether hardly any two configurations share a worker, batch size aside."""
        batches = self.space.by_name.get("batch_size")
        kinds = np.unique(self.task.workers // (1 if batches is None else len(batches)))
        return self.task.pairs is not None and self.task.size < ROWS_PER_KIND * len(kinds)

    def every_job(self) -> None:
        of_jobs = Side.of(self.space, OF_JOB).codes(self.task.jobs)
        start, everyone = 0, np.arange(len(self.task.workers))
        for index in range(len(self.task.jobs)):
            codes = {name: int(each[index]) for name, each in of_jobs.items()}
            job = Job(codes, {name: self.space.value(name, codes.get(name, 0)) for name in OF_JOB})
            places = None if self.task.pairs is None else self.task.pairs[index]
            if self.is_slow:
                those = everyone if places is None else places
                self._one_by_one(job, those, np.arange(start, start + len(those)))
            else:
                self._together(job, start, places)
            start += len(everyone if places is None else places)

    def _together(self, job: Job, start: int, places: NDArray[np.int64] | None) -> None:
        """Evaluate a job for all its workers at once, or for those at ``places``, which may repeat."""
        block, jobs = self.evaluation.workers(self.task)
        for refused, reason in block.refused:
            self.columns[REASON][self._rows(refused, start, places)[1]] = self.reasons.code(reason)
        self._one_by_one(job, *self._rows(block.slow, start, places))
        for section in block.sections:
            members, rows = self._rows(section.places, start, places)
            if places is None:
                self._section(section, job, jobs, rows)
            elif len(members):
                order = np.argsort(section.places)
                some = order[np.searchsorted(section.places, members, sorter=order)]
                self._section(section.some(some), job, jobs, rows)

    @staticmethod
    def _rows(
        among: NDArray[np.int64], start: int, places: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the members of ``among`` that a job is for, and their rows in the table."""
        if places is None:
            return among, start + among
        wanted = np.isin(places, among)
        return places[wanted], start + np.flatnonzero(wanted)

    def _section(self, section: Section, job: Job, jobs: Jobs, rows: NDArray[np.int64]) -> None:
        try:
            outcome, memory = jobs.outcome(section, job)
        except Refusal as refusal:
            codes = [np.full(1, self.reasons.code(refusal.of(kind.system))) for kind in section.kinds]
            self.columns[REASON][rows] = section.joined(codes)
            return
        for name, column in self.columns.items():
            column[rows] = self._remarks(section, outcome, memory) if name == REASON else RESULTS[name](outcome)

    def _remarks(self, section: Section, outcome: Outcome, memory: Hashable) -> NDArray[np.int32]:
        """Return reason codes of a section's configurations: too little memory, or no known price."""
        key = ("remarks", memory)
        kept = section.kept.get(key)
        if kept is None or kept[0] is not self.reasons:  # codes are of one task's list of reasons
            said = self.rows.remarks(outcome, *section.numbered_devices)
            kept = section.kept[key] = (self.reasons, said)
        return kept[1]

    def _one_by_one(self, job: Job, places: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        """Evaluate a job with predict, for each of the workers at ``places``."""
        for place, row in zip(places.tolist(), rows.tolist(), strict=True):
            worker = {name: int(codes[place]) for name, codes in self.of_workers.items()}
            self.rows.predicted(row, worker | dict(job.codes))


def empty_columns(names: tuple[str, ...], size: int) -> Columns:
    """Return columns of configurations without results: zeros and NaN."""
    empty: Columns = {FITS: np.zeros(1, dtype=bool), REASON: np.zeros(1, dtype=np.int32)}
    return {name: np.repeat(empty.get(name, np.full(1, math.nan)), size) for name in names}
