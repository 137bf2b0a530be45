"""Memory of a step, part by part, by hand."""

import pytest

import perfmodel as pm
from perfmodel.framework.profile import load_framework
from perfmodel.graph import LayerGraph
from perfmodel.layers import Convolution2d, CrossEntropy, Dense, Flatten, ReLU
from perfmodel.layers.optimizers import NoUpdate
from perfmodel.prediction.memory.footprint import graph_memory, workspace_bytes
from perfmodel.records import Phase


def tiny():
    """100 -> 50 -> relu -> 10 -> loss: 5050 + 510 parameters."""
    graph = LayerGraph("tiny", input_shape=(100,))
    x = graph.add("hidden", Dense(units=50), inputs=graph.input)
    x = graph.add("relu", ReLU(), inputs=x)
    x = graph.add("scores", Dense(units=10), inputs=x)
    graph.add("loss", CrossEntropy(), inputs=x)
    return graph


def memory_of(graph=None, batch_size=8, device="gtx_1080", **how):
    return pm.predict(graph or tiny(), batch_size=batch_size, device=device, **how).memory


@pytest.mark.parametrize(("optimizer", "state"), [("sgd", 0), ("momentum", 1), ("adam", 2)])
def test_weights_gradients_and_state(optimizer, state):
    # few samples: the peak is where all gradients exist
    memory = memory_of(optimizer=optimizer)
    assert (memory.weights_bytes, memory.gradients_bytes) == (4 * 5_560, 4 * 5_560)
    assert memory.optimizer_bytes == state * 4 * 5_560


def test_double_precision_doubles_it():
    assert memory_of(dtype="fp64").weights_bytes == 8 * 5_560


def test_input_and_labels():
    # 100 features and one label of 4 B a sample; the next mini-batch comes while one is computed on, where it does
    assert memory_of().input_bytes == 2 * 8 * (400 + 4)
    assert memory_of(framework="torch_423cfba").input_bytes == 8 * (400 + 4)
    assert memory_of(prefetch=0).input_bytes == 8 * (400 + 4)


@pytest.mark.parametrize(
    ("framework", "elements"),
    [
        # relu in place: outputs 50 + 10 + loss 1, each with a gradient buffer
        ("torch_423cfba", 2 * 61),
        ("caffe_1_0_rc3", 2 * 61),
        # at the end of back-propagation: the loss and the gradient of the first layer's output
        ("generic", 51),
        ("tensorflow_0_9", 51),
    ],
)
def test_activations_by_the_frameworks_policy(framework, elements):
    # where everything is kept, the loss keeps its 10 probabilities a sample too
    kept = 10 if framework in ("torch_423cfba", "caffe_1_0_rc3") else 0
    assert memory_of(framework=framework).activations_bytes == 4 * 8 * (elements + kept)


@pytest.mark.parametrize("framework", ["generic", "torch_423cfba", "tensorflow_0_9"])
def test_inference_keeps_two_neighbours_and_nothing_to_learn(framework):
    memory = memory_of(framework=framework, phase="forward")
    # relu in place or not: 50 beside 10, or 50 beside 50; the input is counted as input
    assert memory.activations_bytes == 4 * 8 * (100 if framework == "tensorflow_0_9" else 60)
    assert memory.gradients_bytes == memory.optimizer_bytes == 0
    assert memory.input_bytes == (2 if framework == "generic" else 1) * 8 * 404


def test_total_is_the_sum_and_fits_is_the_comparison():
    memory = memory_of()
    assert memory.total_bytes == sum(
        getattr(memory, f"{part}_bytes")
        for part in ("weights", "gradients", "optimizer", "activations", "workspace", "input", "context")
    )
    # 4 GiB: at 416 kB a sample of two-fold kept outputs, between 5,000 and 20,000 samples of a wide layer
    graph = LayerGraph("wide", input_shape=(1000,))
    graph.add("wide", Dense(units=50_000), inputs=graph.input)
    assert memory_of(graph, 5_000, device="gtx_980", framework="torch_423cfba").fits
    too_much = pm.predict(graph, batch_size=20_000, device="gtx_980", framework="torch_423cfba")
    assert not too_much.memory.fits
    assert "fit" in too_much.explain()


def convolutions():
    graph = LayerGraph("two", input_shape=(64, 27, 27))
    x = graph.add("first", Convolution2d(out_channels=64, kernel_size=5, padding=2, bias=False), inputs=graph.input)
    x = graph.add("second", Convolution2d(out_channels=64, kernel_size=5, padding=2, bias=False), inputs=x)
    graph.add("flat", Flatten(), inputs=x)
    return graph


def test_workspace_is_the_largest_or_one_for_each_layer():
    p = pm.predict(convolutions(), batch_size=32, device="gtx_1080", framework="generic", phase="forward")
    fft = 8 * 544 * (32 * 64 + 64 * 64 + 32 * 64)  # 32 x 17 frequencies of 8 B for image, filters and result
    assert {row.kernel for row in p.layers} & {"fft", "fft_tiling"}
    assert p.memory.workspace_bytes == fft  # both layers need as much; shared
    # Caffe keeps its own for each layer, three of them
    for phase in ("forward", "step"):
        caffe = pm.predict(convolutions(), batch_size=1, device="gtx_1080", framework="caffe_1_0_rc3", phase=phase)
        needed = {"first": 0.0, "second": 0.0}
        at = caffe.table.workspace.at(1)["workspace_bytes"]
        for occurrence in caffe.table.occurrences:
            if occurrence.layer in needed:
                needed[occurrence.layer] = max(needed[occurrence.layer], at[caffe.groups.chosen[occurrence.group]])
        assert caffe.memory.workspace_bytes == 3 * sum(needed.values())
        assert max(needed.values()) <= 8 * 2**20


def test_workspaces_of_layers_add_up_where_they_are_not_shared():
    p = pm.predict(convolutions(), batch_size=32, device="gtx_1080", framework="generic", phase="forward")
    fft = 8 * 544 * (32 * 64 + 64 * 64 + 32 * 64)  # as above, for each of the two layers

    def needed(**policy):
        plan = graph_memory(
            convolutions(),
            p.table,
            phase=Phase.FORWARD,
            optimizer=NoUpdate(),
            element_bytes=4,
            policy=load_framework("generic").memory.model_copy(update=policy),
        )
        return workspace_bytes(plan, p.table.workspace.at(32)["workspace_bytes"], p.groups.chosen)

    assert needed() == fft
    assert needed(workspace="per_layer", workspaces_per_layer=1) == 2 * fft
    assert needed(workspace="per_layer", workspaces_per_layer=3) == 3 * 2 * fft
