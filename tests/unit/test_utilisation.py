"""MFU, HFU and tokens per second, beside the formulas of papers."""

import pytest

import perfmodel as pm
from perfmodel import layers as nn
from perfmodel.errors import ArgumentError, UnknownNameError
from perfmodel.graph import LayerGraph
from perfmodel.prediction.utilisation import model_flop, recomputed_flop

LAYERS, WIDTH, POSITIONS, WORDS = 4, 512, 256, 1000
JOB = {"batch_size": 2, "device": "a100_80_sxm", "framework": "megatron_core", "dtype": "bf16"}


def _gpt(**options):
    return pm.zoo.gpt(layers=LAYERS, width=WIDTH, heads=8, sequence_length=POSITIONS, vocabulary=WORDS, **options)


def _published(scores_share=1.0):
    # Korthikanti et al. 2022: 72 B L s h^2 (1 + s / (6 h) + V / (12 h L)); the middle term is attention
    ratio = 1 + scores_share * POSITIONS / (6 * WIDTH) + WORDS / (12 * WIDTH * LAYERS)
    return 72 * LAYERS * POSITIONS * WIDTH**2 * ratio


def test_model_flop_is_the_published_formula():
    assert model_flop(_gpt(), trains=True) == pytest.approx(_published(), rel=1e-12)
    causal = model_flop(_gpt(), trains=True, attention_flop="causal")
    assert causal == pytest.approx(_published((POSITIONS + 1) / (2 * POSITIONS)), rel=1e-12)
    assert model_flop(_gpt(), trains=False) == pytest.approx(_published() / 3, rel=1e-12)


def test_selective_recomputation_makes_the_scores_again():
    again = recomputed_flop(_gpt(attention="selective"), recompute=None)
    assert again == pytest.approx(4 * LAYERS * POSITIONS**2 * WIDTH, rel=1e-12)  # both products of attention, forward
    assert recomputed_flop(_gpt(), recompute=None) == 0


def test_whole_blocks_that_run_again_are_a_third_of_theirs():
    graph = _gpt(checkpointed=True)
    head = 2 * POSITIONS * WIDTH * WORDS
    assert recomputed_flop(graph, recompute=None) == pytest.approx(model_flop(graph, trains=True) / 3 - head, rel=1e-12)


def test_utilisation_is_flop_over_what_the_data_sheet_promises():
    graph = _gpt()
    p = pm.predict(graph, **JOB)
    assert p.mfu == pytest.approx(2 * _published() / (312e12 * p.step_s), rel=1e-12)
    assert p.hfu == p.mfu
    assert pm.predict(graph, recompute="full", **JOB).hfu > pm.predict(graph, recompute="full", **JOB).mfu
    assert p.utilisation(attention_flop="causal").mfu < p.mfu
    assert p.tokens_per_s == pytest.approx(2 * POSITIONS / p.step_s)
    assert p.to_dict()["mfu"] == p.mfu
    assert f"MFU {100 * p.mfu:.1f} %" in str(p)


@pytest.mark.parametrize(
    "spread",
    [
        {"workers": 8, "sync": "all_reduce", "shard_stage": 3},
        {"workers": 2, "tensor_size": 4, "parallelism": "tensor"},
        {"workers": 2, "stages": 4, "micro_batches": 2, "parallelism": "pipeline"},
    ],
    ids=["sharded", "tensor", "pipeline"],
)
def test_many_devices_promise_as_many_times_and_the_model_is_the_same(spread):
    p = pm.predict(
        _gpt(), system="dgx_a100_80", **{key: value for key, value in JOB.items() if key != "device"}, **spread
    )
    figures = p.utilisation()
    assert figures.device_count == 8
    assert figures.peak_flop_per_s == 8 * 312e12
    assert figures.model_flop == pytest.approx(2 * p.worker_count * _published(), rel=1e-12)
    assert p.tokens_per_s_per_device == pytest.approx(p.tokens_per_s / 8)
    assert 0 < p.mfu < 1


@pytest.mark.parametrize("frozen", [(), ("dense3",), ("dense1", "dense2"), ("dense1", "dense2", "dense3")])
def test_frozen_layers_have_no_weight_gradients_and_those_before_all_trained_ones_no_backward_phase(frozen):
    graph = LayerGraph("stack", inputs={"x": (64,)})
    x = "x"
    for place in range(1, 5):
        x = graph.add(f"dense{place}", nn.Dense(units=64), inputs=x, is_trained=f"dense{place}" not in frozen)
    first = min(place for place in range(1, 5) if f"dense{place}" not in frozen)
    # the gradient of the network's own input, which nothing reads, is counted as in 3 x forward
    passes = [1 if place < first else 2 + (f"dense{place}" not in frozen) for place in range(1, 5)]
    assert model_flop(graph, trains=True) == sum(passes) * 2 * 64 * 64
    run = sum(each.product_flop_count for _, each in graph.operations(batch_size=1, phase="forward_backward"))
    assert model_flop(graph, trains=True) == run + 2 * 64 * 64


def test_attention_of_frozen_blocks_passes_all_gradients_on():
    graph = LayerGraph("attends", inputs={"words": (32,)})
    x = graph.add("table", nn.Embedding(vocabulary=16, features=64), inputs="words")
    x = graph.add("attention", nn.MultiHeadAttention(heads=4), inputs=x, is_trained=False)
    graph.add("out", nn.Dense(units=16), inputs=x)
    projections, scores, out = 32 * 4 * 2 * 64 * 64, 32 * 4 * 32 * 64, 32 * 2 * 64 * 16
    assert model_flop(graph, trains=True) == 2 * projections + 3 * scores + 3 * out


def test_what_has_no_figures_is_refused_with_words():
    p = pm.predict(pm.zoo.alexnet(), batch_size=8, device="gtx_1080")
    with pytest.raises(ArgumentError, match="embedding"):
        _ = p.tokens_per_s
    with pytest.raises(UnknownNameError, match="causal"):
        p.utilisation(attention_flop="half")
    assert "MFU" not in str(p)
    assert p.to_dict()["tokens_per_s"] is None
    assert 0 < p.mfu < 1


def test_narrow_products_on_fp32_lanes_have_their_peak_and_energy():
    # a GTX 1080 multiplies halves at 1/64 of fp32, so that frameworks widen them: as many FLOP, on the same lanes
    single, half = (pm.predict(_gpt(), batch_size=8, device="gtx_1080", dtype=dtype) for dtype in ("fp32", "fp16"))
    assert half.utilisation().peak_flop_per_s == single.utilisation().peak_flop_per_s == 8.873e12
    assert 0.2 < half.mfu < 1
    assert half.energy_j(part="arithmetic") == pytest.approx(single.energy_j(part="arithmetic"), rel=1e-3)
