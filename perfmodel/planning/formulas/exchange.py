"""Collectives whose number of workers, or whose links, are symbols: written by the functions that cost them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import sympy

from perfmodel.cost.collective import pipelined_time
from perfmodel.cost.transfer import copy_time
from perfmodel.numeric import exceeds, maximum, where
from perfmodel.planning.formulas.definitions import Definitions
from perfmodel.symbolic import named, naming

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.sync.base import Collective

TOLERANCE: Final = 1e-11
"""How far a closed form may be from any answer. [1]"""

Written = Callable[["NDArray[np.float64]"], Any]
"""Turns answers, one for each place that was asked about, into a closed form."""

Points = Mapping[sympy.Symbol, "NDArray[np.float64]"]
"""Value of each symbol at the places that were asked about."""


@dataclass(frozen=True, slots=True)
class Port:
    """What a message gets: its latency [s], and the time of a byte of it [s/B], as expressions."""

    latency_s: Any
    seconds_per_byte: Any

    @property
    def in_names(self) -> Port:
        """The same under names of their own, which a formula then does not repeat for every message."""
        return Port(named(self.latency_s, "latency"), named(self.seconds_per_byte, "seconds per byte"))


def slowest(ports: Sequence[Port]) -> Port:
    """Return the longest latency and the least rate of some ports."""
    named_ports = [port.in_names for port in ports]
    return Port(
        reduce(maximum, [port.latency_s for port in named_ports]),
        reduce(maximum, [port.seconds_per_byte for port in named_ports]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ByCost:
    """A collective among any number of workers, by its own formula.

    Parameters
    ----------
    collective : Collective
        The algorithm. [-]
    worker_count : sympy.Symbol
        Workers, p. [1]
    ports : tuple of Port
        What the messages get that may be the last to arrive. [-]
    fill_rounds : int
        Above 0 where the message is cut into chunks. [1]
    """

    collective: Collective
    worker_count: Any
    ports: tuple[Port, ...]
    fill_rounds: int = 0

    @property
    def rounds(self) -> bool:
        """Whether anything is sent, as a library asks."""
        return True

    def time(self, size_bytes: Any) -> Any:
        """Return the time of a message [s] of so many bytes [B]."""
        return reduce(maximum, [self._time(size_bytes, port.in_names) for port in self.ports])

    @property
    def latency_s(self) -> Any:
        """Time of an empty message. [s]"""
        return self._time(0.0, Port(slowest(self.ports).latency_s, 0.0))

    @property
    def seconds_per_byte(self) -> Any:
        """What each further byte of a large one adds. [s/B]"""
        return self._time(1.0, Port(0.0, slowest(self.ports).seconds_per_byte))

    @property
    def rates_bytes_per_s(self) -> list[Any]:
        """What each message gets. [B/s]"""
        return [1 / port.seconds_per_byte for port in self.ports]

    def check(self) -> None:
        """Raise ArgumentError if its formula needs more than a number of workers, as groups of some size."""
        self._time(1.0, Port(1.0, 1.0))

    def _time(self, size_bytes: Any, port: Port) -> Any:
        return self.collective.time(
            size_bytes=size_bytes,
            worker_count=self.worker_count,
            latency_s=port.latency_s,
            seconds_per_byte=port.seconds_per_byte,
        )


@dataclass(frozen=True, slots=True)
class OpenRound:
    """Messages at once.

    Parameters
    ----------
    repeat : int
        How often. [1]
    share : float
        Part of the bytes that each carries. [1]
    ports : tuple of Port
        What those get that may be the last to arrive. [-]
    """

    repeat: int
    share: float
    ports: tuple[Port, ...]

    def time(self, size_bytes: Any) -> Any:
        """Return the time until the last has arrived [s], of so many bytes of the collective [B]."""
        return reduce(maximum, [self._copied(self.share * size_bytes, port.in_names) for port in self.ports])

    def _copied(self, size_bytes: Any, port: Port) -> Any:
        if not self.share:
            return port.latency_s + size_bytes
        return copy_time(
            size_bytes=size_bytes, bandwidth_bytes_per_s=1 / port.seconds_per_byte, latency_s=port.latency_s
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ByRounds:
    """A collective of so many rounds, in each of which copies are made at once.

    Parameters
    ----------
    rounds : tuple of OpenRound
        The rounds. [-]
    fill_rounds : int
        Rounds that fill a pipeline; 0 where nothing is cut into chunks. [1]
    """

    rounds: tuple[OpenRound, ...]
    fill_rounds: int = 0

    def time(self, size_bytes: Any) -> Any:
        """Return the time of a message [s] of so many bytes [B]."""
        if self.fill_rounds:
            return pipelined_time(
                fill_s=self.latency_s, stream_s=self.seconds_per_byte * size_bytes, fill_rounds=self.fill_rounds
            )
        return sum(each.repeat * each.time(size_bytes) for each in self.rounds)

    @property
    def rates_bytes_per_s(self) -> list[Any]:
        """What messages get. [B/s]"""
        return [1 / port.seconds_per_byte for each in self.rounds if each.share for port in each.ports]

    @property
    def latency_s(self) -> Any:
        """Time of an empty message. [s]"""
        latencies = [slowest(each.ports).latency_s for each in self.rounds]
        if self.fill_rounds:
            return self.fill_rounds * reduce(maximum, latencies)
        return sum(each.repeat * latency_s for each, latency_s in zip(self.rounds, latencies, strict=True))

    @property
    def seconds_per_byte(self) -> Any:
        """What each further byte of a large one adds. [s/B]"""
        return sum(each.repeat * each.share * slowest(each.ports).seconds_per_byte for each in self.rounds)


def holds(form: Any, answers: NDArray[np.float64], points: Points) -> bool:
    """Tell whether closed forms come to the answers.

    Parameters
    ----------
    form : ndarray of sympy.Expr
        One for each column of the answers. [-]
    answers : ndarray, shape (places, forms)
        What was answered at each place. [unit of the forms]
    points : mapping of sympy.Symbol to ndarray
        Where. [unit of each]

    Returns
    -------
    bool
        Whether none is further off than ``TOLERANCE``.
    """
    with np.errstate(all="ignore"):
        found = Definitions().function(list(points), [sympy.sympify(each) for each in form])(*points.values())
    columns = [np.broadcast_to(np.asarray(each, dtype=float), len(answers)) for each in found]
    close = np.abs(np.stack(columns, axis=1) - answers) <= TOLERANCE * np.abs(answers)
    return bool(close.all())


@dataclass(frozen=True, eq=False, kw_only=True)
class Held:
    """A collective in closed form, held against what it takes at every place that was asked about.

    Parameters
    ----------
    form : ByCost, ByRounds, LibraryCollective or None
        The collective with symbols in it; None where it has no such form. [-]
    asked : tuple of Placed or LibraryCollective or None
        The collective at each place; None where nothing is exchanged. [-]
    points : mapping of sympy.Symbol to ndarray
        The places. [unit of each]
    written : callable
        Turns answers into a closed form where the other does not hold. [-]
    alone : sympy.Expr or None
        Number of workers, of whom one alone exchanges nothing; None where none is free. [1]
    """

    form: Any
    asked: tuple[Any, ...]
    points: Points
    written: Written
    alone: Any = None

    def time(self, sizes_bytes: Any) -> Any:
        """Return the time of each message [s] of so many bytes [B]."""
        sizes = np.atleast_1d(sizes_bytes)
        answers = np.array([np.zeros(len(sizes)) if each is None else each.time(sizes) for each in self.asked])
        for way in (self._composed, self._composed_for_several) if self.form is not None else ():
            with naming(_unnamed):
                stands = holds(way(sizes), answers, self.points)
            if stands:
                return way(sizes)
        found = np.empty(len(sizes), dtype=object)
        found[:] = [sympy.sympify(self.written(column)) for column in answers.T]
        return found

    def _composed(self, sizes: NDArray[np.float64]) -> Any:
        return np.broadcast_to(np.asarray(self.form.time(sizes), dtype=object), sizes.shape)

    def _composed_for_several(self, sizes: NDArray[np.float64]) -> Any:
        composed = self._composed(sizes)
        return composed if self.alone is None else where(exceeds(self.alone, 1), composed, 0.0)


def _unnamed(value: Any, name: str, place: int) -> Any:
    del name, place
    return value


def written_number(form: Any, answers: Sequence[float] | NDArray[np.float64], points: Points, written: Written) -> Any:
    """Return a number of a system in closed form: as it is composed where that holds, else as answers are written.

    Parameters
    ----------
    form : sympy.Expr or None
        As it is composed. [unit of the number]
    answers : sequence of float
        What was answered at each place. [unit of the number]
    points : mapping of sympy.Symbol to ndarray
        Where. [unit of each]
    written : callable
        Turns answers into a closed form. [-]

    Returns
    -------
    sympy.Expr
        The closed form. [unit of the number]
    """
    answered = np.asarray(answers, dtype=float)
    if form is not None and holds([form], answered[:, np.newaxis], points):
        return form
    return written(answered)
