"""Intervals of the cells that a validation predicts, each made without any residual of the cells its fold holds out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from perfmodel.calibration.interval_fit import FittedSpread
from perfmodel.cost.interval import Exposure
from perfmodel.hardware.calibration import factors_by_constant
from perfmodel.hardware.interval_scale import IntervalScale, Seen, SeenRow, load_interval_scale
from perfmodel.prediction.doubt import KnownConstants, doubt_of, known_constants
from perfmodel.prediction.interval import exposure_of, mix_of, parameters_of, shrunk_ratio
from perfmodel.prediction.scaling import NO_FACTORS
from perfmodel.validation.interval_residuals import Residual, Residuals, path_of, read_residuals
from perfmodel.validation.interval_scores import ALL_PROTOCOLS, SAME_PROTOCOL, ConstantRatio

if TYPE_CHECKING:
    from perfmodel.hardware.calibration import Unknown
    from perfmodel.hardware.source import SpecFile
    from perfmodel.validation.cells import MeasuredCell, PredictedCell
    from perfmodel.validation.interval_residuals import CellKey
    from perfmodel.validation.protocols import Fold
    from perfmodel.validation.scores import FoldOutcome

PROCESSOR_OF_SUBSET: Final = {"gpu": "gpu", "cpu": "cpu", "cpu_oversubscribed": "cpu"}
"""Subset -> whose interval scale serves it."""

ENOUGH: Final = 50
"""Residuals of other tables from which on a whole table is held out at once. [1]"""

OVERSUBSCRIBED: Final = "cpu_oversubscribed"


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The cells of a subset as a protocol holds them out, fold by fold.

    Parameters
    ----------
    cells : sequence of MeasuredCell
        All cells of the subset. [-]
    folds : tuple of Fold
        What was scored and trained. [-]
    outcomes : list of FoldOutcome
        Their fits and predictions. [-]
    sources : tuple of SpecFile
        Every file whose numbers were used. [-]
    unknowns : tuple of Unknown
        Free numbers of the fits; none where nothing was fitted. [-]
    """

    cells: Sequence[MeasuredCell]
    folds: tuple[Fold, ...]
    outcomes: list[FoldOutcome]
    sources: tuple[SpecFile, ...]
    unknowns: tuple[Unknown, ...] = ()


def key_of(cell: MeasuredCell) -> CellKey:
    """Return what tells a cell from others."""
    row = cell.row
    return row.table, row.framework, row.network, row.batch_size, row.device, row.threads


def exposures(held: HeldOut, *, scale: IntervalScale) -> list[list[Exposure]]:
    """Say how certain each prediction of each fold is.

    Parameters
    ----------
    held : HeldOut
        Cells, folds and fits. [-]
    scale : IntervalScale
        For spreads of constants that no plan names, and for what was seen where nothing was fitted. [-]

    Returns
    -------
    list of list of Exposure
        Of each fold, its scored cells in their order. [1]
    """
    cells, unknowns = held.cells, held.unknowns
    seen_of_cell = [_seen_of(cell) for cell in cells]
    measured = scale.measured
    found = []
    for fold, fit in zip(held.folds, (outcome.fit for outcome in held.outcomes), strict=True):
        seen = measured if fit is None else Seen.of(seen_of_cell[index] for index in fold.trained)
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
            doubt = doubt_of(prepared, factors, known=known, spreads=scale.spread)
            timed = prepared.step(factors)
            of_fold.append(
                exposure_of(
                    prepared,
                    timed,
                    doubt=doubt,
                    seen=seen,
                    measured_architectures=measured.architectures,
                    residual_ratio=ratio,
                )
            )
        found.append(of_fold)
    return found


def _seen_of(cell: MeasuredCell) -> SeenRow:
    prepared = cell.prepared
    target = prepared.target
    return SeenRow(
        device=target.processor_spec.identity,
        architecture=target.architecture,
        framework=prepared.profile.stem,
        dtype=prepared.dtype,
        mix=mix_of(prepared, prepared.step()),
    )


def seen_in(cells: Sequence[MeasuredCell]) -> Seen:
    """Return what measured cells tell about."""
    return Seen.of(_seen_of(cell) for cell in cells)


@dataclass(frozen=True, eq=False, kw_only=True)
class SubsetIntervals:
    """A subset's predictions with their intervals, and constant ratios beside them.

    Parameters
    ----------
    outcomes : list of FoldOutcome
        The folds, their cells with ends of intervals. [-]
    ratios : tuple of ConstantRatio
        Of the scored cells, in the order of the folds. [-]
    """

    outcomes: list[FoldOutcome]
    ratios: tuple[ConstantRatio, ...]


