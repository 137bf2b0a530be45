"""A GPU library's convolution algorithms: the kernels each runs, and the scratch memory it needs.

The registry :data:`ALGORITHMS` maps an algorithm's name to the function that lowers a convolution, or a
gradient of one, to it, or returns None for a shape it cannot do. All counts are affine in the batch
size.

Names of efficiencies that the matrix products look up: ``conv_1x1``, ``conv_3x3`` (at most nine taps) and
``conv_large``, for outputs and input gradients alike (the same sum with the filters turned round), each with
``_weight_gradient`` appended for that; ``conv_strided_input_gradient``; for a first layer ``conv_thin`` (two to four
channels) and ``conv_one_channel``, each with ``_weight_gradient`` too; ``conv_gemm`` after an explicit im2col;
``winograd``, ``winograd_gemm``, ``fft_gemm``. Of the streams: ``im2col``, ``winograd_transform``, ``fft_transform``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel.errors import check_known
from perfmodel.kernels import Alternative, Matmul, Stream
from perfmodel.records import ELEMENT_BYTES, Convolution, Role
from perfmodel.symbolic import Quantity

FFT_LARGEST_EXTENT = 256
"""Largest padded input extent of ``fft``. [1]"""
FFT_TILE = 32
"""Extent of a tile of ``fft_tiling``; also its largest filter. [1]"""
WINOGRAD_LEAST_CHANNELS = 128
"""Fewest channels for which a weight gradient is offered as non-fused Winograd; inferred from DeepBench: with cuDNN 5
to 7, all weight gradients of 64 channels run at the rate of implicit products, those of 128 at twice that. [1]"""
WINOGRAD_PATCH = (8, 16)
"""Extents of the results that one block of fused Winograd covers; inferred from DeepBench, where 7 x 7 images
run at half the rate of 14 x 14 ones and 8 x 8 blocks would not explain it. [1]"""


def _can_transform(operation: Convolution, *, element_bytes: int) -> bool:
    """Return whether a convolution is 2-d, ungrouped, with stride 1 and not in fp64, as transforms require."""
    return (
        element_bytes <= ELEMENT_BYTES["fp32"]
        and len(operation.kernel_size) == 2
        and operation.groups == 1
        and all(step == 1 for step in (*operation.stride, *operation.dilation))
    )


def _transformed(
    operation: Convolution,
    *,
    element_bytes: int,
    name: str,
    points: int,
    point_elements: int,
    tiles: Quantity,
    transform: str,
    efficiency: str,
) -> Alternative:
    """Lower to: transform both operands, one product per point of the transform, transform the result back.

    ``points`` products; a point holds ``point_elements`` numbers (1 real, 2 complex); ``tiles`` in the batch.
    """
    channels, filters = operation.in_channels, operation.out_channels
    x, w, y = operation.input_elements, operation.weight_elements, operation.output_elements
    x_planes, w_planes, y_planes = tiles * channels, channels * filters, tiles * filters
    (first, second, result), (m, n, k) = {
        Role.OUTPUT: (((x, x_planes), (w, w_planes), (y, y_planes)), (tiles, filters, channels)),
        Role.INPUT_GRADIENT: (((y, y_planes), (w, w_planes), (x, x_planes)), (tiles, channels, filters)),
        Role.WEIGHT_GRADIENT: (((y, y_planes), (x, x_planes), (w, w_planes)), (filters, channels, tiles)),
    }[operation.role]
    plane_bytes = element_bytes * points * point_elements
    before = tuple(
        Stream(read_bytes=element_bytes * size, written_bytes=plane_bytes * planes, efficiency=transform)
        for size, planes in (first, second)
    )
    read_bytes, written_bytes = plane_bytes * (first[1] + second[1]), plane_bytes * result[1]
    shape = ProductShape(m=m, n=n, k=k * point_elements**2)
    product = shape.matmul(read_bytes, written_bytes, count=points, efficiency=efficiency)
    after = Stream(read_bytes=written_bytes, written_bytes=element_bytes * result[0], efficiency=transform)
    return Alternative(
        name=name,
        kernels=(*before, product, after),
        workspace_bytes=plane_bytes * (x_planes + w_planes + y_planes),
    )


def _fft_suits(operation: Convolution, *, element_bytes: int) -> bool:
    filters_exceed_padding = all(
        taps > max(padding) for taps, padding in zip(operation.kernel_size, operation.padding, strict=True)
    )
    can = _can_transform(operation, element_bytes=element_bytes)
    return can and filters_exceed_padding and math.prod(operation.kernel_size) > 1


def _of_fft(operation: Convolution, **sizes: Any) -> Alternative:
    """Return a product of complex numbers between transforms."""
    return _transformed(operation, point_elements=2, transform="fft_transform", efficiency="fft_gemm", **sizes)


def fft(operation: Convolution, *, element_bytes: int) -> Alternative | None:
    """Lower to a transform of whole images, padded to a power of two: stride 1, at most 256 wide."""
    if not _fft_suits(operation, element_bytes=element_bytes):
        return None
    padded = [size + sum(pad) for size, pad in zip(operation.input_size, operation.padding, strict=True)]
    if max(padded) > FFT_LARGEST_EXTENT:
        return None
    rows, columns = (2 ** math.ceil(math.log2(extent)) for extent in padded)
    points = rows * (columns // 2 + 1)
    return _of_fft(operation, element_bytes=element_bytes, name="fft", points=points, tiles=operation.batch_size)


def fft_tiling(operation: Convolution, *, element_bytes: int) -> Alternative | None:
    """Lower to transforms of overlapping 32 x 32 tiles: stride 1; not offered for weight gradients."""
    suits = _fft_suits(operation, element_bytes=element_bytes)
    if not suits or operation.role is Role.WEIGHT_GRADIENT or max(operation.kernel_size) > FFT_TILE:
        return None
    extents = operation.output_size if operation.role is Role.OUTPUT else operation.input_size
    tiles = math.prod(
        math.ceil(extent / (FFT_TILE - taps + 1)) for extent, taps in zip(extents, operation.kernel_size, strict=True)
    )
    points, tiles = FFT_TILE * (FFT_TILE // 2 + 1), operation.batch_size * tiles
    return _of_fft(operation, element_bytes=element_bytes, name="fft_tiling", points=points, tiles=tiles)


def _winograd_tiles(operation: Convolution, *, extent: int) -> Quantity:
    """Tiles of ``extent`` x ``extent`` results in the batch (for a weight gradient: of output gradients)."""
    covered = operation.input_size if operation.role is Role.INPUT_GRADIENT else operation.output_size
    return operation.batch_size * math.prod(math.ceil(size / extent) for size in covered)


def _winograd_fused_tiles(operation: Convolution) -> Quantity:
    """Tiles of 2 x 2 results that the fused kernel computes: whole patches of 8 x 16 of each image."""
    covered = operation.input_size if operation.role is Role.INPUT_GRADIENT else operation.output_size
    short, long = sorted(covered)
    patch_short, patch_long = WINOGRAD_PATCH
    patches = math.ceil(short / patch_short) * math.ceil(long / patch_long)
    return operation.batch_size * patches * (patch_short // 2) * (patch_long // 2)


def winograd(operation: Convolution, *, element_bytes: int) -> Alternative | None:
    """Lower to fused F(2x2, 3x3): 16 products per 4 results; 3 x 3, stride 1, no weight gradient."""
    suits = _can_transform(operation, element_bytes=element_bytes) and operation.kernel_size == (3, 3)
    if not suits or operation.role is Role.WEIGHT_GRADIENT:
        return None
    n, k = operation.out_channels, operation.in_channels
    if operation.role is Role.INPUT_GRADIENT:
        n, k = k, n
    work = operation.work(element_bytes=element_bytes)
    product = ProductShape(m=_winograd_fused_tiles(operation), n=n, k=k)
    kernel = product.matmul(work.read_bytes, work.written_bytes, count=4 * 4, efficiency="winograd")
    # the filters are transformed once, 16 numbers for every 9
    return Alternative(name="winograd", kernels=(kernel,), workspace_bytes=element_bytes * 16 * n * k)


def winograd_nonfused(operation: Convolution, *, element_bytes: int) -> Alternative | None:
    """Lower to F(4x4, 3x3) with transforms through memory: 36 products per 16 results; 3 x 3, stride 1."""
    if not _can_transform(operation, element_bytes=element_bytes) or operation.kernel_size != (3, 3):
        return None
    narrow = min(operation.in_channels, operation.out_channels) < WINOGRAD_LEAST_CHANNELS
    if operation.role is Role.WEIGHT_GRADIENT and narrow:
        return None
    return _transformed(
        operation,
        element_bytes=element_bytes,
        name="winograd_nonfused",
        points=6 * 6,
        point_elements=1,
        tiles=_winograd_tiles(operation, extent=4),
        transform="winograd_transform",
        efficiency="winograd_gemm",
    )


THIN_CHANNELS = 4
"""Most input channels that a convolution of raw samples (audio, grey, RGB) has. [1]"""
INDEX_BYTES = 4
"""Size of a precomputed index. [B]"""
_SUFFIX = {Role.OUTPUT: "", Role.INPUT_GRADIENT: "", Role.WEIGHT_GRADIENT: "_weight_gradient"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductShape:
    """The matrix product that a convolution of one group, or one of its gradients, amounts to."""

    m: Quantity
    n: Quantity
    k: Quantity

    def matmul(self, read_bytes: Quantity, written_bytes: Quantity, **options: Any) -> Matmul:
        """Return the kernel of the product with the given traffic [B]."""
        return Matmul(m=self.m, n=self.n, k=self.k, read_bytes=read_bytes, written_bytes=written_bytes, **options)


def implicit_product(operation: Convolution) -> ProductShape:
    r"""Return the matrix product of one group of a convolution.

    .. math::

        \text{output: } (N P Q) \times K, \; k = C R S \qquad
        \text{input gradient: } (N H W) \times C, \; k = K R S \tfrac{P Q}{H W} \qquad
        \text{weight gradient: } K \times (C R S), \; k = N P Q

    Under a stride beyond the filter, H W counts the inputs that a tap reaches.

    Notes
    -----
    Valid for: any number of spatial dimensions. The input gradient's k is the mean number of taps that reach
    an input (fewer than K R S without padding). Ignores: taps that fall on padding.

    Examples
    --------
    >>> convolution = Convolution(batch_size=16, in_channels=64, out_channels=192,
    ...     input_size=(27, 27), output_size=(27, 27), kernel_size=(5, 5), stride=(1, 1),
    ...     padding=((2, 2), (2, 2)), dilation=(1, 1))
    >>> implicit_product(convolution)
    ProductShape(m=11664, n=192, k=1600)

    References
    ----------
    .. [1] S. Chetlur et al., cuDNN: efficient primitives for deep learning, 2014, arXiv:1410.0759, section 3.
    """
    channels, filters = operation.in_channels // operation.groups, operation.out_channels // operation.groups
    taps, pixels = math.prod(operation.kernel_size), math.prod(operation.output_size)
    if operation.role is Role.OUTPUT:
        return ProductShape(m=operation.batch_size * pixels, n=filters, k=channels * taps)
    if operation.role is Role.WEIGHT_GRADIENT:
        return ProductShape(m=filters, n=channels * taps, k=operation.batch_size * pixels)
    inputs = math.prod(_reached_size(operation))
    total = filters * taps * pixels
    k = total // inputs if total % inputs == 0 else total / inputs
    return ProductShape(m=operation.batch_size * inputs, n=channels, k=k)


def _reached_size(operation: Convolution) -> tuple[int, ...]:
    """Return the extents of the inputs that any tap reaches: not all if the stride exceeds the filter."""
    return tuple(
        size if taps >= step else min(size, taps * result)
        for size, taps, step, result in zip(
            operation.input_size, operation.kernel_size, operation.stride, operation.output_size, strict=True
        )
    )


def _columns_product(operation: Convolution) -> ProductShape:
    """Return the product that yields an input gradient as columns: (N P Q) x (C R S), sum over K."""
    channels = operation.in_channels // operation.groups
    return ProductShape(
        m=operation.batch_size * math.prod(operation.output_size),
        n=channels * math.prod(operation.kernel_size),
        k=operation.out_channels // operation.groups,
    )


def shape_class(operation: Convolution) -> str:
    """Return the name of the efficiency a convolution's implicit product looks up."""
    if operation.role is Role.INPUT_GRADIENT and math.prod(operation.stride) > 1:
        return "conv_strided_input_gradient"  # it scatters instead of gathering
    suffix, channels = _SUFFIX[operation.role], operation.in_channels // operation.groups
    if channels <= THIN_CHANNELS and operation.groups == 1 and operation.role is not Role.INPUT_GRADIENT:
        return ("conv_one_channel" if channels == 1 else "conv_thin") + suffix
    taps = math.prod(operation.kernel_size)
    if taps == 1:
        return "conv_1x1" + suffix
    return ("conv_3x3" if taps <= 3**2 else "conv_large") + suffix


