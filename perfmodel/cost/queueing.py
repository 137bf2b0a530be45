"""Workers that think and then queue at a server: asynchronous training as a closed queueing network.

A worker computes for a while (it thinks), then visits the stations of a server: the side of its network adapter that
takes gradients, its processor, the side that sends parameters. The number of workers is fixed, so the rate at which
they arrive falls as the queue grows, and nothing diverges at saturation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import ArgumentError
from perfmodel.numeric import maximum, minimum, where
from perfmodel.symbolic import Quantity, is_symbolic, named

MANY_WORKERS: Final = 32
"""Fewest workers of several kinds at one station whose rates are integrals; the recursion takes less for fewer. [1]"""
_DECAY: Final = 40.0
"""Natural logarithm of how far an integrand has fallen at the limits of an integral. [1]"""
_GAUSS_POINTS: Final = 128
"""Points of an integral. [1]"""
_MOST_STEPS: Final = 60
"""Most steps to a mode. [1]"""
_NEAR_MODE: Final = 1e-3
"""Distance from a mode at which its search ends, in relation to it. [1]"""
_LEAST_SERVICE: Final = 1e-18
"""Least service time, in relation to the longest think time: a shorter one makes no difference. [1]"""
_MOST_AT_ONCE: Final = 1_000_000
"""Most numbers that are computed at once. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedNetwork:
    """The steady state of a closed network of workers and a server.

    Parameters
    ----------
    throughput_per_s : float, ndarray or sympy.Expr
        Cycles of all workers per second, X. [1/s]
    response_s : float, ndarray or sympy.Expr
        Time of a cycle at the server, queues included, R. [s]
    utilisation : float, ndarray or sympy.Expr
        Share of time that the busiest station works. [1]
    """

    throughput_per_s: Quantity
    response_s: Quantity
    utilisation: Quantity


def closed_network(
    *,
    worker_count: Quantity,
    think_s: Quantity,
    station_s: Sequence[Quantity],
    server_count: int = 1,
    service_variation: Quantity = 1.0,
) -> ClosedNetwork:
    r"""Mean value analysis of equal workers at the stations of a server, which may be split into equal shards.

    .. math:: R_w = \sum_i S_i \left(1 + Q_{i,w-1} - \tfrac{1 - c^2}{2} U_{i,w-1}\right), \qquad
        X_w = \frac{w}{Z + R_w}, \qquad Q_{i,w} = X_w R_{i,w}, \qquad U_{i,w} = X_w S_i

    Each of k shards is a station of demand S_i / k of its own.

    Parameters
    ----------
    worker_count : int or ndarray
        Workers, W: whole numbers >= 1. Not a symbol, because a recursion runs over it. [1]
    think_s : float, ndarray or sympy.Expr
        Time between two visits, Z. [s]
    station_s : sequence of float, ndarray or sympy.Expr
        Service time at each station per cycle, S_i. [s]
    server_count : int
        Shards k that the parameters are spread over evenly. [1]
    service_variation : float, ndarray or sympy.Expr
        Coefficient of variation c of the service times; 1 if exponential, 0 if all equal. [1]

    Returns
    -------
    ClosedNetwork
        Throughput, response, utilisation.

    Raises
    ------
    ArgumentError
        If a count is not a whole number from 1.

    Notes
    -----
    Exact for exponential service and any distribution of think times. With another variation, the worker in service
    has (1 + c^2) / 2 of a service left when another arrives, not a whole one. An arrival is assumed to see the queues
    of a network without it, which is then an approximation: within 1 % of X for one station of equal services; with
    several in a row a queue forms only at the slowest, and X is up to 2 % higher than this at 60 % utilisation. Workers
    whose times do not vary at all fall into step and never queue below the knee, which neither form captures. A station
    that serves all visitors at once, each more slowly, behaves like an exponential one, whatever its service times
    [3]_. A worker visits shards in turn, because its own adapter sends to one after the other.

    Valid for: stations that serve first come, first served. Ignores: pipelining between stations within one visit.

    Examples
    --------
    >>> network = closed_network(worker_count=11, think_s=8.2e-3, station_s=(0.5e-3,))
    >>> round(float(network.throughput_per_s), 3), round(float(network.response_s) * 1e3, 5)
    (1194.916, 1.00567)

    References
    ----------
    .. [1] M. Reiser, S. S. Lavenberg, Mean-value analysis of closed multichain queuing networks, JACM 27(2), 1980.
    .. [2] M. Reiser, A queueing network analysis of computer communication networks with window flow control, IEEE
       Trans. Communications 27(8), 1979: stations whose service is not exponential.
    .. [3] F. Baskett et al., Open, closed, and mixed networks of queues with different classes of customers, JACM
       22(2), 1975.
    """
    counts = _whole("worker_count", worker_count)
    shards = int(_whole("server_count", server_count))
    demands = [seconds / shards for seconds in station_s]
    waiting: list[Quantity] = [0.0] * len(demands)
    busy: list[Quantity] = [0.0] * len(demands)
    rate: Quantity = 0.0
    response: Quantity = 0.0
    is_exponential = not is_symbolic(service_variation) and np.all(np.asarray(service_variation) == 1)
    for workers in range(1, int(np.max(counts)) + 1):
        spent = [
            demand * (1 + queue - busy_share * (1 - service_variation**2) / 2)
            for demand, queue, busy_share in zip(demands, waiting, busy, strict=True)
        ]
        whole = sum(spent[1:], spent[0]) * shards
        reached = workers / (think_s + whole)
        if not is_exponential:
            # only the correction for service that is not exponential can exceed the busiest station's capacity
            reached = minimum(reached, 1 / _largest(demands))
            whole = workers / reached - think_s
        reached = named(reached, f"steps per second of {workers}")  # every later term contains it
        waiting = [named(reached * seconds, f"queue of {workers}") for seconds in spent]
        busy = [reached * demand for demand in demands]
        if np.ndim(counts) == 0:
            rate, response = reached, whole
        else:
            taken = counts >= workers  # the last value taken is the one for the count itself
            rate, response = where(taken, reached, rate), where(taken, whole, response)
    return ClosedNetwork(throughput_per_s=rate, response_s=response, utilisation=rate * _largest(demands))


