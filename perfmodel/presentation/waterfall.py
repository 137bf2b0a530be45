"""A waterfall: how changes of parts lead from one total to another."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from perfmodel.errors import ArgumentError
from perfmodel.presentation.figures import GROUP_COLOURS
from perfmodel.presentation.quantities import SECONDS, seconds_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOTAL_COLOUR: Final = "0.45"
"""Both totals."""

LONGER_COLOUR: Final = GROUP_COLOURS[1]
"""Parts that take more time."""

SHORTER_COLOUR: Final = GROUP_COLOURS[0]
"""Parts that take less."""

TITLE_COLUMNS: Final = 95
"""Letters of a line of the title. [1]"""


def waterfall(first_s: float, changes: Mapping[str, float], *, ends: tuple[str, str], title: str) -> Figure:
    """Draw the way from one total to another, the largest change first.

    Parameters
    ----------
    first_s : float
        Where it begins. [s]
    changes : mapping of str to float
        What each part adds, or with a minus takes away. [s]
    ends : tuple of str
        What the first and the last bar are called. [-]
    title : str
        Heading; long lines are wrapped. [-]

    Returns
    -------
    matplotlib.figure.Figure
        The picture: a bar for each end and each change, from top to bottom. [-]

    Raises
    ------
    ArgumentError
        If it does not begin above zero.
    """
    from matplotlib.figure import Figure

    if not first_s > 0:
        raise ArgumentError("first_s", first_s, "a time above 0")
    steps = sorted(changes.items(), key=lambda change: -abs(change[1]))
    last_s = first_s + sum(changes.values())
    starts, lengths, colours, texts = [0.0], [first_s], [TOTAL_COLOUR], [seconds_text(first_s)]
    reached = first_s
    for _, change in steps:
        starts.append(min(reached, reached + change))
        lengths.append(abs(change))
        colours.append(LONGER_COLOUR if change > 0 else SHORTER_COLOUR)
        texts.append(f"{'+' if change > 0 else '-'}{seconds_text(abs(change))}")
        reached += change
    starts, lengths = [*starts, 0.0], [*lengths, last_s]
    colours, texts = [*colours, TOTAL_COLOUR], [*texts, seconds_text(last_s)]
    furthest = max(start + length for start, length in zip(starts, lengths, strict=True))
    factor, symbol = SECONDS.unit_for(furthest)
    names = [textwrap.fill(name, 34) for name in (ends[0], *(name for name, _ in steps), ends[1])]
    lines = [part for line in title.splitlines() for part in textwrap.wrap(line, TITLE_COLUMNS)]
    figure = Figure(figsize=(8.0, 0.9 + 0.2 * len(lines) + 0.42 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    places = range(len(names))
    axes.barh(places, [length / factor for length in lengths], left=[at / factor for at in starts], color=colours,
              height=0.62)  # fmt: skip
    for place, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        axes.annotate(texts[place], ((start + length) / factor, place), xytext=(4, 0), textcoords="offset points",
                      va="center", fontsize="small")  # fmt: skip
    level = first_s
    for place, (_, change) in enumerate([*steps, ("", 0.0)]):
        axes.plot([level / factor] * 2, [place + 0.31, place + 0.69], color="0.5", linewidth=0.9)
        level += change
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.set(xlabel=f"time [{symbol}]", xlim=(0, 1.2 * furthest / factor))
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize="small")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure
