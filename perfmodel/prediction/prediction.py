"""A prediction: how long a step takes, why, what it consists of, and whether it fits in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.derived import derived_property
from perfmodel.errors import ArgumentError
from perfmodel.numeric import plain_fields
from perfmodel.prediction.arguments.checks import whole_number
from perfmodel.prediction.arguments.finite import finite_answer
from perfmodel.prediction.bill import Billed
from perfmodel.prediction.device.step_time import PARTS, StepTime, StepTimes
from perfmodel.prediction.job.data_path import BOTTLENECK_OF_STAGE
from perfmodel.prediction.rows import LayerRow, pieces_of
from perfmodel.prediction.sequence import Sequence, bounding_sequence
from perfmodel.prediction.totals import Trained
from perfmodel.prediction.utilisation import Utilised
from perfmodel.presentation.results import Drawn
from perfmodel.presentation.tables import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

    from perfmodel.framework.kernel_table import KernelTable
    from perfmodel.hardware.source import SpecFile
    from perfmodel.prediction.certainty.basis import Basis
    from perfmodel.prediction.certainty.prediction_interval import ConstantRow, Interval
    from perfmodel.prediction.device.step_time import GroupTimes
    from perfmodel.prediction.job.agreement import Agreement
    from perfmodel.prediction.job.data_path import DataPath
    from perfmodel.prediction.job.job import Job
    from perfmodel.prediction.job.prepared import Prepared
    from perfmodel.prediction.memory.footprint import MemoryFootprint
    from perfmodel.prediction.rows import StageRow
    from perfmodel.simulation import Timeline
    from perfmodel.sync.asynchronous_scheme import AsynchronousTimes

BOTTLENECK_OF_PART = {
    "compute_s": "compute",
    "memory_bound_s": "memory_bandwidth",
    "exposed_transfer_s": "transfer",
    "input_wait_s": "storage",
    "exposed_sync_s": "sync",
    "straggler_s": "straggler",
    "bubble_s": "pipeline_bubble",
}
"""Largest part of a step -> its bottleneck; overhead, update and input wait are examined further."""

PLAYED_STEPS = 4
"""Steps that a timeline shows by default. [1]"""


def _fact(read: Callable[[Basis], Any], meaning: str) -> Any:
    """Return a property that is read from the basis once."""

    def of_basis(self: Prediction) -> Any:
        return read(self.basis)

    of_basis.__doc__ = meaning
    return derived_property(of_basis)


class Facts:
    """What a prediction was made of, read from its basis."""

    subject: str = _fact(lambda basis: basis.prepared.subject.name, "What runs: the graph's name. [-]")
    target: str = _fact(lambda basis: basis.prepared.target.name, "What it runs on. [-]")
    framework: str = _fact(lambda basis: basis.prepared.target.software(basis.prepared.profile), "The framework. [-]")
    batch_size: int = _fact(lambda basis: basis.prepared.batch_size, "Samples per worker and step. [samples]")
    phase: str = _fact(lambda basis: basis.prepared.subject.phase.value, "The part of a step that runs. [-]")
    dtype: str = _fact(lambda basis: basis.prepared.dtype, "Data type. [-]")
    threads: int | None = _fact(lambda basis: basis.prepared.target.threads, "CPU threads; None on a GPU. [1]")
    parts: StepTime = _fact(lambda basis: plain_fields(basis.timed.parts), "Exclusive parts and totals. [s]")
    table: KernelTable = _fact(lambda basis: basis.timed.shown.stage.lowered.table, "The lowered graph. [-]")
    groups: GroupTimes = _fact(lambda basis: basis.timed.groups, "What each unique operation costs. [s]")
    launch_gap_s: float = _fact(
        lambda basis: basis.timed.numbers.launch_s, "Time of one launch apart from its kernel. [s]"
    )
    step_overhead_s: float = _fact(
        lambda basis: basis.timed.numbers.step_overhead_s, "Host time per step, independent of what it computes. [s]"
    )
    peak_flop_per_s: float = _fact(
        lambda basis: basis.prepared.target.peak_flop_per_s(basis.prepared.dtype),
        "Peak rate of the target in the data type. [FLOP/s]",
    )
    memory_bandwidth_bytes_per_s: float | None = _fact(
        lambda basis: basis.prepared.target.bandwidth_bytes_per_s, "Peak bandwidth to the target's memory. [B/s]"
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Prediction(StepTimes, Facts, Billed, Utilised, Trained, Drawn):
    """How long one step takes on one target, and why. Made by :func:`perfmodel.predict`.

    Parameters
    ----------
    basis : Basis
        The step and the constants that timed it; everything else follows from it when it is read. [-]
    """

    basis: Basis

    def __reduce__(self) -> tuple[Callable[[], Prediction], tuple[()]]:
        """Pickle the job, which is predicted anew: what was derived from it holds caches that cannot be pickled."""
        return self.job.predict, ()

    @derived_property
    def memory(self) -> MemoryFootprint:
        """What the step keeps in memory. [B]"""
        return self.basis.prepared.footprint(self.basis.timed)

    @derived_property
    def sources(self) -> tuple[SpecFile, ...]:
        """The files whose numbers were used: framework, libraries, device, system, link, calibration."""
        calibration = self.basis.calibration
        return (*self.basis.prepared.sources, *(() if calibration is None else (calibration,)))

    @derived_property
    def remarks(self) -> tuple[str, ...]:
        """Notes for the user: non-native libraries, estimated constants, what checkpoints save."""
        return (*self.basis.prepared.remarks, *self.basis.remarks)

    @property
    def interval(self) -> Interval:
        """The 80 % interval of the step time, and the causes of its width.

        Raises
        ------
        ArgumentError
            If the prediction is not of one configuration.
        """
        return self.basis.interval

    @property
    def interval_s(self) -> tuple[float, float]:
        """Ends of the 80 % interval of the step time, low and high. [s]"""
        return self.interval.low_s, self.interval.high_s

    @derived_property
    def provenance(self) -> Table[ConstantRow]:
        """Source of each constant that affects the step time, most uncertain first; has ``to_frame()``."""
        from perfmodel.prediction.certainty.prediction_interval import constant_table

        return constant_table(self)

    @property
    def job(self) -> Job:
        """The job that was predicted; ``job.replace(...).predict()`` predicts another.

        Raises
        ------
        ArgumentError
            If the prediction was not made by :func:`perfmodel.predict` or a :class:`perfmodel.Job`.
        """
        job = self.basis.job
        if job is None:
            raise ArgumentError("job", None, "known, but this step was timed without one; use pm.predict() or pm.Job")
        return job

    @property
    def data_path(self) -> DataPath | None:
        """The input pipeline that brings mini-batches; None if the step was prepared without one."""
        return self.basis.prepared.data_path

    @property
    def worker_count(self) -> int:
        """Workers of the job, each with its own mini-batch. [1]"""
        return self.basis.prepared.worker_count

    @property
    def samples_per_s(self) -> float:
        """Samples of all counted workers per second of step time. [samples/s]"""
        return self.counted_workers * self.batch_size / float(self.parts.step_s)

    @property
    def agreement(self) -> Agreement | None:
        """How workers agree on parameters; None if they exchange nothing."""
        return self.basis.prepared.agreement

    @property
    def counted_workers(self) -> int:
        """Workers whose gradients are used: all but the backups. [1]"""
        return self.basis.prepared.counted_workers

    @property
    def samples_per_update(self) -> int:
        """Samples in one update of a network; workers that exchange nothing each update their own. [samples]"""
        return self.basis.prepared.batches_per_update * self.batch_size

    @property
    def updates_per_s(self) -> float:
        """Updates of one network per second; workers that exchange nothing each update their own. [1/s]"""
        return self.samples_per_s / self.basis.prepared.network_count / self.samples_per_update

    @property
    def mean_staleness(self) -> float:
        """Mean number of other workers' updates that a gradient misses before it is applied; 0 if all wait. [1]"""
        return 0.0 if self.visits is None else float(self.visits.mean_staleness)

    @derived_property
    def visits(self) -> AsynchronousTimes | None:
        """Times, knee and utilisation of visits to a parameter server; None if workers wait for one another."""
        return None if self.agreement is None else self.agreement.visits(self.basis.timed.alone)

    @finite_answer
    def epoch_s(self, *, dataset_size: int) -> float:
        """Time of one pass over a data set.

        Parameters
        ----------
        dataset_size : int
            Samples; the last mini-batch may be smaller but takes a whole step. [samples]

        Returns
        -------
        float
            Duration. [s]

        Raises
        ------
        ArgumentError
            If ``dataset_size`` is not a whole number >= 1.
        """
        steps = math.ceil(whole_number("dataset_size", dataset_size) / (self.counted_workers * self.batch_size))
        return steps * float(self.parts.step_s)

    @property
    def breakdown(self) -> dict[str, float]:
        """Exclusive parts of the step, summing to ``step_s``. [s]"""
        return dict(zip(PARTS, map(float, self.parts), strict=False))  # totals come after them

    @derived_property
    def sequence(self) -> Sequence | None:
        """Recurrent layers whose steps wait for one another for most of the step, and the rate they reach; or None."""
        return bounding_sequence(self)

    @derived_property
    def bottleneck(self) -> str:
        """What bounds the step: the input stage it waits for, or else the cause of its largest part.

        Kernels of recurrences that follow one another far below the peak rate are a ``sequence``.
        """
        breakdown = self.breakdown
        path = self.data_path
        waited_for = None if path is None else path.bounding_stage(self.parts, batch_size=self.batch_size)
        if waited_for is not None:  # all else hides behind it
            return BOTTLENECK_OF_STAGE[waited_for]
        largest = max(breakdown, key=lambda name: breakdown[name])
        if largest in ("compute_s", "memory_bound_s") and self.sequence is not None:
            return "sequence"
        if largest == "overhead_s":
            exposed_dispatch_s = breakdown["overhead_s"] - float(self.parts.launch_s)
            return "host_dispatch" if exposed_dispatch_s > float(self.parts.launch_s) else "launch"
        if largest == "input_wait_s" and path is not None:
            return BOTTLENECK_OF_STAGE[path.cause_of_wait(self.parts, batch_size=self.batch_size)]
        if largest == "update_s":
            updates = self.table.multiplicity * self.table.is_update
            compute_bound = float(updates @ self.groups.compute_s) >= float(updates @ self.groups.memory_s)
            return "compute" if compute_bound else "memory_bandwidth"
        return BOTTLENECK_OF_PART[largest]

    @derived_property
    def layers(self) -> Table[LayerRow]:
        """Every operation of the step in execution order; iterable, prints as a table, has ``to_frame()``.

        For a network on several devices: operations of the device that works longest, all micro-batches together.
        """
        prepared, timed = self.basis.prepared, self.basis.timed
        rows = chain.from_iterable([piece.rows() for piece in pieces_of(prepared, timed)])
        return Table(rows, title=f"{prepared.subject.name} on {prepared.target.name}, operation by operation")

    @property
    def rows(self) -> Table[LayerRow]:
        """The ``layers``."""
        return self.layers

    @property
    def spread(self) -> Prepared | None:
        """The job over several devices or micro-batches; None if each worker runs the whole network at once."""
        return None if self.basis.prepared.is_whole else self.basis.prepared

    @derived_property
    def stages(self) -> Table[StageRow]:
        """Each pipeline stage with its computing time, memory and messages; empty if the network is not cut."""
        from perfmodel.prediction.rows import NO_STAGES, stage_rows

        return NO_STAGES if self.spread is None else stage_rows(self.spread, self.basis.timed)

    def explain(self) -> str:
        """Say in words, with numbers, how long the step takes, what bounds it, and where the constants come from."""
        from perfmodel.prediction.words.prediction_text import explain

        return explain(self)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the operations as plain values, for JSON."""
        from perfmodel.prediction.words.prediction_text import as_dict

        return as_dict(self)

    def _figure(self) -> Figure:
        """Draw a bar for each part of the step that takes time, longest first."""
        from perfmodel.prediction.words.prediction_text import part_figure

        return part_figure(self)

    def plot_roofline(self, path: str | Path | None = None) -> Figure:
        """Draw the kernels of the step on the device's roofline, coloured by class.

        A point is an operation of one layer, or of several like layers. Its area is its share of the step, its height
        the FLOP/s that it reaches including its launch gaps. The lines are peak and bandwidth of the device, and the
        sustained rates if lower; for a measured machine, the best measured rates. A point above them finds its data in
        a cache. Kernels without arithmetic are not shown: the title gives their share.

        Parameters
        ----------
        path : str, Path or None
            File that ends in .png, .pdf or .svg; None only returns the figure. [-]

        Raises
        ------
        ArgumentError
            If no kernel does arithmetic, or the path cannot be written.
        """
        from perfmodel.prediction.words.prediction_text import roofline_figure
        from perfmodel.presentation.figures import saved

        return saved(roofline_figure(self), path)

    @derived_property
    def timeline(self) -> Timeline:
        """Steps of the job simulated channel by channel; ``save`` it for a trace viewer, or ``plot`` it."""
        return self.play()

    def play(self, step_count: int = PLAYED_STEPS, *, seed: int = 0) -> Timeline:
        """Simulate steps of the job.

        Parameters
        ----------
        step_count : int
            Steps. [1]
        seed : int
            Seed of the varying times (``input_variation``, ``straggler``, an asynchronous server); the same seed
            repeats them. [-]

        Returns
        -------
        Timeline
            What every worker reads, decodes, copies, computes and exchanges, when. [s]

        Raises
        ------
        ArgumentError
            If ``step_count`` is not a whole number >= 1, or the seed is negative.
        """
        from perfmodel.prediction.job.timeline import job_timeline

        return job_timeline(self.basis, step_count=whole_number("step_count", step_count), seed=seed)

    def plot_timeline(self, path: str | Path | None = None) -> Figure:
        """Draw the timeline, titled with network and system: a lane for each device, link and pool.

        Parameters
        ----------
        path : str, Path or None
            Where to save the picture; None only returns the figure. [-]
        """
        from perfmodel.prediction.words.prediction_text import title
        from perfmodel.presentation.figures import saved
        from perfmodel.presentation.timeline_figure import gantt_chart

        figure = gantt_chart(self.timeline.bars(), title=title(self), named=self.timeline.named_lanes)
        return saved(figure, path)

    def __repr__(self) -> str:
        from perfmodel.prediction.words.prediction_text import title
        from perfmodel.presentation.quantities import seconds_text

        return f"<Prediction {title(self)}: {seconds_text(float(self.parts.step_s))}, bottleneck {self.bottleneck}>"

    def __str__(self) -> str:
        from perfmodel.prediction.words.prediction_text import report

        return report(self)

    def _repr_html_(self) -> str:
        from perfmodel.prediction.words.prediction_text import report_html

        return report_html(self)
