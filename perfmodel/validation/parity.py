"""Predicted against measured as a figure, with the interval of each prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.presentation.figures import parity_plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from perfmodel.validation.report import Report


def parity_figure(report: Report) -> Figure:
    """Draw the cells of a report.

    Parameters
    ----------
    report : Report
        A validation. [-]

    Returns
    -------
    matplotlib.figure.Figure
        Log-log plot; intervals are vertical bars. [-]
    """
    cells = (*report.cells, *report.set_aside)
    scores = ", ".join(f"{subset} {report.only(subset).mape:.1f} %" for subset in report.subsets)
    return parity_plot(
        [cell.predicted_s for cell in cells],
        [cell.measured_s for cell in cells],
        groups=[cell.framework for cell in cells],
        title=f"{report.table}, {report.protocol}: MAPE {scores}",
        hollow=[cell.status != "measured" for cell in cells],
        intervals=[(cell.low_s, cell.high_s) for cell in cells],
    )
