"""Products cut to run beside messages of their tensor group: counts and times by hand, limits, one composition."""

import math
from dataclasses import replace

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.framework.profile import load_framework
from perfmodel.parallelism.base import TensorHabits
from perfmodel.parallelism.tensor_split import tensor_split
from perfmodel.planning.search.programs.registry import launch_command
from perfmodel.prediction.job.beside import rings_of, started_exchanges
from perfmodel.prediction.job.exchange_times import LinkExchanges
from perfmodel.prediction.job.job import Job
from perfmodel.records import Phase, Role

BLOCKS, SIZE = 3, 4
GPT = pm.zoo.gpt(layers=BLOCKS, width=2048, heads=16, sequence_length=1024, vocabulary=51_200)
LLAMA = pm.zoo.llama(size="llama3_8b", layers=BLOCKS, sequence_length=2048)
JOB = {"system": "dgx_h100", "batch_size": 8, "dtype": "bf16", "sync": "all_reduce"}
TENSOR = {"workers": 1, "parallelism": "tensor", "tensor_size": SIZE, "sequence_parallel": True}
WHOLE = {"megatron_core_overlap": "megatron_core", "torchtitan_compiled_async": "torchtitan_compiled"}
"""Framework that cuts products -> the same with whole ones. [-]"""
every_framework = pytest.mark.parametrize("framework", sorted(WHOLE))


def predicted(framework, graph=GPT, **more):
    return pm.predict(graph, framework=framework, **(JOB | TENSOR | more))


def group_s(p, message_s, *, waited_s=0.0):
    """Time that exchanges add to both turns [s], if messages passed on and other exchanges take so long [s]."""
    prepared = p.basis.prepared

    class Stub:
        library = None

        def __call__(self, exchange, size_bytes, stage):
            del size_bytes, stage
            return message_s if exchange.kind == "pass_on" else waited_s

        def taken_share(self, exchange, stage):
            return 0.0

    return replace(prepared, exchanges=Stub()).nominal.composed.stages[0].group_s


def product_s(p, *layers, role=Role.OUTPUT, phase=Phase.FORWARD):
    """Time of one product of each layer. [s]"""
    (timed,) = p.basis.timed.stages
    groups = [
        each.group
        for each in timed.stage.lowered.table.occurrences
        if (each.layer, each.role, each.phase) in {(layer, role, phase) for layer in layers}
        and timed.stage.lowered.table.operation_kinds[each.group] == "contraction"
    ]
    assert len(groups) == len(layers)
    return float(timed.operations_s(groups))


def test_four_exchanges_of_a_block_by_hand():
    """Gathered before queries, keys and values and before the first product of the MLP, summed after the others."""
    p = predicted("megatron_core_overlap")
    by_inputs = ("block1_attention_output", "block1_mlp_down")
    forward = [product_s(p, layer) for layer in ("block1_attention_operands", "block1_mlp_up", *by_inputs)]
    backward = [product_s(p, layer, role=Role.INPUT_GRADIENT, phase=Phase.BACKWARD) for layer in by_inputs]
    message_s = 0.8 * max(forward)
    exposed_s = [sum(max(0.0, message_s - 0.75 * each) for each in of_phase) for of_phase in (forward, backward)]
    assert exposed_s[0] > 0
    assert group_s(p, message_s) == pytest.approx([BLOCKS * seconds for seconds in exposed_s], rel=1e-12)


@every_framework
def test_free_messages_cost_nothing_and_long_ones_all_but_what_computes_meanwhile(framework):
    p = predicted(framework)
    assert group_s(p, 0.0) == (0.0, 0.0)
    (stage,) = p.basis.prepared.stages
    for phase, seconds in zip((Phase.FORWARD, Phase.BACKWARD), group_s(p, 1.0), strict=True):
        rings = rings_of(stage, phase)
        beside_s = sum(each.repeat * float(p.basis.timed.stages[0].operations_s(each.groups)) for each in rings)
        count = sum(each.repeat for each in rings)
        assert 0 < beside_s < 0.5 * count
        assert seconds == pytest.approx(count - (1 - 1 / SIZE) * beside_s, rel=1e-12)
    # messages as long as the parts beside them, and any shorter ones, are hidden
    assert group_s(p, 1e-9) == (0.0, 0.0)


@every_framework
def test_longer_messages_never_cost_less(framework):
    p = predicted(framework)
    steps = np.array([group_s(p, message_s) for message_s in np.geomspace(1e-6, 1e-2, 20)])
    assert np.all(np.diff(steps, axis=0) >= 0)
    assert np.all(np.diff(steps, axis=0) <= np.diff(np.geomspace(1e-6, 1e-2, 20))[:, None] * 8 * BLOCKS)


