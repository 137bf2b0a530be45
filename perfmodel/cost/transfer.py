"""Time of copies: a latency and a rate, and max-min fair shares of channels among flows.

For a copy, a route is the sum of its latencies and the bandwidth of its slowest link. Flows that share a link get less
of it.

A refresh replaces the memory contents of several devices over one host link while they compute: each computes on what
its memory holds, then needs all of it replaced. The readings differ in what a device may do during its own copy, and in
whether that copy is counted at all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.errors import ArgumentError
from perfmodel.numeric import maximum, minimum
from perfmodel.symbolic import Quantity, expression_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def copy_time(*, size_bytes: Quantity, bandwidth_bytes_per_s: Quantity, latency_s: Quantity = 0.0) -> Quantity:
    r"""Time of a copy: the alpha-beta model.

    .. math:: t = \alpha + \frac{n}{B}

    Parameters
    ----------
    size_bytes : float, ndarray or sympy.Expr
        Bytes, n. [B]
    bandwidth_bytes_per_s : float, ndarray or sympy.Expr
        Rate of a large copy, B. [B/s]
    latency_s : float, ndarray or sympy.Expr
        Time of an empty copy from end to end, alpha. [s]

    Returns
    -------
    float, ndarray or sympy.Expr
        Time until the last byte arrives. [s]

    Notes
    -----
    Valid for: one copy at a time. Ignores: the narrow range of sizes in which drivers change from writing through a
    register window to DMA.

    Examples
    --------
    >>> float(copy_time(size_bytes=8e9, bandwidth_bytes_per_s=31.5e9))  # a GTX 1080's memory over PCIe 4.0
    0.253968

    References
    ----------
    .. [1] R. W. Hockney, The communication challenge for MPP: Intel Paragon and Meiko CS-2, Parallel Computing
       20(3), 1994, doi:10.1016/S0167-8191(06)80021-9: latency and asymptotic bandwidth.
    """
    return latency_s + size_bytes / bandwidth_bytes_per_s


def exposed_copy_time(*, before_s: Quantity, meanwhile_s: Quantity, computing_s: Quantity) -> Quantity:
    r"""Time that a step waits for copies to the device.

    .. math:: t = t_b + \max(t_m - C, 0)

    Parameters
    ----------
    before_s : float, ndarray or sympy.Expr
        Copies that are made before the step begins, t_b. [s]
    meanwhile_s : float, ndarray or sympy.Expr
        Copies for the next step, made while this one computes, t_m. [s]
    computing_s : float, ndarray or sympy.Expr
        Time of the device for a mini-batch, C. [s]

    Returns
    -------
    float, ndarray or sympy.Expr
        Time that computing does not hide. [s]

    Notes
    -----
    Valid for: equal steps, one copy at a time. Ignores: copies that slow the computing down.

    Examples
    --------
    >>> float(exposed_copy_time(before_s=0.001, meanwhile_s=0.005, computing_s=0.004))
    0.002
    """
    return before_s + maximum(meanwhile_s - computing_s, 0.0)


def staging(
    *,
    size_bytes: Quantity,
    chunk_bytes: Quantity,
    bandwidths_bytes_per_s: Sequence[Quantity],
    latencies_s: Sequence[Quantity],
) -> tuple[Quantity, Quantity]:
    r"""Latency and rate of a copy that is stored at stations on its way, chunk by chunk, as in host memory.

    .. math:: \alpha = \sum_i h_i - \max_i h_i, \quad R = \frac{c'}{\max_i h_i}, \qquad h_i = \alpha_i + \frac{c'}{B_i},
        \quad c' = \min(c, n)

    so that the copy takes :math:`\alpha + n / R`: the first chunk passes all legs, the others follow at the pace of the
    slowest.

    Parameters
    ----------
    size_bytes : float, ndarray or sympy.Expr
        Bytes to copy, n > 0. [B]
    chunk_bytes : float, ndarray or sympy.Expr
        A chunk, c, which leaves a station while the next one arrives; infinity moves everything at once, leg after
        leg. [B]
    bandwidths_bytes_per_s : sequence of float, ndarray or sympy.Expr
        Bandwidth of each leg, B_i. [B/s]
    latencies_s : sequence of float, ndarray or sympy.Expr
        Latency of each leg, paid by each chunk, alpha_i. [s]

    Returns
    -------
    tuple of float, ndarray or sympy.Expr
        Latency alpha [s], and rate R [B/s], to be put into ``copy_time``.

    Notes
    -----
    Valid for: legs over different links, each of which carries one chunk at a time. One leg in one chunk is
    ``copy_time`` itself. A partial last chunk counts by its share, so that another byte never makes a copy faster.

    Examples
    --------
    1.2 GB between two devices that cannot reach each other, through host memory: at once, and in chunks of 4 MB.

    >>> legs = {"bandwidths_bytes_per_s": (12e9, 12e9), "latencies_s": (1e-5, 1e-5)}
    >>> for chunk_bytes in (float("inf"), 4e6):
    ...     latency_s, rate = staging(size_bytes=1.2e9, chunk_bytes=chunk_bytes, **legs)
    ...     print(f"{copy_time(size_bytes=1.2e9, bandwidth_bytes_per_s=rate, latency_s=latency_s):.6f}")
    0.200020
    0.103343
    """
    chunk = minimum(chunk_bytes, size_bytes)
    legs = [latency + chunk / bandwidth for latency, bandwidth in zip(latencies_s, bandwidths_bytes_per_s, strict=True)]
    slowest = reduce(maximum, legs)
    return sum(legs[1:], legs[0]) - slowest, chunk / slowest


def survey_period(*, transfer_s: Quantity, compute_s: Quantity, device_count: Quantity) -> Quantity:
    r"""Time between two refreshes as one survey counts it: a device waits for the others' copies; its own is free.

    .. math:: P = \max(C, (n - 1) t)

    Parameters
    ----------
    transfer_s : float, ndarray or sympy.Expr
        Time to refresh one device, t. [s]
    compute_s : float, ndarray or sympy.Expr
        Time a device computes on one filling, C. [s]
    device_count : float, ndarray or sympy.Expr
        Devices on the link, n. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Period. [s]

    Notes
    -----
    Valid for: no real system; it counts one copy fewer than ``double_buffer_period``. Kept because it was published.

    Examples
    --------
    >>> period_s = survey_period(transfer_s=8 / 31.5, compute_s=0.5, device_count=4)
    >>> float(period_s - 0.5), float(0.5 / period_s)
    (0.261905, 0.65625)

    References
    ----------
    .. [1] J. Wünsche, Performance factors of deep learning and shallow neural network applications: a beginner's
       guide, section on transfers between host and GPUs.
    """
    return maximum(compute_s, (device_count - 1) * transfer_s)


def single_buffer_period(*, transfer_s: Quantity, compute_s: Quantity, device_count: Quantity) -> Quantity:
    r"""Time between two refreshes if a device cannot compute during its own: its memory is the only buffer.

    .. math:: P = t + \max(C, (n - 1) t)

    Parameters
    ----------
    transfer_s : float, ndarray or sympy.Expr
        Time to refresh one device, t. [s]
    compute_s : float, ndarray or sympy.Expr
        Time a device computes on one filling, C. [s]
    device_count : float, ndarray or sympy.Expr
        Devices on the link, n. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Period. [s]

    Notes
    -----
    Valid for: devices in a steady round, one after the other. A device's own copy and computation take at least t + C;
    the link is busy for n t.

    Examples
    --------
    >>> float(0.5 / single_buffer_period(transfer_s=8 / 31.5, compute_s=0.5, device_count=4))
    0.492188
    """
    return transfer_s + maximum(compute_s, (device_count - 1) * transfer_s)


def double_buffer_period(*, transfer_s: Quantity, compute_s: Quantity, device_count: Quantity) -> Quantity:
    r"""Time between two refreshes when a device computes on one buffer while the other is filled.

    .. math:: P = \max(C, n t)

    Parameters
    ----------
    transfer_s : float, ndarray or sympy.Expr
        Time to refresh one device, t. [s]
    compute_s : float, ndarray or sympy.Expr
        Time a device computes on one filling, C. [s]
    device_count : float, ndarray or sympy.Expr
        Devices on the link, n. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Period. [s]

    Notes
    -----
    Valid for: two buffers of half the memory each, both filled once in a period: the bytes are the same.

    Examples
    --------
    >>> [float(0.5 / double_buffer_period(transfer_s=8 / 31.5, compute_s=0.5, device_count=n)) for n in (2, 4)]
    [0.984375, 0.492188]
    """
    return maximum(compute_s, device_count * transfer_s)


PERIOD_BY_READING: Final[Mapping[str, Callable[..., Quantity]]] = {
    "survey": survey_period,
    "single_buffer": single_buffer_period,
    "double_buffer": double_buffer_period,
}
"""Name of a reading -> its period."""


TIE: Final = 1e-12
"""Levels this close count as equal: channels that fill up together do so in one round. [1]"""


def max_min_rates(*, capacity: ArrayLike, uses: ArrayLike, weights: ArrayLike | None = None) -> NDArray[np.float64]:
    r"""Rates of flows that share channels max-min fairly, by progressive filling.

    The rates of all flows rise together until a channel is full; the flows over it keep their rates, the others
    continue to rise. In the end

    .. math:: \sum_f u_{fc} r_f \le B_c

    for every channel c, and every flow has a full channel on which no other flow has a larger :math:`r_f / w_f`, which
    only one set of rates fulfils.

    Parameters
    ----------
    capacity : array_like, shape (channels,)
        Capacity of each channel, B; positive. [B/s]
    uses : array_like, shape (flows, channels)
        Bytes on a channel for every byte of a flow, u: 0 where a flow does not pass, 1 where it does, 2 where it
        passes twice. A row may also stand for n equal flows, with n times their uses; its rate is then that of one
        of them. [1]
    weights : array_like, shape (flows,), or None
        Relative shares of a full channel that flows get, w; positive; None for equal shares. [1]

    Returns
    -------
    ndarray, shape (flows,)
        Rate of each flow, r. [B/s]

    Raises
    ------
    ArgumentError
        If shapes do not fit, a capacity or a weight is not positive, a use is negative, or a flow uses no channel.

    Notes
    -----
    Valid for: flows long against a round trip, arbiters that serve their inputs in turn. Ignores: losses of a full
    switch, unequal packet sizes. Each round fills at least one channel, and is a few products of arrays.

    Examples
    --------
    Two flows over a root of 10 B/s, one of which has a link of 2 B/s of its own:

    >>> max_min_rates(capacity=[10.0, 2.0], uses=[[1, 0], [1, 1]])
    array([8., 2.])

    References
    ----------
    .. [1] D. Bertsekas and R. Gallager, Data Networks, 2nd edition, 1992, section 6.5.2.
    """
    capacity, uses = np.asarray(capacity, dtype=float), np.asarray(uses, dtype=float)
    weight = np.ones(uses.shape[:1]) if weights is None else np.asarray(weights, dtype=float)
    _check(capacity, uses, weight)
    flow, channel = np.nonzero(uses)
    return rates_of_passes(capacity=capacity, flow=flow, channel=channel, uses=uses[flow, channel], weights=weight)


def rates_of_passes(
    *,
    capacity: NDArray[np.float64],
    flow: NDArray[np.int64],
    channel: NDArray[np.int64],
    uses: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Rates of flows that share channels max-min fairly, from the channels that each passes.

    Parameters
    ----------
    capacity : ndarray, shape (channels,)
        Capacity of each channel; positive. [B/s]
    flow, channel : ndarray, shape (passes,)
        Number of the flow and of the channel of each pass; every flow has at least one. [1]
    uses : ndarray, shape (passes,)
        Bytes on that channel for every byte of the flow; positive. Several passes of a pair add up. [1]
    weights : ndarray, shape (flows,)
        Relative shares of a full channel that flows get; positive. [1]

    Returns
    -------
    ndarray, shape (flows,)
        Rate of each flow. [B/s]

    Notes
    -----
    Valid for: what ``max_min_rates`` is valid for, which checks its arguments. Ignores: nothing. Each round of filling
    looks at the passes of flows that still rise, so that a hundred thousand flows take a fraction of a second.

    Examples
    --------
    Two flows over a root of 10 B/s, one of which has a link of 2 B/s of its own:

    >>> passes = {"flow": np.array([0, 1, 1]), "channel": np.array([0, 0, 1])}
    >>> rates_of_passes(capacity=np.array([10.0, 2.0]), **passes, uses=np.ones(3), weights=np.ones(2))
    array([8., 2.])
    """
    rates = np.zeros(len(weights))
    level, used = 0.0, np.zeros(len(capacity))
    while len(flow):
        load = np.bincount(channel, weights=weights[flow] * uses, minlength=len(capacity))
        levels = np.full(len(capacity), np.inf)
        np.divide(np.maximum(capacity - used, 0.0), load, out=levels, where=load > 0)
        level = max(level, float(levels.min()))  # rounding alone could lower it
        full = levels <= level * (1 + TIE)
        stopped = np.zeros(len(weights), dtype=bool)
        stopped[flow[full[channel]]] = True
        rates[stopped] = level * weights[stopped]
        ends = stopped[flow]
        if ends.all():
            break
        used += np.bincount(channel[ends], weights=rates[flow[ends]] * uses[ends], minlength=len(capacity))
        flow, channel, uses = flow[~ends], channel[~ends], uses[~ends]
    return rates


