"""The shipped GPU library profiles against a few published kernel timings (DeepBench, Apache-2.0).

The rows are among those the constants were fitted to, so they check that profiles, lowering and cost still
fit together (a lost factor 2 or 1.5 fails), not how well the model predicts: that is what
the scripts in benchmarks/ print, cross-validated. Tolerance 20 % for products, 30 % for convolutions: two to three
times the median error.
The Maxwell product with 128 columns is the one with the first operand transposed (1012 us without).
"""

import numpy as np
import pytest

from perfmodel.cost.gpu import matmul_memory_time, tile_menu, tiled_matmul_time, write_out_steps
from perfmodel.framework.convolution import ALGORITHMS, convolution_alternatives, shape_class
from perfmodel.framework.recurrence import FUSED, PERSISTENT
from perfmodel.hardware.catalogue import load_library
from perfmodel.kernels import Matmul
from perfmodel.records import Convolution, Role

TOLERANCE, CONVOLUTION_TOLERANCE = 0.2, 0.3
M40 = {"peak_flop_per_s": 6.844e12, "unit_count": 24, "bandwidth_bytes_per_s": 288.4e9}
CLOCKS = {6.844e12: 1.114e9, 9.34e12: 1.303e9, 11.827e12: 1.65e9}  # the clock that each keeps
P100 = {"peak_flop_per_s": 9.34e12, "unit_count": 56, "bandwidth_bytes_per_s": 732e9}
TITAN_X = {"peak_flop_per_s": 11.827e12, "unit_count": 28, "bandwidth_bytes_per_s": 480.4e9}
FLOOR_S = 5e-6
ROLES = (Role.OUTPUT, Role.INPUT_GRADIENT, Role.WEIGHT_GRADIENT)
CONVOLUTION_LIBRARIES = ("cudnn_4", "cudnn_5", "cudnn_5_1", "cudnn_6", "cudnn_7", "cudnn_8")
LIBRARIES = ("cublas_7_5", "cublas_8_0", *CONVOLUTION_LIBRARIES)
ARCHITECTURES = ("kepler", "maxwell", "pascal", "pascal_gp100", "volta", "turing", "ampere", "unheard_of")


def convolution_algorithms(library, architecture):
    """Algorithms a library offers for convolutions; the same list names its recurrent layers."""
    offered = library.algorithms_for(architecture)
    assert set(offered) <= {*ALGORITHMS, FUSED, PERSISTENT}
    return tuple(name for name in offered if name in ALGORITHMS)


def kernel_seconds(kernel, constants, device):
    """Time of one kernel, its gap included."""
    bandwidth = device["bandwidth_bytes_per_s"]
    moved = kernel.read_bytes + kernel.written_bytes
    if not isinstance(kernel, Matmul):
        return kernel.launches * (moved / (constants[kernel.efficiency] * bandwidth) + FLOOR_S)
    menu = tile_menu(**{name: constants[name] for name in ("tile_rows", "tile_columns", "tile_efficiency", "split_k")})
    steps = write_out_steps(peak_flop_per_s=device["peak_flop_per_s"], bandwidth_bytes_per_s=bandwidth, element_bytes=4)
    compute_s = tiled_matmul_time(
        m=kernel.m, n=kernel.n, k=kernel.k, count=kernel.count,
        efficiency=constants[kernel.efficiency] * constants.get("architecture_factor", 1.0),
        latency_s=constants["latency_cycles"] / CLOCKS[device["peak_flop_per_s"]],
        ramp_steps=constants.get("ramp_steps", steps), menu=menu, **device,
    )  # fmt: skip
    fraction = constants["matmul_bandwidth_fraction"]
    memory_s = matmul_memory_time(
        m=kernel.m,
        n=kernel.n,
        k=kernel.k,
        moved_bytes=moved,
        bandwidth_bytes_per_s=bandwidth,
        efficiency=fraction,
        # a convolution's product reads images, not columns: it has no skinny form
        skinny_efficiency=constants.get("skinny_bandwidth_fraction", float("inf")),
    )
    return kernel.launches * (float(np.maximum(compute_s, memory_s)) + FLOOR_S)


