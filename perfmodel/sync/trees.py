"""Trees: a message spreads down from the root, and a sum climbs up the same way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np

from perfmodel.cost.message_protocols import pipelined_time
from perfmodel.errors import ArgumentError
from perfmodel.numeric import minimum
from perfmodel.symbolic import Quantity, is_symbolic
from perfmodel.sync.base import Collective, Hockney, Integers, Round, group_count, levels

if TYPE_CHECKING:
    from perfmodel.hardware.topology import Topology


def broadcast_rounds(worker_count: int) -> tuple[Round, ...]:
    """Return rounds that each double the number of ranks that have the message.

    Examples
    --------
    >>> [len(each.messages) for each in broadcast_rounds(6)]
    [1, 2, 2]
    """
    ranks = np.arange(worker_count)
    sinks_of_rounds = [ranks[2**round_ : 2 * 2**round_] for round_ in range(levels(worker_count))]
    return tuple(Round(ranks[: len(sinks)], sinks, 1.0) for sinks in sinks_of_rounds)


class Broadcast(Collective):
    r"""Binomial tree from rank 0.

    .. math:: T = \lceil \log_2 p \rceil (\alpha + n \beta)

    Notes
    -----
    Valid for: short messages. Ignores: pipelines and scatter with all-gather, which are better for long messages.

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

    def cost(self, link: Hockney, worker_count: Quantity) -> Quantity:  # noqa: D102
        return link.times(alpha=levels(worker_count), beta=levels(worker_count))

    def schedule(self, worker_count: int) -> tuple[Round, ...]:  # noqa: D102
        return broadcast_rounds(worker_count)


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

    def cost(self, link: Hockney, worker_count: Quantity) -> Quantity:  # noqa: D102
        climbed = levels(worker_count)
        return link.times(alpha=2 * climbed, beta=2 * climbed, gamma=climbed)

    def schedule(self, worker_count: int) -> tuple[Round, ...]:  # noqa: D102
        down = broadcast_rounds(worker_count)
        up = tuple(Round(round_.sinks, round_.sources, 1.0, reduced_share=1.0) for round_ in reversed(down))
        return (*up, *down)


def two_trees(worker_count: int) -> tuple[Integers, Integers]:
    """Edges, a row of parent and child each, of two trees in which no rank has children in both.

    Examples
    --------
    >>> [tree.tolist() for tree in two_trees(4)]
    [[[2, 1], [0, 2], [2, 3]], [[1, 2], [3, 1], [1, 0]]]
    """
    ranks = np.arange(1, worker_count)
    lowest = ranks & -ranks
    above = (ranks ^ lowest) | (lowest << 1)
    first = np.stack([np.where(above < worker_count, above, ranks ^ lowest), ranks], axis=1)
    return first, (first + 1) % worker_count if worker_count % 2 else worker_count - 1 - first


def colours(worker_count: int) -> tuple[Integers, Integers]:
    """Split the edges of both trees into two sets; in each, every rank sends and receives at most once.

    Examples
    --------
    >>> [each.tolist() for each in colours(2)]
    [[[0, 1]], [[1, 0]]]
    """
    of_trees = np.concatenate(two_trees(worker_count))
    edges = of_trees.tolist()
    sharing: tuple[dict[int, list[int]], dict[int, list[int]]] = {}, {}  # edges by parent, and by child
    for place, ends in enumerate(edges):
        for of_end, end in zip(sharing, ends, strict=True):
            of_end.setdefault(end, []).append(place)
    colour: dict[int, int] = {}
    for start in range(len(edges)):
        waiting = [(start, 0 if start < worker_count - 1 else 1)]
        while waiting:
            place, colour_of_edge = waiting.pop()
            if place in colour:
                continue
            colour[place] = colour_of_edge
            # in the graph from senders to receivers, every node has at most two edges, so that its cycles are even
            near = {other for of_end, end in zip(sharing, edges[place], strict=True) for other in of_end[end]}
            waiting += [(other, 1 - colour_of_edge) for other in sorted(near - {place})]
    of_edges = np.array([colour[place] for place in range(len(edges))])
    return of_trees[of_edges == 0], of_trees[of_edges == 1]


