"""Time of exchanges between devices, by collective, over links or on a system."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from perfmodel.records import Phase
from perfmodel.sync.placed import Placed
from perfmodel.sync.placed_alike import likeness_of, placed_once
from perfmodel.sync.registry import LibraryCollective, collective, place_library

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perfmodel.hardware.library import CollectiveLibrary
    from perfmodel.hardware.link import Link
    from perfmodel.hardware.topology import Topology
    from perfmodel.parallelism.base import Exchange, Layout, Placement, StageGraph
    from perfmodel.sync.base import Collective

RING: Final = "ring_all_reduce"
"""Algorithm that sums within groups that share layers; data-parallel workers may use another."""

ALGORITHM_OF: Final = {
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "send": "send_receive",
    "all_to_all": "all_to_all",
    "pass_on": "all_gather",
}
"""Kind of exchange -> its collective; kinds not listed use an all-reduce."""

Groups = tuple[tuple[str, ...], ...]
"""Groups of devices that exchange at the same time."""


class Exchanges(Protocol):
    """Time of exchanges inside a worker and of gathering parameters that workers share."""

    @property
    def library(self) -> CollectiveLibrary | None:
        """Library of collectives in use; None if algorithms are named."""

    def __call__(self, exchange: Exchange, size_bytes: Any, stage: StageGraph) -> Any:
        """Time of an exchange of this many bytes [B] of a stage. [s]"""

    def sent_bytes(self, exchange: Exchange, size_bytes: float, stage: StageGraph) -> float:
        """Mean bytes that a device sends in such an exchange. [B]"""

    def taken_share(self, exchange: Exchange, stage: StageGraph) -> Any:
        """Share of a device that the messages of an exchange occupy. [1]"""


def algorithm_of(exchange: Exchange) -> Collective:
    """Return the collective for an exchange inside a worker, or for parameters that workers share."""
    return collective(ALGORITHM_OF.get(exchange.kind, RING))


def group_size(placement: Placement, exchange: Exchange, stage: StageGraph) -> int:
    """Return the number of devices in an exchange. [1]"""
    layout = placement.layout
    sizes = {
        "data": layout.data_size,
        "tensor": layout.tensor_size * stage.batch_factor,
        "context": layout.context_size,
        "pipeline": 2 if exchange.kind == "send" else len(_sharing(placement, exchange, stage)),
    }
    return sizes[exchange.group]


@dataclass(frozen=True, kw_only=True)
class OnLink:
    """A collective over links that no other traffic uses."""

    collective: Collective
    link: Link
    worker_count: int

    def time(self, size_bytes: Any) -> Any:
        """Time of a collective of this many bytes [B]. [s]"""
        return self.collective.time(
            size_bytes=size_bytes,
            worker_count=self.worker_count,
            latency_s=self.link.latency_s,
            seconds_per_byte=1 / self.link.effective_bandwidth_bytes_per_s,
        )


@dataclass(frozen=True, kw_only=True)
class LinkExchanges:
    """Exchanges over links that no other traffic uses; calling it gives seconds."""

    placement: Placement
    links: Mapping[str, Link]
    library: CollectiveLibrary | None = None

    def __call__(self, exchange: Exchange, size_bytes: Any, stage: StageGraph) -> Any:
        """Time of an exchange of this many bytes [B] of a stage. [s]"""
        count = group_size(self.placement, exchange, stage)
        on_link = OnLink(collective=algorithm_of(exchange), link=self.links[exchange.group], worker_count=count)
        return on_link.time(size_bytes)

    def sent_bytes(self, exchange: Exchange, size_bytes: float, stage: StageGraph) -> float:
        """Bytes a device sends in an exchange; unknown over bare links. [B]"""
        return math.nan

    def taken_share(self, exchange: Exchange, stage: StageGraph) -> Any:
        """Share of a device that messages occupy: none over bare links. [1]"""
        del exchange, stage
        return 0.0


@dataclass(frozen=True, kw_only=True)
class PlacedExchanges:
    """Exchanges on a system, where simultaneous groups share channels; calling it gives seconds.

    ``names`` lists the devices by copy of the network, then by stage, then by place in a tensor group, after the
    framework has put them on the system. Sums among workers belong to their agreement.
    """

    placement: Placement
    topology: Topology
    names: tuple[str, ...]
    library: CollectiveLibrary | None = None
    unit_count: int = 1
    _known: dict[object, Placed | LibraryCollective | None] = field(default_factory=dict)
    _times: dict[tuple[int, bytes], Any] = field(default_factory=dict)
    _alike: dict[object, int] = field(default_factory=dict)

    def __call__(self, exchange: Exchange, size_bytes: Any, stage: StageGraph) -> Any:
        """Time of an exchange of this many bytes [B] of a stage. [s]"""
        placed = self.placed(exchange, stage)
        if placed is None:
            return 0.0
        if not isinstance(size_bytes, np.ndarray) or size_bytes.dtype == object:
            return placed.time(size_bytes)
        key = (id(placed), size_bytes.tobytes())
        if key not in self._times:
            self._times[key] = placed.time(size_bytes)
        return self._times[key]

    def sent_bytes(self, exchange: Exchange, size_bytes: float, stage: StageGraph) -> float:
        """Mean bytes that a device of a stage sends in an exchange of this many bytes [B]. [B]"""
        placed, groups = self.placed(exchange, stage), self._groups(exchange, stage)
        if placed is None:
            return 0.0
        senders = len(groups) * (1 if exchange.kind == "send" else len(groups[0]))
        return float(placed.sent_bytes(size_bytes)) / senders

    def taken_share(self, exchange: Exchange, stage: StageGraph) -> Any:
        """Share of a device that messages of the library occupy. [1]"""
        placed = self.placed(exchange, stage)
        return placed.taken_share(unit_count=self.unit_count) if isinstance(placed, LibraryCollective) else 0.0

    def placed(self, exchange: Exchange, stage: StageGraph) -> Placed | LibraryCollective | None:
        """Place an exchange of all its simultaneous groups on the topology."""
        key = (exchange.kind, *self._among(exchange, stage))
        if key not in self._known:
            groups = self._groups(exchange, stage)
            self._known[key] = None if len(groups[0]) == 1 else self._placed(exchange, self.topology, groups)
        return self._known[key]

    def likeness(self, exchange: Exchange, stage: StageGraph) -> int:
        """Key shared by exchanges of a kind whose groups lie alike on the topology, and so take as long. [1]"""
        among = self._among(exchange, stage)
        known = self._alike.get(among)
        if known is None:
            groups = likeness_of(self.topology, self._groups(exchange, stage))
            known = self._alike[among] = self._alike.setdefault(groups, len(self._alike))
        return known

    def _among(self, exchange: Exchange, stage: StageGraph) -> tuple[str, object]:
        """Key of the groups of an exchange."""
        if exchange.group == "pipeline":
            return exchange.group, self._ends(exchange, stage)
        if exchange.group == "context":
            return exchange.group, None
        return exchange.group, stage.batch_factor if exchange.group == "tensor" else stage.device

    def _ends(self, exchange: Exchange, stage: StageGraph) -> tuple[int, ...]:
        """Devices of a pipeline that exchange among stages."""
        if exchange.kind == "send":
            return (stage.device, stage.device + (1 if exchange.phase is Phase.FORWARD else -1))
        return _sharing(self.placement, exchange, stage)

    def _placed(self, exchange: Exchange, topology: Topology, groups: Groups) -> Placed | LibraryCollective:
        if self.library is not None and exchange.kind in self.library.operation:
            return place_library(self.library, exchange.kind, topology, groups[0], beside=groups[1:])
        return placed_once(algorithm_of(exchange), topology, groups[0], beside=groups[1:])

    def _groups(self, exchange: Exchange, stage: StageGraph) -> Groups:
        layout = self.placement.layout
        width, depth, names = layout.tensor_size, layout.stages, self.names
        if exchange.group == "tensor":
            size = width * stage.batch_factor
            return tuple(names[start : start + size] for start in range(0, len(names), size))
        if exchange.group == "context":
            copy, size = width * depth, layout.context_size
            return tuple(
                names[worker * size * copy + place : (worker + 1) * size * copy : copy]
                for worker in range(layout.batch_count)
                for place in range(copy)
            )
        if exchange.group == "data":
            size = layout.sharing_size if layout.shard_stage else layout.data_size
            return worker_groups(layout, names, stage.device, size=size)
        ends = self._ends(exchange, stage)
        return tuple(
            tuple(names[(worker * depth + end % depth) * width + share] for end in ends)
            for worker in range(layout.data_size)
            for share in range(width)
        )


def worker_groups(layout: Layout, names: tuple[str, ...], place: int, *, size: int) -> Groups:
    """Devices in one place of the workers, in groups of ``size`` [1] that hold the same part of the layers."""
    width, depth = layout.tensor_size, layout.stages
    alike = [names[place * width + share :: depth * width] for share in range(width)]
    return tuple(group[first : first + size] for group in alike for first in range(0, len(group), size))


def _sharing(placement: Placement, exchange: Exchange, stage: StageGraph) -> tuple[int, ...]:
    """Devices of a pipeline that hold the same parameters and therefore sum the same gradients."""
    alike = (exchange.kind, exchange.phase, exchange.fixed_bytes)
    devices = {
        other_stage.device
        for other_stage in placement.stages
        for other in other_stage.exchanges
        if other.group == exchange.group and (other.kind, other.phase, other.fixed_bytes) == alike
    }
    return tuple(sorted(devices | {stage.device}))
