"""Convolutions of CPU frameworks: unfold the image into columns (im2col), then multiply.

Five algorithms are in use. They compute the same products and differ in what is unfolded, how often, and on which
threads:

``im2col_per_sample``
    Caffe: a loop over images; one image's columns are unfolded by one thread, then a threaded BLAS
    multiplies. The columns share one buffer and are unfolded again for the weight gradient. 1x1
    convolutions skip the unfolding.
``im2col_parallel_samples``
    Torch 7 (SpatialConvolutionMM): forward and input gradient give whole images to threads, each with a
    single-threaded product; the weight gradient loops over images with a threaded BLAS and reuses the
    columns that the forward pass kept. 1x1 convolutions are unfolded too.
``im2col_batch``
    CNTK (GemmConvolutionEngine): unfolds the whole mini-batch, multiplies once and transposes the result. The input
    gradient unfolds the *output* gradient, at every position of the input whatever the stride.
``im2col_batch_folded``
    Deeplearning4j (ConvolutionLayer): unfolds the whole mini-batch and multiplies once. The weight gradient reads the
    same columns; that of the input is a product whose columns are added back.
``spatial_contraction``
    TensorFlow (Eigen): the forward pass unfolds while packing, without a column buffer; the two gradients unfold into a
    buffer. All steps are threaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from perfmodel.errors import ArgumentError
from perfmodel.kernels import Alternative, Elements, Kernel, Matmul, Stream
from perfmodel.records import Convolution, Role
from perfmodel.symbolic import Quantity

CACHE_LINE_BYTES = 64
"""Unit in which caches exchange data with memory. [B]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """Extents of one image's product: filters (per group) x rows of the columns x positions."""

    filters: int
    column_rows: int
    positions: int
    input_positions: int
    in_channels: int
    taps: int
    groups: int
    batch_size: Quantity
    elements: Elements
    unfolds: bool

    @classmethod
    def of(cls, operation: Convolution, element_bytes: int) -> _Shape:
        taps = math.prod(operation.kernel_size)
        channels = operation.in_channels // operation.groups
        plain = taps == 1 and set(operation.stride) == {1} and not any(map(sum, operation.padding))
        return cls(
            filters=operation.out_channels // operation.groups,
            column_rows=channels * taps,
            positions=math.prod(operation.output_size),
            input_positions=math.prod(operation.input_size),
            in_channels=channels,
            taps=taps,
            groups=operation.groups,
            batch_size=operation.batch_size,
            elements=Elements(element_bytes),
            unfolds=not plain,
        )

    @property
    def columns(self) -> int:
        """Columns of one image, all groups. [elements]."""
        return self.groups * self.column_rows * self.positions

    @property
    def column_bytes(self) -> int:
        """Columns of one image, all groups. [B]."""
        return self.elements.size * self.columns

    @property
    def image(self) -> int:
        """One input image. [elements]."""
        return self.groups * self.in_channels * self.input_positions

    def sample_sides(self, role: Role) -> tuple[int, int, int]:
        """Return m, n and k of one image's product."""
        return {
            Role.OUTPUT: (self.filters, self.positions, self.column_rows),
            Role.INPUT_GRADIENT: (self.column_rows, self.positions, self.filters),
            Role.WEIGHT_GRADIENT: (self.filters, self.column_rows, self.positions),
        }[role]

    def batch_product(self, role: Role) -> Matmul:
        """Return the products of the whole mini-batch, one for each group."""
        rows = self.positions * self.batch_size
        m, n, k = {
            Role.OUTPUT: (rows, self.filters, self.column_rows),
            Role.INPUT_GRADIENT: (rows, self.column_rows, self.filters),
            Role.WEIGHT_GRADIENT: (self.column_rows, self.filters, rows),
        }[role]
        return self.elements.product(m, n, k, count=self.groups)

    def unfold(self, *, launches: Quantity = 1, samples: Quantity = 1) -> Stream:
        """Return the pass that copies images into columns; each column element is read and written."""
        return self.elements.copy("im2col", self.columns * samples, launches=launches)

    def scatter(self, *, samples: Quantity) -> Stream:
        """Return the pass that writes each column element into its own cache line.

        In columns of a whole mini-batch the sample is the fastest index. With columns larger than the cache and 16
        samples or more, the line that holds an element is fetched and then evicted before the next sample reaches it.
        """
        moved = self.columns * samples
        lines = CACHE_LINE_BYTES / self.elements.size * moved
        return self.elements.stream("scatter", moved + lines, lines)

    def fold(self, *, launches: Quantity = 1, samples: Quantity = 1) -> Stream:
        """Return the pass that clears images and adds columns back into them (col2im)."""
        columns, image = self.columns * samples, self.image * samples
        return self.elements.stream("col2im", 2 * columns, columns + image, launches=launches)


def _per_sample(shape: _Shape, role: Role) -> tuple[tuple[Kernel, ...], Quantity]:
    samples, launches = shape.batch_size, shape.batch_size * shape.groups
    product = shape.elements.product(*shape.sample_sides(role), launches=launches)
    if not shape.unfolds:
        return (product,), 0
    if role is Role.INPUT_GRADIENT:
        return (product, shape.fold(launches=samples)), shape.column_bytes
    return (shape.unfold(launches=samples), product), shape.column_bytes


