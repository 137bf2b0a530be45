"""Stages of as many blocks each, as Megatron-LM cuts them, beside those of whole blocks that are the most even."""

import re

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


def layer_counts(graph, stages, **how):
    job = JOB | {"dtype": "fp32", "stages": stages} | how
    return [len(stage.placed.graph.layers) for stage in pm.Job(graph, **job).prepared.stages]


def chain(*names):
    """A network of layers of these names; those with ``act`` have no parameters."""
    graph = pm.LayerGraph("chain", input_shape=(512,))
    x = graph.input
    for name in names:
        x = graph.add(name, pm.layers.ReLU() if "act" in name else pm.layers.Dense(units=512), inputs=x)
    return graph


@pytest.mark.parametrize("graph", [GPT, pm.zoo.llama(), pm.zoo.bert(), pm.zoo.vit(), pm.zoo.resnet50()])
@pytest.mark.parametrize("stages", [2, 3, 7])
def test_no_balanced_stage_halves_a_block(graph, stages):
    job = pm.Job(graph, **JOB | {"dtype": "fp32", "system": "dgx_a100", "stages": stages})
    starts = [stage.placed.graph.layers[0].name for stage in job.prepared.stages][1:]
    names = [node.name for node in graph.layers]
    for start in starts:
        before = names[names.index(start) - 1]
        blocks_beside = [re.match(r"(stage\d+_)?block\d+", name) for name in (before, start)]
        assert None in blocks_beside or blocks_beside[0][0] != blocks_beside[1][0]


def test_networks_without_whole_blocks_are_cut_anywhere():
    """Blocks that skips join, one block that is the whole network, and none at all."""
    unet, skips = pm.zoo.unet(), {"batch_size": 16, "micro_batches": 4}
    one, two = (pm.predict(unet, **JOB | skips | {"dtype": "fp32", "stages": stages}) for stages in (1, 2))
    assert two.step_s < one.step_s
    assert layer_counts(pm.zoo.seq2seq(), 3) == [2, 4, 2]
    even = chain(*[f"0.{place}" for place in range(24)], "1.last")
    assert max(layer_counts(even, 2)) <= 14


@pytest.mark.parametrize("odd", ["fc1_act", "act_0.5"])
def test_numbers_inside_a_block_do_not_part_it(odd):
    graph = chain(*[f"block{block}_{layer}" for block in range(1, 4) for layer in ("fc_a", odd, "fc_b", "act_c")])
    assert layer_counts(graph, 2) in ([4, 8], [8, 4])
    assert layer_counts(graph, 3) == [4, 4, 4]
