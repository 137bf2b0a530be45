"""The path of a mini-batch into the devices: read, decode, copy in host memory, transfer, compute.

All workers of a machine share its storage, its cores, its memory and the root of its links, so each stage has a time
per step of the whole job: a step feeds every worker once. Prefetching overlaps the stages.

Four numbers describe any storage: the latency of a single read, the rate of one stream, and the bytes and reads per
second that the whole can serve. ``hardware/storage.py`` has their values by kind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from perfmodel.numeric import ceil, exceeds, geometric_sum, maximum, minimum, where
from perfmodel.symbolic import Quantity, is_symbolic

STAGES: Final = ("read", "decode", "host_copy", "transfer", "compute")
"""Stages of a mini-batch's path, in order."""

LEAST_VARIANCE: Final = 1e-32
"""Squared coefficient of variation below which a period differs from the steady one by less than rounding. [1]"""

ROUNDING: Final = 1e-12
"""Share by which a ratio may be above a whole number and still count as that number. [1]"""


def stage_periods(
    *,
    batch_size: Quantity,
    worker_count: Quantity,
    compute_s: Quantity,
    encoded_bytes: Quantity,
    storage_bytes_per_s: Quantity,
    host_bytes: Quantity,
    host_bytes_per_s: Quantity,
    device_bytes: Quantity,
    root_bytes_per_s: Quantity,
    link_bytes_per_s: Quantity | None = None,
    link_latency_s: Quantity = 0.0,
    decode_rate_per_core: Quantity | None = None,
    decode_core_count: Quantity = 1,
) -> dict[str, Quantity]:
    r"""Time of each stage per step, in which all workers get a mini-batch.

    .. math:: t_\mathrm{read} = \frac{w b s_e}{B_d}, \quad t_\mathrm{decode} = \frac{w b}{k r}, \quad
        t_\mathrm{host} = \frac{w b s_h}{B_m}, \quad
        t_\mathrm{transfer} = \alpha + b s_x \max\left(\frac{w}{B_r}, \frac{1}{B_l}\right)

    Parameters
    ----------
    batch_size : float, ndarray or sympy.Expr
        Examples per worker and step, b. [samples]
    worker_count : float, ndarray or sympy.Expr
        Workers, w. [1]
    compute_s : float, ndarray or sympy.Expr
        Time of a device for one mini-batch. [s]
    encoded_bytes : float, ndarray or sympy.Expr
        One example as it is stored, s_e. [B]
    storage_bytes_per_s : float, ndarray or sympy.Expr
        Rate of the storage, B_d; infinity if the page cache holds the data set. [B/s]
    host_bytes : float, ndarray or sympy.Expr
        Traffic of one example in host memory, s_h: two or three times its decoded size. [B]
    host_bytes_per_s : float, ndarray or sympy.Expr
        Bandwidth of the host memory, B_m. [B/s]
    device_bytes : float, ndarray or sympy.Expr
        One example as it goes to a device, s_x. [B]
    root_bytes_per_s : float, ndarray or sympy.Expr
        Bandwidth that the workers' copies share, B_r: of a root complex or a switch's uplink. [B/s]
    link_bytes_per_s : float, ndarray, sympy.Expr or None
        Bandwidth of one device's own link, B_l; None if it is that of the root. [B/s]
    link_latency_s : float, ndarray or sympy.Expr
        Latency of the copy of a mini-batch, alpha. [s]
    decode_rate_per_core : float, ndarray, sympy.Expr or None
        Examples that a core decodes in a second, r; None if they need no decoding. [1/s]
    decode_core_count : float, ndarray or sympy.Expr
        Cores that decode, k. [1]

    Returns
    -------
    dict of str to float, ndarray or sympy.Expr
        Stage, in the order of ``STAGES``, to its time per step. [s]

    Notes
    -----
    Valid for: stages that are throughput-bound, one pipeline per machine. Ignores: that decoding and copying use the
    same memory; cores that the framework itself needs.

    Examples
    --------
    ImageNet's JPEGs of 110 kB from a drive of 3.5 GB/s, 16 cores, nine devices of 188 images/s on PCIe 3.0.

    >>> stages = stage_periods(batch_size=32, worker_count=9, compute_s=32 / 188, encoded_bytes=110e3,
    ...     storage_bytes_per_s=3.5e9, host_bytes=3 * 150_528, host_bytes_per_s=40e9, device_bytes=602_112,
    ...     root_bytes_per_s=12e9, decode_rate_per_core=100, decode_core_count=16)
    >>> {stage: round(9 * 32 / float(seconds)) for stage, seconds in stages.items()}  # images/s
    {'read': 31818, 'decode': 1600, 'host_copy': 88577, 'transfer': 19930, 'compute': 1692}

    References
    ----------
    .. [1] D. G. Murray, J. Simsa, A. Klimovic, I. Indyk, tf.data: a machine learning data processing framework,
       PVLDB 14(12), 2021, arXiv:2101.12127.
    """
    example_count = worker_count * batch_size
    shared_s = example_count * device_bytes / root_bytes_per_s
    own_s = shared_s if link_bytes_per_s is None else batch_size * device_bytes / link_bytes_per_s
    decode_s = 0.0 if decode_rate_per_core is None else example_count / (decode_core_count * decode_rate_per_core)
    return {
        "read": example_count * encoded_bytes / storage_bytes_per_s,
        "decode": decode_s,
        "host_copy": example_count * host_bytes / host_bytes_per_s,
        "transfer": link_latency_s + maximum(shared_s, own_s),
        "compute": compute_s,
    }


