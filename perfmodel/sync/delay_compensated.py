"""Delay-compensated SGD: Downpour whose server corrects every gradient by what the parameters did meanwhile."""

from __future__ import annotations

from dataclasses import replace

from perfmodel.cost.delay_compensation import backup_bytes
from perfmodel.symbolic import Quantity
from perfmodel.sync.asynchronous_scheme import AsynchronousNumbers, AsynchronousScheme


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
