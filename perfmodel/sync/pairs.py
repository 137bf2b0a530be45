"""Messages in pairs: to the next worker, to every other worker, or at distances that double."""

from __future__ import annotations

import numpy as np

from perfmodel.symbolic import Quantity
from perfmodel.sync.base import Collective, Hockney, Integers, Round, paired


class SendReceive(Collective):
    r"""From each rank to the next, as between the stages of a pipeline.

    .. math:: T = \alpha + n \beta

    Notes
    -----
    Valid for: p ranks in a line; all except the last send at once. Ignores: nothing of the alpha-beta model.

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
    folds = True

    def cost(self, link: Hockney, worker_count: Quantity) -> Quantity:  # noqa: D102
        return link.times(alpha=1, beta=1)

    def schedule(self, worker_count: int) -> tuple[Round, ...]:  # noqa: D102
        ranks = np.arange(worker_count)
        return (Round(ranks[:-1], ranks[1:], 1.0),)

    def sent_share(self, worker_count: int) -> float:  # noqa: D102
        return worker_count - 1.0


class AllToAll(Collective):
    r"""Pairwise exchange: in round k each sends to the rank k places on; or all messages at once (``at_once``).

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
    at_once: bool = False

    def cost(self, link: Hockney, worker_count: Quantity) -> Quantity:  # noqa: D102
        return link.times(alpha=1 if self.at_once else worker_count - 1, beta=(worker_count - 1) / worker_count)

    def schedule(self, worker_count: int) -> tuple[Round, ...]:  # noqa: D102
        if self.at_once:
            return (Round(*ordered_pairs(worker_count), 1 / worker_count),)
        ranks = np.arange(worker_count)
        return tuple(Round(ranks, (ranks + step) % worker_count, 1 / worker_count) for step in range(1, worker_count))


def ordered_pairs(count: int) -> tuple[Integers, Integers]:
    """Return the first and the second of every two different numbers below a count.

    Examples
    --------
    >>> [each.tolist() for each in ordered_pairs(3)]
    [[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]]
    """
    first, second = np.nonzero(~np.eye(count, dtype=bool))
    return first, second


def folding(worker_count: int) -> tuple[Integers, tuple[Round, ...], tuple[Round, ...]]:
    """Ranks that take part if the number of workers is not a power of two, and the rounds by which the others join in.

    Examples
    --------
    >>> folding(5)[0]
    array([1, 2, 3, 4])
    """
    doublings, _ = paired(worker_count)
    beyond = worker_count - 2**doublings
    if not beyond:
        return np.arange(worker_count), (), ()
    joined = np.arange(1, 2 * beyond, 2)
    join = Round(joined - 1, joined, 1.0, reduced_share=1.0)
    learn = Round(joined, joined - 1, 1.0)
    return np.concatenate([joined, np.arange(2 * beyond, worker_count)]), (join,), (learn,)


def exchange(ranks: Integers, *, distance: int, share: float, reduces: bool) -> Round:
    """Round in which each rank swaps a share with the rank at a distance.

    Parameters
    ----------
    ranks : ndarray
        Ranks that take part, a power of two of them. [1]
    distance : int
        Distance between partners, a power of two. [1]
    share : float
        Part of the n bytes that each sends. [1]
    reduces : bool
        Whether what arrives is added up. [-]

    Returns
    -------
    Round
        One message from each rank. [-]

    Examples
    --------
    >>> exchange(np.arange(2), distance=1, share=0.5, reduces=False).messages[0]
    Message(source=0, sink=1, share=0.5)
    """
    return Round(ranks, ranks[np.arange(len(ranks)) ^ distance], share, reduced_share=share if reduces else 0.0)


class RecursiveDoubling(Collective):
    r"""Every rank exchanges all bytes with partners at distance 1, 2, 4, ...

    .. math:: T = l (\alpha + n \beta + n \gamma) + f (2 \alpha + 2 n \beta + n \gamma)

    with :math:`l = \lfloor \log_2 p \rfloor`, and f = 1 if p is not a power of two: ranks beyond it first hand their
    data to a neighbour and receive the sum at the end. For a power of two and :math:`\alpha = 0` it is Paleo's
    butterfly.

    Notes
    -----
    Valid for: short messages, full-duplex links between all pairs. Ignores: that distant pairs may share links.

    Examples
    --------
    >>> RecursiveDoubling().time(size_bytes=1e6, worker_count=8, latency_s=0.0, seconds_per_byte=1e-9)
    0.003

    References
    ----------
    .. [1] R. Rabenseifner, Optimization of collective reduction operations, ICCS 2004, doi:10.1007/978-3-540-24685-5_1.
    """

    name = "recursive_doubling"

    def cost(self, link: Hockney, worker_count: Quantity) -> Quantity:  # noqa: D102
        doublings, folds = paired(worker_count)
        return link.times(alpha=doublings + 2 * folds, beta=doublings + 2 * folds, gamma=doublings + folds)

    def schedule(self, worker_count: int) -> tuple[Round, ...]:  # noqa: D102
        left, before, after = folding(worker_count)
        distances = [2**step for step in range(len(left).bit_length() - 1)]
        return (*before, *(exchange(left, distance=hop, share=1.0, reduces=True) for hop in distances), *after)


class HalvingDoubling(Collective):
    r"""Reduce-scatter by halving, all-gather by doubling.

    .. math:: T = 2 l \alpha + 2 \frac{q - 1}{q} n \beta + \frac{q - 1}{q} n \gamma
        + f (2 \alpha + 2 n \beta + n \gamma), \qquad q = 2^l

    with :math:`l = \lfloor \log_2 p \rfloor`, and f = 1 if p is not a power of two, as in recursive doubling.

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

    def cost(self, link: Hockney, worker_count: Quantity) -> Quantity:  # noqa: D102
        doublings, folds = paired(worker_count)
        passed = 1 - 2.0 ** (-doublings)
        return link.times(alpha=2 * (doublings + folds), beta=2 * (passed + folds), gamma=passed + folds)

    def schedule(self, worker_count: int) -> tuple[Round, ...]:  # noqa: D102
        left, before, after = folding(worker_count)
        steps = range(1, len(left).bit_length())
        halving = [exchange(left, distance=len(left) >> k, share=0.5**k, reduces=True) for k in steps]
        doubling = [exchange(left, distance=len(left) >> k, share=0.5**k, reduces=False) for k in reversed(steps)]
        return (*before, *halving, *doubling, *after)
