"""Broadcast down a binomial tree: whoever has it sends it on."""

from __future__ import annotations

from typing import Any

from perfmodel.symbolic import Quantity
from perfmodel.sync.base import Collective, Hockney, Message, Round
from perfmodel.sync.ranks import levels


def broadcast_rounds(worker_count: int) -> tuple[Round, ...]:
    """Return the rounds in which the number of those who have the message doubles.

    Parameters
    ----------
    worker_count : int
        Workers, p; rank 0 has the message. [1]

    Returns
    -------
    tuple of Round
        In order. [-]

    Examples
    --------
    >>> [len(each.messages) for each in broadcast_rounds(6)]
    [1, 2, 2]
    """
    return tuple(
        Round(tuple(Message(rank, rank + 2**step, 1.0) for rank in range(min(2**step, worker_count - 2**step))))
        for step in range(levels(worker_count))
    )


class Broadcast(Collective):
    r"""Binomial tree from rank 0.

    .. math:: T = \lceil \log_2 p \rceil (\alpha + n \beta)

    Notes
    -----
    Valid for: short messages. Ignores: pipelines and scatter with all-gather, which serve long ones better.

    Examples
    --------
    >>> Broadcast().time(size_bytes=1e6, worker_count=6, latency_s=1e-3, seconds_per_byte=1e-9)
    0.006

    References
    ----------
    .. [1] R. Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations in MPICH, IJHPCA
       19(1), 2005, doi:10.1177/1094342005051521.
    """

    name = "broadcast"

    def cost(self, link: Hockney, worker_count: Quantity, **options: Any) -> Quantity:  # noqa: D102
        return link.times(alpha=levels(worker_count), beta=levels(worker_count))

    def schedule(self, worker_count: int, **options: Any) -> tuple[Round, ...]:  # noqa: D102
        return broadcast_rounds(worker_count)