def pipelined_period(*, stage_s: Mapping[str, Quantity], depth: Quantity) -> Quantity:
    r"""Time of a step whose input passes through stages, with or without mini-batches fetched ahead.

    .. math:: P = \sum_i t_i \quad (d = 0), \qquad P = \max_i t_i \quad (d \ge 1)

    Parameters
    ----------
    stage_s : mapping of str to float, ndarray or sympy.Expr
        Time of each stage that takes a resource of its own. [s]
    depth : int, ndarray or sympy.Expr
        Mini-batches fetched ahead, d. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Period. [s]

    Notes
    -----
    Valid for: a steady state of stages that always take the same time, for which one mini-batch ahead at each stage
    is as good as many. ``jittered_period`` gives the benefit of more if times vary.

    Examples
    --------
    >>> [float(pipelined_period(stage_s={"decode": 0.3, "compute": 0.2}, depth=depth)) for depth in (0, 1)]
    [0.5, 0.3]

    References
    ----------
    .. [1] J. Mohan et al., Analyzing and mitigating data stalls in DNN training, PVLDB 14(5), 2021.
    """
    in_turn: Quantity = 0.0
    slowest: Quantity = 0.0
    for seconds in stage_s.values():
        in_turn, slowest = in_turn + seconds, maximum(slowest, seconds)
    return where(exceeds(depth, 0), slowest, in_turn)


