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
