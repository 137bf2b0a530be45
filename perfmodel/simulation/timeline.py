"""Tasks to be simulated, and the resulting timeline: when each ran, and how busy everything was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perfmodel.derived import derived_property
from perfmodel.errors import ArgumentError, TaskError, check_known, is_one_of, nearest_match
from perfmodel.layers.checks import check_path
from perfmodel.presentation.results import Drawn
from perfmodel.presentation.tables import Table
from perfmodel.presentation.timeline_figure import LaneBar, save_trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_INFINITY = float("inf")


@dataclass(frozen=True, slots=True)
class Task:
    """Work on a resource, a transfer over channels, or the work and then the transfer.

    It starts once the tasks it comes after have ended and a unit of its resource is free, and holds the unit until it
    ends. First ``duration_s`` and ``latency_s`` pass, then its bytes flow at the rate that the channels allow.

    >>> Task("copy", flow_bytes=1e6, channels=("root0 to gpu0",), latency_s=1e-5).kind
    'task'
    """

    name: str
    _: KW_ONLY
    resource: str | None = None
    duration_s: float = 0.0
    after: tuple[str, ...] = ()
    flow_bytes: float = 0.0
    channels: tuple[str, ...] = ()
    latency_s: float = 0.0
    kind: str = "task"

    def __post_init__(self) -> None:
        if not (
            0 <= self.duration_s < _INFINITY and 0 <= self.latency_s < _INFINITY and 0 <= self.flow_bytes < _INFINITY
        ):
            for field in ("duration_s", "latency_s", "flow_bytes"):
                value = getattr(self, field)
                if not 0 <= value < _INFINITY:
                    raise TaskError(self.name, f"{field} must be a finite number >= 0 (got {value!r})")
        if self.flow_bytes and not self.channels:
            raise TaskError(
                self.name, f"channels must name at least one channel for the {self.flow_bytes:g} B that flow (got none)"
            )
        for field in ("after", "channels"):
            if isinstance(getattr(self, field), str):
                names = getattr(self, field)
                raise TaskError(self.name, f"{field} must be a tuple of names, e.g. ({names!r},) (got {names!r})")


NO_LANE: Final = "(waiting)"
"""Lane of tasks without a resource or channel."""

PICTURES: Final = (".png", ".svg", ".pdf", ".html", ".htm", ".jpg", ".jpeg", ".gif", ".webp", ".eps")
"""Suffixes of pictures and pages, which are not traces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Start and end of one task."""

    task: str
    kind: str
    start_s: float
    flow_start_s: float
    end_s: float
    resource: str | None = None
    channels: tuple[str, ...] = ()
    flow_bytes: float = 0.0

    @property
    def duration_s(self) -> float:
        """Time from start to end. [s]"""
        return self.end_s - self.start_s

    def lanes(self) -> Iterator[tuple[str, float, float]]:
        """Yield every lane that the task used, with start and end [s]: its resource, and channels while bytes flow."""
        if self.resource is not None:
            yield self.resource, self.start_s, self.end_s
        for channel in dict.fromkeys(self.channels):
            yield channel, self.flow_start_s, self.end_s
        if self.resource is None and not self.channels and self.end_s > self.start_s:
            yield NO_LANE, self.start_s, self.end_s


@dataclass(frozen=True, kw_only=True)
class Timeline(Drawn):
    """Tasks as they ran, from time 0.

    Parameters
    ----------
    spans : tuple of Span
        One for each task, in the order of the tasks. [-]
    makespan_s : float
        When the last task ended. [s]
    event_count : int
        Ends of waits, work and flows in the simulation. [1]
    channels : mapping of str to float
        Rate of each channel. [B/s]
    resources : mapping of str to int
        Units of each resource. [1]
    kernels : tuple of Span
        Parts of the computation of a lone device, in order: its kernels, and dispatch that it waits for. [-]
    """

    spans: tuple[Span, ...]
    makespan_s: float
    event_count: int
    channels: Mapping[str, float]
    resources: Mapping[str, int]
    kernels: tuple[Span, ...] = ()

    _DICT_KEYS = ("makespan_s", "event_count", "channels", "resources", "spans", "kernels")

    def __repr__(self) -> str:
        return f"Timeline({len(self.spans)} tasks in {self.makespan_s:.6g} s)"

    @derived_property
    def _by_task(self) -> dict[str, Span]:
        return {span.task: span for span in self.spans}

    @derived_property
    def _busy(self) -> dict[str, tuple[float, float]]:
        """Lane -> time with any task running [s], and time summed over tasks [s]."""
        intervals: dict[str, list[tuple[float, float]]] = {}
        for span in (*self.spans, *self.kernels):
            for lane, start_s, end_s in span.lanes():
                intervals.setdefault(lane, []).append((start_s, end_s))
        return {
            lane: (_covered_s(spans), sum(end - start for start, end in spans)) for lane, spans in intervals.items()
        }

    @property
    def named_lanes(self) -> set[str]:
        """Lanes of kernels, on whose bars a picture writes names where there is room. [-]"""
        return {str(span.resource) for span in self.kernels if span.kind != "dispatch"}

    @property
    def rows(self) -> Table[LaneBar]:
        """A row, with start and end, for each task and lane that the task held. [s]"""
        return Table(self.bars(), title=f"{len(self.spans)} tasks in {self.makespan_s:.6g} s", row_type=LaneBar)

    def span(self, task: str) -> Span:
        """Start and end of a task.

        Raises
        ------
        TaskError
            If there was no such task.
        """
        if not is_one_of(task, self._by_task):
            nearest = nearest_match(task, self._by_task) if isinstance(task, str) else None
            raise TaskError(task, f"did not run{f'; did you mean {nearest!r}?' if nearest else ''}")
        return self._by_task[task]

    def busy_s(self, name: str) -> float:
        """Time during which any task held a resource or used a channel. [s]

        Raises
        ------
        UnknownNameError
            If neither a resource nor a channel has the name.
        """
        check_known("resource or channel", name, {*self.resources, *self.channels})
        return self._busy.get(name, (0.0, 0.0))[0]

    def idle_s(self, name: str) -> float:
        """Time until the last task ended during which nothing held a resource or used a channel. [s]"""
        return self.makespan_s - self.busy_s(name)

    def utilisation(self, name: str) -> float:
        """Share of a resource's units that were held, or of the bytes that a channel could have carried. [1]

        Unlike ``busy_s``, it distinguishes one busy core from sixteen, and a slow flow from one that fills the channel.
        """
        self.busy_s(name)  # rejects an unknown name
        if not self.makespan_s:
            return 0.0
        if name in self.resources:
            return self._busy.get(name, (0.0, 0.0))[1] / (self.resources[name] * self.makespan_s)
        carried = sum(span.flow_bytes * span.channels.count(name) for span in self.spans)
        return carried / (self.channels[name] * self.makespan_s)

    def bars(self) -> list[LaneBar]:
        """Bars of a picture: resources, then channels, in the order given."""
        bars = [
            LaneBar(lane=lane, name=span.task, kind=span.kind, start_s=start_s, end_s=end_s)
            for span in (*self.spans, *self.kernels)
            for lane, start_s, end_s in span.lanes()
        ]
        order = {name: place for place, name in enumerate((*self.resources, *self.channels, NO_LANE))}
        return sorted(bars, key=lambda bar: (order[bar.lane], bar.start_s, bar.end_s))

    def save(self, path: str | Path) -> Path:
        """Write a trace that ui.perfetto.dev and chrome://tracing open, with one track per lane.

        Parameters
        ----------
        path : str or Path
            File to write, e.g. ``step.trace.json``; an existing file is replaced as a whole. [-]

        Returns
        -------
        Path
            The file written. [-]

        Raises
        ------
        ArgumentError
            If the path cannot be written, or names a picture, which ``plot_timeline`` of a prediction draws.
        """
        check_path("path", path)
        if Path(path).suffix.lower() in PICTURES:
            allowed = "a trace such as step.trace.json; draw pictures with plot_timeline() of a prediction"
            raise ArgumentError("path", str(path), allowed)
        headings = dict.fromkeys(self.resources, "resources") | dict.fromkeys(self.channels, "channels")
        return save_trace(self.bars(), path, groups=headings)

    def _figure(self) -> Figure:
        """Draw a Gantt chart with a lane for each resource and channel in use."""
        from perfmodel.presentation.timeline_figure import gantt_chart

        return gantt_chart(self.bars(), title=f"{len(self.spans)} tasks", named=self.named_lanes)


def _covered_s(intervals: list[tuple[float, float]]) -> float:
    """Length of the union of intervals. [s]"""
    covered_s, reached_s = 0.0, 0.0
    for start_s, end_s in sorted(intervals):
        if end_s > reached_s:
            covered_s += end_s - max(start_s, reached_s)
            reached_s = end_s
    return covered_s