@pytest.mark.parametrize(
    ("library", "architecture", "device", "shape", "microseconds"),
    [
        ("cublas_7_5", "maxwell", M40, (5124, 9124, 2560), 53_197),
        ("cublas_7_5", "maxwell", M40, (1024, 24_000, 2048), 21_469),
        ("cublas_7_5", "maxwell", M40, (4096, 128, 4096), 1206),
        ("cublas_7_5", "maxwell", M40, (4096, 16, 4096), 786),
        ("cublas_8_0", "pascal_gp100", P100, (5124, 9124, 2560), 27_492),
        ("cublas_8_0", "pascal_gp100", P100, (3072, 7435, 1024), 5441),
        ("cublas_8_0", "pascal_gp100", P100, (2560, 128, 2560), 218),
        ("cublas_8_0", "pascal", TITAN_X, (5124, 9124, 2560), 24_729),
    ],
)
def test_matrix_products(library, architecture, device, shape, microseconds):
    m, n, k = shape
    kernel = Matmul(m=m, n=n, k=k, read_bytes=4 * (m * k + k * n), written_bytes=4 * m * n)
    predicted = kernel_seconds(kernel, load_library(library).constants_for(architecture), device)
    assert predicted * 1e6 == pytest.approx(microseconds, rel=TOLERANCE)


@pytest.mark.parametrize(
    ("architecture", "device", "shape", "microseconds"),
    [
        # channels, filters, image, filter, stride at batch 16: shapes of ResNet-50; forward, two gradients
        ("maxwell", M40, (256, 256, 14, 3, 1), (571, 648, None)),
        ("maxwell", M40, (256, 1024, 14, 1, 1), (449, 563, None)),
        ("maxwell", M40, (64, 256, 56, 1, 1), (540, 496, 999)),
        ("maxwell", M40, (512, 128, 28, 1, 1), (473, 478, 625)),
        ("maxwell", M40, (512, 256, 28, 1, 2), (299, 675, 370)),
        ("pascal", TITAN_X, (256, 256, 14, 3, 1), (260, 273, 317)),
        ("pascal", TITAN_X, (64, 256, 56, 1, 1), (296, 258, 531)),
        ("pascal", TITAN_X, (512, 256, 28, 1, 2), (114, 387, 202)),
    ],
)
def test_convolutions(architecture, device, shape, microseconds):
    library = load_library("cudnn_5_1")
    constants, algorithms = library.constants_for(architecture), convolution_algorithms(library, architecture)
    for role, measured in zip(ROLES, microseconds, strict=True):
        lowered = convolution_alternatives(convolution(*shape, role=role), algorithms=algorithms, element_bytes=4)
        seconds = min(sum(kernel_seconds(kernel, constants, device) for kernel in each.kernels) for each in lowered)
        if measured is not None:  # left out: rows known to be missed, by 54 and 32 %
            assert seconds * 1e6 == pytest.approx(measured, rel=CONVOLUTION_TOLERANCE), role


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", LIBRARIES)
def test_every_efficiency_is_a_fraction(name, architecture):
    library = load_library(name)
    constants = library.constants_for(architecture)
    menu = {len(constants[key]) for key in ("tile_rows", "tile_columns", "tile_efficiency", "split_k")}
    assert len(menu) == 1
    assert all(0 < constants[key] <= 1 for key in constants if key.startswith(("conv", "gemm", "winograd", "fft")))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", CONVOLUTION_LIBRARIES)
def test_every_class_an_algorithm_looks_up_has_a_value(name, architecture):
    library = load_library(name)
    constants, algorithms = library.constants_for(architecture), convolution_algorithms(library, architecture)
    assert algorithms
    for role in ROLES:
        for channels in (1, 3, 64):
            for taps in (1, 3, 5):
                for stride in (1, 2):
                    operation = convolution(channels, 64, 28, taps, stride, role=role)
                    assert shape_class(operation) in constants
                    lowered = convolution_alternatives(operation, algorithms=algorithms, element_bytes=4)
                    for kernel in (kernel for each in lowered for kernel in each.kernels):
                        assert kernel.efficiency in constants


def convolution(channels, filters, size, taps, stride, *, role, batch=16):
    """A square convolution that keeps its size, up to the stride."""
    pad = taps // 2
    output = (size + 2 * pad - taps) // stride + 1
    return Convolution(
        batch_size=batch, in_channels=channels, out_channels=filters, input_size=(size, size),
        output_size=(output, output), kernel_size=(taps, taps), stride=(stride, stride),
        padding=((pad, pad), (pad, pad)), dilation=(1, 1), role=role,
    )  # fmt: skip


def test_what_is_not_native_is_slower():
    for name in ("cublas_7_5", "cudnn_4"):
        library = load_library(name)
        assert library.is_native("maxwell")
        assert not library.is_native("pascal")
        assert library.constants_for("pascal")["translation_efficiency"] < 1
        assert library.constants_for("maxwell")["translation_efficiency"] == 1
    assert "winograd" not in load_library("cudnn_4").algorithms_for("maxwell")
