"""Reduce-scatter around a ring: each worker ends with one part of the sum."""

from __future__ import annotations

from typing import Any

from perfmodel.symbolic import Quantity
from perfmodel.sync.base import Collective, Hockney, Round
from perfmodel.sync.ring_all_reduce import ring_round


class ReduceScatter(Collective):
    r"""First half of a ring all-reduce.

    .. math:: T = (p - 1) \alpha + \frac{p - 1}{p} n (\beta + \gamma)

    Notes
    -----
    Valid for: n bytes at each worker before, n / p after. Ignores: what ``RingAllReduce`` ignores.

    Examples
    --------
    >>> ReduceScatter().time(size_bytes=8e6, worker_count=4, latency_s=0.0, seconds_per_byte=1e-9)
    0.006

    References
    ----------
    .. [1] R. Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations in MPICH, IJHPCA
       19(1), 2005, doi:10.1177/1094342005051521.
    """

    name = "reduce_scatter"
    ring = True

    def cost(self, link: Hockney, worker_count: Quantity, **options: Any) -> Quantity:  # noqa: D102
        passed = (worker_count - 1) / worker_count
        return link.times(alpha=worker_count - 1, beta=passed, gamma=passed)

    def schedule(self, worker_count: int, **options: Any) -> tuple[Round, ...]:  # noqa: D102
        return (ring_round(worker_count, reduces=True),)
