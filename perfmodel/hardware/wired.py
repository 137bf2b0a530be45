"""Machines and clusters as graphs of parts: devices, storage, topology, a picture."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.errors import PerfmodelError
from perfmodel.hardware.part_catalogue import load_link
from perfmodel.hardware.topology import Topology
from perfmodel.symbolic import is_symbolic
from perfmodel.units import GIGA

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure

    from perfmodel.hardware.gpu import Gpu
    from perfmodel.hardware.link import Link
    from perfmodel.hardware.source import SpecFile
    from perfmodel.hardware.system import System
    from perfmodel.hardware.topology import Channel, Route, Wire
    from perfmodel.hardware.wiring import StorageArray, Wiring
    from perfmodel.symbolic import Quantity


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One line of a list of parts: a place and the link that leads from it towards the sockets."""

    name: str
    kind: str
    detail: str
    to: str
    link: str
    raw_bytes_per_s: float
    typical_bytes_per_s: float


class Wired(ABC):
    """A machine, or a cluster of machines, as a graph of parts."""

    wiring: Wiring
    file: SpecFile

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name, for people."""

    @property
    @abstractmethod
    def hosts(self) -> Mapping[str, System]:
        """Machines by the names that their nodes' names start with; of a single machine an empty one."""

    @property
    def node_count(self) -> int:
        """Machines. [1]."""
        return 1

    @property
    def devices(self) -> tuple[tuple[str, Gpu], ...]:
        """GPUs by their nodes' names, in file order."""
        return self.wiring.devices

    @property
    def storages(self) -> tuple[StorageArray, ...]:
        """Drives and arrays, in file order."""
        return self.wiring.storages

    @property
    def networks(self) -> tuple[tuple[str, Link], ...]:
        """The network of each adapter by the adapter's node name, in file order."""
        return self.wiring.networks

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks for the reader, such as a card in a slot of a newer generation, or wiring that is presumed."""
        return self.wiring.remarks

    @cached_property
    def topology(self) -> Topology:
        """Its places and the channels between them; made once."""
        return Topology(self.wiring.places, self.wiring.wires)

    def device_counts(self) -> list[str]:
        """Count the devices of each kind, one text each."""
        counts = Counter(device.name for _, device in self.devices)
        return [f"{count} x {name}" for name, count in counts.items()]

    def parts(self) -> tuple[Part, ...]:
        """List every link with its two ends."""
        places = {place.name: place for place in self.wiring.places}
        return tuple(
            Part(
                name=wire.lower,
                kind=places[wire.lower].kind,
                detail=places[wire.lower].detail,
                to=wire.upper,
                link=wire.upward.link,
                raw_bytes_per_s=wire.upward.raw_bytes_per_s,
                typical_bytes_per_s=wire.upward.capacity_bytes_per_s,
            )
            for wire in self.wiring.wires
        )

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw its parts in layers below the sockets, with the bandwidths of the links at their lines.

        Raises
        ------
        ArgumentError
            If the path's ending is not known or it cannot be written.
        """
        from perfmodel.presentation.figures import saved
        from perfmodel.presentation.wiring_figure import DrawnLine, DrawnNode, wiring_figure

        nodes = [
            DrawnNode(name=place.name, kind=place.kind, detail=place.detail, group=place.node)
            for place in self.wiring.places
        ]
        lines = [
            DrawnLine(lower=wire.lower, upper=wire.upper, label=_label(wire), link=wire.upward.link, peer=wire.peer)
            for wire in self.wiring.wires
        ]
        figure = wiring_figure(nodes, lines, title=self.name)
        return saved(figure, path)


def _label(wire: Wire) -> str:
    """Write the bandwidth of large copies over a wire in GB/s: one number, or two where the directions differ."""
    rates = [channel.capacity_bytes_per_s / GIGA for channel in (wire.upward, wire.downward)]
    return " / ".join(dict.fromkeys(f"{rate:.3g}" for rate in rates))


class OpenTopology(Topology):
    """A topology with expressions on some channels; routes follow the stated numbers.

    Parameters
    ----------
    stated : Topology
        The same with numbers alone. [-]
    channels : mapping of str to Channel
        Channels with expressions, by name. [-]
    """

    def __init__(self, stated: Topology, channels: Mapping[str, Channel]) -> None:
        super().__init__(stated.places.values(), stated.wires)
        self._stated, self._open = stated, dict(channels)

    @property
    def stated(self) -> Topology:  # noqa: D102
        return self._stated

    def legs(self, source: str, sink: str, *, through_host: bool = False) -> tuple[Route, ...]:  # noqa: D102
        return tuple(self._opened(leg) for leg in self._stated.legs(source, sink, through_host=through_host))

    def _opened(self, leg: Route) -> Route:
        channels = tuple(self._open.get(channel.name, channel) for channel in leg.channels)
        latency_s = sum(channel.latency_s for channel in channels) + self._startup_s(leg.nodes, channels)
        return replace(leg, channels=channels, latency_s=latency_s)


def with_links_scaled(system: Wired, family: str, ratio: Quantity, *, latency: Quantity = 1.0) -> Wired:
    """Return a system with all links of a family faster by a factor, and with added latency."""

    def scaled(channel: Channel) -> Channel:
        if not _is_of_family(channel, family):
            return channel
        rates = {name: _times(ratio, getattr(channel, name)) for name in ("capacity_bytes_per_s", "raw_bytes_per_s")}
        return replace(channel, startup_s=_times(latency, channel.startup_s), **rates)

    stated = system.topology
    if is_symbolic(ratio, latency):
        topology: Topology = OpenTopology(stated, {name: scaled(each) for name, each in stated.channels.items()})
    else:
        wires = [replace(wire, upward=scaled(wire.upward), downward=scaled(wire.downward)) for wire in stated.wires]
        topology = Topology(stated.places.values(), wires)
    changed = copy.copy(system)
    changed.__dict__["topology"] = topology
    return changed


def _is_of_family(channel: Channel, family: str) -> bool:
    try:
        return load_link(channel.link.rsplit(" x ", 1)[-1]).family.stem == family
    except PerfmodelError:  # a bus of a socket, which is no link of the catalogue
        return False


def _times(factor: Quantity, number: float) -> Any:
    """Multiply; a symbol over its own number, times that number, becomes the symbol."""
    product = factor * number
    if not is_symbolic(product):
        return product
    coefficient, rest = product.as_coeff_Mul()
    return rest if abs(coefficient - 1) < 1e-12 else product