def _column_bytes(operation: Convolution, *, element_bytes: int) -> Quantity:
    """Bytes of one group's unfolded input: every tap of every result."""
    taps, pixels = math.prod(operation.kernel_size), math.prod(operation.output_size)
    channels = operation.in_channels // operation.groups
    return element_bytes * operation.batch_size * pixels * channels * taps


def _implicit(operation: Convolution, *, element_bytes: int, name: str, workspace_bytes: Quantity) -> Alternative:
    product, work = implicit_product(operation), operation.work(element_bytes=element_bytes)
    read, written = work.read_bytes / operation.groups, work.written_bytes / operation.groups
    if operation.role is not Role.INPUT_GRADIENT:
        # whole rows that no tap reaches are never read; within a row, every sector of memory is
        reached = math.prod(_reached_size(operation)[:-1]) * operation.input_size[-1]
        skipped = math.prod(operation.input_size) - reached
        read = read - element_bytes * operation.batch_size * operation.in_channels * skipped / operation.groups
    kernel = product.matmul(read, written, efficiency=shape_class(operation), launches=operation.groups)
    return Alternative(name=name, kernels=(kernel,), workspace_bytes=workspace_bytes)


def implicit_gemm(operation: Convolution, *, element_bytes: int) -> Alternative:
    """Lower to one product per group that gathers its operand as it goes, without scratch memory."""
    return _implicit(operation, element_bytes=element_bytes, name="implicit_gemm", workspace_bytes=0)


