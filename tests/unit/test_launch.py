"""Commands of training programs: each starts what is predicted, or says why it cannot."""

import itertools
import math

import pytest

import perfmodel as pm
from perfmodel.errors import ArgumentError
from perfmodel.planning.search.programs.registry import launch_command
from perfmodel.planning.search.programs.torchtitan import RULES, _cuts
from perfmodel.prediction.job.job import Job

GRAPH = pm.zoo.gpt(layers=4, width=1024, heads=16, sequence_length=2048, vocabulary=16_384)


def flags_of(program, *, devices_per_machine=8, **asked):
    job = Job(GRAPH, **{"system": "dgx_h100", "global_batch_size": 32, "parallelism": "pipeline", "dtype": "bf16",
                        "framework": "megatron_core", "workers": 4, **asked})  # fmt: skip
    return launch_command(job, program, devices_per_machine=devices_per_machine).replace(" \\\n  ", " ") + " "


@pytest.mark.parametrize(
    ("asked", "megatron", "torchtitan"),
    [
        ({}, "--bf16", "mixed_precision_param bfloat16"),
        ({"dtype": "fp32"}, "--seq-length 2048 --overlap", "mixed_precision_param float32"),
        ({"dtype": "fp8"}, "--bf16 --fp8-format hybrid", "bfloat16 --model.converters quantize.linear.float8"),
        ({"dtype": "fp16"}, "--fp16", "dtype must be 'bf16' or 'fp32' or 'fp8' for torchtitan"),
        ({"dtype": "tf32"}, "dtype must be 'bf16' or", "dtype must be 'bf16' or"),
        ({"gradient_dtype": "bf16"}, "--grad-reduce-in-bf16", "gradient_dtype must be None or 'fp32'"),
        ({"gradient_dtype": "fp16"}, "gradient_dtype must be None or 'fp32' or 'bf16'", "gradient_dtype must be"),
        ({"recompute": 2}, "--recompute-method block --recompute-num-layers 2", "recompute must be None or 'full'"),
        ({"workers": 2, "tensor_size": 2}, "--tensor-model-parallel-size 2", "sequence_parallel must be True"),
    ],
)  # fmt: skip
def test_commands_start_what_is_predicted_or_say_why_not(asked, megatron, torchtitan):
    for program, said in (("megatron", megatron), ("torchtitan", torchtitan)):
        try:
            text = flags_of(program, **asked)
        except ArgumentError as error:
            text = str(error)
        assert said in text


def test_no_block_that_runs_again_has_no_flags():
    for program in ("megatron", "torchtitan"):
        assert flags_of(program, recompute=0) == flags_of(program)


def test_machines_start_equally_many_processes():
    assert "--nnodes 2 --nproc-per-node 2 " in flags_of("megatron", devices_per_machine=2)
    with pytest.raises(ArgumentError, match="devices must be a multiple of 3, as torchrun starts equally many"):
        flags_of("megatron", devices_per_machine=3)


def stages_of_torchtitan(text, *, blocks, stages):
    """Blocks of each stage as torchtitan makes them of its flags, or None if it refuses them."""
    flags = dict(
        pair.split(" ", 1) for pair in text.strip().split(" --parallelism.pipeline_parallel_")[1:] if " " in pair
    )
    first, last = (int(flags[f"{end}_stage_less_layers"].split()[0]) for end in ("first", "last"))
    shared = blocks + first + last
    if "layers_per_stage" in flags:
        count = math.ceil(shared / int(flags["layers_per_stage"].split()[0]))
    else:
        count = stages * (2 if "Interleaved1F1B" in text else 1)
    each, more = divmod(shared, count)
    if count % stages or max(first, last) > each:
        return None
    cut = [each + (place < more) for place in range(count)]
    return [cut[0] - first, *cut[1:-1], cut[-1] - last]


@pytest.mark.parametrize(
    ("asked", "cut"),
    [
        ({"stage_cut": "even_blocks"}, [2, 2]),
        ({"stage_cut": "balanced"}, [3, 1]),
        ({"schedule": "interleaved", "interleave": 2, "stage_cut": "even_blocks"}, [1, 1, 1, 1]),
    ],
)  # fmt: skip
def test_torchtitan_cuts_pipelines_where_the_layout_does(asked, cut):
    text = flags_of("torchtitan", **{"framework": "torchtitan", "workers": 2, "stages": 2, "micro_batches": 4, **asked})
    assert stages_of_torchtitan(text, blocks=4, stages=2) == cut


@pytest.mark.parametrize("blocks", [32, 30, 80, 81])
@pytest.mark.parametrize("chunks_each", [1, 2, 3, 4])
@pytest.mark.parametrize("stages", [2, 4, 8])
def test_torchtitan_makes_as_many_stages_as_the_layout(blocks, stages, chunks_each):
    count = stages * chunks_each
    each, more = divmod(blocks, count)
    layout = [each + (place < more) for place in range(count)]
    schedule = f" --parallelism.pipeline_parallel_schedule {'1F1B' if chunks_each == 1 else 'Interleaved1F1B'} "

    def made_of(flags):
        text = schedule + " ".join(f"{name} {value}" for name, value in flags)
        return stages_of_torchtitan(text, blocks=blocks, stages=stages)

    refuses = next(rule.refuses for rule in RULES if rule.argument == "interleave")
    if refuses({"block_count": blocks, "stages": stages, "interleave": chunks_each}):
        names = ("first_stage_less_layers", "last_stage_less_layers", "layers_per_stage")
        tried = itertools.product(range(each + 2), range(each + 2), range(1, each + 3))
        cuts = (
            made_of(
                (f"--parallelism.pipeline_parallel_{name}", value) for name, value in zip(names, values, strict=True)
            )
            for values in tried
        )
        assert count not in {len(cut) for cut in cuts if cut is not None}
        return
    made = made_of(_cuts(layout, chunks_each=chunks_each))
    assert (len(made), sum(made)) == (count, blocks)
    if chunks_each <= 2:  # else the number of stages has to follow from the blocks of one
        assert made == layout
