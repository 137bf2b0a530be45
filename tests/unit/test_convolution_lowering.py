"""Shapes, counts, workspaces and shape rules of the GPU's convolution algorithms, by hand."""

import math

import pytest
import sympy

from perfmodel.errors import UnknownNameError
from perfmodel.framework.convolution import (
    ALGORITHMS,
    convolution_alternatives,
    implicit_product,
    shape_class,
)
from perfmodel.kernels import Matmul
from perfmodel.records import Convolution, Role

EVERY = tuple(ALGORITHMS)
GRADIENTS = (Role.INPUT_GRADIENT, Role.WEIGHT_GRADIENT)


def convolution(channels=64, filters=192, size=27, taps=5, pad=2, *, batch=16, stride=1, groups=1, **more):
    output = (size + 2 * pad - taps) // stride + 1
    return Convolution(
        batch_size=batch, in_channels=channels, out_channels=filters, input_size=(size, size),
        output_size=(output, output), kernel_size=(taps, taps), stride=(stride, stride),
        padding=((pad, pad), (pad, pad)), dilation=(1, 1), groups=groups, **more,
    )  # fmt: skip


def lowered(operation, algorithm):
    (alternative,) = convolution_alternatives(operation, algorithms=(algorithm,), element_bytes=4)
    return alternative


@pytest.mark.parametrize("role", list(Role)[:3])
@pytest.mark.parametrize("shape", [{}, {"stride": 2}, {"groups": 2}, {"taps": 1, "pad": 0}, {"pad": 0}])
@pytest.mark.parametrize("algorithm", ["implicit_gemm", "implicit_precomp_gemm", "gemm"])
def test_the_gemm_family_does_the_direct_arithmetic(role, shape, algorithm):
    operation = convolution(role=role, **shape)
    alternative = lowered(operation, algorithm)
    done = sum(kernel.flop_count * kernel.launches for kernel in alternative.kernels if isinstance(kernel, Matmul))
    assert done == pytest.approx(operation.work(element_bytes=4).flop_count)


def test_alexnet_second_layer_explicitly():
    # N 16, 64 -> 192, 27 x 27, 5 x 5: 7.16636 GFLOP, im2col 16 * 27^2 * 64 * 25 * 4 B = 74.65 MB
    operation = convolution()
    assert operation.work(element_bytes=4).flop_count == 7_166_361_600
    unfold, product = lowered(operation, "gemm").kernels
    assert lowered(operation, "gemm").workspace_bytes == unfold.written_bytes == 74_649_600
    assert (product.m, product.n, product.k) == (16 * 729, 192, 1600)


def test_alexnet_second_layer_by_fft():
    # T = 32: 544 frequencies; 8 * 544 * 16 * 64 * 192 = 0.85564 GFLOP;
    # 8 * 544 * (1024 + 12288 + 3072) B = 71.30 MB
    for name in ("fft", "fft_tiling"):
        alternative = lowered(convolution(), name)
        *_, product, back = alternative.kernels
        assert product.flop_count == 855_638_016
        assert (product.m, product.n, product.k, product.count) == (16, 192, 4 * 64, 544)
        assert alternative.workspace_bytes == 71_303_168
        assert back.read_bytes == product.written_bytes == 8 * 544 * 16 * 192


def test_winograd_saves_its_ratio():
    # 112 x 112 is whole in patches of 8 x 16: 36 multiplications of each 2 x 2 results become 16
    operation = convolution(64, 64, 112, 3, 1)
    direct = operation.work(element_bytes=4).flop_count
    assert direct / lowered(operation, "winograd").kernels[0].flop_count == pytest.approx(2.25)
    product = lowered(operation, "winograd_nonfused").kernels[2]
    assert direct / product.flop_count == pytest.approx(4.0)


def test_winograd_workspace_of_the_reference_example():
    # N 32, 64 -> 64, 56 x 56: tiles 32 * 14^2 = 6272; 4 * 36 * (2 * 6272 * 64 + 64 * 64) B = 116.2 MB
    alternative = lowered(convolution(64, 64, 56, 3, 1, batch=32), "winograd_nonfused")
    assert alternative.workspace_bytes == 116_195_328


def test_fused_winograd_wastes_half_of_a_small_image():
    # 7 x 7 fills one patch of 8 x 16 results: 32 tiles where 16 would do
    assert lowered(convolution(512, 512, 7, 3, 1), "winograd").kernels[0].m == 16 * 32


@pytest.mark.parametrize(
    ("algorithm", "operation"),
    [
        ("fft", convolution(stride=2)),
        ("fft", convolution(size=255)),  # 259 wide with padding
        ("fft", convolution(taps=1, pad=0)),
        ("fft", convolution(taps=3, pad=3)),  # padding must be smaller than the filter
        ("fft_tiling", convolution(role=Role.WEIGHT_GRADIENT)),
        ("winograd", convolution()),
        ("winograd", convolution(taps=3, pad=1, stride=2)),
        ("winograd", convolution(taps=3, pad=1, role=Role.WEIGHT_GRADIENT)),
        ("winograd_nonfused", convolution(taps=3, pad=1, groups=2)),
    ],
)
def test_what_an_algorithm_cannot_do_falls_back_to_implicit_gemm(algorithm, operation):
    assert lowered(operation, algorithm).name == "implicit_gemm"