CHUNK_COUNTS: Final = (1, 2, 4, 8, 16, 32, 64, 128)
"""Chunks into which two trees may cut their message: the best of them is within 6 % of the best of any in what fills,
drains and waits. [1]"""


class Line(NamedTuple):
    """Time of a collective as latencies, passes of the bytes over a port, and passes through the adder."""

    alpha: float
    beta: float
    gamma: float


def _starts(edges: Integers) -> tuple[Integers, Integers]:
    """Return the rounds in which a tree's edges pass their first chunk, up and down."""
    parents, children = edges.T
    parent_of = np.full(len(edges) + 1, -1)
    parent_of[children] = parents
    above, at = np.zeros_like(parent_of), parent_of
    while (at >= 0).any():
        above += at >= 0
        at = np.where(at >= 0, parent_of[at], -1)
    below = np.zeros_like(parent_of)
    for level in range(int(above.max()), 0, -1):
        ranks = np.flatnonzero(above == level)
        np.maximum.at(below, parent_of[ranks], below[ranks] + 1)
    return below[children], above[parents]


@lru_cache(maxsize=1024)
def chunk_rounds(worker_count: int, chunk_count: int) -> tuple[Round, ...]:
    """Return rounds in which every edge of both trees passes its next chunk: first all up, then all down.

    Examples
    --------
    >>> [(len(each.messages), each.repeat) for each in chunk_rounds(4, 8)]
    [(4, 1), (6, 7), (2, 1), (2, 1), (6, 7), (4, 1)]
    """
    trees = two_trees(worker_count)
    parents, children = np.concatenate(trees).T
    up, down = map(np.concatenate, zip(*map(_starts, trees), strict=True))
    rounds = []
    for sources, sinks, starts, adds in ((children, parents, up, True), (parents, children, down, False)):
        depth = 1 + int(starts.max())
        passing = Counter(
            (max(0, number - chunk_count + 1), min(number, depth - 1)) for number in range(depth + chunk_count - 1)
        )
        for (first, last), repeat in passing.items():
            edges = (first <= starts) & (starts <= last)
            share = 0.5 / chunk_count
            added = int(np.bincount(sinks[edges]).max()) * share if adds else 0.0
            rounds.append(Round(sources[edges], sinks[edges], share, reduced_share=added, repeat=repeat))
    return tuple(rounds)


@lru_cache(maxsize=1024)
def _line(worker_count: int, chunk_count: int) -> Line:
    """Return the time of two trees on equal full-duplex ports, which the messages of a rank share."""
    if worker_count == 1:
        return Line(0, 0, 0)
    alpha, beta, gamma = 0, 0.0, 0.0
    for round_ in chunk_rounds(worker_count, chunk_count):
        most = max(int(np.bincount(ends).max()) for ends in (round_.sources, round_.sinks))
        alpha += round_.repeat
        beta += round_.repeat * most * float(round_.shares[0])
        gamma += round_.repeat * round_.reduced_share
    return Line(alpha, beta, gamma)