def jittered_period(
    *,
    feed_s: Quantity,
    compute_s: Quantity,
    depth: Quantity,
    feed_variation: Quantity,
    compute_variation: Quantity = 0.0,
) -> Quantity:
    r"""Mean time of a step when the times of feeding and computing vary from step to step.

    .. math:: P = s\,\frac{1 - q^K}{1 - q^{K - 1}}, \qquad
        K = 1 + \sqrt{1 + \frac{3}{c^2}} + \frac{d - 1}{c^2} \quad (d \ge 1), \qquad c^2 = \frac{c_t^2 + c_C^2}{2}

    with s the longer and q <= 1 the ratio of the two mean times; s K / (K - 1) if they are equal. P = t + C for
    d = 0.

    Parameters
    ----------
    feed_s : float, ndarray or sympy.Expr
        Mean time t of the slowest stage before the device. [s]
    compute_s : float, ndarray or sympy.Expr
        Mean time on the device, C; one of the two is above zero. [s]
    depth : int, ndarray or sympy.Expr
        Mini-batches that feeding may be ahead of the one in use, d. [1]
    feed_variation : float, ndarray or sympy.Expr
        Coefficient of variation of the time of feeding, c_t. [1]
    compute_variation : float, ndarray or sympy.Expr
        Coefficient of variation of the time on the device, c_C. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Mean period: t + C with nothing ahead, close to the longer of the two with many mini-batches ahead. [s]

    Notes
    -----
    Two stations in a closed cycle of d + 1 mini-batches. Exact with d = 0 for any variation, without variation
    (``pipelined_period``), and if both times are exponential (K = d + 2, Jackson's product form). Between, the tail of
    the queue is taken as geometric, with the exponent 1 / c^2 per place of heavy traffic; the root covers d = 1,
    where both stations begin together and the period is the mean of the longer time. Simulated with gamma distributed
    feeding and a steady device, 200,000 steps each, t / C from 0.25 to 2 and d from 1 to 14, P is off by -1.2 to
    +2.6 % for variations up to 1 (largest with d = 1; within 1.1 % from d = 2 on, and within 0.5 % for a variation of
    0.25), by -1.1 to +4.2 % up to 2.

    Valid for: one stage that is clearly the slowest, times that do not depend on one another, variations up to 2.
    Ignores: a second stage nearly as slow (steps are a tenth longer than this if it takes 90 % of the slowest and the
    variation is 0.5, a quarter longer if both are equal and the variation is 1); runs of slow mini-batches, as from a
    store that is busy with others, which need more ahead than this.

    Examples
    --------
    >>> [float(jittered_period(feed_s=1, compute_s=1, depth=depth, feed_variation=0.5)) for depth in (0, 1, 4, 16)]
    [2.0, 1.2, 1.034483, 1.008]

    References
    ----------
    .. [1] J. A. Buzacott, J. G. Shanthikumar, Stochastic models of manufacturing systems, Prentice Hall 1993,
       chapter 5: flow lines with buffers.
    .. [2] L. Kleinrock, Queueing systems, volume 2, Wiley 1976, chapter 2: heavy traffic, the diffusion approximation.
    """
    slowest = maximum(feed_s, compute_s)
    variance = (feed_variation * feed_variation + compute_variation * compute_variation) / 2
    divisor = maximum(variance, LEAST_VARIANCE)
    places = 1 + (1 + 3 / divisor) ** 0.5 + (maximum(depth, 1) - 1) / divisor
    ratio = minimum(feed_s, compute_s) / slowest
    varying = slowest * geometric_sum(ratio, places) / geometric_sum(ratio, places - 1)
    steady = pipelined_period(stage_s={"feed": feed_s, "compute": compute_s}, depth=depth)
    return where(exceeds(depth * variance, 0), varying, steady)


def lead_of_slowest(
    *, stage_s: Mapping[str, Quantity], depth: Quantity, copied_ahead: Quantity, copied_between: Quantity
) -> Quantity:
    r"""Mini-batches that the slowest stage may be ahead of the one in use on the device.

    .. math:: l = (d + 1) h + 2 a + f - 1

    Parameters
    ----------
    stage_s : mapping of str to float or ndarray
        Time of each stage before the copy to the device, in order; zero: there is no such stage. [s]
    depth : int or ndarray
        Mini-batches that each stage may be ahead of the one in use at the next, d. [1]
    copied_ahead : bool or ndarray
        Whether the next mini-batch is copied to a second buffer while the device computes, a. [-]
    copied_between : bool or ndarray
        Whether something is copied between two steps, f: the mini-batch in use has then left its buffer. [-]

    Returns
    -------
    int or ndarray
        Lead; ``depth`` if the slowest stage feeds the device directly. [1]

    Notes
    -----
    Valid for: d >= 1; d + 1 buffers between each two stages in host memory, as in ``perfmodel.simulation``, and two on
    the device; h counts the stages in host memory from the slowest on. Ignores: that buffers behind copies that bound
    the step are of no use.

    Examples
    --------
    Decoding feeds the copies in host memory, these feed the copies to the device, and those the device.

    >>> stages = {"read": 0.1, "decode": 0.3, "host_copy": 0.01}
    >>> int(lead_of_slowest(stage_s=stages, depth=1, copied_ahead=True, copied_between=False))
    5
    """
    slowest: Quantity = 0.0
    hand_overs: Quantity = 0
    behind: Quantity = 0
    for seconds in reversed(list(stage_s.values())):
        behind = behind + where(exceeds(seconds, 0), 1, 0)
        hand_overs = where(exceeds(slowest, seconds), hand_overs, behind)
        slowest = maximum(slowest, seconds)
    return (depth + 1) * hand_overs + where(copied_ahead, 2, 0) + where(copied_between, 1, 0) - 1


