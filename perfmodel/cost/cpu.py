"""Time of kernels on a CPU: a product's arithmetic and the packing of its operands; passes over memory; NUMA.

A CPU BLAS copies its operands into contiguous, cache-sized blocks before it multiplies. For square products
the copy is negligible beside n^3 arithmetic; for a mini-batch of 64 rows against a 26,752 x 2,048 matrix it
is not, and it runs at the speed of memory, not of arithmetic. The two times therefore add.

An element-wise pass is bound by memory or by its instructions: unlike a GPU, a core spends 8 to 60 cycles
on one exponential or hyperbolic tangent, so that scalar loops are bound by arithmetic long before memory.
"""

from __future__ import annotations

from typing import Final

from perfmodel.numeric import ceil_ratio, maximum, minimum
from perfmodel.symbolic import Quantity

SHARPNESS: Final = 16
"""Exponent of the smooth minimum of an efficiency and one. [1]"""


def capped_efficiency(*, efficiency: Quantity) -> Quantity:
    r"""Share of the peak that a matrix product reaches, kept below one however large its factors.

    .. math:: e_\mathrm{capped} = \left(e^{-q} + 1\right)^{-1/q}, \qquad q = 16

    Parameters
    ----------
    efficiency : float, ndarray or sympy.Expr
        Product of the factors of the share, e: library, data type, way of calling. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Always below one: 0.1 % below e at 0.75, 4 % below one at e = 1. [1]

    Notes
    -----
    Valid for: positive efficiencies. A smooth minimum of e and 1, because a fit needs a gradient on both sides of the
    limit and because gains diminish near it.

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
        Times the result passes through memory, rho: 2 if read and written, 1 if only written. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Traffic. [B]

    Notes
    -----
    Valid for: operands read from memory once, with packed copies that stay in cache. Ignores: a second
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
    r"""Time of packing operands; the part that does not fit the last-level cache comes from memory.

    .. math:: T = B \left( \frac{1}{b_c} + \frac{x}{b_m} \right), \qquad x = \max(1 - C / W, 0)

    Parameters
    ----------
    moved_bytes : float, ndarray or sympy.Expr
        Traffic, B (:func:`packed_bytes`). [B]
    footprint_bytes : float, ndarray or sympy.Expr
        Operands and results in use at once, W. [B]
    cache_bytes : float, ndarray or sympy.Expr
        Last-level cache of the sockets in use, C. [B]
    memory_bandwidth_bytes_per_s : float, ndarray or sympy.Expr
        Rate from memory, b_m. [B/s]
    copy_bytes_per_s : float, ndarray or sympy.Expr
        Rate of packing operands that the cache holds, b_c. [B/s]

    Returns
    -------
    float, ndarray or sympy.Expr
        Duration. [s]

    Notes
    -----
    Valid for: operands written or read by the previous kernel (im2col, then GEMM). The copy and the wait for memory
    add up because packing strides through pages faster than a core prefetches. Ignores: other users of the cache.

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


def cpu_scalar_time(
    *,
    flop_count: Quantity,
    cycles_per_flop: Quantity,
    moved_bytes: Quantity = 0.0,
    cycles_per_byte: Quantity = 0.0,
    clock_hz: Quantity,
    speedup: Quantity = 1.0,
) -> Quantity:
    r"""Time of the instructions of a pass over tensors: elementary functions, comparisons, index arithmetic.

    .. math:: T = \frac{c_F F + c_B B}{f \, S}

    Parameters
    ----------
    flop_count : float, ndarray or sympy.Expr
        Arithmetic by the library's counting rule, F. [FLOP]
    cycles_per_flop : float, ndarray or sympy.Expr
        Cycles per counted FLOP for this kind of pass, c_F. [cycle/FLOP]
    moved_bytes : float, ndarray or sympy.Expr
        Bytes read and written, B, for passes without arithmetic (im2col, transposes). [B]
    cycles_per_byte : float, ndarray or sympy.Expr
        Cycles per byte of such passes, c_B. [cycle/B]
    clock_hz : float, ndarray or sympy.Expr
        Clock of the core, f. [Hz]
    speedup : float, ndarray or sympy.Expr
        Speed-up of the threads, S; 1 where the framework runs this pass on one thread. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Duration. [s]

    Notes
    -----
    Valid for: long loops. c_F depends on the compiler, its flags and its mathematics library, hence on the
    framework: measured with g++ 12 -O2 and glibc 2.36 on a Sapphire Rapids core, a sigmoid in double
    precision takes 15 cycles, tanh 57 to 64, one draw of the Mersenne Twister 40, a 3x3 maximum 9.5 per
    comparison.

    Examples
    --------
    >>> float(cpu_scalar_time(flop_count=1e6, cycles_per_flop=15.0, clock_hz=3.0e9))
    0.005

    References
    ----------
    .. [1] A. Fog, Instruction tables, Technical University of Denmark: latency and throughput by
       microarchitecture.
    """
    return (cycles_per_flop * flop_count + cycles_per_byte * moved_bytes) / (clock_hz * speedup)


