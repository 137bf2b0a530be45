"""What decides a step on one GPU of today: types, layouts, calls of the host, kernels of a library's own classes."""

from __future__ import annotations

import pytest

import perfmodel as pm
from perfmodel import layers as nn
from perfmodel.errors import UnknownNameError
from perfmodel.framework.profile import load_framework


def step(graph: pm.LayerGraph, **arguments: object) -> pm.Prediction:
    """Predict on one board, for half precision under PyTorch 2 unless told otherwise."""
    options = {"batch_size": 256, "device": "rtx_3090", "framework": "pytorch_2", "dtype": "fp16"} | arguments
    return pm.predict(graph, **options)


def network(*stack: nn.Layer, shape: tuple[int, ...] = (64, 56, 56)) -> pm.LayerGraph:
    """Stack layers one on another, with a product below all."""
    graph = pm.LayerGraph("stack", input_shape=shape)
    name = "input"
    for index, layer in enumerate(stack):
        graph.add(f"layer{index}", layer, inputs=name)
        name = f"layer{index}"
    return graph


def rows_of(prediction: pm.Prediction, kernel: str) -> list:
    """Rows of one kernel."""
    return [row for row in prediction.layers if row.kernel == kernel]


def test_products_read_casts_and_normalisations_stay_wide() -> None:
    """Weights and wide inputs are cast once a step, by their bytes; a normalisation widens what follows it."""
    graph = pm.LayerGraph("mlp", input_shape=(196, 768))
    graph.add("first", nn.Dense(units=768), inputs="input")
    graph.add("norm", nn.LayerNorm(), inputs="first")
    graph.add("second", nn.Dense(units=768), inputs="norm")
    forward = step(graph, phase="forward")
    elements = 256 * 196 * 768
    cast_bytes = sorted(row.bytes for row in rows_of(forward, "cast"))
    # two weights with their biases; the input, the norm's input, and the norm's result: four bytes and two each
    weights = 6 * (768 * 768 + 768)
    assert cast_bytes == pytest.approx([weights, weights, 6 * elements, 6 * elements, 6 * elements])
    (norm,) = rows_of(forward, "layer_norm")
    assert norm.bytes == pytest.approx(2 * 4 * elements, rel=2e-3)
    assert not rows_of(step(graph, phase="forward", framework="generic"), "cast")
    assert not rows_of(step(graph, phase="forward", dtype="fp32"), "cast")


def test_gradients_are_cast_back() -> None:
    """Each cast has its mirror in back-propagation, except that of the input, which has no gradient."""
    graph = network(nn.Convolution2d(out_channels=64, kernel_size=3, padding=1), nn.ReLU())
    both = step(graph, phase="forward_backward")
    assert len(rows_of(both, "cast")) == 2  # image and filters
    assert len(rows_of(both, "cast_backward")) == 1


def test_a_scalar_does_not_widen_a_tensor() -> None:
    """A trained number beside a tensor leaves the tensor's type as it is."""
    graph = pm.LayerGraph("gain", input_shape=(64, 56, 56))
    graph.add("product", nn.Convolution2d(out_channels=64, kernel_size=3, padding=1), inputs="input")
    graph.add("norm", nn.BatchNorm(), inputs="product")
    graph.add("relu", nn.ReLU(), inputs="norm")
    relu = next(row for row in step(graph, phase="forward").layers if row.layer == "relu")
    assert relu.bytes == pytest.approx(2 * 2 * 256 * 64 * 56 * 56)


def test_layout_of_images() -> None:
    """Tensor cores want channels last: the other order pays transposes, in fp32 on lanes neither does."""
    graph = pm.zoo.resnet50()
    last, first = (step(graph, image_layout=layout) for layout in ("channels_last", "channels_first"))
    assert not rows_of(last, "transpose")
    assert first.step_s > 1.1 * last.step_s
    assert step(graph).step_s == last.step_s  # the usual one of this framework
    on_lanes = {
        layout: step(graph, device="gtx_1080", dtype="fp32", batch_size=16, image_layout=layout).step_s
        for layout in ("channels_last", "channels_first")
    }
    assert on_lanes["channels_last"] == on_lanes["channels_first"]
    with pytest.raises(UnknownNameError, match="channels_first, channels_last"):
        step(graph, image_layout="nhwc")


def test_layout_of_a_graph_is_kept(tmp_path) -> None:
    """A graph says its layout, in its file too; an argument overrides it."""
    stated = pm.LayerGraph("images", input_shape=(64, 28, 28), image_layout="channels_first")
    for index in range(8):
        convolution = nn.Convolution2d(out_channels=64, kernel_size=3, padding=1)
        stated.add(f"conv{index}", convolution, inputs=f"conv{index - 1}" if index else "input")
    stated.save(tmp_path / "graph.json")
    read = pm.LayerGraph.load(tmp_path / "graph.json")
    assert read.image_layout == read.at_inference().image_layout == "channels_first"
    assert step(read).step_s == step(read, image_layout="channels_first").step_s
    assert step(read).step_s > step(read, image_layout="channels_last").step_s


