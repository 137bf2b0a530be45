"""Stages of as many blocks each, as Megatron-LM cuts them, beside those that take as long as each other."""

import pytest

import perfmodel as pm
from perfmodel.errors import ArgumentError
from perfmodel.graph.execution import blocks_of

GPT = pm.zoo.gpt(layers=8, width=1024, heads=16, sequence_length=512, vocabulary=50_257)
JOB = {"batch_size": 32, "system": "dgx_a100", "dtype": "bf16", "framework": "pytorch_2",
       "parallelism": "pipeline", "stages": 4, "micro_batches": 4}  # fmt: skip


def blocks(**how):
    return [blocks_of(stage.placed.graph.layers) for stage in pm.Job(GPT, **JOB | how).prepared.stages]


def test_every_stage_has_as_many_blocks_and_the_ends_have_the_rest():
    assert blocks(stage_cut="even_blocks") == [[f"block{2 * i + 1}", f"block{2 * i + 2}"] for i in range(4)]
    chunks = blocks(stage_cut="even_blocks", stages=2, schedule="interleaved", interleave=2, tensor_size=2)
    assert [len(each) for each in chunks] == [2, 2, 2, 2]
    assert [len(each) for each in blocks()] != [2, 2, 2, 2]


def test_a_large_head_makes_even_blocks_slower():
    even, balanced = (pm.predict(GPT, **JOB, stage_cut=how) for how in ("even_blocks", "balanced"))
    assert even.step_s > 1.05 * balanced.step_s
    seconds = [stage.computing_s for stage in even.stages]
    assert seconds[1] == pytest.approx(seconds[2], rel=1e-9)
    assert seconds[3] > 1.5 * seconds[2]


def test_blocks_that_cannot_be_shared_evenly_are_refused():
    for graph, how, words in (
        (GPT, {"stages": 3}, "divides the 8 numbered blocks"),
        (pm.zoo.alexnet(), {"stages": 2}, "numbered blocks"),
    ):
        with pytest.raises(ArgumentError, match=words):
            pm.predict(graph, **JOB | how, stage_cut="even_blocks")
    with pytest.raises(ArgumentError, match="'balanced' with stages=1"):
        pm.predict(GPT, batch_size=8, device="h100_sxm", stage_cut="even_blocks")
