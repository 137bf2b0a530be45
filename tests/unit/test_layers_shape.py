"""Views, copies, sources and picking by index: shapes by torch, counts by hand, calls of torch."""

import pytest
import torch

from perfmodel.errors import ArgumentError, ShapeError
from perfmodel.graph import LayerGraph
from perfmodel.layers import (
    LAYERS,
    Concat,
    Constant,
    Copy,
    Dense,
    Detach,
    Expand,
    Fill,
    Opaque,
    Output,
    Parameter,
    Rearrange,
    Reshape,
    Scatter,
    ShapeMismatchError,
    SharedShape,
    Slice,
    Take,
    TopK,
    Transpose,
)
from perfmodel.records import Work
from tests.torch_calls import call_of, shared, translated

N = 2  # samples
ATEN = torch.ops.aten


def forward(layer, *shapes):
    return layer.work(shapes, batch_size=N, phase="forward")


def gradients(layer, *shapes, wanted=None):
    operations = layer.gradient_operations(shapes, batch_size=N, wanted=wanted or [True] * len(shapes))
    return [each.work(element_bytes=4) for each in operations]


def meta(*shape, dtype=torch.float32):
    return torch.empty((N, *shape), device="meta", dtype=dtype)


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        (Reshape(shape=(9, 4)), (4, 9), (9, 4)),
        (Transpose(axes=(2, 0, 1)), (4, 5, 6), (6, 4, 5)),
        (Slice(shape=(2, 9)), (4, 9), (2, 9)),
        (Detach(), (4, 9), (4, 9)),
        (Output(), (4, 9), (4, 9)),
        (Expand(shape=(3, 4)), (3, 1), (3, 4)),
    ],
)
def test_views_cost_nothing(layer, shape, expected):
    assert layer.is_view
    assert layer.output_shape((shape,)) == expected
    assert forward(layer, shape) == Work()


def test_gradients_of_views():
    assert gradients(Reshape(shape=(36,)), (4, 9)) == []
    assert gradients(Transpose(axes=(1, 0)), (4, 9)) == []
    # a part of 18 of 36 elements: dy is read, all of dx is written
    assert gradients(Slice(shape=(2, 9)), (4, 9)) == [Work(0, 4 * 36, 4 * 72)]
    assert gradients(Slice(shape=(2, 9), is_joined=True), (4, 9)) == []
    # repeated 4 times: a read and an add per element of dy
    assert gradients(Expand(shape=(3, 4)), (3, 1)) == [Work(24, 4 * 24, 4 * 6)]
    assert gradients(Expand(shape=(1, 3)), (3,)) == []
    assert Detach().differentiable(1) == (False,)


def test_a_table_expanded_to_the_batch():
    layer, token = Expand(shape=(1, 6), per_sample=True), SharedShape((1, 1, 6))
    assert not isinstance(layer.output_shape((token,)), SharedShape)
    assert gradients(layer, token) == [Work(12, 4 * 12, 4 * 6)]  # summed over 2 samples
    graph = LayerGraph("vit", input_shape=(4, 6))
    table = graph.add("token", Parameter(shape=(1, 1, 6)))
    tokens = graph.add("expand", layer, inputs=table)
    graph.add("join", Concat(), inputs=[tokens, graph.input])
    assert graph.shape("join") == (5, 6)
    assert graph.parameter_count == 6
    assert not graph.node("expand").is_shared
    names = [name for name, _ in graph.operations(batch_size=N, phase="backward")]
    assert names == ["join", "expand"]


def test_copies():
    n = N * 36
    assert forward(Copy(), (4, 9)) == Work(0, 4 * n, 4 * n)
    assert gradients(Copy(), (4, 9)) == []  # dy is passed on
    moved = Transpose(axes=(1, 0), copies=True)
    assert not moved.is_view
    assert forward(moved, (4, 9)) == Work(0, 4 * n, 4 * n)
    assert gradients(moved, (4, 9)) == [Work(0, 4 * n, 4 * n)]
    assert forward(Rearrange(shape=(1, 6, 6)), (4, 3, 3)) == Work(0, 4 * n, 4 * n)
    # repeated twice: 36 read, 72 written; back the sum
    assert forward(Rearrange(shape=(8, 9)), (4, 9)) == Work(0, 4 * n, 4 * 2 * n)
    assert gradients(Rearrange(shape=(8, 9)), (4, 9)) == [Work(2 * n, 4 * 2 * n, 4 * n)]


def test_stacks_have_one_axis_more():
    layer = Concat(axis=1, new_axis=True)
    assert layer.output_shape(((5, 6),) * 3) == (5, 3, 6)
    assert forward(layer, (5, 6), (5, 6)) == Work(0, 4 * 120, 4 * 120)
    with pytest.raises(ShapeMismatchError, match="5x6 and 5x7"):
        layer.output_shape(((5, 6), (5, 7)))


