"""Ring: each worker passes parts of the sum on to the next one, then the finished parts."""

from __future__ import annotations

from typing import Any

from perfmodel.numeric import Quantity
from perfmodel.sync.base import Collective, Hockney, Message, Round


def ring_round(worker_count: int, *, reduces: bool) -> Round:
    """Return the rounds in which every worker sends one p-th to the next, until each part has passed all of them.

    Parameters
    ----------
    worker_count : int
        Workers, p. [1]
    reduces : bool
        Whether what arrives is added up. [-]

    Returns
    -------
    Round
        To be repeated p - 1 times. [-]

    Examples
    --------
    >>> ring_round(3, reduces=False).messages[2]
    Message(source=2, sink=0, share=0.3333333333333333)
    """
    share = 1 / worker_count
    messages = tuple(Message(rank, (rank + 1) % worker_count, share) for rank in range(worker_count))
    return Round(messages, reduced_share=share if reduces else 0.0, repeat=worker_count - 1)


class RingAllReduce(Collective):
    r"""Reduce-scatter and all-gather around a ring.

    .. math:: T = 2 (p - 1) \alpha + 2 \frac{p - 1}{p} n \beta + \frac{p - 1}{p} n \gamma

    Notes
    -----
    Valid for: one direction of the ring, equal parts. Ignores: pipelining of smaller pieces within a round.

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
    ring = True

    def cost(self, link: Hockney, worker_count: Quantity, **options: Any) -> Quantity:  # noqa: D102
        passed = (worker_count - 1) / worker_count
        return link.times(alpha=2 * (worker_count - 1), beta=2 * passed, gamma=passed)

    def schedule(self, worker_count: int, **options: Any) -> tuple[Round, ...]:  # noqa: D102
        return (ring_round(worker_count, reduces=True), ring_round(worker_count, reduces=False))
