"""The interface of asynchronous schemes, and the pace of workers of unequal speed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, ClassVar, NamedTuple

import numpy as np

from perfmodel.cost import queueing
from perfmodel.cost.order_statistics import RelativeTimes
from perfmodel.errors import ArgumentError
from perfmodel.numeric import maximum, plain
from perfmodel.symbolic import Quantity, is_symbolic


@dataclass(frozen=True, slots=True, kw_only=True)
class AsynchronousTimes:
    """Times and staleness under a scheme, per step of a worker.

    Parameters
    ----------
    compute_s : float, ndarray or sympy.Expr
        Computing time. [s]
    straggler_s : float, ndarray or sympy.Expr
        Wait for slower workers of the group, or for workers too far behind. [s]
    group_sync_s : float, ndarray or sympy.Expr
        Time to sum gradients in its group. [s]
    wait_s : float, ndarray or sympy.Expr
        Time on the links to and from the server, in its queue and in service. [s]
    updates_per_s : float, ndarray or sympy.Expr
        Updates that the server applies. [1/s]
    batches_per_update : float, ndarray or sympy.Expr
        Mini-batches of one worker that make up an update. [1]
    mean_staleness : float, ndarray or sympy.Expr
        Mean number of other workers' updates that a gradient misses before it is applied. [1]
    knee : float, ndarray or sympy.Expr
        Workers (or groups) from which the server bounds the rate. [1]
    server_utilisation : float, ndarray or sympy.Expr
        Busy share of the most loaded part of the server or of the links to it. [1]
    most_updates_per_s : float, ndarray or sympy.Expr
        Upper bound on updates: the lesser of the rates without queueing and with a server that is never idle. [1/s]
    kinds : tuple of KindTimes
        Times of visitors by speed, fastest first; empty if all are alike or keep the same pace. [-]
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
        """Time between steps of a worker; for unequal workers, the mean over all steps. [s]"""
        return self.compute_s + self.straggler_s + self.group_sync_s + self.wait_s