def _parallel_samples(shape: _Shape, role: Role) -> tuple[tuple[Kernel, ...], Quantity]:
    samples, sides = shape.batch_size, shape.sample_sides(role)
    workspace, products = shape.column_bytes * samples, samples * shape.groups
    if role is Role.WEIGHT_GRADIENT:
        return (shape.elements.product(*sides, launches=products),), workspace
    product = shape.elements.product(*sides, count=products)
    if role is Role.OUTPUT:
        return (shape.unfold(samples=samples), product), workspace
    return (product, shape.fold(samples=samples)), workspace


def _batch(shape: _Shape, role: Role) -> tuple[tuple[Kernel, ...], Quantity]:
    samples, groups = shape.batch_size, shape.groups
    if role is Role.INPUT_GRADIENT:
        rows, depth, image = shape.input_positions * samples, shape.filters * shape.taps, shape.image * samples
        size = groups * rows * depth
        unfold = shape.elements.stream("im2col", size, 2 * size)
        product = shape.elements.product(rows, shape.in_channels, depth, count=groups)
        transposes = shape.elements.copy("transpose", image, launches=2)
        return (unfold, product, transposes), shape.elements.size * (size + image)
    columns, output = shape.columns * samples, groups * shape.filters * shape.positions * samples
    is_output = role is Role.OUTPUT
    unfold = shape.elements.stream("im2col", columns, 2 * columns) if is_output else shape.scatter(samples=samples)
    kernels = (unfold, shape.batch_product(role), shape.elements.copy("transpose", output))
    return kernels, shape.elements.size * (columns + output)


def _contraction(shape: _Shape, role: Role) -> tuple[tuple[Kernel, ...], Quantity]:
    samples, product = shape.batch_size, shape.batch_product(role)
    if role is Role.OUTPUT:
        gather = shape.elements.copy("patch_packing", shape.columns * samples)
        return (gather, product) if shape.unfolds else (product,), 0
    is_input = role is Role.INPUT_GRADIENT
    kernels = (product, shape.fold(samples=samples)) if is_input else (shape.unfold(samples=samples), product)
    return kernels, shape.column_bytes * samples


def _batch_folded(shape: _Shape, role: Role) -> tuple[tuple[Kernel, ...], Quantity]:
    kernels, _ = _contraction(shape, role)
    columns = shape.column_bytes * shape.batch_size
    if role is Role.OUTPUT:
        kernels = (shape.unfold(samples=shape.batch_size), kernels[-1])
    return kernels[-1:] if role is Role.WEIGHT_GRADIENT else kernels, columns


_ALGORITHMS: dict[str, Callable[[_Shape, Role], tuple[tuple[Kernel, ...], Quantity]]] = {
    "im2col_per_sample": _per_sample,
    "im2col_parallel_samples": _parallel_samples,
    "im2col_batch": _batch,
    "im2col_batch_folded": _batch_folded,
    "spatial_contraction": _contraction,
}


def cpu_convolution_alternatives(
    operation: Convolution, *, algorithm: str, element_bytes: int
) -> tuple[Alternative, ...]:
    """Return the kernels that a CPU framework runs for a convolution or one of its gradients.

    Notes
    -----
    Valid for: the versions in the references. Launches of one kernel are serial; ``count`` products of one
    launch share the threads. Ignores: the bias, which is a separate pass.

    Examples
    --------
    >>> operation = Convolution(batch_size=16, in_channels=64, out_channels=64, input_size=(56, 56),
    ...     output_size=(56, 56), kernel_size=(3, 3), stride=(1, 1), padding=((1, 1), (1, 1)),
    ...     dilation=(1, 1))
    >>> (caffe,) = cpu_convolution_alternatives(operation, algorithm="im2col_per_sample", element_bytes=4)
    >>> unfold, product = caffe.kernels
    >>> unfold.launches, product.m, product.n, product.k, caffe.workspace_bytes
    (16, 64, 3136, 576, 7225344)

    References
    ----------
    .. [1] Caffe 1.0.0-rc3, src/caffe/layers/base_conv_layer.cpp, src/caffe/util/im2col.cpp.
    .. [2] Torch 7, nn/lib/THNN/generic/SpatialConvolutionMM.c ("omp parallel for" over the samples in
       updateOutput and updateGradInput; none in accGradParameters).
    .. [3] CNTK 1.5, Source/Math/ConvolutionEngine.cpp, class GemmConvolutionEngine.
    .. [4] TensorFlow 0.9, core/kernels/conv_ops.cc (Eigen::SpatialConvolution) and conv_grad_ops.cc.
    .. [5] Deeplearning4j 0.9.1, nn/layers/convolution/ConvolutionLayer.java.
    .. [6] K. Chellapilla, S. Puri, P. Simard, High performance convolutional neural networks for document
       processing, IWFHR 2006.
    """
    if algorithm not in _ALGORITHMS:
        raise ArgumentError("algorithm", algorithm, f"one of {', '.join(_ALGORITHMS)}")
    shape = _Shape.of(operation, element_bytes)
    kernels, workspace_bytes = _ALGORITHMS[algorithm](shape, operation.role)
    return (Alternative(name=algorithm, kernels=kernels, workspace_bytes=workspace_bytes),)
