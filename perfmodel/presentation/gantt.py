"""Gantt charts: a lane for each device, link direction or pool of cores, a bar for what ran on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from perfmodel.errors import ArgumentError
from perfmodel.presentation.figures import GROUP_COLOURS
from perfmodel.presentation.lanes import LaneBar, rows_of
from perfmodel.presentation.quantities import seconds_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNITS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
"""Units of the time axis, largest first; the first that the chart is at least two of is taken. [s]"""

LANE_INCHES: Final = 0.24
"""Height of a lane. [in]"""

WITH_EDGE: Final = 0.006
"""Bars longer than this share of the whole have an edge; it would cover shorter ones. [1]"""

NARROWEST: Final = 0.0025
"""Share of the whole that even the shortest bar is wide: some two pixels, with which it cannot be missed. [1]"""

LOW_FROM: Final = 6
"""Rows of a lane from which on its bars have no edge either. [1]"""

FILLED: Final = 0.8
"""Share of a lane's height that its bars fill. [1]"""


def gantt_chart(bars: Sequence[LaneBar], *, title: str) -> Figure:
    """Draw bars on lanes, first lane on top, in a colour for each kind.

    Parameters
    ----------
    bars : sequence of LaneBar
        The bars; those of no length are left out, those of a lane that overlap share its height. One that would be
        narrower than a pixel or two is drawn ``NARROWEST`` wide. [-]
    title : str
        Heading, which the length of the whole is added to. [-]

    Returns
    -------
    matplotlib.figure.Figure
        The chart. [-]

    Raises
    ------
    ArgumentError
        If no bar has a length.
    """
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure

    shown = [bar for bar in bars if bar.end_s > bar.start_s]
    if not shown:
        raise ArgumentError(argument="bars", given=f"{len(bars)} bars", allowed="at least one longer than 0 s")
    whole_s = max(bar.end_s for bar in shown)
    unit_s, unit = next(((size, name) for size, name in UNITS if whole_s >= 2 * size), UNITS[-1])
    lanes = rows_of(shown)
    corners: dict[str, list[list[tuple[float, float]]]] = {}
    for place, rows in enumerate(lanes.values()):
        height = FILLED / len(rows)
        for row, row_bars in enumerate(rows):
            top = place - FILLED / 2 + row * height
            for bar in row_bars:
                width_s = max(bar.end_s - bar.start_s, NARROWEST * whole_s)
                left = min(bar.start_s, whole_s - width_s) / unit_s
                right = left + width_s / unit_s
                box = [(left, top), (right, top), (right, top + height), (left, top + height)]
                corners.setdefault(bar.kind, []).append(box)
    figure = Figure(figsize=(11.0, 1.3 + LANE_INCHES * len(lanes)), layout="constrained")
    axes = figure.add_subplot()
    by_first_start = sorted(corners, key=lambda kind: min(box[0][0] for box in corners[kind]))
    for index, kind in enumerate(by_first_start):
        colour = GROUP_COLOURS[index % len(GROUP_COLOURS)]
        wide = [
            box[1][0] - box[0][0] > WITH_EDGE * whole_s / unit_s and box[2][1] - box[1][1] > FILLED / LOW_FROM
            for box in corners[kind]
        ]
        axes.add_collection(
            PolyCollection(
                corners[kind],
                facecolors=colour,
                edgecolors=["white" if is_wide else colour for is_wide in wide],
                linewidths=[0.5 if is_wide else 0.0 for is_wide in wide],
                label=kind,
                zorder=2,
            )
        )
    axes.set(xlim=(0, whole_s / unit_s), ylim=(len(lanes) - 0.5, -0.5), xlabel=f"time [{unit}]")
    axes.set_yticks(range(len(lanes)), list(lanes), fontsize="small")
    axes.tick_params(axis="y", length=0)
    axes.set_axisbelow(True)
    axes.grid(visible=True, axis="x", color="0.9", linewidth=0.8)
    axes.hlines([place + 0.5 for place in range(len(lanes) - 1)], 0, whole_s / unit_s, color="0.93", linewidth=0.6)
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.suptitle(f"{title}, {seconds_text(whole_s)}", fontsize="medium", x=0.01, ha="left")
    axes.legend(  # of the axes, so that the layout gives it a line of its own below the title
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        borderaxespad=0.2,
        fontsize="small",
        ncols=min(len(corners), 6),
        frameon=False,
    )
    return figure
