"""Changes of how much is done or kept at once: batch size, micro-batches, accumulation, recomputation, sharing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from perfmodel.cost.pipeline_order import SCHEDULES
from perfmodel.graph.checkpoints import RECOMPUTE
from perfmodel.measurements.run import Run
from perfmodel.planning.changes.situation import Change, NotApplicableError, Situation
from perfmodel.prediction.arguments.table import names_of
from perfmodel.prediction.batch_limit import max_batch_size
from perfmodel.records import Phase

MOST_SHARD_STAGE: Final = 3
"""Parameters are shared too. [1]"""


def _of_samples(now: Situation, samples: int, what: str) -> Change:
    """Return another batch size, in the argument in which it was given."""
    workers = now.base.worker_count
    strong = now["global_batch_size"] is not None and now["batch_size"] is None
    name, value = ("global_batch_size", samples * workers) if strong else ("batch_size", samples)
    other = "batch_size" if strong else "global_batch_size"
    cleared: dict[str, Any] = {} if now[other] is None else {other: None}
    return Change(what=f"{name} {value:,}, {what}", changes={name: value} | cleared)


def batch_size(now: Situation) -> Iterator[Change]:
    """Yield twice the batch size, half of it, and as many samples as memory holds."""
    now.needs(now.job.subject.graph.fixed_batch_size is None, "the graph holds for one batch size only")
    samples = now.base.batch_size
    yield _of_samples(now, 2 * samples, "twice as many")
    if samples > 1:
        yield _of_samples(now, samples // 2, "half as many")
    now.needs(now.base.spread is None, "how much fits is not searched for a network on several devices or in parts")
    graph = now.job.graph
    if isinstance(graph, Run):
        reason = "how much fits is not searched for a measured run"
        raise NotApplicableError(reason)
    asked = now.job.asked
    most = max_batch_size(
        graph, **{name: asked[name] for name in names_of("place", "step", "workers") if name in asked}
    )
    now.needs(most, "not even one sample fits in memory")
    yield _of_samples(now, most, "as many as memory holds")


def recompute(now: Situation) -> Iterator[Change]:
    """Yield activations made a second time going back, for their memory; or kept, where they are not."""
    assert now.base.basis is not None
    trains = Phase.BACKWARD in now.base.basis.prepared.subject.phase.parts
    now.needs(trains, "there is no backward phase that would need activations")
    for how in (None, *RECOMPUTE):
        yield Change(what=f"recompute {how or 'nothing'}", changes={"recompute": how})


def accumulation_steps(now: Situation) -> Iterator[Change]:
    """Yield a mini-batch in twice as many parts, with one exchange and one update at the end."""
    assert now.base.basis is not None
    updates = Phase.UPDATE in now.base.basis.prepared.subject.phase.parts
    now.needs(updates, "nothing is updated in this phase, for which to add gradients up")
    steps = 2 * now["accumulation_steps"]
    now.needs(not now.base.batch_size % steps, f"{now.base.batch_size} samples are not {steps} equal parts")
    yield Change(what=f"the mini-batch in {steps} parts, gradients added up", changes={"accumulation_steps": steps})


def micro_batches(now: Situation) -> Iterator[Change]:
    """Yield a pipeline's mini-batch in twice or half as many parts."""
    now.needs(now["parallelism"] == "pipeline", "there is no pipeline")
    parts = now["micro_batches"]
    for count in (2 * parts, parts // 2):
        if count and not now.base.batch_size % count:
            yield Change(what=f"{count} micro-batches", changes={"micro_batches": count})


def schedule(now: Situation) -> Iterator[Change]:
    """Yield another order of work of a pipeline."""
    now.needs(now["parallelism"] == "pipeline", "there is no pipeline")
    for name in SCHEDULES:
        interleave = max(2, now["interleave"]) if name == "interleaved" else 1
        yield Change(what=f"schedule {name}", changes={"schedule": name, "interleave": interleave})


def sequence_parallel(now: Situation) -> Iterator[Change]:
    """Yield what lies between the shared layers of a tensor group shared too, by positions."""
    now.needs(now["tensor_size"] > 1, "no devices share a layer")
    yield Change(what="positions shared between shared layers", changes={"sequence_parallel": True})


def shard_stage(now: Situation) -> Iterator[Change]:
    """Yield optimizer state, then gradients, then parameters shared by data-parallel workers."""
    now.needs_training_together()
    for stage in range(MOST_SHARD_STAGE + 1):
        yield Change(what=f"shard_stage {stage}", changes={"shard_stage": stage})
