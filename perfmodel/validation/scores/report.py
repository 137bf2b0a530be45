"""The report of a validation: scores beside naive baselines, cell by cell, as text, rows and a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.derived import derived_property
from perfmodel.errors import ArgumentError, check_known
from perfmodel.presentation.figures import parity_plot
from perfmodel.presentation.results import Drawn
from perfmodel.presentation.tables import Table, row_table
from perfmodel.validation.scores import metrics
from perfmodel.validation.scores.interval_coverage import (
    ConstantRatio,
    IntervalRow,
    interval_rows,
    limited,
    mean_over_cells,
)
from perfmodel.validation.scores.table_report import (
    FactorRow,
    FoldOutcome,
    ScoreRow,
    factor_rows,
    fold_rows,
    score_rows,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from perfmodel.validation.protocols.baselines import Baseline
    from perfmodel.validation.protocols.cells import PredictedCell


@dataclass(frozen=True, kw_only=True, eq=False)
class ValidationReport(Drawn):
    """Predictions of a table's cells beside the measurements and the naive baselines.

    Parameters
    ----------
    table, protocol : str
        Table that was scored, and protocol. [-]
    cells : tuple of PredictedCell
        Scored cells. [-]
    set_aside : tuple of PredictedCell
        Cells with a time that are not scored, with their reason in the table. [-]
    subset_of_set_aside : tuple of str
        Subset of each of them. [-]
    subsets : tuple of str
        Subsets scored, each by itself. [-]
    subset_of_cell : tuple of str
        Subset of each scored cell. [-]
    baselines : mapping of str to tuple of Baseline
        Naive rules by subset, on the same cells. [-]
    fitted : mapping of str to int
        Constants fitted on the table in one fold at most, by subset. [1]
    folds : Table
        Score of every fold. [-]
    factors : Table of FactorRow
        Fitted factors with their intervals, where one fit stands for a subset. [-]
    estimates : tuple of str
        Fields of the files used that are estimates, not data. [-]
    ratios : mapping of str to tuple of ConstantRatio
        Intervals of a constant ratio by subset, on the same cells. [-]
    """

    table: str
    protocol: str
    cells: tuple[PredictedCell, ...]
    set_aside: tuple[PredictedCell, ...]
    subset_of_set_aside: tuple[str, ...]
    subsets: tuple[str, ...]
    subset_of_cell: tuple[str, ...]
    baselines: dict[str, tuple[Baseline, ...]]
    fitted: dict[str, int]
    folds: Table[Any]
    factors: Table[FactorRow]
    estimates: tuple[str, ...] = ()
    ratios: dict[str, tuple[ConstantRatio, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        *,
        table: str,
        protocol: str,
        outcomes: Mapping[str, Sequence[FoldOutcome]],
        baselines: dict[str, tuple[Baseline, ...]],
        estimates: tuple[str, ...],
        ratios: dict[str, tuple[ConstantRatio, ...]],
    ) -> ValidationReport:
        """Put the folds of every subset together.

        Parameters
        ----------
        table, protocol : str
            Table that was scored, and protocol. [-]
        outcomes : mapping of str to sequence of FoldOutcome
            Folds by subset. [-]
        baselines : dict of str to tuple of Baseline
            Naive rules by subset, on the scored cells in the order of the folds. [-]
        estimates : tuple of str
            Fields of the files used that are estimates. [-]
        ratios : dict of str to tuple of ConstantRatio
            Intervals of a constant ratio by subset, likewise. [-]

        Returns
        -------
        ValidationReport
            Ready to print.
        """
        predicted = {
            subset: [cell for outcome in folds for cell in outcome.predicted] for subset, folds in outcomes.items()
        }
        scored = [(cell, subset) for subset, cells in predicted.items() for cell in cells if cell.status == "measured"]
        aside = [(cell, subset) for subset, cells in predicted.items() for cell in cells if cell.status != "measured"]
        folds_scored = [row for subset, folds in outcomes.items() for row in fold_rows(subset, folds)]
        return cls(
            table=table,
            protocol=protocol,
            cells=tuple(cell for cell, _ in scored),
            set_aside=tuple(cell for cell, _ in aside),
            subset_of_set_aside=tuple(subset for _, subset in aside),
            subsets=tuple(subset for subset in outcomes if any(of_cell == subset for _, of_cell in scored)),
            subset_of_cell=tuple(subset for _, subset in scored),
            baselines=baselines,
            fitted={
                subset: max((outcome.fit.parameter_count for outcome in folds if outcome.fit is not None), default=0)
                for subset, folds in outcomes.items()
            },
            folds=row_table(folds_scored, title=f"{table}, {protocol}: every fold"),
            factors=Table(
                tuple(row for subset, folds in outcomes.items() for row in factor_rows(subset, folds)),
                title="factors on the constants of the files",
            ),
            estimates=estimates,
            ratios=ratios,
        )

    @derived_property
    def intervals(self) -> Table[IntervalRow]:
        """Scores of the 80 % intervals beside those of constant ratio, subset by subset."""
        return interval_rows(self)

    @property
    def coverage(self) -> float:
        """Share of all scored cells measured within their interval; NaN where none was made. [1]"""
        return mean_over_cells(self.intervals, "coverage_percent") / 100

    @property
    def interval_score(self) -> float:
        """Mean interval score of ln(time) over all scored cells; lower is better. [1]"""
        return mean_over_cells(self.intervals, "log_score")

    @property
    def parameter_count(self) -> int:
        """Constants fitted on the table, over all subsets. [1]"""
        return sum(self.fitted.values())

    @derived_property
    def _predicted(self) -> Any:
        return np.array([cell.predicted_s for cell in self.cells])

    @derived_property
    def _measured(self) -> Any:
        return np.array([cell.measured_s for cell in self.cells])

    @property
    def mape(self) -> float:
        """Mean absolute percentage error over all scored cells. [%]"""
        return metrics.mape(self._predicted, measured=self._measured)

    @property
    def median_ape(self) -> float:
        """Median absolute percentage error. [%]"""
        return metrics.median_ape(self._predicted, measured=self._measured)

    @property
    def p90_ape(self) -> float:
        """90th percentile of the absolute percentage error. [%]"""
        return metrics.p90_ape(self._predicted, measured=self._measured)

    @property
    def mean_abs_log_ratio(self) -> float:
        """Mean of |ln(predicted / measured)|. [1]"""
        return metrics.mean_abs_log_ratio(self._predicted, measured=self._measured)

    @property
    def typical_factor_percent(self) -> float:
        """100 (exp(mean |ln ratio|) - 1), which punishes low and high predictions alike. [%]"""
        return metrics.typical_factor_percent(self._predicted, measured=self._measured)

    @property
    def geometric_mean_ratio(self) -> float:
        """Bias: geometric mean of predicted over measured. [1]"""
        return metrics.geometric_mean_ratio(self._predicted, measured=self._measured)

    def within(self, percent: float) -> float:
        """Return the share of cells predicted within so many percent.

        Parameters
        ----------
        percent : float
            Bound on the absolute error. [%]

        Returns
        -------
        float
            Share. [1]

        Raises
        ------
        ArgumentError
            If the bound is not a number of at least 0.
        """
        if isinstance(percent, bool) or not isinstance(percent, Real) or not percent >= 0:
            raise ArgumentError("percent", percent, "a number of percent >= 0")
        return metrics.share_within(self._predicted, measured=self._measured, percent=percent)

    @property
    def rank_order(self) -> tuple[float, int]:
        """Share of framework pairs on one network, device and thread count put in the right order, and their number."""
        groups = [(cell.network, cell.device, cell.threads) for cell in self.cells]
        return metrics.pair_order(self._predicted, measured=self._measured, groups=groups)

    @property
    def bootstrap(self) -> tuple[float, float]:
        """90 % interval of the MAPE when whole rows of the table are resampled. [%]"""
        rows = [cell.row_key for cell in self.cells]
        return metrics.bootstrap_interval(metrics.mape, self._predicted, measured=self._measured, rows=rows)

    @property
    def rows(self) -> Table[PredictedCell]:
        """Every cell, scored or set aside: iterable, prints as a table, has ``to_frame()``."""
        return Table((*self.cells, *self.set_aside), title=f"{self.table}: measured beside predicted")

    def where(self, **values: Any) -> ValidationReport:
        """Return the report of some cells only.

        Parameters
        ----------
        **values : object or list of objects
            Fields of PredictedCell, e.g. ``threads=[1, 2, 4]``. [-]

        Returns
        -------
        ValidationReport
            The same predictions on fewer cells, with the baselines of those cells.

        Raises
        ------
        UnknownNameError
            If a cell has no such field; suggests the nearest.
        ArgumentError
            If no cell is left.
        """
        for name in values:
            check_known("field of a cell", name, self.rows.columns)
        wanted = {name: value if isinstance(value, list | tuple | set) else [value] for name, value in values.items()}
        keep = np.array(
            [all(getattr(cell, name) in allowed for name, allowed in wanted.items()) for cell in self.cells]
        )
        if not keep.any():
            raise ArgumentError("where", values, "values that at least one cell has")
        return self._limited_to(keep)

    def only(self, subset: str) -> ValidationReport:
        """Return the report of one subset.

        Parameters
        ----------
        subset : str
            One of ``subsets``. [-]

        Returns
        -------
        ValidationReport
            The same predictions on fewer cells.

        Raises
        ------
        UnknownNameError
            If this report has no such subset.
        """
        check_known("subset", subset, self.subsets)
        return self._limited_to(np.array(self.subset_of_cell) == subset)

    def _limited_to(self, keep: Any) -> ValidationReport:
        of_cell = np.array(self.subset_of_cell)
        baselines = {
            subset: tuple(
                replace(baseline, predicted_s=baseline.predicted_s[keep[of_cell == subset]])
                for baseline in self.baselines[subset]
            )
            for subset in self.subsets
        }
        kept = tuple(cell for cell, kept in zip(self.cells, keep, strict=True) if kept)
        subset_of_cell = tuple(of_cell[keep])
        subsets = tuple(subset for subset in self.subsets if subset in subset_of_cell)
        ratios = {subset: limited(self.ratios.get(subset, ()), keep[of_cell == subset]) for subset in self.subsets}
        return replace(
            self,
            ratios=ratios,
            cells=kept,
            set_aside=(),
            subset_of_set_aside=(),
            subsets=subsets,
            subset_of_cell=subset_of_cell,
            baselines=baselines,
        )

    @derived_property
    def scoreboard(self) -> Table[ScoreRow]:
        """Scores of the model and of each naive baseline on the same cells, subset by subset."""
        return Table(score_rows(self), title=f"{self.table}, {self.protocol}")

    def to_dict(self) -> dict[str, Any]:
        """Return scores and cells as plain numbers and text, for JSON."""
        low, high = self.bootstrap
        share, pairs = self.rank_order
        return {
            "table": self.table,
            "protocol": self.protocol,
            "parameter_count": self.parameter_count,
            "fitted": dict(self.fitted),
            "folds": [asdict(row) for row in self.folds],
            "factors": [asdict(row) for row in self.factors],
            "estimated_fields": list(self.estimates),
            "mape_percent": self.mape,
            "mape_bootstrap_percent": [low, high],
            "rank_order_share": share,
            "rank_order_pairs": pairs,
            "intervals": [asdict(row) for row in self.intervals],
            "scoreboard": [asdict(row) for row in self.scoreboard],
            "cells": [asdict(cell) for cell in self.rows],
        }

    def _figure(self) -> Figure:
        """Draw predicted against measured times with their intervals; cells that are set aside are hollow."""
        scores = ", ".join(f"{subset} {self.only(subset).mape:.1f} %" for subset in self.subsets)
        return parity_plot(**self.shown(), title=f"{self.table}, {self.protocol}: MAPE {scores}")

    def shown(self) -> dict[str, Any]:
        """Return the arguments of the parity plot; cells that are set aside are hollow."""
        cells = (*self.cells, *self.set_aside)
        return {
            "predicted": [cell.predicted_s for cell in cells],
            "measured": [cell.measured_s for cell in cells],
            "groups": [cell.framework for cell in cells],
            "hollow": [cell.status != "measured" for cell in cells],
            "intervals": [(cell.low_s, cell.high_s) for cell in cells],
        }

    def worst(self, count: int = 10) -> Table[PredictedCell]:
        """Return so many cells [1] with the largest |ln ratio|, worst first."""
        ranked = sorted(self.cells, key=lambda cell: -abs(np.log(cell.ratio)))
        return Table(tuple(ranked[:count]), title="worst cells")

    def __str__(self) -> str:
        from perfmodel.validation.scores.table_report import report_text

        return report_text(self)

    def _shown(self) -> Table[ScoreRow]:
        return self.scoreboard
