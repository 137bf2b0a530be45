"""What a storage delivers: one drive, drives in a stripe, a disk of a cloud, an object store; the page cache.

All kinds come down to four numbers: how long a lone read takes to begin, what one stream delivers, how many bytes and
how many reads a second the whole can give. What they are for a kind, ``hardware/storage.py`` knows.
"""

from __future__ import annotations

import math

from perfmodel.numeric import Quantity, exceeds, minimum, where


def read_rate(
    *,
    read_bytes: Quantity,
    outstanding_reads: Quantity,
    latency_s: Quantity,
    stream_bytes_per_s: Quantity,
    most_bytes_per_s: Quantity,
    most_reads_per_s: Quantity,
) -> Quantity:
    r"""Rate at which reads of one size are served, a number of them under way at any time.

    .. math:: R = \min\left(\frac{q s}{\alpha + s / r},\; I s,\; C\right)

    Parameters
    ----------
    read_bytes : float, ndarray or sympy.Expr
        Bytes of one read, s: a block, a file, an object. [B]
    outstanding_reads : float, ndarray or sympy.Expr
        Reads under way, q: the depth of a drive's queue, the connections to an object store. [1]
    latency_s : float, ndarray or sympy.Expr
        Time from asking to the first byte, alpha. [s]
    stream_bytes_per_s : float, ndarray or sympy.Expr
        What one stream delivers once it flows, r. [B/s]
    most_bytes_per_s : float, ndarray or sympy.Expr
        What the whole delivers at most, C; infinity where nothing is stated. [B/s]
    most_reads_per_s : float, ndarray or sympy.Expr
        Reads that the whole serves at most, I. [1/s]

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
    in_flight = outstanding_reads * read_bytes / (latency_s + read_bytes / stream_bytes_per_s)
    return minimum(minimum(in_flight, most_reads_per_s * read_bytes), most_bytes_per_s)


def raid0_read_rate(
    *,
    drive_rate_bytes_per_s: Quantity,
    drive_count: Quantity,
    uplink_bytes_per_s: Quantity = math.inf,
    efficiency: Quantity = 1.0,
    outstanding_reads: Quantity = math.inf,
) -> Quantity:
    r"""Rate of large reads from drives that share out each file in stripes.

    .. math:: R = \min\left(e \min(N, q)\, r,\; B\right)

    Parameters
    ----------
    drive_rate_bytes_per_s : float, ndarray or sympy.Expr
        Rate of one drive, r. [B/s]
    drive_count : float, ndarray or sympy.Expr
        Drives, N. [1]
    uplink_bytes_per_s : float, ndarray or sympy.Expr
        What all of them share on the way to memory, B: the lanes of a slot, or a chipset's link. [B/s]
    efficiency : float, ndarray or sympy.Expr
        Share of the sum that striping leaves, e. [1]
    outstanding_reads : float, ndarray or sympy.Expr
        Reads under way, q; with fewer than drives some of them are idle. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Rate. [B/s]

    Notes
    -----
    Valid for: reads of whole stripes from equal drives. Ignores: the processor's time for a software stripe set.

    Examples
    --------
    Five drives on lanes of the processor, and behind a chipset's four lanes of PCIe 3.0.

    >>> drives = {"drive_rate_bytes_per_s": 3.5e9, "drive_count": 5, "efficiency": 17 / 17.5}
    >>> float(raid0_read_rate(**drives)) / 1e9, float(raid0_read_rate(**drives, uplink_bytes_per_s=3.94e9)) / 1e9
    (17.0, 3.94)
    """
    return minimum(efficiency * minimum(drive_count, outstanding_reads) * drive_rate_bytes_per_s, uplink_bytes_per_s)


def epoch_read_time(
    *, dataset_bytes: Quantity, free_memory_bytes: Quantity, rate_bytes_per_s: Quantity, is_first_epoch: bool
) -> Quantity:
    r"""Time in which storage delivers what one epoch reads, with a page cache in the memory that is free.

    .. math:: t = \frac{D}{R} \quad \text{(first epoch, or } D > M \text{)}, \qquad t = 0 \quad \text{else}

    Parameters
    ----------
    dataset_bytes : float, ndarray or sympy.Expr
        Data set as it is stored, D. [B]
    free_memory_bytes : float, ndarray or sympy.Expr
        Memory that the page cache may fill, M. [B]
    rate_bytes_per_s : float, ndarray or sympy.Expr
        Rate of the storage, R. [B/s]
    is_first_epoch : bool
        Whether nothing has been read yet. [-]

    Returns
    -------
    float, ndarray or sympy.Expr
        Time. [s]

    Notes
    -----
    Valid for: data sets that fit, or are read in the same order each time, when a cache that drops the least
    recently used page has dropped each one before it is wanted. Ignores: the hits that a freshly shuffled order has
    in a cache smaller than the data set, about M / D of the reads.

    Examples
    --------
    MNIST's 47 MB from a slow disk: once.

    >>> mnist = {"dataset_bytes": 60_000 * 784, "free_memory_bytes": 8e9, "rate_bytes_per_s": 9.6e6}
    >>> [float(epoch_read_time(**mnist, is_first_epoch=first)) for first in (True, False)]
    [4.9, 0.0]

    References
    ----------
    .. [1] J. Mohan, A. Phanishayee, A. Raniwala, V. Chidambaram, Analyzing and mitigating data stalls in DNN
       training, PVLDB 14(5), 2021, arXiv:2007.06775: fetch stalls of first and later epochs.
    """
    cold_s = dataset_bytes / rate_bytes_per_s
    return cold_s if is_first_epoch else where(exceeds(dataset_bytes, free_memory_bytes), cold_s, 0.0)
