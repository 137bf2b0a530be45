"""A forward pass by itself is inference: given statistics, no dropout; a Run may say that it ran as in training."""

from dataclasses import replace

import pytest

import perfmodel as pm
from perfmodel import measurements
from perfmodel.layers import LSTM, BatchNorm, Dropout


def passes(prediction):
    return {row.kernel for row in prediction.layers if row.launches}


def test_a_forward_pass_takes_given_statistics_and_drops_nothing():
    graph = pm.zoo.vgg16(batch_norm=True)
    forward = passes(pm.predict(graph, batch_size=16, device="gtx_1080", phase="forward"))
    training = passes(pm.predict(graph, batch_size=16, device="gtx_1080", phase="forward_backward"))
    assert "frozen_batch_norm" in forward
    assert not forward & {"batch_norm", "dropout"}
    assert {"batch_norm", "batch_norm_backward", "dropout"} <= training
    assert "frozen_batch_norm" not in training


def test_batch_norm_of_inference_moves_two_thirds_of_the_bytes():
    """1 read and 1 write for 2 and 1: arithmetic on the first map of ResNet-18, 64 x 112 x 112 values of 4 B."""
    graph = pm.zoo.resnet18()
    read_bytes = [each.work(batch_size=8, phase="forward").moved_bytes for each in (graph, graph.at_inference())]
    elements = sum(
        node.output_shape[0] * node.output_shape[1] * node.output_shape[2]
        for node in graph.layers
        if isinstance(node.layer, BatchNorm)
    )
    channels = sum(node.output_shape[0] for node in graph.layers if isinstance(node.layer, BatchNorm))
    written_statistics, read_statistics = 2 * channels, 2 * channels
    assert read_bytes[0] - read_bytes[1] == 4 * (8 * elements + written_statistics - read_statistics)


def test_the_network_keeps_its_names_shapes_and_parameters():
    graph = pm.zoo.bert(attention="materialised")
    inference = graph.at_inference()
    assert [node.name for node in inference.layers] == [node.name for node in graph.layers]
    assert [node.output_shape for node in inference.layers] == [node.output_shape for node in graph.layers]
    assert inference.parameter_count == graph.parameter_count
    assert inference.at_inference() is inference
    assert graph.at_inference() is inference  # made once
    assert not any(isinstance(node.layer, Dropout) for node in inference.layers)


def test_a_network_without_such_layers_is_itself():
    graph = pm.zoo.alexnet(dropout=False)
    assert graph.at_inference() is graph


def test_what_is_added_later_is_converted_too():
    graph = pm.LayerGraph("grown", input_shape=(5, 7))
    assert graph.at_inference() is graph
    graph.add("lstm", LSTM(hidden_size=3, layer_count=2, dropout=0.5), inputs=graph.input)
    assert graph.at_inference().layers[0].layer.dropout == 0


def test_a_run_says_whether_its_forward_pass_ran_as_in_training():
    run = measurements.load("johnson2016").run("torch7_cudnn5_1", "resnet50_forward")
    assert run.training_mode
    as_timed = pm.predict(run, device="gtx_1080")
    inference = pm.predict(replace(run, training_mode=False), device="gtx_1080")
    assert "batch_norm" in passes(as_timed)
    assert inference.step_s < as_timed.step_s


@pytest.mark.parametrize("name", ["resnet50", "vgg16", "gpt2", "densenet121"])
def test_inference_is_never_slower_than_the_forward_pass_of_training(name):
    graph = pm.zoo.build(name)
    whole = pm.predict(graph, batch_size=8, device="tesla_p100_pcie", phase="forward_backward")
    forward = pm.predict(graph, batch_size=8, device="tesla_p100_pcie", phase="forward")
    part = sum(row.seconds for row in whole.layers if row.phase == "forward")
    assert sum(row.seconds for row in forward.layers) <= part * (1 + 1e-9)