class DoubleBinaryTree(Collective):
    r"""Reduce up two trees at once, then broadcast down both, in the best of ``CHUNK_COUNTS`` chunks.

    .. math:: T = \min_k \; 2 (L + k - 1) \alpha + \left(2 + \frac{2 L - 3}{k}\right) n \beta
        + \left(1 + \frac{2 L - 3}{2 k}\right) n \gamma, \qquad L = \lceil \log_2 p \rceil

    for a power of two from 4 on. Other numbers have the same rounds, a few of which have a message less; they are
    counted.

    Notes
    -----
    Each tree has half of the bytes, in ``chunk_count`` k chunks. In a round every edge that has a chunk passes it; both
    children of a rank send to it at once, each at half of its port. Valid for: chunks of any size. Ignores: that chunks
    are whole numbers of bytes, and that the broadcast of one may begin before the last is reduced.

    Examples
    --------
    >>> tree = DoubleBinaryTree()
    >>> round(1e6 * tree.time(size_bytes=4096, worker_count=64, latency_s=5e-6, seconds_per_byte=1e-10), 3)
    64.506

    References
    ----------
    .. [1] P. Sanders, J. Speck, J. L. Träff, Two-tree algorithms for full bandwidth broadcast, reduction and scan,
       Parallel Computing 35(12), 2009, doi:10.1016/j.parco.2009.09.001.
    """

    name = "double_binary_tree"
    option_names: ClassVar[tuple[str, ...]] = ("chunk_count",)
    chunk_counts: ClassVar[tuple[int, ...]] = CHUNK_COUNTS

    def cost(self, link: Hockney, worker_count: Quantity) -> Quantity:  # noqa: D102
        if is_symbolic(worker_count):
            raise ArgumentError("worker_count", worker_count, f"a number: {self.name} has no formula in a symbol")
        counts = self.chunk_counts if self.chunk_count is None else (_chunks(self.chunk_count),)
        factors = [self._factors(worker_count, count) for count in counts]
        return reduce(minimum, [link.times(**line._asdict()) for line in factors])

    @staticmethod
    def _factors(worker_count: Any, chunk_count: int) -> Line:
        if not isinstance(worker_count, np.ndarray):
            return _line(int(worker_count), chunk_count)
        lines = np.array([_line(int(count), chunk_count) for count in worker_count.ravel()])
        return Line(*lines.T.reshape(3, *worker_count.shape))

    def schedule(self, worker_count: int) -> tuple[Round, ...]:  # noqa: D102
        return chunk_rounds(worker_count, 1 if self.chunk_count is None else _chunks(self.chunk_count))

    def lines(self, worker_count: int) -> tuple[Line, ...]:  # noqa: D102
        return tuple(_line(worker_count, count) for count in self.chunk_counts)

    def sent_share(self, worker_count: int) -> float:  # noqa: D102
        return 2.0 * (worker_count - 1)  # half of the bytes over each edge of both trees, up and down


def _chunks(chunk_count: Any) -> int:
    if not (isinstance(chunk_count, int | float) and chunk_count >= 1 and chunk_count % 1 == 0):
        raise ArgumentError("chunk_count", chunk_count, "a whole number of at least 1")
    return int(chunk_count)


class LibraryTrees(Collective):
    r"""Two binary trees as in the fits of libraries' constants: any number of chunks, two rounds a level.

    .. math:: T = 2 \left(\sqrt{n \beta} + \sqrt{2 L \alpha}\right)^2 + n \gamma, \qquad L = \lceil \log_2 p \rceil

    For ``chunk_count`` k (above, the best one) it is :math:`2 (2 L + k) (\alpha + n \beta / k) + n \gamma`.

    Notes
    -----
    Valid for: chunks of any size, p >= 3; for two workers both trees are one link. Ignores: that chunks are whole
    numbers of bytes, and that reducing and broadcasting may overlap. Each rank sends and receives one chunk a round, as
    in [1]_; ``DoubleBinaryTree`` lets the messages of a rank share its port, and needs half of the rounds.

    Examples
    --------
    >>> tree = LibraryTrees()
    >>> 1e6 * tree.time(size_bytes=4096, worker_count=64, latency_s=5e-6, seconds_per_byte=1e-10)
    140.649

    References
    ----------
    .. [1] P. Sanders, J. Speck, J. L. Träff, Two-tree algorithms for full bandwidth broadcast, reduction and scan,
       Parallel Computing 35(12), 2009, doi:10.1016/j.parco.2009.09.001.
    """

    name = "library_trees"
    option_names: ClassVar[tuple[str, ...]] = ("chunk_count",)
    plays = False

    def cost(self, link: Hockney, worker_count: Quantity) -> Quantity:  # noqa: D102
        hops = self.fill_latency(worker_count, near_s=1, far_s=1)
        passes = self.passes(worker_count)
        return pipelined_time(
            fill_s=hops * link.alpha,
            stream_s=passes * (link.n * link.beta),
            fill_rounds=hops,
            chunk_count=self.chunk_count,
        ) + link.times(gamma=passes / 2)

    def passes(self, worker_count: Quantity) -> Quantity:
        """Return how often the busiest port sends all bytes. [1]"""
        return 2

    def schedule(self, worker_count: int) -> tuple[Round, ...]:  # noqa: D102
        return _rounds_of_trees(colours(worker_count), worker_count, 1)

    def sent_share(self, worker_count: int) -> float:  # noqa: D102
        return 2.0 * (worker_count - 1)  # half of the bytes over each edge of both trees, up and down

    def fill_rounds(self, worker_count: int) -> int:  # noqa: D102
        return int(self.fill_latency(worker_count, near_s=1, far_s=1))

    def fill_latency(self, worker_count: Quantity, *, near_s: Quantity, far_s: Quantity) -> Quantity:  # noqa: D102
        return 4 * levels(worker_count) * far_s


