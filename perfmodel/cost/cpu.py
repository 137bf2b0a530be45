"""Time of a matrix product on a CPU: its arithmetic and the packing of its operands.

A CPU BLAS copies its operands into contiguous, cache-sized blocks before it multiplies. For square products
the copy disappears beside n^3 arithmetic; with a mini-batch of 64 rows against a 26,752 x 2,048 matrix it
does not, and it runs at the speed of memory, not of arithmetic. The two times therefore add.
"""

from __future__ import annotations

from typing import Final

from perfmodel.numeric import ceil_ratio, maximum, minimum
from perfmodel.symbolic import Quantity

SHARPNESS: Final = 16
"""Exponent of the smooth minimum of an efficiency and one. [1]"""


def capped_efficiency(*, efficiency: Quantity) -> Quantity:
    r"""Share of the peak that a product reaches, which no product of factors may take beyond the peak.

    .. math:: e_\mathrm{capped} = \left(e^{-q} + 1\right)^{-1/q}, \qquad q = 16

    Parameters
    ----------
    efficiency : float, ndarray or sympy.Expr
        Product of the factors on the share, e: library, data type, way of calling. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Always below one: 0.1 % below e at 0.75, 4 % below one at e = 1. [1]

    Notes
    -----
    Valid for: positive efficiencies. A smooth minimum of e and 1, because a fit needs a gradient on both sides of the
    limit, and because factors near one wear off before they reach it.

    Examples
    --------
    >>> float(capped_efficiency(efficiency=0.75)), float(capped_efficiency(efficiency=1.5))
    (0.7495, 0.9999)

    References
    ----------
    .. [1] S. W. Churchill, R. Usagi, A general expression for the correlation of rates of transfer and other
       phenomena, AIChE Journal 18(6), 1972, doi:10.1002/aic.690180606: blending of two limits by a power mean.
    """
    return (efficiency**-SHARPNESS + 1) ** (-1 / SHARPNESS)


def padded_product_flop_count(
    *, m: Quantity, n: Quantity, k: Quantity, count: Quantity = 1, tile_m: Quantity, tile_n: Quantity
) -> Quantity:
    r"""Arithmetic of matrix products whose edges fill whole register tiles.

    .. math:: F = 2 \, c \, k \, r_m \lceil m / r_m \rceil \, r_n \lceil n / r_n \rceil

    Parameters
    ----------
    m, n, k : float, ndarray or sympy.Expr
        Extents of one product. [1]
    count : float, ndarray or sympy.Expr
        Independent products, c. [1]
    tile_m, tile_n : float, ndarray or sympy.Expr
        Rows and columns of C that the micro-kernel holds in registers, r_m and r_n. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Arithmetic at the rate of full tiles. [FLOP]

    Notes
    -----
    Valid for: Goto-style GEMM. A library whose edge kernels are narrower loses less than a whole tile.

    Examples
    --------
    >>> float(padded_product_flop_count(m=512, n=49, k=4608, tile_m=8, tile_n=4) / (2 * 512 * 49 * 4608))
    1.0612

    References
    ----------
    .. [1] K. Goto, R. van de Geijn, Anatomy of high-performance matrix multiplication, ACM TOMS 34(3), 2008,
       doi:10.1145/1356052.1356053.
    """
    return 2 * count * k * tile_m * ceil_ratio(m, tile_m) * tile_n * ceil_ratio(n, tile_n)


def packed_bytes(
    *,
    m: Quantity,
    n: Quantity,
    k: Quantity,
    count: Quantity = 1,
    element_bytes: Quantity = 4,
    result_passes: Quantity = 2.0,
) -> Quantity:
    r"""Memory traffic of packing the operands of matrix products and of updating the result.

    .. math:: B = s \, c \, (m k + k n + \rho \, m n)

    Parameters
    ----------
    m, n, k : float, ndarray or sympy.Expr
        Extents of one product. [1]
    count : float, ndarray or sympy.Expr
        Independent products, c. [1]
    element_bytes : float, ndarray or sympy.Expr
        Size of an element, s. [B]
    result_passes : float, ndarray or sympy.Expr
        Times the result passes through memory, rho: 2 where it is read and written, 1 where only written. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Traffic. [B]

    Notes
    -----
    Valid for: every operand read from memory once, its packed copy living in cache. Ignores: a second
    packing of A for each block of columns of B wider than the last-level cache; operands still in cache
    from the kernel before.

    Examples
    --------
    >>> packed_bytes(m=64, n=26_752, k=2_048, result_passes=1.0) / 1e6
    226.5

    References
    ----------
    .. [1] K. Goto, R. van de Geijn, Anatomy of high-performance matrix multiplication, ACM TOMS 34(3), 2008.
    """
    return element_bytes * count * (m * k + k * n + result_passes * m * n)


