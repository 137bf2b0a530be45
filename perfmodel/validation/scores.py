"""What a validation yields, line by line: scores, folds, fitted factors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import ArrayLike

from perfmodel.validation import metrics

if TYPE_CHECKING:
    from perfmodel.calibration.fit import Fit
    from perfmodel.validation.cells import PredictedCell
    from perfmodel.validation.report import Report


def percent_within(predicted: ArrayLike, *, measured: ArrayLike, percent: float) -> float:
    """Return the percentage of predictions whose error is at most ``percent``.

    Parameters
    ----------
    predicted, measured : array_like of float
        Positive values. [s]
    percent : float
        Largest error that counts. [%]
    """
    return 100 * metrics.share_within(predicted, measured=measured, percent=percent)


METRICS: Final[Mapping[str, Callable[..., float]]] = {
    "mape": metrics.mape,
    "median_ape": metrics.median_ape,
    "p90_ape": metrics.p90_ape,
    "typical_factor_percent": metrics.typical_factor_percent,
    "geometric_mean_ratio": metrics.geometric_mean_ratio,
    "percent_within_10": partial(percent_within, percent=10),
    "percent_within_25": partial(percent_within, percent=25),
}
"""Figures of every score -> how each follows from predicted and measured values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """One line of the scoreboard.

    Parameters
    ----------
    subset, model : str
        Which cells, and whose predictions. [-]
    cells : int
        Cells scored; a baseline may have nothing to say about some. [1]
    mape, median_ape, p90_ape, typical_factor_percent : float
        Mean, median and 90th percentile of the absolute error; 100 (exp(mean |ln ratio|) - 1). [%]
    geometric_mean_ratio : float
        Bias: predicted over measured. [1]
    percent_within_10, percent_within_25 : float
        Percentage of the cells that are predicted within 10 and 25 percent. [%]
    fitted : int
        Numbers fitted on the table for one fold. [1]
    """

    subset: str
    model: str
    cells: int
    mape: float
    median_ape: float
    p90_ape: float
    typical_factor_percent: float
    geometric_mean_ratio: float
    percent_within_10: float
    percent_within_25: float
    fitted: int


def score(subset: str, model: str, predicted_s: Any, *, measured_s: Any, fitted: int) -> ScoreRow:
    """Score predictions against measurements.

    Parameters
    ----------
    subset, model : str
        Labels. [-]
    predicted_s, measured_s : array_like of float, shape (n,)
        Times. [s]
    fitted : int
        Numbers fitted on the table. [1]

    Returns
    -------
    ScoreRow
        All metrics.
    """
    figures = {name: metric(predicted_s, measured=measured_s) for name, metric in METRICS.items()}
    return ScoreRow(subset=subset, model=model, cells=len(measured_s), fitted=fitted, **figures)


def score_rows(report: Report) -> tuple[ScoreRow, ...]:
    """Score the model and each naive baseline on the same cells, subset by subset.

    Parameters
    ----------
    report : Report
        A validation. [-]

    Returns
    -------
    tuple of ScoreRow
        The model first, then with the cells set aside, then the baselines. [-]
    """
    rows = []
    for subset in report.subsets:
        cells = [cell for cell, of in zip(report.cells, report.subset_of_cell, strict=True) if of == subset]
        aside = [cell for cell, of in zip(report.set_aside, report.subset_of_set_aside, strict=True) if of == subset]
        fitted = report.fitted.get(subset, 0)
        for model, scored in (("perfmodel", cells), ("perfmodel, with the cells set aside", [*cells, *aside])):
            if model == "perfmodel" or aside:
                times, measured_s = [cell.predicted_s for cell in scored], [cell.measured_s for cell in scored]
                rows.append(score(subset, model, times, measured_s=measured_s, fitted=fitted))
        measured = np.array([cell.measured_s for cell in cells])
        for baseline in report.baselines[subset]:
            covered, fitted = baseline.covered, baseline.parameter_count
            if covered.any():
                predicted = baseline.predicted_s[covered]
                rows.append(score(subset, baseline.name, predicted, measured_s=measured[covered], fitted=fitted))
    return tuple(rows)


@dataclass(frozen=True, eq=False, kw_only=True)
class FoldOutcome:
    """One fold: what it was fitted on, and what it predicted.

    Parameters
    ----------
    label : str
        What was held out. [-]
    predicted : tuple of PredictedCell
        Cells that were held out, those set aside too. [-]
    trained : tuple of PredictedCell
        Cells that were fitted, for the naive rules. [-]
    fit : Fit or None
        Fitted constants; None where nothing was fitted. [-]
    """

    label: str
    predicted: tuple[PredictedCell, ...]
    trained: tuple[PredictedCell, ...]
    fit: Fit | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldRow:
    """Score of one fold.

    Parameters
    ----------
    subset, held_out : str
        Which cells, and what the fit did without. [-]
    fitted_cells, scored_cells : int
        Cells it was fitted and scored on. [1]
    fitted : int
        Constants that its cells determined. [1]
    mape, typical_factor_percent : float
        Mean absolute error; 100 (exp(mean |ln ratio|) - 1). [%]
    geometric_mean_ratio : float
        Bias: predicted over measured. [1]
    """

    subset: str
    held_out: str
    fitted_cells: int
    scored_cells: int
    fitted: int
    mape: float
    typical_factor_percent: float
    geometric_mean_ratio: float


def fold_row(subset: str, outcome: FoldOutcome) -> FoldRow | None:
    """Score one fold.

    Parameters
    ----------
    subset : str
        Label. [-]
    outcome : FoldOutcome
        The fold. [-]

    Returns
    -------
    FoldRow or None
        None where it holds out only cells that are set aside. [-]
    """
    scored = [cell for cell in outcome.predicted if cell.status == "measured"]
    if not scored:
        return None
    predicted, measured = [cell.predicted_s for cell in scored], [cell.measured_s for cell in scored]
    figures = ("mape", "typical_factor_percent", "geometric_mean_ratio")
    return FoldRow(
        subset=subset,
        held_out=outcome.label,
        fitted_cells=len(outcome.trained),
        scored_cells=len(scored),
        fitted=0 if outcome.fit is None else outcome.fit.parameter_count,
        **{name: METRICS[name](predicted, measured=measured) for name in figures},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorRow:
    """One fitted factor of a validation with a single fold.

    Parameters
    ----------
    subset, name : str
        Which cells, and which unknown. [-]
    factor, low, high : float
        Factor on the sourced constants, and its 80 % interval. [1]
    """

    subset: str
    name: str
    factor: float
    low: float
    high: float


def factor_rows(subset: str, outcomes: Sequence[FoldOutcome]) -> tuple[FactorRow, ...]:
    """Return the fitted factors where one fit stands for the subset.

    Parameters
    ----------
    subset : str
        Label. [-]
    outcomes : sequence of FoldOutcome
        Folds. [-]

    Returns
    -------
    tuple of FactorRow
        Empty where nothing was fitted, or in several folds. [-]
    """
    if len(outcomes) != 1 or outcomes[0].fit is None:
        return ()
    fit = outcomes[0].fit
    rows = []
    for name, factor in fit.factors.items():
        low, high = fit.interval(name)
        rows.append(FactorRow(subset=subset, name=name, factor=factor, low=low, high=high))
    return tuple(rows)
