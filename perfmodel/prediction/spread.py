"""A network spread over several devices, or over micro-batches, made ready: timed like any other step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.errors import NotYetAvailableError
from perfmodel.parallelism import place
from perfmodel.parallelism.recompute import with_repeated_exchanges
from perfmodel.prediction.exchange_times import PlacedExchanges
from perfmodel.prediction.layer_row import Piece
from perfmodel.prediction.parallel_stage import StagePredictor
from perfmodel.prediction.parallel_step import ParallelStep, parallel_step
from perfmodel.prediction.parallel_sync import data_sync_of, exchange_count
from perfmodel.prediction.prepared import Prepared, TimedStep
from perfmodel.prediction.scaling import NO_FACTORS, Factors
from perfmodel.prediction.step_time import StepTime
from perfmodel.presentation.tables import Table
from perfmodel.records import ELEMENT_BYTES, Phase
from perfmodel.sync.ring_order import way_between

if TYPE_CHECKING:
    from pathlib import Path

    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.hardware.library import LibraryProfile
    from perfmodel.parallelism import Layout, Placement, StageGraph
    from perfmodel.prediction.memory import MemoryFootprint
    from perfmodel.prediction.step_time import GroupTimes
    from perfmodel.prediction.subject import Subject
    from perfmodel.prediction.target import Target


@dataclass(frozen=True, slots=True)
class StageRow:
    """A stage of a network on several devices.

    Parameters
    ----------
    stage : int
        In the order of the network. [1]
    devices : str
        Those of the first data-parallel worker; the others have the same. [-]
    layers : int
        Layers. [1]
    computing_s : float
        Forward and backward phases of all micro-batches on one device. [s]
    memory_bytes : float
        What such a device keeps, of all its stages. [B]
    sent_bytes : float
        What such a device sends in a step for this stage. [B]
    """

    stage: int
    devices: str
    layers: int
    computing_s: float
    memory_bytes: float
    sent_bytes: float


NO_STAGES: Final[Table[StageRow]] = Table((), row_type=StageRow)
"""Stages of a prediction whose workers have the whole network each."""


@dataclass(frozen=True, kw_only=True)
class SpreadAsked:
    """How a network is spread, as a caller says.

    Parameters
    ----------
    parallelism : str
        Kind. [-]
    layout : Layout
        How many devices do what. [-]
    all_reduce : str or None
        How data-parallel workers add up gradients; None where they exchange nothing. [-]
    options : mapping of str to object
        Its own options. [-]
    overlap : bool
        Whether gradients are exchanged during back-propagation. [-]
    bucket_bytes : float
        Gradients leave once so many bytes of them are ready. [B]
    """

    parallelism: str
    layout: Layout
    all_reduce: str | None
    options: Mapping[str, Any]
    overlap: bool
    bucket_bytes: float


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
    """

    placement: Placement
    predictor: StagePredictor
    exchanges: PlacedExchanges
    asked: SpreadAsked
    worker_batch_size: int

    @property
    def worker_count(self) -> int:
        """Data-parallel workers, each with a mini-batch of its own. [1]"""
        return self.placement.layout.data_size

    @cached_property
    def constant_names(self) -> tuple[str, ...]:
        """Full names of all constants of files that the time of any stage depends on."""
        size = self.placement.layout.micro_batch_size(self.worker_batch_size)
        names = [
            name
            for stage in self.placement.stages
            for name in self.predictor.prepared(stage, size * stage.batch_factor)[Phase.STEP].constant_names
        ]
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
        asked = self.asked
        return parallel_step(
            self.placement,
            batch_size=self.worker_batch_size,
            predict_stage=self.predictor.with_factors(factors),
            exchange_time=self.exchanges,
            recompute=self.predictor.recompute,
            data_sync=data_sync_of(
                self.placement, self.exchanges, overlap=asked.overlap, bucket_bytes=asked.bucket_bytes
            ),
        )

    def step(self, factors: Factors = NO_FACTORS) -> TimedStep:
        """Time the step; configurations of factors one by one, as each may make another device the slowest."""
        own = super().step(factors)
        count = max((np.size(factor) for factor in factors.values() if np.ndim(factor)), default=0)
        if not count:
            return replace(own, parts=self.parallel(factors).parts)
        each = [
            self.parallel({name: value[place] if np.ndim(value) else value for name, value in factors.items()}).parts
            for place in range(count)
        ]
        names = [part.name for part in fields(StepTime)]
        return replace(own, parts=StepTime(**{name: np.array([getattr(one, name) for one in each]) for name in names}))

    @cached_property
    def nominal(self) -> ParallelStep:
        """The step with the constants of the files."""
        return self.parallel()

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
                prepared = self.predictor.prepared(stage, samples)[Phase.STEP]
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

    def stage_rows(self, factors: Factors) -> Table[StageRow]:
        """Return all stages with what each computes, keeps and sends.

        Parameters
        ----------
        factors : mapping of str to float
            Factors on constants by full name. [1]

        Returns
        -------
        Table of StageRow
            In the order of the network. [-]
        """
        layout = self.placement.layout
        step = self.parallel(factors)
        size = layout.micro_batch_size(self.worker_batch_size)
        predictor = self.predictor.with_factors(factors)
        rows = []
        for index, stage in enumerate(self.stages):
            samples = size * stage.batch_factor
            times = predictor(stage, samples)
            width = layout.tensor_size * stage.batch_factor
            first = stage.device * layout.tensor_size
            rows.append(
                StageRow(
                    stage=index,
                    devices=", ".join(self.exchanges.names[first : first + width]),
                    layers=len(stage.graph.layers),
                    computing_s=layout.micro_batches * float(times.forward.step_s + times.backward.step_s),
                    memory_bytes=float(step.memory[stage.device].total_bytes),
                    sent_bytes=self.sent_bytes(stage),
                )
            )
        headings = {"computing_s": "computing", "memory_bytes": "memory of the device", "sent_bytes": "sent"}
        return Table(rows, headings=headings, row_type=StageRow)

    @cached_property
    def stages(self) -> tuple[StageGraph, ...]:
        """Stages with the exchanges that run again with recomputed layers."""
        recompute = self.predictor.recompute
        return tuple(with_repeated_exchanges(stage, recompute=recompute) for stage in self.placement.stages)

    def sent_bytes(self, stage: StageGraph) -> float:
        """Return what a device sends in a step for a stage. [B]"""
        layout = self.placement.layout
        size = layout.micro_batch_size(self.worker_batch_size) * stage.batch_factor
        return sum(
            exchange_count(exchange, micro_batches=layout.micro_batches)
            * self.exchanges.sent_bytes(exchange, exchange.size_bytes(size), stage)
            for exchange in stage.exchanges
        )