def packing_time(
    *,
    moved_bytes: Quantity,
    footprint_bytes: Quantity,
    cache_bytes: Quantity,
    memory_bandwidth_bytes_per_s: Quantity,
    copy_bytes_per_s: Quantity,
) -> Quantity:
    r"""Time of packing operands of which the part that does not fit the last-level cache comes from memory.

    .. math:: T = B \left( \frac{1}{b_c} + \frac{x}{b_m} \right), \qquad x = \max(1 - C / W, 0)

    Parameters
    ----------
    moved_bytes : float, ndarray or sympy.Expr
        Traffic, B (:func:`packed_bytes`). [B]
    footprint_bytes : float, ndarray or sympy.Expr
        Operands and results alive at once, W. [B]
    cache_bytes : float, ndarray or sympy.Expr
        Last-level cache of the sockets in use, C. [B]
    memory_bandwidth_bytes_per_s : float, ndarray or sympy.Expr
        Rate from memory, b_m. [B/s]
    copy_bytes_per_s : float, ndarray or sympy.Expr
        Rate of the packing instructions on operands that the cache holds, b_c. [B/s]

    Returns
    -------
    float, ndarray or sympy.Expr
        Duration. [s]

    Notes
    -----
    Valid for: operands written or read by the kernel before (im2col, then GEMM). The copy and the wait for memory
    add up, because packing strides through pages faster than a core prefetches. Ignores: other users of the cache.

    Examples
    --------
    >>> float(packing_time(moved_bytes=20e6, footprint_bytes=20e6, cache_bytes=10e6,
    ...     memory_bandwidth_bytes_per_s=10e9, copy_bytes_per_s=40e9) * 1e3)
    1.5

    References
    ----------
    .. [1] G. Hager, J. Treibig, J. Habich, G. Wellein, Exploring performance and power properties of modern
       multicore chips via simple machine models, Concurrency Computat. 28, 2016, doi:10.1002/cpe.3180: times of
       instructions and of transfers between memory levels add up on Intel cores.
    """
    from_memory = maximum(1 - cache_bytes / footprint_bytes, 0.0)
    return moved_bytes * (1 / copy_bytes_per_s + from_memory / memory_bandwidth_bytes_per_s)


def register_tiles(*, m: Quantity, n: Quantity, count: Quantity = 1, tile_m: Quantity, tile_n: Quantity) -> Quantity:
    r"""Independent pieces that threads can share: the register tiles of all results.

    .. math:: q = c \lceil m / r_m \rceil \lceil n / r_n \rceil

    Parameters
    ----------
    m, n : float, ndarray or sympy.Expr
        Rows and columns of one result. [1]
    count : float, ndarray or sympy.Expr
        Independent products, c. [1]
    tile_m, tile_n : float, ndarray or sympy.Expr
        Register tile, r_m and r_n. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Pieces. [1]

    Notes
    -----
    Valid for: a library that splits the result, not the sum, among its threads.

    Examples
    --------
    >>> float(register_tiles(m=64, n=10, tile_m=8, tile_n=4))
    24.0

    References
    ----------
    .. [1] K. Goto, R. van de Geijn, Anatomy of high-performance matrix multiplication, ACM TOMS 34(3), 2008.
    """
    return count * ceil_ratio(m, tile_m) * ceil_ratio(n, tile_n)


