"""Layouts that a search finds for a training program, held against what the program itself refuses."""

import re
import shlex
from collections import Counter
from typing import get_args

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import ArgumentError
from perfmodel.framework.profile import FrameworkProfile
from perfmodel.planning.search.programs.registry import PROGRAMS

NETWORKS = {
    "gpt": (pm.zoo.gpt(layers=6, width=768, heads=12, sequence_length=1024, vocabulary=50_257), 6, 12, 12),
    # neither blocks, heads nor positions are powers of two; of 24,580 positions 4 devices have an odd number each
    "odd": (
        pm.zoo.llama(layers=7, width=1536, heads=12, key_heads=4, intermediate=2048, vocabulary=8000,
                     sequence_length=24_580), 7, 12, 4,
    ),
    "deep": (
        pm.zoo.llama(layers=80, width=256, heads=8, key_heads=4, intermediate=512, vocabulary=512,
                     sequence_length=512), 80, 8, 4,
    ),
}  # fmt: skip
"""Network, its blocks, heads and heads of keys."""

JOB = {"system": "dgx_h100", "devices": 16, "global_batch_size": 32, "optimizer": "adamw", "sync": "all_reduce"}


def started(text):
    """Number of processes, flags and environment of a command."""
    words = shlex.split(text.replace("\\\n", " "))
    environment = dict(word.split("=") for word in words[: words.index("torchrun")])
    pairs = [*re.findall(r"(--\S+)(?: (?!-)(\S+))?", shlex.join(words))]
    flags = {name: value.strip("'") for name, value in pairs}
    return int(flags["--nnodes"]) * int(flags["--nproc-per-node"]), flags, environment


