"""Networks of other depths and shapes with as many parameters or FLOP: counted by hand, predicted like any network."""

import itertools
import json

import pytest

import perfmodel as pm
from perfmodel.cli.app import run
from perfmodel.errors import UnknownNameError

GPU = {"device": "gtx_1080", "batch_size": 64}


def _dense_parameters(widths):
    return sum((inputs + 1) * outputs for inputs, outputs in itertools.pairwise(widths))


def _hidden(graph):
    return [node.output_shape[0] for node in graph.layers if node.name.startswith("fc")]


@pytest.fixture(scope="module")
def dense():
    graph = pm.zoo.feed_forward(features=784, hidden=(1024,) * 4, classes=10)
    return graph, pm.advise(graph, kinds="architecture", **GPU)


def test_dense_alternatives_have_as_many_parameters_counted_by_hand(dense):
    graph, advice = dense
    wanted = _dense_parameters([784, 1024, 1024, 1024, 1024, 10])
    assert graph.parameter_count == wanted
    depths = set()
    for row in advice.rows:
        *hidden, classes = _hidden(row.graph)
        assert classes == 10
        assert row.parameter_count == _dense_parameters([784, *hidden, 10])
        assert row.parameter_count == pytest.approx(wanted, rel=2e-3)
        depths.add((len(hidden), len(set(hidden)) == 1))
    assert depths == {(2, True), (8, True), (4, False), (8, False)}


def test_a_neighbouring_width_is_never_closer(dense):
    """Solved, not guessed: one unit more or less in every layer deviates at least as much."""
    graph, advice = dense
    for row in advice.rows:
        *hidden, _ = _hidden(row.graph)
        if len(set(hidden)) == 1:
            counts = [_dense_parameters([784, *(width + by for width in hidden), 10]) for by in (-1, 0, 1)]
            assert min(counts, key=lambda count: abs(count - graph.parameter_count)) == row.parameter_count


def test_decreasing_layers_end_four_times_narrower(dense):
    shapes = [_hidden(row.graph)[:-1] for row in dense[1].rows if "narrower" in row.change]
    assert shapes
    for shape in shapes:
        assert shape == sorted(shape, reverse=True)
        assert shape[0] / shape[-1] == pytest.approx(4, rel=0.01)
        ratios = [wide / narrow for wide, narrow in itertools.pairwise(shape)]
        assert ratios == pytest.approx([4 ** (1 / (len(shape) - 1))] * len(ratios), rel=0.01)


