"""A round of messages on a topology: the route and the rate of each."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from perfmodel.derived import derived_property
from perfmodel.numeric import largest, maximum, undominated
from perfmodel.symbolic import Quantity, is_symbolic, named
from perfmodel.sync.base import Message

if TYPE_CHECKING:
    from perfmodel.hardware.topology import Route

Line = tuple[float, float]
"""Latency and seconds per byte: time as a straight line over the size of a collective."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PlacedRound:
    """A round with the route of each message.

    Parameters
    ----------
    messages : tuple of Message
        Messages that are sent. [-]
    routes : tuple of Route
        The route of each message. [-]
    rates_bytes_per_s : tuple of float
        Rate of each message while all are in flight. [B/s]
    reduced_share : float
        Largest part of the n bytes that one rank or server adds. [1]
    repeat : int
        Times that the round is repeated. [1]
    sent_share : float or None
        Part of the n bytes that all messages have, where ``messages`` are one of each class; None for their sum. [1]
    counts : tuple of int
        Messages that each stands for; none where each stands for itself. [1]
    """

    messages: tuple[Message, ...]
    routes: tuple[Route, ...]
    rates_bytes_per_s: tuple[float, ...]
    reduced_share: float
    repeat: int
    sent_share: float | None = None
    counts: tuple[int, ...] = ()

    @derived_property
    def lines(self) -> tuple[Line, ...]:
        """Latency and seconds per byte of messages that may arrive last, by rising latency. [s, s/B]."""
        undercut: list[Line] = []
        lines = dict.fromkeys(
            (route.latency_s, message.share / rate)
            for message, route, rate in zip(self.messages, self.routes, self.rates_bytes_per_s, strict=True)
        )
        if is_symbolic(*itertools.chain(*lines)):
            return tuple(undominated(lines))
        for latency_s, per_byte in sorted(lines, reverse=True):
            if not undercut or per_byte > undercut[-1][1]:
                undercut.append((latency_s, per_byte))
        return tuple(reversed(undercut))

    def time(self, size_bytes: Quantity) -> Quantity:
        """Time until the last message of one round has arrived. [s]"""
        lines = [
            (named(latency_s, "latency"), named(per_byte, "seconds per byte")) for latency_s, per_byte in self.lines
        ]
        return reduce(maximum, [latency_s + size_bytes * per_byte for latency_s, per_byte in lines])

    @property
    def byte_s(self) -> Quantity:
        """Time per byte of the slowest message that carries anything. [s/B]"""
        rates = zip(self.rates_bytes_per_s, self.messages, strict=True)
        return largest([1 / rate for rate, message in rates if message.share] or [0.0])

    @property
    def latency_s(self) -> Quantity:
        """Time until the last empty message has arrived. [s]"""
        return largest(route.latency_s for route in self.routes)

    @property
    def mean_latency_s(self) -> Quantity:
        """Mean latency that a byte meets in it. [s]"""
        return self._mean([route.latency_s for route in self.routes])

    @property
    def mean_crossings(self) -> float:
        """Share of its bytes that leave their machine. [1]"""
        return float(self._mean([float(route.leaves_machine) for route in self.routes]))

    def _mean(self, of_routes: Sequence[Quantity]) -> Quantity:
        """Mean over the bytes of a round."""
        # several rings share messages inside machines, so that a message counts by its bytes
        counts = self.counts or (1,) * len(self.messages)
        shares = [count * message.share for count, message in zip(counts, self.messages, strict=True)]
        if len(set(shares)) == 1:
            return sum(of_routes) / len(of_routes)
        return sum(share * quantity for share, quantity in zip(shares, of_routes, strict=True)) / sum(shares)

    @property
    def seconds_per_byte(self) -> Quantity:
        """Time that a further byte of a large collective adds to a round. [s/B]"""
        return largest(per_byte for _, per_byte in self.lines)