def _largest(values: Sequence[Quantity]) -> Quantity:
    largest: Quantity = 0.0
    for value in values:
        largest = maximum(largest, value)
    return largest


def _whole(argument: str, count: Quantity) -> Quantity:
    """Return a count as numpy integers, or raise ArgumentError."""
    if is_symbolic(count):
        raise ArgumentError(argument, count, "whole numbers >= 1, not a symbol: a recursion runs over it")
    counts = np.asarray(count)
    if counts.dtype.kind not in "iuf" or not np.all((counts >= 1) & (counts % 1 == 0)):
        raise ArgumentError(argument, count, "whole numbers >= 1")
    return counts.astype(int)


def throughput_bound(
    *, worker_count: Quantity, think_s: Quantity, station_s: Sequence[Quantity], server_count: Quantity = 1
) -> Quantity:
    r"""Upper bound on cycles per second: workers never queue, or a station is never idle.

    .. math:: X \le \min\left(\frac{W}{Z + \sum_i S_i}, \frac{k}{\max_i S_i}\right)

    Parameters
    ----------
    worker_count : float, ndarray or sympy.Expr
        Workers, W. [1]
    think_s : float, ndarray or sympy.Expr
        Time between two visits, Z. [s]
    station_s : sequence of float, ndarray or sympy.Expr
        Service demanded of each station per cycle, S_i; one of them above zero. [s]
    server_count : float, ndarray or sympy.Expr
        Shards, k. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Cycles of all workers per second. [1/s]

    Notes
    -----
    Valid for: any distribution of the times. The two bounds meet at ``knee``.

    Examples
    --------
    >>> [float(throughput_bound(worker_count=w, think_s=8.2e-3, station_s=(0.5e-3,))) for w in (4, 11, 24)]
    [459.770, 1264.368, 2000.0]
    """
    alone = worker_count / (think_s + sum(station_s[1:], station_s[0]))
    return minimum(alone, server_count / _largest(station_s))


