"""Sockets of a machine with the same parts: a route between some of them stands for the routes between all.

Below each socket hangs a branch: its memory, devices and adapters, but no drives, which no route passes through. Two
branches are alike if swapping them, part by part, changes nothing in the wiring of the machine. This is checked wire by
wire, so that any order of alike branches is as good as any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfmodel.hardware.topology import Topology
    from perfmodel.hardware.wires import Channel

numbers = attrgetter("capacity_bytes_per_s", "latency_s", "startup_s")
"""Numbers of a channel; channels with the same ones are equally fast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branches:
    """Branches of a machine by number; parts are named without the machine.

    ``parts`` of alike branches are in the same order; ``alike`` are the branches alike to each, including itself.
    """

    parts: tuple[tuple[str, ...], ...]
    alike: tuple[tuple[int, ...], ...]
    _branch: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _likened: dict[tuple[str, ...], tuple[tuple[str, ...], dict[str, str]]] = field(
        default_factory=dict, init=False, repr=False
    )
    _orders: dict[tuple[int, ...], dict[str, str]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self._branch.update((part, number) for number, parts in enumerate(self.parts) for part in parts)

    def likened(self, *parts: str) -> tuple[tuple[str, ...], Mapping[str, str]]:
        """Return the like parts of the first alike branches, and the map from their parts back to these branches."""
        if not self._branch.keys() >= {*parts}:  # a device that hangs on no socket
            return parts, {}
        if parts not in self._likened:
            branches = tuple(dict.fromkeys(self._branch[part] for part in parts))
            first: dict[int, int] = {}
            for branch in branches:
                first[branch] = next(other for other in self.alike[branch] if other not in first.values())
            of_first = [(self.parts[self._branch[part]].index(part), first[self._branch[part]]) for part in parts]
            if branches not in self._orders:
                self._orders[branches] = self._order(first)
            self._likened[parts] = tuple(self.parts[place][at] for at, place in of_first), self._orders[branches]
        return self._likened[parts]

    def _order(self, first: Mapping[int, int]) -> dict[str, str]:
        """Map each part of the first branches to the part at its place in other branches."""
        stands = {number: number for number in range(len(self.parts))}
        for branch, place in first.items():
            left = next(number for number, stand_in in stands.items() if stand_in == branch)
            stands[place], stands[left] = branch, stands[place]
        return {
            old: new
            for place, branch in stands.items()
            if place != branch
            for old, new in zip(self.parts[place], self.parts[branch], strict=True)
        }


def branches_of(topology: Topology, node: str) -> Branches:
    """Find the branches of a machine, and those that may be swapped."""
    sockets: dict[str, list[str]] = {}
    for name in topology.members(node):
        *_, top = topology.upwards(name)
        if topology.places[top].kind == "socket" and topology.places[name].kind != "storage":
            sockets.setdefault(top, []).append(name)
    branches = list(sockets.values())
    alike: list[list[int]] = []
    for number, parts in enumerate(branches):
        known = next((others for others in alike if _swap(topology, branches[others[0]], parts)), None)
        if known is None:
            alike.append([number])
        else:
            known.append(number)
    of_branch = {number: tuple(others) for others in alike for number in others}
    return Branches(
        parts=tuple(tuple(name.removeprefix(node) for name in parts) for parts in branches),
        alike=tuple(of_branch[number] for number in range(len(branches))),
    )


def _swap(topology: Topology, one: Sequence[str], other: Sequence[str]) -> bool:
    """Tell whether two branches may be swapped, part by part, without a change in the wiring."""
    if len(one) != len(other):
        return False
    swapped = dict(zip(one, other, strict=True)) | dict(zip(other, one, strict=True))

    def moved(name: str | None) -> str | None:
        return name if name is None else swapped.get(name, name)

    def wired(name: str) -> dict[str, list[object]]:
        near = [beside for beside in topology.channels_to(name) if topology.places[beside].kind != "storage"]
        return {beside: _joint(topology, name, beside) for beside in near}

    for name, place in zip(one, other, strict=True):
        kinds = [replace(topology.places[part], name="") for part in (name, place)]
        if kinds[0] != kinds[1]:
            return False
        if kinds[0].kind != "socket" and moved(topology.above(name)) != topology.above(place):
            return False
        if kinds[0].kind == "device" and moved(topology.own_nic(name)) != topology.own_nic(place):
            return False
        if {moved(beside): joint for beside, joint in wired(name).items()} != wired(place):
            return False
    return True


def _joint(topology: Topology, name: str, beside: str) -> list[object]:
    """Return the numbers of the channels between two neighbours, and whether one channel serves both directions."""
    there: list[Channel] = topology.channels_to(name)[beside]
    back: list[Channel] = topology.channels_to(beside)[name]
    return [(numbers(one), numbers(other), one is other) for one, other in zip(there, back, strict=True)]
