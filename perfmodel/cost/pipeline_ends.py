"""Duration of a pipeline's turns: the longest path through turns and transfers, in one order or in many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from perfmodel.cost.pipeline_order import MOST_ORDERS, ById, Orders
from perfmodel.numeric import maximum
from perfmodel.symbolic import Quantity, is_symbolic, named

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class PipelineEnds:
    """When each device of a pipeline, and each chunk of its layers, has finished all micro-batches.

    Parameters
    ----------
    device_s : tuple of float or ndarray
        End of each device's last turn. [s]
    chunk_s : tuple of float or ndarray
        End of each chunk's last turn: of its backward phase, if it has one. [s]
    """

    device_s: tuple[Quantity, ...]
    chunk_s: tuple[Quantity, ...]

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
) -> PipelineEnds:
    """When each device and each chunk finishes, on the longest paths through turns and transfers.

    Parameters
    ----------
    orders : tuple of tuple of Turn
        Turns of each device. [-]
    forward_s, backward_s : sequence of float or ndarray
        Time of one micro-batch in each chunk. [s]
    forward_send_s, backward_send_s : sequence of float or ndarray
        Time of one micro-batch from each chunk to the next, and of its gradient back; one fewer than chunks. [s]

    Returns
    -------
    PipelineEnds
        Counted from the first forward phase. [s]

    Notes
    -----
    Exact for chunks of any length. Valid for: a link of its own in each direction between two chunks, one transfer at a
    time, which keeps no device busy. Ignores: the update; links that several transfers share.

    Examples
    --------
    >>> from perfmodel.cost.pipeline_order import one_forward_one_backward_order
    >>> orders = one_forward_one_backward_order(stage_count=2, micro_batch_count=3)
    >>> pipeline_ends(orders, forward_s=[1.0] * 2, backward_s=[2.0] * 2, forward_send_s=[0.0], backward_send_s=[0.0])
    PipelineEnds(device_s=(12.0, 10.0), chunk_s=(12.0, 10.0))
    """
    work_s = (*forward_s, *backward_s)
    send_s = (*forward_send_s, *backward_send_s)
    if any(np.ndim(time_s) for time_s in (*work_s, *send_s)) and not is_symbolic(*work_s, *send_s):
        return _ends_together([(orders, work_s, send_s)])[0]
    later = _later([*work_s, *send_s])
    ended = named if later is maximum else _as_it_is  # numbers need no name: skip the check in this hot loop
    device_s: list[Quantity] = [0.0] * len(orders)
    chunk_s: list[Quantity] = [0.0] * len(forward_s)
    link_s: list[Quantity] = [0.0] * len(send_s)
    arrived: list[Quantity] = []
    for device, work, link, source in _events(ById(orders), len(forward_s)):
        start = device_s[device]
        if source != NO_TURN:
            start = later(start, arrived[source])
        end = device_s[device] = chunk_s[work % len(forward_s)] = ended(start + work_s[work], "end of turn")
        if link != NO_TURN:
            end = link_s[link] = ended(later(end, link_s[link]) + send_s[link], "end of transfer")
        arrived.append(end)
    return PipelineEnds(tuple(device_s), tuple(chunk_s))


_Pipeline = tuple[Orders, Sequence[Quantity], Sequence[Quantity]]
"""Orders of turns, and the times of the works and of the links. [s]"""
MOST_TOGETHER: Final = 1 << 14
"""Configurations, in all orders, that are played at once: more would not stay in a cache of the processor. [1]"""


def pipelines_ends(pipelines: Sequence[_Pipeline]) -> list[PipelineEnds]:
    """Return the ends of pipelines of as many devices and chunks, as :func:`pipeline_ends` does, for arrays of times.

    Parameters
    ----------
    pipelines : sequence of tuple
        Orders of turns; times of each chunk, first forward, then backward [s]; and from each chunk to the next, and
        back [s]. Only the last axis of the arrays may differ between pipelines.

    Returns
    -------
    list of PipelineEnds
        Counted from the first forward phase of each. [s]
    """
    widths = [_shape_of(works_s, sends_s)[-1] for _, works_s, sends_s in pipelines]
    together: list[list[_Pipeline]] = [[]]
    widest = 0
    for pipeline, width in zip(pipelines, widths, strict=True):
        widest = max(widest, width)
        if together[-1] and (len(together[-1]) + 1) * widest > MOST_TOGETHER:
            together.append([])
            widest = width
        together[-1].append(pipeline)
    return [ends for some in together if some for ends in _ends_together(some)]


MOST_LEVELS: Final = 32
"""Sets of orders whose turns are kept level by level. [1]"""


def _shape_of(work_s: Sequence[Quantity], send_s: Sequence[Quantity]) -> tuple[int, ...]:
    return np.broadcast_shapes(*{np.shape(time_s) for time_s in (*work_s, *send_s)})


def _ends_together(pipelines: Sequence[_Pipeline]) -> list[PipelineEnds]:
    """Return the ends of pipelines: turns that do not wait for each other, of any of them, are added up together."""
    shapes = [_shape_of(works_s, sends_s) for _, works_s, sends_s in pipelines]
    count, shape = len(pipelines), (*shapes[0][:-1], max(shape[-1] for shape in shapes))
    device_count, work_count, link_count = (len(part) for part in pipelines[0])
    chunk_count = work_count // 2
    works, sends = np.zeros((count, work_count, *shape)), np.zeros((count, link_count + 1, *shape))
    for index, (_, works_s, sends_s) in enumerate(pipelines):
        width = shapes[index][-1]
        for rows, times_s in ((works[index], works_s), (sends[index], sends_s)):
            for row, time_s in zip(rows, times_s, strict=False):
                row[..., :width] = time_s
    device_s, chunk_s = np.zeros((count * device_count, *shape)), np.zeros((count * chunk_count, *shape))
    work, send = works.reshape(-1, *shape), sends.reshape(-1, *shape)
    levels, slot_count = _levels(tuple([ById(orders) for orders, _, _ in pipelines]), chunk_count)
    link_s, arrived = np.zeros_like(send), np.zeros((slot_count, *shape))
    for level in levels:
        end = device_s.take(level.device, axis=0)
        np.maximum(end, arrived.take(level.source, axis=0), out=end)
        end += work.take(level.work, axis=0)
        device_s[level.device] = end
        if len(level.last):
            chunk_s[level.chunk] = end[level.last]
        if len(level.sent):
            sent = end.take(level.sent, axis=0)
            np.maximum(sent, link_s.take(level.link, axis=0), out=sent)
            sent += send.take(level.link, axis=0)
            link_s[level.link] = end[level.sent] = sent
        arrived[level.slot] = end
    of_devices, of_chunks = (ends.reshape(count, -1, *shape) for ends in (device_s, chunk_s))
    return [
        PipelineEnds(*(tuple(ends[index, ..., : shapes[index][-1]]) for ends in (of_devices, of_chunks)))
        for index in range(count)
    ]


def _later(times_s: Sequence[Quantity]) -> Callable[[Quantity, Quantity], Quantity]:
    is_plain = not any(np.ndim(time_s) for time_s in times_s) and not is_symbolic(*times_s)
    return max if is_plain else maximum  # several times as fast


def _as_it_is(value: Quantity, name: str) -> Quantity:
    del name
    return value


_Event = tuple[int, int, int, int]
"""A turn's device, work and link, and the position of the turn that it waits for, which comes before it."""
NO_TURN: Final = -1
"""Position of no link, and of no turn. [1]"""