def implicit_precomp_gemm(operation: Convolution, *, element_bytes: int) -> Alternative:
    """Lower to the implicit product with its gather offsets precomputed: one index per term of the sum."""
    terms = operation.in_channels // operation.groups * math.prod(operation.kernel_size)
    indices = INDEX_BYTES * terms
    return _implicit(operation, element_bytes=element_bytes, name="implicit_precomp_gemm", workspace_bytes=indices)


def explicit_gemm(operation: Convolution, *, element_bytes: int) -> Alternative:
    """Lower to im2col (or col2im for the input gradient) through memory, around a plain product per group."""
    columns = _column_bytes(operation, element_bytes=element_bytes)
    image, result, weights = (
        element_bytes * size / operation.groups
        for size in (
            operation.input_elements,
            operation.output_elements,
            operation.weight_elements * operation.bank_count,
        )
    )
    options = {"efficiency": "conv_gemm", "launches": operation.groups}
    if operation.role is Role.INPUT_GRADIENT:
        matmul = _columns_product(operation).matmul(result + weights, columns, **options)
        # adds one group's columns into its input gradient
        fold = Stream(read_bytes=columns, written_bytes=image, efficiency="im2col", launches=operation.groups)
        return Alternative(name="gemm", kernels=(matmul, fold), workspace_bytes=columns)
    read, written = (weights, result) if operation.role is Role.OUTPUT else (result, weights)
    matmul = implicit_product(operation).matmul(columns + read, written, **options)
    unfold = Stream(read_bytes=image, written_bytes=columns, efficiency="im2col", launches=operation.groups)
    return Alternative(name="gemm", kernels=(unfold, matmul), workspace_bytes=columns)