def _rounds_of_trees(sets: Sequence[Integers], machine_count: int, group_size: int) -> tuple[Round, ...]:
    """Return rounds up and down both trees of the machines' first ranks, with a chain of ranks inside each machine.

    A round has the edges of one set, and its part of what all chains pass.
    """
    starts = np.arange(0, machine_count * group_size, group_size)
    chain = (starts[:, np.newaxis] + np.arange(group_size - 1)).ravel()
    up, down = [], []
    for edges in sets:
        parents, children = map(np.concatenate, zip((chain, chain + 1), group_size * edges.T, strict=True))
        chained = 1 / len(sets)
        share = np.repeat([chained, 0.5], [len(chain), len(edges)]) if chained > 0.5 else 0.5
        up.append(Round(children, parents, share, reduced_share=chained if len(chain) else 0.5))
        down.append(Round(parents, children, share))
    return (*up, *down)


class MachineTrees(LibraryTrees, DoubleBinaryTree):
    r"""Chains inside machines, whose heads are joined by two binary trees for each network adapter, in chunks.

    .. math:: T = \left(\sqrt{2 n \beta} + \sqrt{A}\right)^2 + n \gamma, \qquad
        A = 2 (g - 1) \alpha_i + 4 \lceil \log_2 m \rceil \alpha

    for m machines of g workers (``group_size``), latencies :math:`\alpha_i` inside and :math:`\alpha` between them.

    Notes
    -----
    Valid for: two or more equal machines. Ignores: what ``LibraryTrees`` ignores. Of two machines each has the root of
    one tree and the leaf of the other, so that all bytes pass the adapters once each way, and chains twice [2]_: with
    one worker each, :math:`n \beta` and :math:`n \gamma` are halved. They keep two latencies a level, as the network's
    counts twice in NCCL's estimate for its protocol ``simple`` [3]_.

    Examples
    --------
    >>> tree = MachineTrees()
    >>> seconds = tree.time(size_bytes=4096, worker_count=64, latency_s=5e-6, seconds_per_byte=1e-10, group_size=8)
    >>> round(1e6 * seconds, 2)
    151.46

    References
    ----------
    .. [1] S. Jeaugey, Massively scale your deep learning training with NCCL 2.4, NVIDIA developer blog, 2019.
    .. [2] S. Jeaugey in NVIDIA/nccl, issue 946, Tree bandwidth larger than ring on two nodes, 2023.
    .. [3] NVIDIA/nccl, src/graph/tuning.cc: ``interLat += latencyInter``, once more for ``NCCL_PROTO_SIMPLE``.
    """

    name = "machine_trees"
    option_names = ("group_size", "chunk_count")
    ring = True
    per_adapter = True
    folds = True
    chunk_counts = ()

    def schedule(self, worker_count: int) -> tuple[Round, ...]:  # noqa: D102
        machines = int(group_count(worker_count, self.group_size))
        sets = (np.concatenate(two_trees(2)),) if machines == 2 else colours(machines)
        return _rounds_of_trees(sets, machines, int(self.group_size or 1))

    def passes(self, worker_count: Quantity) -> Quantity:  # noqa: D102
        size = self.group_size or 1
        return 2 if size > 1 else minimum(worker_count - 1, 2)

    def fill_latency(self, worker_count: Quantity, *, near_s: Quantity, far_s: Quantity) -> Quantity:  # noqa: D102
        machines = group_count(worker_count, self.group_size)
        return 2 * ((self.group_size or 1) - 1) * near_s + 4 * levels(machines) * far_s

    def runs_on(self, topology: Topology, ranks: Sequence[str]) -> bool:  # noqa: D102
        machines = Counter(topology.places[name].node for name in ranks if name in topology.places)
        return len(machines) > 1 and len(set(machines.values())) == 1
