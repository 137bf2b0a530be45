"""Software beside Megatron-LM: whole scores on each device, sums one by one and at the end, stages of equal modules."""

from dataclasses import replace

import pytest

import perfmodel as pm
from perfmodel.errors import ArgumentError
from perfmodel.framework.profile import load_framework
from perfmodel.parallelism.base import TensorHabits
from perfmodel.parallelism.tensor_split import tensor_split
from perfmodel.records import Phase

SIZES = {"layers": 4, "width": 1024, "heads": 8, "intermediate": 2816, "sequence_length": 512, "vocabulary": 32_000}
LLAMA = pm.zoo.llama(**SIZES, key_heads=8)
ATTENTION = "block1_attention"
JOB = {"batch_size": 16, "system": "dgx_a100_80", "dtype": "bf16", "optimizer": "adamw", "sync": "all_reduce"}
GROUP = {"parallelism": "pipeline", "workers": 4, "tensor_size": 2}


def exchanges(habits, phase):
    stage = tensor_split(LLAMA, tensor_size=2, element_bytes=2, habits=habits)
    return [each for each in stage.exchanges if each.phase is phase], stage


def test_scores_of_all_words_are_gathered_and_the_loss_is_whole():
    gathered, stage = exchanges(TensorHabits(gathers_scores=True), Phase.FORWARD)
    (scores,) = [each for each in gathered if each.kind == "all_gather"]
    assert scores.bytes_per_sample == 2 * 512 * 32_000
    loss = stage.graph.layers[-1]
    assert loss.input_shapes[0] == (512, 32_000)
    divided, own = exchanges(TensorHabits(), Phase.FORWARD)
    assert own.graph.layers[-1].input_shapes[0] == (512, 16_000)
    assert {each.kind for each in divided} == {"all_reduce"}
    assert len(divided) == len(gathered)  # the sums of the loss over its classes against the scores
    assert stage.graph.parameter_count == own.graph.parameter_count


def test_a_gate_and_its_units_each_sum_their_input_gradient():
    together, _ = exchanges(TensorHabits(), Phase.BACKWARD)
    apart, _ = exchanges(TensorHabits(sums_gates_apart=True), Phase.BACKWARD)
    assert len(together) == 2 * 4 + 1  # of attention and the feed-forward part of each block, and of the head
    assert len(apart) == len(together) + 4
    plain = pm.zoo.gpt(layers=4, width=64, heads=4, sequence_length=16, vocabulary=64)
    for habits in (TensorHabits(), TensorHabits(sums_gates_apart=True)):
        split = tensor_split(plain, tensor_size=2, element_bytes=2, habits=habits)
        assert sum(each.phase is Phase.BACKWARD for each in split.exchanges) == 2 * 4 + 1


def test_the_profile_says_so_and_every_exchange_is_longer():
    composed, core = (load_framework(name).exchange for name in ("megatron_composed", "megatron_core"))
    said = (composed.scores, composed.gate_sums, composed.gradients, composed.sums_in, composed.shared_sums)
    assert said == ("gathered", "each", "afterwards", "fp32", "whole")
    assert (core.scores, core.gate_sums, core.gradients, core.sums_in) == ("divided", "together", "meanwhile", None)
    slow, fast = (pm.predict(LLAMA, framework=name, **JOB, **GROUP) for name in ("megatron_composed", "megatron_core"))
    assert slow.sync_s > 1.25 * fast.sync_s


def test_gradients_are_summed_in_fp32_behind_the_backward_phase():
    job = pm.Job(LLAMA, framework="megatron_composed", workers=8, shard_stage=1, parallelism="data", **JOB)
    prepared = job.prepared
    assert (prepared.gradient_bytes, prepared.exchanged_bytes) == (2, 4)
    p = job.predict()
    assert p.exposed_sync_s == pytest.approx(p.sync_s)  # nothing hides it
    assert p.memory.gradients_bytes < 3 * LLAMA.parameter_count
    # sums in 4 B to every worker, and parameters in 2 B from each: a ring moves 2 (n - 1) / n and (n - 1) / n of them
    rate = (2 * 4 + 2) * 7 / 8 * LLAMA.parameter_count / p.sync_s
    assert 100e9 < rate < 300e9  # NVLink of A100: 300 GB/s each way
    hidden = pm.predict(LLAMA, framework="megatron_core", workers=8, shard_stage=1, parallelism="data", **JOB)
    assert hidden.exposed_sync_s < 0.7 * p.exposed_sync_s


def test_stages_have_as_many_modules_the_table_and_the_head_among_them():
    how = {"framework": "megatron_composed", "parallelism": "pipeline", "micro_batches": 4, **JOB}
    stages = pm.Job(LLAMA, stages=2, stage_cut="even_modules", **how).prepared.stages
    names = [[node.name for node in stage.placed.graph.layers] for stage in stages]
    # table, 4 blocks, last norm and head are 7 modules: the first stage has one more
    assert [sum(name.endswith("_mlp_add") for name in each) for each in names] == [3, 1]
    with pytest.raises(ArgumentError, match="7 modules do not make 8 stages"):
        pm.predict(LLAMA, stages=8, stage_cut="even_modules", **how)


