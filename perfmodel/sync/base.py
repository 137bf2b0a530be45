"""The interface of collective algorithms: rounds of messages, and their time on equal links.

Both agree: the time is that of the rounds if each worker has one full-duplex port.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import ArgumentError, nearest_match
from perfmodel.symbolic import Quantity, is_symbolic

if TYPE_CHECKING:
    from perfmodel.hardware.topology import Topology

SERVER: Final = -1
"""Number of the first server in messages; further ones count down from it."""


class Message(NamedTuple):
    """A message from one rank to another in a round.

    Parameters
    ----------
    source, sink : int
        Ranks from 0; servers from ``SERVER`` down. [1]
    share : float
        The message's part of the n bytes of the collective. [1]
    """

    source: int
    sink: int
    share: float


Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """Messages in flight at once; the next round starts when all have arrived.

    Their ends are arrays, because an object for each of a hundred thousand messages takes most of a second.

    Parameters
    ----------
    sources, sinks : ndarray, shape (messages,)
        Ends of each message: ranks from 0; servers from ``SERVER`` down. [1]
    share : float or ndarray, shape (messages,)
        Part of the n bytes of the collective in each message; a number if it is the same in all. [1]
    reduced_share : float
        Largest part of the n bytes that one rank or server adds to its own in this round. [1]
    repeat : int
        Times that the round is repeated. [1]
    ring_share : float
        Part of the n bytes that one ring passes on, where several share a message; 0 where each message is one. [1]
    """

    sources: Integers
    sinks: Integers
    share: float | NDArray[np.float64]
    reduced_share: float = 0.0
    repeat: int = 1
    ring_share: float = 0.0

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def shares(self) -> NDArray[np.float64]:
        """Part of the n bytes in each message. [1]"""
        return np.broadcast_to(np.asarray(self.share, dtype=float), self.sources.shape)

    @property
    def messages(self) -> tuple[Message, ...]:
        """Its messages, one by one."""
        shares = self.shares.tolist() if np.ndim(self.share) else repeat(float(self.share))
        return tuple(map(Message, self.sources.tolist(), self.sinks.tolist(), shares))

    @property
    def sent_share(self) -> float:
        """Part of the n bytes in all its messages and repetitions. [1]"""
        return self.repeat * float(self.shares.sum())

    def weight(self, share: float) -> float:
        """Count the rings in a message with this share of the bytes; each ring gets one flow's part of a channel."""
        return share / self.ring_share if self.ring_share else 1.0


def joined(*rounds: Round) -> Round:
    """Return one round with the messages of several."""
    return Round(
        sources=np.concatenate([round_.sources for round_ in rounds]),
        sinks=np.concatenate([round_.sinks for round_ in rounds]),
        share=np.concatenate([round_.shares for round_ in rounds]),
    )


@dataclass(frozen=True, slots=True)
class Hockney:
    r"""Cost of a message on its link: :math:`t = \alpha + n \beta`, and :math:`\gamma` for each byte added.

    Parameters
    ----------
    n : float, ndarray or sympy.Expr
        Bytes. [B]
    alpha : float, ndarray or sympy.Expr
        Latency of one message. [s]
    beta : float, ndarray or sympy.Expr
        Inverse bandwidth of a port, per direction. [s/B]
    gamma : float, ndarray or sympy.Expr
        Time to add one byte to another. [s/B]
    """

    n: Quantity
    alpha: Quantity
    beta: Quantity
    gamma: Quantity = 0.0

    def times(self, *, alpha: Quantity = 0, beta: Quantity = 0, gamma: Quantity = 0) -> Quantity:
        """Time of ``alpha`` latencies, ``beta`` passes of the bytes over the port, ``gamma`` through the adder. [s]"""
        return alpha * self.alpha + beta * (self.n * self.beta) + gamma * (self.n * self.gamma)


