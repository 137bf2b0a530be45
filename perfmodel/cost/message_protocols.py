"""Time of collectives that are not plain rounds of messages: pipelines of chunks, protocols of libraries."""

from __future__ import annotations

from typing import Final

from perfmodel.errors import ArgumentError
from perfmodel.numeric import ceil, maximum, minimum
from perfmodel.symbolic import Quantity

MOST_TAKEN: Final = 0.5
"""Least share of a device's units left to kernels: beyond it, blocks of kernels and messages take turns. [1]"""


def pipelined_time(
    *, fill_s: Quantity, stream_s: Quantity, fill_rounds: Quantity, chunk_count: Quantity | None = None
) -> Quantity:
    r"""Time of a message that is cut into chunks which follow one another through a pipeline.

    .. math:: T(k) = \left(1 + \frac{2 k}{F}\right) A + \left(1 + \frac{F}{2 k}\right) B, \qquad
        \min_k T = \left(\sqrt{A} + \sqrt{B}\right)^2

    Parameters
    ----------
    fill_s : float, ndarray or sympy.Expr
        Sum of the latencies of the rounds that fill it, A. [s]
    stream_s : float, ndarray or sympy.Expr
        Time of all bytes over the slowest link, B. [s]
    fill_rounds : int, ndarray or sympy.Expr
        Rounds that fill both directions, F. [1]
    chunk_count : int, ndarray, sympy.Expr or None
        Chunks, k, for each direction; None for the best number, which need not be whole. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Duration. [s]

    Raises
    ------
    ArgumentError
        If ``chunk_count`` is below 1.

    Notes
    -----
    Valid for: any number of chunks, equal rounds. Ignores: that chunks cannot be smaller than a packet.

    Examples
    --------
    >>> float(pipelined_time(fill_s=1.0, stream_s=4.0, fill_rounds=4))  # 4 chunks
    9.0
    >>> float(pipelined_time(fill_s=1.0, stream_s=4.0, fill_rounds=4, chunk_count=4))
    9.0

    References
    ----------
    .. [1] P. Sanders, J. Speck, J. L. Träff, Two-tree algorithms for full bandwidth broadcast, reduction and scan,
       Parallel Computing 35(12), 2009, doi:10.1016/j.parco.2009.09.001.
    """
    if chunk_count is None:
        return fill_s + stream_s + 2 * (fill_s * stream_s) ** 0.5
    if isinstance(chunk_count, int | float) and chunk_count < 1:
        raise ArgumentError("chunk_count", chunk_count, "at least 1")
    crowding = fill_rounds / (2 * chunk_count)
    return (1 + 1 / crowding) * fill_s + (1 + crowding) * stream_s


def protocol_time(
    *,
    fill_s: Quantity,
    stream_s: Quantity,
    launch_s: Quantity,
    hop_factor: Quantity,
    bandwidth_efficiency: Quantity,
    network_s: Quantity = 0.0,
    chunk_s: Quantity = 0.0,
    fill_rounds: int = 0,
) -> Quantity:
    r"""Time of a library's call that runs an algorithm with one of its protocols.

    .. math:: T = t_0 + h A + N + \frac{B}{e} + 2 \sqrt{c \frac{B}{e}}

    or, if the message passes through a pipeline in chunks of the best size,

    .. math:: T = t_0 + \left(\sqrt{h A + N} + \sqrt{B / e}\right)^2

    Parameters
    ----------
    fill_s : float, ndarray or sympy.Expr
        Sum of the latencies of all rounds over the bare links, A. [s]
    stream_s : float, ndarray or sympy.Expr
        Time of all bytes over the bare links, B. [s]
    launch_s : float, ndarray or sympy.Expr
        Time of a call whatever its message, t_0. [s]
    hop_factor : float, ndarray or sympy.Expr
        Latency of a round with this protocol over that of the links, h. [1]
    bandwidth_efficiency : float, ndarray or sympy.Expr
        Share of the links' bandwidth left for the message, e, after flags and copies through buffers. [1]
    network_s : float, ndarray or sympy.Expr
        What all rounds between machines cost beyond the latency of their links, N. [s]
    chunk_s : float, ndarray or sympy.Expr
        What handing over one chunk costs, c, with chunks of the best size. [s]
    fill_rounds : int
        Rounds that fill a pipeline; 0 for an algorithm without one. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Duration. [s]

    Notes
    -----
    Valid for: one call at a time. Ignores: how many channels a library opens for a size, and its buffers' size.

    Examples
    --------
    Fourteen rounds of 1 us and 1 ms of bytes, by a protocol that carries a flag with every word:

    >>> float(protocol_time(fill_s=14e-6, stream_s=1e-3, launch_s=5e-6, hop_factor=1.0, bandwidth_efficiency=0.5))
    0.002019

    References
    ----------
    .. [1] Z. Hu et al., Demystifying NCCL: an in-depth analysis of GPU communication protocols and algorithms,
       arXiv:2507.04786, 2025: protocols Simple, LL and LL128.
    """
    slow_s, long_s = hop_factor * fill_s + network_s, stream_s / bandwidth_efficiency
    if fill_rounds:
        return launch_s + pipelined_time(fill_s=slow_s, stream_s=long_s, fill_rounds=fill_rounds)
    return launch_s + slow_s + long_s + 2 * (chunk_s * long_s) ** 0.5


def units_taken_share(
    *, bytes_per_s: Quantity, block_bytes_per_s: Quantity, fewest: Quantity, most: Quantity, unit_count: Quantity
) -> Quantity:
    r"""Return the share of a device that a library's messages occupy while they are in flight.

    .. math:: \mu = \min\left(\frac{\min(\max(\lceil B / b \rceil, n_0), n_1)}{u}, \frac{1}{2}\right)

    Parameters
    ----------
    bytes_per_s : float, ndarray or sympy.Expr
        Bandwidth of the device's link, B. [B/s]
    block_bytes_per_s : float, ndarray or sympy.Expr
        Rate at which one thread block moves data, b. [B/s]
    fewest, most : int, ndarray or sympy.Expr
        Least and greatest number of blocks that the library launches, n0 and n1. [1]
    unit_count : int, ndarray or sympy.Expr
        Multiprocessors of the device, u. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Share of the device. [1]

    Notes
    -----
    Valid for: blocks so large that each has a multiprocessor to itself. Ignores: the memory bandwidth that messages
    take; that fewer blocks send small messages.

    Examples
    --------
    >>> blocks = {"block_bytes_per_s": 10.7e9, "fewest": 2, "most": 24}
    >>> round(float(units_taken_share(bytes_per_s=255e9, unit_count=108, **blocks)), 3)
    0.222
    """
    blocks = minimum(maximum(ceil(bytes_per_s / block_bytes_per_s), fewest), most)
    return minimum(blocks / unit_count, MOST_TAKEN)
