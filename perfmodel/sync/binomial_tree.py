"""Binomial tree: the sum climbs to rank 0, and is broadcast from there."""

from __future__ import annotations

from typing import Any

from perfmodel.symbolic import Quantity
from perfmodel.sync.base import Collective, Hockney, Message, Round
from perfmodel.sync.broadcast import broadcast_rounds
from perfmodel.sync.ranks import levels


class BinomialTree(Collective):
    r"""Reduce to one worker up a binomial tree, then broadcast down it.

    .. math:: T = 2 L \alpha + 2 L n \beta + L n \gamma, \qquad L = \lceil \log_2 p \rceil

    Notes
    -----
    Valid for: short messages; with :math:`\alpha = \gamma = 0` it is Paleo's TreeAllReduce. Ignores: pipelining.

    Examples
    --------
    >>> BinomialTree().time(size_bytes=1e6, worker_count=8, latency_s=0.0, seconds_per_byte=1e-9)
    0.006

    References
    ----------
    .. [1] R. Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations in MPICH, IJHPCA
       19(1), 2005, doi:10.1177/1094342005051521.
    """

    name = "binomial_tree"

    def cost(self, link: Hockney, worker_count: Quantity, **options: Any) -> Quantity:  # noqa: D102
        climbed = levels(worker_count)
        return link.times(alpha=2 * climbed, beta=2 * climbed, gamma=climbed)

    def schedule(self, worker_count: int, **options: Any) -> tuple[Round, ...]:  # noqa: D102
        down = broadcast_rounds(worker_count)
        up = tuple(
            Round(tuple(Message(each.sink, each.source, 1.0) for each in step.messages), reduced_share=1.0)
            for step in reversed(down)
        )
        return (*up, *down)
