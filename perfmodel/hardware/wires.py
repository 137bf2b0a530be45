"""Places of a system, the wires between them, and the wires of many machines, made when they are asked for."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from perfmodel.errors import ArgumentError
from perfmodel.symbolic import is_symbolic


@dataclass(frozen=True, kw_only=True, slots=True)
class Channel:
    """One direction of a link, or both directions of a half-duplex link or memory bus."""

    name: str
    capacity_bytes_per_s: float
    raw_bytes_per_s: float
    latency_s: float = 0.0
    startup_s: float = 0.0
    link: str = ""

    @property
    def ends(self) -> tuple[str, str, str]:
        """First node, sign and second node of its name; ``=`` joins nodes that share both directions."""
        one, sign, other = re.split("([>=])", self.name)
        return one, sign, other

    def renamed(self, name: str) -> Channel:
        """Return the channel under another name; its numbers are known to be valid."""
        copy, fill = object.__new__(Channel), object.__setattr__
        fill(copy, "name", name)
        fill(copy, "capacity_bytes_per_s", self.capacity_bytes_per_s)
        fill(copy, "raw_bytes_per_s", self.raw_bytes_per_s)
        fill(copy, "latency_s", self.latency_s)
        fill(copy, "startup_s", self.startup_s)
        fill(copy, "link", self.link)
        return copy

    def __post_init__(self) -> None:
        rates, delays = ("capacity_bytes_per_s", "raw_bytes_per_s"), ("latency_s", "startup_s")
        if is_symbolic(*(getattr(self, key) for key in (*rates, *delays))):
            return  # the value of a symbol is unknown
        for key in rates:
            if not 0 < (bytes_per_s := getattr(self, key)) < math.inf:
                msg = f"{key} of channel {self.name!r}"
                raise ArgumentError(msg, bytes_per_s, "finite and above 0 B/s")
        for key in delays:
            if not 0 <= (seconds := getattr(self, key)) < math.inf:
                msg = f"{key} of channel {self.name!r}"
                raise ArgumentError(msg, seconds, "finite and at least 0 s")


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A node of a topology."""

    name: str
    kind: str
    detail: str = ""
    node: str = ""
    copy_engine_count: int = 0
    has_rdma: bool = False
    reduces: bool = False
    in_order: bool = True

    def within(self, node: str) -> Place:
        """Return the place renamed for a machine of a cluster."""
        return Place(  # in a third of the time of ``replace``, for tens of thousands of places
            name=f"{node}/{self.name}",
            kind=self.kind,
            detail=self.detail,
            node=node,
            copy_engine_count=self.copy_engine_count,
            has_rdma=self.has_rdma,
            reduces=self.reduces,
            in_order=self.in_order,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Wire:
    """A link between two places, with a channel for each direction, or one that both share."""

    lower: str
    upper: str
    upward: Channel
    downward: Channel
    peer: bool = False

    @classmethod
    def between(cls, lower: str, upper: str, *, half_duplex: bool = False, peer: bool = False, **numbers: Any) -> Wire:
        """Return a wire with the same numbers, those of a ``Channel``, in both directions."""
        upward = Channel(name=f"{lower}={upper}" if half_duplex else f"{lower}>{upper}", **numbers)
        downward = upward if half_duplex else replace(upward, name=f"{upper}>{lower}")
        return cls(lower=lower, upper=upper, upward=upward, downward=downward, peer=peer)

    def times(self, count: float) -> Wire:
        """Return several wires like this one as a single wire."""

        def bundled(channel: Channel) -> Channel:
            return replace(
                channel,
                capacity_bytes_per_s=count * channel.capacity_bytes_per_s,
                raw_bytes_per_s=count * channel.raw_bytes_per_s,
                link=f"{count:g} x {channel.link}",
            )

        return replace(self, upward=bundled(self.upward), downward=bundled(self.downward))

    def within(self, node: str) -> Wire:
        """Return the wire renamed for a machine of a cluster."""
        return self.joining(f"{node}/{self.lower}", f"{node}/{self.upper}")

    def joining(self, lower: str, upper: str) -> Wire:
        """Return a wire like this one between two other places."""
        shared = self.upward.name == self.downward.name
        upward = self.upward.renamed(f"{lower}={upper}" if shared else f"{lower}>{upper}")
        downward = upward if shared else self.downward.renamed(f"{upper}>{lower}")
        return Wire(lower=lower, upper=upper, upward=upward, downward=downward, peer=self.peer)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineWires:
    """Wires of a cluster: a prediction asks for those of few machines, so each machine's are made when asked for.

    ``between`` are those from machines to switches, and among switches; places of a machine are named without it.
    """

    between: tuple[Wire, ...]
    machines: tuple[tuple[str, tuple[Wire, ...]], ...]
    _inside: dict[str, tuple[Wire, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._inside.update(self.machines)

    def __hash__(self) -> int:
        return hash((self.between, tuple(name for name, _ in self.machines)))

    def __reduce__(self) -> tuple[Callable[..., MachineWires], tuple[()]]:
        return partial(MachineWires, between=self.between, machines=self.machines), ()

    def of(self, machine: str) -> tuple[Wire, ...]:
        """Return the wires inside a machine; for an empty name those between machines."""
        return tuple(wire.within(machine) for wire in self._inside[machine]) if machine else self.between

    def __iter__(self) -> Iterator[Wire]:
        yield from self.between
        for name, _ in self.machines:
            yield from self.of(name)

    def __len__(self) -> int:
        return len(self.between) + sum(len(wires) for _, wires in self.machines)

    def changed(self, change: Callable[[Wire], Wire]) -> MachineWires:
        """Return the same cluster with changed wires; those of equal machines are changed once."""
        known = {id(wires): tuple(map(change, wires)) for _, wires in self.machines}
        machines = tuple((name, known[id(wires)]) for name, wires in self.machines)
        return MachineWires(between=tuple(map(change, self.between)), machines=machines)


Wires = tuple[Wire, ...] | MachineWires
"""All wires of a system."""


def changed_wires(wires: Wires, change: Callable[[Wire], Wire]) -> Wires:
    """Change every wire in the same way."""
    return wires.changed(change) if isinstance(wires, MachineWires) else tuple(map(change, wires))
