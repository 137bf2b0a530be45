"""Convolution algorithms that multiply in another domain: FFT, tiled FFT, and two forms of Winograd's.

Each function lowers a convolution or one of its gradients, or returns None where the algorithm cannot do the
shape; :data:`perfmodel.framework.convolution.ALGORITHMS` lists them. A transform pays in memory traffic (its
streams) what it saves in arithmetic (the product between them).
"""

from __future__ import annotations

import math
from typing import Any

from perfmodel.kernels import Alternative, Matmul, Stream
from perfmodel.records import Convolution, Role

Quantity = Any

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


def _is_plain(operation: Convolution) -> bool:
    """Tell whether a convolution is 2-d, ungrouped, and steps by one: what transform algorithms require."""
    return (
        len(operation.kernel_size) == 2
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
    product = Matmul(
        m=m,
        n=n,
        k=k * point_elements**2,
        count=points,
        read_bytes=plane_bytes * (first[1] + second[1]),
        written_bytes=plane_bytes * result[1],
        efficiency=efficiency,
    )
    after = Stream(read_bytes=plane_bytes * result[1], written_bytes=element_bytes * result[0], efficiency=transform)
    return Alternative(
        name=name,
        kernels=(*before, product, after),
        workspace_bytes=plane_bytes * (x_planes + w_planes + y_planes),
    )


def _fft_suits(operation: Convolution) -> bool:
    filters_exceed_padding = all(
        taps > max(padding) for taps, padding in zip(operation.kernel_size, operation.padding, strict=True)
    )
    return _is_plain(operation) and filters_exceed_padding and math.prod(operation.kernel_size) > 1


def _of_fft(operation: Convolution, **sizes: Any) -> Alternative:
    """Return a product of complex numbers between transforms."""
    return _transformed(operation, point_elements=2, transform="fft_transform", efficiency="fft_gemm", **sizes)


def fft(operation: Convolution, *, element_bytes: int) -> Alternative | None:
    """Lower to a transform of whole images, padded to a power of two: stride 1, at most 256 wide."""
    if not _fft_suits(operation):
        return None
    padded = [size + sum(pad) for size, pad in zip(operation.input_size, operation.padding, strict=True)]
    if max(padded) > FFT_LARGEST_EXTENT:
        return None
    rows, columns = (2 ** math.ceil(math.log2(extent)) for extent in padded)
    points = rows * (columns // 2 + 1)
    return _of_fft(operation, element_bytes=element_bytes, name="fft", points=points, tiles=operation.batch_size)


def fft_tiling(operation: Convolution, *, element_bytes: int) -> Alternative | None:
    """Lower to transforms of overlapping 32 x 32 tiles: stride 1; not offered for weight gradients."""
    if not _fft_suits(operation) or operation.role is Role.WEIGHT_GRADIENT or max(operation.kernel_size) > FFT_TILE:
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
    if not _is_plain(operation) or operation.kernel_size != (3, 3) or operation.role is Role.WEIGHT_GRADIENT:
        return None
    n, k = operation.out_channels, operation.in_channels
    if operation.role is Role.INPUT_GRADIENT:
        n, k = k, n
    work = operation.work(element_bytes=element_bytes)
    kernel = Matmul(
        m=_winograd_fused_tiles(operation),
        n=n,
        k=k,
        count=4 * 4,
        read_bytes=work.read_bytes,
        written_bytes=work.written_bytes,
        efficiency="winograd",
    )
    # the filters are transformed once, 16 numbers for every 9
    return Alternative(name="winograd", kernels=(kernel,), workspace_bytes=element_bytes * 16 * n * k)


def winograd_nonfused(operation: Convolution, *, element_bytes: int) -> Alternative | None:
    """Lower to F(4x4, 3x3) with transforms through memory: 36 products per 16 results; 3 x 3, stride 1."""
    if not _is_plain(operation) or operation.kernel_size != (3, 3):
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
