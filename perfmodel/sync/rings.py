"""Around a ring: each worker passes parts on to the next one."""

from __future__ import annotations

from typing import Any

from perfmodel.symbolic import Quantity
from perfmodel.sync.base import Collective, Hockney, Message, Round


def ring_round(worker_count: int, *, reduces: bool, both_ways: bool = False) -> Round:
    """Return the rounds in which every worker sends one p-th to the next, until each part has passed all of them.

    Parameters
    ----------
    worker_count : int
        Workers, p. [1]
    reduces : bool
        Whether what arrives is added up. [-]
    both_ways : bool
        Whether half goes to the one before instead. [-]

    Returns
    -------
    Round
        To be repeated p - 1 times. [-]

    Examples
    --------
    >>> ring_round(3, reduces=False).messages[2]
    Message(source=2, sink=0, share=0.3333333333333333)
    """
    ways = (1, -1) if both_ways else (1,)
    share = 1 / worker_count / len(ways)
    messages = tuple(Message(rank, (rank + way) % worker_count, share) for way in ways for rank in range(worker_count))
    return Round(messages, reduced_share=1 / worker_count if reduces else 0.0, repeat=worker_count - 1)


class RingAllReduce(Collective):
    r"""Reduce-scatter and all-gather around a ring, or around both ways of it with half each (``both_ways``).

    .. math:: T = 2 (p - 1) \alpha + 2 \frac{p - 1}{p} n \beta + \frac{p - 1}{p} n \gamma

    Notes
    -----
    Valid for: equal parts. Going both ways is worth nothing with one port for each worker, and up to half of the time
    where neighbours have links of their own. Ignores: pipelining of smaller pieces within a round, further rings.

    Examples
    --------
    >>> ring = RingAllReduce()
    >>> 1e6 * ring.time(size_bytes=4096, worker_count=8, latency_s=5e-6, seconds_per_byte=1e-10)  # 70.72 us
    70.7168

    References
    ----------
    .. [1] P. Patarasuk and X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, JPDC 69(2),
       2009, doi:10.1016/j.jpdc.2008.09.002.
    """

    name = "ring_all_reduce"
    option_names = ("both_ways",)
    ring = True

    def cost(self, link: Hockney, worker_count: Quantity, **options: Any) -> Quantity:  # noqa: D102
        passed = (worker_count - 1) / worker_count
        return link.times(alpha=2 * (worker_count - 1), beta=2 * passed, gamma=passed)

    def schedule(self, worker_count: int, *, both_ways: bool = False, **options: Any) -> tuple[Round, ...]:  # noqa: D102
        return tuple(ring_round(worker_count, reduces=reduces, both_ways=both_ways) for reduces in (True, False))


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


class AllGather(Collective):
    r"""Second half of a ring all-reduce.

    .. math:: T = (p - 1) \alpha + \frac{p - 1}{p} n \beta

    Notes
    -----
    Valid for: n / p bytes at each worker before, n after. Ignores: what ``RingAllReduce`` ignores.

    Examples
    --------
    >>> AllGather().time(size_bytes=8e6, worker_count=4, latency_s=0.0, seconds_per_byte=1e-9)
    0.006

    References
    ----------
    .. [1] R. Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations in MPICH, IJHPCA
       19(1), 2005, doi:10.1177/1094342005051521.
    """

    name = "all_gather"
    ring = True

    def cost(self, link: Hockney, worker_count: Quantity, **options: Any) -> Quantity:  # noqa: D102
        return link.times(alpha=worker_count - 1, beta=(worker_count - 1) / worker_count)

    def schedule(self, worker_count: int, **options: Any) -> tuple[Round, ...]:  # noqa: D102
        return (ring_round(worker_count, reduces=False),)
