"""Rings: each worker passes parts on to the next; hierarchical rings run inside groups, then across them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from perfmodel.symbolic import Quantity
from perfmodel.sync.base import Collective, Hockney, Round, group_count


def ring_round(worker_count: int, *, reduces: bool, both_ways: bool = False) -> Round:
    """Return the round, to be repeated, in which every worker sends one p-th of the bytes to the next.

    Parameters
    ----------
    worker_count : int
        Workers, p. [1]
    reduces : bool
        Whether what arrives is added up. [-]
    both_ways : bool
        Whether half of each part goes around the other way. [-]

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
    ranks = np.arange(worker_count)
    sinks = np.concatenate([(ranks + way) % worker_count for way in ways])
    return Round(
        sources=np.tile(ranks, len(ways)),
        sinks=sinks,
        share=1 / worker_count / len(ways),
        reduced_share=1 / worker_count if reduces else 0.0,
        repeat=worker_count - 1,
    )


class _Ring(Collective):
    """Algorithms whose messages all go around a ring."""

    ring = True
    per_adapter = True
    folds = True
    passes: ClassVar[int] = 1
    """Times that all bytes travel from each rank but one to the next. [1]"""

    def sent_share(self, worker_count: int) -> float:
        return float(self.passes * (worker_count - 1))

    def folded(self, rounds: tuple[Round, ...], *, worker_count: int) -> tuple[Round, ...]:
        def of_more(round_: Round) -> Round:
            scale = (round_.repeat + 1) / worker_count
            reduced = scale * round_.reduced_share
            return replace(round_, share=scale * round_.share, reduced_share=reduced, repeat=worker_count - 1)

        return tuple(map(of_more, rounds))


