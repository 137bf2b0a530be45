"""How the arguments of a prediction spread a network over devices and micro-batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from perfmodel.cost.pipeline_order import SCHEDULES
from perfmodel.errors import ArgumentError, NotYetAvailableError
from perfmodel.parallelism import PARALLELISMS, Layout
from perfmodel.prediction.agreement_arguments import PARAMETER_SERVER, Asked, checked
from perfmodel.prediction.arguments import NO_SYNC, flag, one_of, whole_number
from perfmodel.prediction.messages import MERGED
from perfmodel.prediction.spread import SpreadAsked
from perfmodel.records import Phase
from perfmodel.sync.collectives import ALL_REDUCES, collective

if TYPE_CHECKING:
    from perfmodel.hardware.wired import Wired
    from perfmodel.prediction.subject import Subject

COUNTS: Final = ("stages", "micro_batches", "interleave", "tensor_size", "accumulation_steps")
"""Arguments that are at least one. [1]"""

GROUPED_BY: Final = {"model": "stages", "tensor": "tensor_size"}
"""Parallelism -> what says how many devices have a network together."""


@dataclass(frozen=True, kw_only=True)
class SpreadArguments:
    """What a caller says of parallel execution; see ``predict``.

    Parameters
    ----------
    workers : int
        Data-parallel workers. [1]
    parallelism, schedule : str
        Kind, and order of work of a pipeline. [-]
    stages, micro_batches, interleave, tensor_size, shard_stage, accumulation_steps : int
        Sizes. [1]
    sequence_parallel : bool
        Whether what lies between shared layers is shared too. [-]
    """

    workers: int
    parallelism: str = "data"
    stages: int = 1
    micro_batches: int = 1
    schedule: str = "1f1b"
    interleave: int = 1
    tensor_size: int = 1
    sequence_parallel: bool = False
    shard_stage: int = 0
    accumulation_steps: int = 1

    @property
    def is_plain(self) -> bool:
        """Whether every worker has the whole network, and its mini-batch in one."""
        return self == SpreadArguments(workers=self.workers)

    @property
    def device_count(self) -> int:
        """Devices that work. [1]"""
        return self.workers * self.stages * self.tensor_size


def spread_arguments(**given: Any) -> SpreadArguments:
    """Return what a caller says of parallel execution, every value checked by itself.

    Parameters
    ----------
    **given : object
        Fields of ``SpreadArguments``. [-]

    Returns
    -------
    SpreadArguments
        Whole numbers are ints. [-]

    Raises
    ------
    ArgumentError
        If a value is not allowed.
    UnknownNameError
        If there is no such parallelism or schedule; names the nearest.
    """
    counts = {name: whole_number(name, given[name]) for name in ("workers", *COUNTS)}
    return SpreadArguments(
        **counts,
        parallelism=one_of("parallelism", given["parallelism"], tuple(PARALLELISMS)),
        schedule=one_of("schedule", given["schedule"], tuple(SCHEDULES)),
        sequence_parallel=flag("sequence_parallel", given["sequence_parallel"]),
        shard_stage=whole_number("shard_stage", given["shard_stage"], minimum=0, maximum=3),
    )


def refuse_missing_devices(arguments: SpreadArguments, system: Wired | None) -> None:
    """Raise if there are fewer devices than are wanted.

    Parameters
    ----------
    arguments : SpreadArguments
        What is wanted. [-]
    system : System, Cluster or None
        What there is; None for one device. [-]

    Raises
    ------
    ArgumentError
        Naming what there is.
    """
    if arguments.is_plain:
        return
    known = 1 if system is None or not system.devices else len(system.devices)
    if arguments.device_count > known:
        wanted = f"{arguments.workers} x {arguments.stages} x {arguments.tensor_size} = {arguments.device_count}"
        there = "1 with device=; several need system=" if system is None else f"at most {known}, as {system.name} has"
        argument = "workers x stages x tensor_size"
        raise ArgumentError(argument, wanted, there)


def resolve_spread(arguments: SpreadArguments, agreed: Asked, *, subject: Subject, dataset: Any) -> SpreadAsked | None:
    """Return how a network is spread.

    Parameters
    ----------
    arguments : SpreadArguments
        What the caller says. [-]
    agreed : Asked
        How workers agree. [-]
    subject : Subject
        What runs. [-]
    dataset : object
        What is read for every step, or None. [-]

    Returns
    -------
    SpreadAsked or None
        None where every worker has the whole network, and its mini-batch in one. [-]

    Raises
    ------
    ArgumentError
        If sizes contradict one another or the parallelism.
    NotYetAvailableError
        If it is asked for together with something that is only served for whole networks.
    """
    if arguments.is_plain:
        return None
    if subject.phase is not Phase.STEP:
        raise NotYetAvailableError("phase", subject.phase.value, "whole steps of a network on several devices")
    layout = _layout(arguments)
    agreed = checked(agreed, worker_count=layout.data_size)
    whole = "workers that have the whole network each"
    if agreed.sync == PARAMETER_SERVER or agreed.sync not in (NO_SYNC, *ALL_REDUCES):
        raise NotYetAvailableError("sync", agreed.sync, f"it for {whole}; here all-reduces, such as ring_all_reduce")
    if agreed.straggler is not None:
        raise NotYetAvailableError("straggler", agreed.straggler, whole)
    if agreed.bucket_bytes == MERGED:
        raise NotYetAvailableError("bucket_bytes", agreed.bucket_bytes, f"it for {whole}; here bytes")
    if dataset is not None:
        raise NotYetAvailableError("dataset", dataset, f"data sets of {whole}, and one micro-batch")
    if layout.shard_stage and agreed.sync == NO_SYNC:
        raise ArgumentError("shard_stage", layout.shard_stage, "0 with sync='none', as nobody tells what it has")
    all_reduce = None if agreed.sync == NO_SYNC else agreed.sync
    takes_groups = all_reduce is not None and "group_size" in collective(all_reduce).option_names
    return SpreadAsked(
        parallelism=arguments.parallelism,
        layout=layout,
        all_reduce=all_reduce,
        options={"group_size": agreed.group_size} if takes_groups else {},
        overlap=agreed.overlap,
        bucket_bytes=0.0 if agreed.bucket_bytes is None else float(agreed.bucket_bytes),
    )


def _layout(arguments: SpreadArguments) -> Layout:
    """Return the layout, held against the parallelism."""
    steps, kind = arguments.accumulation_steps, PARALLELISMS[arguments.parallelism]
    if steps > 1 and (arguments.micro_batches > 1 or arguments.stages > 1):
        allowed = "1 with stages or micro_batches, whose gradients accumulate anyway"
        raise ArgumentError("accumulation_steps", steps, allowed)
    if steps > 1 and "micro_batches" not in kind.uses:
        raise ArgumentError("accumulation_steps", steps, f"1 with parallelism={arguments.parallelism!r}")
    if arguments.schedule != SpreadArguments.schedule and arguments.parallelism != "pipeline":
        allowed = f"{SpreadArguments.schedule!r} but for parallelism='pipeline'"
        raise ArgumentError("schedule", arguments.schedule, allowed)
    sizing = GROUPED_BY.get(arguments.parallelism)
    if sizing is not None and getattr(arguments, sizing) == 1 and arguments.workers > 1:
        allowed = f"at least 2 with parallelism={arguments.parallelism!r}: workers= are copies of the network"
        raise ArgumentError(sizing, 1, allowed)
    layout = Layout(
        workers=arguments.device_count,
        stages=arguments.stages,
        tensor_size=arguments.tensor_size,
        sequence_parallel=arguments.sequence_parallel,
        micro_batches=max(arguments.micro_batches, steps),
        schedule=arguments.schedule,
        interleave=arguments.interleave,
        shard_stage=arguments.shard_stage,
    )
    return kind.resolved(layout)