@pytest.mark.parametrize(
    ("graph", "job"),
    [
        (pm.zoo.resnet50(image_size=64), {}),
        (pm.zoo.vgg16(image_size=64), {"framework": "caffe_cudnn5"}),
        (pm.zoo.gpt(layers=4, width=256, heads=4, sequence_length=64, vocabulary=512), {"phase": "forward"}),
        (pm.zoo.llama(layers=4, width=256, heads=4, key_heads=2, intermediate=688, vocabulary=512), {"batch_size": 1}),
        (pm.zoo.bert(layers=4, width=256, heads=4, sequence_length=64), {}),
        (pm.zoo.lstm_classifier(steps=20), {}),
        (pm.zoo.fcn5(features=512), {}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)  # fmt: skip
def test_every_family_is_varied_and_each_row_is_the_prediction_of_its_network(graph, job):
    advice = pm.advise(graph, kinds=["architecture", "batch_size"], **{**GPU, **job})
    rows = [row for row in advice.rows if row.graph is not None]
    assert len(rows) >= 2
    amounts = {
        "parameters": lambda network: network.parameter_count,
        "FLOP": lambda network: network.work(batch_size=1, phase="forward").flop_count,
    }
    for row in rows:
        changed = pm.predict(row.graph, **advice.arguments_with(row))
        assert (row.step_s, row.memory_bytes) == (changed.step_s, changed.memory.total_bytes)
        measure = next(name for name in amounts if f"as many {name}" in row.change)
        assert amounts[measure](row.graph) == pytest.approx(amounts[measure](graph), rel=0.15)
        assert "not predicted" in row.beware
    assert graph.fingerprint not in {
        row.graph.fingerprint for row in rows
    }  # equal parameters are no copy of the network


def test_the_job_and_its_alternatives_stand_side_by_side(dense):
    graph, advice = dense
    first, *others = advice.side_by_side
    base = pm.predict(graph, **GPU)
    assert (first.parameter_count, first.memory_bytes, first.step_s) == (
        graph.parameter_count,
        base.memory.total_bytes,
        base.step_s,
    )
    assert [other.change for other in others] == [row.change for row in advice.rows]
    text = str(advice)
    assert "side by side" in text
    assert all(row.change in text for row in advice.rows)
    assert "side by side" in advice._repr_html_()
    assert json.dumps(advice.to_dict())


def test_networks_are_tried_only_where_named(dense):
    graph, _ = dense
    advice = pm.advise(graph, **GPU)
    assert {row.kind for row in advice.rows}.isdisjoint({"architecture"})
    assert "side by side" not in str(advice)


def test_what_has_no_builder_is_refused_with_what_to_do():
    grown = pm.zoo.feed_forward()
    grown.add("accuracy", pm.layers.Accuracy(labels="one_hot"), inputs="fc3")
    for graph in (grown, pm.zoo.alexnet()):
        advice = pm.advise(graph, kinds="architecture", **GPU)
        assert not advice.rows
        assert "pm.zoo" in advice.rejected[0].reason
    with pytest.raises(UnknownNameError, match="architectures"):
        pm.advise(pm.zoo.alexnet(), kinds="architectures", **GPU)


def test_the_command_line_shows_them(capsys):
    assert run(["advise", "feed_forward", "--kinds", "architecture", "--device", "gtx_1080", "--batch-size", "64"]) == 0
    shown = capsys.readouterr().out
    assert "side by side" in shown
    assert "narrower" in shown


def test_alternatives_without_room_stand_beside_the_job_with_what_they_need():
    advice = pm.advise(pm.zoo.vgg16(), kinds="architecture", device="gtx_1080", batch_size=512)
    assert not advice.rows
    now, *others = advice.side_by_side
    assert len(others) == len(advice.rejected) >= 4
    for row, entry in zip(others, advice.rejected, strict=True):
        assert (row.change, row.fits) == (entry.change, False)
        assert row.memory_bytes > 8e9
        assert row.step_s != now.step_s
    shown = str(advice).split("the best change")[0]
    assert all(entry.change in shown for entry in advice.rejected)


def test_a_network_without_depth_is_told_what_has_one():
    shown = " ".join(str(pm.advise(pm.zoo.alexnet(), kinds="architecture", **GPU)).split())
    assert "architecture needs a network that pm.zoo builds with a depth and a width" in shown


@pytest.mark.parametrize(
    ("changed", "stored"),
    [
        (lambda graph: graph.pruned(0.5, pattern="2:4"), ("2:4", None)),
        (lambda graph: graph.quantised("int8"), (None, "int8")),
        (lambda graph: graph.at_inference().quantised("int4").pruned(0.5, pattern="2:4"), ("2:4", "int4")),
    ],
)
def test_a_changed_network_is_advised_like_it_was_built_with_the_same_changes(changed, stored):
    graph = changed(pm.zoo.feed_forward(hidden=(256,) * 4))
    advice = pm.advise(graph, kinds="architecture", phase="forward", **GPU)
    plain = pm.advise(pm.zoo.feed_forward(hidden=(256,) * 4), kinds="architecture", phase="forward", **GPU)
    assert {row.change for row in advice.rows} == {row.change for row in plain.rows} != set()
    for row in advice.rows:
        formats = {(node.usage.sparsity, node.usage.weight_dtype) for node in row.graph.layers if node.parameter_count}
        assert formats == {stored}


def test_a_structured_pruning_is_repeated_and_one_by_name_is_refused():
    graph = pm.zoo.feed_forward(hidden=(256,) * 4).pruned(0.5, pattern="structured")
    advice = pm.advise(graph, kinds="architecture", **GPU)
    assert {node.output_shape for node in graph.layers[:-1] if node.parameter_count} == {(128,), (10,)}
    for row in advice.rows:
        assert row.parameter_count == pytest.approx(graph.parameter_count, rel=0.05)
    named = pm.zoo.feed_forward().pruned(0.5, layers=["fc1"])
    assert "pruned by name" in pm.advise(named, kinds="architecture", phase="forward", **GPU).rejected[0].reason


def test_no_alternative_is_the_network_itself_or_another_alternative_again():
    tapered = pm.zoo.feed_forward(hidden=(512, 128))  # just what a fourfold taper of two layers gives
    advice = pm.advise(tapered, kinds="architecture", **GPU)
    widths = [tuple(_hidden(row.graph)) for row in advice.rows]
    assert len(widths) == len(set(widths)) >= 4
    assert tuple(_hidden(tapered)) not in widths


def test_one_layer_is_one_layer_and_signs_stand_before_numbers():
    graphs = (pm.zoo.feed_forward(), pm.zoo.fcn5(features=512), pm.zoo.lstm_classifier(steps=20))
    changes = [row.change for graph in graphs for row in pm.advise(graph, kinds="architecture", **GPU).rows]
    assert any(change.startswith("1 hidden layer of") for change in changes)
    assert any("(within 0.1 %)" in change for change in changes)
    assert not [change for change in changes if change.startswith("1 ") and "layers" in change]
    assert not [change for change in changes if "+<" in change or "-<" in change]
