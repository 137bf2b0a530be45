"""Duration of a pipeline's turns: the longest path through turns and transfers, in one order or in many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from perfmodel.cost.overlap import turn_beside_messages
from perfmodel.cost.pipeline_order import MOST_ORDERS, ById, Orders
from perfmodel.numeric import maximum
from perfmodel.symbolic import Quantity, is_symbolic, named

if TYPE_CHECKING:
    from numpy.typing import NDArray


class TurnMessages(NamedTuple):
    """Messages that become ready during the last backward turn of a chunk, and slow its device down.

    Parameters
    ----------
    taken_s : float or ndarray
        What they take in all. [s]
    after_s : float or ndarray
        What is left of them at the end of the turn if none were on the way at its start. [s]
    slowdown : float or ndarray
        Share of the device that messages occupy: less than 1. [1]
    """

    taken_s: Quantity = 0.0
    after_s: Quantity = 0.0
    slowdown: Quantity = 0.0


@dataclass(frozen=True, slots=True)
class PipelineEnds:
    """Times at which each device of a pipeline, and each chunk of its layers, has finished all micro-batches.

    Parameters
    ----------
    device_s : tuple of float or ndarray
        End of each device's last turn. [s]
    chunk_s : tuple of float or ndarray
        End of each chunk's last turn: of its backward phase, if it has one. [s]
    left_s : tuple of float or ndarray
        Messages of each device still to be sent after its last turn; none without messages. [s]
    """

    device_s: tuple[Quantity, ...]
    chunk_s: tuple[Quantity, ...]
    left_s: tuple[Quantity, ...] = ()

    @property
    def latest_s(self) -> Quantity:
        """End of the device that finishes last. [s]"""
        return reduce(_later(self.device_s), self.device_s)


def pipeline_ends(
    orders: Orders,
    *,
    forward_s: Sequence[Quantity],
    backward_s: Sequence[Quantity],
    forward_send_s: Sequence[Quantity],
    backward_send_s: Sequence[Quantity],
    messages: Sequence[TurnMessages] = (),
) -> PipelineEnds:
    """Time at which each device and each chunk finishes, on the longest paths through turns and transfers.

    Parameters
    ----------
    orders : tuple of tuple of Turn
        Turns of each device. [-]
    forward_s, backward_s : sequence of float or ndarray
        Time of one micro-batch in each chunk. [s]
    forward_send_s, backward_send_s : sequence of float or ndarray
        Time of one micro-batch from each chunk to the next, and of its gradient back; one fewer than chunks. [s]
    messages : sequence of TurnMessages
        Messages of each chunk's last turn, which slow down the turns of its device beside which they are sent; none if
        they slow down nothing. [s]

    Returns
    -------
    PipelineEnds
        Counted from the first forward phase. [s]

    Notes
    -----
    Exact for chunks of any length. Valid for: a link of its own in each direction between two chunks, one transfer at a
    time, which keeps no device busy; messages of a device one after the other. Ignores: the update; links that several
    transfers share.

    Examples
    --------
    >>> from perfmodel.cost.pipeline_order import one_forward_one_backward_order
    >>> orders = one_forward_one_backward_order(stage_count=2, micro_batch_count=3)
    >>> pipeline_ends(orders, forward_s=[1.0] * 2, backward_s=[2.0] * 2, forward_send_s=[0.0], backward_send_s=[0.0])
    PipelineEnds(device_s=(12.0, 10.0), chunk_s=(12.0, 10.0), left_s=())
    """
    work_s = (*forward_s, *backward_s)
    send_s = (*forward_send_s, *backward_send_s)
    sent_s = [time_s for of_chunk in messages for time_s in of_chunk]
    if any(np.ndim(time_s) for time_s in (*work_s, *send_s, *sent_s)) and not is_symbolic(*work_s, *send_s, *sent_s):
        return _ends_together([(orders, work_s, send_s, messages)])[0]
    later = _later([*work_s, *send_s, *sent_s])
    ended = named if later is maximum else _as_it_is  # numbers need no name: skip the check in this hot loop
    device_s: list[Quantity] = [0.0] * len(orders)
    chunk_s: list[Quantity] = [0.0] * len(forward_s)
    link_s: list[Quantity] = [0.0] * len(send_s)
    arrived: list[Quantity] = []
    left_s: list[Quantity] = [0.0] * len(orders)
    is_sending = [False] * len(orders)
    for device, work, link, source, is_last in _events(ById(orders), len(forward_s)):
        start = device_s[device]
        if source != NO_TURN:
            start = later(start, arrived[source])
        taken_s = work_s[work]
        if messages and (is_last or is_sending[device]):
            left = later(left_s[device] - (start - device_s[device]), 0.0) if is_sending[device] else 0.0
            slowing = messages[work % len(forward_s)]
            sent = slowing if is_last else NO_MESSAGES
            taken_s, left = turn_beside_messages(
                work_s=taken_s, left_s=left, taken_s=sent.taken_s, after_s=sent.after_s, slowdown=slowing.slowdown
            )
            left_s[device], is_sending[device] = ended(left, "messages left"), True
        end = device_s[device] = chunk_s[work % len(forward_s)] = ended(start + taken_s, "end of turn")
        if link != NO_TURN:
            end = link_s[link] = ended(later(end, link_s[link]) + send_s[link], "end of transfer")
        arrived.append(end)
    return PipelineEnds(tuple(device_s), tuple(chunk_s), tuple(left_s) if messages else ())


NO_MESSAGES: Final = TurnMessages()
"""A turn during which no message becomes ready. [s]"""
_Pipeline = tuple[Orders, Sequence[Quantity], Sequence[Quantity], Sequence[TurnMessages]]
"""Orders of turns, the times of the works and of the links, and the messages of the chunks. [s]"""
MOST_TOGETHER: Final = 1 << 14
"""Configurations, in all orders, that are played at once: more would not stay in a cache of the processor. [1]"""


def pipelines_ends(pipelines: Sequence[_Pipeline]) -> list[PipelineEnds]:
    """Return the ends of pipelines, as :func:`pipeline_ends` does, for arrays of times.

    Parameters
    ----------
    pipelines : sequence of tuple
        Orders of turns; times of each chunk, first forward, then backward [s]; from each chunk to the next, and back
        [s]; and the messages of each chunk [s], of all pipelines or of none.

    Returns
    -------
    list of PipelineEnds
        Counted from the first forward phase of each. [s]
    """
    shapes = [_shape_of(works_s, sends_s) for _, works_s, sends_s, _ in pipelines]
    together: list[list[int]] = []
    for index in sorted(range(len(pipelines)), key=shapes.__getitem__):  # all take as much memory as the widest
        (*others, width), some = shapes[index], together[-1] if together else [index]
        *others_of_first, narrowest = shapes[some[0]]
        is_alike = others == others_of_first and width <= 1.5 * narrowest
        if together and is_alike and (len(some) + 1) * width <= MOST_TOGETHER:
            some.append(index)
        else:
            together.append([index])
    ends: dict[int, PipelineEnds] = {}
    for some in together:
        ends |= zip(some, _ends_together([pipelines[index] for index in some]), strict=True)
    return [ends[index] for index in range(len(pipelines))]


MOST_LEVELS: Final = 32
"""Sets of orders whose turns are kept level by level. [1]"""


def _shape_of(work_s: Sequence[Quantity], send_s: Sequence[Quantity]) -> tuple[int, ...]:
    return np.broadcast_shapes(*{np.shape(time_s) for time_s in (*work_s, *send_s)})


def _ends_together(pipelines: Sequence[_Pipeline]) -> list[PipelineEnds]:
    """Return the ends of pipelines, adding up at once all turns that do not wait for each other."""
    has_messages = bool(pipelines[0][-1])
    shapes = [_shape_of(works_s, (*sends_s, *sum(sent, ()))) for _, works_s, sends_s, sent in pipelines]
    shape = (*shapes[0][:-1], max(shape[-1] for shape in shapes))
    counts = np.array([(len(orders), len(works_s) // 2) for orders, works_s, *_ in pipelines])
    device_ends, chunk_ends = np.cumsum(counts, axis=0).T.tolist()
    device_s, chunk_s = np.zeros((device_ends[-1], *shape)), np.zeros((chunk_ends[-1], *shape))
    work, send = (_in_rows([pipeline[place] for pipeline in pipelines], shape) for place in (1, 2))
    taken_s, after_s, slowdown = (
        _in_rows([[of_chunk[place] for of_chunk in sent] for *_, sent in pipelines], shape) for place in range(3)
    )
    levels, slot_count = _levels(tuple([ById(orders) for orders, *_ in pipelines]), tuple(counts[:, 1].tolist()))
    link_s, arrived = np.zeros_like(send), np.zeros((slot_count, *shape))
    takes_time = send.any()
    slowdowns = {float(share) for *_, sent in pipelines for of_chunk in sent for share in np.ravel(of_chunk.slowdown)}
    shared = slowdowns.pop() if len(slowdowns) == 1 else None
    left_s = np.zeros_like(device_s)
    for level in levels:
        before = device_s.take(level.device, axis=0)
        end = np.maximum(before, arrived.take(level.source, axis=0))
        turn_s = work.take(level.work, axis=0)
        if has_messages and len(level.beside):
            device = level.device[level.beside]
            left = left_s[device] - (end - before)[level.beside]
            ready_s, late_s = np.zeros((2, *left.shape))
            ready_s[level.ending], late_s[level.ending] = taken_s[level.chunk], after_s[level.chunk]
            turn_s[level.beside], left_s[device] = turn_beside_messages(
                work_s=turn_s[level.beside],
                left_s=np.maximum(left, 0.0, out=left),
                taken_s=ready_s,
                after_s=late_s,
                slowdown=slowdown.take(level.slowed, axis=0) if shared is None else shared,
            )
        end += turn_s
        device_s[level.device] = end
        if len(level.last):
            chunk_s[level.chunk] = end[level.last]
        if takes_time and len(level.sent):
            sent = end.take(level.sent, axis=0)
            np.maximum(sent, link_s.take(level.link, axis=0), out=sent)
            sent += send.take(level.link, axis=0)
            link_s[level.link] = end[level.sent] = sent
        arrived[level.slot] = end
    of_all = [(device_s, device_ends), (chunk_s, chunk_ends), *([(left_s, device_ends)] if has_messages else ())]
    cut = [
        [tuple(rows[..., : of[-1]]) for rows, of in zip(np.split(ends, places[:-1]), shapes, strict=True)]
        for ends, places in of_all
    ]
    return [PipelineEnds(*of_one) for of_one in zip(*cut, strict=True)]


def _in_rows(times_s: Sequence[Sequence[Quantity]], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Arrange the times of all pipelines [s] in rows as wide as the widest."""
    rows = np.zeros((sum(map(len, times_s)), *shape))
    for row, time_s in zip(rows, chain.from_iterable(times_s), strict=True):
        row[..., : np.shape(time_s)[-1] if np.ndim(time_s) else None] = time_s
    return rows


