"""A round of messages on a topology: the route and the rate of each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from perfmodel.derived import derived_property, record
from perfmodel.numeric import largest, maximum, undominated
from perfmodel.symbolic import Quantity, is_symbolic, named
from perfmodel.sync.base import Message, Round

if TYPE_CHECKING:
    from perfmodel.hardware.topology import Route

Line = tuple[float, float]
"""Latency and seconds per byte: time as a straight line over the size of a collective."""


def to_servers(round_: Round) -> bool:
    """Whether a round is between ranks and servers, in their own machines or in others."""
    return bool((round_.sources < 0).any() or (round_.sinks < 0).any())


def pairs_that_meet(messages: Sequence[Message], routes: Sequence[Route]) -> Iterator[tuple[int, int]]:
    """Yield pairs of a message inside a machine and one between machines that meet on a channel, by number."""
    near: dict[str, list[int]] = {}
    for number, (message, route) in enumerate(zip(messages, routes, strict=True)):
        for name in route.channel_names if message.share and not route.leaves_machine else ():
            near.setdefault(name, []).append(number)
    for number, (message, route) in enumerate(zip(messages, routes, strict=True)):
        for name in route.channel_names if message.share and route.leaves_machine else ():
            yield from ((other, number) for other in near.get(name, ()))


@record
class PlacedRound:
    """A round with the latency and the rate of each message.

    Parameters
    ----------
    messages : tuple of Message
        Messages that are sent. [-]
    latencies_s : tuple of float
        Latency of each message. [s]
    leaves : tuple of bool
        Whether each message leaves its machine. [-]
    rates_bytes_per_s : tuple of float
        Rate of each message while all are in flight. [B/s]
    reduced_share : float
        Largest part of the n bytes that one rank or server adds. [1]
    repeat : int
        Times that the round is repeated. [1]
    counts : tuple of int
        Messages that each stands for; none where each stands for itself. [1]
    apart_bytes_per_s : tuple of float
        Rate of each message while only messages between machines are in flight, or only those inside machines,
        whichever it is among; empty where one rate is enough. [B/s]
    meetings : tuple of (int, int)
        Pairs of a message inside a machine and one between machines that meet on a channel, by number. [-]
    """

    messages: tuple[Message, ...]
    latencies_s: tuple[Quantity, ...]
    leaves: tuple[bool, ...]
    rates_bytes_per_s: tuple[float, ...]
    reduced_share: float
    repeat: int
    counts: tuple[int, ...] = ()
    apart_bytes_per_s: tuple[float, ...] = ()
    meetings: tuple[tuple[int, int], ...] = ()

    @derived_property
    def lines(self) -> tuple[Line, ...]:
        """Latency and seconds per byte of messages that may arrive last, by rising latency. [s, s/B]."""
        undercut: list[Line] = []
        lines = dict.fromkeys(
            self._lines_with_meetings()
            if self.apart_bytes_per_s
            else (
                (latency_s, message.share / rate)
                for message, latency_s, rate in zip(
                    self.messages, self.latencies_s, self.rates_bytes_per_s, strict=True
                )
            )
        )
        if is_symbolic(*itertools.chain(*lines)):
            return tuple(undominated(lines))
        for latency_s, per_byte in sorted(lines, reverse=True):
            if not undercut or per_byte > undercut[-1][1]:
                undercut.append((latency_s, per_byte))
        return tuple(reversed(undercut))

    @derived_property
    def _shares(self) -> list[float]:
        """Part of the n bytes in each message and those that it stands for. [1]"""
        counts = self.counts or (1,) * len(self.messages)
        return [count * message.share for count, message in zip(counts, self.messages, strict=True)]

    @property
    def sent_share(self) -> float:
        """Part of the n bytes in all messages of one round. [1]"""
        return sum(self._shares)

    def time(self, size_bytes: Quantity) -> Quantity:
        """Time until the last message of one round has arrived. [s]"""
        lines = [
            (named(latency_s, "latency"), named(per_byte, "seconds per byte")) for latency_s, per_byte in self.lines
        ]
        return reduce(maximum, [latency_s + size_bytes * per_byte for latency_s, per_byte in lines])

    def _lines_with_meetings(self) -> Iterator[Line]:
        """Yield the lines of all messages, and of pairs inside and between machines that meet on a channel.

        Of a pair, the one with less latency has sent a part of its bytes when the other begins. Both go on at the
        rates of all, until one has ended.
        """
        rates = zip(self.rates_bytes_per_s, self.apart_bytes_per_s, strict=True)
        numbers = [
            (latency_s, message.share, rate, alone)
            for message, latency_s, (rate, alone) in zip(self.messages, self.latencies_s, rates, strict=True)
        ]
        for latency_s, share, _, alone in numbers:
            yield latency_s, share / alone
        for of_near, of_far in dict.fromkeys((numbers[near], numbers[far]) for near, far in self.meetings):
            both = (of_near, of_far)
            known = not is_symbolic(of_near[0], of_far[0])  # with symbols, the one between machines begins later
            (first_s, share, rate, alone), (begin_s, *later) = (
                sorted(both, key=lambda numbers: numbers[0]) if known else both
            )
            ahead_s, lost = (begin_s - first_s) * alone / rate, 1 - later[1] / later[2]
            yield begin_s - ahead_s, share / rate
            yield begin_s - lost * ahead_s, later[0] / later[2] + lost * share / rate

    @property
    def byte_s(self) -> Quantity:
        """Time per byte of the slowest message that carries anything. [s/B]"""
        rates = zip(self.rates_bytes_per_s, self.messages, strict=True)
        return largest([1 / rate for rate, message in rates if message.share] or [0.0])

    @property
    def latency_s(self) -> Quantity:
        """Time until the last empty message has arrived. [s]"""
        return largest(self.latencies_s)

    @property
    def mean_latency_s(self) -> Quantity:
        """Mean latency of a byte of the round. [s]"""
        return self._mean(self.latencies_s)

    @property
    def mean_crossings(self) -> float:
        """Share of its bytes that leave their machine. [1]"""
        return float(self._mean([float(leaves) for leaves in self.leaves]))

    def _mean(self, of_messages: Sequence[Quantity]) -> Quantity:
        """Mean over the bytes of a round."""
        # several rings share messages inside machines, so that a message counts by its bytes
        if len(set(self._shares)) == 1:
            return sum(of_messages) / len(of_messages)
        weighed = [share * quantity for share, quantity in zip(self._shares, of_messages, strict=True)]
        return sum(weighed) / self.sent_share

    @property
    def seconds_per_byte(self) -> Quantity:
        """Time that a further byte of a large collective adds to a round. [s/B]"""
        return largest(per_byte for _, per_byte in self.lines)
