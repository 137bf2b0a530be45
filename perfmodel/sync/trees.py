"""Trees: a message spreads down from the root, and a sum climbs up the same way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from perfmodel.cost.message_protocols import pipelined_time
from perfmodel.symbolic import Quantity
from perfmodel.sync.base import Collective, Hockney, Message, Round, group_count, levels

if TYPE_CHECKING:
    from perfmodel.hardware.topology import Topology


def broadcast_rounds(worker_count: int) -> tuple[Round, ...]:
    """Return rounds that each double the number of ranks that have the message.

    Examples
    --------
    >>> [len(each.messages) for each in broadcast_rounds(6)]
    [1, 2, 2]
    """
    return tuple(
        Round(tuple(Message(rank, rank + 2**round_, 1.0) for rank in range(min(2**round_, worker_count - 2**round_))))
        for round_ in range(levels(worker_count))
    )


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

    def cost(self, link: Hockney, worker_count: Quantity, **options: Any) -> Quantity:  # noqa: D102
        return link.times(alpha=levels(worker_count), beta=levels(worker_count))

    def schedule(self, worker_count: int, **options: Any) -> tuple[Round, ...]:  # noqa: D102
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

    def cost(self, link: Hockney, worker_count: Quantity, **options: Any) -> Quantity:  # noqa: D102
        climbed = levels(worker_count)
        return link.times(alpha=2 * climbed, beta=2 * climbed, gamma=climbed)

    def schedule(self, worker_count: int, **options: Any) -> tuple[Round, ...]:  # noqa: D102
        down = broadcast_rounds(worker_count)
        up = tuple(
            Round(tuple(Message(message.sink, message.source, 1.0) for message in round_.messages), reduced_share=1.0)
            for round_ in reversed(down)
        )
        return (*up, *down)


Edge = tuple[int, int]


def two_trees(worker_count: int) -> tuple[tuple[Edge, ...], tuple[Edge, ...]]:
    """Edges, from parent to child, of two trees in which no rank has children in both.

    Examples
    --------
    >>> two_trees(4)
    (((2, 1), (0, 2), (2, 3)), ((1, 2), (3, 1), (1, 0)))
    """
    first = tuple((_parent(rank, worker_count), rank) for rank in range(1, worker_count))

    def other(rank: int) -> int:
        return (rank + 1) % worker_count if worker_count % 2 else worker_count - 1 - rank

    return first, tuple((other(parent), other(child)) for parent, child in first)


def _parent(rank: int, worker_count: int) -> int:
    lowest = rank & -rank
    above = (rank ^ lowest) | (lowest << 1)
    return above if above < worker_count else rank ^ lowest


def colours(worker_count: int) -> tuple[tuple[Edge, ...], tuple[Edge, ...]]:
    """Split the edges of both trees into two sets; in each, every rank sends and receives at most once.

    Examples
    --------
    >>> colours(2)
    (((0, 1),), ((1, 0),))
    """
    edges = [edge for tree in two_trees(worker_count) for edge in tree]
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
    return tuple(tuple(edge for place, edge in enumerate(edges) if colour[place] == tree) for tree in (0, 1))  # type: ignore[return-value]


class DoubleBinaryTree(Collective):
    r"""Reduce up two trees at once, broadcast down both, in chunks of the best size.

    .. math:: T = 2 \left(\sqrt{n \beta} + \sqrt{2 L \alpha}\right)^2 + n \gamma, \qquad L = \lceil \log_2 p \rceil

    For ``chunk_count`` k (above, the best one) it is :math:`2 (2 L + k) (\alpha + n \beta / k) + n \gamma`.

    Notes
    -----
    Valid for: chunks of any size, p >= 3; for two workers both trees are one link. Ignores: that chunks are whole
    numbers of bytes, and that reducing and broadcasting may overlap. The formula gives each level of a tree two rounds;
    simulated short messages take at most one, and end in a third to all of the time.

    Examples
    --------
    >>> tree = DoubleBinaryTree()
    >>> 1e6 * tree.time(size_bytes=4096, worker_count=64, latency_s=5e-6, seconds_per_byte=1e-10)
    140.649

    References
    ----------
    .. [1] P. Sanders, J. Speck, J. L. Träff, Two-tree algorithms for full bandwidth broadcast, reduction and scan,
       Parallel Computing 35(12), 2009, doi:10.1016/j.parco.2009.09.001.
    """

    name = "double_binary_tree"
    option_names: ClassVar[tuple[str, ...]] = ("chunk_count",)

    def cost(  # noqa: D102
        self, link: Hockney, worker_count: Quantity, *, chunk_count: Quantity | None = None, **options: Any
    ) -> Quantity:
        hops = self.fill_latency(worker_count, near_s=1, far_s=1, **options)
        return pipelined_time(
            fill_s=hops * link.alpha,
            stream_s=2 * (link.n * link.beta),
            fill_rounds=hops,
            chunk_count=chunk_count,
        ) + link.times(gamma=1)

    def schedule(self, worker_count: int, **options: Any) -> tuple[Round, ...]:  # noqa: D102
        return _rounds_of_trees(worker_count, 1)

    def sent_share(self, worker_count: int, **options: Any) -> float:  # noqa: D102
        return 2.0 * (worker_count - 1)  # half of the bytes over each edge of both trees, up and down

    def fill_rounds(self, worker_count: int, **options: Any) -> int:  # noqa: D102
        return int(self.fill_latency(worker_count, near_s=1, far_s=1, **options))

    def fill_latency(  # noqa: D102
        self, worker_count: Quantity, *, near_s: Quantity, far_s: Quantity, **options: Any
    ) -> Quantity:
        return 4 * levels(worker_count) * far_s


def _rounds_of_trees(machine_count: int, group_size: int) -> tuple[Round, ...]:
    """Return rounds up and down both trees of the machines' first ranks, with a chain of ranks inside each machine."""
    starts = range(0, machine_count * group_size, group_size)
    chains = [(start + rank, start + rank + 1) for start in starts for rank in range(group_size - 1)]
    both = [
        (*chains, *((group_size * parent, group_size * child) for parent, child in edges))
        for edges in colours(machine_count)
    ]
    up = [Round(tuple(Message(child, parent, 0.5) for parent, child in edges), reduced_share=0.5) for edges in both]
    return (*up, *(Round(tuple(Message(parent, child, 0.5) for parent, child in edges)) for edges in both))