def _later(times_s: Sequence[Quantity]) -> Callable[[Quantity, Quantity], Quantity]:
    is_plain = not any(np.ndim(time_s) for time_s in times_s) and not is_symbolic(*times_s)
    return max if is_plain else maximum  # several times as fast


def _as_it_is(value: Quantity, name: str) -> Quantity:
    del name
    return value


NO_TURN: Final = -1
"""Position of no link, and of no turn. [1]"""


class _Level(NamedTuple):
    """Turns that do not wait for each other, as arrays of the positions of the values they read and write."""

    device: NDArray[np.intp]
    work: NDArray[np.intp]
    source: NDArray[np.intp]
    slot: NDArray[np.intp]
    sent: NDArray[np.intp]
    link: NDArray[np.intp]
    last: NDArray[np.intp]
    chunk: NDArray[np.intp]
    beside: NDArray[np.intp]
    """Turns beside which messages are sent: of devices that end a chunk in them or did so before."""
    slowed: NDArray[np.intp]
    """Chunks of those turns, whose messages slow them down."""
    ending: NDArray[np.intp]
    """Those of them that end a chunk."""


NO_SOURCE: Final = 0
"""Position of inputs that are there from the start. [1]"""
NO_READER: Final = 1
"""Position of results that nothing waits for. [1]"""