def knee(*, think_s: Quantity, station_s: Sequence[Quantity], server_count: Quantity = 1) -> Quantity:
    r"""Return the number of workers beyond which the server limits throughput.

    .. math:: W^* = k \frac{Z + \sum_i S_i}{\max_i S_i}

    Parameters
    ----------
    think_s : float, ndarray or sympy.Expr
        Time between two visits, Z. [s]
    station_s : sequence of float, ndarray or sympy.Expr
        Service demanded of each station per cycle, S_i; one of them above zero. [s]
    server_count : float, ndarray or sympy.Expr
        Shards, k. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Workers; need not be whole. [1]

    Notes
    -----
    Valid for: any distribution. Ignores: queues, which begin to cost time well before the knee.

    Examples
    --------
    >>> round(float(knee(think_s=8.2e-3, station_s=(0.5e-3,))), 6)
    17.4
    """
    return server_count * (think_s + sum(station_s[1:], station_s[0])) / _largest(station_s)


def unequal_workers(
    *,
    worker_counts: Sequence[int],
    think_s: Sequence[Quantity],
    station_s: Sequence[Quantity],
    server_count: int = 1,
) -> tuple[Quantity, ...]:
    r"""Cycles per second of one worker of each kind, if kinds differ in how long they think.

    .. math:: X_c = \frac{1}{G} \int_0^\infty \frac{e^{-t}}{Z_c + S t} \prod_d (Z_d + S t)\, dt, \qquad
        G = \int_0^\infty e^{-t} \prod_d (Z_d + S t)\, dt

    over all workers d, for 32 or more workers at one station [3]_. For fewer, at several stations and for symbols:

    .. math:: \frac{1}{X_c} = Z_c + \sum_n (n + 1)\, \frac{h_{n+1}}{h_n}\, p_n, \qquad
        p'_n \propto Z_d\, p_n + n \frac{h_n}{h_{n-1}}\, p_{n-1}

    where :math:`p_n` is the chance that n others are at the server, updated as workers d are added one by one, and
    :math:`h_n` the sum of all products of n of the stations' demands.

    Parameters
    ----------
    worker_counts : sequence of int
        Workers of each kind. Not symbols, because a recursion runs over them. [1]
    think_s : sequence of float, ndarray or sympy.Expr
        Time between two visits of each kind, Z_c; all of one shape. [s]
    station_s : sequence of float, ndarray or sympy.Expr
        Service time at each station per cycle, the same for all kinds; at least one above zero. [s]
    server_count : int
        Shards that the parameters are spread over evenly. [1]

    Returns
    -------
    tuple of float, ndarray or sympy.Expr
        Rate of one worker of each kind. [1/s]

    Raises
    ------
    ArgumentError
        If a count is not a whole number from 1, or lengths differ.

    Notes
    -----
    Exact for exponential service that does not depend on the kind, and any distribution of think times: the same
    numbers as mean value analysis over all smaller populations. The integral takes a number of steps that grows with
    the kinds, 0.2 s for 16,384, and its rates are those of the recursion within 1e-12. The recursion grows with kinds
    times workers squared, since such a server's state is only the number of its visitors. Stations in a row act as one
    that serves n visitors at the rate of the whole row with n of them [2]_.

    Examples
    --------
    Two slow workers and two fast ones:

    >>> rates = unequal_workers(worker_counts=(2, 2), think_s=(10e-3, 5e-3), station_s=(0.5e-3,))
    >>> [round(rate, 1) for rate in rates]
    [94.1, 178.5]

    References
    ----------
    .. [1] F. Baskett et al., Open, closed, and mixed networks of queues with different classes of customers, JACM
       22(2), 1975.
    .. [2] K. M. Chandy, U. Herzog, L. Woo, Parametric analysis of queuing networks, IBM J. Res. Dev. 19(1), 1975.
    .. [3] J. McKenna, D. Mitra, Integral representations and asymptotic expansions for closed Markovian queueing
       networks: normal usage, Bell System Technical Journal 61(5), 1982.
    """
    counts = tuple(_whole("worker_counts", np.array(worker_counts)).tolist())
    if len(counts) != len(think_s) or not counts:
        raise ArgumentError("think_s", tuple(think_s), f"one time for each of the {len(counts)} kinds of workers")
    of_kinds = np.array(think_s)
    number = object if of_kinds.dtype == object or is_symbolic(*station_s) else float
    shape = np.broadcast_shapes(of_kinds.shape[1:], *map(np.shape, station_s))
    kinds_last = np.broadcast_to(np.moveaxis(of_kinds.astype(number), 0, -1), (*shape, len(counts)))
    thought_s = np.moveaxis(kinds_last, -1, 0)
    shards = int(_whole("server_count", server_count))
    demands = [np.asarray(seconds, dtype=number) / shards for seconds in station_s for _ in range(shards)]
    if number is float and len(demands) == 1 and sum(counts) >= MANY_WORKERS:
        flat = np.column_stack([kinds_last.reshape(-1, len(counts)), np.broadcast_to(demands[0], shape).ravel()])
        once, place = _distinct_rows(flat)
        rates = _rates_at_one_station(np.array(counts), flat[once, :-1].T, flat[once, -1])
        rates = rates[:, place].reshape(thought_s.shape)
    else:
        rates = 1 / (thought_s + _responses_s(counts, thought_s, demands))
    return tuple(rate if shape else rate.item() if number is float else rate for rate in rates)