def disjoint_sets(ways: Sequence[Iterable[Hashable]]) -> list[list[int]]:
    """Split flows into sets that share no channel: the flows of one set do not slow those of another.

    Parameters
    ----------
    ways : sequence of iterable of hashable
        Names of the channels that each flow passes. [-]

    Returns
    -------
    list of list of int
        Numbers of the flows in each set, in order; sets by their first flow. [1]

    Examples
    --------
    >>> disjoint_sets([("a", "b"), ("c",), ("b",)])
    [[0, 2], [1]]
    """
    above = list(range(len(ways)))  # an earlier flow of the same set, or itself

    def first(flow: int) -> int:
        while above[flow] != flow:
            above[flow] = above[above[flow]]
            flow = above[flow]
        return flow

    first_on: dict[Hashable, int] = {}
    for flow, way in enumerate(ways):
        for name in way:
            one, other = sorted((first(flow), first(first_on.setdefault(name, flow))))
            above[other] = one
    sets: dict[int, list[int]] = {}
    for flow in range(len(ways)):
        sets.setdefault(first(flow), []).append(flow)
    return list(sets.values())


def _check(capacity: NDArray[np.float64], uses: NDArray[np.float64], weight: NDArray[np.float64]) -> None:
    """Raise ArgumentError unless fair rates exist."""
    if capacity.ndim != 1 or uses.ndim != 2 or uses.shape[1] != len(capacity):
        allowed = f"one row a flow, one column for each of {capacity.size} channels"
        raise ArgumentError(argument="uses", given=f"shape {uses.shape}", allowed=allowed)
    if weight.shape != uses.shape[:1]:
        raise ArgumentError(argument="weights", given=f"shape {weight.shape}", allowed=f"one for each of {len(uses)}")
    for name, values in (("capacity", capacity), ("weights", weight)):
        wrong = values[~((values > 0) & (values < np.inf))]
        if wrong.size:
            raise ArgumentError(argument=name, given=float(wrong[0]), allowed="finite and above 0")
    wrong = uses[~((uses >= 0) & (uses < np.inf))]
    if wrong.size:
        raise ArgumentError(argument="uses", given=float(wrong[0]), allowed="finite and not below 0")
    without = np.flatnonzero(~(uses > 0).any(axis=1))
    if without.size:
        raise ArgumentError(argument="uses", given=f"flow {without[0]} without a channel", allowed="at least one each")