class _Turns(NamedTuple):
    """Turns of all devices, level by level, as columns of the positions of the values they read and write."""

    level: NDArray[np.intp]
    device: NDArray[np.intp]
    work: NDArray[np.intp]
    link: NDArray[np.intp]
    source: NDArray[np.intp]
    slot: NDArray[np.intp]
    is_last: NDArray[np.bool_]
    is_beside: NDArray[np.bool_]
    awaited: NDArray[np.intp]
    """Number of the earlier turn whose result a turn waits for."""
    device_count: int
    slot_count: int


@lru_cache(maxsize=MOST_ORDERS)
def _turns_of(key: ById, chunk_count: int) -> _Turns:
    """Return turns level by level, and the positions of results not yet read, each reused after its result is read."""
    works = np.array([*range(chunk_count), *reversed(range(chunk_count, 2 * chunk_count))])  # of a micro-batch, in turn
    links = np.array(
        [*range(chunk_count - 1), NO_TURN, *reversed(range(chunk_count - 1, 2 * chunk_count - 2)), NO_TURN]
    )
    batch_count = max(turn.micro_batch for turn in key.orders[0]) + 1
    backward = 2 * chunk_count - 1
    orders = [
        [(chunk if phase == "forward" else backward - chunk) * batch_count + batch for phase, chunk, batch in order]
        for order in key.orders
    ]
    level_of = np.array(_levels_of_turns(orders, batch_count, 2 * chunk_count * batch_count))
    codes = np.concatenate([np.array(order) for order in orders])
    in_levels = np.argsort(level_of[codes], kind="stable")
    codes, every = codes[in_levels], np.arange(len(codes))
    step, batch = np.divmod(codes, batch_count)
    first_slots, windows, slot_count = _windows(level_of.reshape(-1, batch_count))
    slot_of, place_of = np.full(len(level_of), NO_SOURCE), np.full(len(level_of), NO_TURN)
    slot_of[codes], place_of[codes] = first_slots[step] + batch % windows[step], every
    work, waits = works[step], codes >= batch_count
    last_of_chunk = np.zeros(chunk_count, dtype=np.intp)
    last_of_chunk[work % chunk_count] = every  # of equal places, the last one stays
    is_last = np.zeros(len(codes), dtype=bool)
    is_last[last_of_chunk] = True
    level = level_of[codes]
    device = np.repeat(np.arange(len(orders)), [len(order) for order in orders])[in_levels]
    first_end = np.full(len(orders), len(codes))
    np.minimum.at(first_end, device[is_last], level[is_last])
    return _Turns(
        level=level,
        device=device,
        work=work,
        link=links[step],
        source=np.where(waits, slot_of[codes - batch_count], NO_SOURCE),
        slot=slot_of[codes],
        is_last=is_last,
        is_beside=level >= first_end[device],
        awaited=np.where(waits, place_of[codes - batch_count], NO_TURN),
        device_count=len(orders),
        slot_count=slot_count,
    )


