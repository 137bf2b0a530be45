"""Exchanges of tensor groups beside products: what software starts and does not wait for is hidden, and never free."""

from dataclasses import replace

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import ArgumentError
from perfmodel.framework.profile import load_framework
from perfmodel.graph import LayerGraph
from perfmodel.prediction.device.step_time import PARTS, TOTALS
from perfmodel.prediction.job.beside import started_exchanges
from perfmodel.records import Phase, Role
from placed_networks import place

GPT = pm.zoo.gpt(layers=3, width=2048, heads=16, sequence_length=1024, vocabulary=51_200)
SIZES = (2, 4, 8)
JOB = {"system": "dgx_h100", "workers": 1, "batch_size": 8, "dtype": "bf16", "sync": "all_reduce"}
every_size = pytest.mark.parametrize("size", SIZES)
every_sequence = pytest.mark.parametrize("sequence_parallel", [False, True])


def predicted(framework, size, sequence_parallel, **more):
    how = {"parallelism": "tensor", "tensor_size": size, "sequence_parallel": sequence_parallel}
    return pm.predict(GPT, framework=framework, **JOB | how | more)


def exchanged(p):
    """Return each exchange of the tensor group, its time alone [s], and whether Megatron-LM starts it ahead."""
    prepared = p.basis.prepared
    (stage,) = prepared.stages
    return [
        (each, float(prepared.exchanges(each, each.size_bytes(p.batch_size), stage.placed)), each.beside is not None)
        for each in stage.placed.exchanges
        if each.group == "tensor" and each.phase is not Phase.UPDATE
    ]


def taken_share(p):
    prepared = p.basis.prepared
    (stage,) = prepared.stages
    return next(prepared.exchanges.taken_share(each, stage.placed) for each, _, started in exchanged(p) if started)


def test_which_software_starts_exchanges():
    of = {name: load_framework(name).exchange.tensor_beside for name in ("megatron_core", "pytorch_2", "generic")}
    assert of == {
        "megatron_core": ("input_gradient", "weight_gradient"),
        "pytorch_2": (),
        "generic": ("input_gradient",),
    }
    assert load_framework("pytorch_2_compiled").exchange.tensor_beside == ()  # async TP is not on by itself


@every_size
@every_sequence
def test_megatron_exposes_less_and_moves_the_same(size, sequence_parallel):
    profile = load_framework("megatron_core")
    waiting = profile.model_copy(update={"exchange": profile.exchange.model_copy(update={"tensor_beside": ()})})
    waits, starts = (predicted(framework, size, sequence_parallel) for framework in (waiting, profile))
    assert starts.sync_s == pytest.approx(waits.sync_s, rel=1e-12)
    assert waits.exposed_sync_s == pytest.approx(waits.sync_s, rel=1e-12)
    assert starts.exposed_sync_s < waits.exposed_sync_s
    for name in set(PARTS + TOTALS) - {"exposed_sync_s", "sync_s"}:
        assert getattr(starts, name) == pytest.approx(getattr(waits, name), rel=1e-12, abs=1e-15)


@every_size
@every_sequence
def test_what_is_waited_for_and_the_share_of_the_device_are_never_hidden(size, sequence_parallel):
    p = predicted("megatron_core", size, sequence_parallel)
    times = exchanged(p)
    share = taken_share(p)
    assert 0.05 < share < 0.5
    waited_s = sum(seconds for _, seconds, started in times if not started)
    started_s = sum(seconds for _, seconds, started in times if started)
    tied_s = float(p.basis.timed.composed.stages[0].tied_s)
    least_s = waited_s + tied_s + share * started_s
    assert p.exposed_sync_s >= least_s * (1 - 1e-12)
    assert p.exposed_sync_s <= waited_s + tied_s + started_s
    forward = [started for each, _, started in times if each.phase is Phase.FORWARD]
    assert forward
    assert not any(forward)


def exposed_with(p, seconds):
    """Return what exchanges that each take this long expose."""
    prepared = p.basis.prepared

    class Stub:
        library = prepared.exchanges.library

        def __call__(self, exchange, size_bytes, stage):
            del size_bytes, stage
            return seconds if exchange.beside else 0.0

        def taken_share(self, exchange, stage):
            return 0.25

    return replace(prepared, exchanges=Stub()).nominal.composed.stages[0].group_s[1]


@every_sequence
def test_a_started_exchange_costs_the_greater_of_its_rest_and_its_share(sequence_parallel):
    p = predicted("megatron_core", 8, sequence_parallel)
    count = len([started for _, _, started in exchanged(p) if started])
    # beside short products it costs all of it, less the products: nothing but them hides it
    (stage,) = p.basis.prepared.stages
    times = p.basis.timed.stages[0]
    hiding_s = sum(
        each.repeat * float(times.operations_s(each.groups))
        for each in started_exchanges(stage, ("input_gradient", "weight_gradient"))
    )
    assert exposed_with(p, 10.0) == pytest.approx(10.0 * count - hiding_s, rel=1e-12)
    assert hiding_s < 1e-3 * 10.0
    # beside long ones the share of the device that it takes
    assert exposed_with(p, 1e-7) == pytest.approx(0.25e-7 * count, rel=1e-9)
    assert exposed_with(p, 0.0) == 0


