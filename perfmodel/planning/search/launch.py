"""Flags with which training programs run a layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Final

import numpy as np

from perfmodel.errors import ArgumentError, check_known
from perfmodel.graph.execution import BLOCKS, blocks_of
from perfmodel.planning.search.program_rules import OF_TORCHTITAN, Rule
from perfmodel.prediction.arguments.table import DEFAULTS
from perfmodel.prediction.utilisation import tokens_per_sample

if TYPE_CHECKING:
    from perfmodel.prediction.job.job import Job

Flag = tuple[str, object]
"""A flag and its value; True for a flag without one."""


def launch_command(job: Job, program: str, *, devices_per_machine: int) -> str:
    """Return the command that trains with a job's layout, without the flags of network, data and learning rate."""
    check_known("training program", program, PROGRAMS)
    lines = [f"{flag}" if value is True else f"{flag} {value}" for flag, value in PROGRAMS[program](job)]
    per_machine = min(devices_per_machine, job.device_count)
    if job.device_count % per_machine:
        allowed = f"a multiple of {per_machine}, as torchrun starts equally many processes in each machine"
        raise ArgumentError("devices", job.device_count, allowed)
    start = f"torchrun --nnodes {job.device_count // per_machine} --nproc-per-node {per_machine} {SCRIPTS[program]}"
    return " \\\n  ".join([start, *lines])


SCRIPTS: Final[Mapping[str, str]] = {"megatron": "pretrain_gpt.py", "torchtitan": "-m torchtitan.train"}
"""Training program -> what torchrun starts."""


def _refuse(job: Job, rules: Iterable[Rule]) -> None:
    """Raise if a program does not have the layout of a job."""
    layout = {name: getattr(job, name) for name in DEFAULTS}
    for rule in rules:
        if np.any(rule.refuses(layout)):
            raise ArgumentError(rule.argument, layout[rule.argument], rule.allowed)


def _micro_batch_size(job: Job) -> int:
    return job.layout.micro_batch_size(job.samples)


def _megatron(job: Job) -> Iterator[Flag]:
    """Yield the flags of Megatron-LM (megatron/training/arguments.py): its optimizer is ZeRO-1, its FSDP is more."""
    if job.schedule == "gpipe" and job.stages > 1:
        raise ArgumentError("schedule", job.schedule, "'1f1b' or 'interleaved' for megatron, which has no other")
    if job.recompute not in RECOMPUTED_BY_MEGATRON and not isinstance(job.recompute, int):
        raise ArgumentError("recompute", job.recompute, "None, 'selective', 'full' or a number for megatron")
    if job.stages > 1 and job.accumulation_steps > 1:
        allowed = "1 for megatron, whose pipeline is emptied once a step"
        raise ArgumentError("accumulation_steps", job.accumulation_steps, allowed)
    if job.dtype not in TYPES_OF_MEGATRON:
        raise ArgumentError("dtype", job.dtype, f"{_or(TYPES_OF_MEGATRON)} for megatron")
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
        if job.profile.exchange.tensor_products == "cut":
            yield "--tp-comm-overlap", True
    yield "--micro-batch-size", _micro_batch_size(job)
    yield "--global-batch-size", job.samples * job.workers
    if (length := tokens_per_sample(job.subject.graph)) is not None:
        yield "--seq-length", length
    yield from TYPES_OF_MEGATRON[job.dtype]
    yield from _sums_of_megatron(job)
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
        yield from RECOMPUTED_BY_MEGATRON[job.recompute or None]


TYPES_OF_MEGATRON: Final[Mapping[str, tuple[Flag, ...]]] = {
    "bf16": (("--bf16", True),),
    "fp16": (("--fp16", True),),
    "fp32": (),
    "fp8": (("--bf16", True), ("--fp8-format", "hybrid")),
    "mxfp8": (("--bf16", True), ("--fp8-format", "e4m3"), ("--fp8-recipe", "mxfp8")),
}
"""Data type of a job -> its flags; products in 8 bits leave all else in bf16."""


SUMS_OF_MEGATRON: Final[Mapping[str, Mapping[str, tuple[Flag, ...]]]] = {
    "bf16": {"fp32": (), "bf16": (("--grad-reduce-in-bf16", True),)},
    "fp16": {"fp16": (), "fp32": (("--accumulate-allreduce-grads-in-fp32", True),)},
    "fp32": {"fp32": ()},
}
"""Type of what is not in 8 bits -> type in which gradients are added up -> its flags."""


