"""Layouts of a sweep made ready: one worker's micro-batch, timed for all its sizes at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.prediction.composition.compose import devices_of, turned, worker_of
from perfmodel.prediction.composition.stacking import taken
from perfmodel.prediction.device_memory import device_memory
from perfmodel.prediction.messages import MERGED

if TYPE_CHECKING:
    from perfmodel.prediction.agreement import Agreement
    from perfmodel.prediction.composition.work import DeviceWork, StageWork, Turned, WorkerWork
    from perfmodel.prediction.device_memory import DeviceMemory
    from perfmodel.prediction.job import Job
    from perfmodel.prediction.prepare import Lowering
    from perfmodel.prediction.prepared import Prepared
    from perfmodel.prediction.stage import TimedStage

NO_EXCHANGE = (0.0, 0.0, 0.0, 0.0)
"""Exchanges of a step, and of each micro-batch: all of them, and what is exposed. [s]"""


@dataclass(frozen=True, eq=False, kw_only=True)
class Kind:
    """Configurations that differ in batch size, and in number and order of micro-batches, only.

    Parameters
    ----------
    job : Job
        What they have in common, with the layout of a single micro-batch. [-]
    lowering : Lowering
        The network on its way to the devices. [-]
    known : dict
        Stages that were timed for other layouts on the same device, by sizes of a micro-batch. [s]
    """

    job: Job
    lowering: Lowering
    known: dict[Any, dict[Any, TimedStage]]

    def units(self, sizes: Sequence[int]) -> list[Unit]:
        """Return the configurations of some sizes of a micro-batch, those together whose network is cut alike."""
        by_cut: dict[Hashable, list[int]] = defaultdict(list)
        for size in sizes:
            by_cut[self.lowering.cut(size)].append(size)
        return [self._unit(alike) for alike in by_cut.values()]

    def _unit(self, sizes: Sequence[int]) -> Unit:
        job = self.job
        prepared = self.lowering.prepared(sizes[0], pinned=job.pinned, data_path=job.data_path, job=job)
        prepared = replace(prepared, batch_size=np.array(sizes, dtype=float))  # type: ignore[arg-type]
        timed = prepared.timed_stages(known=self.known.setdefault(tuple(sizes), {}))
        works = prepared.works(timed)
        return Unit(
            prepared=prepared,
            works=works,
            worker=_everywhere(worker_of(works, device_count=prepared.layout.stages), len(sizes)),
            memory=tuple(
                device_memory(prepared, timed, place, in_parts=True) for place in range(prepared.layout.stages)
            ),
            copies_s=prepared.feed_times(),
            sizes=tuple(sizes),
        )


def _everywhere(worker: WorkerWork, count: int) -> WorkerWork:
    """Return a worker that says of each configuration which device works longest."""
    if len(worker.works_s) == 1:
        return worker
    places = np.full(count, worker.longest) if worker.longest_places is None else worker.longest_places
    return replace(worker, longest=0, longest_places=places)


@dataclass(frozen=True, eq=False, kw_only=True)
class Unit:
    """Configurations of a kind whose network is cut alike: one for each size of a micro-batch.

    Parameters
    ----------
    prepared : Prepared
        One micro-batch, its samples an array. [-]
    works : sequence of StageWork
        What stages do with it. [s]
    worker : WorkerWork
        What the devices of a worker do with it. [s]
    memory : tuple of DeviceMemory
        What these keep. [B]
    copies_s : tuple of 2 float or ndarray
        Copies of a micro-batch, before it and meanwhile. [s]
    sizes : tuple of int
        Samples of a micro-batch. [samples]
    """

    prepared: Prepared
    works: Sequence[StageWork]
    worker: WorkerWork
    memory: tuple[DeviceMemory, ...]
    copies_s: tuple[Any, Any]
    sizes: tuple[int, ...]

    @property
    def agreement(self) -> Agreement | None:
        """How the workers agree."""
        return self.prepared.agreement

    @cached_property
    def alike(self) -> Hashable:
        """What configurations have in common that are composed together."""
        agreement, path = self.agreement, self.prepared.data_path
        how = None if agreement is None else (agreement.serves, agreement.hides_copies, agreement.delays_copies)
        is_fed = path is not None and path.dataset is not None
        return (self.worker.device_of_chunk, tuple(each.chunks for each in self.memory), how, is_fed)

    @property
    def waits_for_turns(self) -> bool:
        """Whether the order of turns decides when gradients are ready: several stages on a device of a pipeline."""
        return len(self.works) > len(self.memory) > 1 and self.agreement is not None

    def exchanged(self, turns: Turned) -> tuple[tuple[Any, ...], ...]:
        """Return what each device exchanges with other workers in a step, and for each micro-batch of it. [s]"""
        agreement = self.agreement
        if agreement is None:
            return (NO_EXCHANGE,) * len(self.memory)
        return tuple(_exchanged(agreement, device, len(self.sizes)) for device in devices_of(self.works, turns))

    @cached_property
    def exchanged_by_itself(self) -> tuple[tuple[Any, ...], ...]:
        """The same where no order of turns decides. [s]"""
        return self.exchanged(turned(self.worker, ((),)))


def _exchanged(agreement: Agreement, device: DeviceWork, count: int) -> tuple[Any, ...]:
    if getattr(agreement, "message_bytes", None) != MERGED:
        return (*agreement.exchanged(device), *agreement.gathered(device))
    # which gradients share a message is searched for, for each size by itself
    alone = [_only(device, slice(place, place + 1)) for place in range(count)]
    found = [(*agreement.exchanged(each), *agreement.gathered(each)) for each in alone]
    return tuple(np.concatenate([np.atleast_1d(value) for value in column]) for column in zip(*found, strict=True))


def _only(device: DeviceWork, place: slice) -> DeviceWork:
    """Return what a device exchanges in one configuration."""
    schedule = None if device.schedule is None else device.schedule.taken(place)
    return replace(taken(replace(device, schedule=None), place), schedule=schedule)
