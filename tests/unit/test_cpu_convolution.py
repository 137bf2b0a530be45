"""CPU convolution: what each framework unfolds, multiplies and keeps, counted by hand."""

import dataclasses

import pytest
import sympy

from perfmodel.errors import ArgumentError
from perfmodel.framework.cpu_convolution import cpu_convolution_alternatives
from perfmodel.kernels import Matmul
from perfmodel.records import Convolution, Role

ALGORITHMS = (
    "im2col_per_sample", "im2col_parallel_samples", "im2col_batch", "im2col_batch_folded", "spatial_contraction"
)  # fmt: skip
THREE_BY_THREE = Convolution(
    batch_size=16,
    in_channels=64,
    out_channels=128,
    input_size=(56, 56),
    output_size=(56, 56),
    kernel_size=(3, 3),
    stride=(1, 1),
    padding=((1, 1), (1, 1)),
    dilation=(1, 1),
)
COLUMN_BYTES = 4 * 64 * 9 * 56 * 56  # 7.2 MB an image


def kernels_of(operation, algorithm):
    (alternative,) = cpu_convolution_alternatives(operation, algorithm=algorithm, element_bytes=4)
    return alternative


def role(operation, which):
    return dataclasses.replace(operation, role=which)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("which", [Role.OUTPUT, Role.INPUT_GRADIENT, Role.WEIGHT_GRADIENT])
def test_products_do_the_arithmetic_of_the_convolution(algorithm, which):
    operation = role(THREE_BY_THREE, which)
    products = [kernel for kernel in kernels_of(operation, algorithm).kernels if isinstance(kernel, Matmul)]
    assert sum(kernel.flop_count * kernel.launches for kernel in products) == operation.work(element_bytes=4).flop_count


def test_caffe_unfolds_and_multiplies_image_by_image():
    alternative = kernels_of(THREE_BY_THREE, "im2col_per_sample")
    unfold, product = alternative.kernels
    assert (unfold.launches, unfold.read_bytes, unfold.written_bytes) == (16, COLUMN_BYTES, COLUMN_BYTES)
    assert (product.m, product.n, product.k, product.count, product.launches) == (128, 3136, 576, 1, 16)
    assert alternative.workspace_bytes == COLUMN_BYTES  # one buffer for all images


def test_caffe_unfolds_again_for_the_weights_and_folds_for_the_input():
    names = [
        [
            getattr(kernel, "efficiency", "")
            for kernel in kernels_of(role(THREE_BY_THREE, r), "im2col_per_sample").kernels
        ]
        for r in (Role.WEIGHT_GRADIENT, Role.INPUT_GRADIENT)
    ]
    assert names == [["im2col", "gemm"], ["gemm", "col2im"]]


def test_torch_keeps_the_columns_and_gives_images_to_threads():
    forward = kernels_of(THREE_BY_THREE, "im2col_parallel_samples")
    assert (forward.kernels[1].count, forward.kernels[1].launches) == (16, 1)
    assert forward.workspace_bytes == 16 * COLUMN_BYTES
    (product,) = kernels_of(role(THREE_BY_THREE, Role.WEIGHT_GRADIENT), "im2col_parallel_samples").kernels
    assert (product.count, product.launches) == (1, 16)


def test_cntk_multiplies_the_whole_mini_batch_at_once():
    unfold, product, transpose = kernels_of(THREE_BY_THREE, "im2col_batch").kernels
    assert (product.m, product.n, product.k, product.launches) == (16 * 3136, 128, 576, 1)
    assert unfold.written_bytes == 2 * 16 * COLUMN_BYTES  # cleared, then filled
    assert transpose.read_bytes == 4 * 16 * 128 * 3136


def test_cntk_writes_columns_for_the_weights_into_a_cache_line_each():
    # samples lie side by side: of every line of 64 B that is fetched and written back only 4 B are used at a time
    unfold = kernels_of(role(THREE_BY_THREE, Role.WEIGHT_GRADIENT), "im2col_batch").kernels[0]
    assert unfold.efficiency == "scatter"
    assert unfold.read_bytes == (1 + 16) * 16 * COLUMN_BYTES
    assert unfold.written_bytes == 16 * 16 * COLUMN_BYTES


def test_cntk_does_the_input_gradient_at_every_position_of_the_input():
    strided = dataclasses.replace(THREE_BY_THREE, stride=(2, 2), output_size=(28, 28), role=Role.INPUT_GRADIENT)
    product = kernels_of(strided, "im2col_batch").kernels[1]
    assert product.flop_count == 4 * strided.work(element_bytes=4).flop_count  # stride 2 in two dimensions


def test_deeplearning4j_reads_the_columns_of_a_mini_batch_again_and_folds_its_gradient():
    strided = dataclasses.replace(THREE_BY_THREE, stride=(2, 2), output_size=(28, 28))
    unfold, product = kernels_of(strided, "im2col_batch_folded").kernels
    assert unfold.written_bytes == 16 * 4 * 64 * 9 * 28 * 28
    assert (product.m, product.n, product.k, product.launches) == (16 * 784, 128, 576, 1)
    (of_weights,) = kernels_of(role(strided, Role.WEIGHT_GRADIENT), "im2col_batch_folded").kernels
    assert (of_weights.m, of_weights.n, of_weights.k) == (576, 128, 16 * 784)
    of_input, fold = kernels_of(role(strided, Role.INPUT_GRADIENT), "im2col_batch_folded").kernels
    assert of_input.flop_count == strided.work(element_bytes=4).flop_count  # not at every position, as CNTK
    assert fold.efficiency == "col2im"


def test_tensorflow_unfolds_the_forward_pass_without_a_buffer():
    alternative = kernels_of(THREE_BY_THREE, "spatial_contraction")
    assert alternative.workspace_bytes == 0
    assert alternative.kernels[0].efficiency == "patch_packing"


@pytest.mark.parametrize(("algorithm", "unfolds"), [("im2col_per_sample", False), ("im2col_parallel_samples", True)])
def test_a_plain_one_by_one_convolution(algorithm, unfolds):
    plain = dataclasses.replace(THREE_BY_THREE, kernel_size=(1, 1), padding=((0, 0), (0, 0)))
    kernels = kernels_of(plain, algorithm).kernels
    assert (len(kernels) == 2) is unfolds


def test_groups_divide_the_product():
    grouped = dataclasses.replace(THREE_BY_THREE, groups=2)
    _, product = kernels_of(grouped, "im2col_per_sample").kernels
    assert (product.m, product.k, product.launches) == (64, 288, 32)
    assert product.flop_count * product.launches == grouped.work(element_bytes=4).flop_count


def test_batch_size_may_be_a_symbol():
    batch = sympy.Symbol("N", positive=True)
    symbolic = dataclasses.replace(THREE_BY_THREE, batch_size=batch)
    for algorithm in ALGORITHMS:
        for kernel in kernels_of(symbolic, algorithm).kernels:
            total = sympy.sympify(kernel.read_bytes * kernel.launches)
            assert total.subs(batch, 16) > 0


def test_unknown_algorithm_is_refused():
    with pytest.raises(ArgumentError, match="im2col_batch"):
        cpu_convolution_alternatives(THREE_BY_THREE, algorithm="winograd", element_bytes=4)
