"""Downpour SGD: every worker pushes and pulls on its own, after so many steps each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfmodel.cost.queueing import staleness_of_rates, unequal_workers
from perfmodel.sync.asynchronous_scheme import AsynchronousNumbers, AsynchronousScheme


class Downpour(AsynchronousScheme):
    """Workers that wait for nobody but the server.

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
        """Return the numbers without groups, bound and compensation."""
        return replace(numbers, staleness_bound=None, group_size=1, group_sync_s=0.0, compensation_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class KindTimes:
    """What a kind of workers comes to among others.

    Parameters
    ----------
    worker_count : int
        Workers of this kind. [1]
    step_s : float
        Time from one step of such a worker to its next. [s]
    mean_staleness : float
        Updates of others that its gradient has missed when it is applied. [1]
    """

    worker_count: int
    step_s: float
    mean_staleness: float


def unequal_downpour(
    numbers: AsynchronousNumbers, *, compute_s: Sequence[float], worker_counts: Sequence[int]
) -> tuple[KindTimes, ...]:
    """Return what Downpour comes to with workers of several speeds, which all use one server.

    Parameters
    ----------
    numbers : AsynchronousNumbers
        Times that all have in common: one server that every step visits; its compute time and workers are not
        looked at. [-]
    compute_s : sequence of float
        Mean time of a step of each kind of workers. [s]
    worker_counts : sequence of int
        Workers of each kind. [1]

    Returns
    -------
    tuple of KindTimes
        One for each kind.

    Raises
    ------
    ArgumentError
        If a count is not a whole number from 1, lengths differ, or there are too many kinds.

    Notes
    -----
    Valid for: exponential service. Slow workers' gradients are the staler ones: others update more often meanwhile.

    Examples
    --------
    >>> numbers = AsynchronousNumbers(compute_s=0.0, update_s=0.5e-3, worker_count=4)
    >>> for kind in unequal_downpour(numbers, compute_s=(10e-3, 5e-3), worker_counts=(2, 2)):
    ...     print(f"{1e3 * kind.step_s:.2f} ms, {kind.mean_staleness:.2f}")
    10.63 ms, 4.79
    5.60 ms, 2.05
    """
    away_s = Downpour().in_effect(replace(numbers, compute_s=0.0, times=None)).think_s
    rates = unequal_workers(
        worker_counts=worker_counts,
        think_s=[seconds + away_s for seconds in compute_s],
        station_s=numbers.station_s,
    )
    each = [rate for rate, count in zip(rates, worker_counts, strict=True) for _ in range(count)]
    stale = dict(zip(each, staleness_of_rates(rates_per_s=each), strict=True))
    return tuple(
        KindTimes(worker_count=count, step_s=1 / rate, mean_staleness=stale[rate])
        for rate, count in zip(rates, worker_counts, strict=True)
    )