class Collective(ABC):
    """An algorithm by which workers exchange data.

    Attributes
    ----------
    name : str
        Its name in the registry. [-]
    option_names : tuple of str
        Names of its options, attributes that ``given`` sets. [-]
    server_kind : str
        Kind of its servers on a topology: ``memory``, ``switch``, or empty if it has none. [-]
    ring : bool
        Whether consecutive ranks should be close to each other. [-]
    per_adapter : bool
        Whether it runs once for each network adapter of a machine, with a part of the bytes each. [-]
    folds : bool
        Whether messages among many equal machines are as fast as those among three. [-]
    plays : bool
        Whether a simulation sends each of its messages; otherwise it takes the closed form. [-]
    chunk_counts : tuple of int
        Numbers of chunks of which the fastest is taken; none for an algorithm that has no option ``chunk_count``. [1]
    group_size : int or None
        Option: workers of a group, such as a machine. [1]
    chunk_count : int or None
        Option: chunks into which a message is cut; None takes the best number. [1]
    """

    name: ClassVar[str]
    option_names: ClassVar[tuple[str, ...]] = ()
    server_kind: ClassVar[str] = ""
    ring: ClassVar[bool] = False
    per_adapter: ClassVar[bool] = False
    folds: ClassVar[bool] = False
    plays: ClassVar[bool] = True
    chunk_counts: ClassVar[tuple[int, ...]] = ()
    group_size: int | None = None
    chunk_count: Any = None

    @abstractmethod
    def cost(self, link: Hockney, worker_count: Quantity) -> Quantity:
        """Time for two or more workers. [s]"""

    @abstractmethod
    def schedule(self, worker_count: int) -> tuple[Round, ...]:
        """Return the rounds for two or more workers."""

    def runs_on(self, topology: Topology, ranks: Sequence[str]) -> bool:
        """Tell whether a library can run it among these devices; False only if it needs a switch that they lack."""
        del topology, ranks
        return True

    def fits(self, topology: Topology, ranks: Sequence[str]) -> bool:
        """Tell whether it can be placed among these devices, even if no file says that their switches add."""
        return self.runs_on(topology, ranks)

    def server_count_of(self) -> int:
        """Servers that participate but are not ranks. [1]"""
        return 1 if self.server_kind else 0

    def fill_rounds(self, worker_count: int) -> int:
        """Return the rounds before a pipeline is full; 0 for an algorithm that does not split its message. [1]

        Parameters
        ----------
        worker_count : int
            Workers. [1]

        Returns
        -------
        int
            Rounds of each direction. [1]
        """
        return 0

    def lines(self, worker_count: int) -> tuple[Any, ...]:
        """Return times of which the least is the cost; empty if ``cost`` is a formula in the number of workers."""
        del worker_count
        return ()

    def folded(self, rounds: tuple[Round, ...], *, worker_count: int) -> tuple[Round, ...]:
        """Convert the rounds of a few ranks to the rounds of those ranks among ``worker_count``."""
        del worker_count
        return rounds

    def fill_latency(self, worker_count: int, *, near_s: Quantity, far_s: Quantity) -> Quantity:
        """Latency before a pipeline is full, given that of its shortest and of its longest message [s]. [s]"""
        del near_s
        return self.fill_rounds(worker_count) * far_s

    def given(self, **options: Any) -> Self:
        """Return the algorithm with some of its options set.

        Raises
        ------
        ArgumentError
            If there is no such option; suggests the nearest.
        """
        for option in options:
            if option not in self.option_names:
                nearest = nearest_match(option, self.option_names)
                known = ", ".join(self.option_names) or "none (it has no options)"
                hint = f"; did you mean {nearest!r}?" if nearest else ""
                argument = f"option of {self.name}"
                raise ArgumentError(argument, option, f"one of {known}{hint}")
        if not options:
            return self
        chosen = copy.copy(self)
        chosen.__dict__.update(options)
        return chosen

    def rounds(self, worker_count: int, **options: Any) -> tuple[Round, ...]:
        """Return the rounds of messages.

        Raises
        ------
        ArgumentError
            If the number of workers or an option is not allowed.
        """
        check_rank_count(worker_count)
        return self.given(**options).schedule(int(worker_count)) if worker_count > 1 else ()

    def time(
        self,
        *,
        size_bytes: Quantity,
        worker_count: Quantity,
        latency_s: Quantity,
        seconds_per_byte: Quantity,
        reduce_s_per_byte: Quantity = 0.0,
        **options: Any,
    ) -> Quantity:
        """Time on equal full-duplex links without contention, one port per worker. [s]

        Raises
        ------
        ArgumentError
            If the number of workers or an option is not allowed.
        """
        check_rank_count(worker_count)
        chosen = self.given(**options)
        link = Hockney(size_bytes, latency_s, seconds_per_byte, reduce_s_per_byte)
        if isinstance(worker_count, np.ndarray):
            single = worker_count == 1
            return np.where(single, 0.0, chosen.cost(link, np.where(single, 2, worker_count)))
        return 0.0 * size_bytes if worker_count == 1 else chosen.cost(link, worker_count)

    def wire_bytes(self, size_bytes: Quantity, worker_count: int, **options: Any) -> Quantity:
        """Most bytes that any worker or server sends or receives: a lower bound on the time. [B]"""
        chosen = self.given(**options)
        # an adding switch has a port for each worker, and each carries no more than that worker's own port
        first = 0 if self.server_kind == "switch" else -chosen.server_count_of()
        loads = np.zeros((2, int(worker_count) - first))
        for round_ in chosen.rounds(worker_count):
            for load, ends in zip(loads, (round_.sources, round_.sinks), strict=True):
                counted = ends >= first
                np.add.at(load, ends[counted] - first, round_.repeat * round_.shares[counted])
        return size_bytes * float(loads.max())

    def sent_share(self, worker_count: int) -> float:
        """Bytes of all messages over the n bytes; an algorithm with many equal ranks need not list them. [1]"""
        return sum(round_.sent_share for round_ in self.rounds(worker_count))

    def sent_bytes(self, size_bytes: Quantity, worker_count: int, **options: Any) -> Quantity:
        """Bytes of all messages together. [B]"""
        return size_bytes * self.given(**options).sent_share(worker_count)


