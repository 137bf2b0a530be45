"""What a storage delivers: one drive, drives in a stripe, a disk of a cloud, an object store; the page cache.

All kinds come down to four numbers: how long a lone read takes to begin, what one stream delivers, how many bytes and
how many reads a second the whole can give. What they are for a kind, ``hardware/storage.py`` knows.
"""

from __future__ import annotations

import math

from perfmodel.numeric import minimum
from perfmodel.symbolic import Quantity


def read_rate(
    *,
    read_bytes: Quantity,
    outstanding_reads: Quantity,
    latency_s: Quantity,
    stream_bytes_per_s: Quantity,
    most_bytes_per_s: Quantity,
    most_reads_per_s: Quantity,
    most_outstanding_reads: Quantity = math.inf,
) -> Quantity:
    r"""Rate at which reads of one size are served, a number of them under way at any time.

    .. math:: R = \min\left(\frac{\min(q, k) s}{\alpha + s / r},\; I s,\; C\right)

    Parameters
    ----------
    read_bytes : float, ndarray or sympy.Expr
        Bytes of one read, s: a block, a file, an object. [B]
    outstanding_reads : float, ndarray or sympy.Expr
        Reads that are asked for at once, q: the depth of a drive's queue, those of a loader. [1]
    latency_s : float, ndarray or sympy.Expr
        Time from asking to the first byte, alpha. [s]
    stream_bytes_per_s : float, ndarray or sympy.Expr
        What one stream delivers once it flows, r. [B/s]
    most_bytes_per_s : float, ndarray or sympy.Expr
        What the whole delivers at most, C; infinity where nothing is stated. [B/s]
    most_reads_per_s : float, ndarray or sympy.Expr
        Reads that the whole serves at most, I. [1/s]
    most_outstanding_reads : float, ndarray or sympy.Expr
        Reads that can be under way, k: connections to an object store; infinity where only the reader decides. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Rate. [B/s]

    Notes
    -----
    Valid for: reads anywhere on the device; the first term is Little's law. Ignores: the sharp knee being a bend,
    and writes at the same time.

    Examples
    --------
    A drive with 70 us, 3.5 GB/s and 440 thousand reads a second: blocks of 4 KiB one at a time, and many.

    >>> drive = {"latency_s": 70e-6, "stream_bytes_per_s": 3.5e9, "most_bytes_per_s": 3.5e9, "most_reads_per_s": 440e3}
    >>> [float(read_rate(read_bytes=4096, outstanding_reads=q, **drive) / 4096) for q in (1, 256)]
    [14050.8, 440000.0]

    References
    ----------
    .. [1] J. D. C. Little, A proof for the queuing formula L = lambda W, Operations Research 9(3), 1961,
       doi:10.1287/opre.9.3.383.
    """
    in_flight = (
        minimum(outstanding_reads, most_outstanding_reads) * read_bytes / (latency_s + read_bytes / stream_bytes_per_s)
    )
    return minimum(minimum(in_flight, most_reads_per_s * read_bytes), most_bytes_per_s)
