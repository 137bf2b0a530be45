"""Bars on lanes, as Gantt charts and traces show them; bars of a lane that overlap get a row each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneBar:
    """One bar.

    Parameters
    ----------
    lane : str
        Lane it is on. [-]
    name : str
        What it is called. [-]
    kind : str
        What decides its colour. [-]
    start_s, end_s : float
        From when to when. [s]
    """

    lane: str
    name: str
    kind: str
    start_s: float
    end_s: float


def rows_of(bars: Iterable[LaneBar]) -> dict[str, list[list[LaneBar]]]:
    """Deal the bars of each lane to as few rows as keep them apart; lanes in the order in which they first occur.

    Examples
    --------
    >>> bar = LaneBar(lane="cores", name="a", kind="decode", start_s=0.0, end_s=1.0)
    >>> {lane: len(rows) for lane, rows in rows_of([bar, bar]).items()}
    {'cores': 2}
    """
    of_lane: dict[str, list[LaneBar]] = {}
    for bar in bars:
        of_lane.setdefault(bar.lane, []).append(bar)
    return {lane: _rows(found) for lane, found in of_lane.items()}


def _rows(bars: list[LaneBar]) -> list[list[LaneBar]]:
    """Deal bars to rows, by start; the first row that is free takes the next."""
    rows: list[list[LaneBar]] = []
    running: list[tuple[float, int]] = []
    free: list[int] = []
    for bar in sorted(bars, key=lambda bar: (bar.start_s, bar.end_s)):
        while running and running[0][0] <= bar.start_s:
            heappush(free, heappop(running)[1])
        row = heappop(free) if free else len(rows)
        if row == len(rows):
            rows.append([])
        rows[row].append(bar)
        heappush(running, (bar.end_s, row))
    return rows
