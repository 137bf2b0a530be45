"""The report of a validation in words: scoreboard, order of frameworks, cells set aside, worst cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perfmodel.presentation.tables import Table

if TYPE_CHECKING:
    from perfmodel.validation.report import Report


@dataclass(frozen=True, slots=True)
class _ScoreLine:
    cells_of: str
    predictions: str
    cells: int
    mape: str
    median: str
    p90: str
    factor: str
    bias: str
    within_10: str
    within_25: str


@dataclass(frozen=True, slots=True)
class _CellLine:
    framework: str
    network: str
    device: str
    threads: str
    measured_s: str
    predicted_s: str
    ratio: str
    bound_by: str


def cell_lines(cells: tuple, *, title: str) -> Table[_CellLine]:  # type: ignore[type-arg]
    """Return measured cells beside their predictions, ready to print.

    Parameters
    ----------
    cells : tuple of PredictedCell
        Cells. [-]
    title : str
        Headline. [-]

    Returns
    -------
    Table
        One line per cell.
    """
    lines = tuple(
        _CellLine(
            cell.framework,
            cell.network,
            cell.device,
            "" if cell.threads is None else str(cell.threads),
            f"{cell.measured_s:.3f}",
            f"{cell.predicted_s:.3f}",
            f"{cell.ratio:.2f}",
            cell.bottleneck,
        )
        for cell in cells
    )
    return Table(lines, title=title)


def report_text(report: Report) -> str:
    """Return what ``print(report)`` shows.

    Parameters
    ----------
    report : Report
        The validation. [-]

    Returns
    -------
    str
        Scoreboard with baselines, rank order, bootstrap, set-aside and worst cells.
    """
    lines = tuple(
        _ScoreLine(
            row.subset,
            row.model,
            row.cells,
            f"{row.mape:.1f}",
            f"{row.median_ape:.1f}",
            f"{row.p90_ape:.1f}",
            f"{row.typical_factor:.1f}",
            f"{row.geometric_mean_ratio:.2f}",
            f"{row.within_10:.0f}",
            f"{row.within_25:.0f}",
        )
        for row in report.scoreboard
    )
    parts = [str(Table(lines, title=f"{report.table}, protocol {report.protocol}: errors in percent"))]
    for subset in report.subsets:
        part = report._limited_to(np.array(report.subset_of_cell) == subset)
        share, pairs = part.rank_order
        low, high = part.bootstrap
        order = f"framework order right in {share:.0%} of {pairs} pairs; " if pairs else ""
        parts.append(f"{subset}: {order}MAPE {part.mape:.1f} %, 90 % interval over rows {low:.1f} to {high:.1f} %")
    if report.set_aside:
        parts.append(str(cell_lines(report.set_aside, title="set aside, not scored (reasons in the table's file)")))
    parts.append(str(cell_lines(tuple(report.worst()), title="worst cells")))
    return "\n\n".join(parts)
