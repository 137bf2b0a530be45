"""The report of a validation: scores with those of naive baselines, cell by cell, as text, rows and a figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.derived import derived_property
from perfmodel.errors import ArgumentError, check_known
from perfmodel.numeric import NO_NUMBERS
from perfmodel.presentation.figures import parity_plot
from perfmodel.presentation.results import Drawn
from perfmodel.presentation.tables import Table, row_table
from perfmodel.validation.scores import metrics
from perfmodel.validation.scores.interval_coverage import ConstantRatio, IntervalRow, interval_rows, mean_over_cells
from perfmodel.validation.scores.table_report import FactorRow, ScoreRow, factor_rows, fold_rows, score_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from perfmodel.validation.protocols.baselines import Baseline
    from perfmodel.validation.protocols.cells import PredictedCell
    from perfmodel.validation.protocols.protocols import FoldOutcome


@dataclass(frozen=True, kw_only=True, eq=False)
class SubsetCells:
    """Held-out predictions of one subset, and those of naive rules and constant ratios for the scored cells."""

    subset: str
    outcomes: Sequence[FoldOutcome]
    cells: tuple[PredictedCell, ...]
    set_aside: tuple[PredictedCell, ...]
    baselines: tuple[Baseline, ...]
    ratios: tuple[ConstantRatio, ...]

    @classmethod
    def of(
        cls,
        subset: str,
        outcomes: Sequence[FoldOutcome],
        *,
        baselines: tuple[Baseline, ...],
        ratios: tuple[ConstantRatio, ...],
    ) -> SubsetCells:
        """Join the folds of a subset; naive rules and ratios follow the order of its scored cells."""
        cells = [cell for outcome in outcomes for cell in outcome.predicted]
        return cls(
            subset=subset,
            outcomes=outcomes,
            cells=tuple(cell for cell in cells if cell.status == "measured"),
            set_aside=tuple(cell for cell in cells if cell.status != "measured"),
            baselines=baselines,
            ratios=ratios,
        )

    @property
    def fitted(self) -> int:
        """Constants fitted in one fold at most. [1]"""
        fits = (outcome.fit for outcome in self.outcomes)
        return max((fit.parameter_count for fit in fits if fit is not None), default=0)

    def limited_to(self, is_kept: Callable[[PredictedCell], bool]) -> SubsetCells:
        """Keep some of the scored cells, with the naive rules and ratios on them."""
        keep = np.array([is_kept(cell) for cell in self.cells], dtype=bool)
        return replace(
            self,
            cells=tuple(compress(self.cells, keep)),
            set_aside=(),
            baselines=tuple(replace(rule, predicted_s=rule.predicted_s[keep]) for rule in self.baselines),
            ratios=tuple(replace(ratio, log_half_width=ratio.log_half_width[keep]) for ratio in self.ratios),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class ValidationReport(Drawn):
    """Predictions of a table's cells, compared with the measurements and the naive baselines.

    Parameters
    ----------
    table, protocol : str
        Table that was scored, and protocol. [-]
    of_subsets : tuple of SubsetCells
        Cells, naive rules and intervals of constant ratio, subset by subset. [-]
    estimates : tuple of str
        Fields of the files used that are estimates, not data. [-]
    """

    table: str
    protocol: str
    of_subsets: tuple[SubsetCells, ...]
    estimates: tuple[str, ...] = ()

    @derived_property
    def folds(self) -> Table[Any]:
        """Score of every fold."""
        rows = [row for part in self.of_subsets for row in fold_rows(part.subset, part.outcomes)]
        return row_table(rows, title=f"{self.table}, {self.protocol}: every fold")

    @derived_property
    def factors(self) -> Table[FactorRow]:
        """Fitted factors with their intervals, where one fit stands for a subset."""
        rows = [row for part in self.of_subsets for row in factor_rows(part.subset, part.outcomes)]
        return Table(rows, title="factors on the constants of the files")

    @derived_property
    def cells(self) -> tuple[PredictedCell, ...]:
        """Scored cells."""
        return tuple(cell for part in self.of_subsets for cell in part.cells)

    @derived_property
    def subset_of_cell(self) -> tuple[str, ...]:
        """Subset of each scored cell."""
        return tuple(part.subset for part in self.of_subsets for _ in part.cells)

    @property
    def set_aside(self) -> tuple[PredictedCell, ...]:
        """Cells with a time that are not scored, with their reason in the table."""
        return tuple(cell for part in self.of_subsets for cell in part.set_aside)

    @property
    def subsets(self) -> tuple[str, ...]:
        """Subsets scored, each by itself."""
        return tuple(part.subset for part in self.of_subsets if part.cells)

    @property
    def baselines(self) -> dict[str, tuple[Baseline, ...]]:
        """Naive rules by subset, on the same cells."""
        return {part.subset: part.baselines for part in self.of_subsets}

    @property
    def fitted(self) -> dict[str, int]:
        """Constants fitted on the table in one fold at most, by subset. [1]"""
        return {part.subset: part.fitted for part in self.of_subsets}

    @derived_property
    def intervals(self) -> Table[IntervalRow]:
        """Scores of the 80 % intervals and of those of constant ratio, subset by subset."""
        parts = (part for part in self.of_subsets if part.cells)
        rows = [row for part in parts for row in interval_rows(part.subset, part.cells, part.ratios)]
        return Table(rows, title="80 % intervals", row_type=IntervalRow)

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
        """Return the share of cells whose error is at most a percentage.

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
        if isinstance(percent, NO_NUMBERS) or not isinstance(percent, Real) or not percent >= 0:
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

        def is_kept(cell: PredictedCell) -> bool:
            return all(getattr(cell, name) in allowed for name, allowed in wanted.items())

        kept = tuple(part.limited_to(is_kept) for part in self.of_subsets)
        if not any(part.cells for part in kept):
            raise ArgumentError("where", values, "values that at least one cell has")
        return replace(self, of_subsets=kept)

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
        of_subsets = tuple(
            replace(part, set_aside=()) if part.subset == subset else part.limited_to(lambda cell: False)
            for part in self.of_subsets
        )
        return replace(self, of_subsets=of_subsets)

    @derived_property
    def scoreboard(self) -> Table[ScoreRow]:
        """Scores of the model and of each naive baseline on the same cells, subset by subset."""
        rows = [row for part in self.of_subsets if part.cells for row in score_rows(part)]
        return Table(rows, title=f"{self.table}, {self.protocol}")

    _DICT_KEYS = ("table", "protocol", "parameter_count", "fitted", "folds", "factors", "intervals", "scoreboard")

    def to_dict(self) -> dict[str, Any]:
        """Return scores and cells as plain numbers and text, for JSON."""
        share, pairs = self.rank_order
        return super().to_dict() | {
            "estimated_fields": list(self.estimates),
            "mape_percent": self.mape,
            "mape_bootstrap_percent": list(self.bootstrap),
            "rank_order_share": share,
            "rank_order_pairs": pairs,
            "cells": self.rows.to_dicts(),
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
        """Return the ``count`` cells [1] with the largest |ln ratio|, worst first."""
        ranked = sorted(self.cells, key=lambda cell: -abs(np.log(cell.ratio)))
        return Table(tuple(ranked[:count]), title="worst cells")

    def __str__(self) -> str:
        from perfmodel.validation.scores.table_report import report_text

        return report_text(self)

    def _shown(self) -> Table[ScoreRow]:
        return self.scoreboard
