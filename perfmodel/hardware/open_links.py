"""Links of a family at other numbers, or at symbols: what a formula leaves open, and what it is held against."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perfmodel.errors import PerfmodelError
from perfmodel.hardware.link_catalogue import load_link
from perfmodel.hardware.topology import Topology
from perfmodel.symbolic import is_symbolic

if TYPE_CHECKING:
    from perfmodel.hardware.channel import Channel, Route
    from perfmodel.hardware.wired import Wired
    from perfmodel.symbolic import Quantity


class OpenTopology(Topology):
    """A topology some of whose channels carry expressions; data take the ways that the stated numbers give them.

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
    """Return a system all of whose links of a family are so many times as fast, and start so much later.

    Parameters
    ----------
    system : System or Cluster
        The system. [-]
    family : str
        Stem of the family's file, e.g. ``pcie_3``. [-]
    ratio : float or sympy.Expr
        Factor on their bandwidths. [1]
    latency : float or sympy.Expr
        Factor on the time of an empty message over one of them. [1]

    Returns
    -------
    System or Cluster
        The same but for them; with an expression data take the ways that they take as it is. [-]
    """

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
    """Return a product; of a symbol over the number that it stands for, times that number, the symbol itself."""
    product = factor * number
    if not is_symbolic(product):
        return product
    coefficient, rest = product.as_coeff_Mul()
    return rest if abs(coefficient - 1) < 1e-12 else product
