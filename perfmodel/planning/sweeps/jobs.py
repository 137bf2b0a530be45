"""Joint steps of a sweep's workers: evaluated once for all workers that differ only in batch size and device."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.errors import PerfmodelError
from perfmodel.planning.sweeps.axes import FED_BY
from perfmodel.planning.sweeps.prices import Prices
from perfmodel.planning.sweeps.results import Outcome, epoch_size
from perfmodel.planning.sweeps.workers import Section
from perfmodel.prediction.arguments.table import names_of
from perfmodel.prediction.device.step_time import StepTime
from perfmodel.prediction.device.targets import resolve_target
from perfmodel.prediction.job.agreement import Asynchronous
from perfmodel.prediction.job.agreement_options import resolve_agreement
from perfmodel.prediction.job.compose import Composed, agreed, fed_with
from perfmodel.prediction.job.data_path import resolve_data_path
from perfmodel.prediction.job.gradients import MERGED
from perfmodel.prediction.job.job import Job as AskedJob
from perfmodel.prediction.job.work import StageWork

if TYPE_CHECKING:
    from perfmodel.prediction.device.target import Target
    from perfmodel.prediction.job.agreement import Agreement
    from perfmodel.prediction.job.data_path import DataPath

AGREED_BY: Final = names_of("workers", "exchange")
"""Arguments of an agreement."""

MOST_OUTCOMES: Final = 4
"""Outcomes cached per section for jobs with equal results: without a data set, prefetch of 1 and 2 are equal. [1]"""


@dataclass(frozen=True, eq=False)
class Job:
    """Values of the axes that decide what workers do together.

    Parameters
    ----------
    codes : mapping of str to int
        Where values stand in their axes: what tells jobs apart. [1]
    values : mapping of str to object
        Arguments of predict. [-]
    """

    codes: Mapping[str, int]
    values: Mapping[str, Any]

    def _key(self, names: tuple[str, ...]) -> Hashable:
        return tuple(self.codes.get(name) for name in names)

    @cached_property
    def size(self) -> Hashable:
        """Key of the number of workers."""
        return self._key(("workers",))

    @cached_property
    def agreed(self) -> Hashable:
        """Key of the way in which the workers agree."""
        return self._key(AGREED_BY)

    @cached_property
    def fed(self) -> Hashable:
        """Key of the way in which mini-batches arrive."""
        return self._key(("workers", *FED_BY))


class Refusal(Exception):  # noqa: N818 - no error: a row of the table
    """Why a job is impossible, in the words of predict, and the system that they name."""

    def __init__(self, reason: str, system: str) -> None:
        self.reason, self.system = reason, system
        super().__init__(reason)

    def of(self, system: str) -> str:
        """Return the reason for another system with the same wiring."""
        return self.reason.replace(self.system, system) if self.system else self.reason


@dataclass(eq=False)
class Jobs:
    """Evaluates jobs of sections, and caches intermediate results for later jobs."""

    prices: Prices
    dataset_size: int | None
    _kept: dict[Hashable, Any] = field(default_factory=dict)

    def outcome(self, section: Section, job: Job) -> tuple[Outcome, Hashable]:
        """Return the outcome of a job for each worker of a section, and the key of its memory."""
        try:
            return self._outcome(section, job)
        except PerfmodelError as error:
            raise Refusal(str(error), section.first.system) from error

    def _outcome(self, section: Section, job: Job) -> tuple[Outcome, Hashable]:
        target = self._target(section, job)
        if target.machine is not None and target.machine.shares_boards:
            section = section.beside_working_dies
        path = self._data_path(section, job, target)
        agreement = self._agreement(section, job, target)
        memory = (job.size, path.prefetch > 0)
        alike = (id(agreement), memory, None if path.dataset is None else job.fed)
        kept = section.kept.setdefault("outcomes", {})
        if alike not in kept:
            if len(kept) >= MOST_OUTCOMES:
                kept.clear()
            kept[alike] = agreement, self._agreed(section, job, target, path, agreement)
        return kept[alike][1], memory

    def _agreed(
        self, section: Section, job: Job, target: Target, path: DataPath, agreement: Agreement | None
    ) -> Outcome:
        before_s, meanwhile_s, buffers = self._feed(section, job, target, path)
        composed = fed_with(
            self._applied(section, agreement),
            agreement=agreement,
            copies_s=(before_s, meanwhile_s),
            fed=partial(path.fed, batch_size=section.batch_size),
        )
        kept_bytes, input_bytes, capacity_bytes = section.memory_bytes
        return Outcome(
            parts=composed.parts,
            batch_size=section.batch_size,
            counted_workers=path.worker_count if agreement is None else agreement.counted_workers,
            device_count=path.worker_count,
            memory_bytes=kept_bytes + (buffers - 1) * input_bytes,
            capacity_bytes=capacity_bytes,
            usd_per_hour=self._usd_per_hour(section),
            dataset_size=epoch_size(self.dataset_size, path.dataset),
        )

    def _once(self, section: Section, key: Hashable, make: Any) -> Any:
        """Return the cached value of a key, or raise its refusal; make either on first use."""
        if key not in self._kept:
            try:
                self._kept[key] = make()
            except PerfmodelError as error:
                self._kept[key] = Refusal(str(error), section.first.system)
        found = self._kept[key]
        if isinstance(found, Refusal):  # raised anew: one that is kept would keep whoever it passed through
            raise Refusal(found.reason, found.system)
        return found

    def _usd_per_hour(self, section: Section) -> Any:
        if "usd_per_hour" not in section.kept:
            devices, of_rows = section.numbered_devices
            section.kept["usd_per_hour"] = np.array([self.prices.of(device) for device in devices])[of_rows]
        return section.kept["usd_per_hour"]

    def _target(self, section: Section, job: Job) -> Target:
        workers = job.values["workers"]
        return self._once(  # type: ignore[no-any-return]
            section,
            ("target", section.alike.wiring, section.alike.unit_count, job.size),
            lambda: resolve_target(workers=workers, **section.first.asked),
        )

    def _data_path(self, section: Section, job: Job, target: Target) -> DataPath:
        return self._once(  # type: ignore[no-any-return]
            section,
            ("path", section.alike.wiring, job.fed),
            lambda: resolve_data_path(target, _asked(section, job, (*FED_BY, "workers"))),
        )

    def _agreement(self, section: Section, job: Job, target: Target) -> Agreement | None:
        prepared, alike = section.first.prepared, section.alike
        return self._once(  # type: ignore[no-any-return]
            section,
            ("agreement", alike.wiring, alike.exchanged, alike.unit_count, job.agreed),
            lambda: resolve_agreement(
                _asked(section, job, AGREED_BY),
                machine=target.machine,
                subject=prepared.subject,
                profile=prepared.profile,
                dtype=prepared.dtype,
            ),
        )

    def _feed(self, section: Section, job: Job, target: Target, path: DataPath) -> tuple[Any, Any, Any]:
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


def _asked(section: Section, job: Job, names: tuple[str, ...]) -> AskedJob:
    """Return some arguments of a job, checked as predict checks them."""
    values: Any = {name: job.values[name] for name in names}
    return AskedJob(section.first.prepared.subject.graph, **values)


def _applied(section: Section, agreement: Agreement | None) -> Composed:
    merged = getattr(agreement, "message_bytes", None) == MERGED
    varied = isinstance(agreement, Asynchronous) and agreement.numbers.times is not None
    if not (merged or varied):
        return _composed(section, agreement)
    # what is searched for, or comes of a search, is found for each worker by itself
    found = [_composed(section.some(np.array([index])), agreement) for index in range(len(section.batch_size))]

    def joined(steps: list[StepTime]) -> StepTime:
        return StepTime(
            **{
                each.name: np.array([float(np.ravel(getattr(step, each.name))[0]) for step in steps])
                for each in fields(StepTime)
            }
        )

    return replace(found[0], parts=joined([each.parts for each in found]), own=joined([each.own for each in found]))


def _composed(section: Section, agreement: Agreement | None) -> Composed:
    work = StageWork(times=section, exchanges_gradients=agreement is not None)
    composed = agreed([work], orders=section.first.prepared.orders, agreement=agreement)
    return replace(composed, stages=())  # a section keeps what is composed of it, and would keep itself