def prepare_spread(
    subject: Subject,
    asked: SpreadAsked,
    *,
    target: Target,
    profile: FrameworkProfile,
    batch_size: int,
    dtype: str,
    library: str | Path | LibraryProfile | None,
    pinned: bool,
    recompute: str | None,
) -> Spread:
    """Place a network on devices and lower each stage.

    Parameters
    ----------
    subject : Subject
        What is trained. [-]
    asked : SpreadAsked
        How it is spread. [-]
    target : Target
        Each device, and the machine it stands in. [-]
    profile : FrameworkProfile
        With what. [-]
    batch_size : int
        Samples of a data-parallel worker per step. [samples]
    dtype : str
        Data type. [-]
    library : str, Path, LibraryProfile or None
        A library in place of the one of its kind that the framework names. [-]
    pinned : bool
        Whether host buffers are page-locked where the framework does so. [-]
    recompute : str or None
        Where checkpoints lie; None where the graph marks them, if anywhere. [-]

    Returns
    -------
    Spread
        Ready to be timed. [-]

    Raises
    ------
    ArgumentError
        If the network cannot be spread so, micro-batches do not divide the batch, or no link joins two devices.

    Notes
    -----
    Stages are cut where the longest is shortest by the constants of the files, not by those of a calibration.
    """
    if not target.takes_parts:
        available = "networks that are whole and mini-batches in one; a data sheet's device serves the others"
        raise NotYetAvailableError("device", target.name, available)
    predictor = StagePredictor(
        subject=subject,
        target=target,
        profile=profile,
        dtype=dtype,
        recompute=recompute,
        options={"library": library, "pinned": pinned},
    )
    machine = target.machine
    exchanges = PlacedExchanges(
        placement=_placement(predictor, asked, batch_size=batch_size),
        topology=None if machine is None else machine.system.topology,
        names=(target.name,) if machine is None else machine.names,
        all_reduce=asked.all_reduce,
        options=asked.options,
    )
    placement = exchanges.placement

    def spread(stage: StageGraph) -> Spread:
        samples = placement.layout.micro_batch_size(batch_size) * stage.batch_factor
        own = predictor.prepared(stage, samples)[Phase.STEP]
        given = {each.name: getattr(own, each.name) for each in fields(Prepared)}
        return Spread(
            **given,
            placement=placement,
            predictor=predictor,
            exchanges=exchanges,
            asked=asked,
            worker_batch_size=batch_size,
        )

    longest = spread(placement.stages[0]).nominal.longest
    return spread(next(stage for stage in placement.stages if stage.device == longest))


def _placement(predictor: StagePredictor, asked: SpreadAsked, *, batch_size: int) -> Placement:
    """Return the network on devices, cut so that the longest stage is shortest."""
    layout, graph, machine = asked.layout, predictor.subject.graph, predictor.target.machine
    size = layout.micro_batch_size(batch_size)
    layer_s = send_s = None
    if layout.stages > 1 and machine is not None:
        alone_s = predictor.layer_seconds(graph, size)
        layer_s = {name: seconds / layout.tensor_size for name, seconds in alone_s.items()}
        way = way_between(machine.system.topology, machine.names[0], machine.names[layout.tensor_size])

        def send_s(bytes_per_sample: int) -> float:
            """Return a tensor's way there and its gradient's way back. [s]"""
            return 2 * (way.latency_s + bytes_per_sample * size / way.capacity_bytes_per_s)

    return place(
        graph,
        parallelism=asked.parallelism,
        layout=layout,
        element_bytes=ELEMENT_BYTES[predictor.dtype],
        layer_s=layer_s,
        send_s=send_s,
    )
