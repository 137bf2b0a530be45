"""How long exchanges between devices take: by the collective they name, over links or on a system's topology."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from perfmodel.prediction.group_server import ServedGroups
from perfmodel.sync.collectives import collective
from perfmodel.sync.library import place_library
from perfmodel.sync.placed import place

if TYPE_CHECKING:
    from perfmodel.hardware.collective_library import CollectiveLibrary
    from perfmodel.hardware.link import Link
    from perfmodel.hardware.topology import Topology
    from perfmodel.parallelism import Exchange, Placement, StageGraph
    from perfmodel.sync.base import Collective
    from perfmodel.sync.library import LibraryCollective
    from perfmodel.sync.placed import Placed

RING: Final = "ring_all_reduce"
"""How groups that share layers add up; data-parallel workers may do it another way."""

ALGORITHM_OF: Final = {"all_gather": "all_gather", "reduce_scatter": "reduce_scatter", "send": "send_receive"}
"""Kind of exchange -> collective, where it is no all-reduce."""

Groups = tuple[tuple[str, ...], ...]
"""Devices that exchange with one another, all groups that do so at once."""


def algorithm_of(exchange: Exchange, *, all_reduce: str = RING) -> Collective:
    """Return the collective of an exchange.

    Parameters
    ----------
    exchange : Exchange
        The exchange. [-]
    all_reduce : str
        How data-parallel workers add up gradients. [-]

    Returns
    -------
    Collective
        The algorithm. [-]
    """
    sums = all_reduce if exchange.group == "data" else RING
    return collective(ALGORITHM_OF.get(exchange.kind, sums))


def group_size(placement: Placement, exchange: Exchange, stage: StageGraph) -> int:
    """Return how many devices take part in an exchange.

    Parameters
    ----------
    placement : Placement
        The network on devices. [-]
    exchange : Exchange
        The exchange. [-]
    stage : StageGraph
        Where it happens. [-]

    Returns
    -------
    int
        Devices of one group. [1]
    """
    layout = placement.layout
    sizes = {
        "data": layout.data_size,
        "tensor": layout.tensor_size * stage.batch_factor,
        "pipeline": 2 if exchange.kind == "send" else len(_sharing(placement, exchange, stage)),
    }
    return sizes[exchange.group]


@dataclass(frozen=True, kw_only=True)
class LinkExchanges:
    """Exchanges over links that each device has to itself: a callable that returns seconds.

    Parameters
    ----------
    placement : Placement
        The network on devices. [-]
    links : mapping of str to Link
        Link of the devices of each group: ``data``, ``tensor``, ``pipeline``. [-]
    all_reduce : str
        How data-parallel workers add up gradients. [-]
    """

    placement: Placement
    links: Mapping[str, Link]
    all_reduce: str = RING

    def __call__(self, exchange: Exchange, size_bytes: float, stage: StageGraph) -> float:
        """Return the time of an exchange of so many bytes [B] of a stage. [s]"""
        link = self.links[exchange.group]
        return float(
            algorithm_of(exchange, all_reduce=self.all_reduce).time(
                size_bytes=size_bytes,
                worker_count=group_size(self.placement, exchange, stage),
                latency_s=link.latency_s,
                seconds_per_byte=1 / link.effective_bandwidth_bytes_per_s,
            )
        )


@dataclass(frozen=True, kw_only=True)
class PlacedExchanges:
    """Exchanges on a system, where groups that exchange at once share channels: a callable that returns seconds.

    Devices are taken in the order of the system's file: those of a tensor group are neighbours, then come the stages
    of a pipeline, then the data-parallel workers.

    Parameters
    ----------
    placement : Placement
        The network on devices. [-]
    topology : Topology or None
        The system; None for one device, which exchanges nothing. [-]
    names : tuple of str
        Nodes of the devices. [-]
    all_reduce : str or None
        How data-parallel workers add up gradients; None where they exchange nothing. [-]
    options : mapping of str to object
        Its own options. [-]
    library : CollectiveLibrary or None
        Whose operations all groups call, as far as it has them. [-]
    served : ServedGroups
        The parameter server that adds up gradients; none unless given. [-]
    """

    placement: Placement
    topology: Topology | None
    names: tuple[str, ...]
    all_reduce: str | None = RING
    options: Mapping[str, Any] = field(default_factory=dict)
    library: CollectiveLibrary | None = None
    served: ServedGroups = field(default_factory=ServedGroups)
    _known: dict[object, Placed | LibraryCollective] = field(default_factory=dict)

    def __call__(self, exchange: Exchange, size_bytes: float, stage: StageGraph) -> float:
        """Return the time of an exchange of so many bytes [B] of a stage. [s]"""
        placed = self.placed(exchange, stage)
        if placed is None:
            return 0.0
        alone_s = float(placed.time(size_bytes))
        return alone_s if not self._is_served(exchange) else self._at_server(alone_s, size_bytes, stage)

    def _at_server(self, alone_s: float, size_bytes: float, stage: StageGraph) -> float:
        """Return the time of a message [s] whose way and server devices at other places of the network share.

        Where links are shared fairly, a device meets each other one for as long as the shorter of both sends.
        """
        own, *others = self._meeting(stage)
        width = self.placement.layout.tensor_size
        met = sum(min(other, own) for other in others) / own
        serving_s = (1 + met) * width * self.served.seconds_per_byte * size_bytes
        if not others or self.topology is None:
            return alone_s + serving_s
        if "server" not in self._known:
            size = width * self.placement.layout.stages
            first, *rest = [self.names[position::size] for position in range(size)]
            algorithm, options = collective(self.all_reduce or RING), dict(self.options)
            self._known["server"] = place(
                algorithm, self.topology, first, beside=rest, servers=self.served.memories, **options
            )
        together_s = float(self._known["server"].time(size_bytes))
        return alone_s + max(0.0, together_s - alone_s) * met / len(others) + serving_s

    def _meeting(self, stage: StageGraph) -> list[float]:
        """Return the gradients of the stage's device, and those of devices at the other places of the pipeline. [1]"""
        counts = [0.0] * self.placement.layout.stages
        for each in self.placement.stages:
            counts[each.device] += each.graph.trained_parameter_count
        return [counts.pop(stage.device), *counts]

    def sent_bytes(self, exchange: Exchange, size_bytes: float, stage: StageGraph) -> float:
        """Return what a device of a stage sends on average for an exchange of so many bytes [B]. [B]"""
        placed, groups = self.placed(exchange, stage), self._groups(exchange, stage)
        if placed is None:
            return 0.0
        senders = len(groups) * (1 if exchange.kind == "send" else len(groups[0]))
        return float(placed.call(size_bytes).placed.sent_bytes(size_bytes)) / senders

    def placed(self, exchange: Exchange, stage: StageGraph) -> Placed | LibraryCollective | None:
        """Return an exchange of all its groups at once on the topology.

        Parameters
        ----------
        exchange : Exchange
            The exchange. [-]
        stage : StageGraph
            Where it happens. [-]

        Returns
        -------
        Placed, LibraryCollective or None
            None where nobody takes part. [-]

        Raises
        ------
        ArgumentError
            If no link leads from one device to another.
        """
        groups = self._groups(exchange, stage)
        if self.topology is None or len(groups[0]) == 1 or self._exchanges_nothing(exchange):
            return None
        key = (exchange.kind, exchange.group, groups)
        if key not in self._known:
            self._known[key] = self._placed(exchange, self.topology, groups)
        return self._known[key]

    def _placed(self, exchange: Exchange, topology: Topology, groups: Groups) -> Placed | LibraryCollective:
        if self.library is not None and exchange.kind in self.library.operation:
            return place_library(self.library, exchange.kind, topology, groups[0], beside=groups[1:])
        algorithm = algorithm_of(exchange, all_reduce=self.all_reduce or RING)
        options = self._options(exchange)
        if self._is_served(exchange):
            options |= {"servers": self.served.memories}
        return place(algorithm, topology, groups[0], beside=groups[1:], **options)

    def _is_served(self, exchange: Exchange) -> bool:
        return bool(self.served.memories) and exchange.group == "data" and exchange.kind == "all_reduce"

    def _exchanges_nothing(self, exchange: Exchange) -> bool:
        return exchange.group == "data" and self.all_reduce is None

    def _options(self, exchange: Exchange) -> dict[str, Any]:
        """Return the options of the strategy, which are for sums of data-parallel workers alone."""
        return dict(self.options) if exchange.group == "data" and exchange.kind == "all_reduce" else {}

    def _groups(self, exchange: Exchange, stage: StageGraph) -> Groups:
        layout = self.placement.layout
        width, depth, names = layout.tensor_size, layout.stages, self.names
        if exchange.group == "tensor":
            size = width * stage.batch_factor
            return tuple(names[start : start + size] for start in range(0, len(names), size))

        def device(worker: int, place: int, share: int) -> str:
            return names[(worker * depth + place % depth) * width + share]

        if exchange.group == "data":
            workers = range(layout.data_size)
            return tuple(tuple(device(worker, stage.device, share) for worker in workers) for share in range(width))
        if exchange.kind == "send":
            after = stage.device + (1 if exchange.phase.value == "forward" else -1)
            ends: tuple[int, ...] = (stage.device, after)
        else:
            ends = _sharing(self.placement, exchange, stage)
        return tuple(
            tuple(device(worker, end, share) for end in ends)
            for worker in range(layout.data_size)
            for share in range(width)
        )


def _sharing(placement: Placement, exchange: Exchange, stage: StageGraph) -> tuple[int, ...]:
    """Return the devices of a pipeline that have the same parameters: those that add up as many gradients."""
    alike = (exchange.kind, exchange.group, exchange.phase, exchange.fixed_bytes)
    found = {
        each.device
        for each in placement.stages
        for other in each.exchanges
        if (other.kind, other.group, other.phase, other.fixed_bytes) == alike
    }
    return tuple(sorted(found | {stage.device}))
