"""Frameworks that compile: one kernel scales, masks and normalises scores; rows of weights are filled up."""

import pytest

import perfmodel as pm

JOB = {"batch_size": 16, "device": "a100_80_sxm", "dtype": "bf16", "optimizer": "adamw"}
SCORE_BYTES = 2 * 16 * 12 * 1024**2  # of one block, samples x heads x positions squared, in 16 bit


def gpt(**options):
    return pm.zoo.gpt(layers=2, width=768, heads=12, sequence_length=1024, **options)


def rows(p, layer, kernel):
    return [row for row in p.layers if row.layer == layer and row.kernel == kernel]


@pytest.mark.parametrize("framework", ["pytorch_2", "pytorch_2_compiled"])
def test_a_compiler_scales_and_masks_scores_in_the_kernel_of_softmax(framework):
    p = pm.predict(gpt(attention="materialised"), framework=framework, **JOB)
    own = [row for row in p.layers if row.layer == "block1_attention" and "attention" not in row.kernel]
    moved = sum(row.bytes for row in own) / SCORE_BYTES
    # eager: scaled, masked and its gradient scaled, each read and written
    assert moved == pytest.approx(6 if framework == "pytorch_2" else 0, abs=0.01)


@pytest.mark.parametrize("framework", ["pytorch_2", "pytorch_2_compiled"])
def test_a_compiler_fills_up_rows_of_weights_that_loads_do_not_start_at(framework):
    odd, even = (pm.predict(gpt(vocabulary=words), framework=framework, **JOB) for words in (50_257, 50_304))
    seconds = [
        sum(row.seconds for row in p.layers if row.layer == "scores" and "gemm" in row.kernel) for p in (odd, even)
    ]
    if framework == "pytorch_2":
        assert seconds[0] > 1.9 * seconds[1]
    else:
        assert seconds[0] == pytest.approx(seconds[1], rel=0.02)
        assert {row.phase for row in rows(odd, "scores", "padded_gemm")} == {"forward", "backward"}
        assert not rows(even, "scores", "padded_gemm")


def test_what_does_not_use_tensor_cores_is_not_filled_up():
    p = pm.predict(gpt(), framework="pytorch_2_compiled", **JOB | {"dtype": "fp32"})
    assert not rows(p, "scores", "padded_gemm")


def test_the_gradient_of_a_trained_bias_is_still_summed_over_samples():
    graph = pm.LayerGraph("biased", input_shape=(64, 128))
    bias = graph.add("bias", pm.layers.Parameter(shape=(8, 64, 64)))
    operands = [graph.add(name, pm.layers.Dense(units=128), inputs=graph.input) for name in ("query", "key", "value")]
    attention = pm.layers.ScaledDotProductAttention(heads=8, adds_bias=True, scores="materialised")
    graph.add("attention", attention, inputs=[*operands, bias])
    p = pm.predict(graph, framework="pytorch_2_compiled", **JOB)
    assert {row.kernel for row in p.layers if row.layer == "attention"} == {
        "materialised_attention",
        "broadcast_sum_backward",
    }
