"""A metric beside the loss: it is looked at and sends nothing back, and it excuses no other loose end."""

import pytest

from perfmodel.errors import GraphError
from perfmodel.graph import LayerGraph
from perfmodel.layers import Accuracy, CrossEntropy, Dense, ReLU


def classifier():
    graph = LayerGraph("classifier", input_shape=(16,))
    x = graph.add("fc1", Dense(units=8), inputs=graph.input)
    x = graph.add("relu", ReLU(), inputs=x)
    x = graph.add("fc2", Dense(units=3), inputs=x)
    graph.add("loss", CrossEntropy(), inputs=x)
    return graph


def executed(graph, phase, **options):
    pairs = graph.operations(batch_size=2, phase=phase, **options)
    return [f"{layer} {getattr(operation, 'name', operation.kind)} {operation.role}" for layer, operation in pairs]


@pytest.mark.parametrize("labels", ["index", "one_hot"])
def test_a_metric_beside_the_loss_adds_nothing_to_the_backward_phase(labels):
    graph, plain = classifier(), classifier()
    graph.add("accuracy", Accuracy(labels=labels), inputs="fc2")
    assert graph.outputs == ("loss", "accuracy")
    # fc2 feeds loss and metric, but only the loss sends a gradient back: there is nothing to sum
    assert executed(graph, "backward", input_gradient=True) == executed(plain, "backward", input_gradient=True)
    assert graph.work(phase="backward") == plain.work(phase="backward")
    assert executed(graph, "update") == executed(plain, "update")
    searches = {"index": 1, "one_hot": 2}[labels]
    assert executed(graph, "forward") == executed(plain, "forward") + ["accuracy argmax output"] * searches
    # 2 x 3 scores and as many labels
    assert graph.work(batch_size=2).flop_count - plain.work(batch_size=2).flop_count == 6 * searches


def test_a_metric_excuses_no_other_layer_that_leads_to_no_loss():
    graph = classifier()
    graph.add("accuracy", Accuracy(), inputs="fc2")
    graph.add("forgotten", ReLU(), inputs="fc2")
    with pytest.raises(GraphError, match="the output of layer 'forgotten' leads to no loss") as caught:
        graph.work()
    assert "'accuracy'" not in str(caught.value)


def test_a_metric_needs_no_loss():
    graph = LayerGraph("scored", input_shape=(6,))
    x = graph.add("fc", Dense(units=3), inputs="input")
    graph.add("accuracy", Accuracy(), inputs=x)
    assert executed(graph, "forward") == ["fc contraction output", "accuracy argmax output"]


def test_a_metric_survives_its_file(tmp_path):
    graph = classifier()
    graph.add("accuracy", Accuracy(labels="one_hot"), inputs="fc2")
    graph.save(tmp_path / "graph.json")
    assert LayerGraph.load(tmp_path / "graph.json").fingerprint == graph.fingerprint != classifier().fingerprint
