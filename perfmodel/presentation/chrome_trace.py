"""Traces in the JSON format of chrome://tracing, which ui.perfetto.dev opens too."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from perfmodel.atomic_write import replacement_of
from perfmodel.presentation.lanes import LaneBar, rows_of


def trace_events(bars: Iterable[LaneBar], *, groups: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the events of a trace: a name for each track, and a complete event for each bar.

    Viewers draw events of one track nested and drop those that overlap in part, so bars of a lane that overlap get
    tracks of their own, and times are whole nanoseconds.

    Parameters
    ----------
    bars : iterable of LaneBar
        The bars. [-]
    groups : mapping of str to str
        Lane to the heading it stands under; lanes without one stand under ``other``. [-]

    Yields
    ------
    dict
        One event. [-]

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
    """Write a trace so that a reader sees the old file or the whole new one.

    Parameters
    ----------
    bars : iterable of LaneBar
        The bars. [-]
    path : str or Path
        Where to write. [-]
    groups : mapping of str to str
        Lane to the heading it stands under. [-]

    Returns
    -------
    Path
        The file written. [-]

    Raises
    ------
    ArgumentError
        If the path cannot be written.
    """
    path = Path(path).expanduser()
    trace = {"displayTimeUnit": "ms", "traceEvents": list(trace_events(bars, groups=groups))}
    with replacement_of(path) as temporary:
        temporary.write_text(json.dumps(trace, separators=(",", ":"), allow_nan=False), encoding="utf-8")
    return path
