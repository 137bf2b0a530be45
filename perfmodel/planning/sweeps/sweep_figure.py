"""The figure of a sweep: the best value at each point of an argument, or one column over another with the front."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.errors import ArgumentError, check_known
from perfmodel.planning.sweeps.results import LARGER_IS_BETTER, REASON
from perfmodel.prediction.arguments.table import ARGUMENTS
from perfmodel.presentation.figures import group_style, new_figure
from perfmodel.presentation.quantities import scale_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from perfmodel.planning.sweeps.answer import Sweep

MOST_POINTS: Final = 20_000
"""Most points of a cloud to draw, evenly spread over the table. [1]"""


def picture(sweep: Sweep, *, x: str, y: str, by: str | None) -> Figure:
    """Draw a column over an argument or over another column; see ``Sweep.plot``."""
    known = [name for name in sweep.columns if name != REASON]
    for kind, name, names in (
        ("column", x, known),
        ("column of results", y, [name for name in known if name in sweep.results]),
        ("argument of the sweep", by, list(sweep.space.by_name)),
    ):
        if name is not None:
            check_known(kind, name, names)
    fitting = sweep.feasible
    fitting = fitting.taken(np.isfinite(np.asarray(fitting[y], dtype=float)))
    if not len(fitting):
        raise ArgumentError("y", y, "a column with a value for a configuration that fits, or there is nothing to draw")
    figure, axes = new_figure(7.5, 4.8)
    if x in sweep.results:
        _cloud(axes, fitting, x, y, by)
    else:
        _best_lines(axes, fitting, x, y, by)
    axes.set_ylabel(labelled(y))
    axes.set_xlabel(labelled(x))
    axes.set_title(sweep.title)
    axes.grid(visible=True, alpha=0.3)
    if by is not None:
        axes.legend(title=labelled(by))
    return figure


UNITS: Final = {
    "usd_per_epoch": "USD", "usd": "USD", "energy_j": "J", "days": "days", "device_hours": "h", "mfu": "1",
}  # fmt: skip
"""Unit of a column whose name ends in no known unit."""


def labelled(name: str) -> str:
    """Return the label of an axis: a column with its unit.

    >>> labelled("memory_bytes"), labelled("batch_size"), labelled("device")
    ('memory_bytes [B]', 'batch_size [samples]', 'device')
    """
    scale = scale_of(name)
    base = next((symbol for factor, symbol in scale.units if factor == 1.0), "-") if scale is not None else "-"
    unit = ARGUMENTS[name].unit if name in ARGUMENTS else UNITS.get(name, base)
    return name if unit == "-" else f"{name} [{unit}]"


def _groups(sweep: Sweep, by: str | None) -> list[tuple[str, Any]]:
    if by is None:
        return [("", np.arange(len(sweep)))]
    codes, labels = sweep.codes(by)
    return [(str(labels[code]), np.flatnonzero(codes == code)) for code in np.unique(codes)]


def _best_lines(axes: Axes, sweep: Sweep, x: str, y: str, by: str | None) -> None:
    """Draw the best configuration at each value of an argument."""
    codes, labels = sweep.codes(x)
    values = np.asarray(sweep[y], dtype=float)
    best = np.maximum if y in LARGER_IS_BETTER else np.minimum
    numeric = labels.dtype != object
    for index, (name, places) in enumerate(_groups(sweep, by)):
        best_values = np.full(len(labels), -np.inf if y in LARGER_IS_BETTER else np.inf)
        best.at(best_values, codes[places], values[places])
        shown = np.flatnonzero(np.isfinite(best_values))
        at = labels[shown] if numeric else shown
        order = np.argsort(at)
        axes.plot(at[order], best_values[shown][order], label=name, **group_style(index))
    if not numeric:
        axes.set_xticks(range(len(labels)), [str(text) for text in labels], rotation=30, ha="right")
    elif np.all(labels > 0) and labels.max() / labels.min() > MOST_LINEAR_RATIO:
        axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)


MOST_LINEAR_RATIO: Final = 16
"""Largest ratio of an argument's values for a linear axis. [1]"""


def _cloud(axes: Axes, sweep: Sweep, x: str, y: str, by: str | None) -> None:
    """Draw configurations as points, with the Pareto front."""
    across, up = (np.asarray(sweep[name], dtype=float) for name in (x, y))
    for index, (name, places) in enumerate(_groups(sweep, by)):
        some = places[:: max(1, -(-len(places) // MOST_POINTS))]
        colour = group_style(index)["color"]
        axes.scatter(across[some], up[some], s=6, color=colour, label=name, rasterized=True)
    front = sweep.pareto(x, y)
    axes.plot(front[x], front[y], color="black", linewidth=1.2, drawstyle="default", marker=".")
    axes.set_xscale("log")
    axes.set_yscale("log")
