"""Attention as kernels: products and passes over scores in memory, or one kernel per pass that keeps them on chip."""

from dataclasses import replace

import pytest

import perfmodel as pm
from perfmodel.framework.lowering import lower, visible_keys
from perfmodel.kernels import Matmul, Stream
from perfmodel.layers import CrossEntropy, Dense, MultiHeadAttention
from perfmodel.records import Attention, Role
from tests.lowering_rules import PLAIN, changed

B, H, G, Q, K, D, V = 3, 4, 2, 9, 5, 8, 6
MATERIALISED = Attention(
    batch_size=B, heads=H, key_heads=G, queries=Q, keys=K, head_size=D, value_size=V, scores="materialised"
)
RECOMPUTED = replace(MATERIALISED, scores="recomputed")
SCORES = B * H * Q * K
PASSES = pytest.mark.parametrize("role", [Role.OUTPUT, Role.INPUT_GRADIENT])


def kernels_of(operation, *, rules=PLAIN, processor="gpu"):
    (alternative,) = lower(operation, rules=rules, element_bytes=4, processor=processor)
    assert alternative.workspace_bytes == 0
    return alternative.kernels


def moved(kernels):
    return sum((each.read_bytes + each.written_bytes) * each.launches for each in kernels)


def arithmetic(kernels):
    return sum(each.flop_count * each.launches for each in kernels if isinstance(each, Matmul))


def test_materialised_forward_kernels():
    scores, softmax, context = kernels_of(MATERIALISED)
    assert (scores.m, scores.n, scores.k, scores.count) == (Q, K, D, B * H)
    # keys and values of the two heads that groups of queries share, not of four
    assert scores.read_bytes == 4 * B * (H * Q * D + G * K * D)
    assert scores.written_bytes == softmax.read_bytes == softmax.written_bytes == 4 * SCORES
    assert softmax.flop_count == 5 * SCORES
    assert (context.m, context.n, context.k, context.count) == (Q, V, K, B * H)
    assert context.read_bytes == 4 * (SCORES + B * G * K * V)
    assert context.written_bytes == 4 * B * H * Q * V


def test_materialised_backward_kernels():
    to_values, to_scores, softmax, to_queries, to_keys = kernels_of(replace(MATERIALISED, role=Role.INPUT_GRADIENT))
    shapes = [(each.m, each.n, each.k) for each in (to_values, to_scores, to_queries, to_keys)]
    # P^T dO, dO V^T, dS K, dS^T Q
    assert shapes == [(K, V, Q), (Q, K, V), (Q, D, K), (K, D, Q)]
    assert softmax.read_bytes == 2 * softmax.written_bytes == 8 * SCORES
    assert [each.written_bytes for each in (to_values, to_queries, to_keys)] == [
        4 * B * G * K * V,
        4 * B * H * Q * D,
        4 * B * G * K * D,
    ]


@PASSES
@pytest.mark.parametrize("options", [{}, {"mask_elements": B * Q * K}, {"drops": True}])
@pytest.mark.parametrize("batching", ["batched", "loop"])
def test_kernels_do_the_arithmetic_and_move_the_bytes_of_the_operation(role, options, batching):
    operation = replace(MATERIALISED, role=role, **options)
    kernels = kernels_of(operation, rules=changed(PLAIN, batched_contraction=batching))
    work = operation.work(element_bytes=4)
    assert arithmetic(kernels) == operation.product_flop_count
    assert sum(each.flop_count for each in kernels if isinstance(each, Stream)) == work.flop_count - arithmetic(kernels)
    # going back, two products read the output's gradient, which the operation counts once
    twice = 4 * operation.output_elements if role is Role.INPUT_GRADIENT else 0
    assert moved(kernels) == pytest.approx(work.moved_bytes + twice)
    launches = B * H if batching == "loop" else 1
    assert {each.launches for each in kernels if isinstance(each, Matmul)} == {launches}


@PASSES
def test_one_kernel_keeps_the_scores_on_chip(role):
    operation = replace(RECOMPUTED, role=role)
    (kernel,) = kernels_of(operation)
    work = operation.work(element_bytes=4)
    assert (kernel.read_bytes, kernel.written_bytes) == (work.read_bytes, work.written_bytes)
    # forward two products; backward four and the scores once more: 2 s (3 d + 2 v)
    summed = D + V if role is Role.OUTPUT else 3 * D + 2 * V
    assert kernel.flop_count == 2 * SCORES * summed
    assert moved(kernels_of(replace(MATERIALISED, role=role))) > moved([kernel])


