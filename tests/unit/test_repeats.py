"""Graphs with equal blocks in a row are lowered as short ones: nothing may differ from lowering every layer."""

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.graph import layer_graph, repeats
from perfmodel.graph.arena import gap_bytes
from perfmodel.graph.repeats import shortened, structure_of
from perfmodel.layers import Add, CrossEntropy, Dense, LayerNorm, ReLU
from perfmodel.layers.optimizers import Adam
from perfmodel.prediction.job import prepare

NETWORKS = {
    "gpt": lambda: pm.zoo.gpt(layers=7, width=64, heads=4, sequence_length=32, vocabulary=100),
    "bert": pm.zoo.bert,
    "llama": pm.zoo.llama,
    "gpt2": pm.zoo.gpt2,
}
JOBS = {
    "step": {"framework": "pytorch_2"},
    "half, full": {"framework": "pytorch_2", "dtype": "bf16", "optimizer": "adam", "recompute": "full"},
    "half, whole blocks": {"framework": "megatron_core", "dtype": "bf16", "optimizer": "adam", "recompute": "full"},
    "half, eager": {"framework": "pytorch_1_0", "dtype": "fp16", "optimizer": "momentum"},
    "square root": {"framework": "pytorch_2", "recompute": "sqrt"},
    "forward": {"framework": "pytorch_2", "phase": "forward", "dtype": "bf16"},
    "all kept": {"framework": "mxnet_0_9"},
    "gaps": {"framework": "torchtitan", "dtype": "bf16", "optimizer": "adam"},
    "gaps, blocks again": {"framework": "torchtitan", "dtype": "bf16", "recompute": "blocks"},
    "gaps, full": {"framework": "torchtitan", "dtype": "bf16", "recompute": "full"},
    "clipped": {"framework": "tensorflow_1_12", "optimizer": Adam(clipping="per_batch", weight_decay=0.1)},
}
DEEP = {
    "system": "dgx_a100_x4", "devices": 32, "dtype": "bf16", "optimizer": "adam", "framework": "pytorch_2",
    "parallelism": "pipeline", "stages": [1, 2, 3, 8], "tensor_size": [1, 4], "shard_stage": [0, 3],
    "schedule": ["1f1b", "interleaved"], "interleave": [1, 2], "recompute": [None, "full"],
    "micro_batches": [4, 12, 16], "accumulation_steps": [1, 4], "batch_size": [192, 768],
}  # fmt: skip


def lowered(network, job, monkeypatch, *, short):
    if not short:
        monkeypatch.setattr(prepare, "shorten", lambda graph, **_: None)
    prepared = pm.Job(NETWORKS[network](), batch_size=2, device="v100_pcie", strict=False, **job).prepared
    graph = prepared.subject.graph
    monkeypatch.undo()
    assert bool(graph.kept("shortened").get(())) is short
    (stage,) = prepared.stages
    return stage.lowered.table, stage.lowered.memory(graph), graph


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_what_follows_from_three_blocks_is_what_follows_from_all(network, job, monkeypatch):
    (table, memory, graph), (whole, of_whole, other) = (
        lowered(network, job, monkeypatch, short=short) for short in (True, False)
    )
    assert len(graph.kept("shortened")[()].graph.layers) < 0.6 * len(graph.layers)
    assert table.occurrences == whole.occurrences
    for name in ("multiplicity", "row_order", "choices", "is_update"):
        np.testing.assert_array_equal(getattr(table, name), getattr(whole, name))
    assert memory.alive.activations.tolist() == of_whole.alive.activations.tolist()
    assert memory.alive.gradients.tolist() == of_whole.alive.gradients.tolist()
    for ours, theirs in zip(memory.alive.of_units(), of_whole.alive.of_units(), strict=True):
        assert ours.tolist() == theirs.tolist()
    ours, theirs = graph.liveness(rules=memory.rules), other.liveness(rules=of_whole.rules)
    assert ours.moments == theirs.moments
    assert ours.kept == theirs.kept
    for name in ("weights_bytes", "optimizer_bytes", "gradient_bytes", "input_bytes_per_sample"):
        assert getattr(memory, name) == getattr(of_whole, name)


