"""What an asynchronous scheme comes to, per step of a worker; where speeds are unequal, each kind's own pace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perfmodel.cost.queueing import mean_staleness, staleness_of_rates, unequal_workers
from perfmodel.errors import ArgumentError

if TYPE_CHECKING:
    from perfmodel.symbolic import Quantity
    from perfmodel.sync.asynchronous_scheme import AsynchronousNumbers


@dataclass(frozen=True, slots=True, kw_only=True)
class AsynchronousTimes:
    """What a scheme comes to, per step of a worker.

    Parameters
    ----------
    compute_s : float, ndarray or sympy.Expr
        Its own computation. [s]
    straggler_s : float, ndarray or sympy.Expr
        Waiting for slower workers: of its group, or those too far behind. [s]
    group_sync_s : float, ndarray or sympy.Expr
        Adding up gradients in its group. [s]
    wait_s : float, ndarray or sympy.Expr
        The way to the server and back, its service, and the queue before it. [s]
    updates_per_s : float, ndarray or sympy.Expr
        Updates that the server applies. [1/s]
    batches_per_update : float, ndarray or sympy.Expr
        Mini-batches of one worker that make up an update. [1]
    mean_staleness : float, ndarray or sympy.Expr
        Updates of others that a gradient has missed, on average, when it is applied. [1]
    knee : float, ndarray or sympy.Expr
        Workers, or groups where there are any, from which on the server bounds. [1]
    server_utilisation : float, ndarray or sympy.Expr
        Share of time that the busiest part of the server, or of the way to it, works. [1]
    most_updates_per_s : float, ndarray or sympy.Expr
        Updates that there would be if nobody queued, or the server were never idle, whichever is less. [1/s]
    kinds : tuple of KindTimes
        What visitors of each speed come to, the fastest first; empty where all are alike or keep pace. [-]
    """

    compute_s: Quantity
    straggler_s: Quantity
    group_sync_s: Quantity
    wait_s: Quantity
    updates_per_s: Quantity
    batches_per_update: Quantity
    mean_staleness: Quantity
    knee: Quantity
    server_utilisation: Quantity
    most_updates_per_s: Quantity
    kinds: tuple[KindTimes, ...] = ()

    @property
    def step_s(self) -> Quantity:
        """Time from one step of a worker to its next; of unequal ones workers over the steps of all per second. [s]"""
        return self.compute_s + self.straggler_s + self.group_sync_s + self.wait_s


@dataclass(frozen=True, slots=True, kw_only=True)
class KindTimes:
    """What a kind of visitors comes to among others.

    Parameters
    ----------
    visitor_count : int
        Visitors of this kind. [1]
    relative_time : float
        How long one computes, over what was predicted. [1]
    step_s : float, ndarray or sympy.Expr
        Time from one step of such a visitor to its next. [s]
    mean_staleness : float, ndarray or sympy.Expr
        Updates of others that its gradient has missed when it is applied. [1]
    """

    visitor_count: int
    relative_time: float
    step_s: Quantity
    mean_staleness: Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class UnequalPace:
    """What visitors of several speeds come to together.

    Parameters
    ----------
    kinds : tuple of KindTimes
        One for each speed, the fastest first. [-]
    step_s : float, ndarray or sympy.Expr
        Visitors over the steps that all of them make per second. [s]
    computing_s : float, ndarray or sympy.Expr
        What a step computes, on average over steps, of which fast visitors make more. [s]
    lone_step_s : float, ndarray or sympy.Expr
        ``step_s`` if nobody had to queue. [s]
    """

    kinds: tuple[KindTimes, ...]
    step_s: Quantity
    computing_s: Quantity
    lone_step_s: Quantity


def unequal_pace(numbers: AsynchronousNumbers) -> UnequalPace:
    """Return what visitors of several speeds come to, who wait for nobody but the server.

    Parameters
    ----------
    numbers : AsynchronousNumbers
        Those in effect, with lasting times. [-]

    Returns
    -------
    UnequalPace
        Kind by kind, and together.

    Raises
    ------
    ArgumentError
        If services vary otherwise than exponential ones.

    Notes
    -----
    Valid for: exponential service. Slow workers' gradients are the staler ones: others update more often meanwhile.
    Over all updates staleness is that of equal workers, W - 1 with a visit every step, however unequal they are.

    Examples
    --------
    >>> from perfmodel.cost.order_statistics import Unequal
    >>> from perfmodel.sync.asynchronous_scheme import AsynchronousNumbers
    >>> times = Unequal([2.0, 2.0, 1.0, 1.0])
    >>> numbers = AsynchronousNumbers(compute_s=5e-3, update_s=0.5e-3, worker_count=4, times=times)
    >>> for kind in reversed(unequal_pace(numbers).kinds):
    ...     print(f"{1e3 * kind.step_s:.2f} ms, {kind.mean_staleness:.2f}")
    10.63 ms, 4.79
    5.60 ms, 2.05
    """
    if numbers.service_variation != 1:
        allowed = "1 with workers of unequal speed: their queue is known for exponential service only"
        raise ArgumentError("service_variation", numbers.service_variation, allowed)
    counts, relative = zip(*numbers.kinds, strict=True)
    away_s = numbers.group_sync_s + numbers.on_the_way_s
    think_s = [numbers.compute_s * each + away_s for each in relative]
    rates = unequal_workers(
        worker_counts=counts, think_s=think_s, station_s=numbers.station_s, server_count=numbers.server_count
    )
    of_all = sum(count * rate for count, rate in zip(counts, rates, strict=True))
    service_s = sum(numbers.station_s)
    alone = sum(count / (seconds + service_s) for count, seconds in zip(counts, think_s, strict=True))
    periods = mean_staleness(worker_count=2, push_period=numbers.push_period, pull_period=numbers.pull_period)
    each = [rate for count, rate in zip(counts, rates, strict=True) for _ in range(count)]
    stale = staleness_of_rates(rates_per_s=each)
    firsts = np.cumsum((0, *counts[:-1]))
    computed = sum(n * rate * factor for n, rate, factor in zip(counts, rates, relative, strict=True))
    return UnequalPace(
        kinds=tuple(
            KindTimes(visitor_count=count, relative_time=factor, step_s=1 / rate, mean_staleness=stale[first] * periods)
            for count, factor, rate, first in zip(counts, relative, rates, firsts, strict=True)
        ),
        step_s=numbers.visitors / of_all,
        computing_s=numbers.compute_s * computed / of_all,
        lone_step_s=numbers.visitors / alone,
    )
