"""Bounded staleness: Downpour in which nobody may be more than so many steps ahead of the slowest."""

from __future__ import annotations

from dataclasses import replace

from perfmodel.cost.bounded_staleness import bounded_staleness_excess
from perfmodel.numeric import minimum
from perfmodel.sync.asynchronous_scheme import (
    AsynchronousNumbers,
    AsynchronousScheme,
    AsynchronousTimes,
    at_the_server,
    server_network,
)


class BoundedStaleness(AsynchronousScheme):
    """Workers that wait for the server, and for whoever is too far behind.

    Notes
    -----
    The bound is on steps: a worker has seen all but its last s steps' worth of every other's updates. So it caps the
    staleness that is counted in updates at s for each of the others: s (W - 1), which only s = 0 makes less than the
    W - 1 that workers of equal speed have on average anyway.

    Examples
    --------
    >>> from perfmodel.cost.order_statistics import Normal
    >>> for bound in (0, 1, 4):
    ...     numbers = AsynchronousNumbers(compute_s=1.0, worker_count=40, staleness_bound=bound, times=Normal(0.1))
    ...     times = BoundedStaleness().times(numbers)
    ...     print(f"{float(times.step_s):.4f} {float(times.mean_staleness):g}")
    1.2161 0
    1.0213 39
    1.0057 39

    References
    ----------
    .. [1] Q. Ho et al., More effective distributed ML via a stale synchronous parallel parameter server, NIPS 2013.
    """

    name = "bounded_staleness"

    def in_effect(self, numbers: AsynchronousNumbers) -> AsynchronousNumbers:
        """Return the numbers without groups and compensation."""
        return replace(numbers, group_size=1, group_sync_s=0.0, compensation_s=0.0)

    def times(self, numbers: AsynchronousNumbers) -> AsynchronousTimes:
        """Return what the scheme comes to: Downpour, and waiting for those behind.

        Parameters
        ----------
        numbers : AsynchronousNumbers
            Times and counts. [-]

        Returns
        -------
        AsynchronousTimes
            Per step of a worker.

        Notes
        -----
        Valid for: times that vary in the computation. Ignores: that the queue at the server varies too, which adds to
        the waiting where the server is busy; the queue is that of workers which are held back so long.
        """
        used = self.in_effect(numbers)
        cycle_s = used.think_s + server_network(used).response_s
        share = used.compute_s / cycle_s
        held_back_s = cycle_s * bounded_staleness_excess(
            worker_count=used.worker_count,
            staleness_bound=used.staleness_bound,
            largest_excess=share * (used.slowest(used.worker_count) - 1),
            variation=share * (0.0 if used.times is None else used.times.variation),
        )
        times = at_the_server(
            used, network=server_network(used, held_back_s=held_back_s), held_back_s=held_back_s
        )
        cap = used.staleness_bound * (used.worker_count - 1)
        return replace(times, mean_staleness=minimum(times.mean_staleness, cap))