def _levels_of_turns(orders: Sequence[Sequence[int]], batch_count: int, count: int) -> list[int]:
    """Return the level of each turn: one above both its device's turn before and the turn it waits for.

    Turns are numbered micro-batch by micro-batch in each step of their way, so that a turn waits for the one as many
    numbers before as there are micro-batches.
    """
    level_of = [NO_TURN] * count
    places, next_level = [0] * len(orders), [0] * len(orders)
    has_changed = True
    while has_changed:
        has_changed = False
        for device in (*range(len(orders)), *reversed(range(len(orders)))):
            order, place, level = orders[device], places[device], next_level[device]
            while place < len(order):
                code = order[place]
                if code >= batch_count:
                    awaited = level_of[code - batch_count]
                    if awaited == NO_TURN:
                        break
                    if awaited >= level:
                        level = awaited + 1
                level_of[code] = level
                level += 1
                place += 1
                has_changed = True
            places[device], next_level[device] = place, level
    assert all(place == len(order) for place, order in zip(places, orders, strict=True)), "an order waits for itself"
    return level_of


def _windows(levels: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp], int]:
    """Return the first position for results of each step, the number of its positions, and that of all positions.

    Micro-batches whose numbers differ by a multiple of that number take the same position, one after the other.
    """
    first, windows, count = [], [], NO_READER + 1
    unread = np.full((1, levels.shape[1]), NO_TURN)
    for written, read in pairwise(np.concatenate([levels, unread])):
        if read[0] == NO_TURN:
            first.append(NO_READER)
            windows.append(1)
            continue
        first.append(count)
        windows.append(_most_waiting(written, read))
        count += windows[-1]
    return np.array(first), np.array(windows), count


