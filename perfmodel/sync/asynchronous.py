"""Asynchronous schemes by name, and bounded staleness, which stops workers too far ahead.

>>> sorted(SCHEMES)
['bounded_staleness', 'delay_compensated', 'downpour', 'mixed']
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Final

import numpy as np

from perfmodel.cost.queueing import ClosedNetwork
from perfmodel.cost.staleness import backup_bytes, bounded_staleness_excess, served_in_step_time
from perfmodel.errors import ArgumentError, check_known
from perfmodel.numeric import exceeds, maximum, minimum, where
from perfmodel.symbolic import Quantity
from perfmodel.sync.asynchronous_scheme import (
    AsynchronousNumbers,
    AsynchronousScheme,
    AsynchronousTimes,
    at_the_server,
    server_network,
)

_LEAST: Final = 1e-300


class BoundedStaleness(AsynchronousScheme):
    """Workers that wait for the server, and for workers that are too far behind.

    Notes
    -----
    The bound counts steps: a worker misses at most s steps of every other worker. This limits staleness to s (W - 1)
    updates, which is below W - 1, the average at equal speed, only for s = 0. With s = 0 all gradients of a step belong
    to the same parameters and count as one update.

    Examples
    --------
    >>> from perfmodel.cost.order_statistics import Normal
    >>> for bound in (0, 1, 4):
    ...     numbers = AsynchronousNumbers(compute_s=1.0, worker_count=40, staleness_bound=bound, times=Normal(0.1))
    ...     times = BoundedStaleness().times(numbers)
    ...     print(f"{float(times.step_s):.4f} {float(times.mean_staleness):g}")
    1.2161 0
    1.0213 38.1883
    1.0057 38.7775

    References
    ----------
    .. [1] Q. Ho et al., More effective distributed ML via a stale synchronous parallel parameter server, NIPS 2013.
    """

    name = "bounded_staleness"

    def in_effect(self, numbers: AsynchronousNumbers) -> AsynchronousNumbers:
        """Drop groups and compensation; raise ArgumentError without a bound."""
        if numbers.staleness_bound is None:
            raise ArgumentError("staleness_bound", None, f"a whole number >= 0 with sync={self.name!r}")
        return replace(numbers, group_size=1, group_sync_s=0.0, compensation_s=0.0)

    def times(self, numbers: AsynchronousNumbers) -> AsynchronousTimes:
        """Return the times of Downpour, plus waiting for workers that are behind.

        Notes
        -----
        With a bound of 0 all workers reach the server together, and a step lasts until the last is served. With a
        larger bound, a worker that is held back does not queue, so the others are served sooner: the step grows by less
        than the wait, as in a closed network whose workers think longer by the wait. Between these two limits the time
        is weighted by how closely the bound keeps workers together. Queueing delays all workers equally, so only a
        worker's own service counts among the times that separate workers.

        Workers of lasting unequal speed keep the pace of the slowest, whatever the bound. Against 72 simulated jobs of
        12 workers, one to six of them slower by 2 to 150 %, the step is 2.4 % off on average, up to 19 % too short
        where the slow ones lag by little more than one service of a busy server, and up to 10 % too long where the
        server alone bounds.

        If only some workers share the busiest part, steps that begin together end as if one part were as fast as all
        parts together. Against 60 simulated jobs (4 to 12 workers, two or four per part, bounds 0 to 4, loads of 0.2 to
        1.2): 5 % off on average, 14 % in nine of ten cases, up to 26 % too short with pairs and a bound of 0, where all
        wait for the slowest of six.

        Valid for: times that vary independently. Against 2,500 simulated steps (2 to 16 workers, bounds 0 to 8, six
        distributions with variations up to 0.5, server loads of 0 to 1.3): 0.8 % off on average, 2 % in nine of ten
        cases, at most 6 %: too long with two workers, equal steps, a bound of 1 and a saturated server; too short with
        many workers, shifted exponential times and a bound of 1. On 192 jobs not used in choosing the form: 1.1 %, 3 %,
        at most 7 %.
        """
        used = self.in_effect(numbers)
        if len(used.kinds) > 1:
            return _led_by_the_slowest(used.in_one_queue)
        free = server_network(used)
        cycle_s = used.think_s + free.response_s
        spread_s = 0.0 if used.times is None else used.compute_s * used.times.variation
        service_s = sum(used.station_s) * used.service_variation
        in_step = maximum(_in_step(used.in_one_queue) / cycle_s - 1, 0)
        excess = bounded_staleness_excess(
            worker_count=used.worker_count,
            staleness_bound=used.staleness_bound,
            largest_excess=in_step,
            variation=(spread_s**2 + service_s**2) ** 0.5 / cycle_s,
        )
        held_s = cycle_s * excess
        relieved_s = used.think_s + held_s + server_network(used, held_back_s=held_s).response_s
        together = excess / maximum(in_step, _LEAST)
        step_s = together * (cycle_s + held_s) + (1 - together) * relieved_s
        network = server_network(used, held_back_s=step_s - cycle_s)  # a worker that is held back queues less
        held_back_s = step_s - used.think_s - network.response_s
        times = at_the_server(used, network=network, held_back_s=held_back_s)
        cap = used.staleness_bound * (used.worker_count - 1)
        exposed_share = 1 - held_back_s / step_s  # a worker waits before the pull, and so misses no updates meanwhile
        return replace(times, mean_staleness=minimum(times.mean_staleness * exposed_share, cap))


def _led_by_the_slowest(numbers: AsynchronousNumbers) -> AsynchronousTimes:
    """Return the times of workers of unequal speed, at the pace of the slowest.

    Faster workers are soon as far ahead as the bound allows. They continue when a slowest one has pushed, so they begin
    together, compute, and are at the server when it returns. Workers within one service of the slowest do not hold each
    other back: unless the bound is 0 they drift apart, and meet only one of the others at the server.
    """
    service_s, step_by_step = sum(numbers.station_s), numbers.staleness_bound == 0
    slowest = numbers.kinds[-1][1]
    slow_count: Quantity = 0
    for count, relative in numbers.kinds:
        slow_count = slow_count + where(exceeds(numbers.compute_s * (slowest - relative), service_s), 0, count)
    behind = numbers.visitors - where(step_by_step, 0, slow_count - 1)
    end_s = numbers.group_compute_s + service_s
    for count, relative in numbers.kinds:  # each kind is served before all that arrive later
        queued_s = maximum(behind, 1) * service_s / numbers.server_count
        end_s = maximum(end_s, numbers.compute_s * relative + queued_s)
        behind = behind - count
    step_s = maximum(end_s + numbers.on_the_way_s, numbers.think_s + server_network(numbers).response_s)
    rate = numbers.visitors / step_s
    busy = rate * reduce(maximum, numbers.station_s) / numbers.server_count
    network = ClosedNetwork(throughput_per_s=rate, response_s=step_s - numbers.think_s, utilisation=busy)
    missed = (numbers.visitors + slow_count - 2) / 2  # all other slow workers, half of the faster ones
    times = at_the_server(numbers, network=network)
    return replace(times, mean_staleness=where(step_by_step, 0.0, missed))


def _in_step(numbers: AsynchronousNumbers) -> Quantity:
    """Step time of workers that begin together: until the last is served, possibly after queueing. [s]"""
    counts = np.asarray(numbers.worker_count)
    ranks = np.minimum.outer(np.arange(1, int(counts.max()) + 1), counts)
    paces = np.ones(ranks.shape) if numbers.times is None else numbers.times.order_statistic(rank=ranks, count=counts)
    served_s = served_in_step_time(
        arrival_s=[numbers.compute_s * pace for pace in paces],
        service_s=sum(numbers.station_s),
        worker_count=None if counts.ndim == 0 else counts,
        server_count=numbers.server_count,
        service_variation=numbers.service_variation,
    )
    return numbers.on_the_way_s + numbers.group_sync_s + served_s


class Downpour(AsynchronousScheme):
    """Workers that only wait for the server.

    Examples
    --------
    >>> numbers = AsynchronousNumbers(compute_s=8.2e-3, update_s=0.5e-3, worker_count=11)
    >>> times = Downpour().times(numbers)
    >>> round(float(times.updates_per_s), 3), float(times.mean_staleness), round(float(times.knee), 1)
    (1194.916, 10.0, 17.4)

    References
    ----------
    .. [1] J. Dean et al., Large scale distributed deep networks, NIPS 2012.
    """

    name = "downpour"

    def in_effect(self, numbers: AsynchronousNumbers) -> AsynchronousNumbers:
        """Drop groups, bound and compensation."""
        return replace(numbers, staleness_bound=None, group_size=1, group_sync_s=0.0, compensation_s=0.0)


class DelayCompensated(AsynchronousScheme):
    """Like Downpour, but the server does more work and holds a copy of the parameters for each worker.

    Examples
    --------
    >>> numbers = AsynchronousNumbers(compute_s=8.2e-3, update_s=0.5e-3, compensation_s=0.2e-3, worker_count=11)
    >>> round(float(DelayCompensated().times(numbers).updates_per_s), 1)
    1091.4
    >>> DelayCompensated().backup_bytes(parameter_bytes=220_200, worker_count=11)
    2422200

    References
    ----------
    .. [1] S. Zheng et al., Asynchronous stochastic gradient descent with delay compensation, ICML 2017.
    """

    name = "delay_compensated"

    def in_effect(self, numbers: AsynchronousNumbers) -> AsynchronousNumbers:
        """Drop groups and bound."""
        return replace(numbers, staleness_bound=None, group_size=1, group_sync_s=0.0)

    def backup_bytes(self, *, parameter_bytes: Quantity, worker_count: Quantity) -> Quantity:
        """Memory of one copy of the parameters for each worker. [B]"""
        return backup_bytes(parameter_bytes=parameter_bytes, worker_count=worker_count)


class Mixed(AsynchronousScheme):
    """Synchronous inside groups, asynchronous between them.

    Notes
    -----
    A group is one visitor of the server. Its time away from the server is that of its slowest worker and of summing its
    gradients. An update covers ``group_size`` mini-batches and misses those of the other groups.

    Examples
    --------
    Groups whose steps take 100 ms, 10 ms of it at the server:

    >>> numbers = AsynchronousNumbers(compute_s=0.08, group_sync_s=0.01, update_s=0.01, worker_count=16, group_size=4)
    >>> times = Mixed().times(numbers)
    >>> float(times.knee), float(times.mean_staleness), times.batches_per_update
    (10.0, 3.0, 4)
    """

    name = "mixed"

    def in_effect(self, numbers: AsynchronousNumbers) -> AsynchronousNumbers:
        """Drop bound and compensation."""
        return replace(numbers, staleness_bound=None, compensation_s=0.0)


SCHEMES: Final[dict[str, AsynchronousScheme]] = {
    scheme.name: scheme for scheme in (Downpour(), DelayCompensated(), BoundedStaleness(), Mixed())
}
"""Name -> scheme."""


def scheme_of(name: str) -> AsynchronousScheme:
    """Look up a scheme; raise UnknownNameError if no scheme has that name."""
    check_known("asynchronous scheme", name, SCHEMES)
    return SCHEMES[name]
