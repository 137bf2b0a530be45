"""CPU threads: the clock that cores hold, the speed-up of several threads, and what starting them costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from perfmodel.numeric import exceeds, logarithm, maximum, minimum, where
from perfmodel.symbolic import Quantity, is_symbolic


def effective_clock(*, active_cores: Quantity, clock_hz_by_active_cores: Sequence[float]) -> Quantity:
    r"""Clock that the cores of one socket hold while some of them are busy.

    .. math:: f(a) = f_1 + \sum_{i=1}^{C-1} (f_{i+1} - f_i) \min(\max(a - i, 0), 1)

    Parameters
    ----------
    active_cores : float, ndarray or sympy.Expr
        Busy cores of the socket, a; fractions interpolate. [1]
    clock_hz_by_active_cores : sequence of float
        Turbo clock f_i with i cores busy, i = 1 ... C. [Hz]

    Returns
    -------
    float, ndarray or sympy.Expr
        Clock. [Hz]

    Notes
    -----
    Valid for: adequate cooling and power. Ignores: thermal history, and clocks that other sockets influence.

    Examples
    --------
    >>> float(effective_clock(active_cores=2, clock_hz_by_active_cores=(3.2e9, 3.2e9, 2.9e9, 2.6e9)) / 1e9)
    3.2

    References
    ----------
    .. [1] Intel, Intel Turbo Boost Technology in Intel Core microarchitecture (Nehalem) based processors,
       white paper 320354, 2008: turbo bins by the number of active cores.
    """
    steps = list(clock_hz_by_active_cores)
    clock_hz = steps[0] + 0 * active_cores
    for index, (clock, following) in enumerate(pairwise(steps), start=1):
        if following != clock:
            clock_hz = clock_hz + (following - clock) * minimum(maximum(active_cores - index, 0.0), 1.0)
    return clock_hz


def thread_speedup(
    *,
    threads: Quantity,
    physical_cores: Quantity,
    serial_fraction: Quantity = 0.0,
    smt_gain: Quantity = 1.0,
    oversubscription_penalty: Quantity = 1.0,
) -> Quantity:
    r"""Speed-up of a kernel on several threads over one.

    .. math::

        S = \frac{p}{1 + \sigma (p - 1)} \cdot
            \frac{1 + (g - 1) \min(x, 1)}{1 + (\omega - 1) x}, \quad
        p = \min(t, C), \quad x = \max(t / C - 1, 0)

    Parameters
    ----------
    threads : float, ndarray or sympy.Expr
        Threads used, t >= 1. [1]
    physical_cores : float, ndarray or sympy.Expr
        Cores of all sockets, C. [1]
    serial_fraction : float, ndarray or sympy.Expr
        Share that one thread does alone, sigma (Amdahl); 1 for a kernel that is not threaded. [1]
    smt_gain : float, ndarray or sympy.Expr
        Factor gained with two threads on every core, g. [1]
    oversubscription_penalty : float, ndarray or sympy.Expr
        Factor lost with twice as many threads as cores, omega, because threads that spin at barriers hold cores that
        others need. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Speed-up over one thread. [1] Exactly 1 for one thread.

    Notes
    -----
    Valid for: equal cores, one process. sigma, g and omega belong to a framework and its library,
    not to a network. Ignores: clocks (:func:`effective_clock`) and memory bandwidth (cost.cpu), which have
    their own limits.

    Examples
    --------
    >>> float(thread_speedup(threads=16, physical_cores=16, serial_fraction=0.1))
    6.4
    >>> float(thread_speedup(threads=8, physical_cores=4, smt_gain=1.25))
    5.0

    References
    ----------
    .. [1] G. M. Amdahl, Validity of the single processor approach to achieving large scale computing
       capabilities, AFIPS 1967, doi:10.1145/1465482.1465560.
    """
    on_cores = minimum(threads, physical_cores)
    excess = maximum(threads / physical_cores - 1, 0.0)
    law = on_cores / (1 + serial_fraction * (on_cores - 1))
    return law * (1 + (smt_gain - 1) * minimum(excess, 1.0)) / (1 + (oversubscription_penalty - 1) * excess)


def fork_join_time(*, threads: Quantity, barrier_s: Quantity) -> Quantity:
    r"""Time to start the threads of one parallel region and to wait for the last.

    .. math:: T = \tau \lceil \log_2 t \rceil \approx \tau \log_2 t

    Parameters
    ----------
    threads : float, ndarray or sympy.Expr
        Threads of the region, t >= 1. [1]
    barrier_s : float, ndarray or sympy.Expr
        Time of one level of the barrier's tree, tau. [s]

    Returns
    -------
    float, ndarray or sympy.Expr
        Duration. [s] Zero for one thread.

    Notes
    -----
    Valid for: threads that spin while they wait (OpenMP's active wait, OpenBLAS's server). A pool that sleeps is woken
    by the operating system instead, which takes longer. The doubling steps are interpolated linearly in log2.

    Examples
    --------
    >>> float(fork_join_time(threads=8, barrier_s=1e-6) * 1e6)
    3.0

    References
    ----------
    .. [1] J. M. Bull, F. Reid, N. McDonnell, A microbenchmark suite for OpenMP tasks, IWOMP 2012 (EPCC suite:
       parallel-region overhead by thread count), doi:10.1007/978-3-642-30961-8_24.
    """
    doublings = logarithm(threads) / math.log(2) if is_symbolic(threads) else np.log2(threads)
    return barrier_s * doublings


def usable_threads(*, threads: Quantity, pieces: Quantity) -> Quantity:
    r"""Threads that a kernel can occupy, given the number of pieces it can be cut into.

    .. math:: t_\mathrm{used} = \max(\min(t, q), 1)

    Parameters
    ----------
    threads : float, ndarray or sympy.Expr
        Threads offered, t. [1]
    pieces : float, ndarray or sympy.Expr
        Independent pieces, q: blocks of rows and columns, or samples. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Threads that work. [1]

    Notes
    -----
    Valid for: pieces of equal size. Ignores: the idle threads of a last, partly filled round.

    Examples
    --------
    >>> float(usable_threads(threads=16, pieces=4))
    4.0
    """
    return maximum(minimum(threads, pieces), 1.0)


def serial_below(*, threads: Quantity, work: Quantity, smallest_parallel_work: Quantity) -> Quantity:
    r"""Threads that a library uses when it runs small work on one thread.

    .. math:: t_\mathrm{used} = t \;\text{ if }\; w > w_0 \;\text{ else }\; 1

    Parameters
    ----------
    threads : float, ndarray or sympy.Expr
        Threads offered, t. [1]
    work : float, ndarray or sympy.Expr
        Size of the kernel in the library's own measure, w (elements, or m n k). [1]
    smallest_parallel_work : float, ndarray or sympy.Expr
        Threshold, w_0. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Threads that work. [1]

    Notes
    -----
    Valid for: libraries with a fixed threshold: OpenBLAS runs m n k <= 262,144 on one thread, Torch's
    tensor library maps of at most 100,000 elements.

    Examples
    --------
    >>> float(serial_below(threads=8, work=50_000, smallest_parallel_work=100_000))
    1.0

    References
    ----------
    .. [1] OpenBLAS 0.2.18, interface/gemm.c (SMP_THRESHOLD_MIN, GEMM_MULTITHREAD_THRESHOLD).
    .. [2] Torch 7, lib/TH/generic/THTensorMath.c (TH_OMP_OVERHEAD_THRESHOLD).
    """
    return where(exceeds(work, smallest_parallel_work), threads, 1.0)


def serial_if_narrow(
    *,
    threads: Quantity,
    m: Quantity,
    n: Quantity,
    count: Quantity = 1,
    smallest_side_per_thread: Quantity,
) -> Quantity:
    r"""Threads that a library uses if it runs products on one thread that are narrow for the number of threads.

    .. math:: t_\mathrm{used} = t \;\text{ if }\; \min(m, n) \ge r \, t \;\text{ or }\; c > 1 \;\text{ else }\; 1

    Parameters
    ----------
    threads : float, ndarray or sympy.Expr
        Threads that the library is set to use, t. [1]
    m, n : float, ndarray or sympy.Expr
        Rows and columns of the result. [1]
    count : float, ndarray or sympy.Expr
        Independent products that the framework itself deals to the threads, c. [1]
    smallest_side_per_thread : float, ndarray or sympy.Expr
        Rows and columns that the library requires for each thread, r; 0 if it has no such rule. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Threads that work. [1]

    Notes
    -----
    Valid for: OpenBLAS before 0.3.0, which uses all threads or one. More threads can thus be slower than fewer.

    Examples
    --------
    >>> [float(serial_if_narrow(threads=t, m=64, n=2048, smallest_side_per_thread=4.0)) for t in (16, 32)]
    [16.0, 1.0]

    References
    ----------
    .. [1] OpenBLAS, driver/level3/level3_thread.c (SWITCH_RATIO), as quoted in pull request 1316, which ended it.
    """
    least = smallest_side_per_thread * threads
    wide = where(exceeds(least, m), 1.0, where(exceeds(least, n), 1.0, threads))
    return where(exceeds(count, 1.0), threads, wide)
