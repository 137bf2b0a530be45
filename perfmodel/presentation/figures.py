"""Figures: predicted against measured, and the parts of a step.

Every function returns a matplotlib ``Figure`` that belongs to the caller: pyplot and its global state are not
touched, so a figure can be made on a server without a display. matplotlib is imported on first use.
"""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perfmodel.atomic_write import replacement_of
from perfmodel.errors import ArgumentError
from perfmodel.presentation.quantities import SECONDS, byte_rate_text, flop_rate_text, percent_text, seconds_text

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from numpy.typing import NDArray


TOLERANCE: Final = 0.25
"""Error of the two guide lines of a parity plot. [1]"""

GROUP_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999")
"""Okabe and Ito's colours, which colour-blind readers can tell apart (jfly.uni-koeln.de/color)."""

GROUP_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
"""Shapes that distinguish groups in print without colour."""

FORMATS: Final = (".png", ".pdf", ".svg")

MANY_POINTS: Final = 100
"""Number of points of a group at or above which they are drawn small. [1]"""

LARGE_MARKER: Final = 34
"""Area of a point among few. [pt^2]"""

SMALL_MARKER: Final = 12
"""Area of a point among many. [pt^2]"""

DOTS_PER_INCH: Final = 150

NUMBER_OF_AN_AXIS: Final = "$\\mathdefault"
"""Beginning of the formulas that matplotlib itself writes, such as powers of ten. [-]"""


def empty_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size [in]; the layout makes room for everything drawn."""
    try:
        from matplotlib.figure import Figure
    except ValueError as error:  # matplotlib reads the variable when it is imported
        backend = os.environ.get("MPLBACKEND")
        raise ArgumentError("MPLBACKEND", backend, f"unset, or a name that matplotlib knows: {error}") from None
    return Figure(figsize=(width, height), layout="constrained")


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """Return an empty figure of this size [in] and its axes."""
    figure = empty_figure(width, height)
    return figure, figure.add_subplot()


def group_style(index: int) -> dict[str, Any]:
    """Return colour and shape of the group number ``index``."""
    return {
        "color": GROUP_COLOURS[index % len(GROUP_COLOURS)],
        "marker": GROUP_MARKERS[index % len(GROUP_MARKERS)],
    }


def grouped(points: Iterable[Any]) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """Yield the name, points and style of each group of points."""
    groups: dict[str, list[Any]] = {}
    for point in points:
        groups.setdefault(point.group, []).append(point)
    for index, (group, of_group) in enumerate(groups.items()):
        yield group, of_group, group_style(index)


def frame(axes: Axes) -> None:
    """Draw a light grid behind everything, and only the left and lower edges of the frame."""
    axes.grid(True, which="major", color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def plain_ticks(axis: Axis) -> None:
    """Write the numbers of an axis without exponents where they are short."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def parity_plot(
    predicted: Sequence[float] | NDArray[np.floating],
    measured: Sequence[float] | NDArray[np.floating],
    *,
    groups: Sequence[str],
    title: str,
    hollow: Sequence[bool] | None = None,
    intervals: Sequence[tuple[float, float]] | None = None,
    quantity: str = "step time",
) -> Figure:
    """Plot predicted against measured times, both logarithmic, with lines of equality and of 25 % error."""
    times = {"predicted": [float(time) for time in predicted], "measured": [float(time) for time in measured]}
    hollow = [False] * len(groups) if hollow is None else hollow
    _check_points(times, groups)
    if len(hollow) != len(groups):
        allowed = f"as many entries as groups ({len(groups)})"
        raise ArgumentError(argument="hollow", given=f"{len(hollow)} entries", allowed=allowed)
    figure, axes = new_figure(6.4, 6.0)
    every_time = [*times["predicted"], *times["measured"]]
    lowest, highest = limits = (min(every_time) / 1.5, max(every_time) * 1.5)
    axes.plot(limits, limits, color="0.2", linewidth=1.2, zorder=1, label="predicted = measured")
    for factor, name in ((1 + TOLERANCE, f"± {100 * TOLERANCE:.0f} %"), (1 - TOLERANCE, None)):
        line = [factor * lowest, factor * highest]
        axes.plot(limits, line, color="0.5", linewidth=0.9, linestyle="--", zorder=1, label=name)
    if intervals is not None and not any(math.isnan(end) for ends in intervals for end in ends):
        lows, highs = zip(*intervals, strict=True)
        axes.vlines(times["measured"], lows, highs, color="0.7", linewidth=0.8, zorder=1, label="80 % intervals")
    for index, group in enumerate(dict.fromkeys(groups)):
        of_group = [place for place, other in enumerate(groups) if other == group]
        filled = [place for place in of_group if not hollow[place]]
        _scatter(axes, times, filled, index=index, label=f"{group} ({len(filled)})")
        if aside := [place for place in of_group if hollow[place]]:
            _scatter(axes, times, aside, index=index, label=f"{group}, not scored ({len(aside)})", hollow=True)
    _dress_parity(axes, limits, title=title, quantity=quantity)
    return figure