class MachineTrees(DoubleBinaryTree):
    r"""Chains inside machines, whose heads are joined by two binary trees for each network adapter, in chunks.

    .. math:: T = \left(\sqrt{2 n \beta} + \sqrt{A}\right)^2 + n \gamma, \qquad
        A = 2 (g - 1) \alpha_i + 4 \lceil \log_2 m \rceil \alpha

    for m machines of g workers (``group_size``), latencies :math:`\alpha_i` inside and :math:`\alpha` between them.

    Notes
    -----
    Valid for: two or more equal machines. Ignores: what ``DoubleBinaryTree`` ignores.

    Examples
    --------
    >>> tree = MachineTrees()
    >>> seconds = tree.time(size_bytes=4096, worker_count=64, latency_s=5e-6, seconds_per_byte=1e-10, group_size=8)
    >>> round(1e6 * seconds, 2)
    151.46

    References
    ----------
    .. [1] S. Jeaugey, Massively scale your deep learning training with NCCL 2.4, NVIDIA developer blog, 2019.
    """

    name = "machine_trees"
    option_names = ("group_size", "chunk_count")
    ring = True
    per_adapter = True
    folds = True
    plays = False

    def schedule(self, worker_count: int, *, group_size: int | None = None, **options: Any) -> tuple[Round, ...]:  # noqa: D102
        return _rounds_of_trees(int(group_count(worker_count, group_size)), int(group_size or 1))

    def fill_latency(  # noqa: D102
        self,
        worker_count: Quantity,
        *,
        near_s: Quantity,
        far_s: Quantity,
        group_size: int | None = None,
        **options: Any,
    ) -> Quantity:
        machines = group_count(worker_count, group_size)
        return 2 * ((group_size or 1) - 1) * near_s + 4 * levels(machines) * far_s

    def runs_on(self, topology: Topology, ranks: Sequence[str]) -> bool:  # noqa: D102
        machines = Counter(topology.places[name].node for name in ranks if name in topology.places)
        return len(machines) > 1 and len(set(machines.values())) == 1
