"""Sequences shared by several devices: work, memory, messages and step of ring attention and of exchanged heads."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import perfmodel as pm
from perfmodel import layers as nn
from perfmodel.cli.app import app
from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.framework.lowering import lower
from perfmodel.kernels import Stream
from perfmodel.records import Attention, Phase
from perfmodel.zoo.mixtures import mixture
from placed_networks import place
from tests.lowering_rules import PLAIN, changed

S, H, LAYERS, HEADS = 1024, 512, 4, 8
GPT = pm.zoo.gpt(layers=LAYERS, width=H, heads=HEADS, sequence_length=S, vocabulary=1024)
JOB = {"batch_size": 4, "system": "dgx_a100", "dtype": "bf16", "framework": "pytorch_2", "optimizer": "adam",
       "sync": "all_reduce"}  # fmt: skip
METHODS = ("ring", "all_to_all", "gather")
LAYOUTS = (
    {"context_size": 2},
    {"context_size": 2, "workers": 2},
    {"context_size": 2, "parallelism": "tensor", "tensor_size": 2},
    {"context_size": 2, "parallelism": "tensor", "tensor_size": 2, "sequence_parallel": True},
    {
        "context_size": 2,
        "parallelism": "pipeline",
        "stages": 2,
        "micro_batches": 2,
        "tensor_size": 2,
        "phase": "forward",
    },
    {"context_size": 4, "recompute": 2, "shard_stage": 1},
)


def part_of(graph=GPT, method="ring", size=4, **sizes):
    (stage,) = place(graph, workers=size, context_size=size, context_method=method, element_bytes=2, **sizes).stages
    return stage


def product_flop(graph, *, attention):
    """FLOP of products by a mask that leaves half of the scores."""
    total = 0
    for _, each in graph.operations(batch_size=1, phase="forward_backward"):
        if isinstance(each, Attention) == attention:
            # of the scores of q queries and as many keys, a causal mask leaves (q + 1) / (2 q)
            share = (each.keys + 1) / (2 * each.keys) if attention and each.causal else 1
            total += share * each.product_flop_count
    return total


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [2, 4])
def test_devices_of_a_group_divide_the_work_and_the_kept_activations(method, size):
    part = part_of(method=method, size=size).graph
    assert part.parameter_count == GPT.parameter_count
    assert size * product_flop(part, attention=False) == product_flop(GPT, attention=False)
    # blocks off the diagonal are whole: half a score of each query and block less
    assert size * product_flop(part, attention=True) == pytest.approx(product_flop(GPT, attention=True), rel=size / S)
    kept, whole = (graph.kept_bytes(dtype="bf16") for graph in (part, GPT))
    own_copies = 0
    if method == "all_to_all":  # attention's result is kept twice: by heads, and by positions for the next product
        own_copies = LAYERS * 2 * S * H / size
    assert kept == pytest.approx(whole / size + own_copies, rel=1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_groups_send_their_own_positions_to_experts(method):
    """Every position chooses its experts alone: a device runs its share of the products, with all experts' weights."""
    sizes = {"sequence_length": 256, "layers": 2, "width": 256, "heads": 4, "vocabulary": 512}
    mixed = mixture("mixed", **sizes, expert_units=128, experts=4, chosen=2, shared=1)
    part = part_of(mixed, method=method).graph
    assert part.parameter_count == mixed.parameter_count
    assert 4 * product_flop(part, attention=False) == product_flop(mixed, attention=False)
    # of 256 positions two experts each, of 64 as many, all routed on the device
    rows = [graph.operations(batch_size=8, phase="forward") for graph in (mixed, part)]
    of_experts = [{each.m for _, each in pairs if getattr(each, "count", 1) == 4} for pairs in rows]
    assert of_experts == [{8 * 256 * 2 // 4}, {8 * 64 * 2 // 4}]
    with pytest.raises(ArgumentError, match=r"'block1_attention' \(latent_attention\) needs the whole sequence"):
        part_of(mixture("latent", **sizes, expert_units=128, experts=4, chosen=2, shared=1, latent=32, query_latent=64,
                        head_size=64, rotary_size=32, value_size=64))  # fmt: skip


def test_messages_are_those_of_the_papers():
    ulysses, ring = (
        [each for each in part_of(method=method).exchanges if each.group == "context"] for method in METHODS[1::-1]
    )
    # Jacobs et al., arXiv:2309.14509, section 3.2: 4 N h / P a layer forward, three quarters of it before attention
    forward = [each.bytes_per_sample for each in ulysses if each.phase is Phase.FORWARD]
    assert forward == [3 * 2 * S * H // 4, 2 * S * H // 4] * LAYERS
    assert sum(each.bytes_per_sample for each in ulysses) == 2 * sum(forward)
    # keys and values of all devices pass each one; going back, their gradients pass with them
    assert [each.bytes_per_sample for each in ring] == [2 * 2 * S * H] * LAYERS + [4 * 2 * S * H] * LAYERS
    shared = pm.zoo.llama(size="llama3_8b", layers=1, sequence_length=64)
    (there, back) = (each for each in part_of(shared, size=8).exchanges if each.group == "context")
    assert there.bytes_per_sample == 2 * 2 * 64 * 8 * 128 == back.bytes_per_sample // 2  # eight heads of keys of 32


def test_gathered_keys_and_values_are_those_of_the_llama_3_paper():
    # section 3.3.2: keys and values of all positions before attention, whose queries stay; and, back, their gradients
    llama = pm.zoo.llama(size="llama3_8b", layers=1, sequence_length=64)
    there, *back = (each for each in part_of(llama, method="gather", size=8).exchanges if each.group == "context")
    whole = 2 * 2 * 64 * 8 * 128
    assert (there.kind, there.bytes_per_sample) == ("all_gather", whole)
    assert [(each.kind, each.bytes_per_sample) for each in back] == [("all_gather", whole), ("reduce_scatter", whole)]
    shapes, sizes = ((8, 256, 64), (2, 256, 64), (2, 256, 64)), {"element_bytes": 2, "wanted": (True,) * 3}
    gathered, alone = (
        nn.ScaledDotProductAttention(causal=True, **how).backward_scratch_bytes(shapes, batch_size=3, **sizes)
        for how in ({"ring": 4, "gathered": True}, {})
    )
    # all keys and values of four devices, of 2 heads each, and their gradients
    assert gathered - alone == 2 * 4 * (2 * 3 * 2 * 256 * 64) * 2
    # nothing hides them
    prepared = pm.Job(GPT, **JOB, context_size=4, context_method="gather").prepared
    work, (stage,) = prepared.step().composed.stages[0], prepared.stages
    sent_s = [prepared.exchanges(each, each.size_bytes(4), stage.placed) for each in stage.placed.exchanges
              if each.group == "context"]  # fmt: skip
    assert len(sent_s) == 3 * LAYERS
    assert sum(work.group_s) == pytest.approx(sum(sent_s), rel=1e-12)


def test_a_ring_has_room_for_the_keys_and_values_of_others():
    shapes, sizes = ((8, 256, 64), (2, 256, 64), (2, 256, 64)), {"element_bytes": 2, "wanted": (True,) * 3}
    ring, alone = (
        nn.ScaledDotProductAttention(causal=True, ring=ring).backward_scratch_bytes(shapes, batch_size=3, **sizes)
        for ring in (4, 1)
    )
    # those that are read, those that arrive and the gradients of the first: keys and values of 2 heads each
    assert ring - alone == 3 * (2 * 3 * 2 * 256 * 64) * 2


@pytest.mark.parametrize(("method", "shares"), [("ring", (1, 2)), ("gather", (1, 1, 1))])
def test_software_that_copies_keys_for_all_heads_passes_the_copies_on(method, shares):
    """torchtitan's repeat_kv comes before attention: 4 heads of queries share a head of keys of 64 features."""
    sizes = {"layers": 1, "width": 512, "heads": 8, "key_heads": 2, "sequence_length": 256, "vocabulary": 64}
    graph, how = pm.zoo.llama(**sizes), {"context_size": 4, "context_method": method}
    copying, sharing = (
        pm.Job(graph, **JOB | how | {"framework": framework}).prepared for framework in ("torchtitan", "pytorch_2")
    )
    keys_and_values = 2 * 2 * 256 * 64  # of one head and all positions, 2 B each
    for prepared, heads in ((copying, 8), (sharing, 2)):
        (stage,) = prepared.stages
        sent = [each.bytes_per_sample for each in stage.placed.exchanges if each.group == "context"]
        assert sent == [share * heads * keys_and_values for share in shares]
    part, rules = copying.stages[0].placed.graph, changed(PLAIN, key_heads="repeated")
    passes = [
        kernel.efficiency
        for _, each in part.operations(batch_size=1, phase="forward_backward")
        if isinstance(each, Attention)
        for kernel in lower(each, rules=rules, element_bytes=2, processor="gpu")[0].kernels
        if isinstance(kernel, Stream) and "broadcast" in kernel.efficiency
    ]
    assert passes == ["broadcast"] * 2 + ["broadcast_sum_backward"] * 2  # of a device's own keys and values, once


def test_copies_of_keys_take_their_room_in_a_ring():
    shapes, sizes = ((8, 256, 64), (2, 256, 64), (2, 256, 64)), {"batch_size": 3}
    own, copied = (nn.ScaledDotProductAttention(ring=4, passes_copies=copies) for copies in (False, True))
    assert own.passed_elements(shapes, **sizes) == 2 * 3 * 2 * 256 * 64
    assert copied.passed_elements(shapes, **sizes) == 4 * own.passed_elements(shapes, **sizes)
    (first, *others, _, _, _) = copied.forward_operations(shapes, **sizes)
    heads = [each.key_heads for each in (first, *others) if isinstance(each, Attention)]
    assert heads == [2, 8, 8, 8]
    gathered = nn.ScaledDotProductAttention(ring=4, gathered=True, passes_copies=True)
    keys = [(each.key_heads, each.keys) for each in gathered.forward_operations(shapes, **sizes)
            if isinstance(each, Attention)]  # fmt: skip
    assert keys == [(2, 256), (8, 3 * 256)]


@pytest.mark.parametrize("method", METHODS)
def test_rings_hide_behind_attention_and_exchanged_heads_do_not(method):
    job = JOB | {"system": "survey_fig6", "dtype": "fp32", "context_size": 4, "context_method": method}
    prepared = pm.Job(GPT, **job).prepared
    ((stage,), timed) = (prepared.stages, prepared.step())
    work = timed.composed.stages[0]
    for phase, exposed_s in zip((Phase.FORWARD, Phase.BACKWARD), work.group_s, strict=True):
        sent = [each for each in stage.placed.exchanges if (each.group, each.phase) == ("context", phase)]
        message_s = sum(prepared.exchanges(each, each.size_bytes(4), stage.placed) for each in sent)
        hidden_s = 0.0
        if method == "ring":
            table, seconds = stage.lowered.table, timed.stages[0].operations_s
            blocks = [
                seconds([each.group])
                for each in table.occurrences
                if each.phase is phase and table.operation_kinds[each.group] == Attention.kind
            ]
            assert len(blocks) == 4 * LAYERS
            hidden_s = 3 / 4 * sum(blocks)
        assert message_s > 0
        assert exposed_s == pytest.approx(max(message_s - hidden_s, 0), rel=1e-9)
    assert work.group_s[0] > 0


def test_gradients_are_added_up_over_data_and_context():
    data, both, context = (
        pm.predict(GPT, **JOB, workers=workers, context_size=size) for workers, size in ((4, 1), (2, 2), (1, 4))
    )
    assert both.sync_s - both.basis.timed.composed.stages[0].exchanged_s == pytest.approx(data.sync_s, rel=1e-9)
    assert both.memory.weights_bytes == context.memory.weights_bytes == data.memory.weights_bytes
    assert [each.samples_per_s * each.step_s for each in (data, both, context)] == pytest.approx([16, 8, 4])
    sharded, alike = (pm.predict(GPT, **JOB, workers=w, context_size=c, shard_stage=1) for w, c in ((4, 1), (1, 4)))
    assert alike.memory.optimizer_bytes == sharded.memory.optimizer_bytes < data.memory.optimizer_bytes / 3


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_the_played_step_is_the_composed_one(layout, method):
    p = pm.predict(GPT, **JOB, **layout, context_method=method)
    # gradients of two stages meet on links, which the closed form leaves out, with workers as with shared sequences
    assert p.play(2).makespan_s - p.play(1).makespan_s == pytest.approx(p.step_s, rel=1e-9)


def test_groups_are_neighbours_inside_a_stage():
    prepared = pm.Job(
        GPT, **JOB, parallelism="pipeline", stages=2, micro_batches=2, tensor_size=2, context_size=2
    ).prepared
    names = [name for name, _ in prepared.target.system_part.system.devices]
    found = {}
    for stage in prepared.stages:
        for each in stage.placed.exchanges:
            found[each.group, stage.placed.device, each.phase] = prepared.exchanges._groups(each, stage.placed)
    assert found["tensor", 0, Phase.FORWARD] == tuple((names[i], names[i + 1]) for i in (0, 4, 2, 6))
    assert set(found["context", 0, Phase.FORWARD]) == {(names[i], names[i + 2]) for i in (0, 1, 4, 5)}
    assert set(found["pipeline", 0, Phase.FORWARD]) == {(names[i], names[i + 4]) for i in range(4)}
    assert set(found["data", 1, Phase.BACKWARD]) == {(names[4], names[6]), (names[5], names[7])}


def test_what_cannot_be_shared_is_refused_with_the_way_out():
    for options, field, words in (
        ({"context_size": 3}, "context_size", "divisor of the positions"),
        ({"context_size": 2, "sync": "none"}, "context_size", "sync='none'"),
        ({"context_size": 2, "sync": "parameter_server"}, "context_size", "add up all their gradients"),
        ({"context_size": 16}, "workers x stages x tensor_size x context_size", "at most 8"),
        ({"context_method": "all_to_all"}, "context_method", "'ring' with context_size=1"),
    ):
        with pytest.raises(ArgumentError, match=words) as caught:
            pm.predict(GPT, **JOB | options)
        assert str(caught.value).startswith(field)
    three_heads = pm.zoo.gpt(layers=1, width=48, heads=3, sequence_length=16, vocabulary=32)
    with pytest.raises(ArgumentError, match="'ring', or context_size a divisor of the 3 heads"):
        pm.predict(three_heads, **JOB, context_size=2, context_method="all_to_all")
    with pytest.raises(ArgumentError, match="divisor of the positions"):
        pm.predict(pm.zoo.resnet18(), **JOB, context_size=2)
    with pytest.raises(UnknownNameError, match="all_to_all"):
        pm.predict(GPT, **JOB, context_size=2, context_method="alltoall")


@pytest.mark.parametrize("method", METHODS)
def test_formulas_comparisons_and_scaling_follow(method):
    job = JOB | {"system": "survey_fig6", "dtype": "fp32", "context_size": 2, "context_method": method}
    closed = pm.formula("step_s", graph=GPT, **job, workers=2, free="batch_size")
    assert closed(batch_size=8) == pytest.approx(pm.predict(GPT, **job | {"batch_size": 8}, workers=2).step_s, rel=1e-9)
    with pytest.raises(ArgumentError, match="left out with context_size"):
        pm.formula("step_s", graph=GPT, **job, free="workers")
    alone, two = (pm.predict(GPT, **job, workers=workers) for workers in (1, 2))
    assert "context_method" not in str(pm.compare(alone, two))
    assert "context_size" in str(pm.compare(alone, pm.predict(GPT, **job | {"context_size": 4})))
    (row,) = pm.scaling(GPT, **{name: value for name, value in job.items() if name != "sync"}, sync=["all_reduce"],
                        workers=[2]).rows  # fmt: skip
    assert row.speedup == pytest.approx(two.samples_per_s / alone.samples_per_s, rel=1e-9)


def test_sweeps_and_the_command_line_take_both():
    axes = {"workers": [1, 2], "context_size": [1, 2], "context_method": list(METHODS)}
    answered = [row for row in pm.sweep(GPT, **JOB, **axes).rows if np.isfinite(row.step_s)]
    assert len(answered) == 2 + 2 * len(METHODS)
    for row in answered:
        how = {name: getattr(row, name) for name in axes}
        assert row.step_s == pytest.approx(pm.predict(GPT, **JOB, **how).step_s, rel=1e-12)
    typed = "predict gpt --system dgx_a100 --batch-size 1 --sync all_reduce --context-size 2 --json"
    printed = json.loads(CliRunner().invoke(app, typed.split(), catch_exceptions=False).output)
    own = pm.predict(pm.zoo.gpt(), system="dgx_a100", batch_size=1, sync="all_reduce", context_size=2)
    assert printed["step_s"] == pytest.approx(own.step_s, rel=1e-12)
