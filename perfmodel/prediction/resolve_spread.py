"""How a network is spread over devices: what a caller asked for, held against what fits together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from perfmodel.errors import ArgumentError
from perfmodel.parallelism import PARALLELISMS, Layout
from perfmodel.prediction.agreement_arguments import collectives_of, with_habits_of
from perfmodel.prediction.agreement_options import LIBRARY, WAITING, WITH_SERVER
from perfmodel.prediction.arguments import NO_SYNC
from perfmodel.prediction.arguments.table import DEFAULTS, MERGED
from perfmodel.prediction.spread import SpreadAsked
from perfmodel.records import Phase
from perfmodel.sync.asynchronous import SCHEMES
from perfmodel.sync.collectives import ALL_REDUCES, collective

if TYPE_CHECKING:
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.prediction.job import Job

RING: Final = "ring_all_reduce"
"""How groups add up where nothing else is said."""

SIZES: Final = ("stages", "tensor_size", "micro_batches", "interleave", "shard_stage")
"""Arguments that only some parallelisms use."""

OPTIONS: Final = ("group_size", "server_count")
"""Arguments that are options of an algorithm."""


def resolve_spread(job: Job, *, phase: Phase, profile: FrameworkProfile) -> SpreadAsked:
    """Return how a job spreads a network.

    Parameters
    ----------
    job : Job
        What is asked. [-]
    phase : Phase
        What part of a step runs. [-]
    profile : FrameworkProfile
        The framework, whose size of messages and library of collectives hold where the job names none. [-]

    Returns
    -------
    SpreadAsked
        Layout and exchange. [-]

    Raises
    ------
    ArgumentError
        If sizes contradict one another, the parallelism, or how workers agree.
    """
    layout = _layout(job)
    agreed = with_habits_of(profile, job)
    if agreed.bucket_bytes == MERGED:  # until a network that is spread can merge: delete this check
        allowed = "bytes for a network that is spread: messages are merged for workers with the whole network each"
        raise ArgumentError("bucket_bytes", agreed.bucket_bytes, allowed)
    _refuse_contradiction(job, phase)
    all_reduce = job.sync if job.sync in WAITING else None
    library = collectives_of(profile) if all_reduce == LIBRARY else None
    options: dict[str, Any] = {}
    if all_reduce in ALL_REDUCES:
        options = {name: getattr(job, name) for name in OPTIONS if name in collective(all_reduce).option_names}
    agrees = all_reduce is not None and layout.data_size > 1 and Phase.BACKWARD in phase.parts
    return SpreadAsked(
        parallelism=job.spread_kind,
        layout=layout,
        agreed=agreed,
        all_reduce=RING if library is not None else all_reduce,
        library=library,
        options=options,
        straggler=job.straggler if agrees else None,
    )


def _refuse_contradiction(job: Job, phase: Phase) -> None:
    """Raise where workers cannot agree so on parameters that they share, or do not train."""
    shared = job.shard_stage
    if shared and job.sync == NO_SYNC:
        raise ArgumentError("shard_stage", shared, "0 with sync='none': sharded state has to be exchanged")
    if shared and job.sync in WITH_SERVER:
        allowed = f"0 with sync={job.sync!r}: the server has what workers would share, and none has a part of its own"
        raise ArgumentError("shard_stage", shared, allowed)
    if job.parallelism == "hybrid" and job.sync in SCHEMES:
        allowed = (
            f"one in which all wait for all, such as {RING}, with parallelism='hybrid': "
            "its workers share the dense layers, and meet in every step"
        )
        raise ArgumentError("sync", job.sync, allowed)
    if phase is Phase.FORWARD and shared in (1, 2):
        allowed = "0 or 3 with phase='forward', which has no optimizer state and no gradients to share"
        raise ArgumentError("shard_stage", shared, allowed)


def _layout(job: Job) -> Layout:
    """Return the layout, held against the parallelism."""
    steps, kind = job.accumulation_steps, PARALLELISMS[job.spread_kind]
    if steps > 1 and (job.micro_batches > 1 or job.stages > 1):  # until Layout has accumulation_steps: delete
        allowed = "1 with stages or micro_batches, whose gradients accumulate anyway"
        raise ArgumentError("accumulation_steps", steps, allowed)
    if steps > 1 and "micro_batches" not in kind.uses:
        raise ArgumentError("accumulation_steps", steps, f"1 with parallelism={job.parallelism!r}")
    if job.sequence_parallel and job.tensor_size == 1:
        raise ArgumentError("sequence_parallel", True, "False with tensor_size=1, where no devices share a layer")
    for name in SIZES:
        if getattr(job, name) != DEFAULTS[name] and name not in PARALLELISMS[job.parallelism].uses:
            raise ArgumentError(name, getattr(job, name), f"{DEFAULTS[name]!r} with parallelism={job.parallelism!r}")
    layout = Layout(
        workers=job.device_count,
        stages=job.stages,
        tensor_size=job.tensor_size,
        sequence_parallel=job.sequence_parallel,
        micro_batches=max(job.micro_batches, steps),
        schedule=job.schedule,
        interleave=job.interleave,
        shard_stage=job.shard_stage,
    )
    return kind.resolved(layout)