def test_sources():
    assert Parameter(shape=(3, 4)).parameter_count(()) == 12
    assert isinstance(Parameter(shape=(3, 4)).output_shape(()), SharedShape)
    assert Constant(shape=(3, 4)).parameter_count(()) == 0
    assert Fill(shape=(3, 4)).work((), batch_size=N, phase="forward") == Work(0, 0, 4 * 12)  # once for all samples
    own = Fill(shape=(3, 4), function="normal", per_sample=True)
    assert own.work((), batch_size=N, phase="forward") == Work(0, 0, 4 * 24)
    # a range: start + index step
    assert Fill(shape=(5,), function="range").work((), batch_size=N, phase="forward") == Work(10, 0, 20)


def test_a_parameter_has_the_gradient_that_its_reader_computes():
    graph = LayerGraph("scaled", input_shape=(6,))
    scale = graph.add("scale", Parameter(shape=(6,)))
    graph.add("times", LAYERS["binary"](function="multiply"), inputs=[graph.input, scale])
    work = graph.work(batch_size=N, phase="backward")
    # dy x for 12 elements, summed over the samples: 12 + 12 FLOP; the input wants no gradient
    assert work.flop_count == 24
    assert graph.trained_parameter_count == 6


def test_opaque_operations_are_never_free():
    layer = Opaque(operator="my.op", shape=(3,))
    assert forward(layer, (4,), SharedShape((5,))) == Work(8 + 5 + 6, 4 * 13, 4 * 6)
    # reads both inputs and dy, writes the gradients of both
    assert gradients(layer, (4,), SharedShape((5,))) == [Work(13 + 6 + 13, 4 * 19, 4 * 13)]
    assert gradients(layer, (4,), SharedShape((5,)), wanted=[False, False]) == []
    assert isinstance(Opaque(operator="my.op", shape=(), over_batch=True).output_shape(((4,),)), SharedShape)


def test_an_output_ends_a_graph_beside_a_loss():
    graph = LayerGraph("two", input_shape=(6,))
    hidden = graph.add("hidden", Dense(units=4), inputs=graph.input)
    graph.add("scores", Output(), inputs=graph.add("dense", Dense(units=3), inputs=hidden))
    graph.add("loss", LAYERS["mean_squared_error"](), inputs=hidden)
    # nothing flows back from what is only handed out
    assert {name for name, _ in graph.operations(batch_size=N, phase="backward")} == {"loss", "hidden"}


def test_taking_rows():
    layer, shapes = Take(shape=(3, 6), row_elements=6), ((5, 6), (3,))
    rows, n = N * 3, N * 18
    assert forward(layer, *shapes) == Work(0, 4 * n + 4 * rows, 4 * n)
    # the gradient of 60 is cleared, then 36 are added into it
    assert gradients(layer, *shapes) == [Work(n, 4 * 2 * n + 4 * rows, 4 * (n + 60))]
    assert layer.kept_inputs((True, False), is_trained=True) == (False, True)  # the indices


def test_scattering():
    shapes = ((5, 6), (2, 6), (2,))
    n, m, index_bytes = N * 30, N * 12, 4 * N * 2
    assert forward(Scatter(), *shapes) == Work(0, 4 * (n + m) + index_bytes, 4 * (n + m))
    assert forward(Scatter(adds=True), *shapes) == Work(m, 4 * (n + 2 * m) + index_bytes, 4 * (n + m))
    cleared, picked = gradients(Scatter(), *shapes)
    assert cleared == Work(0, 4 * n + index_bytes, 4 * (n + m))
    assert picked == Work(0, 4 * m + index_bytes, 4 * m)
    assert gradients(Scatter(adds=True), *shapes) == [picked]  # to the first input dy is passed on
    assert Scatter().kept_inputs((True, True, False), is_trained=True) == (False, False, True)
    assert Scatter(has_source=False).differentiable(2) == (True, False)


def test_the_largest():
    layer = TopK(count=3)
    assert layer.output_shape(((5, 6),)) == (5, 3)
    # each of 60 elements is compared with the middle of 3, then with one of the others
    assert forward(layer, (5, 6)) == Work(2 * 60, 4 * 60, 4 * 30 + 4 * 30)
    assert gradients(layer, (5, 6)) == [Work(0, 4 * 30 + 4 * 30, 4 * 90)]
    assert layer.saved_index_count(((5, 6),), batch_size=N) == 30
    assert TopK(count=3, result="index").differentiable(1) == (False,)
    with pytest.raises(ShapeMismatchError, match="7 elements"):
        TopK(count=7).output_shape(((5, 6),))


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: Transpose(axes=(0, 2)), "axes"),
        (lambda: Transpose(axes=[1, 0]), "axes"),
        (lambda: Reshape(shape=(0, 3)), "shape"),
        (lambda: Reshape(shape=[3]), "shape"),
        (lambda: Fill(shape=(3,), function="ones"), "function"),
        (lambda: Opaque(operator="", shape=()), "operator"),
    ],
)
def test_senseless_options_are_refused(make, argument):
    with pytest.raises(ArgumentError, match=argument):
        make()