class KindTimes(NamedTuple):
    """Times and staleness of one kind of visitors among others.

    Parameters
    ----------
    visitor_count : int
        Visitors of this kind. [1]
    relative_time : float
        Ratio of computing time to the predicted one. [1]
    step_s : float, ndarray or sympy.Expr
        Time between steps of such a visitor. [s]
    mean_staleness : float, ndarray or sympy.Expr
        Updates of others that its gradient misses before it is applied. [1]
    """

    visitor_count: int
    relative_time: float
    step_s: Quantity
    mean_staleness: Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class AsynchronousNumbers:
    """Times and counts of workers that train with a parameter server without waiting for one another.

    Parameters
    ----------
    compute_s : float, ndarray or sympy.Expr
        Mean time of a worker's own step; for unequal workers, at a relative time of 1. [s]
    worker_count : int or ndarray
        Workers. [1]
    push_latency_s, pull_latency_s : float, ndarray or sympy.Expr
        Time on the links to and from the server that delays no other worker. [s]
    push_s, pull_s : float, ndarray or sympy.Expr
        Time of a gradient, and of parameters, on the most loaded link, such as the server's adapter. [s]
    push_sharers, pull_sharers : int or None
        Visitors that share each such link, if there are several equal links; None if all share one. [1]
    update_s : float, ndarray or sympy.Expr
        Server time to apply an update. [s]
    compensation_s : float, ndarray or sympy.Expr
        Extra server time for delay compensation. [s]
    server_count : int
        Equal shards of the server. [1]
    push_period, pull_period : int, ndarray or sympy.Expr
        Steps between two pushes, and between two pulls. [1]
    staleness_bound : int, ndarray, sympy.Expr or None
        Steps by which a worker may be ahead of the slowest; None for any number. [1]
    group_size : int
        Workers that step together and visit the server as one. [1]
    group_sync_s : float, ndarray or sympy.Expr
        Time to sum the gradients of a group. [s]
    times : RelativeTimes or None
        Distribution of a worker's own step, or a lasting time for each worker; None if all are equal. [1]
    service_variation : float
        Coefficient of variation of the server's times. [1]
    each_part_queues : bool
        Whether visitors queue for each part of the server; otherwise only for the busiest, because no queue forms
        behind the slowest of several parts in a row [1]_. [-]

    Raises
    ------
    ArgumentError
        If a time is negative, a count is not allowed, groups do not divide the workers, sharers do not divide the
        visitors, or ``each_part_queues`` is set although only some visitors share a part.

    References
    ----------
    .. [1] H. D. Friedman, Reduction methods for tandem queuing systems, Operations Research 13(1), 1965: exact for
       equal service times.
    """

    compute_s: Quantity
    worker_count: Quantity
    push_latency_s: Quantity = 0.0
    pull_latency_s: Quantity = 0.0
    push_s: Quantity = 0.0
    pull_s: Quantity = 0.0
    push_sharers: int | None = None
    pull_sharers: int | None = None
    update_s: Quantity = 0.0
    compensation_s: Quantity = 0.0
    server_count: int = 1
    push_period: Quantity = 1
    pull_period: Quantity = 1
    staleness_bound: Quantity | None = None
    group_size: int = 1
    group_sync_s: Quantity = 0.0
    times: RelativeTimes | None = None
    service_variation: float = 1.0
    each_part_queues: bool = False

    def __post_init__(self) -> None:
        for name in ("worker_count", "server_count", "push_period", "pull_period", "group_size"):
            _require(name, getattr(self, name), least=1)
        if self.staleness_bound is not None:
            _require("staleness_bound", self.staleness_bound, least=0)
        for name in ("compute_s", "push_latency_s", "pull_latency_s", "push_s", "pull_s", "update_s"):
            _require(name, getattr(self, name), least=0, whole=False)
        for name in ("compensation_s", "group_sync_s", "service_variation"):
            _require(name, getattr(self, name), least=0, whole=False)
        if not is_symbolic(self.worker_count, self.group_size) and np.any(
            np.mod(self.worker_count, self.group_size) != 0
        ):
            raise ArgumentError("group_size", self.group_size, f"a divisor of workers={self.worker_count}")
        self._check_sharers()
        if self.times is not None and self.times.lasting_count not in (None, self.worker_count):
            raise ArgumentError("times", self.times, f"one time for each of the {self.worker_count} workers")

    def _check_sharers(self) -> None:
        for name in ("push_sharers", "pull_sharers"):
            sharers = getattr(self, name)
            if sharers is None:
                continue
            _require(name, sharers, least=1)
            if np.any(np.mod(self.visitors, sharers) != 0):
                raise ArgumentError(name, sharers, f"a divisor of the {self.visitors} visitors")
            if self.each_part_queues and np.any(sharers != self.visitors):
                allowed = f"{self.visitors}, the number of visitors, if visitors queue for each part of the server"
                raise ArgumentError(name, sharers, allowed)

    @property
    def visitors(self) -> Quantity:
        """Workers or groups that visit the server. [1]"""
        return self.worker_count // self.group_size

    @property
    def kinds(self) -> tuple[tuple[Quantity, Quantity], ...]:
        """Visitors of each speed, and the ratio of their compute time to ``compute_s``, fastest first. [1]"""
        if self.times is None:
            return ((self.visitors, 1.0),)
        return self.times.kinds(worker_count=self.worker_count, group_size=self.group_size)

    @property
    def group_compute_s(self) -> Quantity:
        """Mean time until a whole group has computed; for lasting unequal speeds, that of the slowest group. [s]"""
        return self.compute_s * self.kinds[-1][1]

    @property
    def part_s(self) -> tuple[Quantity, Quantity, Quantity]:
        """Demand of a step on the server's inward adapter, its processor and its outward adapter. [s]"""
        apply_s = (self.update_s + self.compensation_s) / self.push_period
        return self.push_s / self.push_period, apply_s, self.pull_s / self.pull_period

    @property
    def part_sharers(self) -> tuple[Quantity, Quantity, Quantity]:
        """Visitors that share each of these parts. [1]"""
        inwards, outwards = (
            self.visitors if sharers is None else sharers for sharers in (self.push_sharers, self.pull_sharers)
        )
        return inwards, self.visitors, outwards

    @property
    def busiest_part(self) -> int:
        """Index in ``part_s`` of the part with the largest total demand. [1]"""
        loads = [seconds * sharers for seconds, sharers in zip(self.part_s, self.part_sharers, strict=True)]
        return int(np.argmax(loads))

    @property
    def is_shared_by_all(self) -> bool:
        """Whether all visitors queue for the same part."""
        return self.push_sharers is None and self.pull_sharers is None

    @property
    def sharers(self) -> Quantity:
        """Visitors in one of the parallel queues. [1]"""
        return self.visitors if self.is_shared_by_all else self.part_sharers[self.busiest_part]

    @property
    def station_s(self) -> tuple[Quantity, ...]:
        """Demand of a step on the parts that visitors queue for. [s]"""
        if self.each_part_queues:
            return self.part_s
        if not self.is_shared_by_all:
            return (self.part_s[self.busiest_part],)
        inwards, apply_s, outwards = self.part_s
        return (maximum(maximum(inwards, apply_s), outwards),)

    @property
    def in_one_queue(self) -> AsynchronousNumbers:
        """The same numbers with a single part in place of parallel ones, as fast as all of them together.

        The time of a lone visit and the highest rate of visits stay the same.
        """
        if self.is_shared_by_all:
            return self
        (push, _, pull) = (sharers / self.visitors for sharers in self.part_sharers)
        return replace(
            self,
            push_s=push * self.push_s,
            push_latency_s=self.push_latency_s + (1 - push) * self.push_s,
            pull_s=pull * self.pull_s,
            pull_latency_s=self.pull_latency_s + (1 - pull) * self.pull_s,
            push_sharers=None,
            pull_sharers=None,
        )

    @property
    def on_the_way_s(self) -> Quantity:
        """Time per step on links, and on server parts without a queue. [s]"""
        latency_s = self.push_latency_s / self.push_period + self.pull_latency_s / self.pull_period
        return latency_s + sum(self.part_s) - sum(self.station_s)

    @property
    def think_s(self) -> Quantity:
        """Mean time per step outside any queue. [s]"""
        return self.group_compute_s + self.group_sync_s + self.on_the_way_s