class RingAllReduce(_Ring):
    r"""Reduce-scatter and all-gather around a ring, or around both directions with half each (``both_ways``).

    .. math:: T = 2 (p - 1) \alpha + 2 \frac{p - 1}{p} n \beta + \frac{p - 1}{p} n \gamma

    Notes
    -----
    Valid for: equal parts. Both directions save nothing with one port per worker, and up to half of the time with a
    link per neighbour. Ignores: pipelining of smaller pieces within a round.

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
    both_ways: bool = False
    passes = 2

    def cost(self, link: Hockney, worker_count: Quantity) -> Quantity:  # noqa: D102
        passed = (worker_count - 1) / worker_count
        return link.times(alpha=2 * (worker_count - 1), beta=2 * passed, gamma=passed)

    def schedule(self, worker_count: int) -> tuple[Round, ...]:  # noqa: D102
        return tuple(ring_round(worker_count, reduces=reduces, both_ways=self.both_ways) for reduces in (True, False))


class ReduceScatter(_Ring):
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

    def cost(self, link: Hockney, worker_count: Quantity) -> Quantity:  # noqa: D102
        passed = (worker_count - 1) / worker_count
        return link.times(alpha=worker_count - 1, beta=passed, gamma=passed)

    def schedule(self, worker_count: int) -> tuple[Round, ...]:  # noqa: D102
        return (ring_round(worker_count, reduces=True),)


class ChainBroadcast(_Ring):
    r"""Rank 0 hands parts of its bytes to the next, and each rank passes them on while the next part arrives.

    .. math:: T = (p - 1) \alpha + n \beta

    Notes
    -----
    Valid for: many small parts, as libraries on devices send them; beside ``Broadcast``, a tree for short messages.
    Ignores: that the first parts arrive before the last leave, so that one part more is on its way.

    Examples
    --------
    >>> ChainBroadcast().time(size_bytes=8e6, worker_count=4, latency_s=0.0, seconds_per_byte=1e-9)
    0.008

    References
    ----------
    .. [1] S. Jeaugey, NCCL 2.0, GPU Technology Conference, 2017: broadcast around rings, in pieces.
    """

    name = "chain_broadcast"
    folds = False  # a chain of few machines leaves them less often on its way
    plays = False

    def cost(self, link: Hockney, worker_count: Quantity) -> Quantity:  # noqa: D102
        return link.times(alpha=worker_count - 1, beta=1)

    def schedule(self, worker_count: int) -> tuple[Round, ...]:  # noqa: D102
        ranks = np.arange(worker_count)
        return (Round(ranks[:-1], ranks[1:], 1 / (worker_count - 1), repeat=worker_count - 1),)


class AllGather(_Ring):
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

    def cost(self, link: Hockney, worker_count: Quantity) -> Quantity:  # noqa: D102
        return link.times(alpha=worker_count - 1, beta=(worker_count - 1) / worker_count)

    def schedule(self, worker_count: int) -> tuple[Round, ...]:  # noqa: D102
        return (ring_round(worker_count, reduces=False),)


class Hierarchical(Collective):
    r"""Reduce-scatter inside groups of g, all-reduce of each part across the m groups, all-gather inside.

    .. math:: T = 2 (g - 1) \left(\alpha_i + \frac{n}{g} \beta_i\right)
        + 2 (m - 1) \left(\alpha + \frac{n}{g m} c \beta\right)
        + \left(\frac{g - 1}{g} + \frac{m - 1}{g m}\right) n \gamma

    where the g workers of a group have a port each, c = 1, or share one (``shared_port``), c = g. Options are
    ``group_size`` (g), ``inner_latency_s``, ``inner_s_per_byte`` (:math:`\alpha_i, \beta_i`; by default those between
    groups) and ``shared_port``.

    Notes
    -----
    Valid for: equal groups, e.g. the devices of a machine. Ignores: that some parts could cross while others are still
    added inside.

    Examples
    --------
    Four machines of eight devices, 150 GB/s inside and 12.5 GB/s from each device to other machines:

    >>> hierarchical = Hierarchical()
    >>> numbers = {"size_bytes": 102228128, "worker_count": 32, "latency_s": 0.0, "seconds_per_byte": 1 / 12.5e9}
    >>> 1e3 * hierarchical.time(**numbers, group_size=8, inner_s_per_byte=1 / 150e9)
    2.7261

    References
    ----------
    .. [1] X. Jia et al., Highly scalable deep learning training system with mixed-precision, arXiv:1807.11205, 2018.
    """

    name = "hierarchical"
    option_names = ("group_size", "inner_latency_s", "inner_s_per_byte", "shared_port")
    ring = True

    inner_latency_s: Quantity | None = None
    inner_s_per_byte: Quantity | None = None
    shared_port: bool = False

    def cost(self, link: Hockney, worker_count: Quantity) -> Quantity:  # noqa: D102
        groups = group_count(worker_count, self.group_size)
        size: Any = self.group_size
        inner = Hockney(
            link.n,
            link.alpha if self.inner_latency_s is None else self.inner_latency_s,
            link.beta if self.inner_s_per_byte is None else self.inner_s_per_byte,
            link.gamma,
        )
        within, across = (size - 1) / size, (groups - 1) / worker_count
        crossing = size if self.shared_port else 1
        inside = inner.times(alpha=2 * (size - 1), beta=2 * within, gamma=within)
        return inside + link.times(alpha=2 * (groups - 1), beta=2 * across * crossing, gamma=across)

    def schedule(self, worker_count: int) -> tuple[Round, ...]:  # noqa: D102
        groups = group_count(worker_count, self.group_size)
        size: Any = self.group_size
        ranks = np.arange(worker_count)
        inside = ranks - ranks % size + (ranks + 1) % size
        across = (ranks + size) % worker_count
        up = [
            Round(ranks, sinks, share, reduced_share=share, repeat=repeat)
            for sinks, share, repeat in ((inside, 1 / size, size - 1), (across, 1 / worker_count, groups - 1))
            if repeat
        ]
        return (*up, *(replace(round_, reduced_share=0.0) for round_ in reversed(up)))
