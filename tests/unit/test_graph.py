"""LayerGraph: shapes, order, gradients that are left out, totals, summary, JSON, and every way to get it wrong."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import sympy

from perfmodel.errors import ArgumentError, GraphError, ShapeError, SpecError, UnknownNameError
from perfmodel.graph import LayerGraph
from perfmodel.layers import (
    LSTM,
    Add,
    Concat,
    Convolution2d,
    CrossEntropy,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    MaxPool2d,
    ReLU,
)
from perfmodel.records import Work


def classifier():
    graph = LayerGraph("classifier", input_shape=(1, 4, 4))
    x = graph.add("flatten", Flatten(), inputs=graph.input)
    x = graph.add("fc1", Dense(units=8), inputs=x)
    x = graph.add("relu", ReLU(), inputs=x)
    x = graph.add("fc2", Dense(units=3), inputs=x)
    graph.add("loss", CrossEntropy(), inputs=x)
    return graph


def branches():
    """An output that feeds three layers, one of them twice removed."""
    graph = LayerGraph("branches", input_shape=(6,))
    x = graph.add("stem", Dense(units=6), inputs="input")
    a = graph.add("a", Dense(units=6), inputs=x)
    b = graph.add("b", ReLU(), inputs=x)
    joined = graph.add("join", Add(), inputs=(a, b, x))
    graph.add("loss", CrossEntropy(), inputs=joined)
    return graph


def executed(graph, phase, **options):
    pairs = graph.operations(batch_size=2, phase=phase, **options)
    return [f"{layer} {getattr(operation, 'name', operation.kind)} {operation.role}" for layer, operation in pairs]


def test_shapes_and_totals():
    graph = classifier()
    assert [node.output_shape for node in graph.layers] == [(16,), (8,), (8,), (3,), ()]
    assert graph.parameter_counts == {"fc1": 16 * 8 + 8, "fc2": 8 * 3 + 3}
    assert graph.parameter_count == 163
    assert graph.input_elements == 16
    assert graph.label_bytes_per_sample == 4
    assert graph.multiply_add_count(batch_size=2) == 2 * (16 * 8 + 8 * 3)
    assert graph.outputs == ("loss",)
    assert graph.node("fc1").output_elements == 8
    assert list(graph.digraph.successors("relu")) == ["fc2"]
    assert repr(graph) == "<LayerGraph 'classifier': 5 layers, 163 parameters>"


def test_forward_in_order_backward_in_reverse():
    graph = classifier()
    assert executed(graph, "forward") == [
        "fc1 contraction output",
        "relu relu output",
        "fc2 contraction output",
        "loss cross_entropy output",
    ]
    assert executed(graph, "backward") == [
        "loss cross_entropy input_gradient",
        "fc2 contraction input_gradient",
        "fc2 contraction weight_gradient",
        "fc2 bias_gradient weight_gradient",
        "relu relu input_gradient",
        # fc1 reads the network's input (through a view): its input gradient is left out
        "fc1 contraction weight_gradient",
        "fc1 bias_gradient weight_gradient",
    ]
    assert executed(graph, "update", optimizer="momentum") == ["fc1 momentum update", "fc2 momentum update"]
    parts = [executed(graph, part) for part in ("forward", "backward", "update")]
    assert executed(graph, "step") == [*parts[0], *parts[1], *parts[2]]
    assert executed(graph, "forward_backward") == parts[0] + parts[1]


def test_input_gradient_on_demand():
    graph = classifier()
    extra = set(executed(graph, "backward", input_gradient=True)) - set(executed(graph, "backward"))
    assert extra == {"fc1 contraction input_gradient"}
    more, less = (
        graph.work(batch_size=2, phase="backward", input_gradient=wanted).flop_count for wanted in (True, False)
    )
    assert more - less == 2 * 2 * 16 * 8


def test_layers_without_parameters_before_the_first_weight_have_no_backward():
    graph = LayerGraph("augmented", input_shape=(3, 8, 8))
    x = graph.add("dropout", Dropout(), inputs=graph.input)
    x = graph.add("pool", MaxPool2d(kernel_size=2), inputs=x)
    x = graph.add("conv", Convolution2d(out_channels=2, kernel_size=3), inputs=x)
    graph.add("relu", ReLU(), inputs=x)
    layers = {layer for layer, _ in graph.operations(batch_size=1, phase="backward")}
    assert layers == {"conv", "relu"}
    with_input = graph.operations(batch_size=1, phase="backward", input_gradient=True)
    assert {layer for layer, _ in with_input} == {"conv", "relu", "pool", "dropout"}


def test_an_index_has_no_gradient_even_on_demand():
    graph = LayerGraph("words", inputs={"tokens": (5,)})
    x = graph.add("embedding", Embedding(vocabulary=9, features=4), inputs="tokens")
    x = graph.add("lstm", LSTM(hidden_size=4), inputs=x)
    backward = executed(graph, "backward")
    assert backward == executed(graph, "backward", input_gradient=True)
    assert backward == [
        "lstm recurrence input_gradient",  # the embedding's weights want it
        "lstm recurrence weight_gradient",
        "embedding gather weight_gradient",
    ]


def test_gradients_of_a_shared_output_are_summed():
    graph = branches()
    backward = executed(graph, "backward")
    # stem feeds a, b and join: two sums of 2 x 6 elements, each two reads and a write, before stem's own gradient
    assert backward.count("stem gradient_sum input_gradient") == 2
    assert backward.index("stem gradient_sum input_gradient") > backward.index("a contraction input_gradient")
    sums = [
        operation.work(element_bytes=4)
        for _, operation in graph.operations(batch_size=2, phase="backward")
        if getattr(operation, "name", "") == "gradient_sum"
    ]
    assert sums == [Work(12, 4 * 24, 4 * 12)] * 2


def test_an_output_used_twice_by_one_layer_is_summed_too():
    graph = LayerGraph("double", input_shape=(6,))
    x = graph.add("fc", Dense(units=6), inputs="input")
    graph.add("twice", Add(), inputs=(x, x))
    assert executed(graph, "backward")[0] == "fc gradient_sum input_gradient"


def test_a_shared_input_is_summed_only_on_demand():
    graph = LayerGraph("shared", input_shape=(6,))
    a = graph.add("a", Dense(units=6), inputs="input")
    b = graph.add("b", Dense(units=6), inputs="input")
    graph.add("join", Concat(), inputs=(a, b))
    assert not any("gradient_sum" in each for each in executed(graph, "backward"))
    assert executed(graph, "backward", input_gradient=True)[-1] == "input gradient_sum input_gradient"


def test_work_of_numbers_arrays_and_symbols():
    graph, symbol = branches(), sympy.Symbol("N", positive=True)
    sizes = np.array([1, 4, 9])
    for phase in ("forward", "backward", "update", "forward_backward", "step"):
        numbers = [graph.work(batch_size=int(size), phase=phase) for size in sizes]
        array = graph.work(batch_size=sizes, phase=phase)
        exact = graph.work(batch_size=symbol, phase=phase)
        for name in ("flop_count", "read_bytes", "written_bytes"):
            expected = [getattr(work, name) for work in numbers]
            np.testing.assert_array_equal(np.broadcast_to(getattr(array, name), 3), expected)
            expression = sympy.sympify(getattr(exact, name))
            assert [expression.subs(symbol, int(size)) for size in sizes] == expected


def test_the_symbolic_work_is_a_formula_of_two_terms():
    symbol = sympy.Symbol("N")
    expected = 2 * symbol * (16 * 8 + 8 * 3) + 8 * symbol + (5 * 3 + 2) * symbol
    assert classifier().work(batch_size=symbol).flop_count == expected


def test_step_is_the_sum_of_its_phases():
    graph = branches()
    parts = [graph.work(batch_size=3, phase=phase, optimizer="adam") for phase in ("forward", "backward", "update")]
    assert graph.work(batch_size=3, phase="step", optimizer="adam") == sum(parts, Work())
    assert graph.work(batch_size=3, dtype="fp16").flop_count == parts[0].flop_count


def test_summary():
    summary = classifier().summary(batch_size=2)
    assert summary.parameter_count == 163
    assert summary.forward_flop_count == classifier().work(batch_size=2).flop_count
    assert summary.backward_flop_count == classifier().work(batch_size=2, phase="backward").flop_count
    text = str(summary)
    assert "classifier: 5 layers, 163 parameters; batch size 2" in text
    assert "fc1" in text
    assert "<table>" in summary._repr_html_()
    frame = summary.to_frame()
    assert list(frame["layer"]) == ["flatten", "fc1", "relu", "fc2", "loss"]
    assert frame["parameter_count"].sum() == 163
    assert frame["saved_bytes"].iloc[-1] == 4 * 2 * 3


# ---- wrong graphs ----


def test_names():
    graph = classifier()
    with pytest.raises(GraphError, match="'fc1' appears twice in graph 'classifier'"):
        graph.add("fc1", ReLU(), inputs="loss")
    with pytest.raises(GraphError, match="'input' appears twice"):
        graph.add("input", ReLU(), inputs="loss")
    with pytest.raises(GraphError, match=r"'new' reads 'relux', .* did you mean 'relu'"):
        graph.add("new", ReLU(), inputs="relux")
    with pytest.raises(GraphError, match="'fc1' appears twice"):
        graph.take(graph.node("fc1"))
    other = LayerGraph("other", input_shape=(4,))
    with pytest.raises(GraphError, match="'fc1' reads "):
        other.take(replace(graph.node("fc1"), input_names=("elsewhere",)))
    assert other.layers == ()
    with pytest.raises(UnknownNameError, match="Did you mean 'fc1'"):
        graph.node("fc_1")
    with pytest.raises(ArgumentError, match="name"):
        graph.add("", ReLU(), inputs="loss")
    with pytest.raises(ArgumentError, match="must be a Layer"):
        graph.add("new", "relu", inputs="loss")
    assert len(graph.layers) == 5


def test_shapes_that_do_not_fit():
    graph = LayerGraph("wrong", input_shape=(3, 5, 5))
    with pytest.raises(ShapeError, match=r"layer 'conv1': its window spans 11x11 .* larger than its input 5x5"):
        graph.add("conv1", Convolution2d(out_channels=4, kernel_size=11), inputs="input")
    with pytest.raises(ShapeError, match=r"layer 'join': takes 2 or more .* 1 are given \(shapes: 3x5x5\)"):
        graph.add("join", Add(), inputs="input")
    with pytest.raises(ShapeError, match=r"layer 'fc': takes 1 input.* 2 are given \(shapes: 3x5x5, 3x5x5\)"):
        graph.add("fc", Dense(units=3), inputs=("input", "input"))
    assert "conv1" not in graph.digraph


def test_inputs():
    with pytest.raises(ArgumentError, match="input_shape must be"):
        LayerGraph("none")
    with pytest.raises(ArgumentError, match=r"shape of input 'input' must.*\(got -3"):
        LayerGraph("wrong", input_shape=(-3, 4))
    two = LayerGraph("two", inputs={"image": (3, 4, 4), "depth": (1, 4, 4)})
    with pytest.raises(GraphError, match="image, depth"):
        _ = two.input
    two.add("join", Concat(), inputs=("image", "depth"))
    assert two.input_elements == 64
    assert two.node("join").output_shape == (4, 4, 4)


def test_loose_ends():
    with pytest.raises(GraphError, match="has no layers"):
        LayerGraph("empty", input_shape=(3,)).work()
    unread = LayerGraph("unread", inputs={"a": (3,), "b": (3,)})
    unread.add("relu", ReLU(), inputs="a")
    with pytest.raises(GraphError, match="no layer reads the input 'b'"):
        unread.work()
    graph = classifier()
    graph.add("forgotten", ReLU(), inputs="fc1")
    with pytest.raises(GraphError, match="layer 'forgotten' leads to no loss"):
        graph.work()


@pytest.mark.parametrize("batch_size", [0, -1, 1.5, float("nan"), True])
def test_batch_sizes(batch_size):
    with pytest.raises(ArgumentError, match="batch_size"):
        classifier().work(batch_size=batch_size)


def test_phases_types_and_optimizers():
    with pytest.raises(UnknownNameError, match="Did you mean 'forward'"):
        classifier().work(phase="foward")
    with pytest.raises(UnknownNameError, match="data type 'fp33'"):
        classifier().work(dtype="fp33")
    with pytest.raises(UnknownNameError, match="optimizer"):
        classifier().work(phase="step", optimizer="sdg")


# ---- files ----


def written(tmp_path, change=lambda content: None):
    """A saved graph with one change in its JSON."""
    path = tmp_path / "net.json"
    classifier().save(path)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return path


def test_round_trip(tmp_path):
    path = tmp_path / "net.json"
    for graph in (classifier(), branches()):
        graph.save(path)
        loaded = LayerGraph.load(path)
        assert loaded.layers == graph.layers
        assert loaded.fingerprint == graph.fingerprint
        assert loaded.work(batch_size=3, phase="step") == graph.work(batch_size=3, phase="step")
    assert [each.name for each in tmp_path.iterdir()] == ["net.json"]


def test_tuples_survive(tmp_path):
    graph = LayerGraph("tuples", input_shape=(3, 9, 9))
    layer = Convolution2d(out_channels=np.int64(4), kernel_size=(3, 1), padding=((1, 0), (2, 2)))
    graph.add("conv", layer, inputs="input")
    graph.save(tmp_path / "net.json")
    assert LayerGraph.load(tmp_path / "net.json").node("conv").layer == layer


def test_layers_may_stand_in_any_order(tmp_path):
    path = written(tmp_path, lambda content: content["layers"].reverse())
    assert LayerGraph.load(path).fingerprint == classifier().fingerprint


def test_fingerprint_follows_the_content():
    first, second = classifier(), classifier()
    assert first.fingerprint == second.fingerprint
    LayerGraph.add(second, "more", ReLU(), inputs="fc1")
    assert first.fingerprint != second.fingerprint


def test_unwritable_path(tmp_path):
    with pytest.raises(ArgumentError, match="must be a path that can be written"):
        classifier().save(tmp_path / "missing" / "net.json")


def test_files_that_are_no_graph(tmp_path):
    path = tmp_path / "net.json"
    with pytest.raises(SpecError, match=r"net\.json.*cannot be read"):
        LayerGraph.load(path)
    for text, words in [
        ('{"name": ', "is not JSON: line 1"),
        ("[1, 2]", "must be a JSON object"),
        ('{"format_version": NaN}', "NaN is not a finite number"),
        ("[" * 100_000, "is not a graph file"),
    ]:
        path.write_text(text)
        with pytest.raises(SpecError, match=words):
            LayerGraph.load(path)


def _rename(content, old, new):
    layer = content["layers"][1]
    layer["options"][new] = layer["options"].pop(old)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.update(format_version=3), "format_version=3 is not supported: must be 1 or 2"),
        (lambda c: c.pop("layers"), "field 'layers' is missing"),
        (lambda c: c.update(laiers=[]), "unknown field 'laiers'; did you mean 'layers'"),
        (lambda c: c.update(name=3), "name=3: must be a string"),
        (lambda c: c.update(inputs={"input": [3, -1]}), r"inputs: 'input'=\[3, -1\]: must be a list of whole"),
        (lambda c: c.update(inputs=[3]), "must be an object of sample shapes"),
        (lambda c: c.update(layers={}), "layers: must be a list"),
        (lambda c: c["layers"].append(7), r"layers\[5\]=7: must be an object"),
        (lambda c: c["layers"][1].pop("name"), r"layers\[1\]: field 'name' is missing"),
        (lambda c: c["layers"][1].pop("kind"), "layer 'fc1': field 'kind' is missing"),
        (lambda c: c["layers"][1].update(inputs="flatten"), "inputs='flatten' must be a list of names"),
        (lambda c: c["layers"][1].update(options=[]), "options=.* must be an object"),
        (lambda c: _rename(c, "units", "unit"), "layer 'fc1' .dense.: unknown option 'unit'; did you mean 'units'"),
        (lambda c: _rename(c, "units", "unit"), "option 'units' is missing"),
        (lambda c: c["layers"][1]["options"].update(units=0), r"layer 'fc1' .dense.: units must.*>= 1.*\(got 0"),
        (lambda c: c["layers"][1]["options"].update(units="many"), r"units must.*\(got 'many'"),
    ],
)
def test_faults_of_a_file_name_file_layer_field_and_remedy(tmp_path, change, words):
    with pytest.raises(SpecError, match=words) as caught:
        LayerGraph.load(written(tmp_path, change))
    assert "net.json" in str(caught.value)


def test_all_faults_come_at_once(tmp_path):
    def change(content):
        content["layers"][1]["options"]["units"] = 0
        content["layers"][3]["options"]["bias"] = "yes"

    with pytest.raises(SpecError) as caught:
        LayerGraph.load(written(tmp_path, change))
    assert len(caught.value.faults) == 2


def test_unknown_kind(tmp_path):
    path = written(tmp_path, lambda content: content["layers"][2].update(kind="rellu"))
    with pytest.raises(UnknownNameError, match=r"net\.json, layer 'relu': 'rellu'\. Did you mean 'relu'"):
        LayerGraph.load(path)
    path = written(tmp_path, lambda content: content["layers"][2].update(kind=["relu"]))
    with pytest.raises(UnknownNameError, match="layer kind"):
        LayerGraph.load(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c["layers"][1].update(inputs=["fc2"]), "cycle: (fc1 -> relu -> fc2 -> fc1|relu -> |fc2 -> )"),
        (lambda c: c["layers"][2].update(inputs=["relu"]), "cycle: relu -> relu"),
        (lambda c: c["layers"][2].update(inputs=["fc11"]), "'relu' reads 'fc11', .* did you mean 'fc1'"),
        (lambda c: c["layers"][2].update(name="fc1"), "'fc1' appears twice"),
        (lambda c: c["inputs"].update(more=[3]), "no layer reads the input 'more'"),
        (lambda c: c.update(layers=[]), "has no layers"),
    ],
)
def test_wrong_structure_in_a_file(tmp_path, change, words):
    with pytest.raises(GraphError, match=words) as caught:
        LayerGraph.load(written(tmp_path, change))
    assert "net.json" in str(caught.value)


def test_wrong_shape_in_a_file(tmp_path):
    pool = {"kind": "max_pool_2d", "options": {"kernel_size": 2}}
    path = written(tmp_path, lambda content: content["layers"][1].update(pool))
    with pytest.raises(ShapeError, match=r"layer 'fc1': .*16.*net\.json"):
        LayerGraph.load(path)


# ---- size ----


def test_a_chain_takes_as_many_calls_a_layer_however_long_it_is(tmp_path):
    def calls_of(layer_count):
        """Python calls to build, save, load and count a chain: the same on every machine."""
        calls = 0

        def count(frame, event, argument):
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            graph = LayerGraph("chain", input_shape=(16,))
            x = graph.input
            for index in range(layer_count):
                x = graph.add(f"fc{index}", Dense(units=16), inputs=x)
                x = graph.add(f"relu{index}", ReLU(), inputs=x)
            graph.save(tmp_path / "chain.json")
            loaded = LayerGraph.load(tmp_path / "chain.json")
            assert loaded.work(batch_size=2, phase="step").flop_count > 0
        finally:
            sys.setprofile(None)
        assert loaded.parameter_count == layer_count * (16 * 16 + 16)
        return calls

    calls_of(1)  # what is imported or kept once
    short, long = calls_of(250), calls_of(1000)
    assert long < 4.2 * short
    assert long < 2000 * 1000


def test_branches_nest_to_any_depth():
    def nest(graph, x, name, depth):
        if depth == 0:
            return graph.add(name, Dense(units=4), inputs=x)
        sides = [nest(graph, x, f"{name}{side}", depth - 1) for side in "ab"]
        return graph.add(name, Add(), inputs=sides)

    graph = LayerGraph("nested", input_shape=(4,))
    nest(graph, graph.input, "n", 8)
    assert graph.parameter_count == 2**8 * 20
    assert graph.multiply_add_count() == 2**8 * 16
    assert len(graph.layers) == 2**9 - 1


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: LayerGraph("a", input_shape=3),
        lambda: LayerGraph("a", inputs={}),
        lambda: LayerGraph("a", inputs={"x": None}),
        lambda: LayerGraph(5, input_shape=(3,)),
        lambda: LayerGraph("a", input_shape=(3,)).add("relu", ReLU(), inputs=None),
        lambda: LayerGraph("a", input_shape=(3,)).add("relu", ReLU(), inputs=[1]),
        lambda: LayerGraph.load(None),
        lambda: LayerGraph.load(3),
        lambda: classifier().save(None),
        lambda: classifier().save(""),
        lambda: classifier().take("fc1"),
        lambda: classifier().weight_bytes(element_bytes="fp32"),
        lambda: classifier().weight_bytes(element_bytes=-4),
    ],
)
def test_arguments_of_the_wrong_type_are_named(wrong):
    with pytest.raises(ArgumentError, match=" must be ") as refused:
        wrong()
    assert "\n" not in str(refused.value)


def test_a_notebook_shows_the_summary():
    graph = classifier()
    assert graph._repr_html_() == graph.summary()._repr_html_()
