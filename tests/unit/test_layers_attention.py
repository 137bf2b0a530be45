"""Attention and embeddings: counts equal torch's own; bytes and what is kept by hand and by a published figure."""

import math
from dataclasses import replace

import pytest
import sympy
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

from perfmodel.layers import (
    Dropout,
    Embedding,
    MultiHeadAttention,
    PositionalEmbedding,
    RotaryEmbedding,
    ScaledDotProductAttention,
    SharedShape,
)
from perfmodel.layers.translation import Operand, OperatorCall
from perfmodel.records import Role, Work

N = 3


def flop_count(step):
    with FlopCounterMode(display=False) as counter:
        result = step()
    return counter.get_total_flops(), result


def products(operations):
    return sum(operation.product_flop_count for operation in operations)


@pytest.mark.parametrize(
    ("query", "key", "value", "options"),
    [
        ((4, 9, 8), (4, 9, 8), (4, 9, 8), {}),
        ((4, 9, 8), (4, 9, 8), (4, 9, 8), {"is_causal": True}),
        ((4, 9, 8), (4, 5, 8), (4, 5, 6), {}),  # cross-attention, values of another size
        ((4, 9, 8), (2, 9, 8), (2, 9, 8), {"enable_gqa": True}),
        ((9, 8), (5, 8), (5, 6), {}),
    ],
)
def test_products_are_those_torch_counts(query, key, value, options):
    tensors = [torch.empty(N, *shape, device="meta", requires_grad=True) for shape in (query, key, value)]
    forward, output = flop_count(lambda: scaled_dot_product_attention(*tensors, **options))
    backward, _ = flop_count(lambda: output.sum().backward())
    layer = ScaledDotProductAttention(causal=options.get("is_causal", False))
    assert layer.output_shape((query, key, value)) == tuple(output.shape[1:])
    for ours, theirs in ((layer.forward_operations, forward), (layer.backward_operations, backward)):
        assert products(ours((query, key, value), batch_size=N)) == theirs


@pytest.mark.parametrize("context", [None, 24, 10])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("x_wanted", [True, False])
def test_a_layer_with_projections_is_that_of_torch(context, bias, x_wanted):
    width, heads, queries, keys = 24, 4, 9, 5
    sizes = {} if context is None else {"kdim": context, "vdim": context}
    module = torch.nn.MultiheadAttention(width, heads, bias=bias, batch_first=True, device="meta", **sizes)
    x = torch.empty(N, queries, width, device="meta", requires_grad=x_wanted)
    other = x if context is None else torch.empty(N, keys, context, device="meta", requires_grad=True)
    forward, (output, _) = flop_count(lambda: module(x, other, other, need_weights=False))
    backward, _ = flop_count(lambda: output.sum().backward())

    layer = MultiHeadAttention(heads=heads, bias=bias)
    shapes = ((queries, width),) if context is None else ((queries, width), (keys, context))
    wanted = [x_wanted, True][: len(shapes)]
    assert layer.output_shape(shapes) == tuple(output.shape[1:])
    assert layer.parameter_count(shapes) == sum(each.numel() for each in module.parameters())
    assert products(layer.forward_operations(shapes, batch_size=N)) == forward
    assert products(layer.gradient_operations(shapes, batch_size=N, wanted=wanted)) == backward


class GroupedQueryAttention(torch.nn.Module):
    def __init__(self, width, heads, key_heads, head_size):
        super().__init__()
        self.head_size = head_size
        self.query = torch.nn.Linear(width, heads * head_size, bias=False, device="meta")
        self.key = torch.nn.Linear(width, key_heads * head_size, bias=False, device="meta")
        self.value = torch.nn.Linear(width, key_heads * head_size, bias=False, device="meta")
        self.output = torch.nn.Linear(heads * head_size, width, bias=False, device="meta")

    def forward(self, x):
        q, k, v = (
            each(x).unflatten(-1, (-1, self.head_size)).transpose(1, 2) for each in (self.query, self.key, self.value)
        )
        y = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.output(y.transpose(1, 2).flatten(2))


