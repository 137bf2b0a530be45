"""Figures of two quantities that are both wanted small: points, the front that nothing beats, limits."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from perfmodel.presentation.figures import GROUP_COLOURS, GROUP_MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE_COLUMNS: Final = 80
"""Letters of a title in a line. [1]"""

WIDE_RANGE: Final = 8.0
"""Largest over smallest value from which on an axis is logarithmic. [1]"""


HALF: Final = 0.5
"""Share of the width from which on a name stands to the left of its point. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One thing with two costs.

    Parameters
    ----------
    group : str
        What the legend calls its kind. [-]
    label : str
        Its name, written beside it where it is on the front. [-]
    x, y : float
        Costs. [as the axes say]
    is_on_front : bool
        Whether nothing is better in both. [-]
    """

    group: str
    label: str
    x: float
    y: float
    is_on_front: bool


def trade_off_figure(
    points: Sequence[Point],
    *,
    title: str,
    x_label: str,
    y_label: str,
    most_x: float | None = None,
    most_y: float | None = None,
) -> Figure:
    """Draw points, a line through those on the front, and limits.

    Parameters
    ----------
    points : sequence of Point
        At least one. [-]
    title : str
        Heading. [-]
    x_label, y_label : str
        What the axes are. [-]
    most_x, most_y : float or None
        Limits, drawn as lines; None for none. [as the axes say]

    Returns
    -------
    matplotlib.figure.Figure
        The picture. [-]
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    figure = Figure(figsize=(7.6, 5.0), layout="constrained")
    axes = figure.add_subplot()
    front = sorted((point for point in points if point.is_on_front), key=lambda point: point.x)
    if len(front) > 1:
        across, up = [point.x for point in front], [point.y for point in front]
        label = "front: nothing is better in both"
        axes.plot(across, up, color="0.4", linewidth=1.2, drawstyle="steps-post", zorder=1, label=label)
    for index, group in enumerate(dict.fromkeys(point.group for point in points)):
        of_group = [point for point in points if point.group == group]
        colour = GROUP_COLOURS[index % len(GROUP_COLOURS)]
        axes.scatter(
            [point.x for point in of_group],
            [point.y for point in of_group],
            marker=GROUP_MARKERS[index % len(GROUP_MARKERS)],
            facecolors=[colour if point.is_on_front else "white" for point in of_group],
            edgecolors=colour,
            zorder=2,
            label=group,
        )
    for scale, limit, values in (
        (axes.set_xscale, most_x, [point.x for point in points]),
        (axes.set_yscale, most_y, [point.y for point in points]),
    ):
        shown = [*values, *([] if limit is None else [limit])]
        if min(shown) > 0 and max(shown) > WIDE_RANGE * min(shown):
            scale("log")
    axes.margins(0.08)
    _name(axes, front)
    if most_x is not None:
        axes.axvline(most_x, color="0.2", linestyle="--", linewidth=1.0, label=f"at most {most_x:g} {x_label}")
    if most_y is not None:
        axes.axhline(most_y, color="0.2", linestyle=":", linewidth=1.2, label=f"at most {most_y:g} {y_label}")
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "log":
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.grid(True, which="major", color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title("\n".join(textwrap.wrap(title, TITLE_COLUMNS)), fontsize="medium")
    figure.legend(loc="outside lower center", ncols=2, fontsize="small")
    return figure


def _name(axes: Axes, points: Sequence[Point]) -> None:
    """Write names beside points, towards the middle of the figure."""
    for point in points:
        across_share, _ = axes.transAxes.inverted().transform(axes.transData.transform((point.x, point.y)))
        is_right = across_share > HALF
        axes.annotate(
            point.label,
            (point.x, point.y),
            xytext=(-7 if is_right else 7, 6),
            textcoords="offset points",
            ha="right" if is_right else "left",
            fontsize="small",
        )
