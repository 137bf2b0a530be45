"""The report of a validation in words: scoreboard, order of frameworks, cells set aside, worst cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import make_dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.presentation.tables import Table

if TYPE_CHECKING:
    from perfmodel.validation.cells import PredictedCell
    from perfmodel.validation.report import Report

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
    """Return rows as texts, ready to print.

    Parameters
    ----------
    rows : iterable
        Records. [-]
    columns : mapping
        Heading of each column, and what it shows. [-]
    title : str
        Heading of the table. [-]
    """
    headings = {f"column_{place}": heading for place, heading in enumerate(columns)}
    line = make_dataclass("Line", [(name, str) for name in headings], frozen=True)
    shows = [show.format if isinstance(show, str) else show for show in columns.values()]
    return Table([line(*(show(row) for show in shows)) for row in rows], title=title, headings=headings)


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
    board = printed(report.scoreboard, SCORES, title=f"{report.table}, protocol {report.protocol}")
    parts = [f"{board.to_text()}\n{LEGEND}"]
    if len(report.intervals):
        parts.append(f"{printed(report.intervals, INTERVALS)}\n{INTERVAL_LEGEND}")
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
        parts.append(str(printed(report.folds, FOLDS, title="every fold")))
    if len(report.factors):
        parts.append(str(printed(report.factors, FACTORS, title="fitted factors on the sourced constants")))
    if report.set_aside:
        parts.append(
            cell_lines(report.set_aside, title="set aside, not scored (reasons in the table's file)").to_text()
        )
    parts.append(str(cell_lines(report.worst(), title="worst cells")))
    return "\n\n".join(parts)
