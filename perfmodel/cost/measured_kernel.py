"""Time of a kernel on a measured machine: a sum of a few measured constants times the amounts of its work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from perfmodel.numeric import ceil, exponential, maximum
from perfmodel.symbolic import Quantity

Columns = Mapping[str, Quantity]
"""Amounts of work by name: ``m``, ``n``, ``k``, ``count``, ``read_bytes``, ``written_bytes``, ``flop_count`` ..."""

SINGLE_BYTES: Final = 4
"""Size of a single-precision element; ``vector_lanes`` counts such elements. [B]"""


def padded_flop_count(*, m: Quantity, n: Quantity, k: Quantity, count: Quantity, vector_lanes: Quantity) -> Quantity:
    """Arithmetic of products whose rows are padded to whole vectors.

    Parameters
    ----------
    m, n, k : float, ndarray or sympy.Expr
        Rows and columns of a result, and length of the sum. [1]
    count : float, ndarray or sympy.Expr
        Products. [1]
    vector_lanes : float
        Elements that one instruction handles. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        2 count m k n, n rounded up. [FLOP]

    Examples
    --------
    >>> float(padded_flop_count(m=10, n=17, k=5, count=1, vector_lanes=16))
    3200.0
    """
    return 2 * count * m * k * (vector_lanes * ceil(n / vector_lanes))


def _contraction(columns: Columns, *, element_bytes: int, lanes: Quantity, near_cache_bytes: Quantity) -> Columns:
    m, n, k, count = (columns[name] for name in ("m", "n", "k", "count"))
    left, right, result = (element_bytes * count * size for size in (m * k, k * n, m * n))
    return {
        "call_s": 1.0 + 0 * m,
        "s_per_flop": padded_flop_count(m=m, n=n, k=k, count=count, vector_lanes=lanes),
        "s_per_left_byte": left,
        "s_per_right_byte": right,
        "s_per_result_byte": result,
        "s_per_far_byte": maximum(left + right + result - near_cache_bytes, 0.0),
    }


def _convolution(columns: Columns, *, element_bytes: int, lanes: Quantity, near_cache_bytes: Quantity) -> Columns:
    m, n, k, count = (columns[name] for name in ("m", "n", "k", "count"))
    return {
        "call_s": 1.0 + 0 * m,
        "s_per_flop": padded_flop_count(m=m, n=n, k=k, count=count, vector_lanes=lanes),
        "s_per_read_byte": columns["read_bytes"],
        "s_per_written_byte": columns["written_bytes"],
        "s_per_far_byte": maximum(columns["read_bytes"] + columns["written_bytes"] - near_cache_bytes, 0.0),
    }


def _stream(columns: Columns, *, element_bytes: int, lanes: Quantity, near_cache_bytes: Quantity) -> Columns:
    moved = columns["read_bytes"] + columns["written_bytes"]
    return {
        "call_s": 1.0 + 0 * moved,
        "s_per_byte": moved,
        "s_per_far_byte": maximum(moved - near_cache_bytes, 0.0),
        "s_per_flop": columns["flop_count"],
        "s_per_serial_step": columns.get("serial_steps", 0.0),
    }


FEATURES: Final[dict[str, Callable[..., Columns]]] = {
    "contraction": _contraction,
    "convolution": _convolution,
    "stream": _stream,
}
"""Family of kernel classes -> the factor of each of its constants."""

ARITHMETIC: Final = frozenset({"s_per_flop", "s_per_serial_step"})
"""Constants of arithmetic; of the others, ``call_s`` is per call and the rest are for memory."""


def kernel_features(
    family: str, columns: Columns, *, element_bytes: int, vector_lanes: Quantity, near_cache_bytes: Quantity
) -> Columns:
    """Return the factor of each constant of a kernel's class.

    Parameters
    ----------
    family : str
        ``contraction``, ``convolution`` or ``stream``. [-]
    columns : mapping of str to float, ndarray or sympy.Expr
        The kernel's columns: read_bytes and written_bytes [B]; for products also m, n, k, count [1]; for streams
        flop_count [FLOP] and serial_steps [1]. [-]
    element_bytes : int
        Size of one element. [B]
    vector_lanes : float
        Single-precision elements that one instruction handles: twice as many of half the size, half of twice. [1]
    near_cache_bytes : float
        Size of the cache that holds a kernel's operands between repetitions. [B]

    Returns
    -------
    dict of str to float, ndarray or sympy.Expr
        By name of constant. [1, FLOP, B]

    Examples
    --------
    >>> relu = {"read_bytes": 6e6, "written_bytes": 6e6, "flop_count": 1.5e6, "serial_steps": 0}
    >>> features = kernel_features("stream", relu, element_bytes=4, vector_lanes=16, near_cache_bytes=4e6)
    >>> float(features["s_per_byte"]), float(features["s_per_far_byte"])
    (12000000.0, 8000000.0)
    """
    lanes = vector_lanes * (SINGLE_BYTES / element_bytes)
    return FEATURES[family](columns, element_bytes=element_bytes, lanes=lanes, near_cache_bytes=near_cache_bytes)


def measured_kernel_time(
    features: Columns,
    constants: Columns,
    *,
    cold_bytes: Quantity = 0.0,
    cold_s_per_byte: Quantity = 0.0,
) -> Quantity:
    r"""Time of a kernel: constants times features, plus the extra cost of operands that are in no cache.

    .. math:: t = \sum_i c_i f_i + c_\text{cold} B_\text{cold}, \quad c_i \ge 0

    Parameters
    ----------
    features : mapping of str to float, ndarray or sympy.Expr
        What each constant is multiplied by; see :func:`kernel_features`. [1, FLOP, B]
    constants : mapping of str to float, ndarray or sympy.Expr
        Measured constants; those not listed are zero. [s, s/FLOP, s/B]
    cold_bytes : float, ndarray or sympy.Expr
        Bytes that are in no cache. [B]
    cold_s_per_byte : float, ndarray or sympy.Expr
        Extra time for each such byte. [s/B]

    Returns
    -------
    float, ndarray or sympy.Expr
        Duration. [s]

    Notes
    -----
    Valid for: sizes within the calibrated range of the class. Terms add up because arithmetic and memory are assumed
    not to overlap within a kernel; if they do, the fit makes the smaller constant smaller.

    Examples
    --------
    A product of 64 x 64 x 64 in single precision at 100 GFLOP/s takes 5.24 us, and 10 us are for the call:

    >>> columns = {"m": 64, "n": 64, "k": 64, "count": 1, "read_bytes": 32768, "written_bytes": 16384}
    >>> features = kernel_features("contraction", columns, element_bytes=4, vector_lanes=16, near_cache_bytes=4e6)
    >>> round(float(measured_kernel_time(features, {"call_s": 10e-6, "s_per_flop": 1e-11}) * 1e6), 2)
    15.24
    """
    return sum(constants[name] * features[name] for name in constants) + cold_s_per_byte * cold_bytes


def cold_share(*, distance_bytes: Quantity, cache_bytes: Quantity) -> Quantity:
    r"""Share of some data that has left a cache since it was last used.

    .. math:: s = 1 - e^{-(D / C)^2}

    Parameters
    ----------
    distance_bytes : float, ndarray or sympy.Expr
        Other traffic since the data was last used: its reuse distance, D. [B]
    cache_bytes : float
        Capacity of the cache, C. [B]

    Returns
    -------
    float, ndarray or sympy.Expr
        From 0 for data just used to 1 for data long not used. [1]

    Notes
    -----
    Lies between the two policies with a known closed form. If a new line replaces a random one, 1 - exp(-D / C) has
    left [1]_; if it replaces the least recently used one, nothing has left up to D = C and everything beyond.
    Last-level caches approximate the second, with hashed sets shared by several cores. On a processor with a last-level
    cache of 480 MB (measured 2026-11, on two of its cores), reading 40, 80, 160, 315 and 630 MB before a copy of 15 MB
    slowed it by 2, 12, 30, 86 and 100 % of what a flush did: 3, 11, 38, 84, 100 % here, with C = 230 MB; 16 to 94 %
    with the first form at best. Not yet measured on another processor.

    Examples
    --------
    >>> [round(float(cold_share(distance_bytes=each, cache_bytes=30e6)), 3) for each in (3e6, 30e6, 90e6)]
    [0.01, 0.632, 1.0]

    References
    ----------
    .. [1] E. Berg, E. Hagersten, StatCache: a probabilistic approach to efficient and accurate data locality
       analysis, ISPASS 2004: the chance that a line survives replacement at random.
    """
    return 1 - exponential(-((distance_bytes / cache_bytes) ** 2))
