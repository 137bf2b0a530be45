"""Messages from one worker to another, of each to the next or to every other one."""

from __future__ import annotations

import itertools
from typing import Any

from perfmodel.symbolic import Quantity
from perfmodel.sync.base import Collective, Hockney, Message, Round


class SendReceive(Collective):
    r"""From each rank to the next one, as between the stages of a pipeline.

    .. math:: T = \alpha + n \beta

    Notes
    -----
    Valid for: p ranks in a line, of which all but the last send at once. Ignores: nothing of the alpha-beta model.

    Examples
    --------
    >>> SendReceive().time(size_bytes=1e6, worker_count=2, latency_s=1e-3, seconds_per_byte=1e-9)
    0.002

    References
    ----------
    .. [1] R. W. Hockney, The communication challenge for MPP: Intel Paragon and Meiko CS-2, Parallel Computing
       20(3), 1994, doi:10.1016/S0167-8191(06)80021-9.
    """

    name = "send_receive"

    def cost(self, link: Hockney, worker_count: Quantity, **options: Any) -> Quantity:  # noqa: D102
        return link.times(alpha=1, beta=1)

    def schedule(self, worker_count: int, **options: Any) -> tuple[Round, ...]:  # noqa: D102
        return (Round(tuple(Message(rank, rank + 1, 1.0) for rank in range(worker_count - 1))),)


class AllToAll(Collective):
    r"""Pairwise exchange: in round k each sends to the one k places further; or all messages at once (``at_once``).

    .. math:: T = r \alpha + \frac{p - 1}{p} n \beta, \qquad r = p - 1, \text{ or } 1

    Notes
    -----
    Valid for: n bytes at each worker, n / p of them for each. Ignores: algorithms that forward parts in fewer rounds.

    Examples
    --------
    >>> AllToAll().time(size_bytes=8e6, worker_count=4, latency_s=1e-3, seconds_per_byte=1e-9)
    0.009

    References
    ----------
    .. [1] R. Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations in MPICH, IJHPCA
       19(1), 2005, doi:10.1177/1094342005051521, long messages.
    """

    name = "all_to_all"
    option_names = ("at_once",)

    def cost(self, link: Hockney, worker_count: Quantity, *, at_once: bool = False, **options: Any) -> Quantity:  # noqa: D102
        return link.times(alpha=1 if at_once else worker_count - 1, beta=(worker_count - 1) / worker_count)

    def schedule(self, worker_count: int, *, at_once: bool = False, **options: Any) -> tuple[Round, ...]:  # noqa: D102
        ranks = range(worker_count)
        if at_once:
            pairs = itertools.permutations(ranks, 2)
            return (Round(tuple(Message(rank, other, 1 / worker_count) for rank, other in pairs)),)
        return tuple(
            Round(tuple(Message(rank, (rank + step) % worker_count, 1 / worker_count) for rank in ranks))
            for step in range(1, worker_count)
        )
