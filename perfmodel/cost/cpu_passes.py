"""Time of a pass over memory on a CPU: its traffic, its instructions, NUMA.

An element-wise pass is bound by memory or by its instructions: unlike a GPU, a core spends 8 to 60 cycles
on one exponential or hyperbolic tangent, so that scalar loops are bound by arithmetic long before memory.
"""

from __future__ import annotations

from perfmodel.numeric import maximum, minimum
from perfmodel.symbolic import Quantity


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
    Valid for: long loops. c_F is a fact of the compiler, its flags and its mathematics library, hence of a
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
    r"""Bandwidth of threads of which a share reads memory across the socket interconnect.

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
    r"""Time of one pass over memory on a CPU, or over tensors that the last-level cache still holds.

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
    Valid for: hardware prefetch, tensors that the kernel before wrote or read. Ignores: page faults of fresh buffers,
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
