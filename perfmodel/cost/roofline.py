"""Time of one kernel from its two bounds: arithmetic and memory.

In the roofline, arithmetic and traffic overlap perfectly; in their sum, they do not overlap at all. A measured kernel
lies between the two: t_max <= t <= t_sum <= 2 t_max.

Of the host's time to issue kernels, a step pays for the part that kernels do not hide.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Final

import numpy as np

from perfmodel.numeric import exceeds, maximum, minimum, where
from perfmodel.symbolic import Quantity, is_symbolic, named

LEAST_S: Final = sys.float_info.min
"""A time so short that adding it changes no time but zero, by which one can then divide. [s]"""


def roofline_time(*, compute_s: Quantity, memory_s: Quantity) -> Quantity:
    r"""Time of a kernel whose arithmetic and memory traffic overlap perfectly.

    .. math:: t = \max(t_\mathrm{compute}, t_\mathrm{memory})

    Parameters
    ----------
    compute_s : float, ndarray or sympy.Expr
        Time of the arithmetic alone. [s]
    memory_s : float, ndarray or sympy.Expr
        Time of the memory traffic alone. [s]

    Returns
    -------
    float, ndarray or sympy.Expr
        Time of the kernel. [s]

    Notes
    -----
    Valid for: one kernel large enough to fill the device. Ignores: launch overhead; the tail after one of the two
    has finished.

    Examples
    --------
    A 4096-cubed fp32 GEMM on a GTX 1080 at its peak: compute 15.49 ms, memory 0.63 ms.

    >>> flop_count, moved_bytes = 2 * 4096**3, 3 * 4 * 4096**2
    >>> float(roofline_time(compute_s=flop_count / 8.873e12, memory_s=moved_bytes / 320.32e9))
    0.01549

    References
    ----------
    .. [1] S. Williams, A. Waterman, D. Patterson, Roofline: an insightful visual performance model for
       multicore
       architectures, CACM 52(4), 2009, doi:10.1145/1498765.1498785.
    """
    return maximum(compute_s, memory_s)


def ridge_point(*, peak_flop_per_s: Quantity, bandwidth_bytes_per_s: Quantity) -> Quantity:
    r"""Arithmetic intensity at which a device's two bounds meet.

    .. math:: I^* = F / B

    Parameters
    ----------
    peak_flop_per_s : float, ndarray or sympy.Expr
        Peak arithmetic rate, F. [FLOP/s]
    bandwidth_bytes_per_s : float, ndarray or sympy.Expr
        Peak memory bandwidth, B. [B/s]

    Returns
    -------
    float, ndarray or sympy.Expr
        Ridge point: left of it a kernel is memory-bound, right of it compute-bound. [FLOP/B]

    Notes
    -----
    Valid for: any processor, seen with one level of memory. Ignores: caches.

    Examples
    --------
    >>> round(ridge_point(peak_flop_per_s=8.873e12, bandwidth_bytes_per_s=320.32e9), 1)
    27.7

    References
    ----------
    .. [1] S. Williams, A. Waterman, D. Patterson, CACM 52(4), 2009, doi:10.1145/1498765.1498785.
    """
    return peak_flop_per_s / bandwidth_bytes_per_s


def exposed_dispatch_time(*, busy_s: Quantity, dispatch_s: Quantity, overlap_exponent: float) -> Quantity:
    r"""Time that issuing a kernel adds to the time the device is busy with it.

    .. math:: t = \left(b^p + d^p\right)^{1/p} - b

    With p = 1 the two run one after the other; as p tends to infinity, only the excess over the kernel time shows. In
    between, short kernels wait for the host and long ones hide it, without a sharp border: the queue between host and
    device is neither always full enough to hide a whole dispatch nor always empty.

    Parameters
    ----------
    busy_s : float, ndarray or sympy.Expr
        Time the device is busy with one launch, b. [s]
    dispatch_s : float, ndarray or sympy.Expr
        Time the host needs to issue one launch, d. [s]
    overlap_exponent : float
        How well the two overlap, p >= 1; infinity allowed. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Exposed time of one launch, between max(d - b, 0) and d. [s]

    Notes
    -----
    Valid for: many launches of similar size in sequence. Ignores: how far ahead the host runs during a long kernel,
    which hides the dispatch of short ones after it.

    Examples
    --------
    >>> [float(exposed_dispatch_time(busy_s=3e-6, dispatch_s=4e-6, overlap_exponent=p) * 1e6) for p in (1, 2, math.inf)]
    [4.0, 2.0, 1.0]

    References
    ----------
    .. [1] J. Appleyard, T. Kocisky, P. Blunsom, Optimizing performance of recurrent neural networks on GPUs,
       arXiv:1604.01946: launch-bound and device-bound kernels of unfused LSTM cells.
    """
    single = not getattr(overlap_exponent, "shape", ())
    is_open = is_symbolic(busy_s, dispatch_s)
    dispatched = None if not is_open or is_symbolic(dispatch_s) else np.count_nonzero(dispatch_s)
    if (single and overlap_exponent == 1) or dispatched == 0:
        return dispatch_s + 0 * busy_s
    if single and math.isinf(overlap_exponent):
        return maximum(dispatch_s - busy_s, 0.0)
    # Powers of the ratio to the longer time: powers of microseconds underflow at exponents of 55 and more.
    longer, shorter = maximum(busy_s, dispatch_s), minimum(busy_s, dispatch_s)
    longer = named(longer, "longer of kernel and dispatch")
    # the longer of the two can be zero only if there is no dispatch
    if is_open:
        ratio = shorter / (longer if dispatched == np.size(dispatch_s) else where(exceeds(longer, 0), longer, 1.0))
    else:
        ratio = shorter / (longer + LEAST_S)
    return longer * (1 + ratio**overlap_exponent) ** (1 / overlap_exponent) - busy_s


def queued_dispatch_time(*, busy_s: Sequence[Quantity], dispatch_s: Sequence[Quantity]) -> list[Quantity]:
    r"""Time that issuing kernels adds to each part of a step if the host runs ahead of the device.

    .. math:: T_i = \max\left(T_{i-1} + b_i, \; \sum_{j \le i} d_j\right), \quad t_i = T_i - T_{i-1} - b_i

    The host never waits; a part ends when the device has done it, and not before the host has issued it.

    Parameters
    ----------
    busy_s : sequence of float, ndarray or sympy.Expr
        Time the device is busy with each part, b, in the order in which they run. [s]
    dispatch_s : sequence of float, ndarray or sympy.Expr
        Time the host needs to issue each part, d. [s]

    Returns
    -------
    list of float, ndarray or sympy.Expr
        Exposed time of each part, t. [s]

    Notes
    -----
    Valid for: a queue that holds all the launches between two synchronisations, and parts in which kernels of all
    lengths alternate. Ignores: that the device waits for the first launch.

    Examples
    --------
    A forward phase that the host holds up, before a backward phase that hides the calls from C++:

    >>> [round(1e3 * t, 3) for t in queued_dispatch_time(busy_s=[1e-3, 2e-3], dispatch_s=[4e-3, 1e-3])]
    [3.0, 0.0]
    """
    end_s: Quantity = 0.0
    issued_s: Quantity = 0.0
    exposed_s = []
    for busy, dispatch in zip(busy_s, dispatch_s, strict=True):
        issued_s = issued_s + dispatch
        done_s = end_s + busy
        end_s = named(maximum(done_s, issued_s), "end of a part")
        exposed_s.append(end_s - done_s)
    return exposed_s