@every_framework
def test_faster_links_never_expose_more(framework):
    prepared = predicted(framework).basis.prepared

    def exposed_s(lanes):
        exchanges = LinkExchanges(
            placement=prepared.placement, links={"tensor": replace(pm.load_link("nvlink_4_x1"), lane_count=lanes)}
        )
        return replace(prepared, exchanges=exchanges).nominal.composed.stages[0].group_s

    steps = np.array([exposed_s(lanes) for lanes in (1, 2, 4, 8, 18, 36)])
    assert np.all(np.diff(steps, axis=0) < 0)  # what waits in either phase takes less time too


@every_framework
def test_one_device_or_undivided_sequences_leave_products_whole(framework):
    for alone in ({"tensor_size": 1, "parallelism": "data", "sequence_parallel": False}, {"sequence_parallel": False}):
        cut, whole = (predicted(name, **alone) for name in (framework, WHOLE[framework]))
        assert cut.step_s == whole.step_s
        assert cut.parts == whole.parts


@pytest.mark.parametrize(
    ("graph", "framework", "forward", "backward"),
    [
        (GPT, "megatron_core_overlap", 4, 2),  # sums of input gradients are beside weight gradients
        (LLAMA, "megatron_core_overlap", 4, 2),
        (GPT, "torchtitan_compiled_async", 4, 4),  # one product makes each of them
        (LLAMA, "torchtitan_compiled_async", 4, 2),  # those of a gate and its units are added up first
    ],
)  # fmt: skip
def test_which_exchanges_of_a_block_are_passed_on(graph, framework, forward, backward):
    cut, whole = (predicted(name, graph) for name in (framework, WHOLE[framework]))
    (stage,), (as_whole,) = cut.basis.prepared.stages, whole.basis.prepared.stages
    counts = [sum(each.repeat for each in rings_of(stage, phase)) for phase in (Phase.FORWARD, Phase.BACKWARD)]
    assert counts == [forward * BLOCKS, backward * BLOCKS]
    assert all(each.groups for phase in (Phase.FORWARD, Phase.BACKWARD) for each in rings_of(stage, phase))
    for one, other in zip(stage.placed.exchanges, as_whole.placed.exchanges, strict=True):
        assert (one.phase, one.bytes_per_sample, one.after_layer) == (
            other.phase,
            other.bytes_per_sample,
            other.after_layer,
        )
        assert one.kind == other.kind or one.kind == "pass_on"
    # what runs beside whole products is the same, and no exchange runs beside both
    roles = load_framework(framework).exchange.tensor_beside
    counted = [sum(each.repeat for each in started_exchanges(each, roles)) for each in (stage, as_whole)]
    assert counted[0] == counted[1]
    assert rings_of(as_whole, Phase.FORWARD) == ()


def test_scores_word_tables_and_attention_with_its_own_projections_wait():
    habits = TensorHabits(cuts_products=True)
    shard = tensor_split(LLAMA, tensor_size=SIZE, element_bytes=2, sequence_parallel=True, habits=habits)
    waiting = [each for each in shard.exchanges if each.phase is Phase.FORWARD and each.kind != "pass_on"]
    assert [each.kind for each in waiting] == ["reduce_scatter", "all_gather", "all_reduce"]  # words, scores, loss
    encoder = pm.graph.LayerGraph("encoder", inputs={"sequence": (64, 256)})
    encoder.add("attention", pm.layers.MultiHeadAttention(heads=8), inputs="sequence")
    encoder.add("norm", pm.layers.LayerNorm(), inputs="attention")
    shard = tensor_split(encoder, tensor_size=SIZE, element_bytes=2, sequence_parallel=True, habits=habits)
    assert not [each for each in shard.exchanges if each.kind == "pass_on"]


@every_framework
@pytest.mark.parametrize("recompute", ["full", "selective"])
def test_what_runs_again_hides_its_messages_again(framework, recompute):
    again, once = predicted(framework, recompute=recompute), predicted(framework)
    (stage,) = again.basis.prepared.stages
    assert all(each.groups for each in rings_of(stage, Phase.BACKWARD))
    assert again.exposed_sync_s < predicted(WHOLE[framework], recompute=recompute).exposed_sync_s
    more = sum(each.repeat for each in rings_of(stage, Phase.BACKWARD)) - sum(
        each.repeat for each in rings_of(once.basis.prepared.stages[0], Phase.BACKWARD)
    )
    assert (more > 0) == (recompute == "full")


