"""Mixed training: workers of a group step together, groups visit the parameter server on their own."""

from __future__ import annotations

from dataclasses import replace

from perfmodel.sync.asynchronous_scheme import AsynchronousNumbers, AsynchronousScheme


class Mixed(AsynchronousScheme):
    """Synchronous inside a group, asynchronous across groups.

    Notes
    -----
    A group is one visitor of the server: it thinks for as long as its slowest worker computes and its gradients are
    added up. Updates are of ``group_size`` mini-batches, and miss those of the other groups.

    Examples
    --------
    Groups of 100 ms, of which 10 ms at the server:

    >>> numbers = AsynchronousNumbers(compute_s=0.08, group_sync_s=0.01, update_s=0.01, worker_count=16, group_size=4)
    >>> times = Mixed().times(numbers)
    >>> float(times.knee), float(times.mean_staleness), times.batches_per_update
    (10.0, 3.0, 4)
    """

    name = "mixed"

    def in_effect(self, numbers: AsynchronousNumbers) -> AsynchronousNumbers:
        """Return the numbers without bound and compensation."""
        return replace(numbers, staleness_bound=None, compensation_s=0.0)