def _scatter(
    axes: Axes,
    times: Mapping[str, Sequence[float]],
    places: Sequence[int],
    *,
    index: int,
    label: str,
    hollow: bool = False,
) -> None:
    """Draw some of the points in the colour and shape of the group number ``index``."""
    style = group_style(index)
    axes.scatter(
        [times["measured"][place] for place in places],
        [times["predicted"][place] for place in places],
        s=LARGE_MARKER if len(places) < MANY_POINTS else SMALL_MARKER,
        facecolors="none" if hollow else style["color"],
        edgecolors=style["color"] if hollow else "white",
        marker=style["marker"],
        linewidths=1.0 if hollow else 0.5,
        alpha=0.9,
        zorder=2,
        label=label,
    )


def _check_points(times: Mapping[str, Sequence[float]], groups: Sequence[str]) -> None:
    for name, values in times.items():
        if len(values) != len(groups) or not values:
            allowed = f"as many points as groups ({len(groups)}), and at least one"
            raise ArgumentError(argument=name, given=f"{len(values)} points", allowed=allowed)
        wrong = [value for value in values if not 0 < value < math.inf]
        if wrong:
            allowed = "finite times above zero, because both axes are logarithmic"
            raise ArgumentError(argument=name, given=wrong[0], allowed=allowed)