def test_grouped_queries_are_those_of_a_hand_written_module():
    module = GroupedQueryAttention(24, 6, 2, 5)
    x = torch.empty(N, 9, 24, device="meta", requires_grad=True)
    forward, output = flop_count(lambda: module(x))
    backward, _ = flop_count(lambda: output.sum().backward())
    layer = MultiHeadAttention(heads=6, key_heads=2, head_size=5, causal=True, bias=False)
    assert layer.parameter_count(((9, 24),)) == sum(each.numel() for each in module.parameters())
    assert products(layer.forward_operations(((9, 24),), batch_size=N)) == forward
    assert products(layer.backward_operations(((9, 24),), batch_size=N)) == backward


QUERY, KEY, VALUE = (4, 9, 8), (2, 5, 8), (2, 5, 6)
S = N * 4 * 9 * 5  # scores
INPUTS = N * (4 * 9 * 8 + 2 * 5 * 8 + 2 * 5 * 6)
OUTPUT = N * 4 * 9 * 6
FORWARD_PRODUCTS = 2 * S * (8 + 6)


def work(layer, shapes, role):
    operations = layer.operations(shapes, batch_size=N, phase="forward" if role is Role.OUTPUT else "backward")
    assert {operation.role for operation in operations} == {role}
    return sum((operation.work(element_bytes=4) for operation in operations), Work(0, 0, 0))


def test_recomputed_scores_do_not_go_through_memory():
    layer, shapes = ScaledDotProductAttention(), (QUERY, KEY, VALUE)
    rows = N * 4 * 9
    # scale 1, softmax 5; reads q, k, v, writes the output and a statistic of 4 B per row
    assert work(layer, shapes, Role.OUTPUT) == Work(FORWARD_PRODUCTS + 6 * S, 4 * INPUTS, 4 * OUTPUT + 4 * rows)
    # reads q, k, v, output, its gradient and the statistics; writes the gradients of q, k and v
    assert work(layer, shapes, Role.INPUT_GRADIENT) == Work(
        2 * FORWARD_PRODUCTS + 5 * S, 4 * (INPUTS + 2 * OUTPUT) + 4 * rows, 4 * INPUTS
    )
    assert layer.saved_bytes(shapes, batch_size=N, element_bytes=4) == 4 * rows
    assert layer.saved_bytes(shapes, batch_size=N, element_bytes=2) == 4 * rows  # a statistic stays single precision
    assert layer.keeps_inputs
    assert layer.keeps_output


def test_materialised_scores_do():
    layer, shapes = ScaledDotProductAttention(scores="materialised"), (QUERY, KEY, VALUE)
    # forward the scores are written, read and written by scale and softmax, and read by the second product
    assert work(layer, shapes, Role.OUTPUT) == Work(
        FORWARD_PRODUCTS + 6 * S, 4 * (INPUTS + 3 * S), 4 * (OUTPUT + 3 * S)
    )
    # probabilities for dV and the softmax, their gradient for the softmax, the scores' gradient for the scale, dQ, dK
    assert work(layer, shapes, Role.INPUT_GRADIENT) == Work(
        2 * FORWARD_PRODUCTS + 5 * S, 4 * (INPUTS + OUTPUT + 6 * S), 4 * (INPUTS + 3 * S)
    )
    # the mask of causal attention is added in a pass that reads scores and mask
    more, less = (work(each, shapes, Role.OUTPUT) for each in (replace(layer, causal=True), layer))
    assert (more.flop_count - less.flop_count, more.moved_bytes - less.moved_bytes) == (S, 4 * (2 * S + 9 * 5))
    assert layer.saved_bytes(shapes, batch_size=N, element_bytes=4) == 4 * S
    assert not layer.keeps_output


def test_dropout_of_probabilities():
    shapes = (QUERY, KEY, VALUE)
    for scores, per_score in (("materialised", 4 + 4 + 1), ("recomputed", 0)):
        with_dropout = ScaledDotProductAttention(scores=scores, dropout=0.1)
        without = ScaledDotProductAttention(scores=scores)
        more, less = (work(layer, shapes, Role.OUTPUT) for layer in (with_dropout, without))
        assert more.flop_count - less.flop_count == 2 * S  # compare a random number, multiply
        # materialised: one more read and write of 4 B, and the mask of 1 B written
        assert more.moved_bytes - less.moved_bytes == per_score * S
        more, less = (work(layer, shapes, Role.INPUT_GRADIENT) for layer in (with_dropout, without))
        assert more.flop_count - less.flop_count == S
        assert more.moved_bytes - less.moved_bytes == per_score * S
    kept = ScaledDotProductAttention(scores="materialised", dropout=0.1)
    # probabilities, what dropout left of them, its mask
    assert kept.saved_bytes(shapes, batch_size=N, element_bytes=2) == (2 + 2 + 1) * S