def subnormal_assist_time(
    *, product_count: Quantity, assist_cycles: Quantity, clock_hz: Quantity, speedup: Quantity = 1.0
) -> Quantity:
    r"""Time of the microcode that handles products with a subnormal operand or result.

    .. math:: T = \frac{A \, c_A}{f \, S}

    Parameters
    ----------
    product_count : float, ndarray or sympy.Expr
        SIMD multiplications with a subnormal operand or result in any lane, A. [1]
    assist_cycles : float, ndarray or sympy.Expr
        Cycles of one assist, c_A. [cycle]
    clock_hz : float, ndarray or sympy.Expr
        Clock of the core, f. [Hz]
    speedup : float, ndarray or sympy.Expr
        Speed-up of the threads, S. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Duration, to be added to that of the same products without assists. [s]

    Notes
    -----
    Valid for: code that does not flush subnormal numbers to zero. Ignores: additions, which the Sandy Bridge family
    does without assists; fused multiply-adds, whose result is the sum.

    Examples
    --------
    >>> float(subnormal_assist_time(product_count=116e6, assist_cycles=160.0, clock_hz=3.8e9))
    4.8842

    References
    ----------
    .. [1] I. Dooley, L. Kale, Quantifying the interference caused by subnormal floating-point values, Workshop on
       Operating System Interference in High Performance Applications, 2006.
    """
    return product_count * assist_cycles / (clock_hz * speedup)


def numa_bandwidth(*, local_bytes_per_s: Quantity, remote_bytes_per_s: Quantity, remote_share: Quantity) -> Quantity:
    r"""Bandwidth of threads, some of which read memory across the socket interconnect.

    .. math:: b = \frac{1}{x_l / b_l + x_r / b_r}, \qquad x_l = 1 - x_r

    Parameters
    ----------
    local_bytes_per_s : float, ndarray or sympy.Expr
        Bandwidth of the socket's own memory, b_l. [B/s]
    remote_bytes_per_s : float, ndarray or sympy.Expr
        Bandwidth over the interconnect, b_r. [B/s]
    remote_share : float, ndarray or sympy.Expr
        Share of the traffic that is remote, x_r; 1/2 with threads on both sockets and data on one. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Bandwidth. [B/s]

    Notes
    -----
    Valid for: two sockets, first-touch allocation. Ignores: snoop traffic.

    Examples
    --------
    >>> float(numa_bandwidth(local_bytes_per_s=59.7e9, remote_bytes_per_s=20e9, remote_share=0.5) / 1e9)
    29.96

    References
    ----------
    .. [1] C. Lameter, NUMA (Non-Uniform Memory Access): an overview, ACM Queue 11(7), 2013,
       doi:10.1145/2508834.2513149.
    """
    return 1 / ((1 - remote_share) / local_bytes_per_s + remote_share / remote_bytes_per_s)


def cpu_stream_time(
    *,
    moved_bytes: Quantity,
    scalar_s: Quantity = 0.0,
    speedup: Quantity,
    core_bandwidth_bytes_per_s: Quantity,
    total_bandwidth_bytes_per_s: Quantity,
    cache_bytes: Quantity = 0.0,
    core_cache_bandwidth_bytes_per_s: Quantity = 1.0,
    efficiency: Quantity = 1.0,
) -> Quantity:
    r"""Time of one pass on a CPU over tensors in memory or still in the last-level cache.

    .. math::

        T = \max\left( \frac{B}{e} \left[ \frac{x}{\min(S \, b_1, b)} + \frac{1 - x}{S \, b_c} \right], \;
            T_\mathrm{scalar} \right), \qquad x = \max(1 - C / B, 0)

    Parameters
    ----------
    moved_bytes : float, ndarray or sympy.Expr
        Bytes read and written, B. [B]
    scalar_s : float, ndarray or sympy.Expr
        Time of the pass's instructions (:func:`cpu_scalar_time`). [s]
    speedup : float, ndarray or sympy.Expr
        Speed-up of the threads, S; 1 where the framework runs the pass on one thread. [1]
    core_bandwidth_bytes_per_s : float, ndarray or sympy.Expr
        Memory bandwidth of one thread, b_1. [B/s]
    total_bandwidth_bytes_per_s : float, ndarray or sympy.Expr
        Memory bandwidth that all threads share, after efficiency and NUMA, b. [B/s]
    cache_bytes : float, ndarray or sympy.Expr
        Last-level cache of the sockets in use, C; 0 for none. [B]
    core_cache_bandwidth_bytes_per_s : float, ndarray or sympy.Expr
        Rate at which one core streams through the last-level cache, b_c. [B/s]
    efficiency : float, ndarray or sympy.Expr
        Share of the streaming bandwidth that this kind of pass reaches, e. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Duration of one launch, without the fork-join of its threads. [s]

    Notes
    -----
    Valid for: hardware prefetch, tensors that the previous kernel wrote or read. Ignores: page faults of new buffers,
    other users of the cache.

    Examples
    --------
    >>> float(cpu_stream_time(moved_bytes=1e9, speedup=2.0, core_bandwidth_bytes_per_s=10e9,
    ...     total_bandwidth_bytes_per_s=40e9))
    0.05

    References
    ----------
    .. [1] J. D. McCalpin, Memory bandwidth and machine balance in current high performance computers, IEEE
       TCCA newsletter, December 1995 (STREAM).
    """
    bandwidth = minimum(speedup * core_bandwidth_bytes_per_s, total_bandwidth_bytes_per_s)
    from_memory = maximum(1 - cache_bytes / maximum(moved_bytes, 1.0), 0.0)
    seconds_per_byte = from_memory / bandwidth + (1 - from_memory) / (speedup * core_cache_bandwidth_bytes_per_s)
    return maximum(moved_bytes / efficiency * seconds_per_byte, scalar_s)