def _distinct_rows(rows: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the places of the rows that differ, and for each row which of them it is."""
    as_bytes = np.ascontiguousarray(rows).view(f"V{rows.itemsize * rows.shape[1]}")
    _, once, place = np.unique(as_bytes, return_index=True, return_inverse=True)
    return once, place.ravel()


def _rates_at_one_station(counts: NDArray[Any], think_s: NDArray[Any], service_s: NDArray[Any]) -> NDArray[Any]:
    """Rate of one worker of each kind at a single station, by the integral. [1/s]

    Times are those of one or several networks. The integrand is 1 at its mode and below exp(-``_DECAY``) outside the
    limits, since its logarithm is concave.
    """
    at_once = _MOST_AT_ONCE // _GAUSS_POINTS
    if len(service_s) > at_once:
        slabs = [slice(at, at + at_once) for at in range(0, len(service_s), at_once)]
        return np.hstack([_rates_at_one_station(counts, think_s[:, slab], service_s[slab]) for slab in slabs])
    each = counts[:, np.newaxis]
    service_s = np.maximum(service_s, think_s.max(axis=0) * _LEAST_SERVICE)
    think = think_s / service_s
    mode = np.maximum((each - think).max(axis=0), counts.sum() - counts @ think / counts.sum()).clip(0.0)
    for _ in range(_MOST_STEPS):  # Newton's method, from below to the zero of a convex function
        slopes = 1 / (think + mode)
        step = (counts @ slopes - 1) / (counts @ slopes**2)
        if np.all(step <= _NEAR_MODE * (1 + mode)):
            break
        mode = mode + step.clip(0.0)
    slopes = 1 / (think + mode)
    width = _DECAY / (counts @ slopes**2)
    beyond = width * slopes.max(axis=0) + np.sqrt((width * slopes.max(axis=0)) ** 2 + 2 * width)
    first = (mode - np.sqrt(2 * width)).clip(0.0)
    last = mode + _DECAY / np.maximum(1 - counts @ slopes, _DECAY / beyond)
    points, weights = _gauss_points()
    points = first + (last - first) * points
    away = points - mode
    size = max(1, _MOST_AT_ONCE // points.size)
    blocks = [slice(at, at + size) for at in range(0, len(counts), size)]
    logarithm = -away + sum(
        (each[block] * np.log1p(away[:, np.newaxis] * slopes[block])).sum(axis=1) for block in blocks
    )
    chances = weights * np.exp(logarithm)
    chances = (chances / chances.sum(axis=0))[:, np.newaxis]
    rates = [(chances / (think[block] + points[:, np.newaxis])).sum(axis=0) for block in blocks]
    of_kinds: NDArray[Any] = np.concatenate(rates) / service_s
    return of_kinds


@lru_cache(maxsize=1)
def _gauss_points() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return points and weights of an integral from 0 to 1, as columns."""
    points, weights = np.polynomial.legendre.leggauss(_GAUSS_POINTS)
    return (1 + points[:, np.newaxis]) / 2, weights[:, np.newaxis] / 2


def _responses_s(counts: tuple[int, ...], thought_s: NDArray[Any], demands: Sequence[Quantity]) -> NDArray[Any]:
    """Time of each kind at stations in a row, queues included, by the recursion. [s]"""
    shape, number = thought_s.shape[1:], thought_s.dtype
    served_s = np.array([np.broadcast_to(seconds, shape) for seconds in _crowd_times(demands, sum(counts))])
    chances = np.zeros(
        (len(counts), sum(counts), *shape), dtype=number
    )  # each kind sees all others, but one fewer of its own
    chances[:, 0] = 1
    for added, count in enumerate(counts):
        for place in range(count):
            grown = chances * thought_s[added]
            grown[:, 1:] = grown[:, 1:] + chances[:, :-1] * served_s[:-1]
            grown = named(grown / named(grown.sum(axis=1, keepdims=True), "sum of chances"), "chance of a crowd")
            if place == 0:
                grown[added] = chances[added]
            chances = grown
    responses_s: NDArray[Any] = (chances * served_s).sum(axis=1)
    return responses_s


def _crowd_times(demands: Sequence[Quantity], most: int) -> list[Quantity]:
    """Return n times the mean time between departures while n are at stations in a row, for n from 1. [s]"""
    unit = _largest(demands)
    if len(demands) == 1 or not (is_symbolic(unit) or np.any(unit)):
        return [n * unit for n in range(1, most + 1)]
    products: list[Quantity] = [1.0] + [0.0] * most
    for demand in demands:
        for n in range(1, most + 1):
            products[n] = products[n] + demand / unit * products[n - 1]  # of this and earlier stations
    return [n * unit * products[n] / products[n - 1] for n in range(1, most + 1)]


def mean_staleness(*, worker_count: Quantity, push_period: Quantity = 1, pull_period: Quantity = 1) -> Quantity:
    r"""Return the mean number of other workers' updates that a gradient has missed when it is applied.

    .. math:: \tau = (W - 1) \frac{p + q}{2 p}

    Parameters
    ----------
    worker_count : float, ndarray or sympy.Expr
        Equal workers, W. [1]
    push_period : float, ndarray or sympy.Expr
        Steps between two pushes, p: gradients in between are pushed as one update. [1]
    pull_period : float, ndarray or sympy.Expr
        Steps between two pulls, q. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Updates; W - 1 if every step pulls and pushes. [1]

    Notes
    -----
    A mean over the steps whose gradients make up an update: on average (q - 1) / 2 steps since the pull and
    (p + 1) / 2 until the push, during which the others push (W - 1) / p times a step. A worker's own updates are
    already in its copy.
    Valid for: stationary, equal workers; however long they queue.

    Examples
    --------
    >>> [mean_staleness(worker_count=11, push_period=p, pull_period=q) for p, q in ((1, 1), (1, 5), (5, 5))]
    [10.0, 30.0, 10.0]

    References
    ----------
    .. [1] J. Dean et al., Large scale distributed deep networks, NIPS 2012: n_push and n_fetch of Downpour SGD.
    """
    return (worker_count - 1) * (push_period + pull_period) / (2 * push_period)


def staleness_of_rates(*, worker_counts: Sequence[int], rates_per_s: Sequence[Quantity]) -> tuple[Quantity, ...]:
    r"""Return the others' updates that each of unequal workers misses, :math:`\tau_i = \sum_{j \ne i} r_j / r_i`.

    Parameters
    ----------
    worker_counts : sequence of int
        Workers of each kind. [1]
    rates_per_s : sequence of float, ndarray or sympy.Expr
        Updates per second of a worker of each kind, r_i. [1/s]

    Returns
    -------
    tuple of float, ndarray or sympy.Expr
        Mean staleness of a worker of each kind. [1]

    Notes
    -----
    Valid for: stationary workers that pull and push at every step.

    Examples
    --------
    >>> staleness_of_rates(worker_counts=(1, 2), rates_per_s=(1.0, 2.0))
    (4.0, 1.5)
    """
    whole = sum(count * rate for count, rate in zip(worker_counts, rates_per_s, strict=True))
    return tuple((whole - rate) / rate for rate in rates_per_s)