@dataclass(frozen=True, eq=False)
class IntervalRule:
    """A scale with the residuals that it was found on.

    Parameters
    ----------
    scale : IntervalScale
        The scale. [-]
    residuals : Residuals
        Of the table that it names. [-]
    """

    scale: IntervalScale
    residuals: Residuals

    @classmethod
    def shipped(cls, subset: str) -> IntervalRule:
        """Return the rule of the spec files for a subset."""
        processor = PROCESSOR_OF_SUBSET[subset]
        scale = load_interval_scale(f"{processor}_80")
        return cls(scale, read_residuals(path_of(processor)))


def with_intervals(
    held: HeldOut, *, subset: str, protocol: str, table: str, rule: IntervalRule | None = None
) -> SubsetIntervals:
    """Give every predicted cell its interval.

    Parameters
    ----------
    held : HeldOut
        Predictions, fold by fold. [-]
    subset, protocol, table : str
        Which cells, how they were held out, and of which table. [-]
    rule : IntervalRule or None
        None for the shipped one. [-]

    Returns
    -------
    SubsetIntervals
        The same outcomes with intervals.

    Notes
    -----
    A table whose residuals the shipped scale was found on is not scored with it: each fold gets a scale from the
    residuals, of all tables and protocols, of the cells that it does not hold out. Where a single fold holds the whole
    table, those are the other tables, laboratory by laboratory; where these have too few cells, it is done device by
    device. Any other table is scored with the shipped scale, which has not seen it.
    """
    rule = IntervalRule.shipped(subset) if rule is None else rule
    scale, residuals = rule.scale, rule.residuals
    of_folds, cells = exposures(held, scale=scale), held.cells
    own_table = table in scale.found_on.tables
    foreign = sum(row.key[0] != table for row in residuals.rows) >= ENOUGH
    found: list[FoldOutcome] = []
    widths: dict[str, list[float]] = {SAME_PROTOCOL: [], ALL_PROTOCOLS: []}
    for outcome, fold, of_fold in zip(held.outcomes, held.folds, of_folds, strict=True):
        predicted = list(outcome.predicted)
        ratios: dict[str, list[float]] = {name: [np.nan] * len(predicted) for name in widths}
        for places in _apart(fold, cells, together=foreign or not own_table):
            others = residuals.without(key_of(cells[fold.scored[place]]) for place in places)
            spread = others.fitted() if own_table else _shipped(scale)
            same = others.of(protocol, oversubscribed=subset == OVERSUBSCRIBED)
            for place in places:
                predicted[place] = _with_ends(predicted[place], spread.log_half_width(of_fold[place]))
                ratios[ALL_PROTOCOLS][place] = others.constant_half_width()
                ratios[SAME_PROTOCOL][place] = same.constant_half_width() if same.rows else np.nan
        found.append(replace(outcome, predicted=tuple(predicted)))
        for name, of_cells in ratios.items():
            pairs = zip(of_cells, predicted, strict=True)
            widths[name] += [width for width, cell in pairs if cell.status == "measured"]
    told = {name: np.array(each) for name, each in widths.items()}
    return SubsetIntervals(
        outcomes=found,
        ratios=tuple(
            ConstantRatio(name=name, log_half_width=each) for name, each in told.items() if np.isfinite(each).all()
        ),
    )


def _shipped(scale: IntervalScale) -> FittedSpread:
    return FittedSpread(parameters=parameters_of(scale), quantile=scale.quantile.model_dump(), damping=scale.damping)


def _apart(fold: Fold, cells: Sequence[MeasuredCell], *, together: bool) -> list[list[int]]:
    """Return the places of a fold's scored cells that share a scale: all of them, or, of all cells, each device's."""
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


def residuals_of(held: HeldOut, *, scale: IntervalScale, protocol: str) -> list[Residual]:
    """Return the residuals of all scored cells that folds held out.

    Parameters
    ----------
    held : HeldOut
        Predictions, fold by fold. [-]
    scale : IntervalScale
        For spreads of constants that no plan names. [-]
    protocol : str
        How they were held out. [-]

    Returns
    -------
    list of Residual
        Cells set aside are left out.
    """
    of_folds = exposures(held, scale=scale)
    return [
        Residual(
            protocol=protocol,
            key=key_of(held.cells[index]),
            log_ratio=float(np.log(predicted.measured_s / predicted.predicted_s)),
            exposure=exposure,
        )
        for outcome, fold, of_fold in zip(held.outcomes, held.folds, of_folds, strict=True)
        for index, predicted, exposure in zip(fold.scored, outcome.predicted, of_fold, strict=True)
        if predicted.status == "measured"
    ]
