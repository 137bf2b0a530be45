"""Reports of tables with their own scoring: rows with predictions, scores with those of naive rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.files import file_toml
from perfmodel.measurements.reading import CsvTable
from perfmodel.presentation.results import Result
from perfmodel.presentation.tables import Table, row_table
from perfmodel.validation.scores import metrics

if TYPE_CHECKING:
    from perfmodel.validation.protocols.protocols import FoldOutcome
    from perfmodel.validation.scores.interval_coverage import IntervalRow
    from perfmodel.validation.scores.validation_report import SubsetCells, ValidationReport


PERFMODEL: Final = "perfmodel"
"""Name of this library beside naive rules. [-]"""

ONE_MFU: Final = "one MFU, told the answers"
"""Naive rule: the geometric mean of all rows' shares of peak. [-]"""

WITH_SET_ASIDE: Final = "perfmodel, with the cells set aside"
"""The model, scored also on the cells that are set aside. [-]"""


def percent_within(predicted: ArrayLike, *, measured: ArrayLike, percent: float) -> float:
    """Return the percentage of predictions whose error is at most ``percent``."""
    return 100 * metrics.share_within(predicted, measured=measured, percent=percent)


def by_one_mfu(measured_s: NDArray[Any], mfu: NDArray[Any]) -> NDArray[Any]:
    """Return the times that one MFU for all rows implies, the geometric mean of those measured. [s]"""
    times_s: NDArray[Any] = measured_s * mfu / np.exp(np.mean(np.log(mfu)))
    return times_s


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
    """One line of the scoreboard."""

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
    """Score predictions against measurements."""
    figures = {name: metric(predicted_s, measured=measured_s) for name, metric in METRICS.items()}
    return ScoreRow(subset=subset, model=model, cells=len(measured_s), fitted=fitted, **figures)


def score_rows(part: SubsetCells) -> Iterator[ScoreRow]:
    """Score the model and each naive baseline on the same cells of a subset."""
    everything = {PERFMODEL: part.cells, WITH_SET_ASIDE: (*part.cells, *part.set_aside) if part.set_aside else ()}
    for model, cells in everything.items():
        if cells:
            predicted, measured_s = [cell.predicted_s for cell in cells], [cell.measured_s for cell in cells]
            yield score(part.subset, model, predicted, measured_s=measured_s, fitted=part.fitted)
    measured = np.array([cell.measured_s for cell in part.cells])
    for rule in part.baselines:
        covered = rule.covered
        if covered.any():
            times = {"predicted_s": rule.predicted_s[covered], "measured_s": measured[covered]}
            yield score(part.subset, rule.name, fitted=rule.parameter_count, **times)


def fold_rows(subset: str, outcomes: Sequence[FoldOutcome]) -> Iterator[dict[str, Any]]:
    """Yield the score of each fold that holds out a measured cell."""
    for outcome in outcomes:
        scored = [cell for cell in outcome.predicted if cell.status == "measured"]
        predicted, measured = [cell.predicted_s for cell in scored], [cell.measured_s for cell in scored]
        if scored:
            yield {
                "subset": subset,
                "held_out": outcome.fold.label,
                "fitted_cells": len(outcome.fold.trained),
                "scored_cells": len(scored),
                "fitted": 0 if outcome.fit is None else outcome.fit.parameter_count,
                "mape": metrics.mape(predicted, measured=measured),
                "typical_factor_percent": metrics.typical_factor_percent(predicted, measured=measured),
                "geometric_mean_ratio": metrics.geometric_mean_ratio(predicted, measured=measured),
            }


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorRow:
    """One fitted factor of a validation with a single fold."""

    subset: str
    name: str
    factor: float
    low: float
    high: float


def factor_rows(subset: str, outcomes: Sequence[FoldOutcome]) -> tuple[FactorRow, ...]:
    """Return the fitted factors if one fit covers the subset."""
    if len(outcomes) != 1 or outcomes[0].fit is None:
        return ()
    fit = outcomes[0].fit
    rows = []
    for name, factor in fit.factors.items():
        low, high = fit.interval(name)
        rows.append(FactorRow(subset=subset, name=name, factor=factor, low=low, high=high))
    return tuple(rows)


@cache
def stated_columns() -> dict[str, dict[str, Any]]:
    """Headings, and formats, of the columns that validation prints."""
    return file_toml(Path(__file__).with_name("columns.toml"))


SCORES: Final = ("subset", "model", "cells", *METRICS)
LEGEND: Final = (
    "exp|ln|-1: 100 (exp(mean |ln(predicted / measured)|) - 1), the typical factor as a percentage; "
    "bias: geometric mean of predicted / measured;\nin 10 %, in 25 %: percentage of the cells predicted that closely"
)
CELLS: Final = ("framework", "network", "device", "threads", "measured_s", "predicted_s", "ratio", "bottleneck")
INTERVAL_LEGEND: Final = (
    "in 80 % interval: 80 is right; high / low: median, how sharp; score: mean interval score of ln(time) and "
    "of the time, lower is better; each\n"
    "interval, and each constant ratio, is made without residuals of what its fold holds out"
)
MOST_FOLDS: Final = 40
"""Folds up to which each is printed; --json has them all. [1]"""


def printed(rows: Table[Any], columns: Sequence[str] = (), *, title: str = "") -> str:
    """Return some columns of a table, or all, as text with their headings and formats."""
    shown, stated = columns or rows.columns, stated_columns()["figures"]
    lines = [{name: _shown(name, getattr(row, name)) for name in shown} for row in rows]
    headings = {name: stated.get(name, (name,))[0] for name in shown}
    return row_table(lines, title=title or rows.title, headings=headings).to_text()


