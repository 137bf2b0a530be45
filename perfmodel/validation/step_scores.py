"""Scores of a table of measured steps under every protocol, with what is told of its predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from perfmodel.validation.cells import prepare_cells
from perfmodel.validation.collected import Collected, Picture
from perfmodel.validation.protocol_board import protocol_jobs, protocol_reports, reports_apart
from perfmodel.validation.protocols import ALL_FITTED, NOTHING_FITTED
from perfmodel.validation.score_records import PERFMODEL, BoardScore, FactorRange, PairOrder, RatioRange, ScoredTable
from perfmodel.validation.worst_cells import worst_cells

if TYPE_CHECKING:
    from perfmodel.measurements.table import MeasurementTable
    from perfmodel.validation.cells import PredictedCell
    from perfmodel.validation.report import Report

Progress = Callable[[int, int], None]
Tell = Callable[[str], None]
Protocols = Mapping[str, Sequence[str]]
"""Subset -> names of protocols."""

PICTURED: Final = {
    "gpu": (NOTHING_FITTED, "leave_one_device_out", "leave_one_family_out"),
    "cpu": (NOTHING_FITTED, "leave_one_thread_count_out"),
    "cpu_oversubscribed": (NOTHING_FITTED,),
}
"""Subset -> protocols that get a parity plot."""

FEWEST_POINTS: Final = 5
"""Cells from which on a plot tells more than a list. [1]"""


def score_steps(
    table: MeasurementTable,
    entry: ScoredTable,
    collected: Collected,
    *,
    protocols: Protocols | None,
    progress: Progress | None,
    tell: Tell | None,
) -> None:
    """Score a table of steps, and say what is worst.

    Parameters
    ----------
    table : MeasurementTable
        Checked. [-]
    entry : ScoredTable
        What is to be said of it. [-]
    collected : Collected
        Where records and pictures go. [-]
    protocols : mapping of str to sequence of str, or None
        Protocols by subset; None for all that leave every fold something to fit. [-]
    progress : callable or None
        Told how much is done, and of how much. [-]
    tell : callable or None
        Told each score as it is there. [-]
    """
    asked = None if protocols is None else tuple(dict.fromkeys(name for names in protocols.values() for name in names))
    jobs, senseless = protocol_jobs(table, protocols=asked)
    if protocols is not None:
        jobs = [(subset, protocol) for subset, protocol in jobs if protocol in protocols.get(subset, ())]
    left = ", ".join(dict.fromkeys(protocol for _, protocol in senseless))
    collected.add(
        "tables",
        replace(
            entry,
            not_scored=" ".join(
                filter(None, (entry.not_scored, f"Nothing is left to fit under {left}." if left else ""))
            ),
        ),
    )
    for subset, protocol, report in protocol_reports(table, jobs, progress=progress):
        for label, each in reports_apart(report, protocol):
            collected.add("scores", *_scores(each, table=table.key, protocol=label))
        if tell is not None:
            tell(f"{table.key}, {subset}, {protocol}: MAPE {report.mape:.1f} %")
        if protocol in PICTURED[subset] and len(report.cells) >= FEWEST_POINTS:
            collected.pictures.append(_picture(report, subset))
        if protocol == NOTHING_FITTED:
            _describe_unfitted(table, subset, report, collected)
        if protocol == ALL_FITTED:
            collected.add(
                "factors",
                *(FactorRange(table=table.key, **asdict(row)) for row in report.factors),
            )


def _scores(report: Report, *, table: str, protocol: str) -> Iterator[BoardScore]:
    low, high = report.bootstrap
    of_perfmodel: dict[str, Any] = {"mape_low": low, "mape_high": high, **_interval_figures(report)}
    for row in report.scoreboard:
        extra = of_perfmodel if row.model == PERFMODEL else {}
        yield BoardScore(table=table, protocol=protocol, **asdict(row), **extra)


def _interval_figures(report: Report) -> dict[str, float]:
    """Return what is told of the intervals of a report of one subset; nothing where none was made."""
    own = [row for row in report.intervals if row.intervals == PERFMODEL]
    constant = [row.log_score for row in report.intervals if row.intervals != PERFMODEL]
    if not own or not math.isfinite(own[0].coverage_percent):
        return {}
    figures = {
        "interval_coverage_percent": own[0].coverage_percent,
        "interval_width": own[0].median_ratio,
        "interval_score": own[0].log_score,
    }
    return figures | ({"constant_interval_score": min(constant)} if constant else {})


def _describe_unfitted(table: MeasurementTable, subset: str, report: Report, collected: Collected) -> None:
    """Add what is told of the predictions that nothing was fitted for: worst cells, ratios, order of frameworks."""
    cells = prepare_cells(table, table.subset(subset))  # type: ignore[arg-type]
    collected.add("worst", *worst_cells(table, cells, report.cells, subset=subset, protocol=NOTHING_FITTED))
    ranges: dict[tuple[str, str], list[float]] = {}
    for cell in report.cells:
        ranges.setdefault((cell.network, cell.framework), []).append(cell.ratio)
    for (network, framework), found in ranges.items():
        collected.add(
            "ratios",
            RatioRange(
                table=table.key,
                subset=subset,
                network=network,
                framework=framework,
                lowest=min(found),
                highest=max(found),
            ),
        )
    share, pairs = report.rank_order
    errors = [100 * abs(cell.ratio - 1) for cell in report.cells if not cell.is_recurrent]
    collected.add(
        "orders",
        PairOrder(
            table=table.key,
            subset=subset,
            right_percent=100 * share,
            pairs=pairs,
            feedforward_mape=fmean(errors) if errors else None,
            feedforward_cells=len(errors),
        ),
    )


def _picture(report: Report, subset: str) -> Picture:
    cells: tuple[PredictedCell, ...] = (*report.cells, *report.set_aside)
    return Picture(
        name=f"{report.table}_{subset}_{report.protocol}",
        title=f"{report.table}, {subset}, {report.protocol}: MAPE {report.mape:.1f} %",
        predicted_s=tuple(cell.predicted_s for cell in cells),
        measured_s=tuple(cell.measured_s for cell in cells),
        groups=tuple(cell.framework for cell in cells),
        hollow=tuple(cell.status != "measured" for cell in cells),
        intervals=tuple((cell.low_s, cell.high_s) for cell in cells),
    )
