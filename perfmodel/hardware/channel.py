"""Channels, the wires they belong to, and routes over them: the small frozen records of a topology."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

from perfmodel.errors import ArgumentError
from perfmodel.symbolic import is_symbolic


@dataclass(frozen=True, kw_only=True, slots=True)
class Channel:
    """What data flow through in one direction of a link, or in both of a half-duplex one or of a memory bus.

    Parameters
    ----------
    name : str
        Unique in its topology, e.g. ``gpu0>root0``. [-]
    capacity_bytes_per_s : float
        What large copies reach: after line code, packets and typical efficiency. [B/s]
    raw_bytes_per_s : float
        Bits on the wire. [B/s]
    latency_s : float
        What passing it adds to a message. [s]
    startup_s : float
        Time of an empty message over such a link from end to end, paid once by a copy. [s]
    link : str
        Name of the link, e.g. ``pcie_3_x16``. [-]

    Raises
    ------
    ArgumentError
        If a rate is not above zero, a latency is below zero, or one is not finite.
    """

    name: str
    capacity_bytes_per_s: float
    raw_bytes_per_s: float
    latency_s: float = 0.0
    startup_s: float = 0.0
    link: str = ""

    def __post_init__(self) -> None:
        rates, delays = ("capacity_bytes_per_s", "raw_bytes_per_s"), ("latency_s", "startup_s")
        if is_symbolic(*(getattr(self, key) for key in (*rates, *delays))):
            return  # nothing is known of a symbol
        for key in rates:
            if not 0 < (given := getattr(self, key)) < math.inf:
                msg = f"{key} of channel {self.name!r}"
                raise ArgumentError(msg, given, "finite and above 0 B/s")
        for key in delays:
            if not 0 <= (given := getattr(self, key)) < math.inf:
                msg = f"{key} of channel {self.name!r}"
                raise ArgumentError(msg, given, "finite and at least 0 s")


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A node of a topology.

    Parameters
    ----------
    name : str
        Unique, e.g. ``gpu0`` or ``node1/gpu0``. [-]
    kind : str
        One of ``NODE_KINDS``. [-]
    detail : str
        What it is, for people. [-]
    node : str
        The machine of a cluster that it is in; empty in a single machine, and of a fabric. [-]
    copy_engine_count : int
        Engines of a device that copy while it computes; two allow both directions at once. [1]
    has_rdma : bool
        Whether a NIC reads and writes the memories of devices by itself. [-]
    """

    name: str
    kind: str
    detail: str = ""
    node: str = ""
    copy_engine_count: int = 0
    has_rdma: bool = False

    def within(self, node: str) -> Place:
        """Return the same place as part of a machine of a cluster."""
        return replace(self, name=f"{node}/{self.name}", node=node)


@dataclass(frozen=True, kw_only=True, slots=True)
class Wire:
    """A link between two places, with a channel for each direction: one and the same where they share it.

    Parameters
    ----------
    lower, upper : str
        Its ends; ``upper`` is nearer to the sockets, where one is. [-]
    upward, downward : Channel
        From ``lower`` to ``upper``, and back. [-]
    peer : bool
        Whether it joins devices past the host. [-]
    """

    lower: str
    upper: str
    upward: Channel
    downward: Channel
    peer: bool = False

    @classmethod
    def between(
        cls,
        lower: str,
        upper: str,
        *,
        capacity_bytes_per_s: float,
        raw_bytes_per_s: float,
        link: str,
        latency_s: float = 0.0,
        startup_s: float = 0.0,
        half_duplex: bool = False,
        peer: bool = False,
    ) -> Wire:
        """Return a wire both of whose directions are alike."""
        name = f"{lower}={upper}" if half_duplex else f"{lower}>{upper}"
        upward = Channel(
            name=name,
            capacity_bytes_per_s=capacity_bytes_per_s,
            raw_bytes_per_s=raw_bytes_per_s,
            latency_s=latency_s,
            startup_s=startup_s,
            link=link,
        )
        downward = upward if half_duplex else replace(upward, name=f"{upper}>{lower}")
        return cls(lower=lower, upper=upper, upward=upward, downward=downward, peer=peer)

    def times(self, count: float) -> Wire:
        """Return a bundle of such wires as one."""

        def bundled(channel: Channel) -> Channel:
            return replace(
                channel,
                capacity_bytes_per_s=count * channel.capacity_bytes_per_s,
                raw_bytes_per_s=count * channel.raw_bytes_per_s,
                link=f"{count:g} x {channel.link}",
            )

        return replace(self, upward=bundled(self.upward), downward=bundled(self.downward))

    def within(self, node: str) -> Wire:
        """Return the same wire as part of a machine of a cluster."""
        lower, upper = f"{node}/{self.lower}", f"{node}/{self.upper}"
        shared = self.upward == self.downward
        upward = replace(self.upward, name=f"{lower}={upper}" if shared else f"{lower}>{upper}")
        downward = upward if shared else replace(self.downward, name=f"{upper}>{lower}")
        return Wire(lower=lower, upper=upper, upward=upward, downward=downward, peer=self.peer)


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """The way of a copy, of one leg or of several that pause in host memory.

    Parameters
    ----------
    nodes : tuple of str
        Places in order, both ends included. [-]
    channels : tuple of Channel
        Channels in order; a half-duplex one that a staged copy passes twice is listed twice. [-]
    latency_s : float
        Time before the first byte arrives: each leg starts once, each channel adds its passing. [s]
    copy_count : int
        Legs: 1 straight, more where the copy is staged in host memory. [1]
    """

    nodes: tuple[str, ...]
    channels: tuple[Channel, ...]
    latency_s: float
    copy_count: int = 1

    @property
    def capacity_bytes_per_s(self) -> float:
        """What a lone large copy reaches whose legs run at once, piece after piece. [B/s]."""
        passes = Counter(channel.name for channel in self.channels)
        rates = [channel.capacity_bytes_per_s / passes[channel.name] for channel in self.channels]
        return min(rates, default=math.inf)

    @property
    def channel_names(self) -> tuple[str, ...]:
        """Names of the channels in order."""
        return tuple(channel.name for channel in self.channels)

    @property
    def is_staged(self) -> bool:
        """Whether the copy pauses in host memory on its way."""
        return self.copy_count > 1

    def then(self, other: Route) -> Route:
        """Return this route followed by another one that starts where it ends."""
        return Route(
            nodes=(*self.nodes, *other.nodes[1:]),
            channels=(*self.channels, *other.channels),
            latency_s=self.latency_s + other.latency_s,
            copy_count=self.copy_count + other.copy_count,
        )