def check_rank_count(worker_count: Quantity) -> None:
    """Raise unless the number of workers is a whole number or a symbol.

    Raises
    ------
    ArgumentError
        If it is not a whole number >= 1.
    """
    if is_symbolic(worker_count):
        return
    counts = np.asarray(worker_count)
    if counts.dtype.kind not in "iuf" or not bool(np.all((counts >= 1) & (counts % 1 == 0))):
        raise ArgumentError("worker_count", worker_count, "a whole number of at least 1")


def levels(worker_count: Quantity) -> Quantity:
    r"""Return the rounds of doubling that reach all workers, :math:`\lceil \log_2 p \rceil`. [1]

    Examples
    --------
    >>> [levels(count) for count in (1, 2, 5, 8)]
    [0, 1, 3, 3]
    """
    if is_symbolic(worker_count):
        return _of_symbol("ceiling", worker_count)
    if isinstance(worker_count, np.ndarray):
        return np.array([levels(int(count)) for count in worker_count.ravel()]).reshape(worker_count.shape)
    return (int(worker_count) - 1).bit_length()


def paired(worker_count: Quantity) -> tuple[Quantity, Quantity]:
    r"""Return the rounds in which workers pair up, and whether some must first fold into a neighbour. [1, 1]

    Examples
    --------
    >>> paired(8), paired(40)
    ((3, 0), (5, 1))
    """
    if is_symbolic(worker_count):
        lower = _of_symbol("floor", worker_count)
        return lower, levels(worker_count) - lower
    upper = levels(worker_count)
    is_power = np.equal(2**upper, worker_count)
    folds = 1 - is_power.astype(int) if isinstance(worker_count, np.ndarray) else int(not is_power)
    return upper - folds, folds


def _of_symbol(rounding: str, worker_count: Quantity) -> Any:
    import sympy

    logarithm = sympy.log(worker_count, 2)
    return getattr(sympy, rounding)(logarithm)


def group_count(worker_count: Quantity, group_size: int | None) -> Quantity:
    """Return the groups of this size among the workers. [1]

    Raises
    ------
    ArgumentError
        If no size is given, or it does not divide the number of workers.

    Examples
    --------
    >>> group_count(32, 8)
    4
    """
    if group_size is None or group_size < 1 or group_size % 1:
        raise ArgumentError("group_size", group_size, "a whole number of at least 1 that divides worker_count")
    if is_symbolic(worker_count):
        return worker_count / group_size
    if np.any(np.asarray(worker_count) % group_size):
        nearest = [size for size in range(1, int(np.max(worker_count)) + 1) if not np.any(worker_count % size)]
        closest = min(nearest, key=lambda size: abs(math.log(size / group_size)))
        allowed = f"a divisor of worker_count={worker_count}; nearest: {closest}"
        raise ArgumentError("group_size", group_size, allowed)
    return worker_count // group_size
