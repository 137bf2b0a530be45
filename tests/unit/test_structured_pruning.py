"""Layers that lose whole output channels: counts by hand, what must shrink together, memory and time."""

import pytest

import perfmodel as pm
from perfmodel import layers
from perfmodel.errors import ArgumentError, PerfmodelError

VGG16 = (64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512)
MAPS = (224, 224, 112, 112, 56, 56, 56, 28, 28, 28, 14, 14, 14)
RESNET50 = ((3, 64, 256, 56), (4, 128, 512, 28), (6, 256, 1024, 14), (3, 512, 2048, 7))
"""Blocks of each stage, inner and outer channels, and the side of its maps. [1]"""


def dense_chain(*, bias=True):
    graph = pm.LayerGraph("chain", input_shape=(784,))
    tensor = graph.input
    for index, units in enumerate((100, 31)):
        tensor = graph.add(f"fc{index}", layers.Dense(units=units, bias=bias), inputs=tensor)
        tensor = graph.add(f"relu{index}", layers.ReLU(), inputs=tensor)
    tensor = graph.add("scores", layers.Dense(units=10, bias=bias), inputs=tensor)
    graph.add("loss", layers.CrossEntropy(), inputs=tensor)
    return graph


@pytest.mark.parametrize(("density", "first", "second"), [(0.5, 50, 16), (0.3, 30, 9), (0.004, 1, 1)])
def test_a_chain_of_dense_layers_loses_units_but_for_its_outputs(density, first, second):
    pruned = dense_chain().pruned(density, pattern="structured")
    assert [pruned.shape(name) for name in ("fc0", "fc1", "scores")] == [(first,), (second,), (10,)]
    assert pruned.parameter_count == 784 * first + first + first * second + second + second * 10 + 10
    assert pruned.multiply_add_count(batch_size=7) == 7 * (784 * first + first * second + second * 10)


def test_only_layers_that_were_named_shrink():
    pruned = dense_chain().pruned(0.5, pattern="structured", layers=["fc1"])
    assert [pruned.shape(name) for name in ("fc0", "fc1", "scores")] == [(100,), (16,), (10,)]


def test_all_convolutions_of_vgg_shrink():
    pruned = pm.zoo.vgg16().pruned(0.25, pattern="structured")
    inputs, parameters, products = 3, 0, 0
    for channels, side in zip(VGG16, MAPS, strict=True):
        parameters += 9 * inputs * channels // 4 + channels // 4
        products += 9 * inputs * channels // 4 * side**2
        inputs = channels // 4
    for features, units in ((inputs * 49, 1024), (1024, 1024), (1024, 1000)):
        parameters += features * units + units
        products += features * units
    assert (pruned.parameter_count, pruned.multiply_add_count()) == (parameters, products)


def test_residual_blocks_lose_their_inner_channels():
    network, share = pm.zoo.resnet50(), 0.5
    whole, half = (resnet50_parameters(inner_share) for inner_share in (1, share))
    pruned = network.pruned(share, pattern="structured")
    assert (network.parameter_count, pruned.parameter_count) == (whole, half)
    outputs = [node.output_shape for node in network.layers if node.name.endswith("add")]
    assert [node.output_shape for node in pruned.layers if node.name.endswith("add")] == outputs
    assert pruned.shape("stage3_block2_b_conv") == (128, 14, 14)


def resnet50_parameters(share):
    """Count weights and normalisation; the first convolution feeds convolutions only, so that it shrinks too."""
    inputs = int(64 * share)
    count = 3 * 49 * inputs + 2 * inputs
    for blocks, inner, outer, _ in RESNET50:
        inner = int(inner * share)
        for block in range(blocks):
            weights = inputs * inner + 9 * inner * inner + inner * outer + (inputs * outer if block == 0 else 0)
            count += weights + 2 * (2 * inner + outer) + (2 * outer if block == 0 else 0)
            inputs = outer
    return count + inputs * 1000 + 1000


def test_branches_of_a_sum_shrink_together_or_not_at_all():
    network = pm.zoo.resnet50()
    together = [f"stage1_{name}_conv" for name in ("block1_shortcut", "block1_c", "block2_c", "block3_c")]
    with pytest.raises(ArgumentError, match="together") as refused:
        network.pruned(0.5, pattern="structured", layers=together[1:2])
    assert all(repr(name) in str(refused.value) for name in (*together, "stage1_block1_add"))
    pruned = network.pruned(0.5, pattern="structured", layers=together)
    # 1 x 1 filters onto 256 channels and from them, of two blocks and the next stage's two, and four normalisations
    lost = 128 * 64 * 4 + 128 * 64 * 2 + 128 * (128 + 512) + 4 * 2 * 128
    assert network.parameter_count - pruned.parameter_count == lost


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"density": 0.0}, "density"),
        ({"density": 1.5}, "density"),
        ({"density": "half"}, "density"),
        ({"density": 0.5, "layers": ["fc9"]}, "fc9"),
        ({"density": 0.5, "layers": ["scores"]}, "loss"),
        ({"density": 0.99, "layers": ["fc1"]}, "fc1"),
    ],
)
def test_wrong_pruning_is_refused(wrong, says):
    with pytest.raises(PerfmodelError, match=says):
        dense_chain().pruned(**wrong, pattern="structured")


def test_shared_weights_do_not_shrink():
    graph = pm.LayerGraph("tied", input_shape=(64,))
    graph.add("a", layers.Dense(units=64), inputs="input")
    graph.add("b", layers.Dense(units=64), inputs="a", shared_parameters={"weight": ("a", "weight")})
    graph.add("c", layers.Dense(units=64), inputs="b")
    graph.add("d", layers.Dense(units=64), inputs="c")
    pruned = graph.pruned(0.5, pattern="structured")
    assert [pruned.shape(name) for name in "abcd"] == [(64,), (64,), (32,), (64,)]


def test_depth_wise_convolutions_and_crops_follow_their_input():
    pruned = pm.zoo.mobilenet_v2().pruned(0.5, pattern="structured")
    depth_wise = pruned.node("stage3_inverted_block1_b_conv")
    assert depth_wise.output_shape[0] == depth_wise.layer.groups == depth_wise.input_shapes[0][0] == 144 // 2
    unet = pm.zoo.unet().pruned(0.5, pattern="structured")
    assert unet.shape("up4_crop")[0] == unet.shape("down4_conv2")[0] == 512 // 2


def test_memory_and_time_follow():
    asked = {"batch_size": 32, "device": "gtx_1080"}
    network = pm.zoo.vgg16()
    half = network.pruned(0.5, pattern="structured")
    whole, pruned = pm.predict(network, **asked), pm.predict(half, **asked)
    assert pruned.memory.weights_bytes / whole.memory.weights_bytes == pytest.approx(
        half.parameter_count / network.parameter_count, rel=1e-3
    )
    assert pruned.memory.total_bytes < 0.6 * whole.memory.total_bytes
    assert 0.2 < pruned.step_s / whole.step_s < 0.5  # about a quarter of the products, half of the passes


def test_an_imported_module_shrinks_through_its_views():
    torch = pytest.importorskip("torch")
    nn = torch.nn
    stem = (nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten())
    module = nn.Sequential(*stem, nn.Linear(16 * 64, 64), nn.ReLU(), nn.Linear(64, 10))
    pruned = pm.from_torch(module, torch.empty(2, 3, 8, 8)).pruned(0.5, pattern="structured")
    assert pruned.parameter_count == 9 * 3 * 8 + 8 + 2 * 8 + 8 * 64 * 32 + 32 + 32 * 10 + 10