@PASSES
def test_a_cpu_also_takes_time_for_the_exponentials(role):
    operation = replace(RECOMPUTED, role=role)
    product, softmax = kernels_of(operation, processor="cpu")
    assert (product,) == kernels_of(operation)
    assert softmax.read_bytes + softmax.written_bytes == 0
    assert softmax.flop_count == (6 if role is Role.OUTPUT else 5) * SCORES


@pytest.mark.parametrize("queries", [1, 4, 5, 9])
def test_causal_queries_see_the_keys_up_to_their_own_position(queries):
    operation = replace(RECOMPUTED, queries=queries, keys=5, causal=True)
    seen = sum(min(position, 5) for position in range(1, queries + 1))
    assert visible_keys(operation) == pytest.approx(seen / queries)
    assert visible_keys(replace(operation, causal=False)) == 5


@PASSES
def test_causal_kernels_leave_out_what_nobody_sees(role):
    square = replace(RECOMPUTED, queries=64, keys=64, role=role)
    (causal,), (full,) = kernels_of(replace(square, causal=True)), kernels_of(square)
    assert causal.flop_count / full.flop_count == pytest.approx(65 / 128)  # (k + 1) / 2 k
    assert causal.read_bytes == full.read_bytes
    in_memory = replace(square, scores="materialised")
    assert arithmetic(kernels_of(replace(in_memory, causal=True))) == arithmetic(kernels_of(in_memory))


def transformer(*, steps=1024, **options):
    graph = pm.LayerGraph("block", inputs={"x": (steps, 512)})
    x = graph.add("attention", MultiHeadAttention(heads=8, **options), inputs="x")
    x = graph.add("scores", Dense(units=10), inputs=x)
    graph.add("loss", CrossEntropy(), inputs=x)
    return graph


@pytest.mark.parametrize("device", ["gtx_1080", "h100_sxm", "i7_3820"])
def test_predictions_on_every_kind_of_device(device):
    def step_s(batch_size=8, **options):
        return pm.predict(transformer(**options), batch_size=batch_size, device=device).step_s

    assert step_s(causal=True) < step_s() < step_s(steps=2048)
    assert step_s(scores="materialised") < step_s(scores="materialised", dropout=0.1)
    assert step_s(key_heads=2) < step_s()
    assert step_s(batch_size=16) > 1.5 * step_s(batch_size=8)
    assert step_s(scores="materialised", causal=True) > 0


@pytest.mark.parametrize("device", ["gtx_1080", "h100_sxm"])
def test_scores_in_memory_take_longer_on_gpus(device):
    seconds = {
        scores: pm.predict(transformer(scores=scores), batch_size=8, device=device, phase="forward").step_s
        for scores in ("materialised", "recomputed")
    }
    assert seconds["materialised"] > seconds["recomputed"]


@pytest.mark.parametrize(("dtype", "forward", "backward"), [("fp16", 16, 24), ("bf16", 24, 32)])
def test_softmax_of_pytorch_reads_halves_but_not_bf16(dtype, forward, backward):
    # Of each score, forward: written by its product, (cast 2 + 4,) softmax (2 or 4) + 4, cast 4 + 2, read by the next.
    # Backward: cast 2 + 4, softmax 8 + (2 or 4) (, cast 4 + 2), and 2 in each of four products.
    graph = pm.zoo.gpt(layers=1, width=768, heads=12, sequence_length=1024, attention="materialised")
    p = pm.predict(graph, batch_size=16, device="a100_80_sxm", framework="pytorch_2", dtype=dtype)
    scores, heads_in_scores = 16 * 12 * 1024**2, 2 * 64 / 1024  # bytes of a tensor of features, for each score
    rows = [row for row in p.layers if row.layer == "block1_attention"]
    attention = [row.bytes / scores for row in rows if row.kernel == "materialised_attention"]
    assert attention == pytest.approx([forward + 4 * heads_in_scores, backward + 8 * heads_in_scores], rel=1e-3)
    beside = [row.bytes / scores for row in rows if row.kernel != "materialised_attention"]
    assert beside == pytest.approx([4, 4, 4], rel=0.01)  # scale, mask, gradient of scale: in 2 B whatever softmax takes