@pytest.mark.parametrize(("mask", "elements"), [((1, 9, 5), N * 45), (SharedShape((9, 5)), 45)])
def test_a_mask_is_read_once_and_has_no_gradient(mask, elements):
    layer = ScaledDotProductAttention()
    masked, plain = (work(layer, (QUERY, KEY, VALUE, *given), Role.OUTPUT) for given in ((mask,), ()))
    assert (masked.flop_count - plain.flop_count, masked.read_bytes - plain.read_bytes) == (S, elements)
    assert layer.differentiable(4) == (True, True, True, False)


@pytest.mark.parametrize("scores", ["recomputed", "materialised"])
def test_the_gradient_of_a_bias_is_that_of_the_scores(scores):
    layer, operands = ScaledDotProductAttention(adds_bias=True, scores=scores), (QUERY, KEY, VALUE)
    own, shared = (4, 9, 5), SharedShape((4, 9, 5))  # of every sample, or of all

    def gradients(bias, *, wanted=True):
        wants = [True, True, True, wanted]
        operations = layer.gradient_operations((*operands, bias), batch_size=N, wanted=wants)
        return sum((operation.work(element_bytes=4) for operation in operations), Work(0, 0, 0))

    assert layer.differentiable(4) == (True, True, True, True)
    assert layer.gradient_operations((*operands, own), batch_size=N, wanted=[False] * 4) == ()
    # recomputed scores leave the kernel only for the bias; materialised ones are in memory anyhow
    more = gradients(own).written_bytes - gradients(own, wanted=False).written_bytes
    assert more == (4 * S if scores == "recomputed" else 0)
    summed = Work(S, 4 * S, 4 * 4 * 9 * 5)
    read_again = 4 * (S - 4 * 9 * 5) if scores == "recomputed" else 0  # by the kernel, where samples have their own
    assert gradients(own) + summed == gradients(shared) + Work(0, read_again, 0)
    product, *_ = layer.forward_operations((*operands, own), batch_size=N)
    assert product.mask_bytes(element_bytes=2) == 2 * S


def test_heads_side_by_side_are_the_same_heads():
    together = ScaledDotProductAttention(heads=4, key_heads=2)
    apart = ScaledDotProductAttention()
    shapes = ((9, 4 * 8), (5, 2 * 8), (5, 2 * 6))
    assert together.output_shape(shapes) == (9, 4 * 6)
    for phase in ("forward", "backward"):
        expected = apart.operations((QUERY, KEY, VALUE), batch_size=N, phase=phase)
        assert together.operations(shapes, batch_size=N, phase=phase) == expected


def test_kept_bytes_of_the_attention_block_are_those_of_korthikanti():
    # Korthikanti et al., arXiv:2205.05198, section 4.1: the attention block keeps 11 s b h + 5 a s^2 b bytes in half
    # precision, its input and the mask of the dropout behind it included; a whole layer 23 s b h more.
    s, b, h, a = 2048, 1, 12288, 96
    layer = MultiHeadAttention(heads=a, scores="materialised", dropout=0.1)
    kept = layer.saved_bytes(((s, h),), batch_size=b, element_bytes=2)
    kept += 2 * s * b * h  # the input
    kept += Dropout(rate=0.1).saved_bytes(((s, h),), batch_size=b, element_bytes=2)
    assert kept == 11 * s * b * h + 5 * a * s * s * b
    # the figure of that layer, 2.8689 GB
    assert kept + 23 * s * b * h == pytest.approx(2.8689e9, rel=1e-5)
    # without materialised scores only the statistics are left of the second term
    recomputed = MultiHeadAttention(heads=a).saved_bytes(((s, h),), batch_size=b, element_bytes=2)
    assert recomputed == 8 * s * b * h + 4 * a * s * b