@pytest.mark.parametrize("network", ["gpt", "llama"])
@pytest.mark.parametrize("recompute", [None, "full", "blocks"])
@pytest.mark.parametrize("stages", [1, 2, 3, 5])
@pytest.mark.parametrize("framework", ["pytorch_2", "torchtitan"])
def test_memory_at_every_moment_of_a_stage_is_that_of_playing_all_its_blocks(
    network, recompute, framework, stages, monkeypatch
):
    """What a block keeps for its second run lies there until that run, which follows that of the block behind it."""
    compared = []

    def checked(graph, **how):
        found = repeats.lifetimes_of_blocks(graph, **how)
        if found is not None:
            played = graph.lifetimes(**how)
            ours, theirs = found.result(), played.result()
            assert ours.moments == theirs.moments
            assert ours.activations.tolist() == theirs.activations.tolist()
            assert ours.gradients.tolist() == theirs.gradients.tolist()
            assert gap_bytes(found.spans) == gap_bytes(played.spans)
            compared.append(graph)
        return found

    monkeypatch.setattr(layer_graph, "lifetimes_of_blocks", checked)
    options = {"width": 64, "heads": 4, "sequence_length": 32, "vocabulary": 100}
    graph = pm.zoo.build(network, layers=24, **options)
    pipeline = {"parallelism": "pipeline", "stages": stages, "micro_batches": 4} if stages > 1 else {}
    job = {"system": "dgx_h100", "batch_size": 16, "framework": framework, "dtype": "bf16", "recompute": recompute}
    assert pm.predict(graph, **job, **pipeline).memory.total_bytes > 0
    assert compared


def blocks(*, count=8, skip=False, mask=False, widths=None):
    """Residual blocks of four layers; all may read one tensor, or a later layer one of an early block."""
    graph = pm.LayerGraph("blocks", input_shape=(16,))
    x = first = graph.add("start", Dense(units=32), inputs="input")
    made = []
    for index in range(count):
        inside = graph.add(f"{index}_norm", LayerNorm(), inputs=x)
        width = 32 if widths is None else widths[index]
        if mask:
            inside = graph.add(f"{index}_masked", Add(), inputs=(inside, first))
        inside = graph.add(f"{index}_up", Dense(units=width), inputs=inside)
        inside = graph.add(f"{index}_dense", Dense(units=32), inputs=inside)
        made.append(inside)
        x = graph.add(f"{index}_add", Add(), inputs=(x, inside))
    if skip:
        x = graph.add("skip", Add(), inputs=(x, made[1]))
    x = graph.add("relu", ReLU(), inputs=x)
    graph.add("loss", CrossEntropy(), inputs=graph.add("scores", Dense(units=10), inputs=x))
    return graph


@pytest.mark.parametrize(
    ("how", "left"),
    [
        ({}, 1 + 3 * 4 + 3),
        ({"count": 4}, 1 + 3 * 4 + 3),
        ({"count": 3}, None),
        ({"mask": True}, None),
        ({"skip": True}, None),
        ({"widths": range(32, 40)}, None),
    ],
)
def test_only_blocks_that_are_alike_and_lead_from_one_to_the_next_are_left_out(how, left):
    graph = blocks(**how)
    short = shortened(graph, structure_of(graph)[-1])
    assert (None if short is None else len(short.graph.layers)) == left


def test_rows_of_deep_networks_in_many_stages_equal_predict():
    graph = pm.zoo.gpt(layers=24, width=2048, heads=16, sequence_length=1024, vocabulary=51_200)
    swept = pm.sweep(graph, **DEEP)
    rows = np.random.default_rng(5).choice(np.flatnonzero(np.isfinite(swept["step_s"])), size=20, replace=False)
    for row in rows.tolist():
        p = swept.prediction(row)
        assert swept["step_s"][row] == pytest.approx(p.step_s, rel=1e-12)
        assert bool(swept["fits"][row]) == p.memory.fits
