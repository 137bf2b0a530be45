"""Regions that run again but keep some of their results, and gradients of copies: bytes counted by hand."""

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import ArgumentError
from perfmodel.graph.liveness import MemoryRules, TensorTypes
from perfmodel.parallelism.base import Layout
from perfmodel.prediction.memory.whole_gradients import GradientRules

SIZES = {
    "layers": 3,
    "width": 64,
    "heads": 4,
    "key_heads": 2,
    "intermediate": 160,
    "vocabulary": 100,
    "sequence_length": 32,
}


def llama(**options):
    return pm.zoo.llama(size="llama3_8b", **SIZES, **options)


def again(graph):
    parts = graph.segments(input_gradient=False, recompute=None)
    return [node.name for part in parts for node in part.again if type(node.layer).kind == "dense"]


def test_every_other_product_runs_again():
    # of query, key, value, output, gate, up and down: the second, fourth and sixth
    names = [name for name in again(llama(checkpointed="alternate_products")) if name.startswith("block2")]
    assert names == ["block2_attention_key", "block2_attention_output", "block2_mlp_up"]


def test_every_other_block_runs_again():
    assert {name.partition("_")[0] for name in again(llama(checkpointed="alternate_blocks"))} == {"block2"}
    assert {name.partition("_")[0] for name in again(llama(checkpointed=True))} == {"block1", "block2", "block3"}
    assert again(llama()) == []


@pytest.mark.parametrize(
    ("keeps_unread", "widths"), [(False, 64 + 64 + 32 + 64 + 160), (True, 64 + 64 + 32 + 64 + 160 + 64)]
)
def test_what_a_block_keeps(keeps_unread, widths):
    # its input, query, value, what attention yields with a statistic for each row and head, gate; eagerly also down
    rules = MemoryRules(element_bytes=2, keeps_unread=keeps_unread, in_place_kinds=("add",))
    kept = []
    for layers in (2, 3):
        graph = pm.zoo.llama(size="llama3_8b", **SIZES | {"layers": layers}, checkpointed="alternate_products")
        kept.append(graph.liveness(phase="forward_backward", rules=rules).kept[1])
    statistics = 4 * 4 * SIZES["sequence_length"]
    assert kept[1] - kept[0] == pytest.approx(2 * SIZES["sequence_length"] * widths + statistics, abs=statistics)


def test_a_network_that_keeps_is_the_same_after_a_file(tmp_path):
    graph = llama(checkpointed="alternate_products")
    graph.save(tmp_path / "graph.json")
    assert again(pm.LayerGraph.load(tmp_path / "graph.json")) == again(graph)


def test_other_ways_are_refused():
    with pytest.raises(ArgumentError, match="checkpointed"):
        llama(checkpointed="alternate")


def test_the_gradient_of_a_copy_is_there_in_its_type_before_it_is_cast():
    graph = llama()
    types = TensorTypes(
        result_bytes={"scores": 2}, cast_inputs={"loss": (0,)}, parameter_bytes=4, copied_weight_bytes=0
    )
    wide, narrow = (
        graph.liveness(phase="forward_backward", rules=MemoryRules(element_bytes=size, types=of))
        for size, of in ((4, types), (4, None))
    )
    at_loss = [
        [float(live.activations[1][place]) for place, moment in enumerate(live.moments) if moment[0] == "loss"]
        for live in (wide, narrow)
    ]
    scores = SIZES["sequence_length"] * SIZES["vocabulary"]
    assert len(at_loss[0]) == len(at_loss[1]) + 1  # the cast
    # where scores are in fp32 themselves they stay for nobody: probabilities and two gradients at the peak of both
    assert at_loss[0][1] == pytest.approx(at_loss[1][1], abs=4 * scores)
    assert at_loss[0][-1] < at_loss[0][1]


def test_gradients_of_shares_keep_their_memory():
    layout = Layout(workers=8, shard_stage=3)
    rules = GradientRules.of(layout, in_parts=False, parameter_bytes=4, gathered_bytes=2, gradient_bytes=4)
    made = np.array([0.0, 0.0, 100.0, 400.0])
    sizes = np.array([0.0, 0.0, 100.0, 300.0]), np.array([0.0, 0.0, 100.0, 300.0])
    # an eighth of all, and room for the largest unit as it is exchanged, from the first moment on
    assert rules.bytes_at(made, lambda: sizes, all_bytes=400.0).tolist() == [350.0, 350.0, 400.0, 500.0]
