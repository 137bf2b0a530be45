"""Whole networks that others timed, by version of the DNN library and by data type; nothing was fitted on them.

Sources: J. Johnson, cnn-benchmarks (github.com/jcjohnson/cnn-benchmarks, README, 2016-17: Torch, batch 16, forward and
backward); NVIDIA, DeepLearningExamples, PyTorch ResNet-50 v1.5 (README, container 21.03: images per second of one GPU,
batch 256, channels last under mixed precision). The constants come from single kernels of DeepBench and Caffe's layers.

A constant per network or a table of peaks cannot pass: the same GPU, network and batch run at 1.75 times the rate with
another version of the library, and at 3.3 times with another data type.
"""

import pytest

import perfmodel as pm
from perfmodel.framework.convolution import ALGORITHMS
from perfmodel.hardware.spec_files import shipped_folder
from perfmodel.prediction.device.gpu_clock import sustained_peak_flop_per_s

TOLERANCE = 0.3
VGG = pm.zoo.vgg16()
RESNET = pm.zoo.resnet50(stride_on="3x3")
TITAN_X_VGG_MS = {"cudnn_4": 338.69, "cudnn_5": 262.27, "cudnn_5_1": 192.78}


def milliseconds(graph, device, library, *, framework="torch_423cfba"):
    p = pm.predict(graph, batch_size=16, device=device, framework=framework, library=library, phase="forward_backward")
    return 1e3 * p.step_s


@pytest.mark.parametrize(
    ("graph", "device", "library", "measured_ms"),
    [
        *((VGG, "titan_x_maxwell", library, measured) for library, measured in TITAN_X_VGG_MS.items()),
        (VGG, "titan_x_pascal", "cudnn_5", 157.39),
        (VGG, "titan_x_pascal", "cudnn_5_1", 128.62),
        (VGG, "gtx_1080", "cudnn_5", 233.43),
        (VGG, "gtx_1080", "cudnn_5_1", 182.79),
        (RESNET, "titan_x_maxwell", "cudnn_4", 178.84),
        (RESNET, "gtx_1080", "cudnn_5_1", 149.82),
        (RESNET, "gtx_1080_ti", "cudnn_5_1", 101.21),
        (RESNET, "titan_x_pascal", "cudnn_5_1", 103.58),
    ],
)
def test_networks_in_torch(graph, device, library, measured_ms):
    assert milliseconds(graph, device, library) == pytest.approx(measured_ms, rel=TOLERANCE)


def test_each_version_gains_what_its_winograd_kernels_gain():
    # 5.0: fused Winograd for outputs and input gradients; 5.1: non-fused, for weight gradients too
    predicted = [milliseconds(VGG, "titan_x_maxwell", library) for library in TITAN_X_VGG_MS]
    assert predicted == sorted(predicted, reverse=True)
    oldest, _, newest = TITAN_X_VGG_MS.values()
    # that of 5.0 alone is predicted too small: 1.08 of 1.29, as DeepBench's weight gradients ran slower than Caffe's
    assert predicted[0] / predicted[-1] == pytest.approx(oldest / newest, rel=0.25)  # 1.76


@pytest.mark.parametrize(
    ("device", "dtype", "images_per_s"),
    [
        ("v100_sxm2", "fp32", 367),
        ("v100_sxm2", "fp16", 1200),
        ("a100_80_sxm", "tf32", 938),
        ("a100_80_sxm", "fp16", 2470),
    ],
)
def test_mixed_precision_training(device, dtype, images_per_s):
    layout = "channels_last" if dtype == "fp16" else "channels_first"  # as that container ran them
    p = pm.predict(RESNET, batch_size=256, device=device, dtype=dtype, optimizer="momentum", image_layout=layout)
    assert p.samples_per_s == pytest.approx(images_per_s, rel=TOLERANCE)


def test_tensor_cores_do_not_speed_up_what_memory_bounds():
    # 125 against 15.7 TFLOP/s, yet the network runs 3.3 times as fast: measured 1200 against 367
    fp32, fp16 = (
        pm.predict(RESNET, batch_size=256, device="v100_sxm2", dtype=dtype).samples_per_s for dtype in ("fp32", "fp16")
    )
    assert 2.3 < fp16 / fp32 < 4.3


def test_images_with_channels_first_are_transposed_around_tensor_core_kernels(tmp_path):
    text = (shipped_folder() / "frameworks" / "generic.toml").read_text(encoding="utf-8")
    assert 'image_layout = "channels_last"' in text
    path = tmp_path / "channels_first.toml"
    path.write_text(text.replace('image_layout = "channels_last"', 'image_layout = "channels_first"'), encoding="utf-8")

    def step_s(framework, dtype):
        return pm.predict(RESNET, batch_size=64, device="v100_sxm2", dtype=dtype, framework=framework).step_s

    assert step_s(path, "fp32") == pytest.approx(step_s("generic", "fp32"))
    assert 1.1 < step_s(path, "fp16") / step_s("generic", "fp16") < 2


def test_groups_run_in_one_launch_since_version_7():
    graph = pm.zoo.alexnet(variant="grouped")

    def launches(library):
        p = pm.predict(graph, batch_size=16, device="gtx_1080_ti", library=library, phase="forward")
        return {row.layer: row.launches for row in p.layers if row.layer in ("conv2", "conv3")}

    before, since = launches("cudnn_6"), launches("cudnn_7")
    assert since["conv2"] < before["conv2"]
    assert since["conv3"] == before["conv3"]


def test_boards_of_one_architecture_share_its_factor_and_differ_by_their_clocks():
    library = pm.load_library("cudnn_7")
    assert (
        library.constants_for("turing")["architecture_factor"] == library.constants_for("volta")["architecture_factor"]
    )
    shares = [
        sustained_peak_flop_per_s(board) / board.peak_flop_per_s() for board in map(pm.load_device, ("t4", "titan_rtx"))
    ]
    assert shares[0] < 0.6 < 0.85 < shares[1] < 1  # 70 and 280 W


@pytest.mark.parametrize("name", ["cudnn_7", "cudnn_8"])
def test_algorithms_of_tensor_cores_are_those_of_their_data_types(name):
    library = pm.load_library(name)
    assert "winograd" in library.algorithms_for("volta")
    assert set(library.algorithms_for("volta", dtype="fp16")) & set(ALGORITHMS) == {"implicit_precomp_gemm"}
    assert "winograd" in library.algorithms_for("pascal", dtype="fp16")
    assert library.support_for("volta", dtype="fp16").tensor_cores
    assert not library.support_for("volta").tensor_cores
    assert library.support_for("volta").groups_together
