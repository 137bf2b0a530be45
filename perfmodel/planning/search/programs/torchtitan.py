"""torchtitan (torchtitan/config/job_config.py): parameters are copied, or sharded by FSDP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import numpy as np

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
    "bf16": (("--training.mixed_precision_param", "bfloat16"),),
    "fp32": (("--training.mixed_precision_param", "float32"),),
    "fp8": (("--training.mixed_precision_param", "bfloat16"), ("--model.converters", "quantize.linear.float8")),
}
"""Data type of a job -> its flags; products in 8 bits leave all else in bf16."""

SCHEDULES: Final[Mapping[str, str]] = {"1f1b": "1F1B", "gpipe": "GPipe", "interleaved": "Interleaved1F1B"}
"""Schedule of a pipeline -> its name in torch.distributed.pipelining."""

DEFAULT_CHUNKS: Final = 2
"""Stages on a device in an interleaved schedule, by default. [1]"""


@lru_cache(maxsize=1024)
def _end_weights(block_count: int, stage_count: int, *, chunks_each: int) -> tuple[tuple[int, int], ...]:
    """Weights of both ends of the network [1]_, in blocks, with which torchtitan makes this number of stages.

    Blocks and ends are divided evenly, and the first stages take the remainder; an end is at most an even share.

    References
    ----------
    .. [1] torchtitan, torchtitan/distributed/pipeline.py, generate_llm_fqn_per_model_part; models/llama3/infra/
       pipeline.py: the number of stages is the sum of blocks and ends over that of a stage, rounded up.
    """

    def gives_stage_count(first: int, last: int) -> bool:
        shared = block_count + first + last
        if shared < stage_count:
            return False
        makes_as_many = -(-shared // -(-shared // stage_count)) == stage_count
        return max(first, last) <= shared // stage_count and (makes_as_many or chunks_each <= DEFAULT_CHUNKS)

    most = block_count // max(1, stage_count - 2)
    return tuple((first, last) for first, last in product(range(most + 1), repeat=2) if gives_stage_count(first, last))


def _has_other_stages(at: Layout) -> Any:
    """Tell whether torchtitan cannot cut these blocks into the number of stages of a layout."""
    columns = np.broadcast_arrays(at["block_count"], at["stages"], at["interleave"])
    return np.array(
        [
            chunks > DEFAULT_CHUNKS and not _end_weights(blocks, stages * chunks, chunks_each=chunks)
            for blocks, stages, chunks in zip(*(np.ravel(column).tolist() for column in columns), strict=True)
        ]
    )


def _adds_up_each_pass(at: Layout) -> Any:
    """Tell whether a pipeline scatters gradients, as torch does after the last micro-batch of each pass [1]_.

    References
    ----------
    .. [1] PyTorch, torch/distributed/pipelining/stage.py, backward_maybe_with_nosync.
    """
    copies = at["workers"] * at["context_size"]
    return (at["stages"] > 1) & (at["shard_stage"] == 2) & (copies > 1)


def _shares_part_of_a_context(at: Layout) -> Any:
    """Tell whether the workers that share parameters (all by default) are only part of a context group."""
    group = np.where(is_set(at["shard_group"]), at["shard_group"], 0).astype(np.int64)
    return (at["shard_stage"] > 0) & (group % at["context_size"] != 0)


# torch's "allgather" differs from the predicted one: it attends to one part after another and sends gradients round
# the ring (torch/distributed/tensor/experimental/_context_parallel/_attention.py)
RULES: Final = (
    NO_BLOCKS,
    Rule(
        "stages", lambda at: (at["stages"] > 1) & (at["stages"] * at["interleave"] > at["block_count"] + 2),
        "such that stages x interleave is at most the blocks and both ends of the network for torchtitan",
    ),
    Rule(
        "shard_stage", lambda at: at["shard_stage"] == 1,
        "0, 2 or 3 for torchtitan, which shards gradients with the optimizer's state",
    ),
    Rule(
        "shard_stage", lambda at: (at["context_size"] > 1) & (at["shard_stage"] == 0),
        "2 or 3 for torchtitan with context_size, whose devices share parameters too",
    ),
    Rule(
        "sequence_parallel", lambda at: (at["tensor_size"] > 1) & ~is_set(at["sequence_parallel"]),
        "True for torchtitan with tensor_size",
    ),
    Rule("context_method", lambda at: at["context_method"] != "ring", "'ring' for torchtitan"),
    # seq_len_divisor of torchtitan/distributed/parallel_dims.py
    Rule(
        "context_size", lambda at: at["positions"] % (2 * at["context_size"] * at["tensor_size"]) != 0,
        "such that 2 x context_size x tensor_size divides the sequence for torchtitan",
    ),
    Rule("recompute", none_of("recompute", (None, 0, "full")), "None or 'full' for torchtitan"),
    Rule("interleave", _has_other_stages, f"at most {DEFAULT_CHUNKS} for torchtitan with these blocks"),
    Rule("dtype", none_of("dtype", TYPES), f"{one_of_names(TYPES)} for torchtitan"),
    Rule("gradient_dtype", none_of("gradient_dtype", (None, "fp32")), "None or 'fp32' for torchtitan"),
    Rule("shard_group", _shares_part_of_a_context, "a multiple of context_size for torchtitan"),
    Rule(
        "no_sync", lambda at: (at["stages"] == 1) & is_set(at["no_sync"]),
        "False for torchtitan, which adds up gradients in every pass",
    ),
    Rule(
        "accumulation_steps", lambda at: _adds_up_each_pass(at) & (at["accumulation_steps"] > 1),
        "1 for torchtitan with shard_stage=2 in a pipeline, each pass of which ends in a sum",
    ),
    Rule(
        "no_sync", lambda at: _adds_up_each_pass(at) & (at["micro_batches"] > 1) & ~is_set(at["no_sync"]),
        "True for torchtitan in a pipeline, which adds up gradients behind its last micro-batch",
    ),
)  # fmt: skip
"""What torchtitan has no flags for, or does otherwise than it is predicted."""


def _flags(job: Job) -> Iterator[Flag]:
    copies = job.workers * job.context_size
    sharing = (job.shard_group or copies) if job.shard_stage else 1
    yield "--parallelism.data_parallel_shard_degree", sharing // job.context_size
    yield "--parallelism.data_parallel_replicate_degree", copies // sharing
    if job.context_size > 1:
        yield "--parallelism.context_parallel_degree", job.context_size
        yield "--parallelism.context_parallel_rotate_method", "alltoall"
    if job.shard_stage:
        yield "--parallelism.fsdp_reshard_after_forward", "always" if job.shard_stage == 3 else "never"
    yield "--parallelism.tensor_parallel_degree", job.tensor_size
    if job.profile.gpu.lowering.fuses:
        yield "--compile.enable", True
    if job.tensor_size > 1 and job.profile.exchange.tensor_products == "cut":
        yield "--parallelism.enable_async_tensor_parallel", True
    yield "--parallelism.pipeline_parallel_degree", job.stages
    if job.stages > 1:
        name = "1f1b" if job.interleave == 1 and job.schedule == "interleaved" else job.schedule
        yield "--parallelism.pipeline_parallel_schedule", SCHEDULES[name]
        yield "--parallelism.pipeline_parallel_microbatch_size", micro_batch_size(job)
        yield from _cuts(blocks_of_chunks(job), chunks_each=job.interleave)
    yield "--training.local_batch_size", micro_batch_size(job) * job.micro_batches
    yield "--training.global_batch_size", job.samples * job.workers
    if (length := tokens_per_sample(job.subject.graph)) is not None:
        yield "--training.seq_len", length
    yield from TYPES[job.dtype]
    yield "--activation_checkpoint.mode", "full" if job.recompute == "full" else "none"


def _cuts(blocks: Sequence[int], *, chunks_each: int) -> Iterator[Flag]:
    """Yield the flags with which torchtitan's stages come nearest to a layout's."""
    count, nearest = len(blocks), []
    for first, last in _end_weights(sum(blocks), count, chunks_each=chunks_each):
        share, more = divmod(sum(blocks) + first + last, count)
        cut = [share + (place < more) for place in range(count)]
        cut[0], cut[-1] = cut[0] - first, cut[-1] - last
        distance = sum(abs(here - there) for here, there in zip(blocks, cut, strict=True))
        nearest.append((distance, first, last, share + (more > 0)))
    _, first, last, most = min(nearest)
    yield "--parallelism.pipeline_parallel_first_stage_less_layers", first
    yield "--parallelism.pipeline_parallel_last_stage_less_layers", last
    if chunks_each > DEFAULT_CHUNKS:
        yield "--parallelism.pipeline_parallel_layers_per_stage", most


TORCHTITAN: Final = Program("-m torchtitan.train", _flags, RULES)