def longest_byte_time(*, capacity: Sequence[Quantity], flow_counts: Sequence[float]) -> Quantity:
    r"""Time per byte of a flow that has an equal share of every channel it passes.

    .. math:: \beta = \max_c \frac{k_c}{B_c}

    Parameters
    ----------
    capacity : sequence of float or sympy.Expr
        Capacity of each of its channels, B. [B/s]
    flow_counts : sequence of float
        Flows over each, k; one that passes it twice counts twice. [1]

    Returns
    -------
    float or sympy.Expr
        Inverse of the rate. [s/B]

    Notes
    -----
    Exact under max-min fairness for the slowest of all flows, whose channel fills up first. Ignores: capacity left by
    flows that are limited elsewhere.

    Examples
    --------
    >>> import sympy
    >>> rate = sympy.Symbol("B", positive=True)
    >>> longest_byte_time(capacity=[rate, 2 * rate, 10.0], flow_counts=[1, 4, 2])
    Max(0.2, 2/B)
    """
    crowds: dict[Any, Any] = {}
    for bandwidth, count in zip(capacity, flow_counts, strict=True):
        coefficient, rest = expression_of(1 / bandwidth).as_coeff_Mul()
        crowds[rest] = max(crowds.get(rest, 0), count * coefficient)
    return reduce(maximum, [coefficient * rest for rest, coefficient in crowds.items() if coefficient])
