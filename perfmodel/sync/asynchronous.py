"""Every asynchronous scheme by its name. The imports are the list.

>>> sorted(SCHEMES)
['bounded_staleness', 'delay_compensated', 'downpour', 'mixed']
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from perfmodel.cost.delay_compensation import backup_bytes
from perfmodel.errors import UnknownNameError
from perfmodel.symbolic import Quantity
from perfmodel.sync.asynchronous_scheme import AsynchronousNumbers, AsynchronousScheme
from perfmodel.sync.bounded_staleness import BoundedStaleness


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


class DelayCompensated(AsynchronousScheme):
    """As Downpour, with more work at the server and a copy of the parameters for each worker; no further messages.

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
        """Return the numbers without groups and bound."""
        return replace(numbers, staleness_bound=None, group_size=1, group_sync_s=0.0)

    def backup_bytes(self, *, parameter_bytes: Quantity, worker_count: Quantity) -> Quantity:
        """Return the bytes of a copy of the parameters for each worker. [B]"""
        return backup_bytes(parameter_bytes=parameter_bytes, worker_count=worker_count)


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


SCHEMES: Final[dict[str, AsynchronousScheme]] = {
    each.name: each for each in (Downpour(), DelayCompensated(), BoundedStaleness(), Mixed())
}
"""Name to scheme."""


def scheme_of(name: str) -> AsynchronousScheme:
    """Return a scheme by name, or raise UnknownNameError."""
    if name not in SCHEMES:
        kind = "asynchronous scheme"
        raise UnknownNameError(kind, name, SCHEMES)
    return SCHEMES[name]