def _sums_of_megatron(job: Job) -> tuple[Flag, ...]:
    """Return the flags of the type in which gradients are added up, if the job states one."""
    known = SUMS_OF_MEGATRON.get(job.dtype, SUMS_OF_MEGATRON["bf16"])
    if job.gradient_dtype is None:
        return ()
    if job.gradient_dtype not in known:
        raise ArgumentError("gradient_dtype", job.gradient_dtype, f"None or {_or(known)} for megatron in {job.dtype}")
    return known[job.gradient_dtype]


def _or(names: Iterable[str]) -> str:
    return " or ".join(map(repr, names))


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


def _cuts_of_torchtitan(blocks: Sequence[int], *, chunks_each: int) -> Iterator[Flag]:
    """Yield the flags with which torchtitan's stages come nearest to a layout's [1]_.

    Blocks, and so many more for either end of the network, are divided evenly, what is left over to the first stages.

    References
    ----------
    .. [1] torchtitan, torchtitan/distributed/pipeline.py, generate_llm_fqn_per_model_part; models/llama3/infra/
       pipeline.py: the number of stages is that of all these over those of a stage, rounded up.
    """
    count, nearest = len(blocks), []
    for first, last in product(range(max(blocks) + 1), repeat=2):
        shared = sum(blocks) + first + last
        each, more = divmod(shared, count)
        most = each + (more > 0)
        if max(first, last) > each or (chunks_each > DEFAULT_CHUNKS and -(-shared // most) != count):
            continue
        cut = [each + (place < more) for place in range(count)]
        cut[0], cut[-1] = cut[0] - first, cut[-1] - last
        distance = sum(abs(here - there) for here, there in zip(blocks, cut, strict=True))
        nearest.append((distance, first, last, most))
    if not nearest:
        raise ArgumentError("interleave", chunks_each, f"at most {DEFAULT_CHUNKS} for torchtitan with these blocks")
    _, first, last, most = min(nearest)
    yield "--parallelism.pipeline_parallel_first_stage_less_layers", first
    yield "--parallelism.pipeline_parallel_last_stage_less_layers", last
    if chunks_each > DEFAULT_CHUNKS:
        yield "--parallelism.pipeline_parallel_layers_per_stage", most


DEFAULT_CHUNKS: Final = 2
"""Stages that a device has in an interleaved schedule of torchtitan unless it is told otherwise. [1]"""


def _torchtitan(job: Job) -> Iterator[Flag]:
    """Yield the flags of torchtitan (torchtitan/config/job_config.py): parameters are copied, or sharded by FSDP."""
    _refuse(job, OF_TORCHTITAN)
    if job.dtype not in TYPES_OF_TORCHTITAN:
        raise ArgumentError("dtype", job.dtype, f"{_or(TYPES_OF_TORCHTITAN)} for torchtitan")
    if job.gradient_dtype not in (None, "fp32"):
        raise ArgumentError("gradient_dtype", job.gradient_dtype, "None or 'fp32' for torchtitan")
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
    if job.profile.gpu.lowering.fuses:
        yield "--compile.enable", True
    if job.tensor_size > 1 and job.profile.exchange.tensor_products == "cut":
        yield "--parallelism.enable_async_tensor_parallel", True
    yield "--parallelism.pipeline_parallel_degree", job.stages
    if job.stages > 1:
        name = "1f1b" if job.interleave == 1 and job.schedule == "interleaved" else job.schedule
        yield "--parallelism.pipeline_parallel_schedule", SCHEDULES_OF_TORCH[name]
        yield "--parallelism.pipeline_parallel_microbatch_size", _micro_batch_size(job)
        yield from _cuts_of_torchtitan(_blocks_of_chunks(job), chunks_each=job.interleave)
    yield "--training.local_batch_size", _micro_batch_size(job) * job.micro_batches
    yield "--training.global_batch_size", job.samples * job.workers
    if (length := tokens_per_sample(job.subject.graph)) is not None:
        yield "--training.seq_len", length
    yield from TYPES_OF_TORCHTITAN[job.dtype]
    yield "--activation_checkpoint.mode", "full" if job.recompute == "full" else "none"


TYPES_OF_TORCHTITAN: Final[Mapping[str, tuple[Flag, ...]]] = {
    "bf16": (("--training.mixed_precision_param", "bfloat16"),),
    "fp32": (("--training.mixed_precision_param", "float32"),),
    "fp8": (("--training.mixed_precision_param", "bfloat16"), ("--model.converters", "quantize.linear.float8")),
}
"""Data type of a job -> its flags; products in 8 bits leave all else in bf16."""

PROGRAMS: Final[Mapping[str, Callable[[Job], Iterator[Flag]]]] = {"megatron": _megatron, "torchtitan": _torchtitan}
"""Training program -> the flags of a layout."""
