"""Time of copies: a latency and a rate, in packets, in chunks, through several hops, in both directions.

A route is described by what it is to a copy: the sum of its latencies and the bandwidth of its slowest link. Flows
that share a link get less of it; who gets how much is another module's matter.
"""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.numeric import Quantity, ceil, exceeds, maximum, minimum, where


def copy_time(
    *, size_bytes: Quantity, bandwidth_bytes_per_s: Quantity, latency_s: Quantity = 0.0, copy_count: Quantity = 1
) -> Quantity:
    r"""Time of copies that follow one another: the alpha-beta model.

    .. math:: t = k \alpha + \frac{n}{B}

    Parameters
    ----------
    size_bytes : float, ndarray or sympy.Expr
        Bytes of all copies together, n. [B]
    bandwidth_bytes_per_s : float, ndarray or sympy.Expr
        What a large copy reaches, B. [B/s]
    latency_s : float, ndarray or sympy.Expr
        Time of an empty copy from end to end, alpha. [s]
    copy_count : float, ndarray or sympy.Expr
        Copies that the bytes are split into, k: tensors, or chunks of one. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Time until the last byte is there. [s]

    Notes
    -----
    Valid for: copies that start when the one before has ended. Ignores: the short stretch between small and large
    copies, in which drivers change from writing through a register window to DMA.

    Examples
    --------
    >>> float(copy_time(size_bytes=8e9, bandwidth_bytes_per_s=31.5e9))  # a GTX 1080's memory over PCIe 4.0
    0.253968

    References
    ----------
    .. [1] R. W. Hockney, The communication challenge for MPP: Intel Paragon and Meiko CS-2, Parallel Computing
       20(3), 1994, doi:10.1016/S0167-8191(06)80021-9: latency and asymptotic bandwidth.
    """
    return copy_count * latency_s + size_bytes / bandwidth_bytes_per_s


def packet_efficiency(*, payload_bytes: Quantity, max_payload_bytes: Quantity, overhead_bytes: Quantity) -> Quantity:
    r"""Share of the bytes on the wire that are payload.

    .. math:: e = \frac{n}{n + h \lceil n / m \rceil}

    Parameters
    ----------
    payload_bytes : float, ndarray or sympy.Expr
        Bytes that are sent, n > 0. [B]
    max_payload_bytes : float, ndarray or sympy.Expr
        Largest payload of one packet, m. [B]
    overhead_bytes : float, ndarray or sympy.Expr
        Header, framing and checksum of one packet, h. [B]

    Returns
    -------
    float, ndarray or sympy.Expr
        Share, for large payloads m / (m + h). [1]

    Notes
    -----
    Valid for: payloads that start on a packet's border. Ignores: read requests, flow control and acknowledgements,
    which travel mostly in the other direction; what they cost is in a link's typical efficiency.

    Examples
    --------
    >>> [float(packet_efficiency(payload_bytes=n, max_payload_bytes=256, overhead_bytes=24)) for n in (4, 256, 1e9)]
    [0.142857, 0.914286, 0.914286]

    References
    ----------
    .. [1] R. Neugebauer et al., Understanding PCIe performance for end host networking, SIGCOMM 2018,
       doi:10.1145/3230543.3230560: the same sawtooth, measured.
    """
    packet_count = ceil(payload_bytes / max_payload_bytes)
    return payload_bytes / (payload_bytes + packet_count * overhead_bytes)


def two_way_time(
    *, out_s: Quantity, back_s: Quantity, is_full_duplex: Quantity = True, engine_count: Quantity = 2
) -> Quantity:
    r"""Time of a copy out and a copy back: at once, or in turn.

    .. math:: t = \max(t_o, t_b) \quad \text{(full duplex and two engines)}, \qquad t = t_o + t_b \quad \text{else}

    Parameters
    ----------
    out_s, back_s : float, ndarray or sympy.Expr
        Time of each direction by itself, t_o and t_b. [s]
    is_full_duplex : bool or ndarray
        Whether the link carries both directions at once. [-]
    engine_count : int, ndarray or sympy.Expr
        Copy engines of the device; one serves one direction at a time. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Time until both are done. [s]

    Notes
    -----
    Valid for: copies that nobody else holds up. Ignores: acknowledgements and read requests, which take a few
    percent of the other direction.

    Examples
    --------
    >>> [float(two_way_time(out_s=0.3, back_s=0.2, engine_count=engines)) for engines in (1, 2)]
    [0.5, 0.3]
    """
    at_once = where(is_full_duplex, exceeds(engine_count, 1), False)
    return where(at_once, maximum(out_s, back_s), out_s + back_s)