def _dress_parity(axes: Axes, limits: tuple[float, float], *, title: str, quantity: str) -> None:
    from matplotlib.ticker import NullFormatter

    for axis, scale in ((axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)):
        scale("log")
        plain_ticks(axis)
        axis.set_minor_formatter(NullFormatter())
    axes.set(xlim=limits, ylim=limits, xlabel=f"measured {quantity} [s]", ylabel=f"predicted {quantity} [s]")
    axes.set_title(title, fontsize="medium")
    axes.set_aspect("equal")
    axes.grid(True, which="major", color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.legend(loc="upper left", fontsize="small", framealpha=0.9)


def wrapped(title: str, columns: int) -> str:
    r"""Break the lines of a title that are longer than a figure is wide.

    >>> wrapped("resnet50 on an H100\n2 samples", 12)
    'resnet50 on\nan H100\n2 samples'
    """
    return "\n".join(part for line in title.splitlines() for part in textwrap.wrap(line, columns))


BARS_TITLE_COLUMNS: Final = 80


def breakdown_bar(parts: Mapping[str, float], *, title: str = "") -> Figure:
    """Plot the parts of a step as one horizontal bar each, longest first, with time and share."""
    shown = sorted(((name, value) for name, value in parts.items() if value > 0), key=lambda part: part[1])
    if not shown:
        raise ArgumentError(argument="parts", given=dict(parts), allowed="at least one part longer than 0 s")
    whole = sum(value for _, value in shown)
    heading = wrapped(title or f"{seconds_text(whole)} in all", BARS_TITLE_COLUMNS)
    figure, axes = new_figure(7.0, 0.6 + 0.2 * len(heading.splitlines()) + 0.42 * len(shown))
    milliseconds = [1e3 * value for _, value in shown]
    bars = axes.barh([name for name, _ in shown], milliseconds, color=GROUP_COLOURS[0], height=0.66)
    texts = [f"{seconds_text(value)}  ({percent_text(value / whole)})" for _, value in shown]
    axes.bar_label(bars, texts, padding=4, fontsize="small")
    axes.set(xlabel="time [ms]", xlim=(0, 1.35 * max(milliseconds)))
    figure.suptitle(heading, x=0.01, ha="left", fontsize="medium")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure


def check_format(path: Path) -> None:
    """Reject a file name whose ending is not a figure format."""
    if path.suffix.lower() not in FORMATS:
        raise ArgumentError(argument="path", given=str(path), allowed=f"a file name that ends in {', '.join(FORMATS)}")


def saved(figure: Figure, path: str | Path | None) -> Figure:
    """Return a figure; save it first if a path is given."""
    _show_names_as_written(figure)
    if path is not None:
        save(figure, path)
    return figure


def _show_names_as_written(figure: Figure) -> None:
    """Show a dollar in the name of a network or layer as it is; matplotlib would begin a formula there."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        if isinstance(text, Text) and "$" in text.get_text() and not text.get_text().startswith(NUMBER_OF_AN_AXIS):
            text.set_parse_math(False)


def save(figure: Figure, path: str | Path, *, dots_per_inch: int = DOTS_PER_INCH) -> Path:
    """Write a figure so that a reader sees either the old file or the complete new one."""
    path = Path(path).expanduser()
    check_format(path)
    _show_names_as_written(figure)
    with replacement_of(path) as temporary:
        figure.savefig(temporary, dpi=dots_per_inch, format=path.suffix[1:].lower())
    return path


@dataclass(frozen=True, slots=True)
class RooflinePoint:
    """One measured kernel."""

    intensity: float
    flop_per_s: float
    measured_s: float
    fitted_s: float
    group: str


def measured_roofline(points: Sequence[RooflinePoint], *, flop_per_s: float, bytes_per_s: float, title: str) -> Figure:
    """Draw kernels under the roof of the best product and stream, and next to it their fitted times."""
    figure = empty_figure(11, 5)
    roof, times = figure.subplots(1, 2)
    for group, of_group, style in grouped(points):
        style |= {"s": SMALL_MARKER, "alpha": 0.6}
        counted = [point for point in of_group if point.flop_per_s > 0]
        roof.scatter(
            [point.intensity for point in counted], [point.flop_per_s for point in counted], label=group, **style
        )
        times.scatter([point.measured_s for point in of_group], [point.fitted_s for point in of_group], **style)
    intensities = [point.intensity for point in points if point.flop_per_s > 0]
    _draw_roofs(roof, intensities, [Roof("best measured", flop_per_s, bytes_per_s)])
    ends = [point.measured_s for point in points] or [1e-6, 1.0]
    times.plot([min(ends), max(ends)], [min(ends), max(ends)], color="black", linewidth=1)
    times.set(xscale="log", yscale="log", xlabel="measured [s]", ylabel="fitted [s]")
    if points:  # a legend needs at least one group
        roof.legend(frameon=False)
    figure.suptitle(title)
    return figure


@dataclass(frozen=True, slots=True)
class Roof:
    """Limits of a device: its highest rates of arithmetic and of memory traffic."""

    name: str
    flop_per_s: float
    bytes_per_s: float

    @property
    def ridge(self) -> float:
        """Arithmetic intensity at which both limits are reached. [FLOP/B]"""
        return self.flop_per_s / self.bytes_per_s


@dataclass(frozen=True, slots=True)
class KernelPoint:
    """A kernel of a step: its position under the roof, and its share of the step."""

    group: str
    intensity: float
    flop_per_s: float
    share: float


LARGEST_MARKER: Final = 420
"""Area of the point with the largest share of a step. [pt^2]"""

SMALLEST_MARKER: Final = 5
"""Smallest visible area of a point. [pt^2]"""

ROOF_STYLES: Final = ("-", "--")


def _draw_roofs(axes: Axes, intensities: Sequence[float], roofs: Sequence[Roof]) -> None:
    """Draw lines of bandwidth and peak from the lowest to the highest arithmetic intensity."""
    ridges = [roof.ridge for roof in roofs]
    low, high = min(*intensities, *ridges, max(ridges)) / 2, max(*intensities, *ridges, min(ridges)) * 2
    for roof, style in zip(roofs, ROOF_STYLES, strict=False):
        label = f"{roof.name}: {flop_rate_text(roof.flop_per_s)}, {byte_rate_text(roof.bytes_per_s)}"
        heights = [low * roof.bytes_per_s, roof.flop_per_s, roof.flop_per_s]
        axes.plot([low, roof.ridge, high], heights, color="0.2", linewidth=1.2, linestyle=style, zorder=1, label=label)
    axes.set(xscale="log", yscale="log", xlabel="arithmetic intensity [FLOP/B]", ylabel="rate [FLOP/s]")


ROOFLINE_TITLE_COLUMNS: Final = 110


def kernel_roofline(points: Sequence[KernelPoint], roofs: Sequence[Roof], *, title: str) -> Figure:
    """Draw kernels under roofs, the highest roof first: area by share of the step, colour and shape by group."""
    if not points:
        raise ArgumentError("points", 0, "must have at least one kernel that does arithmetic: there is nothing to draw")
    from matplotlib.collections import PathCollection

    figure, axes = new_figure(8.0, 5.6)
    _draw_roofs(axes, [point.intensity for point in points], roofs)
    largest = max(point.share for point in points)
    shares: dict[str, float] = {}
    for point in points:
        shares[point.group] = shares.get(point.group, 0.0) + point.share
    for group, of_group, style in grouped(sorted(points, key=lambda point: -shares[point.group])):
        axes.scatter(
            [point.intensity for point in of_group],
            [point.flop_per_s for point in of_group],
            s=[max(LARGEST_MARKER * point.share / largest, SMALLEST_MARKER) for point in of_group],
            edgecolors="white",
            linewidths=0.5,
            alpha=0.75,
            zorder=2,
            label=f"{group}: {percent_text(shares[group])} of the step",
            **style,
        )
    roof = roofs[0]
    axes.plot([roof.ridge], [roof.flop_per_s], marker="o", color="0.2", markersize=4, zorder=3)
    axes.annotate(f"ridge {roof.ridge:.3g} FLOP/B", (roof.ridge, roof.flop_per_s), xytext=(0, 6),
                  textcoords="offset points", ha="center", va="bottom", fontsize="small")  # fmt: skip
    lowest = min(point.flop_per_s for point in points)
    axes.set(ylim=(lowest / 3, roof.flop_per_s * 4), ylabel="achieved [FLOP/s]")
    frame(axes)
    heading = wrapped(f"{title}\nlargest marker: {percent_text(largest)} of the step", ROOFLINE_TITLE_COLUMNS)
    axes.set_title(heading, fontsize="small", loc="left")
    legend = figure.legend(loc="outside lower center", ncols=2, fontsize="small")
    for handle in legend.legend_handles:
        if isinstance(handle, PathCollection):
            handle.set_sizes([LARGE_MARKER])
    return figure


TOTAL_COLOUR: Final = "0.45"

LONGER_COLOUR: Final = GROUP_COLOURS[1]
"""Parts that take more time."""

SHORTER_COLOUR: Final = GROUP_COLOURS[0]
"""Parts that take less."""

WATERFALL_TITLE_COLUMNS: Final = 95


def waterfall(first_s: float, changes: Mapping[str, float], *, ends: tuple[str, str], title: str) -> Figure:
    """Draw the changes that lead from one total to another, the largest first."""
    if not first_s > 0:
        raise ArgumentError("first_s", first_s, "a time above 0")
    steps = sorted(changes.items(), key=lambda change: -abs(change[1]))
    levels = list(accumulate((change for _, change in steps), initial=first_s))
    bars = [(ends[0], 0.0, first_s, TOTAL_COLOUR, seconds_text(first_s))]
    for (name, change), level in zip(steps, levels, strict=False):
        sign, colour = ("+", LONGER_COLOUR) if change > 0 else ("-", SHORTER_COLOUR)
        bars.append((name, min(level, level + change), abs(change), colour, f"{sign}{seconds_text(abs(change))}"))
    last_s = first_s + sum(changes.values())
    bars.append((ends[1], 0.0, last_s, TOTAL_COLOUR, seconds_text(last_s)))
    furthest = max(start + length for _, start, length, _, _ in bars)
    factor, symbol = SECONDS.unit_for(furthest)
    heading = wrapped(title, WATERFALL_TITLE_COLUMNS)
    figure, axes = new_figure(8.0, 0.9 + 0.2 * len(heading.splitlines()) + 0.42 * len(bars))
    for place, (_, start, length, colour, text) in enumerate(bars):
        axes.barh(place, length / factor, left=start / factor, color=colour, height=0.62)
        axes.annotate(text, ((start + length) / factor, place), xytext=(4, 0), textcoords="offset points",
                      va="center", fontsize="small")  # fmt: skip
    for place, level in enumerate(levels):
        axes.plot([level / factor] * 2, [place + 0.31, place + 0.69], color="0.5", linewidth=0.9)
    axes.set_yticks(range(len(bars)), [textwrap.fill(name, 34) for name, *_ in bars])
    axes.invert_yaxis()
    axes.set(xlabel=f"time [{symbol}]", xlim=(0, 1.2 * furthest / factor))
    figure.suptitle(heading, x=0.01, ha="left", fontsize="small")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure


TITLE_COLUMNS: Final = 80

WIDE_RANGE: Final = 8.0
"""Ratio of largest to smallest value at or above which an axis is logarithmic. [1]"""


HALF: Final = 0.5
"""Share of the width beyond which a name is to the left of its point. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One item with two costs."""

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
    """Draw points, a line through the points on the front, and limits."""
    figure, axes = new_figure(7.6, 5.0)
    front = sorted((point for point in points if point.is_on_front), key=lambda point: point.x)
    if len(front) > 1:
        across, up = [point.x for point in front], [point.y for point in front]
        label = "front: nothing is better in both"
        axes.plot(across, up, color="0.4", linewidth=1.2, drawstyle="steps-post", zorder=1, label=label)
    for group, of_group, style in grouped(points):
        axes.scatter(
            [point.x for point in of_group],
            [point.y for point in of_group],
            marker=style["marker"],
            facecolors=[style["color"] if point.is_on_front else "white" for point in of_group],
            edgecolors=style["color"],
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
            plain_ticks(axis)
    axes.set(xlabel=x_label, ylabel=y_label)
    frame(axes)
    axes.set_title(wrapped(title, TITLE_COLUMNS), fontsize="medium")
    figure.legend(loc="outside lower center", ncols=2, fontsize="small")
    return figure


def _name(axes: Axes, points: Sequence[Point]) -> None:
    """Write names next to points, towards the middle of the figure."""
    from matplotlib.patheffects import withStroke

    for point in points:
        across_share, _ = axes.transAxes.inverted().transform(axes.transData.transform((point.x, point.y)))
        is_right = across_share > HALF
        axes.annotate(
            point.label,
            (point.x, point.y),
            xytext=(-7, -12) if is_right else (7, 6),  # the front enters from above and leaves to the right
            textcoords="offset points",
            ha="right" if is_right else "left",
            fontsize="small",
            path_effects=[withStroke(linewidth=3, foreground="white")],  # lines may pass beneath
        )
