"""Figures of quantities against the number of workers."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from perfmodel.presentation.figures import GROUP_COLOURS, GROUP_MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKED_POINTS: Final = 20
"""Points of a curve up to which each gets a marker. [1]"""

DOUBLING_RATIO: Final = 8
"""Ratio of most to fewest workers from which on the axes double from tick to tick, where points are few. [1]"""

TITLE_COLUMNS: Final = 55

LEGEND_COLUMNS: Final = 3
"""Names that fit below each panel in a line. [1]"""

IDEALS: Final[dict[str, Callable[[int], float]]] = {"proportional": float, "constant": lambda workers: 1.0}
"""What the best that can be expected does with the number of workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line.

    Parameters
    ----------
    name : str
        What the legend calls it. [-]
    workers : tuple of int
        Workers, ascending. [1]
    values : tuple of float
        What is drawn over them. [as the panel says]
    """

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
    """Lines over the number of workers.

    Parameters
    ----------
    label : str
        What is drawn. [-]
    curves : tuple of Curve
        Lines. [-]
    ideal : str or None
        ``proportional`` or ``constant``, for a dashed line beside; None for none. [-]
    """

    label: str
    curves: tuple[Curve, ...]
    ideal: str | None = None


def worker_figure(panels: Sequence[Panel], *, title: str, marked_workers: int | None = None) -> Figure:
    """Draw panels side by side.

    Parameters
    ----------
    panels : sequence of Panel
        With the same curves each. [-]
    title : str
        Heading. [-]
    marked_workers : int or None
        Where a vertical line stands, with the value of each curve that has a point there. [1]

    Returns
    -------
    matplotlib.figure.Figure
        The picture. [-]
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(0.6 + 4.7 * len(panels), 4.4), layout="constrained")
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
    lines = [part for line in title.splitlines() for part in textwrap.wrap(line, TITLE_COLUMNS * len(panels))]
    figure.suptitle("\n".join(lines), fontsize="medium")
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
            color=GROUP_COLOURS[index % len(GROUP_COLOURS)],
            marker=GROUP_MARKERS[index % len(GROUP_MARKERS)] if len(curve.workers) <= MARKED_POINTS else None,
            markersize=6 if index % 2 else 8,  # where lines lie on one another, the lower one still shows
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
    from matplotlib.ticker import FuncFormatter, NullLocator

    axes.set(xlabel="workers", ylabel=panel.label)
    if len(every) <= MARKED_POINTS:
        axes.set_xticks(every)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:g}"))
    if axes.get_yscale() == "log":
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if panel.ideal == "constant":
        axes.set_ylim(0, max(1.05, axes.get_ylim()[1]))
    axes.grid(True, which="major", color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