@pytest.mark.parametrize("role", list(Role)[:3])
def test_the_transforms_carry_each_operand_once(role):
    operation = convolution(128, 256, 56, 3, 1, role=role)
    work = operation.work(element_bytes=4)
    for name in ("fft", "winograd_nonfused"):
        first, second, _, back = lowered(operation, name).kernels
        assert first.read_bytes + second.read_bytes == work.read_bytes
        assert back.written_bytes == work.written_bytes


def test_groups_run_one_after_the_other():
    (kernel,) = lowered(convolution(groups=2), "implicit_gemm").kernels
    assert (kernel.n, kernel.k, kernel.launches) == (96, 32 * 25, 2)


def test_a_strided_input_gradient_gathers_what_reaches_each_input():
    (product,) = lowered(convolution(stride=2, role=Role.INPUT_GRADIENT), "implicit_gemm").kernels
    assert product.efficiency == "conv_strided_input_gradient"
    assert product.m == 16 * 27**2
    assert product.written_bytes == 4 * 16 * 64 * 27**2


def test_a_stride_beyond_the_filter_reaches_a_quarter_of_the_image():
    # 1 x 1 under a stride of 2 on 28 x 28: products for 14 x 14 pixels, yet every input's gradient is written
    shape = {"size": 28, "taps": 1, "pad": 0, "stride": 2}
    (gradient,) = lowered(convolution(role=Role.INPUT_GRADIENT, **shape), "implicit_gemm").kernels
    assert (gradient.m, gradient.n, gradient.k) == (16 * 14**2, 64, 192)
    assert gradient.written_bytes == 4 * 16 * 64 * 28**2
    # rows are skipped whole; within one, every sector is read
    (forward,) = lowered(convolution(**shape), "implicit_gemm").kernels
    assert forward.read_bytes == 4 * (16 * 64 * 14 * 28 + 64 * 192)
    assert forward.flop_count == gradient.flop_count


def test_non_fused_winograd_leaves_narrow_weight_gradients_alone():
    for channels, name in ((64, "implicit_gemm"), (128, "winograd_nonfused")):
        operation = convolution(channels, 128, 28, 3, 1, role=Role.WEIGHT_GRADIENT)
        assert lowered(operation, "winograd_nonfused").name == name


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("role", list(Role)[:3])
def test_any_number_of_dimensions(spatial, role):
    operation = Convolution(
        batch_size=4, in_channels=8, out_channels=16, input_size=(12,) * spatial, output_size=(12,) * spatial,
        kernel_size=(3,) * spatial, stride=(1,) * spatial, padding=((1, 1),) * spatial,
        dilation=(1,) * spatial, role=role,
    )  # fmt: skip
    product = implicit_product(operation)
    assert 2 * product.m * product.n * product.k == 2 * 4 * 12**spatial * 16 * 8 * 3**spatial
    assert convolution_alternatives(operation, algorithms=EVERY, element_bytes=4)


@pytest.mark.parametrize("role", list(Role)[:3])
def test_counts_are_affine_in_the_batch_size_and_names_do_not_change(role):
    batch = sympy.Symbol("N", positive=True, integer=True)
    for shape in ({}, {"taps": 3, "pad": 1}, {"stride": 2}, {"taps": 1, "pad": 0}):
        symbolic = convolution_alternatives(
            convolution(batch=batch, role=role, **shape), algorithms=EVERY, element_bytes=4
        )
        numeric = convolution_alternatives(convolution(batch=7, role=role, **shape), algorithms=EVERY, element_bytes=4)
        for left, right in zip(symbolic, numeric, strict=True):
            assert left.name == right.name
            assert sympy.degree(left.workspace_bytes + batch, batch) == 1
            for one, other in zip(left.kernels, right.kernels, strict=True):
                assert one.efficiency == other.efficiency
                assert float(sympy.sympify(one.read_bytes).subs(batch, 7)) == pytest.approx(other.read_bytes)
                assert float(sympy.sympify(one.flop_count).subs(batch, 7)) == pytest.approx(other.flop_count)


def test_shape_classes():
    assert shape_class(convolution(3, 64, 224, 7, 3, stride=2)) == "conv_thin"
    assert shape_class(convolution(1, 64, 28, 5, 0, role=Role.WEIGHT_GRADIENT)) == "conv_one_channel_weight_gradient"
    assert shape_class(convolution(taps=3, pad=1, role=Role.INPUT_GRADIENT)) == "conv_3x3"
    assert shape_class(convolution(taps=1, pad=0)) == "conv_1x1"
    assert shape_class(convolution()) == "conv_large"


def test_an_unknown_algorithm_is_named():
    with pytest.raises(UnknownNameError, match="winograd"):
        convolution_alternatives(convolution(), algorithms=("winogrand",), element_bytes=4)


def test_every_algorithm_moves_bytes_and_computes():
    for alternative in convolution_alternatives(convolution(taps=3, pad=1), algorithms=EVERY, element_bytes=4):
        assert alternative.workspace_bytes >= 0
        for kernel in alternative.kernels:
            assert kernel.read_bytes > 0
            assert kernel.written_bytes > 0
            assert math.isfinite(kernel.flop_count)


def test_double_precision_has_no_transforms():
    names = [
        [
            each.name
            for each in convolution_alternatives(convolution(taps=3, pad=1), algorithms=EVERY, element_bytes=size)
        ]
        for size in (4, 8)
    ]
    assert set(names[0]) - set(names[1]) == {"fft", "fft_tiling", "winograd", "winograd_nonfused"}
    assert names[1]
