"""Flags with which training programs run a layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from perfmodel.errors import ArgumentError, check_known
from perfmodel.graph.execution import BLOCKS, blocks_of
from perfmodel.prediction.utilisation import tokens_per_sample

if TYPE_CHECKING:
    from perfmodel.prediction.job.job import Job

Flag = tuple[str, object]
"""A flag and its value; True for a flag without one."""


def launch_command(job: Job, program: str, *, block_count: int, devices_per_machine: int) -> str:
    """Return the command that trains with a job's layout, without the flags of network, data and learning rate."""
    check_known("training program", program, PROGRAMS)
    lines = [f"{flag}" if value is True else f"{flag} {value}" for flag, value in PROGRAMS[program](job, block_count)]
    per_machine = min(devices_per_machine, job.device_count)
    machines = -(-job.device_count // per_machine)
    start = f"torchrun --nnodes {machines} --nproc-per-node {per_machine} {SCRIPTS[program]}"
    return " \\\n  ".join([start, *lines])


SCRIPTS: Final[Mapping[str, str]] = {"megatron": "pretrain_gpt.py", "torchtitan": "-m torchtitan.train"}
"""Training program -> what torchrun starts."""


def _micro_batch_size(job: Job) -> int:
    return job.layout.micro_batch_size(job.samples)


def _megatron(job: Job, block_count: int) -> Iterator[Flag]:
    """Yield the flags of Megatron-LM (megatron/training/arguments.py): its optimizer is ZeRO-1, its FSDP is more."""
    if job.schedule == "gpipe" and job.stages > 1:
        raise ArgumentError("schedule", job.schedule, "'1f1b' or 'interleaved' for megatron, which has no other")
    if job.recompute not in RECOMPUTED_BY_MEGATRON and not isinstance(job.recompute, int):
        raise ArgumentError("recompute", job.recompute, "None, 'selective', 'full' or a number for megatron")
    if job.stages > 1 and job.accumulation_steps > 1:
        allowed = "1 for megatron, whose pipeline is emptied once a step"
        raise ArgumentError("accumulation_steps", job.accumulation_steps, allowed)
    if job.no_sync:
        allowed = "False for megatron, whose FSDP adds up gradients in every pass; shard_stage=1 adds them up once"
        raise ArgumentError("no_sync", job.no_sync, allowed)
    yield "--tensor-model-parallel-size", job.tensor_size
    if job.context_size > 1:
        yield "--context-parallel-size", job.context_size
        yield "--cp-comm-type", {"ring": "p2p", "all_to_all": "a2a", "gather": "all_gather"}[job.context_method]
    yield "--pipeline-model-parallel-size", job.stages
    if job.stages > 1:
        yield from _cuts_of_megatron(_blocks_of_chunks(job), stages=job.stages)
    if job.reordered_by is not None and job.profile.exchange.outermost == "workers":
        yield "--use-tp-pp-dp-mapping", True
    if job.sequence_parallel and job.tensor_size > 1:
        yield "--sequence-parallel", True
    yield "--micro-batch-size", _micro_batch_size(job)
    yield "--global-batch-size", job.samples * job.workers
    if (length := tokens_per_sample(job.subject.graph)) is not None:
        yield "--seq-length", length
    if job.dtype in ("bf16", "fp16"):
        yield f"--{job.dtype}", True
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
    if isinstance(job.recompute, int):
        yield "--recompute-granularity", "full"
        yield "--recompute-method", "block"
        yield "--recompute-num-layers", job.recompute
    else:
        yield from RECOMPUTED_BY_MEGATRON[job.recompute]


_WHOLE_BLOCKS: Final[tuple[Flag, ...]] = (
    ("--recompute-granularity", "full"),
    ("--recompute-method", "uniform"),
    ("--recompute-num-layers", 1),
)

RECOMPUTED_BY_MEGATRON: Final[Mapping[str | None, tuple[Flag, ...]]] = {
    None: (),
    "selective": (("--recompute-granularity", "selective"),),
    "full": _WHOLE_BLOCKS,
    BLOCKS: _WHOLE_BLOCKS,
}
"""What runs again -> its flags; a number of blocks has its own."""


def _blocks_of_chunks(job: Job) -> tuple[int, ...]:
    """Return the blocks of each chunk of a pipeline; a block that a cut halves counts where it begins. [1]"""
    met: set[str] = set()
    counts = []
    for stage in job.prepared.stages:
        begun = set(blocks_of(stage.placed.graph.layers)) - met
        counts.append(len(begun))
        met |= begun
    return tuple(counts)


def _cuts_of_megatron(blocks: tuple[int, ...], *, stages: int) -> Iterator[Flag]:
    """Yield the flags of stage ends; none if all stages have equally many blocks, as Megatron then cuts by itself."""
    if len(set(blocks)) == 1:
        if len(blocks) > stages:
            yield "--num-layers-per-virtual-pipeline-stage", blocks[0]
    elif len(blocks) == stages and len(set(blocks[1:-1])) == 1:
        yield "--decoder-first-pipeline-num-layers", blocks[0]
        yield "--decoder-last-pipeline-num-layers", blocks[-1]
    else:
        chunks = [f"t*{count}" for count in blocks]
        yield "--pipeline-model-parallel-layout", f"'{'|'.join(['E' + chunks[0], *chunks[1:]])}L'"


SCHEDULES_OF_TORCH: Final[Mapping[str, str]] = {"1f1b": "1F1B", "gpipe": "GPipe", "interleaved": "Interleaved1F1B"}
"""Schedule of a pipeline -> its name in torch.distributed.pipelining."""


def _check_sums_of_torch(job: Job) -> None:
    """Refuse sums that torch's FSDP does not make: of every micro-batch, but one in each pass of a pipeline [1]_.

    References
    ----------
    .. [1] PyTorch, torch/distributed/pipelining/stage.py, backward_maybe_with_nosync.
    """
    if job.stages == 1 and job.no_sync:
        raise ArgumentError("no_sync", job.no_sync, "False for torchtitan, which adds up gradients in every pass")
    if job.stages == 1 or job.shard_stage != 2 or job.workers * job.context_size == 1:
        return
    if job.accumulation_steps > 1:
        allowed = "1 for torchtitan with shard_stage=2 in a pipeline, each pass of which ends in a sum"
        raise ArgumentError("accumulation_steps", job.accumulation_steps, allowed)
    if job.micro_batches > 1 and not job.no_sync:
        allowed = "True for torchtitan in a pipeline, which adds up gradients behind its last micro-batch"
        raise ArgumentError("no_sync", job.no_sync, allowed)


def _torchtitan(job: Job, block_count: int) -> Iterator[Flag]:
    """Yield the flags of torchtitan (torchtitan/config/job_config.py): parameters are copied, or sharded by FSDP."""
    if job.shard_stage == 1:
        allowed = "0, 2 or 3 for torchtitan, which shards gradients with the optimizer's state"
        raise ArgumentError("shard_stage", job.shard_stage, allowed)
    if job.recompute not in (None, "full"):
        raise ArgumentError("recompute", job.recompute, "None or 'full' for torchtitan")
    _check_sums_of_torch(job)
    if job.context_size > 1 and not job.shard_stage:
        allowed = "2 or 3 for torchtitan with context_size, whose devices share parameters too"
        raise ArgumentError("shard_stage", job.shard_stage, allowed)
    if job.context_method != "ring":
        raise ArgumentError("context_method", job.context_method, "'ring' for torchtitan")
    copies = job.workers * job.context_size
    sharing = (job.shard_group or copies) if job.shard_stage else 1
    if sharing % job.context_size:
        allowed = f"a multiple of context_size = {job.context_size} for torchtitan"
        raise ArgumentError("shard_group", job.shard_group, allowed)
    yield "--parallelism.data_parallel_shard_degree", sharing // job.context_size
    yield "--parallelism.data_parallel_replicate_degree", copies // sharing
    if job.context_size > 1:
        yield "--parallelism.context_parallel_degree", job.context_size
        yield "--parallelism.context_parallel_rotate_method", "alltoall"
    if job.shard_stage:
        yield "--parallelism.fsdp_reshard_after_forward", "always" if job.shard_stage == 3 else "never"
    yield "--parallelism.tensor_parallel_degree", job.tensor_size
    yield "--parallelism.pipeline_parallel_degree", job.stages
    if job.stages > 1:
        name = "1f1b" if job.interleave == 1 and job.schedule == "interleaved" else job.schedule
        yield "--parallelism.pipeline_parallel_schedule", SCHEDULES_OF_TORCH[name]
        yield "--parallelism.pipeline_parallel_microbatch_size", _micro_batch_size(job)
        if job.interleave > 1:
            yield "--parallelism.pipeline_parallel_layers_per_stage", -(-block_count // (job.stages * job.interleave))
    yield "--training.local_batch_size", _micro_batch_size(job) * job.micro_batches
    yield "--training.global_batch_size", job.samples * job.workers
    if (length := tokens_per_sample(job.subject.graph)) is not None:
        yield "--training.seq_len", length
    yield "--training.mixed_precision_param", "bfloat16" if job.dtype == "bf16" else "float32"
    yield "--activation_checkpoint.mode", "full" if job.recompute == "full" else "none"


PROGRAMS: Final[Mapping[str, Callable[[Job, int], Iterator[Flag]]]] = {"megatron": _megatron, "torchtitan": _torchtitan}
"""Training program -> the flags of a layout."""