def bounding_stage(*, stage_s: Mapping[str, Quantity]) -> Any:
    """Return the stage that takes longest.

    Parameters
    ----------
    stage_s : mapping of str to float or ndarray
        Time of each stage. [s]

    Returns
    -------
    str or ndarray
        Its name; the first of several that take equally long, element by element of arrays. [-]

    Notes
    -----
    Valid for: numbers. Which of several symbols is largest is unknown: ``pipelined_period`` keeps all of them.

    Examples
    --------
    >>> bounding_stage(stage_s={"read": 0.1, "decode": 0.3, "compute": 0.2})
    'decode'
    """
    names = np.array(list(stage_s))
    times = np.array(np.broadcast_arrays(*stage_s.values()), dtype=float)
    slowest = names[times.argmax(axis=0)]
    return str(slowest) if times.ndim == 1 else slowest


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCores:
    """Cores that decode mini-batches beside the steps that they compute.

    ``computing`` is the part of them that a step keeps busy [1], ``decoding_s`` the time that all of them take for a
    mini-batch [s], ``prefetch`` the mini-batches by which they may be ahead [1].
    """

    computing: Quantity
    decoding_s: Quantity
    prefetch: int

    def busy_s(self, computing_s: Quantity) -> Quantity:
        """Time that all cores take for a step that computes this long, and for a mini-batch. [s]"""
        return self.computing * computing_s + self.decoding_s


def units_to_unbind(*, stage_s: Quantity, compute_s: Quantity, unit_count: Quantity) -> Quantity:
    r"""Units that a stage needs to be no slower than the devices: drives, cores, or lanes.

    .. math:: u' = \left\lceil u \frac{t}{C} \right\rceil

    Parameters
    ----------
    stage_s : float, ndarray or sympy.Expr
        Time of the stage per step, t. [s]
    compute_s : float, ndarray or sympy.Expr
        Time of a step on the devices, C. [s]
    unit_count : float, ndarray or sympy.Expr
        Units that the stage has, u. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Least number of units; fewer than there are if some are idle. [1]

    Notes
    -----
    Valid for: stages whose rate is that of one unit times their number. Round lanes up to a power of two. A root or
    chipset above the units may be the next limit.

    Examples
    --------
    Nine devices at 188 images/s from 16 cores at 100 images/s each.

    >>> float(units_to_unbind(stage_s=9 / 1600, compute_s=1 / 188, unit_count=16))
    17.0
    """
    needed = unit_count * stage_s / compute_s
    return ceil(needed) if is_symbolic(needed) else ceil(needed * (1 - ROUNDING))


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
    r"""Rate at which reads of one size are served, with a given number in flight.

    .. math:: R = \min\left(\frac{\min(q, k) s}{\alpha + s / r},\; I s,\; C\right)

    Parameters
    ----------
    read_bytes : float, ndarray or sympy.Expr
        Bytes of one read, s: a block, a file, an object. [B]
    outstanding_reads : float, ndarray or sympy.Expr
        Reads requested at once, q: the depth of a drive's queue, the requests of a loader. [1]
    latency_s : float, ndarray or sympy.Expr
        Time from request to first byte, alpha. [s]
    stream_bytes_per_s : float, ndarray or sympy.Expr
        Rate of one stream after its first byte, r. [B/s]
    most_bytes_per_s : float, ndarray or sympy.Expr
        Greatest rate of the whole, C; infinity if none is stated. [B/s]
    most_reads_per_s : float, ndarray or sympy.Expr
        Greatest number of reads per second of the whole, I. [1/s]
    most_outstanding_reads : float, ndarray or sympy.Expr
        Most reads in flight, k: connections to an object store; infinity if only the reader decides. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Rate. [B/s]

    Notes
    -----
    Valid for: reads anywhere on the device; the first term is Little's law. Ignores: that the knee is rounded; writes
    at the same time.

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