def test_a_layer_with_projections_counts_its_bytes():
    layer, shapes = MultiHeadAttention(heads=2, key_heads=1, bias=True), ((9, 8), (5, 6))
    forward = layer.forward_operations(shapes, batch_size=N)
    # queries 8 -> 8; keys and values in one product 6 -> 2 x 4; attention; output 8 -> 8
    assert [(each.m, each.n, each.k) for each in (*forward[:2], forward[3])] == [(27, 8, 8), (15, 8, 6), (27, 8, 8)]
    assert forward[2].work(element_bytes=4).read_bytes == 4 * N * (9 * 8 + 2 * 5 * 4)
    assert forward[2].key_heads == 1
    q, kv, output = N * 9 * 8, N * 2 * 5 * 4, N * 9 * 8
    kept = layer.saved_bytes(shapes, batch_size=N, element_bytes=4)
    assert kept == 4 * (q + kv + output) + 4 * N * 2 * 9
    unwanted = layer.gradient_operations(shapes, batch_size=N, wanted=[True, False])
    both = layer.backward_operations(shapes, batch_size=N)
    (left_out,) = [each for each in both if each not in unwanted]
    assert (left_out.m, left_out.n, left_out.k) == (15, 6, 8)


def test_every_size_may_stay_open():
    s, f, h, n = sympy.symbols("S F H N", positive=True, integer=True)
    layer, closed = MultiHeadAttention(heads=h), MultiHeadAttention(heads=4)
    values = {s: 9, f: 8, h: 4, n: 3}
    assert layer.parameter_count(((s, f),)).subs(values) == closed.parameter_count(((9, 8),))
    for phase in ("forward", "backward"):
        exact, number = (
            layer.work(((s, f),), batch_size=n, phase=phase),
            closed.work(((9, 8),), batch_size=3, phase=phase),
        )
        for name in ("flop_count", "read_bytes", "written_bytes"):
            assert getattr(exact, name).subs(values) == getattr(number, name)
    # 2 x 4 F^2 per position of projections, 4 S F of products and 6 S H of softmax with the scores
    forward = layer.work(((s, f),), batch_size=n, phase="forward").flop_count
    assert sympy.expand(forward) == sympy.expand(n * s * (8 * f**2 + 4 * s * f + 6 * s * h))
    folded = ScaledDotProductAttention(heads=h)
    assert folded.output_shape(((s, f),) * 3) == (s, f)


def tensor(key, shape, axes=None, **options):
    if axes is None:
        return Operand(key=key, shape=SharedShape(shape), axes=tuple(range(len(shape))), **options)
    return Operand(key=key, shape=shape, axes=axes, **options)


def test_calls_of_torch_are_read():
    q, k, v = (tensor(key, shape, (None, 0, 1, 2)) for key, shape in (("q", QUERY), ("k", KEY), ("v", VALUE)))
    arguments = {"query": q, "key": k, "value": v, "attn_mask": None, "dropout_p": 0.1, "is_causal": True}
    read = ScaledDotProductAttention.operators["aten.scaled_dot_product_attention"]
    call = OperatorCall(operator="aten.scaled_dot_product_attention", arguments=arguments, outputs=())
    translation = read(call)
    assert translation.layer == ScaledDotProductAttention(causal=True, dropout=0.1, scores="recomputed")
    assert translation.inputs == (q, k, v)
    mask = tensor("mask", (9, 5), is_index=True)
    arguments["attn_mask"] = mask
    assert read(call).inputs == (q, k, v, mask)
    arguments["query"] = tensor("q", (9, 8, 4), (0, 1, 2, None))  # samples along the features
    assert read(call) is None


def test_nodes_of_onnx_are_read():
    read = ScaledDotProductAttention.operators["Attention"]
    apart = [tensor(key, shape, (None, 0, 1, 2)) for key, shape in (("q", QUERY), ("k", KEY), ("v", VALUE))]
    arguments = {str(place): operand for place, operand in enumerate(apart)}

    def call(**options):
        return OperatorCall(operator="Attention", arguments=arguments | options, outputs=())

    assert read(call(is_causal=1)).layer == ScaledDotProductAttention(causal=True)
    assert read(call(**{"4": apart[1]})) is None  # keys of earlier steps are joined to these
    assert read(call(**{"1": tensor("w", (8, 24), is_parameter=True)})) is None  # com.microsoft's, with projections
    side_by_side = {str(place): tensor(key, (9, 8), (None, 0, 1)) for place, key in enumerate("qkv")}
    layer = read(call(**side_by_side, q_num_heads=4, kv_num_heads=2)).layer
    assert (layer.heads, layer.key_heads) == (4, 2)
    many = ScaledDotProductAttention.operators["MultiHeadAttention"]
    assert many(call(**side_by_side, num_heads=4)).layer == ScaledDotProductAttention(heads=4)
    assert many(call(num_heads=4)) is None  # packed otherwise than (positions, features)


