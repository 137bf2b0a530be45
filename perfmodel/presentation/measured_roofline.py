"""A roofline with measured kernels, and their fitted against their measured times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perfmodel.presentation.figures import GROUP_COLOURS, GROUP_MARKERS, SMALL_MARKER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class RooflinePoint:
    """One measured kernel.

    Parameters
    ----------
    intensity : float
        Arithmetic per byte moved. [FLOP/B]
    flop_per_s : float
        Rate that it reached. [FLOP/s]
    measured_s, fitted_s : float
        Its time, and that of the fitted curve. [s]
    group : str
        What it is drawn with. [-]
    """

    intensity: float
    flop_per_s: float
    measured_s: float
    fitted_s: float
    group: str


def measured_roofline(points: Sequence[RooflinePoint], *, flop_per_s: float, bytes_per_s: float, title: str) -> Figure:
    """Draw kernels under the roof of the best product and stream, and beside it their fitted times.

    Parameters
    ----------
    points : sequence of RooflinePoint
        Kernels; those without arithmetic are in the right panel only. [-]
    flop_per_s, bytes_per_s : float
        Best rates. [FLOP/s, B/s]
    title : str
        What was measured. [-]

    Returns
    -------
    matplotlib.figure.Figure
        Two panels, logarithmic. [-]
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5), layout="constrained")
    roof, times = figure.subplots(1, 2)
    for index, group in enumerate(dict.fromkeys(point.group for point in points)):
        style = {
            "color": GROUP_COLOURS[index % 8],
            "marker": GROUP_MARKERS[index % 10],
            "s": SMALL_MARKER,
            "alpha": 0.6,
        }
        of_group = [point for point in points if point.group == group]
        counted = [point for point in of_group if point.flop_per_s > 0]
        roof.scatter(
            [point.intensity for point in counted], [point.flop_per_s for point in counted], label=group, **style
        )
        times.scatter([point.measured_s for point in of_group], [point.fitted_s for point in of_group], **style)
    _dress_roof(roof, points, flop_per_s=flop_per_s, bytes_per_s=bytes_per_s)
    ends = [point.measured_s for point in points] or [1e-6, 1.0]
    times.plot([min(ends), max(ends)], [min(ends), max(ends)], color="black", linewidth=1)
    times.set(xscale="log", yscale="log", xlabel="measured [s]", ylabel="fitted [s]")
    if points:  # else there is nothing to tell apart
        roof.legend(frameon=False)
    figure.suptitle(title)
    return figure


def _dress_roof(axes: Axes, points: Sequence[RooflinePoint], *, flop_per_s: float, bytes_per_s: float) -> None:
    knee = flop_per_s / bytes_per_s
    counted = [point.intensity for point in points if point.flop_per_s > 0] or [knee]
    low, high = min(*counted, knee) / 2, max(*counted, knee) * 2
    axes.plot([low, knee, high], [low * bytes_per_s, flop_per_s, flop_per_s], color="black", linewidth=1)
    axes.set(xscale="log", yscale="log", xlabel="arithmetic intensity [FLOP/B]", ylabel="rate [FLOP/s]")