@lru_cache(maxsize=MOST_ORDERS)
def _events(key: ById, chunk_count: int) -> list[_Event]:
    """Return the turns of all devices in one sequence."""
    works = [*range(chunk_count), *reversed(range(chunk_count, 2 * chunk_count))]  # on the way of a micro-batch
    links = [*range(chunk_count - 1), NO_TURN, *reversed(range(chunk_count - 1, 2 * chunk_count - 2)), NO_TURN]
    batch_count = max(turn.micro_batch for turn in key.orders[0]) + 1
    orders = [
        [
            (chunk if phase == "forward" else 2 * chunk_count - 1 - chunk) * batch_count + batch
            for phase, chunk, batch in order
        ]
        for order in key.orders
    ]
    place_of = [NO_TURN] * (2 * chunk_count * batch_count)
    places = [0] * len(orders)
    events: list[_Event] = []
    before = -1
    while len(events) > before:
        before = len(events)
        for device, order in enumerate(orders):
            while places[device] < len(order):  # a slice would copy all turns that are left, each time
                code = order[places[device]]
                source = place_of[code - batch_count] if code >= batch_count else NO_TURN
                if source == NO_TURN and code >= batch_count:
                    break
                place_of[code] = len(events)
                places[device] += 1
                step = code // batch_count
                events.append((device, works[step], links[step], source))
    assert all(place == len(order) for place, order in zip(places, orders, strict=True)), "an order waits for itself"
    return events


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
    device_count: int
    slot_count: int