ALGORITHMS: dict[str, Callable[..., Alternative | None]] = {
    "implicit_gemm": implicit_gemm,
    "implicit_precomp_gemm": implicit_precomp_gemm,
    "gemm": explicit_gemm,
    "fft": fft,
    "fft_tiling": fft_tiling,
    "winograd": winograd,
    "winograd_nonfused": winograd_nonfused,
}
"""Algorithm name -> function that lowers a convolution to it, or returns None if it cannot."""


def convolution_alternatives(
    operation: Convolution, *, algorithms: Sequence[str], element_bytes: int
) -> tuple[Alternative, ...]:
    """Return every way the library's algorithms can carry out a convolution or one of its gradients.

    Notes
    -----
    Valid for: cuDNN's algorithm set and its shape rules; it has no transforms in fp64. Grouped convolutions run one
    launch per group, as cuDNN did before version 7. Ignores: Winograd of 5 x 5 filters.

    Examples
    --------
    >>> convolution = Convolution(batch_size=32, in_channels=64, out_channels=64,
    ...     input_size=(112, 112), output_size=(112, 112), kernel_size=(3, 3), stride=(1, 1),
    ...     padding=((1, 1), (1, 1)), dilation=(1, 1))
    >>> implicit, fused = convolution_alternatives(
    ...     convolution, algorithms=("implicit_gemm", "winograd"), element_bytes=4)
    >>> implicit.kernels[0].flop_count / fused.kernels[0].flop_count  # 36 multiplications become 16
    2.25

    References
    ----------
    .. [1] NVIDIA, cuDNN Developer Guide, cudnnConvolutionForward (algorithms, shape rules).
    .. [2] A. Lavin, S. Gray, Fast algorithms for convolutional neural networks, CVPR 2016.
    .. [3] N. Vasilache et al., Fast convolutional nets with fbfft, ICLR 2015.
    """
    alternatives = []
    for name in algorithms:
        check_known("convolution algorithm", name, ALGORITHMS)
        alternative = ALGORITHMS[name](operation, element_bytes=element_bytes)
        if alternative is not None:
            alternatives.append(alternative)
    return tuple(alternatives) or (implicit_gemm(operation, element_bytes=element_bytes),)
