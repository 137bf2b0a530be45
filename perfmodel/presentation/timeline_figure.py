"""Timelines as Gantt charts and trace files: bars on lanes; overlapping bars of a lane get separate rows."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perfmodel.atomic_write import save_text
from perfmodel.errors import ArgumentError
from perfmodel.presentation.figures import group_style, new_figure
from perfmodel.presentation.quantities import SECONDS, seconds_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneBar:
    """One bar."""

    lane: str
    name: str
    kind: str
    start_s: float
    end_s: float


def rows_of(bars: Iterable[LaneBar]) -> dict[str, list[list[LaneBar]]]:
    """Assign the bars of each lane to the fewest rows without overlap; lanes in order of first occurrence.

    >>> bar = LaneBar(lane="cores", name="a", kind="decode", start_s=0.0, end_s=1.0)
    >>> {lane: len(rows) for lane, rows in rows_of([bar, bar]).items()}
    {'cores': 2}
    """
    of_lane: dict[str, list[LaneBar]] = {}
    for bar in bars:
        of_lane.setdefault(bar.lane, []).append(bar)
    return {lane: _rows(bars_of_lane) for lane, bars_of_lane in of_lane.items()}


def _rows(bars: list[LaneBar]) -> list[list[LaneBar]]:
    """Assign bars to rows in order of start; the first free row takes the next bar."""
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


LANE_INCHES: Final = 0.24

WITH_EDGE: Final = 0.006
"""Bars longer than this share of the whole have an edge, which would cover shorter bars. [1]"""

LOW_FROM: Final = 6
"""Number of rows of a lane at or above which its bars have no edge. [1]"""

NARROWEST: Final = 0.0025
"""Least width of a visible bar, except a message, as a share of the whole: about two pixels. [1]"""

HAIRLINE: Final = 0.5
"""Width of the edge of a message, which stays visible even if it is shorter than a pixel. [points]"""

FILLED: Final = 0.8
"""Share of a lane's height that its bars fill. [1]"""


LETTER: Final = 0.0055
"""Width of a letter on a bar as a share of the whole. [1]"""


def _drawn_ends(bar: LaneBar, whole_s: float) -> tuple[float, float]:
    """Return the ends of a bar as it is drawn. [s]"""
    width_s = max(bar.end_s - bar.start_s, 0.0 if bar.kind == "message" else NARROWEST * whole_s)
    start_s = min(bar.start_s, whole_s - width_s)
    return start_s, start_s + width_s