def _require(name: str, value: Quantity, *, least: int, whole: bool = True) -> None:
    if is_symbolic(value):
        return
    values = np.asarray(value)
    fits = values.dtype.kind in "iuf" and np.all(np.isfinite(values) & (values >= least))
    if not fits or (whole and np.any(values % 1 != 0)):
        kind = "whole numbers" if whole else "finite numbers"
        raise ArgumentError(name, value, f"{kind} >= {least}")


class AsynchronousScheme(ABC):
    """A way to train with a parameter server without all workers waiting for each other."""

    name: ClassVar[str]

    @abstractmethod
    def in_effect(self, numbers: AsynchronousNumbers) -> AsynchronousNumbers:
        """Drop the numbers that this scheme does not use."""

    def times(self, numbers: AsynchronousNumbers) -> AsynchronousTimes:
        """Return the times and staleness of the scheme.

        Notes
        -----
        Valid for: a steady state. The number of workers cannot be a symbol, because a recursion runs over it, and
        neither can times on parts that only some workers share. Workers of unequal speed on such parts count as one
        queue for a part as fast as all of them together: 2 % off on average, at most 4 %, in 40 simulated jobs of 4 to
        12 workers of two speeds, two or four per part.
        """
        used = self.in_effect(numbers)
        return (
            unequal_times(used.in_one_queue)
            if len(used.kinds) > 1
            else at_the_server(used, network=server_network(used))
        )

    def backup_bytes(self, *, parameter_bytes: Quantity, worker_count: Quantity) -> Quantity:
        """Server memory for copies of the parameters, besides the parameters themselves. [B]"""
        return 0 * parameter_bytes * worker_count


def server_network(numbers: AsynchronousNumbers, *, held_back_s: Quantity = 0.0) -> queueing.ClosedNetwork:
    """Return the closed queueing network of the numbers.

    Notes
    -----
    If only some visitors share each busiest part, they form several equal, separate networks.
    """
    one = queueing.closed_network(
        worker_count=numbers.sharers,
        think_s=numbers.think_s + held_back_s,
        station_s=numbers.station_s,
        server_count=numbers.server_count,
        service_variation=numbers.service_variation,
    )
    return replace(one, throughput_per_s=one.throughput_per_s * _queues(numbers))


def _queues(numbers: AsynchronousNumbers) -> Quantity:
    """Parallel queues. [1]"""
    return 1 if numbers.is_shared_by_all else numbers.visitors // numbers.sharers


def at_the_server(
    numbers: AsynchronousNumbers, *, network: queueing.ClosedNetwork, held_back_s: Quantity = 0.0
) -> AsynchronousTimes:
    """Return the times that follow from a closed network.

    Parameters
    ----------
    numbers : AsynchronousNumbers
        Numbers in effect. [-]
    network : ClosedNetwork
        Its steady state. [-]
    held_back_s : float, ndarray or sympy.Expr
        Wait for other workers before computing, per step. [s]

    Returns
    -------
    AsynchronousTimes
        Per step of a worker.
    """
    step_s = numbers.think_s + network.response_s + held_back_s
    return _times(
        numbers,
        step_s=step_s,
        computing_s=numbers.group_compute_s + held_back_s,
        wait_s=numbers.on_the_way_s + network.response_s,
        server_utilisation=network.utilisation / network.throughput_per_s * (numbers.visitors / step_s),
        think_s=numbers.think_s,
    )


