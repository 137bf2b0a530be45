"""What is kept between predictions of parts of a network: it must never show in a number or a name."""

import gc
import weakref

import pytest

import perfmodel as pm
from perfmodel.graph import repeats as parts_of_graphs
from perfmodel.graph.liveness import MemoryRules
from perfmodel.graph.repeats import first_alike, structure_of
from perfmodel.layers import CrossEntropy, Dense, ReLU
from placed_networks import place

PIPELINE = {"system": "dgx_1_p100", "batch_size": 16, "parallelism": "pipeline", "stages": 4, "micro_batches": 4}
TENSOR = {"system": "dgx_1_p100", "batch_size": 16, "parallelism": "tensor", "tensor_size": 2, "workers": 2}
JOBS = {
    "pipeline": PIPELINE,
    "tensor": TENSOR,
    "fewer stages": PIPELINE | {"stages": 2, "workers": 2},
    "forward": PIPELINE | {"phase": "forward"},
    "frugal": PIPELINE | {"recompute": "full", "optimizer": "adam"},
    "half": TENSOR | {"dtype": "fp16"},
}


def chain(*units, name="layer"):
    graph = pm.LayerGraph("chain", input_shape=(64,))
    x = graph.input
    for place_, count in enumerate(units):
        x = graph.add(f"{name}{place_}", Dense(units=count), inputs=x)
    graph.add(f"{name}_loss", CrossEntropy(), inputs=x)
    return graph


def answers(graph, job):
    p = pm.predict(graph, **job)
    rows = [(row.layer, row.phase, row.kernel, row.seconds) for row in p.layers]
    return p.to_dict(), p.memory, rows, p.interval_s


@pytest.mark.parametrize("asked", JOBS.values(), ids=JOBS)
def test_a_network_that_was_spread_before_is_predicted_as_a_new_one(asked):
    """The network has been asked for every other job, so that parts of them all are kept."""
    known = pm.zoo.alexnet()
    for job in JOBS.values():
        pm.predict(known, **job)
    assert answers(known, asked) == answers(pm.zoo.alexnet(), asked)


def test_stages_that_differ_in_names_alone_keep_their_own_names():
    """Of four stages of two layers, two on each of two devices, three are lowered as the first one's graph."""
    graph = chain(*[512] * 8)
    job = {"system": "dgx_1_p100", "batch_size": 8, "parallelism": "pipeline", "stages": 2, "micro_batches": 2}
    p = pm.predict(graph, schedule="interleaved", interleave=2, **job)
    cut = [tuple(node.name for node in stage.graph.layers) for stage in p.spread.placement.stages]
    assert cut == [("layer0", "layer1"), ("layer2", "layer3"), ("layer4", "layer5"), ("layer6", "layer7", "layer_loss")]
    longest = p.basis.timed.composed.longest
    assert {row.layer for row in p.layers} == {*cut[longest], *cut[longest + 2]}


@pytest.mark.usefixtures("quick_collections")
def test_the_first_part_of_its_structure_stands_for_all_and_goes_with_its_graph(monkeypatch):
    monkeypatch.setattr(parts_of_graphs, "MOST_PARTS", 2)
    graph = chain(32, 32, 32, 8)
    stages = [stage.graph for stage in place(graph, parallelism="pipeline", workers=4, stages=4).stages]
    again = [stage.graph for stage in place(graph, parallelism="pipeline", workers=4, stages=4).stages]
    assert [first_alike(each, of=graph) for each in stages[:2]] == stages[:2]
    assert first_alike(again[1], of=graph) is stages[1]
    assert structure_of(again[1]) == structure_of(stages[1])
    assert first_alike(graph, of=graph) is graph
    assert first_alike(stages[3], of=graph) is stages[3]  # the third: the oldest goes
    assert first_alike(again[0], of=graph) is again[0]
    kept = weakref.ref(graph)
    del graph, stages, again
    gc.collect()
    assert kept() is None


SHARED = {
    "workers": {"workers": 4},
    "recomputed": {**TENSOR, "recompute": "full"},
    "sharded": {"workers": 4, "shard_stage": 3},
    "interleaved": {**PIPELINE, "stages": 2, "workers": 2, "schedule": "interleaved", "interleave": 2},
}


@pytest.mark.usefixtures("quick_collections")
@pytest.mark.parametrize("job", SHARED.values(), ids=SHARED)
def test_a_network_whose_parts_are_kept_goes_with_its_last_reader(job):
    graph = chain(*[64] * 8)
    pm.predict(graph, **{"system": "dgx_1_p100", "batch_size": 16, **job})
    pm.sweep(graph, **{"system": "dgx_1_p100", "batch_size": [16, 32], **job, "shard_stage": [0, 1, 2]})
    kept = weakref.ref(graph)
    del graph
    gc.collect()
    assert kept() is None


def test_memory_at_every_moment_is_worked_out_anew_for_more_layers_and_other_rules():
    graph = pm.LayerGraph("open", input_shape=(64,))
    x = graph.add("first", Dense(units=32), inputs=graph.input)
    x = graph.add("relu", ReLU(), inputs=x)
    before = graph.liveness()
    assert graph.liveness() is before
    assert graph.liveness(rules=MemoryRules(in_place_kinds=["dropout"])) is before  # no such layer
    plain, in_place, half = (
        graph.liveness(rules=rules).activations.sum()
        for rules in (MemoryRules(), MemoryRules(in_place_kinds=["relu"]), MemoryRules(element_bytes=2))
    )
    assert in_place < plain
    assert half < plain
    graph.add("second", Dense(units=8), inputs=x)
    assert len(graph.liveness().moments) > len(before.moments)