@every_sequence
def test_only_the_same_layers_products_hide_an_exchange(sequence_parallel):
    p = predicted("megatron_core", 4, sequence_parallel)
    (stage,) = p.basis.prepared.stages
    table = stage.lowered.table
    occurrences = {(each.layer, each.role, each.group) for each in table.occurrences if each.phase is Phase.BACKWARD}
    roles = {Role.WEIGHT_GRADIENT, Role.INPUT_GRADIENT} if sequence_parallel else {Role.WEIGHT_GRADIENT}
    started = started_exchanges(stage, ("input_gradient", "weight_gradient"))
    assert sum(each.repeat for each in started) == len(roles) * (2 * 3 + 1)  # two in each block, and the scores
    assert {each.exchange.beside.role for each in started} == roles
    for exchange, groups, _ in started:
        (layer,) = exchange.beside.layers
        assert len(groups) == 1
        assert (layer, exchange.beside.role, groups[0]) in occurrences
        assert table.operation_kinds[groups[0]] == "contraction"
    hiding_s = sum(each.repeat * float(p.basis.timed.stages[0].operations_s(each.groups)) for each in started)
    assert 0 < hiding_s < 0.7 * float(p.basis.timed.stages[0].backward.step_s)


def test_attention_with_its_own_projections_is_hidden_by_those_of_its_inputs():
    graph = LayerGraph("attention", inputs={"sequence": (64, 256)})
    hidden = graph.add("first", pm.layers.Dense(units=256), inputs="sequence")
    whole = graph.add("attention", pm.layers.MultiHeadAttention(heads=8), inputs=hidden)
    graph.add("last", pm.layers.Dense(units=10), inputs=whole)
    p = pm.predict(graph, framework="megatron_core", parallelism="tensor", tensor_size=2, **JOB)
    (stage,) = p.basis.prepared.stages
    (started,) = started_exchanges(stage, ("weight_gradient",))
    table = stage.lowered.table
    products = [
        each.group
        for each in table.occurrences
        if (each.layer, each.phase, each.role) == ("attention", Phase.BACKWARD, Role.WEIGHT_GRADIENT)
        and table.operation_kinds[each.group] == "contraction"
    ]
    # the gradient of the output's projection is made before that of the attention, long before the exchange
    assert len(products) == 2  # of the output, and of queries, keys and values together
    assert list(started.groups) == products[1:]


def test_products_that_read_one_tensor_hide_its_sum_together():
    llama = pm.zoo.llama(
        layers=1, width=256, heads=8, key_heads=4, intermediate=512, sequence_length=64, vocabulary=512
    )
    (shard,) = place(llama, parallelism="tensor", workers=4).stages
    beside = [each.beside for each in shard.exchanges if each.beside]
    assert {each.role for each in beside} == {Role.WEIGHT_GRADIENT}
    assert sorted(len(each.layers) for each in beside) == [1, 2, 3]  # scores; gate and units; queries, keys and values


@pytest.mark.parametrize("sync", ["ring_all_reduce", "all_reduce"])
def test_a_timeline_plays_what_is_composed(sync):
    layouts = ({"parallelism": "tensor"}, {"parallelism": "pipeline", "stages": 2, "micro_batches": 4})
    for layout in layouts:
        p = pm.predict(
            GPT, framework="megatron_core", tensor_size=2, sequence_parallel=True, **(JOB | {"sync": sync}), **layout
        )
        assert p.play(2).makespan_s - p.play(1).makespan_s == pytest.approx(p.step_s, rel=1e-9)


def test_a_sweep_and_an_interval_say_the_same():
    axes = {
        "framework": ["pytorch_2", "megatron_core"],
        "batch_size": [4, 8],
        "tensor_size": [2, 4],
        "sequence_parallel": [False, True],
    }
    how = {name: value for name, value in JOB.items() if name != "batch_size"}
    table = pm.sweep(graph=GPT, parallelism="tensor", **axes, **how)
    assert len(table) == 16
    for row in table.rows:
        sizes = {name: getattr(row, name) for name in axes}
        one = pm.predict(GPT, parallelism="tensor", **sizes, **how)
        assert row.step_s == pytest.approx(one.step_s, rel=1e-12)
    p = predicted("megatron_core", 4, True)
    assert p.interval.low_s < p.step_s < p.interval.high_s


@pytest.mark.parametrize("sync", ["ring_all_reduce", "all_reduce"])
def test_a_formula_says_the_same(sync):
    graph = pm.zoo.gpt(layers=1, width=256, heads=8, sequence_length=64, vocabulary=512)
    how = {"framework": "megatron_core", "parallelism": "tensor", "tensor_size": 2, "system": "dgx_a100", "sync": sync}
    free = ("batch_size", "peak_flop_per_s", "launch_latency_s")
    f = pm.formula(graph=graph, batch_size=32, workers=2, free=free, **how)
    for batch_size in (2, 32, 512):
        p = pm.predict(graph, batch_size=batch_size, workers=2, **how)
        at = f.stated | {"batch_size": batch_size}
        assert float(f(**at)) == pytest.approx(p.step_s, rel=1e-9)


