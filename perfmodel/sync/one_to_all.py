"""One to all: a master takes in what each worker has, one after another, and sends each the sum."""

from __future__ import annotations

from typing import Any

from perfmodel.symbolic import Quantity
from perfmodel.sync.base import Collective, Hockney, Message, Round


class OneToAll(Collective):
    r"""A worker is the master of all others.

    .. math:: T = 2 (p - 1) (\alpha + n \beta) + (p - 1) n \gamma

    Notes
    -----
    Valid for: rank 0 as the master, which serves one worker at a time; with :math:`\alpha = \gamma = 0` it is Paleo's
    OneToAll. Ignores: that the next message could start while the one before is added up.

    Examples
    --------
    >>> OneToAll().time(size_bytes=1e6, worker_count=4, latency_s=0.0, seconds_per_byte=1e-9)
    0.006

    References
    ----------
    .. [1] H. Qi, E. R. Sparks, A. Talwalkar, Paleo: a performance model for deep neural networks, ICLR 2017.
    """

    name = "one_to_all"

    def cost(self, link: Hockney, worker_count: Quantity, **options: Any) -> Quantity:  # noqa: D102
        others = worker_count - 1
        return link.times(alpha=2 * others, beta=2 * others, gamma=others)

    def schedule(self, worker_count: int, **options: Any) -> tuple[Round, ...]:  # noqa: D102
        others = range(1, worker_count)
        taken = [Round((Message(rank, 0, 1.0),), reduced_share=1.0) for rank in others]
        return (*taken, *(Round((Message(0, rank, 1.0),)) for rank in others))