def test_the_host_binds_small_networks_by_the_number_of_calls() -> None:
    """Half the batch is no faster where the host binds, and time follows the calls: no roofline, no constant."""
    narrow = pm.zoo.resnet50()
    times = {size: step(narrow, batch_size=size, phase="forward").step_s for size in (1, 2)}
    assert times[1] == pytest.approx(times[2], rel=0.02)
    deep = pm.zoo.resnet152()
    calls = [len(step(graph, batch_size=1, phase="forward").layers) for graph in (narrow, deep)]
    assert step(deep, batch_size=1, phase="forward").step_s / times[1] == pytest.approx(calls[1] / calls[0], rel=0.05)
    recorded = step(narrow, batch_size=1, phase="forward_backward")
    assert recorded.step_s > 2 * times[1]  # recording, nodes of back-propagation


def test_a_captured_graph_spares_the_calls_and_a_compiler_the_passes() -> None:
    """Graphs bring nothing where kernels are long; compiling spares traffic there."""
    small, large = 1, 256
    graph = pm.zoo.resnet50()
    of = {
        (name, size): step(graph, batch_size=size, framework=name, phase="forward").step_s
        for name in ("pytorch_2", "pytorch_2_compiled", "pytorch_2_graphs")
        for size in (small, large)
    }
    assert of["pytorch_2_graphs", small] < 0.3 * of["pytorch_2", small]
    assert of["pytorch_2_graphs", large] == pytest.approx(of["pytorch_2", large], rel=0.01)
    assert of["pytorch_2_compiled", large] < 0.9 * of["pytorch_2", large]


def test_fused_passes_move_only_what_the_chain_reads_and_writes() -> None:
    """Three passes in a row become one that reads its input and writes its result."""
    graph = network(
        nn.Convolution2d(out_channels=64, kernel_size=1), nn.ReLU(), nn.Sigmoid(), nn.Tanh(), shape=(64, 56, 56)
    )
    options = {"phase": "forward", "dtype": "fp32", "device": "a100_80_sxm"}
    apart = [row for row in step(graph, **options).layers if row.layer != "layer0"]
    (joined,) = [row for row in step(graph, framework="pytorch_2_compiled", **options).layers if row.layer != "layer0"]
    assert joined.bytes == pytest.approx(sum(row.bytes for row in apart) / 3)
    assert joined.flop_count == sum(row.flop_count for row in apart)


def test_gradients_of_grouped_convolutions_need_kernels_of_their_own() -> None:
    """With channels last only some group sizes have them; with channels first all do, forward always."""

    def time(groups: int, layout: str, phase: str) -> float:
        graph = network(
            nn.Convolution2d(out_channels=192, kernel_size=3, padding=1, groups=groups),
            nn.Convolution2d(out_channels=192, kernel_size=3, padding=1, groups=groups),
            shape=(192, 28, 28),
        )
        return step(graph, phase=phase, image_layout=layout).compute_s

    # groups of 8 channels and of 48
    assert time(4, "channels_last", "step") > 3 * time(24, "channels_last", "step")
    assert time(4, "channels_first", "step") < time(4, "channels_last", "step")
    assert time(4, "channels_last", "forward") == time(4, "channels_first", "forward")


def test_old_gradients_are_cleared_and_added_to() -> None:
    """PyTorch 1 keeps the gradients' memory: a pass to clear each parameter's, and one to add to it."""
    graph = network(nn.Convolution2d(out_channels=64, kernel_size=3, padding=1, bias=True), nn.BatchNorm())
    old = step(graph, framework="pytorch_1_0", device="rtx_2080_ti", phase="forward_backward", dtype="fp32")
    cleared = rows_of(old, "clear_backward") or rows_of(old, "clear")
    assert sum(row.bytes for row in cleared) == pytest.approx(4 * graph.parameter_count)
    assert not rows_of(step(graph, phase="forward_backward"), "clear")


def test_slower_hosts_issue_more_slowly() -> None:
    """The factor is the host's, relative to the hosts for which the profile holds."""
    graph = pm.zoo.resnet50()
    alone = step(graph, device="a100_40_sxm", batch_size=1, phase="forward", dtype="bf16")
    in_machine = pm.predict(
        graph, system="dgx_a100", batch_size=1, phase="forward", framework="pytorch_2", dtype="bf16"
    )
    slowdown = pm.load_device("epyc_7742").call_slowdown / load_framework("pytorch_2").gpu.host_call_slowdown
    assert in_machine.dispatch_s / alone.dispatch_s == pytest.approx(slowdown, rel=0.01)


def test_queue_by_part_of_a_step() -> None:
    """What the host delays in the forward phase is not hidden by a long backward phase."""
    from perfmodel.cost.roofline import queued_dispatch_time

    assert queued_dispatch_time(busy_s=[1.0, 5.0], dispatch_s=[3.0, 1.0]) == [2.0, 0.0]
    assert queued_dispatch_time(busy_s=[3.0, 1.0], dispatch_s=[1.0, 5.0]) == [0.0, 2.0]


def test_formula_and_sweep_agree_with_predict() -> None:
    """One composition: arrays and symbols go through the same lines."""
    graph = network(nn.Convolution2d(out_channels=64, kernel_size=3, padding=1), nn.BatchNorm(), nn.ReLU())
    swept = pm.sweep(
        graph,
        batch_size=[1, 64],
        device="rtx_3090",
        framework="pytorch_2",
        dtype="fp16",
        image_layout=["channels_first", "channels_last"],
    )
    for row in swept:
        asked = {"batch_size": int(row["batch_size"]), "image_layout": row["image_layout"]}
        assert row["step_s"] == pytest.approx(step(graph, **asked).step_s, rel=1e-12)
