"""Megatron-LM: its optimizer is ZeRO-1, its FSDP is more.

What it refuses is in megatron/training/arguments.py (validate_args), core/transformer/transformer_config.py
(__post_init__) and core/pipeline_parallel/schedules.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.framework.narrow import base_dtype
from perfmodel.graph.execution import BLOCKS
from perfmodel.planning.search.programs.program import (
    NO_BLOCKS,
    Flag,
    Layout,
    Program,
    Rule,
    blocks_of_chunks,
    is_set,
    micro_batch_size,
    none_of,
    one_of_names,
)
from perfmodel.prediction.utilisation import tokens_per_sample

if TYPE_CHECKING:
    from perfmodel.prediction.job.job import Job

TYPES: Final[Mapping[str, tuple[Flag, ...]]] = {
    "bf16": (("--bf16", True),),
    "fp16": (("--fp16", True),),
    "fp32": (),
    "fp8": (("--bf16", True), ("--fp8-format", "hybrid")),
    "mxfp8": (("--bf16", True), ("--fp8-format", "e4m3"), ("--fp8-recipe", "mxfp8")),
}
"""Data type of a job -> its flags; products in 8 bits leave all else in bf16."""

SUMS: Final[Mapping[str, Mapping[str, tuple[Flag, ...]]]] = {
    "bf16": {"fp32": (), "bf16": (("--grad-reduce-in-bf16", True),)},
    "fp16": {"fp16": (), "fp32": (("--accumulate-allreduce-grads-in-fp32", True),)},
    "fp32": {"fp32": ()},
}
"""Base data type -> type in which gradients are added up -> its flags."""

_WHOLE_BLOCKS: Final[tuple[Flag, ...]] = (
    ("--recompute-granularity", "full"),
    ("--recompute-method", "uniform"),
    ("--recompute-num-layers", 1),
)

RECOMPUTED: Final[Mapping[str | None, tuple[Flag, ...]]] = {
    None: (),
    "selective": (("--recompute-granularity", "selective"),),
    "full": _WHOLE_BLOCKS,
    BLOCKS: _WHOLE_BLOCKS,
}
"""What runs again -> its flags; a number of blocks has its own."""


def _sums_otherwise(base: str) -> Callable[[Layout], Any]:
    """Return the test whether gradients of a base type add up in one that has no flag."""
    has_other_base = none_of("dtype", [dtype for dtype in TYPES if base_dtype(dtype) == base])
    is_unknown = none_of("gradient_dtype", [None, *SUMS[base]])
    return lambda at: ~has_other_base(at) & is_unknown(at)


def _reruns_other_parts(at: Layout) -> Any:
    is_other = none_of("recompute", RECOMPUTED)(at)
    return is_other & [not isinstance(value, int) for value in np.ravel(np.array(at["recompute"], dtype=object))]


RULES: Final = (
    NO_BLOCKS,
    Rule(
        "schedule", lambda at: (at["stages"] > 1) & (at["schedule"] == "gpipe"),
        "'1f1b' or 'interleaved' for megatron, which has no other",
    ),
    Rule(
        "stages",
        lambda at: (at["stages"] == 2) & (at["interleave"] > 1) & at["profile"].exchange.awaits_interleaved_sends,
        "1 or above 2 for megatron, whose interleaved stages wait for messages in one batch with each neighbour",
    ),
    Rule("recompute", _reruns_other_parts, "None, 'selective', 'full' or a number for megatron"),
    Rule(
        "accumulation_steps", lambda at: (at["stages"] > 1) & (at["accumulation_steps"] > 1),
        "1 for megatron, whose pipeline is emptied once a step",
    ),
    Rule(
        "context_size", lambda at: (at["context_size"] > 1) & (at["positions"] % (2 * at["context_size"]) != 0),
        "such that 2 x context_size divides the sequence for megatron, whose devices have two parts of it each",
    ),
    Rule("dtype", none_of("dtype", TYPES), f"{one_of_names(TYPES)} for megatron"),
    *(
        Rule("gradient_dtype", _sums_otherwise(base), f"None or {one_of_names(sums)} for megatron in {base}")
        for base, sums in SUMS.items()
    ),
    Rule(
        "no_sync", lambda at: is_set(at["no_sync"]),
        "False for megatron, whose FSDP adds up gradients in every pass; shard_stage=1 adds them up once",
    ),
)  # fmt: skip
"""What Megatron-LM refuses, or does otherwise than it is predicted."""


def _environment(job: Job) -> str:
    """Environment variable that keeps exchanges of groups in order; FSDP refuses it, and newer devices need none."""
    has_groups = job.tensor_size > 1 or job.context_size > 1
    return "CUDA_DEVICE_MAX_CONNECTIONS=1 " if has_groups and job.shard_stage < 2 else ""


def _flags(job: Job) -> Iterator[Flag]:
    yield "--tensor-model-parallel-size", job.tensor_size
    if job.context_size > 1:
        yield "--context-parallel-size", job.context_size
        yield "--cp-comm-type", {"ring": "p2p", "all_to_all": "a2a", "gather": "all_gather"}[job.context_method]
    yield "--pipeline-model-parallel-size", job.stages
    if job.stages > 1:
        yield from _cuts(blocks_of_chunks(job), stages=job.stages)
        if job.interleave > 1 and job.profile.exchange.awaits_interleaved_sends:
            yield "--no-overlap-p2p-communication", True
    if job.reordered_by is not None and job.profile.exchange.outermost == "workers":
        yield "--use-tp-pp-dp-mapping", True
    if job.sequence_parallel and job.tensor_size > 1:
        yield "--sequence-parallel", True
        if job.profile.exchange.tensor_products == "cut":
            yield "--tp-comm-overlap", True
    yield "--micro-batch-size", micro_batch_size(job)
    yield "--global-batch-size", job.samples * job.workers
    if (length := tokens_per_sample(job.subject.graph)) is not None:
        yield "--seq-length", length
    yield from TYPES[job.dtype]
    if job.gradient_dtype is not None:
        yield from SUMS[base_dtype(job.dtype)][job.gradient_dtype]
    if job.shard_stage:
        yield "--use-distributed-optimizer", True
    if job.shard_stage > 1:
        yield "--use-megatron-fsdp", True
        yield "--data-parallel-sharding-strategy", {2: "optim_grads", 3: "optim_grads_params"}[job.shard_stage]
        yield "--ckpt-format", "fsdp_dtensor"
    if job.shard_stage and job.shard_group is not None:
        yield "--num-distributed-optimizer-instances", job.workers * job.context_size // job.shard_group
    if job.overlap:
        yield "--overlap-grad-reduce", True
        if job.shard_stage:
            yield "--overlap-param-gather", True
    if isinstance(job.recompute, int) and job.recompute:
        yield "--recompute-granularity", "full"
        yield "--recompute-method", "block"
        yield "--recompute-num-layers", job.recompute
    else:
        yield from RECOMPUTED[job.recompute or None]


def _cuts(blocks: tuple[int, ...], *, stages: int) -> Iterator[Flag]:
    """Yield the flags of stage ends; none if all stages have equally many blocks, as Megatron then cuts by itself."""
    if len(set(blocks)) == 1:
        if len(blocks) > stages:
            yield "--num-layers-per-virtual-pipeline-stage", blocks[0]
    elif len(blocks) == stages and len(set(blocks[1:-1])) == 1 and min(blocks) > 0:
        yield "--decoder-first-pipeline-num-layers", blocks[0]
        yield "--decoder-last-pipeline-num-layers", blocks[-1]
    else:
        chunks = [f"t*{count}" for count in blocks]
        yield "--pipeline-model-parallel-layout", f"'{'|'.join(['E' + chunks[0], *chunks[1:]])}L'"


MEGATRON: Final = Program("pretrain_gpt.py", _flags, RULES, _environment)