def test_embeddings_are_read():
    table, indices = tensor("w", (20, 4), is_parameter=True), tensor("i", (5,), (None, 0), is_index=True)
    calls = {
        "aten.embedding": (Embedding.operators, {"weight": table, "indices": indices}),
        "Gather": (Embedding.operators, {"0": table, "1": indices, "axis": 0}),
    }
    for operator, (operators, arguments) in calls.items():
        translation = operators[operator](OperatorCall(operator=operator, arguments=arguments, outputs=()))
        assert translation.layer == Embedding(vocabulary=20, features=4)
        assert translation.inputs == (indices,)
        assert dict(translation.parameters) == {"weight": table}
    picked = {"0": tensor("x", (5, 4), (None, 0, 1)), "1": indices, "axis": 0}
    assert Embedding.operators["Gather"](OperatorCall(operator="Gather", arguments=picked, outputs=())) is None
    across = {"0": table, "1": indices, "axis": 1}
    assert Embedding.operators["Gather"](OperatorCall(operator="Gather", arguments=across, outputs=())) is None
    x = tensor("x", QUERY, (None, 0, 1, 2))
    rotate = RotaryEmbedding.operators["RotaryEmbedding"]
    assert rotate(OperatorCall(operator="RotaryEmbedding", arguments={"0": x}, outputs=())).inputs == (x,)
    part = {"0": x, "rotary_embedding_dim": 4}
    assert rotate(OperatorCall(operator="RotaryEmbedding", arguments=part, outputs=())) is None


def test_an_embedding_of_several_indices_per_sample():
    layer = Embedding(vocabulary=100, features=8)
    assert layer.output_shape(((4, 3),)) == (4, 3, 8)
    rows = N * 4 * 3
    assert layer.work(((4, 3),), batch_size=N, phase="forward") == Work(0, 4 * rows * 8 + 4 * rows, 4 * rows * 8)


def test_positions_are_added():
    layer, shapes = PositionalEmbedding(positions=12), ((9, 8),)
    assert layer.parameter_count(shapes) == 12 * 8
    elements = N * 9 * 8
    # x and the nine rows in use are read; all twelve rows of the gradient are written
    assert layer.work(shapes, batch_size=N, phase="forward") == Work(elements, 4 * (elements + 72), 4 * elements)
    assert layer.work(shapes, batch_size=N, phase="backward") == Work(elements, 4 * elements, 4 * 12 * 8)
    assert not layer.keeps_inputs
    assert layer.saved_bytes(shapes, batch_size=N, element_bytes=4) == 0


def test_pairs_are_turned():
    layer = RotaryEmbedding()
    elements, tables = math.prod(QUERY) * N, 9 * 8  # cosine and sine for 4 pairs at 9 positions
    expected = Work(6 * elements // 2, 4 * (elements + tables), 4 * elements)
    for phase in ("forward", "backward"):
        assert layer.work((QUERY,), batch_size=N, phase=phase) == expected
    assert not layer.keeps_inputs
    assert layer.output_shape(((9, 8),)) == (9, 8)


def test_scores_made_again_leave_a_statistic_per_row():
    # 2 samples x 4 heads x 9 queries: the logarithm of each row's sum (4 B), and going back each row's sum of dy y
    shapes = ((4, 9, 8), (4, 5, 8), (4, 5, 6))
    layer = ScaledDotProductAttention()
    assert layer.saved_bytes(shapes, batch_size=2, element_bytes=2) == 4 * 2 * 4 * 9
    scratch = layer.backward_scratch_bytes(shapes, batch_size=2, element_bytes=2, wanted=(True, True, True))
    assert scratch == 4 * 2 * 4 * 9
