"""Layout of a job's devices, checked against parallelism and agreement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perfmodel.errors import ArgumentError
from perfmodel.parallelism.base import SIZES, Layout
from perfmodel.parallelism.registry import PARALLELISMS
from perfmodel.prediction.arguments.checks import NO_SYNC
from perfmodel.prediction.job.agreement_options import WITH_SERVER
from perfmodel.records import Phase
from perfmodel.sync.asynchronous import SCHEMES

if TYPE_CHECKING:
    from perfmodel.prediction.job.job import Job


RING: Final = "ring_all_reduce"
"""Default sum among groups."""


def layout_of(job: Job) -> Layout:
    """Make the layout of a job."""
    sizes = {name: getattr(job, name) for name in SIZES}
    layout = PARALLELISMS[job.parallelism].resolved(Layout(workers=job.device_count, schedule=job.schedule, **sizes))
    _refuse_contradiction(job, job.subject.phase)
    return layout


def _refuse_contradiction(job: Job, phase: Phase) -> None:
    """Raise if workers cannot agree this way on shared parameters, or do not train."""
    shared = job.shard_stage if job.workers > 1 else 0  # one worker has nobody to share with
    if shared and job.sync == NO_SYNC:
        raise ArgumentError("shard_stage", shared, "0 with sync='none': sharded state has to be exchanged")
    if shared and job.sync in WITH_SERVER:
        allowed = f"0 with sync={job.sync!r}, as the server holds the state that workers would share"
        raise ArgumentError("shard_stage", shared, allowed)
    if job.parallelism == "hybrid" and job.workers > 1 and job.sync in SCHEMES:
        allowed = (
            f"one in which all workers wait, such as {RING}, with parallelism='hybrid', "
            "whose workers share the dense layers in every step"
        )
        raise ArgumentError("sync", job.sync, allowed)
    if phase is Phase.FORWARD and shared in (1, 2):
        allowed = "0 or 3 with phase='forward', which has no optimizer state and no gradients to share"
        raise ArgumentError("shard_stage", shared, allowed)