def cpu_matmul_time(
    *,
    m: Quantity,
    n: Quantity,
    k: Quantity,
    count: Quantity = 1,
    peak_flop_per_s_per_core: Quantity,
    efficiency: Quantity,
    speedup: Quantity,
    core_bandwidth_bytes_per_s: Quantity,
    total_bandwidth_bytes_per_s: Quantity,
    packing_efficiency: Quantity,
    cache_bytes: Quantity,
    core_copy_bytes_per_s: Quantity,
    tile_m: Quantity = 8,
    tile_n: Quantity = 4,
    result_passes: Quantity = 2.0,
    element_bytes: Quantity = 4,
) -> Quantity:
    r"""Time of one launch of matrix products on a CPU: arithmetic plus packing.

    .. math::

        T = \frac{F}{P_1 \, e \, S} + T_\mathrm{pack}(B, W; \; b_m = \min(S \varepsilon b_1, b), \; b_c = S b_{c,1})

    Parameters
    ----------
    m, n, k : float, ndarray or sympy.Expr
        Extents of one product. [1]
    count : float, ndarray or sympy.Expr
        Independent products that share the threads, c. [1]
    peak_flop_per_s_per_core : float, ndarray or sympy.Expr
        SIMD peak of one core at the clock it holds, for the instruction set the library uses, P_1. [FLOP/s]
    efficiency : float, ndarray or sympy.Expr
        Share of the peak the micro-kernel reaches on packed blocks, e. [1]
    speedup : float, ndarray or sympy.Expr
        Speed-up of the threads that the product can occupy, S (:func:`perfmodel.cost.threads.thread_speedup` of no
        more threads than :func:`register_tiles`). [1]
    core_bandwidth_bytes_per_s : float, ndarray or sympy.Expr
        Memory bandwidth of one thread, b_1. [B/s]
    total_bandwidth_bytes_per_s : float, ndarray or sympy.Expr
        Memory bandwidth that all threads share, b. [B/s]
    packing_efficiency : float, ndarray or sympy.Expr
        Share of its streaming bandwidth that a thread reaches while packing, epsilon. [1]
    cache_bytes : float, ndarray or sympy.Expr
        Last-level cache of the sockets in use, C. [B]
    core_copy_bytes_per_s : float, ndarray or sympy.Expr
        Rate at which one core packs operands that the cache holds, b_{c,1}. [B/s]
    tile_m, tile_n : float, ndarray or sympy.Expr
        Register tile, r_m and r_n. [1]
    result_passes : float, ndarray or sympy.Expr
        Times the result passes through memory. [1]
    element_bytes : float, ndarray or sympy.Expr
        Size of an element. [B]

    Returns
    -------
    float, ndarray or sympy.Expr
        Duration of one launch, without the fork-join of its threads. [s]

    Notes
    -----
    Valid for: dense GEMM of a packing BLAS (OpenBLAS, Eigen, MKL). The sum of both times, not the larger,
    because packing and multiplying alternate on the same core. Ignores: idle threads of a last, partly
    filled round.

    Examples
    --------
    One core at 60.8 GFLOP/s and 10 GB/s, 64 rows against 26,752 x 2,048: 124 ms of arithmetic, 43 ms of
    packing, 37 of them waiting for memory.

    >>> round(float(cpu_matmul_time(m=64, n=26_752, k=2_048, peak_flop_per_s_per_core=60.8e9, efficiency=0.93,
    ...     speedup=1.0, core_bandwidth_bytes_per_s=10e9, total_bandwidth_bytes_per_s=40e9,
    ...     packing_efficiency=0.6, cache_bytes=10e6, core_copy_bytes_per_s=40e9)), 3)
    0.167

    References
    ----------
    .. [1] K. Goto, R. van de Geijn, Anatomy of high-performance matrix multiplication, ACM TOMS 34(3), 2008.
    """
    flop_count = padded_product_flop_count(m=m, n=n, k=k, count=count, tile_m=tile_m, tile_n=tile_n)
    moved_bytes = packed_bytes(m=m, n=n, k=k, count=count, element_bytes=element_bytes, result_passes=result_passes)
    footprint_bytes = element_bytes * (m * k + k * n + m * n) * minimum(count, maximum(speedup, 1.0))
    bandwidth = minimum(speedup * packing_efficiency * core_bandwidth_bytes_per_s, total_bandwidth_bytes_per_s)
    return flop_count / (peak_flop_per_s_per_core * efficiency * speedup) + packing_time(
        moved_bytes=moved_bytes,
        footprint_bytes=footprint_bytes,
        cache_bytes=cache_bytes,
        memory_bandwidth_bytes_per_s=bandwidth,
        copy_bytes_per_s=speedup * core_copy_bytes_per_s,
    )