def stages_of_megatron(flags, *, blocks, stages):
    """Chunks of each stage, with what megatron/core/transformer/transformer_config.py asks of them."""
    first, last = (int(flags.get(f"--decoder-{end}-pipeline-num-layers", 0)) for end in ("first", "last"))
    each = int(flags.get("--num-layers-per-virtual-pipeline-stage", 0))
    if layout := flags.get("--pipeline-model-parallel-layout"):
        unrolled = re.sub(r"(.)\*(\d+)", lambda found: found[1] * int(found[2]), layout)
        assert re.fullmatch(r"E[t|]*L", unrolled)
        assert unrolled.count("t") == blocks
        assert (first, last, each) == (0, 0, 0)
        chunks, left = divmod(unrolled.count("|") + 1, stages)
    elif first or last:
        assert not each
        chunks, left = 1, (blocks - first - last) % (stages - (first > 0) - (last > 0))
    else:
        chunks, left = (blocks // stages) // each if each else 1, blocks % (stages * (each or 1))
    assert not left
    return chunks


def check_megatron(text, *, blocks, heads, key_heads):
    """Fail as Megatron-LM does: megatron/training/arguments.py, validate_args, commit 000c4ac2, and its schedules."""
    processes, flags, environment = started(text)
    tensor, stages, context = (
        int(flags.get(f"--{what}-parallel-size", 1)) for what in ("tensor-model", "pipeline-model", "context")
    )
    copies, left = divmod(processes, tensor * stages * context)
    assert not left
    micro_batches, left = divmod(int(flags["--global-batch-size"]), int(flags["--micro-batch-size"]) * copies)
    assert not left
    chunks = stages_of_megatron(flags, blocks=blocks, stages=stages)
    assert chunks == 1 or (stages > 1 and micro_batches % stages == 0)
    waits = "--no-overlap-p2p-communication" in flags
    assert not waits or (chunks > 1 and stages > 2)
    assert heads % tensor == 0
    assert key_heads % tensor == 0 or tensor % key_heads == 0
    length = int(flags["--seq-length"])
    assert context == 1 or length % (2 * context) == 0
    assert "--sequence-parallel" not in flags or length % (tensor * context) == 0
    assert "--tp-comm-overlap" not in flags or "--sequence-parallel" in flags
    assert "--overlap-param-gather" not in flags or {"--use-distributed-optimizer", "--overlap-grad-reduce"} <= {*flags}
    assert (copies * context) % int(flags.get("--num-distributed-optimizer-instances", 1)) == 0
    if "--use-megatron-fsdp" in flags:
        assert environment.get("CUDA_DEVICE_MAX_CONNECTIONS") != "1"
        assert flags["--ckpt-format"] == "fsdp_dtensor"
    elif tensor > 1 or context > 1:
        assert environment.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1"


def check_torchtitan(text, *, blocks, heads, key_heads):
    """Fail as torchtitan does: torchtitan/distributed/parallel_dims.py and pipeline.py, models/llama3/infra."""
    processes, flags, _ = started(text)
    of = {name.removeprefix("--parallelism."): value for name, value in flags.items()}
    tensor, stages, replicas, shards, context = (
        int(of.get(f"{what}_degree", 1))
        for what in ("tensor_parallel", "pipeline_parallel", "data_parallel_replicate", "data_parallel_shard",
                     "context_parallel")
    )  # fmt: skip
    assert processes == tensor * stages * replicas * shards * context
    local = int(flags["--training.local_batch_size"])
    assert int(flags["--training.global_batch_size"]) % (local * replicas * shards) == 0
    assert int(flags["--training.seq_len"]) % (tensor * 2 * context) == 0
    assert heads % tensor == key_heads % tensor == 0
    if stages == 1:
        return
    assert local % int(of["pipeline_parallel_microbatch_size"]) == 0
    ends = [int(of[f"pipeline_parallel_{end}_stage_less_layers"]) for end in ("first", "last")]
    is_interleaved = of["pipeline_parallel_schedule"] == "Interleaved1F1B"
    count = stages * (2 if is_interleaved else 1)
    if each := int(of.get("pipeline_parallel_layers_per_stage", 0)):
        count = -(-(blocks + sum(ends)) // each)
        assert count % stages == 0
    assert max(ends) <= (blocks + sum(ends)) // count


CHECKS = {"megatron": check_megatron, "torchtitan": check_torchtitan}
FRAMEWORKS = {"megatron_core": "megatron", "megatron_core_overlap": "megatron", "megatron_2021": "megatron",
              "torchtitan_compiled": "torchtitan"}  # fmt: skip


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("network", NETWORKS)
def test_a_program_runs_what_a_search_finds_for_it(network, framework):
    (graph, blocks, heads, key_heads), program = NETWORKS[network], FRAMEWORKS[framework]
    s = pm.search(graph, framework=framework, **JOB, micro_batch_size=1, recompute=None, limits={"tensor_size": 4})
    assert pm.load_framework(framework).program == program
    for rank in {0, *np.random.default_rng(1).choice(len(s), size=min(30, len(s)), replace=False).tolist()}:
        command = s.found(rank).command(program)
        CHECKS[program](command, blocks=blocks, heads=heads, key_heads=key_heads)
        waits = framework == "megatron_2021" and s.rows[rank].interleave > 1
        assert ("--no-overlap-p2p-communication" in command) == waits


@pytest.mark.parametrize("more", [{}, {"devices": [8, 16], "optimizer": ["sgd", "adam", "adamw"]}])
@pytest.mark.parametrize("framework", ["megatron_core", "torchtitan"])
def test_layouts_that_a_program_does_not_start_are_counted_by_argument(framework, more):
    asked = JOB | {"framework": framework, "micro_batch_size": 1, "recompute": None} | more
    s = pm.search(NETWORKS["gpt"][0], **asked)
    assert s.left_out
    assert len(s) + sum(s.refused.values()) == s.layout_count > s.evaluated_count == len(s.layouts)
    shown = str(s)
    assert f"{s.layout_count:,} layouts" in shown
    assert all(f"{s.refused[argument]:,} by {argument}" in shown for argument in s.left_out)
    # the rules of a program change neither which layouts there are nor how many
    plain = load_without_program(framework)
    assert pm.search(NETWORKS["gpt"][0], **asked | {"framework": plain}).layout_count == s.layout_count


def load_without_program(name):
    return pm.load_framework(name).model_copy(update={"program": None})


def test_every_program_of_a_framework_has_a_command():
    assert {*get_args(get_args(FrameworkProfile.model_fields["program"].annotation)[0])} == {*PROGRAMS} == {*CHECKS}


@pytest.mark.parametrize(
    ("framework", "asked", "argument"),
    [
        ("megatron_core", {"context_size": 4, "context_method": "all_to_all"}, "context_size"),
        ("megatron_core", {"dtype": "tf32"}, "dtype"),
        ("torchtitan", {"context_size": 2, "tensor_size": 2}, "context_size"),
        ("torchtitan", {"dtype": "fp16"}, "dtype"),
    ],
)
def test_layouts_that_are_asked_for_are_found_and_have_no_command(framework, asked, argument):
    s = pm.search(NETWORKS["odd"][0], framework=framework, **JOB, micro_batch_size=1, **asked)
    with pytest.raises(ArgumentError, match=f"^{argument} must be .* for {FRAMEWORKS.get(framework, framework)}") as no:
        s.best.command(FRAMEWORKS.get(framework, framework))
    assert f"starts none of these layouts: {argument} must be {no.value.allowed}" in " ".join(s.notes)


STATED = {
    "torchtitan": [
        {"no_sync": False},
        {"context_size": 1},
        {"sequence_parallel": False},
        {"shard_stage": [0, 1]},
        {"gradient_dtype": ["fp32", "bf16"]},
        {"context_size": [2, 4], "shard_stage": 3, "shard_group": [2, 8]},
    ],
    "megatron_core": [
        {"accumulation_steps": 2},
        {"schedule": "gpipe"},
        {"dtype": ["bf16", "tf32"]},
        {"dtype": ["bf16", "fp32"], "gradient_dtype": ["fp32", "bf16"]},
    ],
}
"""What a user may state that a program starts with some layouts, and not with others."""


@pytest.mark.parametrize(("framework", "asked"), [(name, each) for name, many in STATED.items() for each in many])
def test_a_stated_argument_leaves_the_layouts_that_a_program_starts(framework, asked):
    program = FRAMEWORKS.get(framework, framework)
    s = pm.search(NETWORKS["gpt"][0], framework=framework, **JOB, micro_batch_size=[1, 2], recompute=None, **asked)
    assert s.left_out
    assert not any("starts none" in note for note in s.notes)
    for rank in range(len(s)):
        assert s.found(rank).command(program)
    assert s.to_dict()["left_out"] == s.left_out


def test_each_framework_of_a_list_has_the_rules_of_its_program():
    alone = ["torchtitan", "megatron_core", "pytorch_2"]
    asked = JOB | {"micro_batch_size": 1, "recompute": None, "sync": "all_reduce", "no_sync": False}
    found = {name: pm.search(NETWORKS["gpt"][0], framework=name, **asked) for name in alone}
    together = pm.search(NETWORKS["gpt"][0], framework=alone, **asked)
    assert together.layout_count == sum(each.layout_count for each in found.values())
    counts = sum((Counter(each.left_out) for each in found.values()), Counter())
    assert dict(together.left_out) == counts
    assert found["torchtitan"].left_out != found["megatron_core"].left_out
    assert not found["pytorch_2"].left_out
    for name, each in found.items():
        steps = [row.step_s for row in together.rows if row.framework == name]
        assert steps == pytest.approx([row.step_s for row in each.rows], rel=1e-12)


def test_stated_passes_keep_what_one_stage_makes_of_them():
    s = pm.search(NETWORKS["gpt"][0], framework="megatron_core", **JOB, recompute=None, accumulation_steps=2)
    assert {(row.stages, row.accumulation_steps) for row in s.rows} == {(1, 2)}


@pytest.mark.parametrize("framework", ["torchtitan", "megatron_core"])
def test_a_network_without_blocks_has_no_command_of_a_pipeline(framework):
    how = {"system": "dgx_h100", "global_batch_size": 64, "framework": framework, "micro_batch_size": 8}
    program = FRAMEWORKS.get(framework, framework)
    s = pm.search(pm.zoo.vgg16(), **how)
    assert {row.stages for row in s.rows} == {1}
    assert s.left_out["stages"] > 0
    assert s.best.command(program)
    cut = pm.search(pm.zoo.vgg16(), **how, stages=2)
    assert any("starts none of these layouts: stages must be 1 " in note for note in cut.notes)
    with pytest.raises(ArgumentError, match=r"^stages must be 1 .* blocks"):
        cut.best.command(program)


def test_torchtitan_has_no_more_stages_than_blocks_and_ends():
    shallow = pm.zoo.gpt(layers=2, width=256, heads=4, sequence_length=256, vocabulary=512)
    how = {"system": "dgx_h100", "global_batch_size": 16, "framework": "torchtitan", "tensor_size": 1}
    four, eight = (pm.search(shallow, **how, stages=stages, schedule="1f1b") for stages in (4, 8))
    assert "pipeline_parallel_first_stage_less_layers 1" in four.best.command("torchtitan")
    with pytest.raises(ArgumentError, match=r"^stages must be such that"):
        eight.best.command("torchtitan")