@lru_cache(maxsize=MOST_ORDERS)
def _turns_of(key: ById, chunk_count: int) -> _Turns:
    """Return turns level by level, and the positions of results not yet read, each reused after its result is read."""
    events = _events.__wrapped__(key, chunk_count)
    level_of: list[int] = []
    next_level = [0] * len(key.orders)
    slots = [NO_READER] * len(events)
    for device, _, _, source in events:
        level = next_level[device]
        if source != NO_TURN:
            slots[source] = NO_SOURCE
            level = max(level, level_of[source] + 1)
        level_of.append(level)
        next_level[device] = level + 1
    levels = np.array(level_of)
    order = np.argsort(levels, kind="stable")
    edges = np.searchsorted(levels[order], range(levels.max() + 2)).tolist()
    columns = np.fromiter(chain.from_iterable(events), dtype=np.intp, count=4 * len(events)).reshape(-1, 4)
    device_of, work_of, link_of, source_of = columns[order].T
    slot_count = _give_slots(slots, source_of.tolist(), order.tolist(), edges)
    values = np.array([*slots, NO_SOURCE])
    last_of_chunk = np.zeros(chunk_count, dtype=np.intp)
    last_of_chunk[columns[:, 1] % chunk_count] = np.arange(len(events))  # of equal places, the last one stays
    is_last = np.zeros(len(events), dtype=bool)
    is_last[last_of_chunk] = True
    return _Turns(
        level=levels[order],
        device=device_of,
        work=work_of,
        link=link_of,
        source=values[source_of],
        slot=values[order],
        is_last=is_last[order],
        device_count=len(key.orders),
        slot_count=slot_count,
    )


@lru_cache(maxsize=MOST_LEVELS)
def _levels(keys: tuple[ById, ...], chunk_count: int) -> tuple[list[_Level], int]:
    """Return the turns of pipelines level by level, each pipeline's values behind those of the one before."""
    pipelines = [_turns_of(key, chunk_count) for key in keys]
    counts = [len(turns.level) for turns in pipelines]
    of_pipeline = np.repeat(np.arange(len(counts)), counts)
    slot_ends = np.cumsum([turns.slot_count for turns in pipelines])
    level, device, work, link, source, slot, is_last = (
        np.concatenate(columns) for columns in list(zip(*pipelines, strict=True))[:7]
    )
    has_link, first_slot = link != NO_TURN, np.array([0, *slot_ends[:-1]])[of_pipeline]
    device, chunk = device + of_pipeline * pipelines[0].device_count, work % chunk_count + of_pipeline * chunk_count
    work, link = work + of_pipeline * 2 * chunk_count, link + of_pipeline * (2 * chunk_count - 1)
    source, slot = source + first_slot, slot + first_slot
    order = np.argsort(level, kind="stable")
    edges = np.searchsorted(level[order], range(level.max() + 2))
    within = np.arange(len(order)) - np.repeat(edges[:-1], np.diff(edges))
    sent, last = np.flatnonzero(has_link[order]), np.flatnonzero(is_last[order])
    columns = [
        (edges, [column[order] for column in (device, work, source, slot)]),
        (np.searchsorted(sent, edges), [within[sent], link[order][sent]]),
        (np.searchsorted(last, edges), [within[last], chunk[order][last]]),
    ]
    cut = [
        [column[start:end] for start, end in pairwise(places.tolist())] for places, some in columns for column in some
    ]
    return [_Level(*values) for values in zip(*cut, strict=True)], int(slot_ends[-1])


def _give_slots(slots: list[int], sources: Sequence[int], order: Sequence[int], edges: Sequence[int]) -> int:
    """Give each turn whose result is read a position to keep it in; return how many there are."""
    unused: list[int] = []
    count = NO_READER + 1
    for start, end in pairwise(edges):
        unused += [slots[source] for source in sources[start:end] if source != NO_TURN]
        for place in order[start:end]:
            if slots[place] != NO_READER:
                if not unused:
                    unused.append(count)
                    count += 1
                slots[place] = unused.pop()
    return count
