"""Order in which the devices of a pipeline work on micro-batches.

A pipeline has as many chunks of layers as devices times ``interleave``; chunk k is on device k modulo the devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial, reduce
from itertools import chain, repeat
from operator import add, ge
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from perfmodel.errors import ArgumentError
from perfmodel.numeric import maximum
from perfmodel.symbolic import Quantity

Way = Literal["forward", "backward"]


class Turn(NamedTuple):
    """A device's turn: one phase of one micro-batch through one chunk of layers.

    Parameters
    ----------
    phase : str
        ``forward`` or ``backward``. [-]
    chunk : int
        Chunk of the network, counted over all devices. [1]
    micro_batch : int
        Micro-batch, from 0. [1]
    """

    phase: Way
    chunk: int
    micro_batch: int


Orders = tuple[tuple[Turn, ...], ...]
"""Turns of each device, in order."""


def _turns(phase: Way, chunk: int, count: int) -> tuple[Turn, ...]:
    """Return the turns of a chunk in a phase, in the order of micro-batches; all orders share them."""
    return _most_turns(phase, chunk, count.bit_length())[:count]


@lru_cache(maxsize=1024)
def _most_turns(phase: Way, chunk: int, bits: int) -> tuple[Turn, ...]:
    # a third of the time of a call each, of the hundreds of thousands that many layouts have
    return tuple(map(partial(tuple.__new__, Turn), zip(repeat(phase), repeat(chunk), range(1 << bits), strict=False)))


def _in_turn(forward: Sequence[Turn], backward: Sequence[Turn], *, ahead: int) -> tuple[Turn, ...]:
    """Return some forward turns, then forward and backward turns alternately, then the remaining ones."""
    rest = forward[ahead:]
    return (*forward[:ahead], *chain.from_iterable(zip(rest, backward, strict=False)), *backward[len(rest) :])


def gpipe_order(*, stage_count: int, micro_batch_count: int, interleave: int = 1) -> Orders:
    """Return every forward phase, then every backward phase, last micro-batch first.

    Parameters
    ----------
    stage_count, micro_batch_count, interleave : int
        Devices, micro-batches, and chunks on a device, which must be one. [1]

    Examples
    --------
    >>> [turn.phase for turn in gpipe_order(stage_count=2, micro_batch_count=2)[0]]
    ['forward', 'forward', 'backward', 'backward']
    """
    _refuse_interleave(interleave, schedule="gpipe")
    count = micro_batch_count
    return tuple(
        (*_turns("forward", stage, count), *_turns("backward", stage, count)[::-1]) for stage in range(stage_count)
    )


def one_forward_one_backward_order(*, stage_count: int, micro_batch_count: int, interleave: int = 1) -> Orders:
    """Return as many forward phases as stages follow, then forward and backward phases in turn.

    Parameters
    ----------
    stage_count, micro_batch_count, interleave : int
        Devices, micro-batches, and chunks on a device, which must be one. [1]
    """
    _refuse_interleave(interleave, schedule="1f1b")
    return tuple(
        _in_turn(
            _turns("forward", stage, micro_batch_count),
            _turns("backward", stage, micro_batch_count),
            ahead=stage_count - stage - 1,
        )
        for stage in range(stage_count)
    )


def interleaved_order(*, stage_count: int, micro_batch_count: int, interleave: int) -> Orders:
    """Return the order of Megatron-LM's interleaved schedule: micro-batches in groups of as many as devices.

    Parameters
    ----------
    stage_count, micro_batch_count, interleave : int
        Devices, micro-batches (a multiple of the devices), and chunks on each device, at least two. [1]

    Raises
    ------
    ArgumentError
        If the devices do not divide the micro-batches, or there is one chunk or one device.

    References
    ----------
    .. [1] Narayanan et al., SC 2021, arXiv:2104.04473, figure 4, and Megatron-LM, schedules.py.
    """
    if interleave == 1:
        return one_forward_one_backward_order(stage_count=stage_count, micro_batch_count=micro_batch_count)
    if micro_batch_count % stage_count:
        allowed = f"a multiple of the {stage_count} stages where interleave={interleave}"
        raise ArgumentError("micro_batches", micro_batch_count, allowed)

    def turns(device: int, phase: Way) -> list[Turn]:
        chunks = [_turns(phase, chunk * stage_count + device, micro_batch_count) for chunk in range(interleave)]
        return [
            turn
            for start in range(0, micro_batch_count, stage_count)
            for chunk in (chunks if phase == "forward" else chunks[::-1])
            for turn in chunk[start : start + stage_count]
        ]

    return tuple(
        _in_turn(
            turns(device, "forward"),
            turns(device, "backward"),
            ahead=2 * (stage_count - device - 1) + (interleave - 1) * stage_count,
        )
        for device in range(stage_count)
    )


def _refuse_interleave(interleave: int, *, schedule: str) -> None:
    if interleave != 1:
        raise ArgumentError("interleave", interleave, f"1 with schedule={schedule!r}; schedule='interleaved' has more")


SCHEDULES: Final[Mapping[str, Callable[..., Orders]]] = {
    "gpipe": gpipe_order,
    "1f1b": one_forward_one_backward_order,
    "interleaved": interleaved_order,
}
"""Name to the order of work."""


MOST_ORDERS: Final = 1024
"""Orders that are cached, with results derived from them. [1]"""


MOST_TURNS: Final = 1 << 20
"""Turns of all devices of a pipeline that are played one by one, in a few seconds. [1]"""


def check_turns(micro_batches: int, *, chunk_count: int) -> None:
    """Raise if the turns of all chunks [1], forward and backward, would take minutes and fill the memory."""
    if 2 * chunk_count * micro_batches > MOST_TURNS:
        chunks = f"{chunk_count} chunks of layers" if chunk_count > 1 else "one chunk of layers"
        allowed = f"at most {MOST_TURNS // (2 * chunk_count):,} with {chunks}, whose turns are played one by one"
        raise ArgumentError("micro_batches", micro_batches, f"{allowed}; accumulation_steps has no such limit")


@lru_cache(maxsize=MOST_ORDERS)
def orders_of(schedule: str, *, stage_count: int, micro_batch_count: int, interleave: int, trains: bool) -> Orders:
    """Return the turns of each device; the same object for the same arguments. A device runs its chunks in sequence.

    Parameters
    ----------
    schedule : str
        A name of ``SCHEDULES``; a single device has only one order. [-]
    stage_count, micro_batch_count, interleave : int
        Devices, micro-batches, and chunks of layers on each device. [1]
    trains : bool
        Whether there is a backward phase. [-]

    Raises
    ------
    ArgumentError
        If the schedule has no such order, or it has more than ``MOST_TURNS`` turns.

    Examples
    --------
    >>> orders_of("1f1b", stage_count=1, micro_batch_count=1, interleave=1, trains=False)
    ((Turn(phase='forward', chunk=0, micro_batch=0),),)
    """
    check_turns(micro_batch_count, chunk_count=stage_count * interleave)
    plain = "1f1b"
    if schedule != plain and (stage_count == 1 or (schedule, interleave) == ("interleaved", 1)):  # the same turns
        return orders_of(
            plain, stage_count=stage_count, micro_batch_count=micro_batch_count, interleave=interleave, trains=trains
        )
    if stage_count > 1:
        orders = SCHEDULES[schedule](
            stage_count=stage_count, micro_batch_count=micro_batch_count, interleave=interleave
        )
    else:
        chunks, ways = range(interleave), ("forward", "backward")
        orders = (
            tuple(
                Turn(phase, chunk, batch)  # type: ignore[arg-type]
                for batch in range(micro_batch_count)
                for phase in ways
                for chunk in (chunks if phase == "forward" else reversed(chunks))
            ),
        )
    if trains:
        return orders
    return tuple(tuple(turn for turn in order if turn.phase == "forward") for order in orders)


class ById:
    """Turns, or orders, compared by identity: they have too many turns to compare by value."""

    def __init__(self, orders: Any) -> None:
        self.orders = orders

    def __hash__(self) -> int:
        return id(self.orders)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ById) and other.orders is self.orders


def following_turn(turn: Turn, *, chunk_count: int) -> Turn | None:
    """Return the turn that waits for this one's result; None after a micro-batch's last backward phase.

    Parameters
    ----------
    turn : Turn
        A turn. [-]
    chunk_count : int
        Chunks of the network. [1]

    Returns
    -------
    Turn or None
        The same micro-batch in the next chunk, or, in the backward phase, in the previous one. [-]
    """
    if turn.phase == "forward":
        if turn.chunk + 1 < chunk_count:
            return Turn("forward", turn.chunk + 1, turn.micro_batch)
        return Turn("backward", turn.chunk, turn.micro_batch)
    return Turn("backward", turn.chunk - 1, turn.micro_batch) if turn.chunk else None


def kept_counts(order: Sequence[Turn], chunks: tuple[int, ...], *, with_working: bool) -> tuple[tuple[int, ...], ...]:
    """Return the moments of an order of turns at which a device may hold most: those that no other moment exceeds.

    Parameters
    ----------
    order : sequence of Turn
        Turns of one device. [-]
    chunks : tuple of int
        Chunks on the device. [-]
    with_working : bool
        Whether to tell, too, which chunks are between their first and their last backward phase. [-]

    Returns
    -------
    tuple of tuple of int
        Micro-batches held in each chunk and, behind them, 1 for each chunk between those phases. [1]

    Examples
    --------
    >>> kept_counts(gpipe_order(stage_count=1, micro_batch_count=3)[0], (0,), with_working=True)
    ((3, 1),)
    """
    return _kept_counts(ById(order), chunks, with_working=with_working)


def most_kept(order: Sequence[Turn], *, kept_bytes: Mapping[int, Quantity]) -> Quantity:
    """Return the most memory that a device keeps for micro-batches between their forward and backward phases.

    Parameters
    ----------
    order : sequence of Turn
        Turns of one device. [-]
    kept_bytes : mapping of int to float
        Memory that a micro-batch occupies in each chunk, by the chunk's number. [B]

    Returns
    -------
    float
        The largest sum. [B]

    Examples
    --------
    1F1B keeps as many micro-batches as stages follow, and its own:

    >>> order = one_forward_one_backward_order(stage_count=4, micro_batch_count=8)[0]
    >>> int(most_kept(order, kept_bytes={0: 10}))
    40
    """
    counts = kept_counts(order, tuple(kept_bytes), with_working=False)
    return reduce(maximum, [_held(moment, kept_bytes.values()) for moment in counts], 0)


def most_kept_beside(
    order: Sequence[Turn], *, kept_bytes: Mapping[int, Quantity], meanwhile_bytes: Mapping[int, Quantity]
) -> tuple[Quantity, Quantity]:
    """Return the bytes kept for micro-batches at the moment when these and the bytes of working chunks are largest.

    Parameters
    ----------
    order : sequence of Turn
        Turns of one device. [-]
    kept_bytes : mapping of int to float
        Memory that a micro-batch occupies in each chunk, by the chunk's number. [B]
    meanwhile_bytes : mapping of int to float
        Memory that each chunk occupies from its first to its last backward phase. [B]

    Returns
    -------
    tuple of float
        The summands of the largest sum. [B]

    Examples
    --------
    A chunk whose last backward phase is over gives its gradients back before another one has any:

    >>> order = interleaved_order(stage_count=2, micro_batch_count=2, interleave=2)[1]
    >>> [int(size) for size in most_kept_beside(order, kept_bytes={1: 1, 3: 1}, meanwhile_bytes={1: 8, 3: 8})]
    [3, 8]
    """
    most: tuple[Quantity, Quantity] = 0, 0
    for moment in kept_counts(order, tuple(kept_bytes), with_working=True):
        kept = _held(moment[: len(kept_bytes)], kept_bytes.values())
        most = larger_pair(most, (kept, _held(moment[len(kept_bytes) :], meanwhile_bytes.values())))
    return most


def _held(counts: Sequence[int], sizes: Iterable[Quantity]) -> Quantity:
    return reduce(add, [count * size for count, size in zip(counts, sizes, strict=True) if count], 0)


def larger_pair(one: tuple[Quantity, Quantity], other: tuple[Quantity, Quantity]) -> tuple[Quantity, Quantity]:
    """Of two pairs, take the one with the larger sum, for each configuration."""
    is_larger = one[0] + one[1] >= other[0] + other[1]
    if np.ndim(is_larger) == 0:
        return one if is_larger else other
    return np.where(is_larger, one[0], other[0]), np.where(is_larger, one[1], other[1])


@lru_cache(maxsize=MOST_ORDERS)
def _kept_counts(key: ById, chunks: tuple[int, ...], *, with_working: bool) -> tuple[tuple[int, ...], ...]:
    """Return a device's micro-batches in each chunk, at moments when no other moment holds more of every chunk.

    With ``with_working``, behind them, 1 for each chunk that is between its first and its last backward phase.
    """
    backward = enumerate(key.orders) if with_working else ()
    last = {turn.chunk: place for place, turn in backward if turn.phase == "backward"}
    counts, working = dict.fromkeys(chunks, 0), dict.fromkeys(chunks if with_working else (), 0)
    moments, has_grown = set(), False
    for place, (phase, chunk, _) in enumerate(key.orders):
        if phase == "forward":
            counts[chunk] += 1
            has_grown = True
            continue
        if with_working and not working[chunk]:
            working[chunk], has_grown = 1, True
        if has_grown:  # else a turn before held more
            moments.add((*counts.values(), *working.values()))
            has_grown = False
        counts[chunk] -= 1
        if with_working and last[chunk] == place:
            working[chunk] = 0
    if has_grown:
        moments.add((*counts.values(), *working.values()))
    most: list[tuple[int, ...]] = []
    for moment in sorted(moments, reverse=True):  # a moment that holds no less of any chunk comes first
        if not any(all(map(ge, other, moment)) for other in most):
            most.append(moment)
    return tuple(most)
