"""Collectives through a central place: a master, parameter servers, host memory or a switch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from perfmodel.errors import ArgumentError
from perfmodel.numeric import maximum, minimum
from perfmodel.symbolic import Quantity
from perfmodel.sync.base import SERVER, Collective, Hockney, Integers, Round, group_count, joined, levels
from perfmodel.sync.pairs import ordered_pairs

if TYPE_CHECKING:
    from perfmodel.hardware.topology import Topology


class OneToAll(Collective):
    r"""One worker is the master of all others.

    .. math:: T = 2 (p - 1) (\alpha + n \beta) + (p - 1) n \gamma

    Notes
    -----
    Valid for: rank 0 as the master, which serves one worker at a time; with :math:`\alpha = \gamma = 0` it is Paleo's
    OneToAll. Ignores: that a message could arrive while the previous one is added up.

    Examples
    --------
    >>> OneToAll().time(size_bytes=1e6, worker_count=4, latency_s=0.0, seconds_per_byte=1e-9)
    0.006

    References
    ----------
    .. [1] H. Qi, E. R. Sparks, A. Talwalkar, Paleo: a performance model for deep neural networks, ICLR 2017.
    """

    name = "one_to_all"

    def cost(self, link: Hockney, worker_count: Quantity) -> Quantity:  # noqa: D102
        others = worker_count - 1
        return link.times(alpha=2 * others, beta=2 * others, gamma=others)

    def schedule(self, worker_count: int) -> tuple[Round, ...]:  # noqa: D102
        master, *others = np.arange(worker_count)[:, np.newaxis]
        taken = [Round(rank, master, 1.0, reduced_share=1.0) for rank in others]
        return (*taken, *(Round(master, rank, 1.0) for rank in others))


class ParameterServer(Collective):
    r"""Synchronous parameter server of S shards, each on its own host.

    .. math:: T = 2 \alpha + 2 n \max\left(\beta, \tfrac{p}{S} \beta_s\right) + \tfrac{p}{S} n \gamma

    Options are ``server_count`` (S) and ``server_s_per_byte`` (:math:`\beta_s`, by default that of the workers).
    If shards are in the workers' own machines, ``place`` sends nothing over the network for a shard in the same
    machine: with one worker and one shard per machine only (p - 1) / p of the bytes cross.

    Notes
    -----
    Valid for: shards of equal size, all workers pushing at once, then all pulling. Ignores: shards that answer before
    the last worker has pushed, work of the host's processor beyond :math:`\gamma`.

    Examples
    --------
    >>> server = ParameterServer()
    >>> numbers = {"size_bytes": 1e6, "worker_count": 8, "latency_s": 0.0, "seconds_per_byte": 1e-9}
    >>> float(server.time(**numbers)), float(server.time(**numbers, server_count=4))
    (0.016, 0.004)

    References
    ----------
    .. [1] M. Li et al., Scaling distributed machine learning with the parameter server, OSDI 2014.
    """

    name = "parameter_server"
    option_names = ("server_count", "server_s_per_byte")
    server_kind = "memory"

    server_count: Any = 1
    server_s_per_byte: Quantity | None = None

    def cost(self, link: Hockney, worker_count: Quantity) -> Quantity:  # noqa: D102
        _check_servers(self.server_count)
        crowd = worker_count / self.server_count
        beta_s = link.beta if self.server_s_per_byte is None else self.server_s_per_byte
        pushed = link.n * maximum(link.beta, crowd * beta_s)
        return link.times(alpha=2, gamma=crowd) + 2 * pushed

    def schedule(self, worker_count: int) -> tuple[Round, ...]:  # noqa: D102
        _check_servers(self.server_count)
        shards = np.arange(SERVER, SERVER - self.server_count, -1)
        ends = np.arange(worker_count).repeat(self.server_count), np.tile(shards, worker_count)
        both = Round(*ends, 1.0), Round(*ends[::-1], 1.0)
        return self.folded(both, worker_count=worker_count)

    def folded(self, rounds: tuple[Round, ...], *, worker_count: int) -> tuple[Round, ...]:  # noqa: D102
        push, pull = rounds
        share = 1 / self.server_count
        return (replace(push, share=share, reduced_share=worker_count * share), replace(pull, share=share))

    def server_count_of(self) -> int:  # noqa: D102
        return int(self.server_count)


def _check_servers(server_count: Quantity) -> None:
    if isinstance(server_count, int | float) and (server_count < 1 or server_count % 1):
        raise ArgumentError("server_count", server_count, "a whole number of at least 1")


class HostTree(Collective):
    r"""All push to host memory through a root of inverse bandwidth :math:`\beta` that they share, then all pull.

    .. math:: T = 2 \alpha + 2 p n \beta + p n \gamma

    Notes
    -----
    Valid for: one root; the last worker ends at the same time whether they are served in turn or at once. Ignores:
    switches that multicast (pulling then takes the time of one copy), and pushes at the same time as pulls.

    Examples
    --------
    Four devices below a root of 12 GB/s:

    >>> HostTree().time(size_bytes=102228128, worker_count=4, latency_s=0.0, seconds_per_byte=1 / 12e9)  # 68.152 ms
    0.068152

    References
    ----------
    .. [1] Wünsche, Performance Factors of Deep Learning and Shallow Neural Network Applications, configuration of one
       CPU and four GPUs.
    """

    name = "host_tree"
    server_kind = "memory"

    def cost(self, link: Hockney, worker_count: Quantity) -> Quantity:  # noqa: D102
        return link.times(alpha=2, beta=2 * worker_count, gamma=worker_count)

    def schedule(self, worker_count: int) -> tuple[Round, ...]:  # noqa: D102
        ends = np.arange(worker_count), np.full(worker_count, SERVER)
        return (Round(*ends, 1.0, reduced_share=float(worker_count)), Round(*ends[::-1], 1.0))


class InNetwork(Collective):
    r"""Messages climb to a switch that adds them, while the previous sum descends.

    .. math:: T = 2 \alpha + n \beta

    Notes
    -----
    Valid for: switches that add as fast as they forward (SHARP, NVSwitch of the third generation). Ignores: how many
    messages a switch can add at once, and ``reduce_s_per_byte``.

    Examples
    --------
    >>> InNetwork().time(size_bytes=1e6, worker_count=64, latency_s=1e-6, seconds_per_byte=1e-9)
    0.001002

    References
    ----------
    .. [1] R. L. Graham et al., Scalable hierarchical aggregation protocol (SHArP), COMHPC 2016,
       doi:10.1109/COMHPC.2016.006.
    """

    name = "in_network"
    server_kind = "switch"

    def cost(self, link: Hockney, worker_count: Quantity) -> Quantity:  # noqa: D102
        return link.times(alpha=2, beta=1)

    def schedule(self, worker_count: int) -> tuple[Round, ...]:  # noqa: D102
        ends = np.arange(worker_count), np.full(worker_count, SERVER)
        both = Round(np.concatenate(ends), np.concatenate(ends[::-1]), 1.0)
        return (both, Round(*ends[::-1], 0.0))  # the last message up still has to come down


class MulticastSwitch(InNetwork):
    r"""Devices read sums from the switch of their machine, and write to all through it, a part each at a time.

    .. math:: T = 2 \alpha + \left(1 + \frac{1}{p}\right) n \beta

    Every device sends what the others' sums need of it, n, and its own finished part, n / p; as much arrives.

    Notes
    -----
    Valid for: one machine whose switch adds and multicasts (NVLink SHARP). Ignores: ``reduce_s_per_byte``.

    Examples
    --------
    Eight devices at 307 GB/s; the bus bandwidth is 2 (p - 1) / p n / T:

    >>> seconds = MulticastSwitch().time(size_bytes=8e9, worker_count=8, latency_s=0.0, seconds_per_byte=1 / 307e9)
    >>> round(2 * 7 / 8 * 8e9 / seconds / 1e9)
    478

    References
    ----------
    .. [1] B. Klenk et al., An in-network architecture for accelerating shared-memory multiprocessor collectives, ISCA
       2020, doi:10.1109/ISCA45697.2020.00085.
    """

    name = "multicast_switch"
    folds = True
    plays = False

    def cost(self, link: Hockney, worker_count: Quantity) -> Quantity:  # noqa: D102
        return link.times(alpha=2, beta=1 + 1 / worker_count)

    def schedule(self, worker_count: int) -> tuple[Round, ...]:  # noqa: D102
        up, down = super().schedule(worker_count)
        return (replace(up, share=1 + 1 / worker_count), down)

    def runs_on(self, topology: Topology, ranks: Sequence[str]) -> bool:  # noqa: D102
        joined = topology.joined_to(ranks[0])
        return any(topology.places[name].reduces and topology.joined_to(name).issuperset(ranks) for name in joined)


def _pairs_inside(worker_count: int, group_size: int) -> tuple[Integers, Integers]:
    """Return the first and the second of every ordered pair of ranks of one machine, for all machines."""
    starts = np.arange(0, worker_count, group_size)[:, np.newaxis]
    first, second = ordered_pairs(group_size)
    return (starts + first).ravel(), (starts + second).ravel()


class FabricSwitch(InNetwork):
    r"""Parts are added up inside each machine, by the switches between machines, and handed out inside, all at once.

    .. math:: T = 4 \alpha + \frac{2 (g - 1) + 1}{g} n \beta

    for machines of g devices (``group_size``), each of which stands for one part; with one device, ``InNetwork``.

    Notes
    -----
    Valid for: equal machines on a fabric whose switches add (SHARP, NCCL's CollNet). Ignores: how many messages a
    switch adds at once, that leaf switches send one sum up instead of all, and switches inside machines that add too.

    Examples
    --------
    >>> switch = FabricSwitch()
    >>> switch.time(size_bytes=8e6, worker_count=16, latency_s=0.0, seconds_per_byte=1e-9, group_size=8)
    0.015

    References
    ----------
    .. [1] NVIDIA, Scalable hierarchical aggregation and reduction protocol: using it with NCCL, documentation.
    """

    name = "fabric_switch"
    option_names = ("group_size",)
    folds = True
    plays = False

    def cost(self, link: Hockney, worker_count: Quantity) -> Quantity:  # noqa: D102
        size = self.group_size or 1
        return link.times(alpha=2 if size == 1 else 4, beta=(2 * size - 1) / size)

    def schedule(self, worker_count: int) -> tuple[Round, ...]:  # noqa: D102
        size = self.group_size or 1
        both, down = super().schedule(worker_count)
        if size == 1:
            return both, down
        near = _pairs_inside(worker_count, size)
        inside = Round(*near, 2 / size)  # a part is on its way to its device, or back from it
        return joined(inside, replace(both, share=1 / size)), down, Round(*near, 0.0, repeat=2)

    def runs_on(self, topology: Topology, ranks: Sequence[str]) -> bool:  # noqa: D102
        adds = any(topology.places[name].reduces for name in topology.fabrics)
        return adds and self.fits(topology, ranks)

    def fits(self, topology: Topology, ranks: Sequence[str]) -> bool:  # noqa: D102
        machines = Counter(topology.places[name].node for name in ranks if name in topology.places)
        return len(machines) > 1 and len(set(machines.values())) == 1


class SwitchTrees(Collective):
    r"""Parts are added up by the switch inside each machine, by two trees between machines, and multicast inside.

    .. math:: T = 2 (1 + \lceil \log_2 m \rceil) \alpha + \left(1 + \frac{1}{g} + \min(m - 1, 2)\right) n \beta

    for m machines of g devices (``group_size``). Inside, a device sends what it sends with ``MulticastSwitch``; between
    machines the sums go up and down two trees with half of the bytes each, for each adapter. All of it runs at once.

    Notes
    -----
    Valid for: two or more equal machines of 2 to 32 devices whose switches add and multicast (NCCL's NVLSTree). Each of
    three machines or more is taken to be inside a tree. Ignores: ``reduce_s_per_byte``.

    Examples
    --------
    Between two machines the bytes cross once each way, between more twice, here through one adapter:

    >>> trees, link = SwitchTrees(), {"latency_s": 0.0, "seconds_per_byte": 1e-9, "group_size": 8}
    >>> [float(trees.time(size_bytes=8e6, worker_count=count, **link)) for count in (16, 32)]
    [0.017, 0.025]

    References
    ----------
    .. [1] NVIDIA/nccl, src/graph/tuning.cc, NCCL_ALGO_NVLS_TREE: latency of the switch, and of two passes of
       log2(machines) levels of the network; src/include/device.h, NCCL_MAX_NVLS_ARITY.
    """

    name = "switch_trees"
    most_devices: ClassVar[int] = 32
    option_names = ("group_size",)
    ring = True
    per_adapter = True
    folds = True
    plays = False

    def cost(self, link: Hockney, worker_count: Quantity) -> Quantity:  # noqa: D102
        size = self.group_size or 1
        machines = group_count(worker_count, size)
        rounds, inside = (2, 1 + 1 / size) if size > 1 else (0, 0)
        return link.times(alpha=rounds + 2 * levels(machines), beta=inside + minimum(machines - 1, 2))

    def schedule(self, worker_count: int) -> tuple[Round, ...]:  # noqa: D102
        size = self.group_size or 1
        machines = int(group_count(worker_count, size))
        # as many bytes over each port as through the switch and in trees, but to neighbours
        ways = np.array((1, -1) if machines > 2 else (1,) * (machines - 1), dtype=int)
        starts = np.arange(0, worker_count, size).repeat(len(ways))
        between = Round(starts, (starts + np.tile(ways * size, machines)) % worker_count, 1.0)
        inside = [Round(*_pairs_inside(worker_count, size), (1 + 1 / size) / (size - 1))] if size > 1 else []
        rounds = [joined(*inside, between)]
        if machines > 1:
            rounds.append(self._levels(between, machine_count=machines))
        return (*rounds, *(replace(round_, share=0.0, repeat=2) for round_ in inside))

    def folded(self, rounds: tuple[Round, ...], *, worker_count: int) -> tuple[Round, ...]:  # noqa: D102
        both, passes, *inside = rounds
        size = 1 + sum(int((round_.sources == 0).sum()) for round_ in inside)
        return (both, self._levels(passes, machine_count=worker_count // size), *inside)

    @staticmethod
    def _levels(far: Round, *, machine_count: int) -> Round:
        """Latencies up and down a tree beyond that of the messages themselves."""
        return replace(far, share=0.0, repeat=2 * levels(machine_count) - 1)

    def runs_on(self, topology: Topology, ranks: Sequence[str]) -> bool:  # noqa: D102
        machines = Counter(topology.places[name].node for name in ranks if name in topology.places)
        size = machines[topology.places[ranks[0]].node] if machines else 0
        if len(machines) < 2 or len(set(machines.values())) > 1 or not 1 < size <= self.most_devices:
            return False
        switch = MulticastSwitch()
        first = topology.places[ranks[0]].node
        return switch.runs_on(topology, [name for name in ranks if topology.places[name].node == first])
