"""Residuals of held-out rows, intervals made from them, and how often other measured rows lie inside."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from perfmodel.cost.interval_width import Exposure
from perfmodel.derived import derived_property
from perfmodel.errors import TableError
from perfmodel.files import MOST_DATA_BYTES, file_text
from perfmodel.fitting.interval_scale_fit import FittedSpread, conformal_quantile, fit_spread
from perfmodel.hardware import spec_files
from perfmodel.hardware.fit_file import factors_by_constant
from perfmodel.hardware.interval_scale import IntervalScale, Seen, SeenRow, load_interval_scale
from perfmodel.measurements.reading import table_error
from perfmodel.prediction.certainty.prediction_interval import (
    KnownConstants,
    exposure_of,
    known_constants,
    mix_of,
    parameters_of,
    shrunk_ratio,
    uncertainty_of,
)
from perfmodel.prediction.device.factors import NO_FACTORS
from perfmodel.validation.protocols.protocols import PLAN_OF_SUBSET
from perfmodel.validation.scores.metrics import coverage, interval_score, median_ratio

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.prediction.job.prepared import Prepared
    from perfmodel.validation.protocols.cells import MeasuredCell, PredictedCell
    from perfmodel.validation.protocols.protocols import Fold, FoldOutcome, HeldOut


CellKey = tuple[str, str, str, int, str, int | None]
"""Table, framework, network, batch size, device and threads of a cell."""

OF_SEVERAL_DEVICES: Final = ("exchange_variance", "shared_attention")
"""Fields of an exposure that only steps of several devices have. [-]"""
EXPOSURE: Final = tuple(field.name for field in fields(Exposure) if field.name not in OF_SEVERAL_DEVICES)
"""Fields of an exposure that the file keeps. Exchanges of its few rows of several devices add less than 0.0004."""
EXPOSURE_COLUMNS: Final = tuple(f"exposure_{name}" for name in EXPOSURE)
KEY_COLUMNS: Final = ("table", "framework", "network", "batch_size", "device", "threads")
COLUMNS: Final = ("protocol", *KEY_COLUMNS, "log_ratio", *EXPOSURE_COLUMNS)
"""Columns of the file; all numbers are plain numbers without a unit, threads are empty on a GPU."""

DIGITS: Final = 4
"""Significant digits of numbers in the file. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """One held-out cell of a fold."""

    protocol: str
    key: CellKey
    log_ratio: float
    exposure: Exposure


