"""A network on several devices: nothing is lost or done twice but what is listed, and what crosses is what crosses."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel import zoo
from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.graph import LayerGraph
from perfmodel.graph.liveness import MemoryRules
from perfmodel.layers import CrossEntropy, Dense, ReLU
from perfmodel.parallelism.base import Layout, with_repeated_exchanges
from perfmodel.parallelism.registry import PARALLELISMS
from perfmodel.parallelism.stages import Balance, cuts_of
from perfmodel.parallelism.units import sharded_units
from perfmodel.records import Phase, Role
from placed_networks import place

BUILDERS = {
    "alexnet": zoo.alexnet,
    "resnet50": zoo.resnet50,
    "vgg16": zoo.vgg16,
    "bert": zoo.bert,
    "gpt2": zoo.gpt2,
    "lstm_classifier": zoo.lstm_classifier,
}
GRAPHS = {name: build() for name, build in BUILDERS.items()}
every_graph = pytest.mark.parametrize("name", GRAPHS)


def _flop(graph, phase, *, input_gradient=False, products=False):
    pairs = graph.operations(batch_size=3, phase=phase, input_gradient=input_gradient)
    if products:
        return sum(operation.product_flop_count for _, operation in pairs)
    return sum(operation.work(element_bytes=4).flop_count for _, operation in pairs)


def _sends(stage, phase):
    return [each for each in stage.exchanges if each.kind == "send" and each.phase is phase]


@every_graph
@pytest.mark.parametrize("count", [2, 3, 4])
def test_stages_are_the_network(name, count):
    graph = GRAPHS[name]
    stages = place(graph, parallelism="pipeline", workers=count, stages=count, micro_batches=count).stages
    assert [node.name for stage in stages for node in stage.graph.layers] == [node.name for node in graph.layers]
    twice = sum(sum(stage.copied.values()) for stage in stages)
    assert not any(stage.replicated for stage in stages)
    assert sum(stage.graph.parameter_count for stage in stages) - twice == graph.parameter_count
    assert sum(_flop(stage.graph, "forward") for stage in stages) == _flop(graph, "forward")
    backward = sum(_flop(stage.graph, "backward", input_gradient=stage.input_gradient) for stage in stages)
    # gradients of a table on two devices are added by an exchange, no longer by a pass
    summed = [each for stage in stages for each in stage.exchanges if each.group == "pipeline" and each.fixed_bytes]
    assert _flop(graph, "backward") - backward == sum(each.fixed_bytes // 4 for each in summed) // 2
    assert bool(twice) == bool(summed) == (name == "gpt2")


@every_graph
def test_what_crosses_is_sent_once_each_way(name):
    graph = GRAPHS[name]
    stages = place(graph, parallelism="pipeline", workers=4, stages=4, micro_batches=4, element_bytes=2).stages
    for earlier, later in itertools.pairwise(stages):
        (there,), (back,) = _sends(earlier, Phase.FORWARD), _sends(later, Phase.BACKWARD)
        crossing = set(later.graph.input_shapes)
        assert crossing == {there.after_layer}
        elements = later.graph.input_elements
        assert there.bytes_per_sample == back.bytes_per_sample == 2 * elements
        assert elements == earlier.graph.node(there.after_layer).output_elements
        assert back.after_layer == later.graph.layers[0].name
    assert not _sends(stages[-1], Phase.FORWARD)
    assert not _sends(stages[0], Phase.BACKWARD)


@every_graph
def test_more_stages_than_places_to_cut_are_refused(name):
    graph = GRAPHS[name]
    most = len(cuts_of(graph)) + 1
    assert len(place(graph, parallelism="model", workers=most).stages) == most
    with pytest.raises(ArgumentError, match=f"at most {most}"):
        place(graph, parallelism="model", workers=most + 1)


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=9),
    st.lists(st.integers(0, 5), min_size=9, max_size=9),
    st.integers(1, 5),
)
@settings(deadline=None, max_examples=150)
def test_no_other_cuts_have_a_shorter_longest_stage(work, sends, stage_count):
    places, sends = range(1, len(work)), np.array(sends[1 : len(work)])
    boundaries = [*zip(places, sends, strict=True)]

    def longest(chosen):
        edges = [(0, 0), *(boundaries[index] for index in chosen), (len(work), 0)]
        return max(sum(work[a:b]) + s + t for (a, s), (b, t) in itertools.pairwise(edges))

    found = Balance(np.array(work), places, sends).cuts(stage_count)
    several = Balance(np.array([work[::-1], work]), places, np.array([2 * sends, sends])).cuts(stage_count)
    if stage_count > len(work):
        assert found is several is None
        return
    assert found.tolist() == sorted(set(found.tolist()))
    every = itertools.combinations(range(len(boundaries)), stage_count - 1)
    assert longest(found) == min(map(longest, every))
    other = Balance(np.array(work[::-1]), places, 2 * sends).cuts(stage_count)
    np.testing.assert_array_equal(several, [other, found])


def test_given_seconds_and_transfers_move_the_cut():
    graph = GRAPHS["vgg16"]
    names = [node.name for node in graph.layers]
    slow_end = place(
        graph, parallelism="model", workers=2, layer_s={name: 100.0 if name == "loss" else 0.1 for name in names}
    )
    assert [node.name for node in slow_end.stages[1].graph.layers] == ["loss"]
    dear = place(graph, parallelism="model", workers=2, send_s=lambda size: 1e12 * size)
    assert _sends(dear.stages[0], Phase.FORWARD)[0].bytes_per_sample == min(4 * cut.elements for cut in cuts_of(graph))


SHARED = {
    "alexnet": (2, 4, 8),
    "vgg16": (2, 8),
    "resnet50": (2, 4),
    "bert": (2, 4),
    "gpt2": (2, 4),
}


@pytest.mark.parametrize(("name", "size"), [(name, size) for name, sizes in SHARED.items() for size in sizes])
def test_shards_are_the_network(name, size):
    graph = GRAPHS[name]
    (shard,) = place(graph, parallelism="tensor", workers=size).stages
    copies = sum(shard.replicated.values())
    assert size * shard.graph.parameter_count - (size - 1) * copies - shard.padding == graph.parameter_count
    rows = {"gpt2": 768 * (-50_257 % size), "bert": 768 * (-30_522 % size)}.get(name, 0)
    assert shard.padding == rows
    for phase in ("forward", "backward"):
        whole = {node.name: 0 for node in graph.layers}
        part = dict(whole)
        for counted, which in ((whole, graph), (part, shard.graph)):
            for layer, operation in which.operations(batch_size=3, phase=phase):
                counted[layer] += operation.product_flop_count
        for layer, flop in whole.items():
            copied = layer in shard.replicated_layers
            padding = part[layer] * size - flop if layer == "scores" and shard.padding else 0
            assert part[layer] * (1 if copied else size) - padding == flop
            assert 0 <= padding < 1e-4 * max(flop, 1)
    assert bool(shard.replicated_layers) == (name in ("resnet50", "bert"))


@pytest.mark.parametrize("name", ["alexnet", "vgg16", "gpt2"])
def test_sums_over_a_group_are_those_of_whole_tensors(name):
    graph = GRAPHS[name]
    (shard,) = place(graph, parallelism="tensor", workers=2, element_bytes=2).stages
    for each in shard.exchanges:
        assert (each.group, each.kind) == ("tensor", "all_reduce")
        node = graph.node(each.after_layer)
        if isinstance(node.layer, CrossEntropy):
            assert each.bytes_per_sample == 3 * 4 * node.output_elements  # maximum, sum, the label's score
        elif each.phase is Phase.FORWARD:
            assert each.bytes_per_sample == 2 * node.output_elements
        else:
            assert each.bytes_per_sample == 2 * math.prod(node.input_shapes[0])


def _block_bytes(exchanges, block):
    return sum(each.bytes_per_sample for each in exchanges if each.after_layer.startswith(block))


def _runs_beside_input_gradients(exchange):
    return exchange.beside is not None and exchange.beside.role is Role.INPUT_GRADIENT


def test_published_messages_of_a_transformer_layer():
    # b 1, s 2048, h 12288, 2 B: 50.332 MB; four of them, 2 (t - 1) / t each: 352.32 MB at t 8; 0.78294 ms at 450 GB/s
    graph = zoo.gpt(layers=2, width=12_288, heads=96, sequence_length=2048, vocabulary=51_200)
    (shard,) = place(graph, parallelism="tensor", workers=8, element_bytes=2).stages
    own = [each for each in shard.exchanges if each.after_layer.startswith("block1")]
    assert len(own) == 4
    assert {each.bytes_per_sample for each in own} == {50_331_648}
    wire = sum(2 * 7 / 8 * each.size_bytes(1) for each in own)
    assert wire == pytest.approx(352.32e6, rel=1e-5)
    assert wire / 450e9 == pytest.approx(0.78294e-3, rel=1e-5)


def test_sequence_parallel_moves_the_same_bytes_and_what_it_hides():
    graph = zoo.gpt(layers=2, width=768, heads=12, sequence_length=1024, vocabulary=51_200)
    (whole,) = place(graph, parallelism="tensor", workers=4).stages
    (parts,) = place(graph, parallelism="tensor", workers=4, sequence_parallel=True).stages
    samples = [each for each in parts.exchanges if each.bytes_per_sample]
    exposed = [each for each in samples if not _runs_beside_input_gradients(each)]
    # an all-reduce is a reduce-scatter and an all-gather
    assert _block_bytes(exposed, "block1") == 2 * _block_bytes(whole.exchanges, "block1")
    hidden = [each for each in samples if _runs_beside_input_gradients(each)]
    assert {each.kind for each in hidden} == {"all_gather"}
    assert len(hidden) == 2 * 2 + 1  # of attention and of the first product, in each block, and of the scores
    assert parts.graph.parameter_count == whole.graph.parameter_count
    for phase in ("forward", "backward"):
        assert _flop(parts.graph, phase, products=True) == _flop(whole.graph, phase, products=True)
    # what lies between shared layers is divided: norms, residual sums
    assert _flop(parts.graph, "forward") < _flop(whole.graph, "forward")
    assert parts.graph.kept_bytes(batch_size=1) < whole.graph.kept_bytes(batch_size=1)


@pytest.mark.parametrize("attention", ["fused", "selective", "materialised"])
def test_published_activations_of_a_shared_layer(attention):
    # Korthikanti et al., table 2: s b h (10 + 24 / t) without and 34 / t with sequence parallelism, in half precision,
    # with 5 a s / (h t) where scores are kept; masks of dropout 1 B, as here
    s, h, heads, t = 2048, 6144, 64, 8

    def kept(layers, **sizes):
        graph = zoo.gpt(
            layers=layers, width=h, heads=heads, sequence_length=s, vocabulary=51_200, dropout=0.1, attention=attention
        )
        (shard,) = place(graph, parallelism="tensor", workers=t, element_bytes=2, **sizes).stages
        return shard.graph.kept_bytes(batch_size=1, dtype="fp16")

    scores = 5 * heads * s / (h * t) if attention == "materialised" else 0
    for sizes, factor in (({}, 10 + 24 / t), ({"sequence_parallel": True}, 34 / t)):
        published = s * h * (factor + scores)
        assert kept(3, **sizes) - kept(2, **sizes) == pytest.approx(published, rel=0.03)


@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize(
    "graph",
    [
        zoo.gpt(layers=2, width=256, heads=8, sequence_length=64, vocabulary=512, attention="selective"),
        zoo.llama(layers=2, width=256, heads=8, key_heads=4, intermediate=512, sequence_length=64, vocabulary=512),
    ],
    ids=["gpt", "llama"],
)
def test_projections_of_their_own_and_gates_are_shared_too(graph, sequence_parallel):
    (shard,) = place(graph, parallelism="tensor", workers=4, sequence_parallel=sequence_parallel).stages
    assert not shard.replicated_layers
    copies = sum(shard.replicated.values())
    assert 4 * shard.graph.parameter_count - 3 * copies == graph.parameter_count
    for phase in ("forward", "backward"):
        assert 4 * _flop(shard.graph, phase, products=True) == _flop(graph, phase, products=True)
    block = [each for each in shard.exchanges if each.after_layer.startswith("block1")]
    own = [each for each in block if not _runs_beside_input_gradients(each)]
    # queries, keys and values read one tensor, whose gradient is summed once
    assert sum(each.bytes_per_sample > 0 for each in own) == (8 if sequence_parallel else 4)
    with pytest.raises(ArgumentError, match="heads"):
        place(graph, parallelism="tensor", workers=16)


def test_exchanges_run_again_with_their_layers():
    graph = zoo.gpt(layers=4, vocabulary=51_200, checkpointed=True)
    (shard,) = place(graph, parallelism="tensor", workers=2).stages
    again = with_repeated_exchanges(shard, recompute=None).exchanges[len(shard.exchanges) :]
    assert [each.after_layer for each in again] == [
        f"block{index}_{part}" for index in range(1, 5) for part in ("attention_output", "mlp_down")
    ]
    assert {each.phase for each in again} == {Phase.BACKWARD}
    (plain,) = place(zoo.gpt(layers=4, vocabulary=51_200), parallelism="tensor", workers=2).stages
    assert with_repeated_exchanges(plain, recompute=None).exchanges == plain.exchanges


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@every_graph
def test_workers_that_share_exchange_what_the_method_must(name, stage):
    # elements per parameter on a ring's wire: 2 P, 2 P, 2 P, 3 P (ZeRO, section 7), less what stays between phases
    graph = GRAPHS[name]
    stays = sum(unit.parameter_count for unit in sharded_units(graph) if not unit.is_block) if stage == 3 else 0
    (one,) = place(graph, parallelism="data", workers=8, shard_stage=stage, element_bytes=2).stages
    passes = sum(each.fixed_bytes * (2 if each.kind == "all_reduce" else 1) for each in one.exchanges)
    assert passes == 2 * ((2, 2, 2, 3)[stage] * graph.trained_parameter_count - stays)
    assert all(each.group == "data" for each in one.exchanges)
    (alone,) = place(graph, parallelism="data", workers=1, shard_stage=stage).stages
    assert alone.exchanges == ()


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_hybrid_gathers_activations_and_exchanges_gradients_of_convolutions_only(workers):
    graph = GRAPHS["alexnet"]
    front, back = place(graph, parallelism="hybrid", workers=workers).stages
    assert (front.batch_factor, back.batch_factor) == (1, workers)
    assert front.device == back.device == 0
    own = sum(each.fixed_bytes for each in front.exchanges)
    assert own == 4 * front.graph.trained_parameter_count == 4 * 2_469_696  # 4 % of 61,100,840
    copies = sum(back.replicated.values())
    dense = workers * back.graph.parameter_count - (workers - 1) * copies - back.padding
    assert front.graph.parameter_count + dense == graph.parameter_count
    (gathered,) = [each for each in back.exchanges if each.kind == "all_gather"]
    (home,) = [each for each in back.exchanges if each.kind == "reduce_scatter"]
    assert gathered.size_bytes(workers * 16) == home.size_bytes(workers * 16) == workers * 16 * 4 * 9216
    work = _flop(front.graph, "forward", products=True) + workers * _flop(back.graph, "forward", products=True)
    assert work == _flop(graph, "forward", products=True)


def test_three_ways_at_once():
    graph = zoo.gpt(layers=8, vocabulary=51_200)
    placed = place(
        graph,
        parallelism="pipeline",
        workers=16,
        stages=4,
        tensor_size=2,
        micro_batches=8,
        interleave=2,
        schedule="interleaved",
        shard_stage=1,
        sequence_parallel=True,
    )
    assert placed.layout.data_size == 2
    assert [stage.device for stage in placed.stages] == [0, 1, 2, 3, 0, 1, 2, 3]
    (shard,) = place(graph, parallelism="tensor", workers=2, sequence_parallel=True).stages
    again = sum(_flop(stage.graph, "forward", products=True) for stage in placed.stages)
    assert again == _flop(shard.graph, "forward", products=True)
    of_group = [each for stage in placed.stages for each in stage.exchanges if each.group == "tensor"]
    assert sorted(map(str, of_group)) == sorted(map(str, shard.exchanges))
    data = [each for stage in placed.stages for each in stage.exchanges if each.group == "data"]
    assert {each.kind for each in data} == {"reduce_scatter", "all_gather"}


@pytest.mark.parametrize("stages", [1, 3, 5])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_stages_of_shards_are_the_network(stages, sequence_parallel):
    graph = GRAPHS["gpt2"]
    sizes = {"stages": stages, "tensor_size": 4, "sequence_parallel": sequence_parallel, "micro_batches": stages}
    placed = place(graph, parallelism="pipeline", workers=4 * stages, **sizes).stages
    all_of = sum(stage.graph.parameter_count - sum(stage.copied.values()) for stage in placed)
    whole_on_each = sum(sum(stage.replicated.values()) for stage in placed)
    padding = sum(stage.padding for stage in placed)
    assert padding == 768 * 3  # 50,257 words on 4 devices
    assert 4 * all_of - 3 * whole_on_each - padding == graph.parameter_count


def test_what_does_not_fit_is_refused_with_what_is_allowed():
    graph = GRAPHS["gpt2"]
    with pytest.raises(ArgumentError, match="divisor of the 12 heads"):
        place(graph, parallelism="tensor", workers=5)
    with pytest.raises(ArgumentError, match="divisor of the 64 outputs of layer 'conv1'"):
        place(GRAPHS["alexnet"], parallelism="tensor", workers=3)
    with pytest.raises(ArgumentError, match="no attention, pair of products"):
        place(GRAPHS["lstm_classifier"], parallelism="tensor", workers=2)
    with pytest.raises(ArgumentError, match="multiple of stages x tensor_size = 2 x 2 = 4"):
        place(graph, parallelism="pipeline", workers=6, stages=2, tensor_size=2)
    with pytest.raises(ArgumentError, match="0, 1, 2 or 3"):
        place(graph, workers=2, shard_stage=4)
    with pytest.raises(ArgumentError, match="multiple of the 4 stages"):
        place(graph, parallelism="pipeline", workers=4, stages=4, micro_batches=6, interleave=2, schedule="interleaved")
    with pytest.raises(ArgumentError, match="a divisor of the batch of 12: 1, 2, 3, 4, 6, 12"):
        Layout(micro_batches=5).micro_batch_size(12)
    with pytest.raises(ArgumentError, match="'tensor'"):
        place(zoo.feed_forward(), parallelism="hybrid", workers=2)
    with pytest.raises(ArgumentError, match="divides the 1023 positions"):
        place(zoo.gpt2(sequence_length=1023), parallelism="tensor", workers=2, sequence_parallel=True)
    with pytest.raises(ArgumentError, match="1 with parallelism='data'"):
        place(graph, workers=2, tensor_size=2)
    with pytest.raises(UnknownNameError, match="1f1b"):
        place(graph, parallelism="pipeline", workers=2, stages=2, micro_batches=2, schedule="1f1")


def test_one_device_is_the_network_itself():
    graph = GRAPHS["alexnet"]
    for name in PARALLELISMS:
        if name != "hybrid" and name != "tensor":
            (stage,) = place(graph, parallelism=name, workers=1).stages
            assert stage.graph is graph
            assert not stage.exchanges


def test_no_cut_behind_a_loss():
    graph = LayerGraph("two losses", inputs={"x": (4,), "y": (4,)})
    x = graph.add("a", Dense(units=4), inputs="x")
    graph.add("aside", CrossEntropy(), inputs=x)
    x = graph.add("b", ReLU(), inputs=x)
    graph.add("loss", CrossEntropy(), inputs=graph.add("c", Dense(units=4), inputs=graph.add("d", ReLU(), inputs=x)))
    graph.add("late", CrossEntropy(), inputs=graph.add("e", Dense(units=2), inputs="y"))
    assert [cut.tensor for cut in cuts_of(graph)] == ["a"]


@pytest.mark.parametrize("attention", ["fused", "selective"])
def test_work_in_place_never_keeps_more(attention):
    """A part that a group leaves to a device is no view of the whole, which in-place sums would keep alive."""
    graph = zoo.gpt(layers=3, width=256, heads=8, sequence_length=128, vocabulary=512, dropout=0.1, attention=attention)
    (shard,) = place(graph, parallelism="tensor", workers=8, sequence_parallel=True, element_bytes=2).stages
    kept = {
        kinds: shard.graph.liveness(rules=MemoryRules(element_bytes=2, in_place_kinds=kinds)).kept[1]
        for kinds in ((), ("dropout",), ("add",), ("relu", "dropout", "add"))
    }
    assert max(kept.values()) == kept[()]