def simultaneous_copies_time(
    *,
    size_bytes: Quantity,
    copy_count: Quantity,
    bandwidth_bytes_per_s: Quantity,
    latency_s: Quantity = 0.0,
    engine_count: Quantity = 1,
) -> Quantity:
    r"""Time of equal copies in one direction of a link, some of them at once.

    .. math:: t = \alpha \left\lceil \frac{k}{c} \right\rceil + \frac{k n}{B}

    Parameters
    ----------
    size_bytes : float, ndarray or sympy.Expr
        Bytes of one copy, n. [B]
    copy_count : float, ndarray or sympy.Expr
        Copies, k. [1]
    bandwidth_bytes_per_s : float, ndarray or sympy.Expr
        Bandwidth of the link, which those under way share, B. [B/s]
    latency_s : float, ndarray or sympy.Expr
        Time of an empty copy, alpha. [s]
    engine_count : float, ndarray or sympy.Expr
        Engines that copy in this direction, c: one per device that takes part, or more. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Time until the last copy is done. [s]

    Notes
    -----
    Valid for: a link that one copy fills. More engines hide latency, they do not widen a link. That the copies
    share it fairly or take turns moves the middle of them, not the last.

    Examples
    --------
    >>> float(simultaneous_copies_time(size_bytes=8e9, copy_count=4, bandwidth_bytes_per_s=31.5e9))
    1.015873
    """
    return copy_time(
        size_bytes=copy_count * size_bytes,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        latency_s=latency_s,
        copy_count=ceil(copy_count / engine_count),
    )


def staged_copy_time(
    *,
    size_bytes: Quantity,
    bandwidths_bytes_per_s: Sequence[Quantity],
    latencies_s: Sequence[Quantity],
    chunk_bytes: Quantity | None = None,
) -> Quantity:
    r"""Time of a copy that is put down at stations on its way, as through host memory without peer-to-peer access.

    .. math:: t = \sum_i h_i + \left(\frac{n}{c'} - 1\right) \max_i h_i, \qquad h_i = \alpha_i + \frac{c'}{B_i}, \quad
        c' = \min(c, n)

    Parameters
    ----------
    size_bytes : float, ndarray or sympy.Expr
        Bytes to copy, n > 0. [B]
    bandwidths_bytes_per_s : sequence of float, ndarray or sympy.Expr
        Bandwidth of each hop, B_i. [B/s]
    latencies_s : sequence of float, ndarray or sympy.Expr
        Latency of each hop, alpha_i. [s]
    chunk_bytes : float, ndarray, sympy.Expr or None
        A chunk, c, which leaves a station while the next one arrives; None for the whole copy in one, hop
        after hop in turn. [B]

    Returns
    -------
    float, ndarray or sympy.Expr
        Time until the last byte has arrived. [s]

    Notes
    -----
    Valid for: hops over different links, of which each carries one chunk at a time. A copy from peer to peer is one
    hop: ``copy_time``. A pageable copy is staged too: a copy in host memory into a pinned buffer, then the link.
    A last chunk that is not full counts by its share, so that a byte more never makes a copy faster.

    Examples
    --------
    >>> in_turn = {"size_bytes": 1.2e9, "bandwidths_bytes_per_s": (12e9, 12e9), "latencies_s": (1e-5, 1e-5)}
    >>> float(staged_copy_time(**in_turn)), float(staged_copy_time(**in_turn, chunk_bytes=4e6))
    (0.20002, 0.103343)
    """
    chunk = size_bytes if chunk_bytes is None else minimum(chunk_bytes, size_bytes)
    hops = [latency + chunk / bandwidth for latency, bandwidth in zip(latencies_s, bandwidths_bytes_per_s, strict=True)]
    slowest = hops[0]
    for hop in hops[1:]:
        slowest = maximum(slowest, hop)
    return sum(hops[1:], hops[0]) + (size_bytes / chunk - 1) * slowest
