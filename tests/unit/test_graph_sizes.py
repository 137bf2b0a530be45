"""Graphs with free sizes, a fixed batch size, shared and frozen parameters."""

import math

import pytest
import sympy

import perfmodel as pm
from perfmodel.errors import ArgumentError, GraphError, ShapeError, UnknownNameError
from perfmodel.graph import LayerGraph
from perfmodel.layers import Accuracy, CrossEntropy, Dense, Embedding, ReLU
from perfmodel.records import Role

S = sympy.Symbol("S", positive=True, integer=True)
N = sympy.Symbol("N", positive=True, integer=True)


def language_model(steps=7, **usage):
    graph = LayerGraph("tied", inputs={"tokens": (steps,)})
    x = graph.add("table", Embedding(vocabulary=50, features=8), inputs="tokens")
    x = graph.add("scores", Dense(units=50, bias=False), inputs=x, **usage)
    graph.add("loss", CrossEntropy(), inputs=x)
    return graph


def test_free_sizes_are_named_and_filled():
    graph = language_model(S)
    assert graph.free_sizes == ("S",)
    assert graph.with_sizes(S=7).fingerprint == language_model(7).fingerprint
    work = graph.work(batch_size=N)
    numeric = language_model(7).work(batch_size=3)
    assert [count.subs({S: 7, N: 3}) for count in (work.flop_count, work.read_bytes, work.written_bytes)] == [
        numeric.flop_count,
        numeric.read_bytes,
        numeric.written_bytes,
    ]


@pytest.mark.parametrize("verb", [pm.sweep, pm.search])
def test_verbs_of_many_jobs_refuse_free_sizes(verb):
    with pytest.raises(ArgumentError, match=r"S with graph\.with_sizes"):
        verb(language_model(S), system="dgx_h100", global_batch_size=8)


def test_free_sizes_are_refused_where_a_number_is_needed(tmp_path):
    graph = language_model(S)
    with pytest.raises(ArgumentError, match=r"S with graph\.with_sizes"):
        pm.predict(graph, batch_size=4, device="gtx_1080")
    with pytest.raises(GraphError, match="free sizes; set S"):
        graph.save(tmp_path / "graph.json")
    with pytest.raises(UnknownNameError, match="'T'"):
        graph.with_sizes(T=3)


@pytest.mark.parametrize("size", ["__import__('os').abort()", "7", "T + 1", 0, -1, 2.5, None, True, [7], 1j])
def test_a_free_size_is_a_whole_number_and_no_text_is_run(size):
    with pytest.raises(ArgumentError, match="S must be a whole number >= 1"):
        language_model(S).with_sizes(S=size)


def test_free_sizes_are_shown_as_expressions_in_base_units():
    width = sympy.Symbol("W", positive=True, integer=True)
    graph = LayerGraph("open", input_shape=(10,))
    graph.add("scores", Dense(units=width), inputs=graph.input)
    assert repr(graph) == "<LayerGraph 'open': 1 layer, 11*W parameters>"
    text = str(graph.summary(batch_size=2))
    assert "11*W parameters; batch size 2: 40*W FLOP forward" in text  # 2 samples x 10 x W multiply-adds
    heading, row = text.splitlines()[1], text.splitlines()[3]
    assert "forward [FLOP]" in heading
    assert "40*W" in row


def test_a_graph_of_a_fixed_batch_size_counts_that_many_samples():
    whole, sample = LayerGraph("whole", input_shape=(10,), fixed_batch_size=8), LayerGraph("one", input_shape=(10,))
    for graph in (whole, sample):
        x = graph.add("dense", Dense(units=5), inputs="input")
        graph.add("relu", ReLU(), inputs=x)
    assert whole.work(phase="step") == sample.work(batch_size=8, phase="step")
    a, b = pm.predict(whole, device="gtx_1080"), pm.predict(sample, batch_size=8, device="gtx_1080")
    assert a.step_s == pytest.approx(b.step_s, rel=1e-12)
    assert a.samples_per_s == pytest.approx(b.samples_per_s, rel=1e-12)
    assert a.memory.total_bytes == pytest.approx(b.memory.total_bytes, rel=1e-12)
    with pytest.raises(ArgumentError, match="batch_size must be"):
        pm.predict(whole, batch_size=4, device="gtx_1080")


def test_a_shared_parameter_counts_once_and_its_gradients_are_added():
    tied, untied = language_model(shared_parameters={"weight": ("table", "weight")}), language_model()
    assert (tied.parameter_count, untied.parameter_count) == (400, 800)
    assert tied.work(phase="update").flop_count == 2 * 400  # w -= rate g
    assert tied.work(phase="forward") == untied.work(phase="forward")
    # two gradients of 50 x 8 are added: an addition per element
    assert tied.work(phase="backward").flop_count - untied.work(phase="backward").flop_count == 400
    with pytest.raises(ShapeError, match="'scores': shares the parameter 'wieght'"):
        language_model(shared_parameters={"weight": ("table", "wieght")})
    with pytest.raises(ShapeError, match="'scores': has no parameter 'bias' to share"):
        language_model(shared_parameters={"bias": ("table", "weight")})


def test_frozen_parameters_take_memory_but_no_gradient():
    frozen = language_model(is_trained=False)
    assert frozen.parameter_count == 800
    assert frozen.trained_parameter_count == 400
    roles = [
        operation.role for layer, operation in frozen.operations(batch_size=2, phase="backward") if layer == "scores"
    ]
    assert roles == [Role.INPUT_GRADIENT]  # the table below is trained, so the gradient flows on
    assert frozen.work(phase="update").flop_count == 2 * 400


def test_usage_survives_a_file(tmp_path):
    graph = language_model(shared_parameters={"weight": ("table", "weight")}, is_trained=False, in_place=True)
    graph.save(tmp_path / "graph.json")
    loaded = LayerGraph.load(tmp_path / "graph.json")
    assert loaded.fingerprint == graph.fingerprint
    assert loaded.node("scores").usage == graph.node("scores").usage
    whole = LayerGraph("whole", input_shape=(10,), fixed_batch_size=8)
    whole.add("dense", Dense(units=5), inputs="input")
    whole.save(tmp_path / "whole.json")
    assert LayerGraph.load(tmp_path / "whole.json").fixed_batch_size == 8


def test_nothing_flows_back_from_a_metric():
    graph = LayerGraph("metric", input_shape=(10,))
    x = graph.add("dense", Dense(units=5), inputs="input")
    graph.add("loss", CrossEntropy(), inputs=x)
    x = graph.add("head", Dense(units=5), inputs=x)
    graph.add("accuracy", Accuracy(), inputs=x)
    layers = {layer for layer, _ in graph.operations(batch_size=2, phase="backward")}
    assert layers == {"dense", "loss"}
    assert math.prod(graph.shape("head")) == 5


@pytest.mark.parametrize("size", [48, 50])  # 50 / 16 leaves a rest: skips are cropped
def test_crops_of_an_open_size_cost_what_they_cost_at_that_size(size):
    extent = sympy.Symbol("S", integer=True, positive=True)
    symbolic = pm.zoo.unet(padding="same", width=4, image_size=extent)
    numeric = pm.zoo.unet(padding="same", width=4, image_size=size).work(batch_size=3, phase="backward")
    assert symbolic.with_sizes(S=size).work(batch_size=3, phase="backward") == numeric
    work = symbolic.work(batch_size=3, phase="backward")
    for count in ("flop_count", "read_bytes", "written_bytes"):
        assert sympy.sympify(getattr(work, count)).subs(extent, size) == getattr(numeric, count)