def _shown(name: str, value: Any) -> str:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "YES" if value else ""
    stated = stated_columns()["figures"]
    return format(value, stated[name][1]) if name in stated else str(value)


SMALLER_UNITS: Final = {"milliseconds": 1e3, "microseconds": 1e6}
"""Unit that a table may hold by mistake -> how many are a second. [1/s]"""
WRONG_UNIT: Final = 8.0
"""Predictions within this factor of measured times in another unit suggest that it is that unit. [1]"""


def unit_hints(ratio: float) -> list[str]:
    """Warn that a table seems not to be in seconds, if predictions are too short by the factor of another unit.

    ``ratio`` is the geometric mean of predicted over measured times [1].

    >>> unit_hints(0.0012)[0].partition(":")[0], unit_hints(0.9)
    ('step_s must be in seconds', [])
    """
    return [
        f"step_s must be in seconds: measured times are {1 / ratio:,.0f} times the predicted ones, as {unit} would be. "
        f"Divide by {per_second:,.0f} if they are"
        for unit, per_second in SMALLER_UNITS.items()
        if 1 / WRONG_UNIT < ratio * per_second < WRONG_UNIT
    ]


def report_text(report: ValidationReport) -> str:
    """Return the text of ``print(report)``."""
    board = printed(report.scoreboard, SCORES, title=f"{report.table}, protocol {report.protocol}")
    parts = [*unit_hints(report.geometric_mean_ratio), f"{board}\n{LEGEND}"]
    if len(report.intervals):
        parts.append(f"{printed(report.intervals)}\n{INTERVAL_LEGEND}")
    for subset in report.subsets:
        part = report.only(subset)
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
        parts.append(printed(report.folds, title="every fold"))
    if len(report.factors):
        parts.append(printed(report.factors, title="fitted factors on the sourced constants"))
    if report.set_aside:
        aside = Table(report.set_aside, title="set aside, not scored (reasons in the table's file)")
        parts.append(printed(aside, CELLS))
    parts.append(printed(report.worst(), CELLS))
    return "\n\n".join(parts)


EVERY_ROW: Final = "all"

MOST_PRINTED: Final = 60
"""Rows up to which a report prints each of them. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartScore:
    """A score on a part of the rows of a table."""

    part: str
    score: ScoreRow
    note: str = ""
    protocol: str = ""
    intervals: IntervalRow | None = None


def compared(
    subset: str,
    predictions: Mapping[str, ArrayLike],
    *,
    measured: ArrayLike,
    fitted: Mapping[str, int],
    part: str = EVERY_ROW,
    note: str = "",
    protocol: str = "",
    rows: ArrayLike | None = None,
) -> tuple[PartScore, ...]:
    """Score perfmodel and naive rules on the same rows, those of a part where ``rows`` is true."""
    kept = np.ones(np.shape(measured), dtype=bool) if rows is None else np.asarray(rows, dtype=bool)
    return tuple(
        PartScore(
            part=part,
            score=score(
                subset,
                model,
                np.asarray(predicted)[kept],
                measured_s=np.asarray(measured)[kept],
                fitted=fitted.get(model, 0),
            ),
            note=note if model == PERFMODEL else "",
            protocol=protocol,
        )
        for model, predicted in predictions.items()
    )


def read_records(file: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV by column."""
    table = CsvTable(file)
    table.check()
    return [dict(line.values) for line in table.lines]


def parts_text(parts: Sequence[PartScore], *, title: str) -> str:
    """Return scores as text, a line for each part and model; the score of intervals is Winkler's of ln(time)."""
    of_intervals = ("coverage_percent", "log_score") if any(part.intervals for part in parts) else ()
    lines = [
        {"subset": part.score.subset, "part": part.part, **{name: getattr(part.score, name) for name in _OF_PART}}
        | {name: getattr(part.intervals, name, None) for name in of_intervals}
        for part in parts
    ]
    return printed(row_table(lines, title=title))


_OF_PART: Final = ("model", "cells", "fitted", *METRICS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowReport(Result):
    """Rows with their predictions, and scores with those of naive rules."""

    table: str
    rows: Table[Any]
    parts: tuple[PartScore, ...]
    not_scored: str = ""
    caveats: tuple[str, ...] = ()

    @property
    def mape(self) -> float | None:
        """Mean absolute error of perfmodel over the scored rows; None where nothing is scored [%]."""
        return next(
            (part.score.mape for part in self.parts if (part.score.model, part.part) == (PERFMODEL, EVERY_ROW)), None
        )

    def __str__(self) -> str:
        blocks = [self.rows.to_text()] if len(self.rows) <= MOST_PRINTED else []
        if self.parts:
            aside = f" (not scored: {self.not_scored})" if self.not_scored else ""
            blocks.append(parts_text(self.parts, title=f"{self.table}: scores{aside}"))
        notes = [f"{self.table}: {part.note}" for part in self.parts if part.note]
        notes += [] if self.parts else [f"{self.table}: nothing is scored: {self.not_scored}"]
        notes += [f"- {text}" for text in self.caveats]
        return "\n\n".join([*blocks, "\n".join(notes)] if notes else blocks)

    @property
    def scores(self) -> list[dict[str, Any]]:
        """Scores of the parts as plain values, and of their intervals where there are some."""
        scores = []
        for part in self.parts:
            intervals = {} if part.intervals is None else {"intervals": asdict(part.intervals)}
            scores.append({"part": part.part, **asdict(part.score), "note": part.note, **intervals})
        return scores

    mape_percent = mape
    _DICT_KEYS: ClassVar[tuple[str, ...]] = ("table", "mape_percent", "scores", "rows", "not_scored", "caveats")