def gantt_chart(bars: Sequence[LaneBar], *, title: str, named: Collection[str] = ()) -> Figure:
    """Draw bars on lanes, first lane on top, in a colour for each kind, with names on the bars of ``named`` lanes."""
    from matplotlib.collections import PolyCollection

    shown = [bar for bar in bars if bar.end_s > bar.start_s]
    if not shown:
        raise ArgumentError(argument="bars", given=f"{len(bars)} bars", allowed="at least one longer than 0 s")
    whole_s = max(bar.end_s for bar in shown)
    unit_s, unit = SECONDS.unit_for(whole_s / 2)
    lanes = rows_of(shown)
    corners: dict[str, list[list[tuple[float, float]]]] = {}
    for place, rows in enumerate(lanes.values()):
        height = FILLED / len(rows)
        for row, row_bars in enumerate(rows):
            top = place - FILLED / 2 + row * height
            for bar in row_bars:
                left, right = (seconds / unit_s for seconds in _drawn_ends(bar, whole_s))
                box = [(left, top), (right, top), (right, top + height), (left, top + height)]
                corners.setdefault(bar.kind, []).append(box)
    figure, axes = new_figure(11.0, 1.3 + LANE_INCHES * len(lanes))
    by_first_start = sorted(corners, key=lambda kind: min(box[0][0] for box in corners[kind]))
    for index, kind in enumerate(by_first_start):
        colour = group_style(index)["color"]
        wide = [
            box[1][0] - box[0][0] > WITH_EDGE * whole_s / unit_s and box[2][1] - box[1][1] > FILLED / LOW_FROM
            for box in corners[kind]
        ]
        axes.add_collection(
            PolyCollection(
                corners[kind],
                facecolors=colour,
                edgecolors=["white" if is_wide else colour for is_wide in wide],
                linewidths=[0.5 if is_wide else HAIRLINE * (kind == "message") for is_wide in wide],
                label=kind,
                zorder=2,
            )
        )
    for place, lane in enumerate(lanes):
        for bar in lanes[lane][0] if lane in named else ():
            word = bar.name.partition(",")[0]
            if (len(word) + 1) * LETTER * whole_s < bar.end_s - bar.start_s:
                middle = (bar.start_s + bar.end_s) / 2 / unit_s
                axes.text(middle, place, word, ha="center", va="center", fontsize="xx-small", zorder=3)
    axes.set(xlim=(0, whole_s / unit_s), ylim=(len(lanes) - 0.5, -0.5), xlabel=f"time [{unit}]")
    axes.set_yticks(range(len(lanes)), list(lanes), fontsize="small")
    axes.tick_params(axis="y", length=0)
    axes.set_axisbelow(True)
    axes.grid(visible=True, axis="x", color="0.9", linewidth=0.8)
    axes.hlines([place + 0.5 for place in range(len(lanes) - 1)], 0, whole_s / unit_s, color="0.93", linewidth=0.6)
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.suptitle(f"{title}, {seconds_text(whole_s)}", fontsize="medium", x=0.01, ha="left")
    axes.legend(  # belongs to the axes, so that the layout gives it a separate line below the title
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        borderaxespad=0.2,
        fontsize="small",
        ncols=min(len(corners), 6),
        frameon=False,
    )
    return figure


def trace_events(bars: Iterable[LaneBar], *, groups: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the events of a trace: a name for each track, and a complete event for each bar.

    Viewers draw events of one track nested and drop those that overlap in part, so bars of a lane that overlap get
    tracks of their own, and times are whole nanoseconds.

    References
    ----------
    .. [1] Trace Event Format, Google, 2016, "Complete events" and "Metadata events"; times in us.
    """
    processes: dict[str, int] = {}
    track = 0
    for lane, rows in rows_of(bars).items():
        group = groups.get(lane, "other")
        if group not in processes:
            processes[group] = len(processes) + 1
            yield _metadata("process_name", processes[group], 0, name=group)
            yield _metadata("process_sort_index", processes[group], 0, sort_index=processes[group])
        for place, row in enumerate(rows):
            track += 1
            title = lane if not place else f"{lane} ({place + 1})"
            yield _metadata("thread_name", processes[group], track, name=title)
            yield _metadata("thread_sort_index", processes[group], track, sort_index=track)
            for bar in row:
                start, end = round(1e9 * bar.start_s), round(1e9 * bar.end_s)
                yield {
                    "name": bar.name,
                    "cat": bar.kind,
                    "ph": "X",
                    "ts": _microseconds(start),
                    "dur": _microseconds(end - start),
                    "pid": processes[group],
                    "tid": track,
                }


def _metadata(event: str, process: int, track: int, **arguments: str | int) -> dict[str, Any]:
    return {"name": event, "ph": "M", "ts": 0, "pid": process, "tid": track, "args": arguments}


def _microseconds(nanoseconds: int) -> float:
    """Return whole nanoseconds in us, such that a viewer that multiplies by 1000 and truncates gets them back."""
    microseconds = nanoseconds / 1000
    return microseconds if int(microseconds * 1000) == nanoseconds else math.nextafter(microseconds, math.inf)


def save_trace(bars: Iterable[LaneBar], path: str | Path, *, groups: Mapping[str, str]) -> Path:
    """Write a trace so that a reader sees either the old file or the complete new one."""
    path = Path(path).expanduser()
    trace = {"displayTimeUnit": "ms", "traceEvents": list(trace_events(bars, groups=groups))}
    save_text(path, json.dumps(trace, separators=(",", ":"), allow_nan=False))
    return path