def test_both_ends_count_as_a_block_each():
    """As in Llama 3.1 405B, whose 126 blocks are in 16 stages of 8 chunks: first and last chunk have none."""
    how = {"framework": "torchtitan", "parallelism": "pipeline", "micro_batches": 3, **JOB, "batch_size": 3}
    stages = pm.Job(LLAMA, stages=3, stage_cut="counted_ends", **how).prepared.stages
    names = [[node.name for node in stage.placed.graph.layers] for stage in stages]
    assert [sum(name.endswith("_mlp_add") for name in each) for each in names] == [1, 2, 1]
    six = pm.Job(LLAMA, stages=3, interleave=2, schedule="interleaved", stage_cut="counted_ends", **how).prepared.stages
    assert [sum(node.name.endswith("_mlp_add") for node in each.placed.graph.layers) for each in six] == [
        0,
        1,
        1,
        1,
        1,
        0,
    ]
    with pytest.raises(ArgumentError, match="6 blocks and ends do not make 8 stages"):
        pm.predict(LLAMA, stages=8, stage_cut="counted_ends", **how)


def test_scores_of_attention_are_cast_scaled_masked_and_normalised_in_fp32():
    graph = pm.zoo.llama(**SIZES, key_heads=8, attention="materialised")
    one = {"batch_size": 1, "device": "a100_80_sxm", "dtype": "bf16", "phase": "forward"}
    wide, narrow = (
        sum(row.bytes for row in pm.predict(graph, framework=name, **one).layers if row.layer == ATTENTION)
        for name in ("megatron_composed", "megatron_core")
    )
    # cast 2 + 4 B, scale, mask and softmax 8 B each, cast 4 + 2 B, where three passes of 4 B are without fp32; the mask
    # is read wide too
    scores, mask = 8 * 512 * 512, 512 * 512
    assert wide - narrow == pytest.approx(scores * (6 + 3 * 8 + 6 - 3 * 4) + 2 * mask, rel=1e-9)


PIPELINE = GROUP | {"stages": 2, "micro_batches": 4, "batch_size": 16, "workers": 2}
PIPELINE |= {"system": "dgx_a100_80", "sync": "all_reduce"}


@pytest.mark.parametrize("framework", ["megatron_core", "megatron_composed"])
@pytest.mark.parametrize("layout", [{"batch_size": 4, "device": "a100_80_sxm"}, PIPELINE], ids=["one", "pipeline"])
def test_full_recomputation_is_that_of_a_network_whose_blocks_are_checkpointed(framework, layout):
    job = {"framework": framework, "dtype": "bf16", "optimizer": "adamw", **layout}
    sizes = {"layers": 8, "width": 512, "heads": 8, "sequence_length": 512, "vocabulary": 4096}
    asked = pm.predict(pm.zoo.gpt(**sizes), recompute="full", **job)
    marked = pm.predict(pm.zoo.gpt(**sizes, checkpointed=True), **job)
    assert asked.step_s == pytest.approx(marked.step_s, rel=1e-12)
    assert asked.memory.total_bytes == pytest.approx(marked.memory.total_bytes, rel=1e-12)
    assert asked.hfu == pytest.approx(marked.hfu, rel=1e-12)
    assert pm.predict(pm.zoo.gpt(**sizes), recompute="blocks", **job).step_s == asked.step_s
    if "stages" not in layout:
        counted = pm.predict(pm.zoo.gpt(**sizes), recompute=8, **job)  # all of its blocks
        assert counted.step_s == pytest.approx(asked.step_s, rel=1e-12)


def test_torch_that_stops_early_runs_less_again_than_megatron():
    job = {"batch_size": 4, "device": "a100_80_sxm", "dtype": "bf16", "framework": "pytorch_2"}
    early, whole = (pm.predict(LLAMA, recompute=how, **job) for how in ("full", "blocks"))
    assert whole.step_s > 1.03 * early.step_s  # without the last products of attention and of the feed-forward part
    assert whole.memory.activations_bytes < early.memory.activations_bytes  # one input of a block kept, not two
    with pytest.raises(ArgumentError, match="block numbers"):
        pm.predict(pm.zoo.alexnet(), batch_size=2, device="a100_80_sxm", recompute="blocks")


def test_of_a_gated_unit_megatron_keeps_gate_and_units_only():
    layers, tokens, units = SIZES["layers"], 512, SIZES["intermediate"]
    plain = pm.zoo.gpt(layers=4, width=256, heads=4, sequence_length=512, vocabulary=1000)

    def kept(graph, framework):
        prepared = pm.Job(graph, batch_size=2, device="a100_80_sxm", dtype="bf16", framework=framework).prepared
        rules = prepared.stages[0].lowered.memory(graph).rules
        return graph.liveness(rules=rules).kept[1], graph.liveness(rules=replace(rules, fuses_gates=False)).kept[1]

    fused, apart = kept(LLAMA, "megatron_core")
    assert apart - fused == 2 * layers * tokens * units  # SiLU's result in bf16
    assert kept(LLAMA, "megatron_composed")[0] == kept(LLAMA, "megatron_composed")[1]
    assert kept(plain, "megatron_core")[0] == kept(plain, "megatron_core")[1]  # GELU's result is not multiplied
