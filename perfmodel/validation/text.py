"""The report of a validation in words: scoreboard, order of frameworks, cells set aside, worst cells."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, make_dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.presentation.tables import Table

if TYPE_CHECKING:
    from perfmodel.validation.cells import PredictedCell
    from perfmodel.validation.interval_scores import IntervalRow
    from perfmodel.validation.report import Report
    from perfmodel.validation.scores import FactorRow, FoldRow

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


SCORE_HEADINGS: Final = {
    **HEADINGS,
    "subset": "cells of",
    "typical_factor_percent": "exp|ln|-1 [%]",
    "median_ape": "median [%]",
    "p90_ape": "p90 [%]",
    "geometric_mean_ratio": "bias",
    "fitted": "constants",
    "naive": "best naive rule, told the same",
    "naive_mape": "its MAPE [%]",
    "naive_typical_factor_percent": "its exp|ln|-1 [%]",
    "most_percent": "most [%]",
    "is_pair": "one family of one framework",
    "change": "change",
}
"""Heading of each column of scores."""

TWO_PLACES: Final = ("geometric_mean_ratio", "factor")


def score_lines(table: Table[Any]) -> Table[Any]:
    """Return a table of scores with its numbers as people read them.

    Parameters
    ----------
    table : Table
        Rows of plain numbers and text. [-]

    Returns
    -------
    Table
        The same rows as text: one decimal of a percentage, two of a ratio.
    """
    columns = table.columns
    lines = make_dataclass("Line", [(name, str) for name in columns], frozen=True)
    rows = tuple(lines(*(_score_text(name, getattr(row, name)) for name in columns)) for row in table)
    return Table(rows, title=table.title, headings={name: SCORE_HEADINGS.get(name, name) for name in columns})


def _score_text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "YES" if value else ""
    if isinstance(value, float):
        if np.isnan(value):
            return ""
        return f"{value:.2f}" if name in TWO_PLACES else f"{value:.1f}"
    return str(value)


INTERVAL_LEGEND: Final = (
    "in interval: 80 is right; high / low: median, how sharp; score: mean interval score of ln(time) and of the time, "
    "lower is better; each\ninterval, and each constant ratio, is made without a residual of what its fold holds out"
)


@dataclass(frozen=True, slots=True)
class _IntervalLine:
    cells_of: str
    intervals: str
    cells: int
    coverage: str
    high_over_low: str
    log_score: str
    time_score: str


def interval_lines(rows: Iterable[IntervalRow]) -> Table[_IntervalLine]:
    """Return the scores of intervals, ready to print.

    Parameters
    ----------
    rows : iterable of IntervalRow
        Ours and those of constant ratio. [-]

    Returns
    -------
    Table
        One line per row.
    """
    lines = tuple(
        _IntervalLine(
            row.subset,
            row.intervals,
            row.cells,
            f"{row.coverage_percent:.0f}",
            f"{row.median_ratio:.2f}",
            f"{row.log_score:.3f}",
            f"{row.time_score_s:.4g}",
        )
        for row in rows
    )
    headings = {
        **HEADINGS,
        "intervals": "80 % intervals",
        "coverage": "in interval [%]",
        "high_over_low": "high / low",
        "log_score": "score of ln",
        "time_score": "score [s]",
    }
    return Table(lines, title="", headings=headings)


MOST_FOLDS: Final = 40
"""Folds up to which each is printed; --json has them all. [1]"""


@dataclass(frozen=True, slots=True)
class _FoldLine:
    cells_of: str
    held_out: str
    fitted: str
    scored: int
    constants: int
    mape: str
    typical: str
    bias: str


def fold_lines(folds: Iterable[FoldRow]) -> Table[_FoldLine]:
    """Return the folds of a validation, ready to print.

    Parameters
    ----------
    folds : iterable of FoldRow
        Folds. [-]

    Returns
    -------
    Table
        One line per fold.
    """
    lines = tuple(
        _FoldLine(
            row.subset,
            row.held_out,
            f"{row.fitted_cells}",
            row.scored_cells,
            row.fitted,
            f"{row.mape:.1f}",
            f"{row.typical_factor_percent:.1f}",
            f"{row.geometric_mean_ratio:.2f}",
        )
        for row in folds
    )
    headings = {**HEADINGS, "held_out": "held out", "fitted": "cells fitted", "scored": "scored"}
    return Table(lines, title="every fold", headings=headings)


@dataclass(frozen=True, slots=True)
class _FactorLine:
    cells_of: str
    factor_on: str
    value: str
    interval: str


def factor_lines(factors: Iterable[FactorRow]) -> Table[_FactorLine]:
    """Return fitted factors, ready to print.

    Parameters
    ----------
    factors : iterable of FactorRow
        Factors. [-]

    Returns
    -------
    Table
        One line per factor.
    """
    lines = tuple(
        _FactorLine(row.subset, row.name, f"{row.factor:.2f}", f"{row.low:.2f} to {row.high:.2f}") for row in factors
    )
    headings = {**HEADINGS, "factor_on": "factor on", "interval": "80 % interval"}
    return Table(lines, title="fitted factors on the sourced constants", headings=headings)


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
    if len(report.intervals):
        parts.append(f"{interval_lines(report.intervals)}\n{INTERVAL_LEGEND}")
    for subset in report.subsets:
        part = report._limited_to(np.array(report.subset_of_cell) == subset)
        share, pairs = part.rank_order
        low, high = part.bootstrap
        order = f"framework order right in {share:.0%} of {pairs} pairs; " if pairs else ""
        parts.append(f"{subset}: {order}MAPE {part.mape:.1f} %, 90 % interval over rows {low:.1f} to {high:.1f} %")
    fitted = ", ".join(f"{count} ({subset})" for subset, count in report.fitted.items())
    parts.append(
        f"fitted on this table in one fold, at most: {fitted} constants; shipped constants taken from it: none "
        f"(refused otherwise); of the fields in the files used, {len(report.estimates)} are estimates, not data "
        "(--json lists them)"
    )
    if 1 < len(report.folds) <= MOST_FOLDS:
        parts.append(str(fold_lines(report.folds)))
    if len(report.factors):
        parts.append(str(factor_lines(report.factors)))
    if report.set_aside:
        parts.append(
            cell_lines(report.set_aside, title="set aside, not scored (reasons in the table's file)").to_text()
        )
    parts.append(str(cell_lines(report.worst(), title="worst cells")))
    return "\n\n".join(parts)
