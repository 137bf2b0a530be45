"""A stage of a network: the layers one device runs in a row, lowered and timed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.derived import derived_property, record
from perfmodel.framework.kernel_table import ColumnsAt, columns_at
from perfmodel.numeric import total
from perfmodel.prediction.device.joined_tables import JoinedTables, JoinedTimes
from perfmodel.prediction.device.step_time import (
    NO_TIME,
    Chosen,
    ChosenRows,
    GroupTimes,
    ProcessorNumbers,
    StepTime,
    chosen_times,
    issued_times,
    queued,
    step_time,
)
from perfmodel.prediction.device.target import Feed
from perfmodel.prediction.job.gradients import GradientSchedule, gradient_schedule
from perfmodel.records import Phase
from perfmodel.symbolic import named, naming_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from perfmodel.framework.kernel_table import KernelTable
    from perfmodel.graph import LayerGraph
    from perfmodel.measurements.table import FeedItem
    from perfmodel.parallelism.base import StageGraph
    from perfmodel.prediction.device.target import Target
    from perfmodel.prediction.job.compose import Composed
    from perfmodel.prediction.job.lowered import LoweredGraph
    from perfmodel.prediction.job.subject import Subject


@record
class Stage:
    """Consecutive layers on one device."""

    placed: StageGraph
    subject: Subject
    lowered: LoweredGraph
    feed: tuple[FeedItem, ...]
    target: Target | None = None
    is_fed: bool = True

    @derived_property
    def copies(self) -> tuple[Feed, Feed, Feed]:
        """What is copied: before a step and during the previous one, as the framework does, and all together."""
        before, meanwhile = (tuple(item for item in self.feed if item.prefetched is ahead) for ahead in (False, True))
        return Feed(items=before), Feed(items=meanwhile), Feed(items=self.feed)

    @property
    def exchanges_gradients(self) -> bool:
        """Whether data-parallel workers sum its gradients; they do not if all workers share its layers."""
        return self.placed.batch_factor == 1 and bool(self.placed.graph.trained_parameter_count)


@record
class TimedStage:
    """Times of a stage for one micro-batch, without copies and exchanges."""

    stage: Stage
    numbers: ProcessorNumbers
    element_bytes: int
    how: Mapping[str, Any]
    alike: TimedStage | None = None
    known: dict[Any, Any] | None = None
    """Times shared by stages that are timed together: of passes over gradients, and of kernel rows. [s]"""
    together: Sequence[tuple[LoweredGraph, LayerGraph]] = ()
    """All stages whose passes over gradients are timed together. [-]"""

    @derived_property
    def issued(self) -> Chosen:
        """Times and chosen alternatives before the dispatch of a queue is spread over them. [s]"""
        table = self.stage.lowered.table
        with naming_of(table):
            return issued_times(table, self.numbers, **self._choice, known=self._of_rows)

    @derived_property
    def chosen(self) -> Chosen:
        """Times and chosen alternatives. [s]"""
        if self.alike is not None:
            return self.alike.chosen
        table, issued = self.stage.lowered.table, self.issued
        with naming_of(table):
            return queued(issued, table, self.numbers)

    @property
    def _choice(self) -> dict[str, Any]:
        """What alternatives are chosen by."""
        return {name: self.how[name] for name in ("batch_size", "workspace_limit_bytes")}

    @property
    def _of_rows(self) -> dict[Any, Any] | None:
        """Times that tables with the same rows share."""
        known, factor = self.known, self.stage.placed.batch_factor
        return None if known is None else known.setdefault(("rows", factor), {})

    @property
    def groups(self) -> GroupTimes:
        """Times and chosen alternatives of its operations. [s]"""
        return self.chosen.groups

    @property
    def columns(self) -> ColumnsAt:
        """Columns of its kernel table at its batch size, which for many configurations are too large to be kept."""
        if isinstance(self.chosen, ChosenRows):
            return self.chosen.columns
        return columns_at(self.stage.lowered.table, self.how["batch_size"])

    @property
    def workspaces_bytes(self) -> Any:
        """Scratch memory of every alternative. [B]"""
        if isinstance(self.chosen, ChosenRows):
            return self.chosen.columns.workspace_bytes
        return self.stage.lowered.table.workspace.at(self.how["batch_size"])["workspace_bytes"]

    def _of(self, phase: Phase | None) -> StepTime:
        table = self.stage.lowered.table
        with naming_of(table):
            return step_time(table, self.numbers, groups=self.chosen, phase=phase, **self.how)

    @derived_property
    def whole(self) -> StepTime:
        """All phases. [s]"""
        return self._of(None) if self.alike is None else self.alike.whole

    @derived_property
    def forward(self) -> StepTime:
        """The forward phase. [s]"""
        return self._of(Phase.FORWARD) if self.alike is None else self.alike.forward

    @derived_property
    def backward(self) -> StepTime:
        """The backward phase; zero in inference. [s]"""
        return self._of(Phase.BACKWARD) if self.alike is None else self.alike.backward

    @derived_property
    def update(self) -> StepTime:
        """The update; zero if there is none. [s]"""
        return self._of(Phase.UPDATE) if self.alike is None else self.alike.update

    @derived_property
    def adding(self) -> StepTime:
        """Adding the gradients of one micro-batch to those of the micro-batches before. [s]"""
        if self.alike is not None:
            return self.alike.adding
        return self._over_gradients("adding", batch_size=self.how["batch_size"])

    @derived_property
    def copying_s(self) -> Any:
        """One copy of all gradients into the messages that exchange them, or back, with no time of the host. [s]"""
        if self.alike is not None:
            return self.alike.copying_s
        copies = self._over_gradients("messages", batch_size=1)  # gradients are as large for any mini-batch
        return copies.compute_s + copies.memory_bound_s + copies.launch_s

    def moved_s(self, bytes_per_parameter: float) -> Any:
        """Time to read and write so many bytes [B] for each parameter, one pass for each unit gathered together. [s]"""
        if not bytes_per_parameter:
            return 0.0
        if self.alike is not None:
            return self.alike.moved_s(bytes_per_parameter)
        moved = self._over(lambda lowered, graph: lowered.over_units(bytes_per_parameter, graph), batch_size=1)
        return moved.compute_s + moved.memory_bound_s + moved.launch_s

    def _over_gradients(self, purpose: str, *, batch_size: Any) -> StepTime:
        return self._over(lambda lowered, graph: lowered.over_gradients(purpose, graph), batch_size=batch_size)

    def _over(self, table_of: Callable[[LoweredGraph, LayerGraph], KernelTable | None], *, batch_size: Any) -> StepTime:
        table = table_of(self.stage.lowered, self.stage.placed.graph)
        if table is None:
            return NO_TIME
        known = {} if self.known is None else self.known
        alike = (id(self.numbers), self.stage.placed.batch_factor)  # stages timed together keep their numbers
        if (table, *alike) in known:
            return known[table, *alike]  # type: ignore[no-any-return]
        numbers, how = self.numbers.beside_a_step, self._choice | {"batch_size": batch_size}
        if self.together:
            tables = [*dict.fromkeys(other for at in self.together if (other := table_of(*at)) is not None)]
            joined: Any  # a table to all that adds up
            for joined in JoinedTables.of(tables):
                issued = [issued_times(other, numbers, **how, known=self._of_rows) for other in joined.tables]
                groups = JoinedTimes.of(issued, joined, numbers)
                times = step_time(joined, numbers, groups=groups, phase=Phase.BACKWARD, **how)
                known |= {(other, *alike): row for other, row in zip(joined.tables, _rows_of(times), strict=False)}
        else:
            with naming_of(table):
                chosen = chosen_times(table, numbers, **how, known=self._of_rows)
                known[table, *alike] = step_time(table, numbers, groups=chosen, phase=Phase.BACKWARD, **how)
        return known[table, *alike]  # type: ignore[no-any-return]

    def operations_s(self, groups: Sequence[int]) -> Any:
        """Time of operations, by their groups in the kernel table, each once. [s]"""
        times, places = self.groups, list(groups)
        busy_s = times.compute_s + times.memory_s + times.launches * self.numbers.launch_s
        return named(total((busy_s + times.exposed_dispatch_s)[places]), "operations")

    @derived_property
    def gradients(self) -> GradientSchedule:
        """Times at which the gradients of its layers are ready. [s]"""
        if self.alike is not None:
            return self.alike.gradients
        table = self.stage.lowered.table
        with naming_of(table):
            return gradient_schedule(
                table,
                self.groups,
                self.numbers,
                parameter_counts=self.stage.subject.graph.trained_parameter_counts,
                element_bytes=self.element_bytes,
            )


PHASES: Final = {"forward": Phase.FORWARD, "backward": Phase.BACKWARD, "update": Phase.UPDATE}
"""Phases of a timed stage, each computed when it is read."""


def time_together(stages: Iterable[TimedStage]) -> None:
    """Time stages of many configurations and their phases, all at once where they share the numbers of a processor."""
    alike: dict[tuple[int, int], dict[int, TimedStage]] = defaultdict(dict)
    for stage in stages:
        first = stage.alike or stage
        if "forward" not in first.__dict__ and first.how["scheduler_threads"] == 1:
            alike[id(first.numbers), first.stage.placed.batch_factor][id(first)] = first
    for listed in alike.values():
        together = tuple([(stage.stage.lowered, stage.stage.placed.graph) for stage in listed.values()])
        ordered = iter(listed.values())
        tables: Any  # a table to all that adds up
        for tables in JoinedTables.of([lowered.table for lowered, _ in together]):
            some = [*islice(ordered, len(tables.tables))]
            numbers, how = some[0].numbers, dict(some[0].how)
            groups = JoinedTimes.of([stage.issued for stage in some], tables, numbers)
            for stage, chosen in zip(some, groups.of_tables(), strict=True):
                stage.__dict__.update(chosen=chosen, together=together)
            how["subnormal_s"] = np.array([stage.how["subnormal_s"] for stage in some]).reshape(len(some), -1)
            for name, phase in PHASES.items():
                times = step_time(tables, numbers, groups=groups, phase=phase, **how)
                for stage, row in zip(some, _rows_of(times), strict=False):
                    stage.__dict__[name] = row


def _rows_of(times: StepTime) -> Iterator[StepTime]:
    """Yield the times of each of several tables; what all of them share is repeated for ever."""
    return map(StepTime._make, zip(*[values if np.ndim(values) else repeat(values) for values in times], strict=False))


@dataclass(frozen=True, eq=False)
class SlowedTimes:
    """Times of a stage, all scaled by one factor."""

    times: TimedStage
    factor: float

    def __getattr__(self, name: str) -> Any:
        """Look up a phase by name."""
        return getattr(self.times, name).times(self.factor)

    def operations_s(self, groups: Sequence[int]) -> Any:
        """Time of operations, each once. [s]"""
        return self.factor * self.times.operations_s(groups)

    @property
    def copying_s(self) -> Any:
        """One copy of all gradients into the messages that exchange them, or back. [s]"""
        return self.factor * self.times.copying_s

    def moved_s(self, bytes_per_parameter: float) -> Any:
        """Time to move so many bytes [B] for each parameter. [s]"""
        return self.factor * self.times.moved_s(bytes_per_parameter)

    @property
    def gradients(self) -> GradientSchedule:
        """Times at which the gradients of its layers are ready. [s]"""
        return self.times.gradients.slowed(self.factor)


@record
class TimedStep:
    """A timed step with its stages and composition."""

    stages: tuple[TimedStage, ...]
    composed: Composed

    @property
    def parts(self) -> StepTime:
        """Exclusive parts of the step. [s]"""
        return self.composed.parts

    @property
    def alone(self) -> StepTime:
        """A worker's step alone, without copies and input. [s]"""
        return self.composed.alone

    @property
    def shown(self) -> TimedStage:
        """First stage of the device that works longest."""
        if len(self.stages) == 1:
            return self.stages[0]
        return next(stage for stage in self.stages if stage.stage.placed.device == self.composed.longest)

    @property
    def numbers(self) -> ProcessorNumbers:
        """Plain numbers for that stage."""
        return self.shown.numbers

    @property
    def groups(self) -> GroupTimes:
        """Times and chosen alternatives of that stage. [s]"""
        return self.shown.groups

    @property
    def gradients(self) -> GradientSchedule:
        """Times at which the gradients are ready on the device that works longest. [s]"""
        devices = self.composed.devices
        schedule = devices[self.composed.longest].schedule if devices else None
        return self.shown.gradients if schedule is None else schedule
