"""The report of a validation in words: scoreboard, order of frameworks, cells set aside, worst cells."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from perfmodel.presentation.tables import Table

if TYPE_CHECKING:
    from perfmodel.validation.cells import PredictedCell
    from perfmodel.validation.report import Report

HEADINGS: Final = {
    "cells_of": "cells of",
    "mape": "MAPE [%]",
    "median": "median [%]",
    "p90": "p90 [%]",
    "typical": "exp|ln|-1 [%]",
    "bias": "bias",
    "within_10": "in 10 % [%]",
    "within_25": "in 25 % [%]",
}
LEGEND: Final = (
    "exp|ln|-1: 100 (exp(mean |ln(predicted / measured)|) - 1), the typical factor as a percentage; "
    "bias: geometric mean of predicted / measured;\nin 10 %, in 25 %: percentage of the cells predicted that closely"
)


@dataclass(frozen=True, slots=True)
class _ScoreLine:
    cells_of: str
    predictions: str
    cells: int
    mape: str
    median: str
    p90: str
    typical: str
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


def cell_lines(cells: Iterable[PredictedCell], *, title: str) -> Table[_CellLine]:
    """Return measured cells beside their predictions, ready to print.

    Parameters
    ----------
    cells : iterable of PredictedCell
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
            f"{row.typical_factor_percent:.1f}",
            f"{row.geometric_mean_ratio:.2f}",
            f"{row.percent_within_10:.0f}",
            f"{row.percent_within_25:.0f}",
        )
        for row in report.scoreboard
    )
    board = Table(lines, title=f"{report.table}, protocol {report.protocol}", headings=HEADINGS)
    parts = [f"{board.to_text()}\n{LEGEND}"]
    for subset in report.subsets:
        part = report._limited_to(np.array(report.subset_of_cell) == subset)
        share, pairs = part.rank_order
        low, high = part.bootstrap
        order = f"framework order right in {share:.0%} of {pairs} pairs; " if pairs else ""
        parts.append(f"{subset}: {order}MAPE {part.mape:.1f} %, 90 % interval over rows {low:.1f} to {high:.1f} %")
    if report.estimates:
        parts.append(
            f"fitted on this table: {report.parameter_count} constants; taken from it: none (refused otherwise); "
            f"of the fields in the files used, {len(report.estimates)} are estimates, not data (--json lists them)"
        )
    if report.set_aside:
        parts.append(
            cell_lines(report.set_aside, title="set aside, not scored (reasons in the table's file)").to_text()
        )
    parts.append(str(cell_lines(report.worst(), title="worst cells")))
    return "\n\n".join(parts)
