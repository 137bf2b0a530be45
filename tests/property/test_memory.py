"""Properties of memory over a step, on networks drawn at random and on the zoo's."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import perfmodel as pm
from perfmodel.errors import ArgumentError
from perfmodel.graph import LayerGraph
from perfmodel.graph.execution import RECOMPUTE
from perfmodel.graph.liveness import MemoryRules
from perfmodel.layers import Add, CrossEntropy, Dense, Dropout, ReLU, Sigmoid

LAYERS = (Dense(units=8, bias=False), Dense(units=8), ReLU(), Sigmoid(), Dropout())
HABITS = ((), ("relu",), ("relu", "dropout", "add"))


@st.composite
def networks(draw):
    """Layers of eight features, each reading any earlier one; sums join those that nobody reads."""
    graph = LayerGraph("drawn", input_shape=(8,))
    tensors = [graph.add("first", draw(st.sampled_from(LAYERS[:2])), inputs=graph.input)]
    for place in range(draw(st.integers(0, 12))):
        if draw(st.booleans()):
            inputs = draw(st.lists(st.sampled_from(tensors), min_size=2, max_size=3))
            tensors.append(graph.add(f"sum{place}", Add(), inputs=inputs))
        else:
            layer, is_trained = draw(st.sampled_from(LAYERS)), draw(st.booleans())
            # mostly the last tensor, so that there are places to cut
            source = draw(st.sampled_from([tensors[-1], tensors[-1], *tensors]))
            tensors.append(graph.add(f"layer{place}", layer, inputs=source, is_trained=is_trained))
    ends = list(graph.outputs)
    x = graph.add("join", Add(), inputs=ends) if len(ends) > 1 else ends[0]
    graph.add("loss", CrossEntropy(), inputs=x)
    return graph


def moments(graph, phase="step", **rules):
    live = graph.liveness(phase=phase, rules=MemoryRules(**rules))
    return live.activations.astype(float), live.gradients.astype(float)


def peak(graph, batch_size, phase="step", **rules):
    (constant, slope), gradients = moments(graph, phase, **rules)
    return (constant + slope * batch_size + gradients).max()


@given(networks(), st.sampled_from(HABITS), st.sampled_from([None, *RECOMPUTE]))
def test_nothing_is_negative_and_all_gradients_exist_at_the_end(graph, habit, recompute):
    activations, gradients = moments(graph, in_place_kinds=habit, recompute=recompute)
    assert (activations >= 0).all()
    assert (np.diff(gradients) >= 0).all()
    assert gradients[-1] == 4 * graph.trained_parameter_count
    assert activations[1][-1] == 4  # the loss is all that is left


@given(networks(), st.sampled_from(RECOMPUTE))
def test_recomputing_never_keeps_more(graph, recompute):
    assert graph.kept_bytes(recompute=recompute) <= graph.kept_bytes()
    again = graph.operations(batch_size=2, phase="backward", recompute=recompute)
    assert len(again) >= len(graph.operations(batch_size=2, phase="backward"))


@given(networks(), st.sampled_from(HABITS), st.integers(1, 1000))
def test_inference_takes_less_than_training_and_in_place_no_more(graph, habit, batch_size):
    training = peak(graph, batch_size, in_place_kinds=habit)
    assert peak(graph, batch_size, "forward", in_place_kinds=habit) <= training
    assert training <= peak(graph, batch_size)
    assert peak(graph, batch_size + 1, in_place_kinds=habit) > training


@pytest.mark.parametrize("network", ["resnet50", "vgg16", "densenet121", "googlenet", "alexnet"])
@pytest.mark.parametrize("recompute", [way for way in RECOMPUTE if way != "selective"])  # that is for attention
def test_recomputing_published_networks_lowers_the_peak(network, recompute):
    graph = pm.zoo.build(network)
    if recompute == "blocks" and network in ("vgg16", "alexnet"):  # whose names number single layers
        assert graph.kept_bytes(recompute=recompute) == graph.kept_bytes()
        with pytest.raises(ArgumentError, match="hold no block numbers"):
            pm.predict(graph, batch_size=256, device="h100_sxm", recompute=recompute)
        return
    assert peak(graph, 256, recompute=recompute) < peak(graph, 256)
    forward, backward, twice = (
        graph.work(phase=phase, recompute=how).flop_count
        for phase, how in (("forward", None), ("backward", None), ("backward", recompute))
    )
    assert backward < twice <= backward + forward
