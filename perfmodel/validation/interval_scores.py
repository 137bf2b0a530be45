"""Scores of the intervals of a validation, beside intervals of a constant ratio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from perfmodel.presentation.tables import Table
from perfmodel.validation.metrics import coverage, interval_score, median_ratio

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.validation.cells import PredictedCell
    from perfmodel.validation.report import Report
    from perfmodel.validation.scores import FoldOutcome

OURS: Final = "perfmodel"
SAME_PROTOCOL: Final = "one ratio, from the same protocol"
ALL_PROTOCOLS: Final = "one ratio, from all protocols"


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalRow:
    """One line of the scores of intervals.

    Parameters
    ----------
    subset, intervals : str
        Which cells, and whose intervals. [-]
    cells : int
        Cells scored. [1]
    coverage_percent : float
        Share of measured times within their interval; 80 is right. [%]
    median_ratio : float
        Median of high over low: sharpness. [1]
    log_score, time_score_s : float
        Mean interval score of ln(time) and of the time; lower is better. [1, s]
    """

    subset: str
    intervals: str
    cells: int
    coverage_percent: float
    median_ratio: float
    log_score: float
    time_score_s: float


@dataclass(frozen=True, eq=False, kw_only=True)
class ConstantRatio:
    """Intervals that are a constant ratio wide, found from the residuals that ours were found from.

    Parameters
    ----------
    name : str
        Which residuals. [-]
    log_half_width : ndarray, shape (cells,)
        Half width of ln(time) of each scored cell, constant within a fold. [1]
    """

    name: str
    log_half_width: NDArray[np.float64]


def scored(outcomes: Sequence[FoldOutcome], ratios: Sequence[ConstantRatio], *, subset: str) -> list[IntervalRow]:
    """Score the intervals of a subset beside those of constant ratio.

    Parameters
    ----------
    outcomes : sequence of FoldOutcome
        Its folds, with intervals. [-]
    ratios : sequence of ConstantRatio
        Of the scored cells, in the order of the folds. [-]
    subset : str
        Label. [-]

    Returns
    -------
    list of IntervalRow
        Ours first. [-]
    """
    cells = [cell for outcome in outcomes for cell in outcome.predicted if cell.status == "measured"]
    return _rows_of(subset, cells, ratios)


def interval_rows(report: Report) -> Table[IntervalRow]:
    """Score the intervals of a report beside those of constant ratio.

    Parameters
    ----------
    report : Report
        A validation with intervals. [-]

    Returns
    -------
    Table of IntervalRow
        Ours first, for each subset; empty where there are no intervals. [-]
    """
    rows = []
    for subset in report.subsets:
        cells = [cell for cell, of in zip(report.cells, report.subset_of_cell, strict=True) if of == subset]
        rows += _rows_of(subset, cells, report.ratios.get(subset, ()))
    return Table(rows, title="80 % intervals", row_type=IntervalRow)


def _rows_of(subset: str, cells: Sequence[PredictedCell], ratios: Sequence[ConstantRatio]) -> list[IntervalRow]:
    if any(np.isnan(cell.low_s) for cell in cells):
        return []
    predicted = np.log([cell.predicted_s for cell in cells])
    own = np.array([np.log(cell.high_s / cell.predicted_s) for cell in cells])
    measured = np.array([cell.measured_s for cell in cells])
    named = [(OURS, own), *((ratio.name, ratio.log_half_width) for ratio in ratios)]
    return [_interval_row(subset, name, predicted, width, measured) for name, width in named]


def limited(ratios: Sequence[ConstantRatio], keep: NDArray[np.bool_]) -> tuple[ConstantRatio, ...]:
    """Return constant ratios on some of a subset's cells, those where ``keep`` of shape (cells,) is true. [-]"""
    return tuple(replace(ratio, log_half_width=ratio.log_half_width[keep]) for ratio in ratios)


def mean_over_cells(rows: Sequence[IntervalRow], score: str) -> float:
    """Return a score of our intervals over all cells.

    Parameters
    ----------
    rows : sequence of IntervalRow
        Scores by subset. [-]
    score : str
        Field of the rows. [-]

    Returns
    -------
    float
        Mean, weighted by cells; NaN where there are no intervals. [unit of the score]
    """
    ours = [row for row in rows if row.intervals == OURS]
    cells = sum(row.cells for row in ours)
    return sum(row.cells * float(getattr(row, score)) for row in ours) / cells if cells else float("nan")


def _interval_row(
    subset: str,
    name: str,
    log_predicted: NDArray[np.float64],
    log_half_width: NDArray[np.float64],
    measured_s: NDArray[np.float64],
) -> IntervalRow:
    log_low, log_high = log_predicted - log_half_width, log_predicted + log_half_width
    low, high = np.exp(log_low), np.exp(log_high)
    return IntervalRow(
        subset=subset,
        intervals=name,
        cells=len(measured_s),
        coverage_percent=100 * coverage(low, high, measured=measured_s),
        median_ratio=median_ratio(low, high),
        log_score=interval_score(log_low, log_high, measured=np.log(measured_s)),
        time_score_s=interval_score(low, high, measured=measured_s),
    )