def test_a_slower_exchange_is_hidden_by_products_that_stay_as_they_are():
    p = predicted("megatron_core", 8, False)
    prepared, timed = p.basis.prepared, p.basis.timed
    assert prepared.step_with_exchanges(timed, slower=1.0) == pytest.approx(p.step_s, rel=1e-9)
    steps = [prepared.step_with_exchanges(timed, slower=slower) for slower in (1.0, 2.0, 4.0)]
    assert np.all(np.diff(steps) > 0)
    assert steps[2] - steps[1] >= 2 * (steps[1] - steps[0]) * (1 - 1e-9)


@pytest.mark.parametrize("framework", ["megatron_core_overlap", "torchtitan_compiled_async"])
def test_products_are_cut_within_a_machine(framework):
    """Copies to a peer's memory end at the machine, or at the rack that shares NVLink."""
    how = {"framework": framework, "batch_size": 8, "dtype": "bf16", "parallelism": "tensor", "workers": 1}
    across = how | {"system": "dgx_h100", "machines": 2, "tensor_size": 16}
    with pytest.raises(ArgumentError, match="tensor_size must be such that each group is in one machine"):
        pm.predict(GPT, **across, sequence_parallel=True)
    assert pm.predict(GPT, **across, sequence_parallel=False).step_s > 0
    assert pm.predict(GPT, **how, system="gb200_nvl72", tensor_size=16, sequence_parallel=True).step_s > 0
    within = pm.predict(GPT, **across | {"workers": 2, "tensor_size": 8}, sequence_parallel=True)
    assert within.job.device_count == 16


@pytest.mark.parametrize(
    ("framework", "kind"), [("torchtitan_compiled", "all_gather"), ("torchtitan_compiled_async", "pass_on")]
)
def test_operands_in_eight_bits_are_gathered_cast(framework, kind):
    """Of a block 2 inputs and 2 incoming gradients, once each; sums and the input of the scores stay in 16 bits."""
    wide, narrow = (predicted(framework, 4, sequence_parallel=True, dtype=dtype) for dtype in ("bf16", "fp8"))
    pairs = list(zip(exchanged(wide), exchanged(narrow), strict=True))
    ratios = [after.bytes_per_sample / before.bytes_per_sample for (before, *_), (after, *_) in pairs]
    halved = [after for (after, *_), ratio in zip(exchanged(narrow), ratios, strict=True) if ratio == 0.5]
    assert set(ratios) == {0.5, 1.0}
    assert len(halved) == 3 * 4
    assert {each.kind for each in halved} == {kind}
    assert {each.phase for each in halved} == {Phase.FORWARD, Phase.BACKWARD}
    own = predicted("pytorch_2", 4, sequence_parallel=True, dtype="fp8")
    assert {each.bytes_per_sample for each, *_ in exchanged(own)} <= {
        each.bytes_per_sample for each, *_ in exchanged(wide)
    }


def test_one_scale_for_a_tensor_is_gathered_with_it_and_many_are_not():
    narrow = load_framework("torchtitan").gpu.lowering.narrow
    assert [narrow.gathered_bytes(dtype) for dtype in ("bf16", "fp8", "mxfp8", "nvfp4")] == [None, 1, None, None]
    assert load_framework("megatron_core").gpu.lowering.narrow.gathered_bytes("fp8") is None


def test_products_that_stay_wide_gather_wide():
    """Of a device's blocks only products whose weights are aligned to 16 elements take cast operands."""

    def bytes_by_phase(intermediate, dtype):
        sizes = {"layers": 1, "width": 64, "heads": 4, "key_heads": 4, "sequence_length": 64, "vocabulary": 64}
        graph = pm.zoo.llama(**sizes, intermediate=intermediate)
        how = {"parallelism": "tensor", "tensor_size": 4, "sequence_parallel": True, "framework": "torchtitan"}
        p = pm.predict(graph, **JOB | how | {"dtype": dtype})
        return {
            phase: [each.bytes_per_sample for each, *_ in exchanged(p) if each.phase is phase and is_gather(each)]
            for phase in (Phase.FORWARD, Phase.BACKWARD)
        }

    def is_gather(each):
        return each.kind == "all_gather"

    whole = 64 * 64  # positions x width
    # forward: inputs of attention, of the feed-forward part and of the scores, which stay wide; back: what sums made
    for intermediate, in_feed_forward in ((4 * 16, 1), (4 * 12, 2)):
        sizes = bytes_by_phase(intermediate, "fp8")
        assert sizes[Phase.FORWARD] == [whole, in_feed_forward * whole, 2 * whole]
        assert sizes[Phase.BACKWARD].count(whole) == 3 - in_feed_forward
        assert set(bytes_by_phase(intermediate, "bf16")[Phase.FORWARD]) == {2 * whole}