@pytest.mark.parametrize(
    ("layer", "shape", "words"),
    [
        (Reshape(shape=(5, 7)), (5, 6), "5x7, 35 elements.*5x6, 30"),
        (Slice(shape=(5, 7)), (5, 6), "5x7.*5x6"),
        (Expand(shape=(5, 7)), (5, 6), "5x7.*5x6"),
        (Transpose(axes=(1, 0)), (5, 6, 7), "2 axes.*5x6x7"),
    ],
)
def test_shapes_that_do_not_fit_are_named(layer, shape, words):
    graph = LayerGraph("wrong", input_shape=shape)
    with pytest.raises(ShapeError, match=words):
        graph.add("layer", layer, inputs=graph.input)


TOKEN = shared(torch.empty((1, 1, 6), device="meta"))
PICKED = shared(torch.empty(3, dtype=torch.int64, device="meta"))
ROWS = torch.empty((N, 3, 6), dtype=torch.int64, device="meta")
CALLS = [
    (ATEN.view.default, (meta(4, 9), [N, 36]), Reshape(shape=(36,))),
    (ATEN.unsqueeze.default, (meta(4, 9), 1), Reshape(shape=(1, 4, 9))),
    (ATEN.permute.default, (meta(4, 9, 8), [0, 2, 3, 1]), Transpose(axes=(1, 2, 0))),
    (ATEN.transpose.int, (meta(4, 9, 8), 1, 3), Transpose(axes=(2, 1, 0))),
    (ATEN.slice.Tensor, (meta(4, 9), 1, 0, 2), Slice(shape=(2, 9))),
    (ATEN.slice.Tensor, (meta(4, 9), 0, 0, 9), Reshape(shape=(4, 9))),
    (ATEN.select.int, (meta(4, 9), 1, 0), Slice(shape=(9,))),
    (ATEN.split.Tensor, (meta(4, 9), 2, 1), Slice(shape=(2, 9), is_joined=True)),
    (ATEN.unbind.int, (meta(4, 9), 1), Slice(shape=(9,), is_joined=True)),
    (ATEN.expand.default, (meta(4, 1), [N, 4, 9]), Expand(shape=(4, 9))),
    (ATEN.expand.default, (TOKEN, [N, 1, 6]), Expand(shape=(1, 6), per_sample=True)),
    (ATEN.clone.default, (meta(4),), Copy()),
    (ATEN._to_copy.default, (meta(4),), Copy()),
    (ATEN.detach.default, (meta(4),), Detach()),
    (ATEN.cat.default, ([meta(4), meta(3)], 1), Concat()),
    (ATEN.stack.default, ([meta(4), meta(4)], 2), Concat(axis=1, new_axis=True)),
    (ATEN.roll.default, (meta(4), [1], [1]), Rearrange(shape=(4,))),
    (ATEN.repeat.default, (meta(4), [1, 2]), Rearrange(shape=(8,))),
    (ATEN.zeros_like.default, (meta(4),), Fill(shape=(4,), per_sample=True)),
    (ATEN.gather.default, (meta(5, 6), 1, ROWS), Take(shape=(3, 6))),
    (ATEN.index_select.default, (meta(5, 6), 1, PICKED), Take(shape=(3, 6), row_elements=6)),
    (ATEN.index.Tensor, (meta(5, 6), [None, PICKED]), Take(shape=(3, 6), row_elements=6)),
    (ATEN.scatter_add.default, (meta(5, 6), 1, ROWS, meta(3, 6)), Scatter(adds=True)),
    (ATEN.scatter.value, (meta(5, 6), 1, ROWS, 1.0), Scatter(has_source=False)),
    (ATEN.topk.default, (meta(5, 6), 2), TopK(count=2, axis=1)),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "given", "layer"), CALLS, ids=lambda each: str(each)[:40])
def test_calls_of_torch(operator, given, layer):
    call = call_of(operator, *given)
    translation = translated(LAYERS.values(), call)
    assert translation.layer == layer
    assert layer.output_shape(tuple(each.shape for each in translation.inputs)) == call.output.shape


def test_ranges_are_shared():
    call = call_of(ATEN.arange.default, 5, device="meta", shared_output=True)
    assert translated(LAYERS.values(), call).layer == Fill(shape=(5,), function="range")


def test_one_of_the_samples_is_no_part_of_each():
    call = call_of(ATEN.select.int, meta(4, 9), 0, 0, shared_output=True)
    assert translated(LAYERS.values(), call) is None
