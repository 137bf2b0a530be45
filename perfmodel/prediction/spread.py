"""A network spread over several devices, or over micro-batches, made ready: timed like any other step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.parallelism.recompute import with_repeated_exchanges
from perfmodel.prediction.agreement_options import PARAMETER_SERVER
from perfmodel.prediction.asynchronous_agreement import Asynchronous
from perfmodel.prediction.copies import Copy
from perfmodel.prediction.layer_row import Piece
from perfmodel.prediction.parallel_step import ParallelStep, parallel_step
from perfmodel.prediction.parallel_sync import data_sync_of
from perfmodel.prediction.prepared import Prepared, TimedStep
from perfmodel.prediction.scaling import NO_FACTORS, AskedNames, Factors
from perfmodel.prediction.step_time import StepTime
from perfmodel.records import Phase
from perfmodel.simulation.pipeline_schedule import Hop
from perfmodel.simulation.replicas import ReplicaStep, replica_resources, replica_tasks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from perfmodel.hardware.collective_library import CollectiveLibrary
    from perfmodel.hardware.source import SpecFile
    from perfmodel.parallelism import Layout, Placement, StageGraph
    from perfmodel.prediction.exchange_times import PlacedExchanges
    from perfmodel.prediction.job import Job
    from perfmodel.prediction.memory import MemoryFootprint
    from perfmodel.prediction.parallel_stage import StagePredictor
    from perfmodel.prediction.step_time import GroupTimes
    from perfmodel.prediction.straggler import Straggler
    from perfmodel.simulation import Task


@dataclass(frozen=True, kw_only=True)
class SpreadAsked:
    """How a network is spread, as a caller says.

    Parameters
    ----------
    parallelism : str
        Kind. [-]
    layout : Layout
        How many devices do what. [-]
    agreed : Job
        How data-parallel workers agree, with a size of buckets and every number checked. [-]
    all_reduce : str or None
        How data-parallel workers add up gradients; None where they exchange nothing among them. [-]
    library : CollectiveLibrary or None
        Whose operations all groups call; None where an algorithm is asked for by its name. [-]
    options : mapping of str to object
        Options of the algorithm. [-]
    straggler : Straggler or None
        How the times of workers that wait for one another vary; None where they do not. [-]
    """

    parallelism: str
    layout: Layout
    agreed: Job
    all_reduce: str | None
    library: CollectiveLibrary | None
    options: Mapping[str, Any]
    straggler: Straggler | None


@dataclass(frozen=True, eq=False, kw_only=True)
class Spread(Prepared):
    """The stage of the device that works longest, timed with all that it waits for.

    Parameters
    ----------
    placement : Placement
        The network on devices. [-]
    predictor : StagePredictor
        Predicts each stage. [-]
    exchanges : PlacedExchanges
        What they exchange, on the system. [-]
    asked : SpreadAsked
        What the caller said. [-]
    worker_batch_size : int
        Samples of a data-parallel worker per step. [samples]
    lowered : Prepared
        That stage by itself, for one micro-batch. [-]
    known : dict of str to ParallelStep
        The step with the constants of the files once it is timed; those of the same placement share it. [-]
    """

    placement: Placement
    predictor: StagePredictor
    exchanges: PlacedExchanges
    asked: SpreadAsked
    worker_batch_size: int
    lowered: Prepared
    known: dict[str, ParallelStep] = field(default_factory=dict)
    is_spread = True

    @property
    def worker_count(self) -> int:
        """Data-parallel workers, each with a mini-batch of its own. [1]"""
        return self.placement.layout.data_size

    @property
    def samples_per_step(self) -> int:
        """Samples that a worker takes in a step, in all its micro-batches. [samples]"""
        return self.worker_batch_size

    @property
    def exchanges_gradients(self) -> bool:
        """Whether data-parallel workers add up gradients in every step."""
        trains = Phase.BACKWARD in self.subject.phase.parts
        return trains and self.worker_count > 1 and self.asked.all_reduce is not None

    @property
    def counted_workers(self) -> int:
        """Workers whose gradients of a step are used: all but backups. [1]"""
        backups = 0 if self.asked.straggler is None else self.asked.straggler.backup_workers
        return super().counted_workers - backups

    @property
    def batches_per_update(self) -> int:
        """Mini-batches of workers whose gradients make up an update. [1]"""
        return self.counted_workers if self.exchanges_gradients else super().batches_per_update

    @property
    def network_count(self) -> int:
        """Networks that are trained, or run: one where workers agree. [1]"""
        return 1 if self.exchanges_gradients else super().network_count

    @property
    def exchanges_by_library(self) -> bool:
        """Whether a library of collectives chooses how devices exchange."""
        return self.asked.library is not None

    def step_with_exchanges(self, timed: TimedStep, *, slower: float) -> float:
        """Return the time of the step with exchanges so many times as long, of which no more is hidden. [s]"""
        parts = timed.parts
        hidden_s = max(0.0, float(parts.sync_s - parts.exposed_sync_s))
        exposed_s = max(0.0, slower * float(hidden_s + parts.exposed_sync_s) - hidden_s)
        return float(parts.step_s - parts.exposed_sync_s + exposed_s)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the user should know of target, libraries and data set."""
        own = self.lowered.remarks
        return own if self.data_path is None else (*own, *self.data_path.remarks(self.predictor.subject))

    @property
    def sources(self) -> tuple[SpecFile, ...]:
        """The files whose numbers are used: those of a stage, and the library of collectives."""
        return super().sources if self.asked.library is None else (*super().sources, self.asked.library)

    def copies(self, factors: Factors = NO_FACTORS) -> tuple[Copy, Copy]:
        """Return no copies: those of stages are in their times, micro-batch by micro-batch. [-]"""
        del factors
        return Copy(), Copy()

    @cached_property
    def constant_names(self) -> tuple[str, ...]:
        """Full names of all constants of files that the time of any stage depends on."""
        size = self.placement.layout.micro_batch_size(self.worker_batch_size)
        names = [
            name
            for stage in self.placement.stages
            for name in self.predictor.whole(stage, size * stage.batch_factor).constant_names
        ]
        if self.data_path is not None:
            asked = AskedNames()
            self.data_path.stages(self.worker_batch_size, factors=asked)
            names += asked.names
        return tuple(dict.fromkeys(names))

    def parallel(self, factors: Factors = NO_FACTORS) -> ParallelStep:
        """Return the step of all stages.

        Parameters
        ----------
        factors : mapping of str to float
            Factors on constants by full name. [1]

        Returns
        -------
        ParallelStep
            Its parts, the memory of each device, what goes on when. [-]
        """
        return self._timed_parallel(factors) if factors else self.nominal

    def _timed_parallel(self, factors: Factors) -> ParallelStep:
        agreed, phase = self.asked.agreed, self.subject.phase
        step = parallel_step(
            self.placement,
            batch_size=self.worker_batch_size,
            predict_stage=self.predictor.with_factors(factors),
            exchange_time=self.exchanges,
            recompute=self.predictor.recompute,
            data_sync=data_sync_of(
                self.placement, self.exchanges, overlap=agreed.overlap, bucket_bytes=float(agreed.bucket_bytes or 0.0)
            ),
            phase=phase,
        )
        if self.exchanges_gradients and self.asked.all_reduce == PARAMETER_SERVER:  # the update is the server's
            tail_s = step.tail_s - float(step.parts.update_s)
            return replace(step, tail_s=tail_s, parts=replace(step.parts, update_s=0.0))
        return step

    def timed(self, factors: Factors) -> StepTime:
        """Return the parts of a step with all that a worker waits for: others, servers, and its mini-batch.

        Parameters
        ----------
        factors : mapping of str to float
            Factors on constants by full name. [1]

        Returns
        -------
        StepTime
            All parts. [s]
        """
        step = self.parallel(factors)
        parts, straggler = step.parts, self.asked.straggler
        if isinstance(self.agreement, Asynchronous):
            parts = replace(self.agreement, inner_s=parts.exposed_sync_s).visited(parts)
        if straggler is not None:
            own_s = parts.step_s - step.agreeing_s
            waited_s = straggler.straggler_s(compute_s=own_s, worker_count=self.worker_count)
            parts = replace(parts, straggler_s=waited_s)
        if self.data_path is not None:
            parts = self.data_path.fed(parts, batch_size=self.worker_batch_size, factors=factors)
        return parts

    def step(self, factors: Factors = NO_FACTORS) -> TimedStep:
        """Time the step; configurations of factors one by one, as each may make another device the slowest."""
        own = self.lowered.step(factors)
        count = max((np.size(factor) for factor in factors.values() if np.ndim(factor)), default=0)
        if not count:
            return replace(own, parts=self.timed(factors))
        each = [
            self.timed({name: value[place] if np.ndim(value) else value for name, value in factors.items()})
            for place in range(count)
        ]
        names = [part.name for part in fields(StepTime)]
        return replace(own, parts=StepTime(**{name: np.array([getattr(one, name) for one in each]) for name in names}))

    @property
    def nominal(self) -> ParallelStep:
        """The step with the constants of the files."""
        if "nominal" not in self.known:
            self.known["nominal"] = self._timed_parallel(NO_FACTORS)
        return self.known["nominal"]

    def footprint(self, groups: GroupTimes) -> MemoryFootprint:
        """Return what the fullest device keeps; on which algorithms run it does not depend further."""
        del groups
        return max(self.nominal.memory, key=lambda each: float(each.total_bytes))

    def pieces(self, factors: Factors) -> tuple[Piece, ...]:
        """Return the stages of the device that works longest, as its layers are listed.

        Parameters
        ----------
        factors : mapping of str to float
            Factors on constants by full name. [1]

        Returns
        -------
        tuple of Piece
            In the order of the network. [-]
        """
        layout = self.placement.layout
        size = layout.micro_batch_size(self.worker_batch_size)
        longest = self.parallel(factors).longest
        repeats = {
            Phase.FORWARD: layout.micro_batches,
            Phase.BACKWARD: layout.micro_batches,
            Phase.UPDATE: 1 / layout.data_size if layout.shard_stage else 1,
        }
        found = []
        for stage in self.placement.stages:
            if stage.device == longest:
                samples = size * stage.batch_factor
                prepared = self.predictor.whole(stage, samples)
                timed = prepared.step(factors)
                names = zip(prepared.subject.graph.layers, stage.graph.layers, strict=True)
                found.append(
                    Piece(
                        table=prepared.plan.table,
                        groups=timed.groups,
                        batch_size=samples,
                        launch_gap_s=timed.numbers.launch_s,
                        repeats=repeats,
                        names={lowered.name: own.name for lowered, own in names},
                    )
                )
        return tuple(found)

    @cached_property
    def stages(self) -> tuple[StageGraph, ...]:
        """Stages with the exchanges that run again with recomputed layers."""
        if Phase.BACKWARD not in self.subject.phase.parts:
            return self.placement.stages
        recompute = self.predictor.recompute
        return tuple(with_repeated_exchanges(stage, recompute=recompute) for stage in self.placement.stages)

    def played(
        self, fed: Iterable[Task], factors: Factors, *, workers: Sequence[str], step_count: int, seed: int
    ) -> tuple[Iterable[Task], Mapping[str, int]]:
        """Return the steps of all workers as tasks, micro-batch by micro-batch, and what these hold.

        Parameters
        ----------
        fed : iterable of Task
            What brings mini-batches; its tasks of computing are left out for those of the stages. [-]
        factors : mapping of str to float
            Factors on constants by full name. [1]
        workers : sequence of str
            Names. [-]
        step_count : int
            Steps. [1]
        seed : int
            What times that vary are drawn with. [-]

        Returns
        -------
        tuple of (iterable of Task, mapping of str to int)
            Tasks, and units of resources. [-]
        """
        step, straggler = self.parallel(factors), self.asked.straggler
        played = ReplicaStep(
            orders=step.orders,
            forward_s=step.forward_s,
            backward_s=step.backward_s,
            forward_hops=[Hop(seconds) for seconds in step.forward_send_s],
            backward_hops=[Hop(seconds) for seconds in step.backward_send_s],
            agreeing_s=step.agreeing_s,
            rest_s=max(0.0, step.tail_s - step.agreeing_s),
            agrees=self.exchanges_gradients,
            lanes={worker: self._lanes(place) for place, worker in enumerate(workers)},
        )
        relative = np.ones((step_count, len(workers)))
        if straggler is not None:
            relative = straggler.drawn(step_count=step_count, worker_count=len(workers), seed=seed)
        return replica_tasks(fed, played, workers=workers, relative=relative), replica_resources(played, workers)

    def _lanes(self, worker: int) -> list[str]:
        """Return what a timeline calls the devices of a worker: by name, with the place in the pipeline. [-]"""
        layout, names = self.placement.layout, self.exchanges.names
        found = []
        for place in range(layout.stages):
            first = (worker * layout.stages + place) * layout.tensor_size
            last = first + layout.tensor_size - 1
            devices = names[first] if first == last else f"{names[first]}..{names[last]}"
            found.append(f"{devices} stage {place}" if layout.stages > 1 else devices)
        return found
