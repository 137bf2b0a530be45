"""Downpour SGD: every worker pushes and pulls on its own, after so many steps each."""

from __future__ import annotations

from dataclasses import replace

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