def unequal_times(numbers: AsynchronousNumbers) -> AsynchronousTimes:
    """Return the times of visitors of several speeds that only wait for the server, averaged over all their steps.

    Raises
    ------
    ArgumentError
        If service times are not exponential.

    Notes
    -----
    Valid for: exponential service. Gradients of slow workers are staler, since others update more often meanwhile.
    Over all updates, mean staleness is that of equal workers, W - 1 with a visit every step.

    Examples
    --------
    >>> from perfmodel.cost.order_statistics import Unequal
    >>> from perfmodel.sync.asynchronous_scheme import AsynchronousNumbers
    >>> times = Unequal([2.0, 2.0, 1.0, 1.0])
    >>> numbers = AsynchronousNumbers(compute_s=5e-3, update_s=0.5e-3, worker_count=4, times=times)
    >>> for kind in reversed(unequal_times(numbers).kinds):
    ...     print(f"{1e3 * kind.step_s:.2f} ms, {kind.mean_staleness:.2f}")
    10.63 ms, 4.79
    5.60 ms, 2.05
    """
    if numbers.service_variation != 1:
        allowed = "1 with workers of unequal speed, because their queue is only known for exponential service"
        raise ArgumentError("service_variation", numbers.service_variation, allowed)
    counts, relative = zip(*numbers.kinds, strict=True)
    compute_s, away_s, service_s = np.broadcast_arrays(
        numbers.compute_s, numbers.group_sync_s + numbers.on_the_way_s, sum(numbers.station_s)
    )
    think_s = np.multiply.outer(relative, compute_s) + away_s
    rates = queueing.unequal_workers(
        worker_counts=counts, think_s=think_s, station_s=numbers.station_s, server_count=numbers.server_count
    )
    of_all, computed = _of_all(counts, rates), _of_all(np.multiply(counts, relative), rates)
    alone = _of_all(counts, 1 / (think_s + service_s))
    periods = queueing.mean_staleness(worker_count=2, push_period=numbers.push_period, pull_period=numbers.pull_period)
    stale = queueing.staleness_of_rates(worker_counts=counts, rates_per_s=rates)
    step_s, computing_s = numbers.visitors / of_all, numbers.compute_s * computed / of_all
    return _times(
        numbers,
        step_s=step_s,
        computing_s=computing_s,
        wait_s=step_s - computing_s - numbers.group_sync_s,
        server_utilisation=numbers.visitors / step_s * reduce(maximum, numbers.station_s) / numbers.server_count,
        think_s=numbers.visitors / alone - sum(numbers.station_s),
        kinds=tuple(
            map(KindTimes, counts, relative, [1 / rate for rate in rates], [missed * periods for missed in stale])
        ),
    )


def _of_all(counts: Any, of_kinds: Any) -> Quantity:
    """Sum a quantity of one visitor of each kind over all visitors."""
    return plain(np.tensordot(counts, of_kinds, 1)[()])


def _times(
    numbers: AsynchronousNumbers, *, step_s: Quantity, computing_s: Quantity, think_s: Quantity, **times: Any
) -> AsynchronousTimes:
    """Return the times of visitors with this step time, who think this long without a queue."""
    return AsynchronousTimes(
        compute_s=numbers.compute_s,
        straggler_s=computing_s - numbers.compute_s,
        group_sync_s=numbers.group_sync_s,
        updates_per_s=numbers.visitors / step_s / numbers.push_period,
        batches_per_update=numbers.group_size * numbers.push_period,
        mean_staleness=queueing.mean_staleness(
            worker_count=numbers.visitors, push_period=numbers.push_period, pull_period=numbers.pull_period
        ),
        **times,
        **_asymptotes(numbers, think_s=think_s),
    )


def _asymptotes(numbers: AsynchronousNumbers, *, think_s: Quantity) -> dict[str, Quantity]:
    """Return the number of visitors from which the server bounds, and the updates that this bound allows."""
    if not is_symbolic(*numbers.station_s) and not np.any(np.asarray(sum(numbers.station_s)) > 0):
        return {
            "knee": np.inf,
            "most_updates_per_s": numbers.visitors / think_s / numbers.push_period,
        }  # the server never bounds
    server = {"think_s": think_s, "station_s": numbers.station_s, "server_count": numbers.server_count}
    most = queueing.throughput_bound(worker_count=numbers.sharers, **server) * _queues(numbers)
    return {"knee": queueing.knee(**server) * _queues(numbers), "most_updates_per_s": most / numbers.push_period}
