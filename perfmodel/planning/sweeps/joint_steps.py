"""Joint steps of a sweep's workers: one evaluation of a job for all workers with equal exchanges."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.derived import drop_oldest, record
from perfmodel.errors import PerfmodelError
from perfmodel.planning.sweeps.known_jobs import AGREED_BY, JobValues
from perfmodel.planning.sweeps.results import Outcome, epoch_size
from perfmodel.planning.sweeps.space import FED_BY
from perfmodel.planning.sweeps.worker_steps import Section
from perfmodel.prediction.bill import paid_count
from perfmodel.prediction.device.step_time import StepTime
from perfmodel.prediction.device.targets import resolve_target
from perfmodel.prediction.device_prices import Prices
from perfmodel.prediction.job.agreement import Agreement, Asynchronous, Synchronous
from perfmodel.prediction.job.agreement_options import WITH_SERVER, message_bytes_of, with_habits_of
from perfmodel.prediction.job.agreements import AGREEMENT_OF, agreement_of, slowed_by_blocks
from perfmodel.prediction.job.compose import Composed, agreed, fed_with
from perfmodel.prediction.job.data_path import DataPath, resolve_data_path
from perfmodel.prediction.job.gradients import MERGED
from perfmodel.prediction.job.job import Job

if TYPE_CHECKING:
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.prediction.device.target import Target
    from perfmodel.prediction.job.compose import DeviceWork
    from perfmodel.symbolic import Quantity

MOST_OUTCOMES: Final = 4
"""Outcomes cached per section, as jobs may have equal results: overlapping or not, if they exchange nothing. [1]"""


MOST_JOINT: Final = 16_384
"""Targets, data paths and agreements cached for all sections of a sweep; the oldest is dropped first. [1]"""


class Refusal(Exception):  # noqa: N818 - not an error: a row of the table
    """Why a job is impossible, in the words of predict, and the name of the system in them."""

    def __init__(self, reason: str, system: str) -> None:
        self.reason, self.system = reason, system
        super().__init__(reason)

    def of(self, system: str) -> str:
        """Return the reason for another system with the same wiring."""
        return self.reason.replace(self.system, system) if self.system else self.reason


class Unlike(Exception):  # noqa: N818 - not an error: the workers are evaluated link by link
    """Workers on several links that cannot be evaluated together."""


@record
class OverLinks(Synchronous):
    """The same workers on each of several links, which differ only in the times of messages."""

    of_links: tuple[Synchronous, ...]

    def exchanged(self, device: DeviceWork) -> tuple[Quantity, Quantity]:
        """Time of the exchanges in a step on each link, of shape (links, configurations), total and exposed. [s]"""
        of_links = zip(*[agreement.exchanged(device) for agreement in self.of_links], strict=True)
        total_s, exposed_s = (np.array(seconds).reshape(len(seconds), -1) for seconds in of_links)
        return total_s, exposed_s


@dataclass(eq=False)
class JointSteps:
    """Evaluates jobs of sections, and caches intermediate results for later jobs."""

    prices: Prices
    dataset_size: int | None
    _kept: dict[Hashable, Any] = field(default_factory=dict)

    def outcome(self, section: Section, job: JobValues) -> Outcome:
        """Return the outcome of a job for each worker of a section; raise ``Unlike`` if its links differ in kind."""
        try:
            return self._outcome(section, job)
        except (PerfmodelError, Refusal) as error:
            if section.of_links:
                raise Unlike from error
            if isinstance(error, Refusal):
                raise
            raise Refusal(str(error), section.first.system) from error

    def _outcome(self, section: Section, job: JobValues) -> Outcome:
        target = self._target(section, job)
        path = self._data_path(section, job, target)
        agreement = self._on_each_link(section, job) if section.of_links else self._agreement(section, job, target)
        if target.system_part is not None and target.system_part.shares_boards:
            section = section.beside_working_dies
        alike = id(agreement), job.fed
        kept = section.kept.setdefault("outcomes", {})
        if alike not in kept:
            if len(kept) >= MOST_OUTCOMES:
                kept.clear()
            kept[alike] = agreement, self._agreed(section, job, target, path, agreement)
        outcome: Outcome = kept[alike][1]
        return outcome

    def _agreed(
        self, section: Section, job: JobValues, target: Target, path: DataPath, agreement: Agreement | None
    ) -> Outcome:
        before_s, meanwhile_s, has_two = self._feed(section, job, target, path)
        composed = fed_with(
            self._applied(section, agreement),
            agreement=agreement,
            copies_s=(before_s, meanwhile_s),
            fed=partial(path.fed, batch_size=section.batch_size),
        )
        return Outcome(
            parts=composed.parts,
            batch_size=section.batch_size,
            counted_workers=path.worker_count if agreement is None else agreement.counted_workers,
            device_count=paid_count(target, agreement),
            needs=section.needs(agreement, has_two=has_two, server_bytes=_of_server(agreement, target)),
            usd_per_hour=self._usd_per_hour(section),
            dataset_size=epoch_size(self.dataset_size, path.dataset),
            energy_of=partial(section.times.among(agreement).energy_j, target, agreement, section.links),
        )

    def _once(self, section: Section, key: Hashable, make: Any) -> Any:
        """Return the cached value of a key, or raise its refusal; make either on first use."""
        if key not in self._kept:
            try:
                self._kept[key] = make()
            except PerfmodelError as error:
                self._kept[key] = Refusal(str(error), section.first.system)
            drop_oldest(self._kept, most=MOST_JOINT)
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
            lambda: resolve_data_path(target, self._partial_job(section, job, job.fed, (*FED_BY, "workers"))),
        )

    def _agreement(self, section: Section, job: JobValues, target: Target) -> Agreement | None:
        prepared, alike = section.first.prepared, section.alike
        key = ("agreement", alike.wiring, alike.exchanged, alike.unit_count)

        def made() -> Agreement | None:
            asked = self._partial_job(section, job, job.agreed, AGREED_BY)
            # among themselves, workers of all frameworks exchange alike but for the messages
            habits = alike.habits if job.values["sync"] in AGREEMENT_OF else None
            agreement: Agreement | None = self._once(
                section,
                (*key, "alike", habits, job.agreed_alike),
                lambda: agreement_of(
                    asked,
                    system_part=target.system_part,
                    subject=prepared.subject,
                    profile=prepared.profile,
                    dtype=prepared.exchanged_dtype,
                ),
            )
            asked = with_habits_of(prepared.profile, asked)
            return self._once(  # type: ignore[no-any-return]
                section,
                (*key, alike.habits, asked.overlap, job.agreed_alike),
                lambda: _asked_as(agreement, asked, prepared.profile),
            )

        return self._once(section, (*key, alike.habits, job.agreed), made)  # type: ignore[no-any-return]

    def _on_each_link(self, section: Section, job: JobValues) -> Agreement | None:
        """Return the agreement over several links; raise ``Unlike`` unless only times of messages differ."""
        if job.values["dataset"] is not None:  # may arrive over the link
            raise Unlike
        known = section.kept.setdefault("agreements", {})
        if job.agreed not in known:
            found = tuple([self._agreement(of, job, self._target(of, job)) for of in section.of_links])
            if found not in known:  # a framework may exchange alike whether or not messages shall overlap
                known[found] = _over_links([slowed_by_blocks(of, section.of_links[0].blocks) for of in found])
            known[job.agreed] = known[found]
        agreement: Agreement | None = known[job.agreed]
        return agreement

    def _partial_job(self, section: Section, job: JobValues, key: Hashable, names: tuple[str, ...]) -> Job:
        """Return a job of some arguments alone, which checks them as predict does."""
        values: Any = {name: job.values[name] for name in names}
        graph = section.first.prepared.subject.graph
        asked: Job = self._once(section, ("asked", names, key), lambda: Job(graph, **values))
        return asked

    def _feed(self, section: Section, job: JobValues, target: Target, path: DataPath) -> tuple[Any, Any, Any]:
        """Return the time of copies before a step and during it, and which frameworks have two mini-batches."""
        key = ("feed", job.size, path.prefetch > 0)
        if key in section.kept:
            return section.kept[key]  # type: ignore[no-any-return]
        if section.of_links:
            feeds = [self._feed(of, job, self._target(of, job), path) for of in section.of_links]
            before_s, meanwhile_s = (np.concatenate([feed[place] for feed in feeds]) for place in (0, 1))
            has_two = feeds[0][2]
        else:
            before_s, meanwhile_s, has_two = _copies(section, target, path)
        section.kept[key] = before_s, meanwhile_s, has_two
        return section.kept[key]  # type: ignore[no-any-return]

    def _applied(self, section: Section, agreement: Agreement | None) -> Composed:
        """Return the joint step, without copies."""
        last = section.kept.get("applied")
        if last is None or last[0] is not agreement:
            last = section.kept["applied"] = (agreement, _applied(section, agreement))
        return last[1]


def _copies(section: Section, target: Target, path: DataPath) -> tuple[Any, Any, tuple[bool, ...]]:
    before_s, meanwhile_s = (np.zeros(len(section.batch_size)) for _ in range(2))
    has_two = []
    for kind, places in section.by_framework:
        changed: dict[str, Any] = {"target": target, "data_path": path, "batch_size": section.batch_size[places]}
        before_s[places], meanwhile_s[places] = replace(kind.prepared, **changed).feed_times()
        has_two.append(path.prefetch > 0 and kind.copies_ahead)
    return before_s, meanwhile_s, tuple(has_two)


def _of_server(agreement: Agreement | None, target: Target) -> tuple[float, float]:
    """Memory of a parameter server on the fullest worker's machine, and the memory it lacks on other machines. [B]"""
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
    if not section.of_links:
        agreement = slowed_by_blocks(agreement, section.blocks)
    work = section.times.among(agreement).work(agreement)
    composed = agreed([work], orders=section.first.prepared.orders, agreement=agreement)
    if not section.of_links:
        return composed
    shape = (section.links, len(section.batch_size) // section.links)
    flattened: dict[int, Any] = {}  # by identity: most parts of a step are those of a worker alone

    def flat(part: Any) -> Any:
        if not isinstance(part, np.ndarray):
            return part
        if id(part) not in flattened:
            every = np.empty(shape)
            every[...] = part  # a fifth of the time of broadcasting
            flattened[id(part)] = every.ravel()
        return flattened[id(part)]

    parts, alone = (StepTime._make(map(flat, step)) for step in (composed.parts, composed.alone))
    return replace(composed, parts=parts, alone=alone)


def _asked_as(agreement: Agreement | None, asked: Job, profile: FrameworkProfile) -> Agreement | None:
    """Return the agreement of a job that differs at most in messages, their size and whether they overlap."""
    if not isinstance(agreement, Synchronous):
        return agreement
    return replace(agreement, asked=asked, overlap=asked.overlap, message_bytes=message_bytes_of(profile, asked))


def _over_links(agreements: list[Agreement | None]) -> Agreement | None:
    """Return the agreement of workers on several links; raise ``Unlike`` unless only times of messages differ."""
    if all(of is None for of in agreements):
        return None
    alike = [of for of in agreements if isinstance(of, Synchronous) and of.message_bytes != MERGED]
    if len(alike) < len(agreements):
        raise Unlike
    return OverLinks(**vars(alike[0]), of_links=tuple(alike))
