"""Axes of a search beyond the first: shared sequences, groups that share state, cuts, types; and energy of all rows."""

import itertools
import math

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import ArgumentError, PerfmodelError
from perfmodel.graph.execution import blocks_of

GRAPH = pm.zoo.gpt(layers=4, width=1024, heads=16, sequence_length=2048, vocabulary=16_384)
JOB = {"system": "dgx_h100", "devices": 8, "global_batch_size": 16, "optimizer": "adamw", "framework": "megatron_core",
       "sync": "all_reduce"}  # fmt: skip
AXES = {"context_size": [1, 2, 4], "shard_group": [None, 2], "stage_cut": ["balanced", "even_blocks"],
        "no_sync": [False, True]}  # fmt: skip
LIMITS = {"tensor_size": 2, "interleave": 1, "micro_batch_size": 2}


@pytest.fixture(scope="module")
def found():
    return pm.search(GRAPH, **JOB, **AXES, limits=LIMITS)


def test_rows_with_shared_sequences_groups_and_cuts_are_predictions(found):
    rows, kinds = found.rows, {}
    for rank, row in enumerate(rows):
        kinds.setdefault((row.context_size, row.context_method, row.shard_group, row.stage_cut), []).append(rank)
    # a ring, heads or gathered keys by two sizes, with or without groups, with either cut; whole sequences likewise
    assert len(kinds) == (3 * 2 + 1) * 2 * 2
    random = np.random.default_rng(5)
    for ranks in kinds.values():
        for rank in {ranks[0], int(random.choice(ranks))}:
            p, row = found.found(rank).prediction, rows[rank]
            assert row.step_s == pytest.approx(p.step_s, rel=1e-12)
            assert row.memory_bytes == pytest.approx(p.memory.total_bytes, rel=1e-12)
            assert row.mfu == pytest.approx(p.mfu, rel=1e-12)
            assert p.job.device_count == row.workers * row.tensor_size * row.stages * row.context_size == 8
            assert p.counted_workers * p.batch_size == 16


