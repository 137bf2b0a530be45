"""Recursive halving and doubling (Rabenseifner): parts of the sum that halve, then double."""

from __future__ import annotations

from typing import Any

from perfmodel.symbolic import Quantity
from perfmodel.sync.base import Collective, Hockney, Round
from perfmodel.sync.ranks import paired
from perfmodel.sync.recursive_doubling import exchange, folding


class HalvingDoubling(Collective):
    r"""Reduce-scatter by halving, all-gather by doubling.

    .. math:: T = 2 l \alpha + 2 \frac{q - 1}{q} n \beta + \frac{q - 1}{q} n \gamma
        + f (2 \alpha + 2 n \beta + n \gamma), \qquad q = 2^l

    with :math:`l = \lfloor \log_2 p \rfloor`, and f = 1 where p is no power of two, as in recursive doubling.

    Notes
    -----
    Valid for: medium and long messages, full-duplex links between all pairs. Ignores: that distant pairs may share
    links, and foldings that split the message.

    Examples
    --------
    >>> algorithm = HalvingDoubling()
    >>> 1e6 * algorithm.time(size_bytes=4096, worker_count=8, latency_s=5e-6, seconds_per_byte=1e-10)  # 30.72 us
    30.7168

    References
    ----------
    .. [1] R. Rabenseifner, Optimization of collective reduction operations, ICCS 2004, doi:10.1007/978-3-540-24685-5_1.
    """

    name = "halving_doubling"

    def cost(self, link: Hockney, worker_count: Quantity, **options: Any) -> Quantity:  # noqa: D102
        doublings, folds = paired(worker_count)
        passed = 1 - 2.0 ** (-doublings)
        return link.times(alpha=2 * (doublings + folds), beta=2 * (passed + folds), gamma=passed + folds)

    def schedule(self, worker_count: int, **options: Any) -> tuple[Round, ...]:  # noqa: D102
        left, before, after = folding(worker_count)
        steps = range(1, len(left).bit_length())
        halving = [exchange(left, distance=len(left) >> k, share=0.5**k, reduces=True) for k in steps]
        doubling = [exchange(left, distance=len(left) >> k, share=0.5**k, reduces=False) for k in reversed(steps)]
        return (*before, *halving, *doubling, *after)
