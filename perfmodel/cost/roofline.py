"""Time of one kernel from its two bounds: arithmetic and memory.

Both compositions are here: the roofline, where arithmetic and traffic overlap perfectly, and their sum, where
they do not overlap at all. A measured kernel lies between them: t_max <= t <= t_sum <= 2 t_max.
"""

from __future__ import annotations

from perfmodel.numeric import maximum
from perfmodel.symbolic import Quantity


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
    Valid for: one kernel large enough to fill the device. Ignores: launch overhead; the tail where one of the
    two has run out.

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
    Valid for: any processor with one level of memory in view. Ignores: caches.

    Examples
    --------
    >>> round(ridge_point(peak_flop_per_s=8.873e12, bandwidth_bytes_per_s=320.32e9), 1)
    27.7

    References
    ----------
    .. [1] S. Williams, A. Waterman, D. Patterson, CACM 52(4), 2009, doi:10.1145/1498765.1498785.
    """
    return peak_flop_per_s / bandwidth_bytes_per_s
