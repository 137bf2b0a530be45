r"""What a system gives to flows that are under way at once, and how that goes on with the number of workers.

The flow that gets least has :math:`\min_c B_c / k_c` of all channels that are passed, as these fill up first where all
flows are alike: k flows over a channel of bandwidth B. Of how many workers there are, k is mostly a simple function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import sympy

from perfmodel.errors import PerfmodelError
from perfmodel.hardware.catalogue import load_link

if TYPE_CHECKING:
    from perfmodel.hardware.channel import Channel, Route
    from perfmodel.hardware.topology import Topology
    from perfmodel.sync.placed import PlacedRound

EQUAL: Final = 1e-12
"""How far apart two numbers of a system may be that are one. [1]"""

SHORTEST: Final = 3
"""Numbers of workers over which flows must rise or fall evenly to be written so: any two lie on a line. [1]"""


class NoForm(Exception):  # noqa: N818 - a turn of the algorithm, no error
    """What a system gives has no simple form."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a flow gets of the channel that bounds it.

    Parameters
    ----------
    flows : float
        Flows that share it, k; one that passes it twice counts twice. [1]
    bandwidth_bytes_per_s : float
        What it carries, B. [B/s]
    """

    flows: float
    bandwidth_bytes_per_s: float

    @property
    def seconds_per_byte(self) -> float:
        """Time of a byte of each of them, k / B. [s/B]"""
        return self.flows / self.bandwidth_bytes_per_s

    def over(self, bandwidth_bytes_per_s: float) -> Share:
        """Return the same in a unit of so much bandwidth [B/s]."""
        return Share(self.flows, self.bandwidth_bytes_per_s / bandwidth_bytes_per_s)


NOTHING: Final = Share(0, 1.0)
"""No channel, which bounds nothing."""


@dataclass(frozen=True, slots=True)
class Way:
    """What a flow gets, told apart by links whose numbers are free.

    Parameters
    ----------
    latency_s : float
        What of its latency is fixed. [s]
    starts : int
        How often it pays the latency of a free link. [1]
    free, fixed : Share
        What bounds it most among links whose bandwidth is free, and among all others. [-]
    """

    latency_s: float
    starts: int
    free: Share
    fixed: Share


Ways = tuple[Way, ...]
"""Flows that are under way at once, of which the last to arrive counts."""

IsFree = Callable[["Channel"], bool]


def of_family(family: str) -> IsFree:
    """Return what tells whether a channel is one of a family's links, by the stem of the family's file."""

    def is_of_family(channel: Channel) -> bool:
        try:
            return load_link(channel.link.rsplit(" x ", 1)[-1]).family.stem == family
        except PerfmodelError:  # a bus of a socket, which is no link of the catalogue
            return False

    return is_of_family


def none_of_them(channel: Channel) -> bool:
    """Tell of every channel that it is none whose number is free."""
    del channel
    return False


def ways_of(
    topology: Topology, ends: Iterable[tuple[str, str]], *, flowing: bool, free_rate: IsFree, free_latency: IsFree
) -> Ways:
    """Return what equal flows get that are under way at once: each latency, and the least rate of all.

    Parameters
    ----------
    topology : Topology
        The system. [-]
    ends : iterable of (str, str)
        Where each begins and ends. [-]
    flowing : bool
        Whether they carry anything. [-]
    free_rate, free_latency : callable
        Tell whether a channel's bandwidth, and its latency, are free. [-]

    Returns
    -------
    tuple of Way
        One for each latency that may be the largest. [-]

    Raises
    ------
    NoForm
        If links whose latency is free and others start one copy together.
    """
    flows: Counter[str] = Counter()
    channels: dict[str, Channel] = {}
    latencies = set()
    for source, sink in ends:
        legs = topology.legs(source, sink)
        latencies.add(_latency(legs, free_latency))
        for channel in (each for leg in legs for each in leg.channels):
            flows[channel.name] += 1
            channels[channel.name] = channel
    shares = [
        (free_rate(channel), Share(flows[name], channel.capacity_bytes_per_s)) for name, channel in channels.items()
    ]
    free, fixed = (
        max((share for is_free, share in shares if flowing and is_free == wanted), key=_seconds, default=NOTHING)
        for wanted in (True, False)
    )
    return tuple(Way(fixed_s, starts, free, fixed) for fixed_s, starts in _largest(latencies))


def ways_by_rate(each: PlacedRound) -> Ways:
    """Return what flows at once get of whom those that start soonest get least: one for each that may be the last."""
    share = max(message.share for message in each.messages)
    flows = Counter(name for route in each.routes for name in route.channel_names)
    channels = {channel.name: channel for route in each.routes for channel in route.channels}
    found = []
    for latency_s, per_byte in each.lines:
        crowds = (Share(flows[name], channel.capacity_bytes_per_s) for name, channel in channels.items())
        alike = (crowd for crowd in crowds if _close(share * crowd.seconds_per_byte, per_byte))
        found.append(Way(latency_s, 0, NOTHING, next(alike, Share(1, share / per_byte))))
    return tuple(found)


def _seconds(share: Share) -> float:
    return share.seconds_per_byte


def _latency(legs: Sequence[Route], is_free: IsFree) -> tuple[float, int]:
    """Return what of a latency is fixed [s], and how often that of a free link is paid [1]."""
    fixed_s, starts = 0.0, 0
    for leg in legs:
        free = [channel.startup_s for channel in leg.channels if channel.startup_s and is_free(channel)]
        fixed_s += leg.latency_s
        if free:
            passing_s = sum(channel.latency_s for channel in leg.channels)
            others = any(channel.startup_s and not is_free(channel) for channel in leg.channels)
            if others or not _close(passing_s + max(free), leg.latency_s):
                raise NoForm
            fixed_s, starts = fixed_s - leg.latency_s + passing_s, starts + 1
    return fixed_s, starts


def _largest(latencies: Iterable[tuple[float, int]]) -> list[tuple[float, int]]:
    """Return latencies of which none is below another in both numbers."""
    found: list[tuple[float, int]] = []
    for fixed_s, starts in sorted(latencies, reverse=True):
        if not found or starts > found[-1][1]:
            found.append((fixed_s, starts))
    return found


def in_stretches(symbol: sympy.Symbol, counts: Sequence[int], shares: Sequence[Share]) -> Any:
    """Return shares at numbers of workers as a closed form: flows that rise evenly over one channel, or stay the same.

    Parameters
    ----------
    symbol : sympy.Symbol
        Number of workers, p. [1]
    counts : sequence of int
        Numbers of workers, one after the other. [1]
    shares : sequence of Share
        What a flow gets at each. [-]

    Returns
    -------
    sympy.Expr
        Seconds per byte, (a + b p) / B, stretch by stretch. [s/B]

    Raises
    ------
    NoForm
        If there is hardly a stretch of more than one number of workers.
    """
    pieces, start = [], 0
    while start < len(shares):
        end, rise = max(_same(shares, start), _rising(shares, counts, start))
        first = shares[start]
        flows: Any = first.flows
        if rise:
            flows = sympy.Integer(int(first.flows) - rise * counts[start]) + rise * symbol
        per_byte = flows if first.bandwidth_bytes_per_s == 1 else flows / sympy.Float(first.bandwidth_bytes_per_s)
        pieces.append((per_byte, symbol <= counts[end - 1]))
        start = end
    if len(pieces) > 1 + len(counts) / 2:
        raise NoForm
    return pieces[0][0] if len(pieces) == 1 else sympy.Piecewise(*pieces[:-1], (pieces[-1][0], True))


def _same(shares: Sequence[Share], start: int) -> tuple[int, int]:
    """Return where a stretch ends in which nothing changes. [1]"""
    end = start + 1
    while end < len(shares) and _close(shares[end].seconds_per_byte, shares[start].seconds_per_byte):
        end += 1
    return end, 0


def _rising(shares: Sequence[Share], counts: Sequence[int], start: int) -> tuple[int, int]:
    """Return where a stretch ends in which the flows over one channel rise evenly, and by how many. [1]"""
    end, rise = start + 1, 0
    for before, after in pairwise(shares[start:]):
        step = after.flows - before.flows
        bounded_alike = _close(before.bandwidth_bytes_per_s, after.bandwidth_bytes_per_s)
        if not bounded_alike or step != int(step) or not step or (rise and step != rise):
            break
        end, rise = end + 1, int(step)
    all_share = shares[start].flows == counts[start] and rise == 1
    return (end, rise) if end - start >= SHORTEST or all_share else (start + 1, 0)


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= EQUAL * max(abs(one), abs(other))