@dataclass(frozen=True, eq=False)
class Residuals:
    """Residuals of measured tables, from which intervals are made; cells that are scored are left out."""

    rows: tuple[Residual, ...]

    @derived_property
    def sizes(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Absolute log ratios. [1]"""
        return np.abs([row.log_ratio for row in self.rows])

    def without(self, keys: Iterable[CellKey]) -> Residuals:
        """Return the residuals of all other cells."""
        left_out = set(keys)
        return Residuals(tuple(row for row in self.rows if row.key not in left_out))

    def of(self, protocol: str, *, oversubscribed: bool = False) -> Residuals:
        """Select the residuals of one protocol, either with more threads than cores or without."""
        kept = (row for row in self.rows if row.protocol == protocol)
        return Residuals(tuple(row for row in kept if bool(row.exposure.oversubscription) == oversubscribed))

    def fitted(self) -> FittedSpread:
        """Fit spread and quantile to the residuals."""
        log_ratios = np.array([row.log_ratio for row in self.rows])
        return fit_spread([row.exposure for row in self.rows], log_ratios)

    def constant_half_width(self) -> float:
        """Return the half width of ln(time) that a constant ratio would have. [1]"""
        return conformal_quantile(self.sizes)


def path_of(processor: str) -> Path:
    """Return the file of a processor's residuals, in the folder of its interval scale."""
    return spec_files.find("intervals", f"{processor}_80").with_suffix(".csv")


def read_residuals(path: Path) -> Residuals:
    """Read residuals."""
    return Residuals(_read_once(path, path.stat().st_mtime_ns))


@lru_cache(maxsize=4)
def _read_once(path: Path, changed_ns: int) -> tuple[Residual, ...]:
    reader = csv.DictReader(io.StringIO(file_text(path, most_bytes=MOST_DATA_BYTES, refusal=table_error)))
    if tuple(reader.fieldnames or ()) != COLUMNS:
        message = f"{path.name}: columns must be {', '.join(COLUMNS)}"
        raise TableError(message)
    try:
        return tuple(_row(entry) for entry in reader)
    except ValueError as error:
        message = f"{path.name}: line {reader.line_num}: {error}"
        raise TableError(message) from error


def _row(entry: dict[str, str]) -> Residual:
    threads = int(entry["threads"]) if entry["threads"] else None
    return Residual(
        protocol=entry["protocol"],
        key=(entry["table"], entry["framework"], entry["network"], int(entry["batch_size"]), entry["device"], threads),
        log_ratio=float(entry["log_ratio"]),
        exposure=Exposure(**{name: float(entry[f"exposure_{name}"]) for name in EXPOSURE}),
    )


OURS: Final = "perfmodel"
SAME_PROTOCOL: Final = "one ratio, from the same protocol"
ALL_PROTOCOLS: Final = "one ratio, from all protocols"


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalRow:
    """One line of the scores of intervals."""

    subset: str
    intervals: str
    cells: int
    coverage_percent: float
    median_ratio: float
    log_score: float
    time_score_s: float


@dataclass(frozen=True, eq=False, kw_only=True)
class ConstantRatio:
    """Intervals of a constant ratio, found from the same residuals as ours."""

    name: str
    log_half_width: NDArray[np.float64]


def interval_rows(subset: str, cells: Sequence[PredictedCell], ratios: Sequence[ConstantRatio]) -> list[IntervalRow]:
    """Score the intervals of a subset's scored cells, and those of constant ratio."""
    if any(np.isnan(cell.low_s) for cell in cells):
        return []
    predicted = np.log([cell.predicted_s for cell in cells])
    log_half_width = np.array([np.log(cell.high_s / cell.predicted_s) for cell in cells])
    measured = np.array([cell.measured_s for cell in cells])
    named = [(OURS, log_half_width), *((ratio.name, ratio.log_half_width) for ratio in ratios)]
    return [interval_row(subset, name, predicted, width, measured) for name, width in named]


def mean_over_cells(rows: Sequence[IntervalRow], score: str) -> float:
    """Return a score of our intervals over all cells."""
    ours = [row for row in rows if row.intervals == OURS]
    cells = sum(row.cells for row in ours)
    return sum(row.cells * float(getattr(row, score)) for row in ours) / cells if cells else float("nan")


def interval_row(
    subset: str,
    name: str,
    log_predicted: NDArray[np.float64],
    log_half_width: NDArray[np.float64],
    measured_s: NDArray[np.float64],
) -> IntervalRow:
    """Score intervals of a half width of ln(time) against measured times."""
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


ENOUGH: Final = 50
"""Fewest residuals of other tables that allow holding out a whole table at once. [1]"""

OVERSUBSCRIBED: Final = "cpu_oversubscribed"


def key_of(cell: MeasuredCell) -> CellKey:
    """Return the key of a cell, unique in the file."""
    row = cell.row
    return row.table, row.framework, row.network, row.batch_size, row.device, row.threads


def exposures(held: HeldOut, *, scale: IntervalScale) -> list[list[Exposure]]:
    """Compute the exposure of each prediction of each fold; without a fit, only other tables have been seen."""
    cells, unknowns = held.cells, held.unknowns
    seen_of_cell = [seen_of(cell.prepared) for cell in cells]
    foreign, measured = scale.measured_without(cells[0].row.table), scale.measured
    exposures_of_folds = []
    for fold, fit in ((outcome.fold, outcome.fit) for outcome in held.outcomes):
        covered = foreign if fit is None else Seen.of(seen_of_cell[index] for index in fold.trained)
        of_fold = []
        for index in fold.scored:
            prepared = cells[index].prepared
            if fit is None:
                factors, known, ratio = NO_FACTORS, known_constants(prepared, None), None
            else:
                factors = factors_by_constant(unknowns, fit.factors, prepared.constant_names)
                known = KnownConstants(unknowns=unknowns, covariance=fit.covariance)
                usual = scale.found_on.fitted_mean_abs_log_ratio
                ratio = shrunk_ratio(fit.mean_abs_log_ratio, usual=usual, count=len(fold.trained))
            uncertainty = uncertainty_of(prepared, factors, known=known, spreads=scale.spread)
            timed = prepared.step(factors)
            of_fold.append(
                exposure_of(
                    prepared,
                    timed,
                    uncertainty=uncertainty,
                    seen=covered,
                    measured_architectures=foreign.architectures if fit is None else measured.architectures,
                    residual_ratio=ratio,
                )
            )
        exposures_of_folds.append(of_fold)
    return exposures_of_folds


def seen_of(prepared: Prepared) -> SeenRow:
    """Return device, framework, data type and mix of operations of a measured step."""
    target = prepared.target
    return SeenRow(
        device=target.processor_spec.identity,
        architecture=target.architecture,
        framework=prepared.profile.stem,
        dtype=prepared.dtype,
        mix=mix_of(prepared, prepared.step()),
    )


def seen_in(cells: Sequence[MeasuredCell]) -> Seen:
    """Collect devices, frameworks, data types and mixes of operations of measured cells."""
    return Seen.of(seen_of(cell.prepared) for cell in cells)


@dataclass(frozen=True, eq=False)
class IntervalRule:
    """A scale with the residuals it was found from."""

    scale: IntervalScale
    residuals: Residuals

    @classmethod
    def shipped(cls, subset: str) -> IntervalRule:
        """Return the rule of the spec files for a subset."""
        processor = PLAN_OF_SUBSET[subset]
        scale = load_interval_scale(f"{processor}_80")
        return cls(scale, read_residuals(path_of(processor)))


def with_intervals(
    held: HeldOut, *, subset: str, protocol: str, table: str, rule: IntervalRule | None = None
) -> tuple[list[FoldOutcome], tuple[ConstantRatio, ...]]:
    """Give every predicted cell its interval.

    A table whose residuals the shipped scale was found on is not scored with it: each fold gets a scale from the
    residuals, of all tables and protocols, of the cells that it does not hold out. Where a single fold holds the whole
    table, those are the other tables, laboratory by laboratory; where these have too few cells, it is done device by
    device. Any other table is scored with the shipped scale, which has not seen it.
    """
    rule = IntervalRule.shipped(subset) if rule is None else rule
    scale, residuals = rule.scale, rule.residuals
    of_folds, cells = exposures(held, scale=scale), held.cells
    own_table, quantiles = table in scale.found_on.tables, scale.quantile.model_dump()
    shipped = FittedSpread(parameters=parameters_of(scale), quantile=quantiles, damping=scale.damping)
    foreign = sum(row.key[0] != table for row in residuals.rows) >= ENOUGH
    outcomes: list[FoldOutcome] = []
    widths: dict[str, list[float]] = {SAME_PROTOCOL: [], ALL_PROTOCOLS: []}
    for outcome, of_fold in zip(held.outcomes, of_folds, strict=True):
        fold, predicted = outcome.fold, list(outcome.predicted)
        ratios: dict[str, list[float]] = {name: [np.nan] * len(predicted) for name in widths}
        for places in _apart(fold, cells, together=foreign or not own_table):
            others = residuals.without(key_of(cells[fold.scored[place]]) for place in places)
            spread = others.fitted() if own_table else shipped
            same = others.of(protocol, oversubscribed=subset == OVERSUBSCRIBED)
            for place in places:
                predicted[place] = _with_ends(predicted[place], spread.log_half_width(of_fold[place]))
                ratios[ALL_PROTOCOLS][place] = others.constant_half_width()
                ratios[SAME_PROTOCOL][place] = same.constant_half_width() if same.rows else np.nan
        outcomes.append(replace(outcome, predicted=tuple(predicted)))
        for name, of_cells in ratios.items():
            pairs = zip(of_cells, predicted, strict=True)
            widths[name] += [width for width, cell in pairs if cell.status == "measured"]
    log_widths = {name: np.array(width) for name, width in widths.items()}
    return outcomes, tuple(
        ConstantRatio(name=name, log_half_width=width) for name, width in log_widths.items() if np.isfinite(width).all()
    )


def _apart(fold: Fold, cells: Sequence[MeasuredCell], *, together: bool) -> list[list[int]]:
    """Group a fold's scored cells by the scale they get: one for all, or one per device if it holds out every cell."""
    places = range(len(fold.scored))
    if together or len(fold.scored) < len(cells):
        return [list(places)]
    of_device: dict[str, list[int]] = {}
    for place in places:
        of_device.setdefault(cells[fold.scored[place]].row.device, []).append(place)
    return list(of_device.values())


def _with_ends(cell: PredictedCell, log_half_width: float) -> PredictedCell:
    ratio = float(np.exp(log_half_width))
    return replace(cell, low_s=cell.predicted_s / ratio, high_s=cell.predicted_s * ratio)
