"""Reports of tables that are scored in their own way: rows beside predictions, scores beside naive rules."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.files import MOST_DATA_BYTES, file_text
from perfmodel.measurements.reading import table_error
from perfmodel.presentation.results import Result
from perfmodel.presentation.tables import Table, row_table
from perfmodel.validation.scores import metrics

if TYPE_CHECKING:
    from perfmodel.validation.protocols.cells import PredictedCell
    from perfmodel.validation.protocols.protocols import FoldOutcome
    from perfmodel.validation.scores.interval_coverage import IntervalRow
    from perfmodel.validation.scores.validation_report import SubsetCells, ValidationReport


PERFMODEL: Final = "perfmodel"
"""Name of this library beside naive rules. [-]"""

ONE_MFU: Final = "one MFU, told the answers"
"""Naive rule: the share of peak that all rows have in the geometric mean. [-]"""

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
    """Return the fitted factors where one fit stands for the subset."""
    if len(outcomes) != 1 or outcomes[0].fit is None:
        return ()
    fit = outcomes[0].fit
    rows = []
    for name, factor in fit.factors.items():
        low, high = fit.interval(name)
        rows.append(FactorRow(subset=subset, name=name, factor=factor, low=low, high=high))
    return tuple(rows)


Columns = Mapping[str, str | Callable[[Any], str]]
"""Heading of each column -> what it shows of a row: a format of its fields, or a function of it."""

SCORES: Final[Columns] = {
    "cells of": "{.subset}",
    "predictions": "{.model}",
    "cells": "{.cells:,}",
    "MAPE [%]": "{.mape:.1f}",
    "median [%]": "{.median_ape:.1f}",
    "p90 [%]": "{.p90_ape:.1f}",
    "exp|ln|-1 [%]": "{.typical_factor_percent:.1f}",
    "bias": "{.geometric_mean_ratio:.2f}",
    "in 10 % [%]": "{.percent_within_10:.0f}",
    "in 25 % [%]": "{.percent_within_25:.0f}",
}
LEGEND: Final = (
    "exp|ln|-1: 100 (exp(mean |ln(predicted / measured)|) - 1), the typical factor as a percentage; "
    "bias: geometric mean of predicted / measured;\nin 10 %, in 25 %: percentage of the cells predicted that closely"
)
CELLS: Final[Columns] = {
    "framework": "{.framework}",
    "network": "{.network}",
    "device": "{.device}",
    "threads": lambda cell: "" if cell.threads is None else str(cell.threads),
    "measured_s": "{.measured_s:.3f}",
    "predicted_s": "{.predicted_s:.3f}",
    "ratio": "{.ratio:.2f}",
    "bound_by": "{.bottleneck}",
}
INTERVALS: Final[Columns] = {
    "cells of": "{.subset}",
    "80 % intervals": "{.intervals}",
    "cells": "{.cells:,}",
    "in interval [%]": "{.coverage_percent:.0f}",
    "high / low": "{.median_ratio:.2f}",
    "score of ln": "{.log_score:.3f}",
    "score [s]": "{.time_score_s:.4g}",
}
INTERVAL_LEGEND: Final = (
    "in interval: 80 is right; high / low: median, how sharp; score: mean interval score of ln(time) and of the time, "
    "lower is better; each\ninterval, and each constant ratio, is made without a residual of what its fold holds out"
)
FOLDS: Final[Columns] = {
    "cells of": "{.subset}",
    "held out": "{.held_out}",
    "cells fitted": "{.fitted_cells}",
    "scored": "{.scored_cells:,}",
    "constants": "{.fitted:,}",
    "MAPE [%]": "{.mape:.1f}",
    "exp|ln|-1 [%]": "{.typical_factor_percent:.1f}",
    "bias": "{.geometric_mean_ratio:.2f}",
}
MOST_FOLDS: Final = 40
"""Folds up to which each is printed; --json has them all. [1]"""

FACTORS: Final[Columns] = {
    "cells of": "{.subset}",
    "factor on": "{.name}",
    "value": "{.factor:.2f}",
    "80 % interval": "{0.low:.2f} to {0.high:.2f}",
}


def printed(rows: Iterable[Any], columns: Columns, *, title: str = "") -> Table[Any]:
    """Return rows as texts, ready to print."""
    names = {f"column_{place}": heading for place, heading in enumerate(columns)}
    shows = [show.format if isinstance(show, str) else show for show in columns.values()]
    lines = [dict(zip(names, (show(row) for show in shows), strict=True)) for row in rows]
    return row_table(lines, title=title, headings=names)


def cell_lines(cells: Iterable[PredictedCell], *, title: str) -> Table[Any]:
    """Return measured cells beside their predictions, ready to print."""
    return printed(cells, CELLS, title=title)


SCORE_HEADINGS: Final = {
    "mape": "MAPE [%]",
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

TWO_PLACES: Final = ("geometric_mean_ratio", "factor")


def score_lines(table: Table[Any]) -> Table[Any]:
    """Return a table of scores with its numbers as people read them."""
    columns = {SCORE_HEADINGS.get(name, name): partial(_score_text, name) for name in table.columns}
    return printed(table, columns, title=table.title)


def _score_text(name: str, row: object) -> str:
    value = getattr(row, name)
    if isinstance(value, bool):
        return "YES" if value else ""
    if isinstance(value, float):
        if np.isnan(value):
            return ""
        return f"{value:.2f}" if name in TWO_PLACES else f"{value:.1f}"
    return str(value)


SMALLER_UNITS: Final = {"milliseconds": 1e3, "microseconds": 1e6}
"""Unit that a table may hold by mistake -> how many are a second. [1/s]"""
WRONG_UNIT: Final = 8.0
"""Predictions within this factor of measured times in another unit suggest that it is that unit. [1]"""


def unit_hints(report: ValidationReport) -> list[str]:
    """Say that a table seems to hold another unit than seconds, where predictions are as much too short as that."""
    ratio = report.geometric_mean_ratio
    return [
        f"step_s must be in seconds: measured times are {1 / ratio:,.0f} times the predicted ones, as {unit} would be. "
        f"Divide by {per_second:,.0f} if they are"
        for unit, per_second in SMALLER_UNITS.items()
        if 1 / WRONG_UNIT < ratio * per_second < WRONG_UNIT
    ]


def report_text(report: ValidationReport) -> str:
    """Return the text of ``print(report)``."""
    board = printed(report.scoreboard, SCORES, title=f"{report.table}, protocol {report.protocol}")
    parts = [*unit_hints(report), f"{board.to_text()}\n{LEGEND}"]
    if len(report.intervals):
        parts.append(f"{printed(report.intervals, INTERVALS)}\n{INTERVAL_LEGEND}")
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
        parts.append(str(printed(report.folds, FOLDS, title="every fold")))
    if len(report.factors):
        parts.append(str(printed(report.factors, FACTORS, title="fitted factors on the sourced constants")))
    if report.set_aside:
        parts.append(
            cell_lines(report.set_aside, title="set aside, not scored (reasons in the table's file)").to_text()
        )
    parts.append(str(cell_lines(report.worst(), title="worst cells")))
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
    text = file_text(file, most_bytes=MOST_DATA_BYTES, refusal=table_error)
    return list(csv.DictReader(io.StringIO(text)))


PARTS: Final[Columns] = {
    "cells of": "{0.score.subset}",
    "part": "{.part}",
    "model": "{0.score.model}",
    "cells": "{0.score.cells}",
    "constants": "{0.score.fitted}",
    "MAPE [%]": "{0.score.mape:.1f}",
    "median [%]": "{0.score.median_ape:.1f}",
    "p90 [%]": "{0.score.p90_ape:.1f}",
    "bias": "{0.score.geometric_mean_ratio:.2f}",
    "percent_within_10": "{0.score.percent_within_10:.1f}",
    "percent_within_25": "{0.score.percent_within_25:.1f}",
}
PART_INTERVALS: Final[Columns] = {
    "in 80 % interval [%]": lambda part: f"{part.intervals.coverage_percent:.0f}" if part.intervals else "",
    "interval score": lambda part: f"{part.intervals.log_score:.2f}" if part.intervals else "",
}
"""Columns of tables whose predictions have intervals; the score is Winkler's of ln(time)."""


def parts_text(parts: Sequence[PartScore], *, title: str) -> str:
    """Return scores as text, a line for each part and model."""
    columns = {**PARTS, **PART_INTERVALS} if any(part.intervals for part in parts) else PARTS
    return printed(parts, columns, title=title).to_text()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowReport(Result):
    """Rows beside their predictions, and scores beside naive rules."""

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
