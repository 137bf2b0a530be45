"""Figures: predicted against measured, and the parts of a step.

Every function returns a matplotlib ``Figure`` that belongs to the caller: pyplot and its global state are not
touched, so a figure can be made on a server without a display. matplotlib is imported on first use.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perfmodel.atomic_write import replacement_of
from perfmodel.errors import ArgumentError
from perfmodel.presentation.quantities import percent_text, seconds_text

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

TOLERANCE: Final = 0.25
"""Error of the two guide lines of a parity plot. [1]"""

GROUP_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999")
"""Okabe and Ito's colours, which colour-blind readers can tell apart (jfly.uni-koeln.de/color)."""

GROUP_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
"""Shapes that tell groups apart in print without colour."""

FORMATS: Final = (".png", ".pdf", ".svg")
"""Endings of the files a figure can be saved as."""

MANY_POINTS: Final = 100
"""Points of one group from which on they are drawn small. [1]"""

LARGE_MARKER: Final = 34
"""Area of a point among few. [pt^2]"""

SMALL_MARKER: Final = 12
"""Area of a point among many. [pt^2]"""

DOTS_PER_INCH: Final = 150


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
    """Plot predicted against measured times, both logarithmic, with lines of equality and of 25 % error.

    Parameters
    ----------
    predicted, measured : sequence of float
        Step times, positive, of the same length. [s]
    groups : sequence of str
        Group of each point, e.g. its framework; groups get a colour, a shape and a line in the legend. [-]
    title : str
        Heading. [-]
    hollow : sequence of bool or None
        Points to draw hollow, because they are shown but not scored; None for none of them. [-]
    intervals : sequence of tuple of float or None
        Low and high end of each prediction's interval; NaN or None for no bar. [s]
    quantity : str
        What the times are, for the axes. [-]

    Returns
    -------
    matplotlib.figure.Figure
        The plot. [-]

    Raises
    ------
    ArgumentError
        If there are no points, lengths differ, or a time is not positive.
    """
    from matplotlib.figure import Figure

    times = {"predicted": [float(time) for time in predicted], "measured": [float(time) for time in measured]}
    hollow = [False] * len(groups) if hollow is None else hollow
    _check_points(times, groups)
    if len(hollow) != len(groups):
        allowed = f"as many entries as groups ({len(groups)})"
        raise ArgumentError(argument="hollow", given=f"{len(hollow)} entries", allowed=allowed)
    figure = Figure(figsize=(6.4, 6.0), layout="constrained")
    axes = figure.add_subplot()
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
    colour = GROUP_COLOURS[index % len(GROUP_COLOURS)]
    axes.scatter(
        [times["measured"][place] for place in places],
        [times["predicted"][place] for place in places],
        s=LARGE_MARKER if len(places) < MANY_POINTS else SMALL_MARKER,
        facecolors="none" if hollow else colour,
        edgecolors=colour if hollow else "white",
        marker=GROUP_MARKERS[index % len(GROUP_MARKERS)],
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
            allowed = "finite times above zero, as both axes are logarithmic"
            raise ArgumentError(argument=name, given=wrong[0], allowed=allowed)


def _dress_parity(axes: Axes, limits: tuple[float, float], *, title: str, quantity: str) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    for axis, scale in ((axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)):
        scale("log")
        axis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds:g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.set(xlim=limits, ylim=limits, xlabel=f"measured {quantity} [s]", ylabel=f"predicted {quantity} [s]")
    axes.set_title(title, fontsize="medium")
    axes.set_aspect("equal")
    axes.grid(True, which="major", color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.legend(loc="upper left", fontsize="small", framealpha=0.9)


def breakdown_bar(parts: Mapping[str, float], *, title: str = "") -> Figure:
    """Plot the parts of a step as one horizontal bar each, longest first, with time and share.

    Parameters
    ----------
    parts : mapping of str to float
        Exclusive parts by name; those of zero length are left out. [s]
    title : str
        Heading. [-]

    Returns
    -------
    matplotlib.figure.Figure
        The plot. [-]

    Raises
    ------
    ArgumentError
        If no part is longer than zero.
    """
    from matplotlib.figure import Figure

    shown = sorted(((name, value) for name, value in parts.items() if value > 0), key=lambda part: part[1])
    if not shown:
        raise ArgumentError(argument="parts", given=dict(parts), allowed="at least one part longer than 0 s")
    whole = sum(value for _, value in shown)
    figure = Figure(figsize=(7.0, 1.0 + 0.42 * len(shown)), layout="constrained")
    axes = figure.add_subplot()
    milliseconds = [1e3 * value for _, value in shown]
    bars = axes.barh([name for name, _ in shown], milliseconds, color=GROUP_COLOURS[0], height=0.66)
    texts = [f"{seconds_text(value)}  ({percent_text(value / whole)})" for _, value in shown]
    axes.bar_label(bars, texts, padding=4, fontsize="small")
    axes.set(xlabel="time [ms]", xlim=(0, 1.35 * max(milliseconds)))
    axes.set_title(title or f"{seconds_text(whole)} in all", fontsize="medium", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure


def check_format(path: Path) -> None:
    """Refuse a file name whose ending no figure can be saved as.

    Parameters
    ----------
    path : Path
        Where a figure shall be written. [-]

    Raises
    ------
    ArgumentError
        If the ending is not one of ``FORMATS``.
    """
    if path.suffix.lower() not in FORMATS:
        allowed = f"a file name that ends in {', '.join(FORMATS)}"
        raise ArgumentError(argument="path", given=str(path), allowed=allowed)


def saved(figure: Figure, path: str | Path | None) -> Figure:
    """Return a figure, written first where a path is given.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The figure. [-]
    path : str, Path or None
        Where to write, as :func:`save` takes it; None writes nothing. [-]

    Returns
    -------
    matplotlib.figure.Figure
        The same. [-]

    Raises
    ------
    ArgumentError
        If the ending is not known, or the path cannot be written.
    """
    if path is not None:
        save(figure, path)
    return figure


def save(figure: Figure, path: str | Path, *, dots_per_inch: int = DOTS_PER_INCH) -> Path:
    """Write a figure so that a reader sees the old file or the whole new one, never a part.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The figure. [-]
    path : str or Path
        Where to write; the ending chooses png, pdf or svg, and a link is followed to the file it names. [-]
    dots_per_inch : int
        How fine a png is. [1]

    Returns
    -------
    Path
        The file written. [-]

    Raises
    ------
    ArgumentError
        If the ending is not known, or the path cannot be written or is a device, pipe or folder.
    """
    path = Path(path).expanduser()
    check_format(path)
    with replacement_of(path) as temporary:
        figure.savefig(temporary, dpi=dots_per_inch, format=path.suffix[1:].lower())
    return path
