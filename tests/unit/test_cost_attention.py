"""Fused attention: what one share of the peak cannot give, hand arithmetic, and published rates."""

import sys
from pathlib import Path

import numpy as np
import pytest
import sympy

import perfmodel as pm
from perfmodel import layers as nn
from perfmodel.cost.attention import attention_time, visible_scores

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import fit_attention

# 100 units of 1 GHz: 1,024 FLOP, 16 exponentials and 64 other instructions a cycle each
ROUND = {
    "peak_flop_per_s": 1024e11,
    "unit_count": 100,
    "exponentials_per_s": 16e11,
    "instructions_per_s": 64e11,
    "efficiency": 0.5,
    "softmax_instructions": 4,
    "tile_rows": 128,
    "block_rows": 128,
    "ramp_rows": 0,
}
FORWARD = {"summed": 256, "causal": 0, "backward": 0}
LIBRARY_OF = {"cudnn_9": "cudnn_9_attention"}


def rate(device="a100_80_sxm", *, heads=16, length=4096, size=128, samples=4, causal=False, key_heads=None, **how):
    """Return the rate of the arithmetic of one attention in a burst, which no power limit slows, of the peak. [1]"""
    graph = pm.LayerGraph(
        "attention",
        inputs={
            "query": (heads, length, size),
            "key": (key_heads or heads, length, size),
            "value": (key_heads or heads, length, size),
        },
    )
    graph.add("attention", nn.ScaledDotProductAttention(causal=causal), inputs=["query", "key", "value"])
    how = {"dtype": "fp16", "framework": "pytorch_2", "phase": "forward"} | how
    device = pm.load_device(device).model_copy(update={"power": None}) if isinstance(device, str) else device
    p = pm.predict(graph, batch_size=samples, device=device, **how)
    flop = 4 * samples * heads * length**2 * size / (2 if causal else 1)
    return flop / (p.compute_s + p.memory_bound_s) / device.peak_flop_per_s(how["dtype"])


def test_one_share_of_the_peak_would_not_do():
    # a sceptic's list: none of these ratios is 1, as they would be at a constant share of the peak
    assert rate(size=128) > 1.15 * rate(size=64)  # exponentials cost the same for half of the products
    assert rate(length=4096) > 1.15 * rate(length=512, samples=32)  # each block has a beginning and an end
    assert rate(samples=1, heads=1, length=512) < 0.2 * rate()  # four blocks for 108 units
    assert rate(device="h100_sxm") < 0.65 * rate()  # kernels written for Ampere
    assert rate(device="h100_sxm", library="flash_attention_3") > 1.5 * rate(device="h100_sxm")
    assert rate(library="flash_attention_1", samples=1) < 0.75 * rate(samples=1)  # kernels of the year before
    assert rate(causal=True, length=512, samples=32) < 0.85 * rate(length=512, samples=32)  # tiles on the diagonal


@pytest.mark.parametrize("library", ["flash_attention_2", "flash_attention_3"])
def test_attention_that_lasts_runs_at_the_clock_its_power_leaves(library):
    """Each pass at its own, as fewer products at once draw less."""
    board, known = pm.load_device("h100_sxm"), pm.load_library(library).constants_for("hopper", dtype="bf16")
    network = pm.zoo.llama(layers=1, width=2048, heads=16, key_heads=16, sequence_length=4096, vocabulary=64)
    how = {"batch_size": 4, "dtype": "bf16", "framework": "pytorch_2", "phase": "forward_backward"}

    def passes_s(device):
        rows = pm.predict(network, device=device, library=library, **how).layers
        return {row.phase: row.seconds for row in rows if "attention" in row.kernel}

    burst_s = passes_s(board.model_copy(update={"power": None}))
    for limit_w in (400, 500, 700):
        left_w = limit_w - board.idle_w - board.memory_w_in_products
        lasting_s = passes_s(board.with_power_limit(limit_w))
        for phase in ("forward", "backward"):
            asked_w = known[f"{phase}_efficiency"] * 989.4e12 * board.power.tensor_cores_pj * 1e-12
            clock = min(1.0, (left_w / asked_w) ** (1 / 3))
            # traffic, part of which the products do not hide, stays as fast as it is
            slowed = burst_s[phase] / lasting_s[phase]
            assert clock - 1e-9 <= slowed <= 0.9 * clock + 0.1 + 1e-9
            assert limit_w > 400 or slowed < 0.87


def test_the_products_and_the_softmax_of_a_score():
    # 2 x 256 FLOP at 512 a cycle: 1 cycle; 1/16 + 4/64 = 1/8 cycle of softmax; 100 blocks of 128 x 1,000 scores
    one = attention_time(queries=128, keys=1000, count=100, **FORWARD, **ROUND)
    assert one == pytest.approx(128 * 1000 * (1 + 1 / 64) ** 0.5 * 1e-9)
    # a block more than units: a second wave; and a ramp of 24 passes of each
    twice = attention_time(queries=128, keys=1000, count=101, **FORWARD, **ROUND | {"ramp_rows": 24})
    assert twice == pytest.approx(2 * one * 1.024)
    # going back, keys are dealt out: one row of keys still takes a tile
    back = {"summed": 256, "causal": 0, "backward": 1}
    assert attention_time(queries=1000, keys=1, count=100, **back, **ROUND) == pytest.approx(one)


def test_heads_as_blocks_wait_for_the_longest_sequence():
    by_rows = attention_time(queries=12800, keys=1000, count=1, **FORWARD, **ROUND)
    by_heads = attention_time(queries=12800, keys=1000, count=1, **FORWARD, **ROUND | {"block_rows": 1e6})
    assert by_heads == pytest.approx(100 * by_rows)