def _most_waiting(written: NDArray[np.intp], read: NDArray[np.intp]) -> int:
    """Return how many micro-batches in a row have results that wait at once; a level reads before it writes."""
    if written[0] > written[-1]:
        written, read = written[::-1], read[::-1]
    if (np.diff(written) < 0).any() or (np.diff(read) < 0).any():
        return len(written)
    return 1 + int((np.arange(len(written)) - np.searchsorted(read, written, side="right")).max())


@lru_cache(maxsize=MOST_ORDERS)
def _events(key: ById, chunk_count: int) -> list[tuple[int, int, int, int, bool]]:
    """Return the turns of all devices in one sequence; the last turn of each chunk is marked.

    Device, work, link, and place of the turn that each awaits come first.
    """
    turns = _turns_of.__wrapped__(key, chunk_count)
    columns = (turns.device, turns.work, turns.link, turns.awaited, turns.is_last)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@lru_cache(maxsize=MOST_LEVELS)
def _levels(keys: tuple[ById, ...], chunk_counts: tuple[int, ...]) -> tuple[list[_Level], int]:
    """Return the turns of pipelines level by level, each pipeline's values behind those of the one before."""
    pipelines = [_turns_of(key, count) for key, count in zip(keys, chunk_counts, strict=True)]
    chunk_count = np.array(chunk_counts)
    lengths = np.array([(turns.device_count, turns.slot_count) for turns in pipelines])
    values = np.column_stack([lengths, chunk_count, 2 * chunk_count, 2 * chunk_count - 2])
    firsts = np.cumsum(values, axis=0) - values
    of_pipeline = np.repeat(np.arange(len(keys)), [len(turns.level) for turns in pipelines])
    level, device, work, link, source, slot, is_last, is_beside = (
        np.concatenate(columns) for columns in list(zip(*pipelines, strict=True))[:8]
    )
    first_device, first_slot, first_chunk, first_work, first_link = firsts[of_pipeline].T
    has_link, chunk = link != NO_TURN, work % chunk_count[of_pipeline] + first_chunk
    device, work, link = device + first_device, work + first_work, link + first_link
    source, slot = source + first_slot, slot + first_slot
    order = np.argsort(level, kind="stable")
    edges = np.searchsorted(level[order], range(level.max() + 2))
    within = np.arange(len(order)) - np.repeat(edges[:-1], np.diff(edges))
    sent, last, beside = (np.flatnonzero(of[order]) for of in (has_link, is_last, is_beside))
    firsts_beside, chunk = np.searchsorted(beside, edges), chunk[order]
    ending = np.searchsorted(beside, last) - firsts_beside[level[order][last]]
    columns = [
        (edges, [column[order] for column in (device, work, source, slot)]),
        (np.searchsorted(sent, edges), [within[sent], link[order][sent]]),
        (np.searchsorted(last, edges), [within[last], chunk[last]]),
        (firsts_beside, [within[beside], chunk[beside]]),
        (np.searchsorted(last, edges), [ending]),
    ]
    cut = [
        [column[start:end] for start, end in pairwise(places.tolist())] for places, some in columns for column in some
    ]
    return [_Level(*of_level) for of_level in zip(*cut, strict=True)], int(lengths[:, 1].sum())
