"""Changes of what the devices of a job share: stages of a pipeline and tensor groups in place of whole networks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from perfmodel.planning.changes.situation import Change, Situation
from perfmodel.prediction.arguments.table import DEFAULTS
from perfmodel.records import Phase

MICRO_BATCHES: Final = (1, 4)
"""Most micro-batches of a proposed pipeline over its stages: all busy, and short bubbles. [1]"""

SPREAD: Final = ("data", "pipeline", "tensor")
"""Parallelisms that are told apart by how many stages and how large groups they have."""

PIPELINE: Final = "presumes a framework that runs pipelines; statistics of a batch are of a micro-batch"
"""What a prediction does not check of a pipeline."""

GROUPS: Final = "presumes a framework that shares layers"
"""What a prediction does not check of tensor groups."""


def _needs_devices(now: Situation) -> None:
    """Raise unless several devices work, on a network that they share in a way that can be another."""
    assert now.base.basis is not None
    now.needs(now.machine is not None and len(now.machine.names) > 1, "one device works, which shares nothing")
    trains = Phase.BACKWARD in now.base.basis.prepared.subject.phase.parts
    now.needs(not trains or now["sync"] != "none", "each worker trains a network of its own")
    now.needs(now["parallelism"] in SPREAD, f"parallelism {now['parallelism']} shares the network in another way")


def _sizes(now: Situation, size: str) -> tuple[list[int], list[int]]:
    """Return the other sizes that the same devices allow, and those of them that do not divide the samples."""
    shared = now.base.worker_count * now[size]
    sizes = [each for each in range(1, shared + 1) if not shared % each and each != now[size]]
    now.needs(sizes, f"one worker has all devices, and {size} is 1")
    samples = now.base.batch_size * now.base.worker_count
    uneven = [each for each in sizes if samples % (shared // each)]
    return [each for each in sizes if each not in uneven], uneven


def _spread(now: Situation, size: str, count: int) -> dict[str, Any]:
    """Return the arguments by which the same devices have another size, for the same samples in all."""
    counts = {"stages": now["stages"], "tensor_size": now["tensor_size"], size: count}
    workers = now.base.worker_count * now[size] // count
    kind = "pipeline" if counts["stages"] > 1 else "tensor" if counts["tensor_size"] > 1 else "data"
    changes = {"parallelism": kind, "workers": workers, **counts}
    if now["global_batch_size"] is None:
        changes["batch_size"] = now.base.batch_size * now.base.worker_count // workers
    if counts["stages"] > 1:
        changes["accumulation_steps"] = 1  # micro-batches accumulate
    elif now["stages"] > 1:
        changes |= {name: DEFAULTS[name] for name in ("micro_batches", "schedule", "interleave")}
    if counts["tensor_size"] == 1:
        changes["sequence_parallel"] = False
    return {name: value for name, value in changes.items() if value != now[name]}


def _of_workers(workers: int) -> str:
    return f"{workers} worker{'s' if workers > 1 else ''} of"


def stages(now: Situation) -> Iterator[Change]:
    """Yield the same devices in pipelines of every length, for the same samples in all."""
    _needs_devices(now)
    sizes, uneven = _sizes(now, "stages")
    for count in sizes:
        changes = _spread(now, "stages", count)
        workers = changes["workers"]
        if count == 1:
            yield Change(what=f"{_of_workers(workers)} one stage", changes=changes)
            continue
        samples = now.base.batch_size * now.base.worker_count // workers
        divisors = [parts for parts in range(1, samples + 1) if not samples % parts]
        for parts in sorted({max(each for each in divisors if each <= times * count) for times in MICRO_BATCHES}):
            what = f"{_of_workers(workers)} {count} stages, {parts} micro-batch{'es' if parts > 1 else ''}"
            yield Change(what=what, changes=changes | {"micro_batches": parts}, presumes=PIPELINE)
    now.needs(not uneven, f"the samples are not shared evenly with stages = {', '.join(map(str, uneven))}")


def tensor_size(now: Situation) -> Iterator[Change]:
    """Yield the same devices in groups of every size that share each layer, for the same samples in all."""
    _needs_devices(now)
    sizes, uneven = _sizes(now, "tensor_size")
    for count in sizes:
        changes = _spread(now, "tensor_size", count)
        shared, presumes = (f"{count} devices that share each layer", GROUPS) if count > 1 else ("whole layers", "")
        yield Change(what=f"{_of_workers(changes['workers'])} {shared}", changes=changes, presumes=presumes)
    now.needs(not uneven, f"the samples are not shared evenly with tensor_size = {', '.join(map(str, uneven))}")