def test_few_blocks_divide_the_keys():
    # one query of ten heads: ten blocks; the loop over 12,800 keys falls to 10 units each
    alone = attention_time(queries=1, keys=12800, count=10, **FORWARD, **ROUND)
    divided = attention_time(queries=1, keys=12800, count=10, **FORWARD, **ROUND, most_splits=64)
    assert divided == pytest.approx(alone / 10)


@pytest.mark.parametrize("queries", [1, 4, 5, 9])
def test_visible_scores_are_counted_one_by_one(queries):
    seen = sum(min(position, 5) for position in range(1, queries + 1))
    assert visible_scores(queries=queries, keys=5, causal=1) == pytest.approx(seen)
    assert visible_scores(queries=queries, keys=5, causal=0) == queries * 5


@pytest.mark.parametrize("causal", [0, 1])
def test_a_causal_block_meets_the_tiles_up_to_its_own(causal):
    # 512 positions in tiles of 128: 1 + 2 + 3 + 4 of 16 tiles, and the last block still meets all keys
    one = attention_time(queries=512, keys=512, count=100, summed=256, backward=0, causal=causal, **ROUND)
    passes = 4 * 320 + (512 - 320) if causal else 4 * 512
    assert one == pytest.approx(128 * passes * (1 + 1 / 64) ** 0.5 * 1e-9)


def test_numbers_arrays_and_symbols_go_the_same_way():
    keys = sympy.Symbol("keys", positive=True)
    options = {"queries": 300, "count": 7, "summed": 128, "causal": 1, "backward": 1}
    options |= ROUND | {"ramp_rows": 50, "most_splits": 4}
    several = attention_time(keys=np.array([200.0, 300.0, 900.0]), **options)
    symbolic = attention_time(keys=keys, **options)
    for value, expected in zip((200, 300, 900), several, strict=True):
        assert attention_time(keys=value, **options) == pytest.approx(expected)
        assert float(symbolic.subs(keys, value)) == pytest.approx(expected)


def test_shared_keys_are_read_once():
    # 32 queries of 128 positions over 8,192 keys are bound by memory; two heads of keys in place of 16 are an eighth
    read = {}
    for key_heads in (16, 2):
        graph = pm.LayerGraph(
            "decoding", inputs={"q": (16, 1, 128), "k": (key_heads, 8192, 128), "v": (key_heads, 8192, 128)}
        )
        graph.add("attention", nn.ScaledDotProductAttention(), inputs=["q", "k", "v"])
        asked = {"batch_size": 256, "device": "a100_80_sxm", "dtype": "bf16", "phase": "forward"}
        read[key_heads] = pm.predict(graph, framework="pytorch_2", **asked)
    assert read[16].memory_bound_s > 0
    assert read[2].step_s < 0.8 * read[16].step_s


def test_half_precision_takes_another_kernel_than_single():
    used = {
        dtype: {each.stem for each in pm.predict(
            pm.zoo.gpt(layers=1, width=64, heads=2, sequence_length=64, vocabulary=100),
            batch_size=1, device="a100_80_sxm", dtype=dtype, framework="pytorch_2",
        ).sources}
        for dtype in ("bf16", "fp32")
    }  # fmt: skip
    assert "flash_attention_2" in used["bf16"]
    assert "memory_efficient_attention" in used["fp32"]
    # of 19.5 TFLOP/s of plain lanes
    assert 0.5 < rate(dtype="fp32", length=2048) <= 1.0


def test_dropout_takes_time_for_its_random_numbers():
    steps = []
    for dropout in (0.0, 0.1):
        graph = pm.LayerGraph("attention", inputs=dict.fromkeys("qkv", (16, 2048, 64)))
        graph.add("attention", nn.ScaledDotProductAttention(dropout=dropout), inputs=["q", "k", "v"])
        asked = {"batch_size": 8, "device": "a100_80_sxm", "dtype": "bf16", "framework": "pytorch_2"}
        steps.append(pm.predict(graph, **asked).compute_s)
    assert 1.05 < steps[1] / steps[0] < 1.5


SERIES = sorted({(row["kernel"], row["pass"]) for row in fit_attention.published()})


@pytest.mark.parametrize(("kernel", "way"), SERIES)
def test_published_rates(kernel, way):
    rows = [row for row in fit_attention.published() if (row["kernel"], row["pass"]) == (kernel, way)]
    library = pm.load_library(LIBRARY_OF.get(kernel, kernel)).constants_for("hopper", dtype="fp16")
    stated = [library[f"{way}_{name}"] for name in fit_attention.NAMES]
    # fitted to these rows: 3 % on average, at most 10 %, as the bars are labelled with three digits
    of_rows = fit_attention.errors(fit_attention.predicted(rows, stated), rows)
    assert of_rows.mean() < 0.03
    assert of_rows.max() < 0.1
    # heads and masks that were left out: the formula halves the error of one rate for all
    formula, one_rate = fit_attention.left_out(rows)
    assert formula.mean() < 0.15
    assert formula.mean() < 0.6 * one_rate.mean()


@pytest.mark.parametrize("device", ["gtx_1070", "gtx_1080", "tesla_p40", "titan_xp"])
def test_halves_that_are_widened_attend_at_the_rate_of_fp32(device):
    # 1/64 of the lanes multiply halves there, which took attention 64 times as long as in fp32
    graph = pm.zoo.gpt(layers=1, width=512, heads=8, sequence_length=256, vocabulary=64)
    half, single = (
        sum(row.seconds for row in pm.predict(graph, batch_size=8, **on).rows if row.layer == "block1_attention")
        for on in ({"device": device, "dtype": dtype} for dtype in ("fp16", "fp32"))
    )
    assert half == pytest.approx(single, rel=0.02)  # half the bytes are all that differs
