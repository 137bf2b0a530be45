"""A step made ready: everything but the numbers of the hardware and software, which may be many at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from perfmodel.cost.transfer import exposed_copy_time
from perfmodel.errors import ArgumentError
from perfmodel.hardware.dataset import DatasetFile
from perfmodel.prediction.exchange_doubt import agreed_step_s
from perfmodel.prediction.gradients import GradientSchedule, gradient_schedule
from perfmodel.prediction.memory import MemoryFootprint, memory_footprint, workspace_bytes
from perfmodel.prediction.plan import Plan, plan_for
from perfmodel.prediction.scaling import NO_FACTORS, AskedNames, Factors, framework_constants
from perfmodel.prediction.step_time import GroupTimes, ProcessorNumbers, StepTime, group_times, step_time
from perfmodel.prediction.subject import Subject, habitual_feed
from perfmodel.records import ELEMENT_BYTES, Phase

if TYPE_CHECKING:
    from pathlib import Path

    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.hardware.library import LibraryProfile
    from perfmodel.hardware.source import SpecFile
    from perfmodel.prediction.agreement import Agreement
    from perfmodel.prediction.copies import Copy
    from perfmodel.prediction.data_path import DataPath
    from perfmodel.prediction.target import Libraries, Target


@dataclass(frozen=True, slots=True, eq=False)
class TimedStep:
    """A step and the numbers that timed it.

    Parameters
    ----------
    numbers : ProcessorNumbers
        Plain numbers of hardware, libraries and framework. [-]
    groups : GroupTimes
        Times and chosen alternatives by operation. [-]
    parts : StepTime
        Exclusive parts of the step, floats or arrays of shape (configurations,). [s]
    """

    numbers: ProcessorNumbers
    groups: GroupTimes
    parts: StepTime


@dataclass(frozen=True, eq=False, kw_only=True)
class Prepared:
    """A subject lowered for a target, which only lacks the numbers: predict gives them once, a fit many times.

    Parameters
    ----------
    subject : Subject
        What runs. [-]
    target : Target
        On what. [-]
    profile : FrameworkProfile
        With what. [-]
    libraries : mapping of str to LibraryProfile
        Libraries by role. [-]
    plan : Plan
        Kernel table and memory plan. [-]
    batch_size : int
        Samples per step. [samples]
    dtype : str
        Data type. [-]
    pinned : bool
        Whether host buffers are page-locked where the framework does so. [-]
    data_path : DataPath or None
        What brings the mini-batches; None for ones that are in host memory. [-]
    agreement : Agreement or None
        How several workers agree; None where they have nothing to agree on. [-]
    """

    subject: Subject
    target: Target
    profile: FrameworkProfile
    libraries: Libraries
    plan: Plan
    batch_size: int
    dtype: str
    pinned: bool
    data_path: DataPath | None = None
    agreement: Agreement | None = None
    is_spread = False

    @property
    def worker_count(self) -> int:
        """Workers of the job, each with a mini-batch of its own. [1]"""
        return 1 if self.data_path is None else self.data_path.worker_count

    @property
    def delays_copies(self) -> bool:
        """Whether mini-batches and pulled parameters share one queue, so that a step waits for both."""
        return self.agreement is not None and self.agreement.delays_copies

    @property
    def samples_per_step(self) -> int:
        """Samples that a worker takes in a step. [samples]"""
        return self.batch_size

    @property
    def counted_workers(self) -> int:
        """Workers whose gradients of a step are used: all but backups. [1]"""
        return self.worker_count if self.agreement is None else self.agreement.counted_workers

    @property
    def batches_per_update(self) -> int:
        """Mini-batches whose gradients make up an update of a network. [1]"""
        return 1 if self.agreement is None else self.agreement.batches_per_update

    @property
    def network_count(self) -> int:
        """Networks that are trained, or run: one where workers agree. [1]"""
        return self.worker_count if self.agreement is None else 1

    @property
    def exchanges_by_library(self) -> bool:
        """Whether a library of collectives chooses how workers exchange."""
        return self.agreement is not None and self.agreement.calls_library

    def step_with_exchanges(self, timed: TimedStep, *, slower: float) -> float:
        """Return the time of the step with exchanges between workers so many times as long. [s]"""
        return agreed_step_s(self, timed, slower=slower)

    @cached_property
    def constant_names(self) -> tuple[str, ...]:
        """Full names of all constants of files that this step's time depends on."""
        asked = AskedNames()
        self.target.numbers(self.profile, self.libraries, dtype=self.dtype, factors=asked)
        Prepared.feed_times(self, asked)
        if self.data_path is not None:
            self.data_path.stages(self.batch_size, factors=asked)
        return tuple(asked.names)

    @cached_property
    def specs(self) -> dict[str, SpecFile]:
        """Files whose constants the step's time may depend on, by kind folder and stem."""
        libraries = {f"libraries/{library.stem}": library for library in self.libraries.values()}
        fed_by = () if self.data_path is None else self.data_path.sources
        inputs = {f"{'datasets' if isinstance(spec, DatasetFile) else 'storage'}/{spec.stem}": spec for spec in fed_by}
        return {f"frameworks/{self.profile.stem}": self.profile} | libraries | self.target.specs_by_place | inputs

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the user should know of target, libraries, data set and parameter server."""
        told = self.target.remarks(self.profile, self.libraries, dtype=self.dtype)
        if self.data_path is not None:
            told = (*told, *self.data_path.remarks(self.subject))
        server = None if self.agreement is None else self.agreement.server
        return told if server is None else (*told, *server.remarks)

    @property
    def sources(self) -> tuple[SpecFile, ...]:
        """The files whose numbers are used: framework, libraries, hardware, data set and storage."""
        agreed = () if self.agreement is None else self.agreement.sources
        own = (*self.target.sources(self.profile, self.libraries), *agreed)
        return own if self.data_path is None else (*own, *self.data_path.sources)

    def numbers(self, factors: Factors = NO_FACTORS) -> ProcessorNumbers:
        """Return the plain numbers of hardware, libraries and framework.

        Parameters
        ----------
        factors : mapping of str to float or ndarray of shape (configurations,)
            Factors on constants by full name. [1]

        Returns
        -------
        ProcessorNumbers
            What the step's path wants. [-]
        """
        return self.target.numbers(self.profile, self.libraries, dtype=self.dtype, factors=factors)

    def step(self, factors: Factors = NO_FACTORS) -> TimedStep:
        """Time the step.

        Parameters
        ----------
        factors : mapping of str to float or ndarray of shape (configurations,)
            Factors on constants by full name. [1]

        Returns
        -------
        TimedStep
            Parts of the step, one for each configuration of the factors. [s]
        """
        table, graph = self.plan.table, self.subject.graph
        numbers = self.target.in_step(self.numbers(factors), table, graph, batch_size=self.batch_size)
        limit_bytes = getattr(self.profile, self.target.processor).lowering.workspace_limit_bytes
        groups = group_times(table, numbers, batch_size=self.batch_size, workspace_limit_bytes=limit_bytes)
        feed_s, prefetched_feed_s = self.feed_times(factors)
        parts = step_time(
            table,
            numbers,
            batch_size=self.batch_size,
            workspace_limit_bytes=limit_bytes,
            feed_s=feed_s,
            prefetched_feed_s=prefetched_feed_s,
            groups=groups,
            scheduler_threads=self.target.scheduler_threads(self.profile),
            subnormal_s=self.target.subnormal_time(
                numbers, self.batch_size * self.subject.subnormal_products_per_sample
            ),
            first_step_s=self._share_of_first_step(factors),
        )
        if self.agreement is not None:
            parts = self.agreement.applied(parts, self.gradients(groups, numbers))
            if self.agreement.hides_copies:
                copies = {"before_s": feed_s, "meanwhile_s": prefetched_feed_s, "computing_s": parts.device_s}
                parts = replace(parts, exposed_transfer_s=exposed_copy_time(**copies))
        if self.data_path is not None:
            parts = self.data_path.fed(parts, batch_size=self.batch_size, factors=factors)
        return TimedStep(numbers, groups, parts)

    def gradients(self, groups: GroupTimes, numbers: ProcessorNumbers) -> GradientSchedule:
        """Return when the step's gradients are ready.

        Parameters
        ----------
        groups : GroupTimes
            What each operation costs. [s]
        numbers : ProcessorNumbers
            What a launch costs. [s]

        Returns
        -------
        GradientSchedule
            By layer, in the order in which they become ready. [s]
        """
        return gradient_schedule(
            self.plan.table,
            groups,
            numbers,
            parameter_counts=self.subject.graph.trained_parameter_counts,
            element_bytes=ELEMENT_BYTES[self.dtype],
        )

    def _share_of_first_step(self, factors: Factors) -> Any:
        """Return what each of the averaged steps bears of setting up libraries and memory in the first. [s]"""
        if not self.subject.averaged_steps:
            return 0.0
        constants = framework_constants(self.profile, self.target.processor, factors=factors)
        return self.target.host_slowdown(factors) * constants.get("first_step_ms", 0.0) / self.subject.averaged_steps

    def footprint(self, groups: GroupTimes) -> MemoryFootprint:
        """Return what the step keeps in memory.

        Parameters
        ----------
        groups : GroupTimes
            Times with chosen alternatives, which need scratch memory. [-]

        Returns
        -------
        MemoryFootprint
            By kind of content. [B]
        """
        memory = self.plan.memory(self.subject.graph)
        return memory_footprint(
            memory,
            batch_size=self.batch_size,
            workspace_bytes=workspace_bytes(memory, self.plan.table, groups.chosen, batch_size=self.batch_size),
            context_bytes=self.target.context_bytes,
            capacity_bytes=self.target.capacity_bytes,
            input_buffer_count=1 + bool(self.copies()[1].copied_bytes),
        )

    def copies(self, factors: Factors = NO_FACTORS) -> tuple[Copy, Copy]:
        """Return what is copied before the step, and what is copied while the last one computes.

        Parameters
        ----------
        factors : mapping of str to float or ndarray of shape (configurations,)
            Factors on constants by full name. [1]

        Returns
        -------
        tuple of Copy
            Before, and meanwhile. [-]
        """
        subject = self.subject
        feed = habitual_feed(subject.graph, self.profile.feed) if subject.feed is None else subject.feed
        fetches_ahead = self.data_path is None or self.data_path.prefetch > 0
        ahead = tuple([item for item in feed if item.prefetched]) if fetches_ahead else ()
        rest = tuple([item for item in feed if not item.prefetched]) if ahead else feed
        how: dict[str, Any] = {"batch_size": self.batch_size, "pinned": self.pinned, "factors": factors}
        copy_of = self.target.copy_of
        return copy_of(self.profile, rest, **how), copy_of(self.profile, ahead, **how)

    def feed_times(self, factors: Factors = NO_FACTORS) -> tuple[Any, Any]:
        """Return the time of copies that the step waits for, and of those that the last one's computing may hide.

        Parameters
        ----------
        factors : mapping of str to float or ndarray of shape (configurations,)
            Factors on constants by full name. [1]

        Returns
        -------
        tuple of float or ndarray
            Before, and meanwhile. [s]
        """
        shared = self.target.shared_bytes_per_s
        before, meanwhile = self.copies(factors)
        before_s, meanwhile_s = before.time(shared_bytes_per_s=shared), meanwhile.time(shared_bytes_per_s=shared)
        if self.delays_copies:
            return before_s + meanwhile_s, 0.0
        return before_s, meanwhile_s


def prepare(
    subject: Subject,
    *,
    target: Target,
    profile: FrameworkProfile,
    batch_size: int,
    dtype: str = "fp32",
    library: str | Path | LibraryProfile | None = None,
    pinned: bool = True,
    recompute: str | None = None,
    data_path: DataPath | None = None,
    agreement: Agreement | None = None,
) -> Prepared:
    """Lower a subject for a target.

    Parameters
    ----------
    subject : Subject
        What runs. [-]
    target : Target
        On what, with how many threads. [-]
    profile : FrameworkProfile
        With what. [-]
    batch_size : int
        Samples per step. [samples]
    dtype : str
        Data type. [-]
    library : str, Path, LibraryProfile or None
        A library in place of the one of its kind that the framework names. [-]
    pinned : bool
        False forces pageable copies where the framework would pin its buffers. [-]
    recompute : str or None
        Where checkpoints lie; None where the graph marks them, if anywhere. [-]
    data_path : DataPath or None
        What brings the mini-batches; None for ones that are in host memory. [-]
    agreement : Agreement or None
        How several workers agree; None where they have nothing to agree on. [-]

    Returns
    -------
    Prepared
        Ready to be timed.

    Raises
    ------
    ArgumentError
        If activations are to be recomputed by a framework that keeps them all.
    """
    trains = Phase.BACKWARD in subject.phase.parts
    if recompute is not None and trains and profile.memory.activation_gradients == "kept":
        allowed = f"None with {profile.name}, which keeps every activation for the whole step"
        raise ArgumentError("recompute", recompute, allowed)
    target = target.behind(subject.hosts)
    libraries = target.libraries(profile, library)
    plan = plan_for(
        subject.graph,
        phase=subject.phase,
        optimizer=subject.optimizer,
        input_gradient=profile.input_gradient if subject.input_gradient is None else subject.input_gradient,
        dtype=dtype,
        profile=profile,
        processor=target.processor,
        lowered_for=target.lowered_for,
        support=target.support(profile, libraries, dtype=dtype),
        recompute=recompute,
    )
    return Prepared(
        subject=subject,
        target=target,
        profile=profile,
        libraries=libraries,
        plan=plan,
        batch_size=subject.graph.samples(batch_size),
        dtype=dtype,
        pinned=pinned,
        data_path=data_path,
        agreement=agreement,
    )
