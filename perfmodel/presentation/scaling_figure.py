"""Lines over the number of workers, in panels side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from perfmodel.presentation.figures import empty_figure, frame, group_style, plain_ticks, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKED_POINTS: Final = 20
"""Most points of a curve with a marker at each. [1]"""

DOUBLING_RATIO: Final = 8
"""Ratio of most to fewest workers at or above which ticks double, if points are few. [1]"""

TITLE_COLUMNS: Final = 55

LEGEND_COLUMNS: Final = 3
"""Names that fit in a line below each panel. [1]"""

IDEALS: Final[dict[str, Callable[[int], float]]] = {"proportional": float, "constant": lambda workers: 1.0}
"""How the ideal depends on the number of workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line."""

    name: str
    workers: tuple[int, ...]
    values: tuple[float, ...]

    @classmethod
    def of(cls, name: str, rows: Iterable[Any], field: str) -> Curve:
        """Return the line of a field of rows that have ``workers``. [-]"""
        ordered = sorted(rows, key=lambda row: row.workers)
        values = tuple(getattr(row, field) for row in ordered)
        return cls(name=name, workers=tuple(row.workers for row in ordered), values=values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Lines over the number of workers."""

    label: str
    curves: tuple[Curve, ...]
    ideal: str | None = None


def worker_figure(panels: Sequence[Panel], *, title: str, marked_workers: int | None = None) -> Figure:
    """Draw panels side by side."""
    figure = empty_figure(0.6 + 4.7 * len(panels), 4.4)
    axes_row = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, panel in zip(axes_row, panels, strict=True):
        _draw(axes, panel, marked_workers=marked_workers)
    handles, names = axes_row[0].get_legend_handles_labels()
    figure.legend(
        handles,
        names,
        loc="outside lower center",
        ncols=min(len(names), LEGEND_COLUMNS * len(panels)),
        fontsize="small",
    )
    figure.suptitle(wrapped(title, TITLE_COLUMNS * len(panels)), fontsize="medium")
    return figure


def _draw(axes: Axes, panel: Panel, *, marked_workers: int | None) -> None:
    every = sorted({count for curve in panel.curves for count in curve.workers})
    doubles = 1 < len(every) <= MARKED_POINTS and every[-1] >= DOUBLING_RATIO * every[0]
    if doubles:
        axes.set_xscale("log", base=2)
    if doubles and panel.ideal == "proportional":
        axes.set_yscale("log", base=2)
    if panel.ideal is not None:
        ideal = IDEALS[panel.ideal]
        values = [ideal(count) for count in every]
        axes.plot(every, values, color="0.1", linestyle="--", linewidth=1.0, zorder=3, label="ideal")
    for index, curve in enumerate(panel.curves):
        axes.plot(
            curve.workers,
            curve.values,
            **group_style(index) | ({} if len(curve.workers) <= MARKED_POINTS else {"marker": None}),
            markersize=6 if index % 2 else 8,  # so that the lower of two coinciding lines shows
            linewidth=1.5,
            label=curve.name,
        )
    if marked_workers is not None:
        _mark(axes, panel, marked_workers)
    _dress(axes, panel, every)


def _mark(axes: Axes, panel: Panel, marked_workers: int) -> None:
    axes.axvline(marked_workers, color="0.6", linewidth=0.9, linestyle=":")
    for curve in panel.curves:
        if marked_workers in curve.workers:
            value = curve.values[curve.workers.index(marked_workers)]
            axes.annotate(
                f"{value:.3f}",
                (marked_workers, value),
                xytext=(5, -4),
                textcoords="offset points",
                va="top",
                fontsize="small",
            )


def _dress(axes: Axes, panel: Panel, every: Sequence[int]) -> None:
    from matplotlib.ticker import NullLocator

    axes.set(xlabel="workers", ylabel=panel.label)
    if len(every) <= MARKED_POINTS:
        axes.set_xticks(every)
        axes.xaxis.set_minor_locator(NullLocator())
        plain_ticks(axes.xaxis)
    if axes.get_yscale() == "log":
        plain_ticks(axes.yaxis)
    if panel.ideal == "constant":
        axes.set_ylim(0, max(1.05, axes.get_ylim()[1]))
    frame(axes)