def test_brute_force_over_predict_finds_the_same_best_of_all_axes():
    asked = {key: JOB[key] for key in ("system", "optimizer", "framework", "sync")}
    capacity = pm.load_device("h100_sxm").memory_capacity_bytes
    axes = {"context_size": (1, 2), "context_method": ("ring", "all_to_all", "gather"), "stages": (1, 2),
            "shard_stage": (0, 1, 2), "shard_group": (None, 2),
            "dtype": ("bf16", "fp32"), "recompute": (None, "selective", 2)}  # fmt: skip
    s = pm.search(GRAPH, **JOB | {"devices": 4}, **{name: list(values) for name, values in axes.items()},
                  tensor_size=1, schedule="1f1b", micro_batch_size=[1, 4], accumulation_steps=1,
                  reserve=0.97)  # fmt: skip
    best, fitting, refused = math.inf, 0, 0
    for values in itertools.product(*axes.values(), (1, 4)):
        *_, micro = values
        layout = dict(zip(axes, values, strict=False))
        copies = 4 // layout["stages"]
        workers = copies // layout["context_size"]
        parts, left = divmod(16 // workers, micro)
        shares_what = layout["shard_group"] is None or (layout["shard_stage"] > 0 and copies > 2)
        is_once = layout["context_size"] > 1 or layout["context_method"] == "ring"
        if left or not shares_what or not is_once:
            continue
        try:
            p = pm.predict(GRAPH, global_batch_size=16, parallelism="pipeline", sequence_parallel=True, workers=workers,
                           micro_batches=parts, **layout, **asked)  # fmt: skip
        except PerfmodelError:
            refused += 1
            continue
        if p.memory.total_bytes <= 0.03 * capacity:
            fitting, best = fitting + 1, min(best, p.step_s)
    assert 0 < fitting < s.evaluated_count - refused
    assert (len(s), s.evaluated_count) == (fitting, fitting + sum(s.refused.values()))
    assert s.best.row.step_s == pytest.approx(best, rel=1e-12)


def test_shared_parameters_are_offered_with_gradients_added_up_once():
    of_no_program = pm.load_framework("megatron_core").model_copy(update={"program": None})
    found = pm.search(GRAPH, **JOB | {"framework": of_no_program}, **AXES, limits=LIMITS)
    whole = [rank for rank, row in enumerate(found.rows) if row.no_sync]
    assert {(found.rows[rank].shard_stage, found.rows[rank].stages) for rank in whole} == {(3, 1)}
    assert all(found.rows[rank].accumulation_steps > 1 for rank in whole)
    for shard_group in (None, 2):
        rank = next(rank for rank in whole if found.rows[rank].shard_group == shard_group)
        one, row = found.found(rank), found.rows[rank]
        assert one.prediction.job.no_sync
        assert row.step_s == pytest.approx(one.prediction.step_s, rel=1e-12)
        each = one.job.replace(no_sync=False).predict()
        assert row.step_s < each.step_s  # products of Megatron Core add to whole gradients in either case
        assert row.memory_bytes > each.memory.total_bytes
    assert "no_sync" in repr(one)
    for program in ("megatron", "torchtitan"):
        with pytest.raises(ArgumentError, match="no_sync must be False"):
            one.command(program)


def test_torchs_pipelines_share_parameters_for_the_step_and_add_up_once():
    """FSDP leaves parameters gathered in a pipeline, so stage 3 is stage 2 whose gradients are added up at the end."""
    asked = {"stages": 2, "schedule": "1f1b", "accumulation_steps": 1, "tensor_size": 1, "context_size": 1}
    how = {**JOB, "framework": "torchtitan", **asked}
    with pytest.raises(ArgumentError, match="which is 2 with no_sync=True"):
        pm.search(GRAPH, **how, shard_stage=2, no_sync=True).best.job.replace(shard_stage=3).predict()
    once, each = (pm.search(GRAPH, **how, shard_stage=2, no_sync=no_sync) for no_sync in (True, False))
    text = next(once.found(rank) for rank, row in enumerate(once.rows) if row.micro_batches > 1).command("torchtitan")
    for flag in ("fsdp_reshard_after_forward never", "pipeline_parallel_schedule 1F1B"):
        assert flag in text
    assert {row.micro_batches for row in each.rows} == {1}
    several = pm.search(GRAPH, **how, shard_stage=2, no_sync=False, micro_batches=2)
    with pytest.raises(ArgumentError, match="no_sync must be True for torchtitan in a pipeline"):
        several.best.command("torchtitan")
    with pytest.raises(ArgumentError, match="shard_stage must be what some layout can have: 0, 1, 2"):
        pm.search(GRAPH, **how, shard_stage=3)


def test_a_search_for_torchtitan_finds_what_it_has_a_command_for():
    long = pm.zoo.llama(size="llama3_8b", layers=8, sequence_length=65_536)
    how = {"system": "dgx_h100", "devices": 16, "global_batch_size": 16, "optimizer": "adamw"}
    s = pm.search(long, framework="torchtitan", **how, micro_batch_size=1)
    assert len({row.context_size for row in s.rows}) > 1
    assert s.layouts.space.by_name["context_method"].values == ("ring",)
    assert {row.shard_stage for row in s.rows} == {0, 2, 3}
    for rank in range(0, len(s), 4):
        assert "torchtitan.train" in s.found(rank).command("torchtitan")
    asked = pm.search(long, framework="torchtitan", **how, stages=1, context_size=8, context_method="gather")
    with pytest.raises(ArgumentError, match="context_method must be 'ring' for torchtitan"):
        asked.best.command("torchtitan")


def test_pipelines_of_torch_add_up_gradients_once_without_being_told():
    job = JOB | {"tensor_size": 1, "schedule": "1f1b", "accumulation_steps": 1, "recompute": None}
    torch, megatron = (pm.search(GRAPH, **job | {"framework": name}) for name in ("torchtitan", "megatron_core"))
    assert megatron.layouts.space.by_name["no_sync"].values == (False,)
    shared = [rank for rank, row in enumerate(torch.rows) if row.shard_stage == 2 and row.stages > 1]
    assert {torch.rows[rank].no_sync for rank in shared if torch.rows[rank].micro_batches > 1} == {True}
    assert not any(torch.rows[rank].no_sync for rank in shared if torch.rows[rank].micro_batches == 1)
    for rank in (shared[0], shared[-1]):
        one = torch.found(rank)
        assert one.row.step_s == pytest.approx(one.prediction.step_s, rel=1e-12)
        assert "fsdp_reshard_after_forward never" in one.command("torchtitan")
    # what is asked for by name is what is searched
    each = pm.search(GRAPH, **job | {"framework": "torchtitan"}, shard_stage=2, no_sync=False)
    assert {(row["stages"] > 1, row["no_sync"]) for row in each.layouts} == {(True, False), (False, False)}


@pytest.mark.parametrize("attention", ["fused", "fused_softmax", "selective"])
def test_selective_recomputation_is_tried_where_scores_would_be_kept(attention):
    sizes = {"layers": 4, "width": 1024, "heads": 16, "sequence_length": 2048, "vocabulary": 8192}
    graph = pm.zoo.gpt(**sizes, attention=attention)
    s = pm.search(graph, **JOB, tensor_size=1, stages=1, shard_stage=1, micro_batch_size=2)
    tried = {row["recompute"] for row in s.layouts}
    assert tried == ({None, "selective", "full"} if attention == "fused_softmax" else {None, "full"})
    if "selective" in tried:
        needs = {row["recompute"]: row["memory_bytes"] for row in s.layouts}
        assert needs["full"] < needs["selective"] < needs[None]


def test_sequences_are_shared_only_where_they_are_long():
    assert {row["context_size"] for row in pm.search(GRAPH, **JOB, limits={"tensor_size": 1}).layouts} == {1}
    long = pm.zoo.gpt(layers=2, width=1024, heads=16, sequence_length=32_768, vocabulary=1024)
    s = pm.search(long, **JOB | {"global_batch_size": 8}, limits={"tensor_size": 1, "stages": 1})
    assert {row.context_size for row in s.rows} == {1, 2, 4}
    assert {row.context_method for row in s.rows} == {"ring", "all_to_all", "gather"}
    assert "context" in str(s)


def test_groups_of_a_machine_are_tried_only_among_many():
    asked = {"limits": {"tensor_size": 1, "stages": 1}, "micro_batch_size": 1, "recompute": "full"}
    few, many = (
        pm.search(GRAPH, **JOB | {"devices": count, "global_batch_size": 256}, **asked) for count in (128, 256)
    )
    assert {row["shard_group"] for row in few.layouts} == {None}
    assert {row["shard_group"] for row in many.layouts} == {None, 8}
    apart = pm.search(GRAPH, **JOB | {"devices": 256, "global_batch_size": 256, "sync": "ring_all_reduce"}, **asked)
    assert not apart.refused  # rings of one's own cannot add up copies: nothing is asked that is refused


def test_commands_carry_shared_sequences_groups_and_cuts(found):
    def rank_of(**wanted):
        return next(rank for rank, row in enumerate(found.rows) if all(getattr(row, k) == v for k, v in wanted.items()))

    row = {"context_size": 2, "context_method": "ring", "shard_group": 2, "stages": 1, "shard_stage": 2}
    layout = found.found(rank_of(**row))
    text = layout.command("megatron")
    copies = layout.job.workers * 2
    for flag in ("--context-parallel-size 2", "--cp-comm-type p2p",
                 f"--num-distributed-optimizer-instances {copies // 2}"):  # fmt: skip
        assert flag in text
    text = layout.command("torchtitan")
    for flag in ("context_parallel_degree 2", "context_parallel_rotate_method alltoall",
                 "data_parallel_shard_degree 1", f"data_parallel_replicate_degree {copies // 2}"):  # fmt: skip
        assert flag in text
    heads = found.found(rank_of(context_size=2, context_method="all_to_all", stages=1, shard_stage=2))
    assert "--cp-comm-type a2a" in heads.command("megatron")
    with pytest.raises(ArgumentError, match="context_method must be 'ring'"):
        heads.command("torchtitan")
    alone = found.found(rank_of(context_size=2, context_method="ring", stages=1, shard_stage=0))
    with pytest.raises(ArgumentError, match="shard_stage must be 2 or 3"):
        alone.command("torchtitan")
    even, uneven = (
        found.found(rank_of(stages=2, stage_cut=cut, interleave=1, accumulation_steps=1, schedule="1f1b"))
        for cut in ("even_blocks", "balanced")
    )
    assert "pipeline-num-layers" not in even.command()
    assert "pipeline-model-parallel-layout" not in even.command()
    first, _ = uneven.job.prepared.stages
    count = len(blocks_of(first.placed.graph.layers))
    assert count == 3  # the scores of a large vocabulary take longer than a block
    assert "--pipeline-model-parallel-layout 'Et*3|t*1L'" in uneven.command()


@pytest.mark.parametrize(
    ("asked", "argument", "says"),
    [
        ({"context_size": 3}, "context_size", "2, 4"),
        ({"context_method": "all_to_all"}, "context_method", "'ring'"),
        ({"shard_group": 3}, "shard_group", "None"),
        ({"stage_cut": "even_blocks", "stages": 1}, "stage_cut", "'balanced'"),
        ({"micro_batch_size": 3}, "micro_batch_size", "2, 4"),
        ({"interleave": 2, "schedule": "1f1b"}, "interleave", "1"),
        ({"workers": 3}, "workers", "2, 4"),
        ({"limits": {"workers": 0}}, "limits", "at least workers=1"),
        ({"limits": {"context_size": 0}}, "limits", "context_size=1"),
        ({"stages": 3, "tensor_size": 1}, "stages", "2, 4"),
        ({"devices": 100_000}, "devices", "at most 32,768"),
    ],
)
def test_values_that_no_layout_has_are_refused_with_those_that_some_have(asked, argument, says):
    with pytest.raises(ArgumentError, match=says) as refused:
        pm.search(GRAPH, **JOB | asked)
    assert refused.value.argument == argument
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("network", "divides"), [("fcn5", False), ("vit", False), ("bert", True)])
def test_groups_divide_positions_only_where_there_are_as_many(network, divides):
    """A perceptron has no positions, and ViT 197 of them: tensor groups are tried without dividing them."""
    asked = {"stages": 1, "workers": 4, "micro_batch_size": 2, "recompute": None, "shard_stage": 0}
    s = pm.search(pm.zoo.build(network), **JOB, tensor_size=2, **asked)
    assert [row["sequence_parallel"] for row in s.layouts] == [divides] * len(s)
    assert len(s) == s.evaluated_count > 0
    named = pm.search(pm.zoo.build(network), **JOB, tensor_size=2, sequence_parallel=True, **asked)
    assert set(named.refused) == (set() if divides else {"sequence_parallel"})


@pytest.mark.parametrize("is_list", [False, True])
def test_a_file_of_a_programs_framework_keeps_to_the_programs_layouts(tmp_path, is_list):
    own = tmp_path / "own.toml"
    own.write_text('schema_version = 1\ninherits = "torchtitan_compiled"\nname = "our torchtitan"\n')
    graph = pm.zoo.llama(
        layers=4, width=256, heads=4, key_heads=4, intermediate=512, vocabulary=512, sequence_length=128
    )
    asked = {"system": "dgx_h100", "devices": 8, "global_batch_size": 16, "optimizer": "adamw"}
    found = pm.search(graph, framework=["torchtitan", str(own)] if is_list else str(own), **asked)
    shipped = pm.search(graph, framework="torchtitan_compiled", **asked)
    assert len(found) == (1 + is_list) * len(shipped)
    for rank in range(len(found)):
        assert found.found(rank).command("torchtitan")