@every_framework
@pytest.mark.parametrize("graph", [GPT, LLAMA], ids=["gpt", "llama"])
@pytest.mark.parametrize("size", [2, 4, 8])
def test_cut_products_expose_less_and_compute_the_same(framework, graph, size):
    cut, whole = (predicted(name, graph, tensor_size=size) for name in (framework, WHOLE[framework]))
    assert cut.exposed_sync_s < whole.exposed_sync_s
    assert cut.exposed_sync_s <= cut.sync_s
    for name in ("compute_s", "memory_bound_s", "launch_s", "dispatch_s", "update_s"):
        assert getattr(cut, name) == pytest.approx(getattr(whole, name), rel=1e-12)
    assert cut.interval.low_s < cut.step_s < cut.interval.high_s


LAYOUTS = (
    {},
    {"recompute": "full"},
    {"workers": 2, "shard_stage": 3},
    {"context_size": 2, "tensor_size": 2},
    {"parallelism": "pipeline", "stages": 2, "micro_batches": 4},
    {"parallelism": "pipeline", "stages": 2, "micro_batches": 4, "schedule": "interleaved", "interleave": 2},
)


@every_framework
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_timeline_plays_what_is_composed(framework, layout):
    graph = pm.zoo.gpt(layers=4, width=1024, heads=16, sequence_length=512, vocabulary=8192)
    p = predicted(framework, graph, **layout)
    assert p.play(2).makespan_s - p.play(1).makespan_s == pytest.approx(p.step_s, rel=1e-9)


def test_a_sweep_says_the_same():
    axes = {
        "framework": sorted(WHOLE) + sorted(WHOLE.values()),
        "batch_size": [4, 8],
        "tensor_size": [2, 4],
        "sequence_parallel": [False, True],
        "recompute": [None, "full"],
    }
    how = {name: value for name, value in JOB.items() if name != "batch_size"}
    table = pm.sweep(graph=GPT, workers=1, parallelism="tensor", **axes, **how)
    assert len(table) == 64
    for row in table.rows:
        sizes = {name: getattr(row, name) for name in axes}
        one = pm.predict(GPT, workers=1, parallelism="tensor", **sizes, **how)
        assert row.step_s == pytest.approx(one.step_s, rel=1e-12)


@every_framework
def test_a_search_says_the_same(framework):
    found = pm.search(
        LLAMA, system="dgx_h100", global_batch_size=16, dtype="bf16", framework=framework,
        tensor_size=[1, 4, 8], sequence_parallel=True, stages=[1], context_size=[1], recompute=[None, "full"],
    )  # fmt: skip
    layouts = [found.found(rank) for rank in range(len(found))]
    assert {layout.job.tensor_size for layout in layouts} >= {4, 8}
    for layout in layouts:
        assert layout.prediction.step_s == pytest.approx(layout.row.step_s, rel=1e-12)


@pytest.mark.parametrize("sync", ["ring_all_reduce", "all_reduce"])
def test_a_formula_says_the_same(sync):
    graph = pm.zoo.gpt(layers=1, width=256, heads=8, sequence_length=64, vocabulary=512)
    how = {"framework": "megatron_core_overlap", "parallelism": "tensor", "tensor_size": 2, "sequence_parallel": True}
    free = ("batch_size", "peak_flop_per_s", "launch_latency_s")
    how |= {"system": "dgx_a100", "workers": 2, "sync": sync}
    f = pm.formula(graph=graph, batch_size=32, free=free, **how)
    for batch_size in (2, 32, 512):
        p = pm.predict(graph, batch_size=batch_size, **how)
        assert float(f(**f.stated | {"batch_size": batch_size})) == pytest.approx(p.step_s, rel=1e-9)


def test_a_slower_exchange_is_hidden_by_parts_that_stay_as_they_are():
    p = predicted("torchtitan_compiled_async", LLAMA)
    prepared, timed = p.basis.prepared, p.basis.timed
    steps = [prepared.step_with_exchanges(timed, slower=slower) for slower in (1.0, 2.0, 4.0)]
    assert steps[0] == pytest.approx(p.step_s, rel=1e-9)
    assert steps[2] - steps[1] >= 2 * (steps[1] - steps[0]) * (1 - 1e-9)
    assert math.isfinite(steps[2])


@pytest.mark.parametrize(
    ("program", "framework", "flag"),
    [
        ("megatron", "megatron_core_overlap", "--tp-comm-overlap"),
        ("torchtitan", "torchtitan_compiled_async", "--parallelism.enable_async_tensor_parallel"),
    ],
)  # fmt: skip
def test_commands_turn_it_on(program, framework, flag):
    def flags(**asked):
        job = Job(GPT, **(JOB | TENSOR | {"framework": framework, "workers": 2} | asked))
        return launch_command(job, program, devices_per_machine=8).split()

    assert flag in flags()
    assert flag not in flags(framework=WHOLE[framework])
    assert flag not in flags(tensor_size=1, sequence_parallel=False, parallelism="data")
