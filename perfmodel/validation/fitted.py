"""One subset of a table under a protocol that fits: folds, fits, and cells predicted by their fold's constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from perfmodel.calibration.fit_cache import fingerprint, keep_fits, kept_fits
from perfmodel.calibration.folds import fit_folds
from perfmodel.calibration.problem import Problem
from perfmodel.hardware.fit_plan import FitPlan, factors_by_constant, load_fit_plan
from perfmodel.prediction.subject import Subject
from perfmodel.validation.cells import MeasuredCell, PredictedCell, predict_cell
from perfmodel.validation.protocols import Fold, folds_of

if TYPE_CHECKING:
    from perfmodel.calibration.fit import Fit
    from perfmodel.hardware.source import SpecFile

PLAN_OF_SUBSET = {"gpu": "gpu", "cpu": "cpu", "cpu_oversubscribed": "cpu"}
"""Subset -> fit plan; GPU and CPU rows are fitted apart."""

FACTS_OF_RUN = tuple(field.name for field in fields(Subject) if field.name != "graph")
"""What a fit follows from besides the graph, which has a fingerprint of its own."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedSubset:
    """A subset's folds with their fits and predictions.

    Parameters
    ----------
    folds : tuple of Fold
        What was scored and trained. [-]
    fits : tuple of Fit
        Constants of each fold. [-]
    problem : Problem
        Compiled rows. [-]
    cells : tuple of MeasuredCell
        All cells of the subset. [-]
    predicted : tuple of tuple of PredictedCell
        Scored cells of each fold, in its order. [-]
    sources : tuple of SpecFile
        Every file whose numbers were used. [-]
    """

    folds: tuple[Fold, ...]
    fits: tuple[Fit, ...]
    problem: Problem
    cells: tuple[MeasuredCell, ...]
    predicted: tuple[tuple[PredictedCell, ...], ...]
    sources: tuple[SpecFile, ...]


def compiled(cells: Sequence[MeasuredCell], plan: FitPlan) -> Problem:
    """Compile measured cells for a fit.

    Parameters
    ----------
    cells : sequence of MeasuredCell
        Cells, those set aside too: a fit is told which rows to use. [-]
    plan : FitPlan
        What is free. [-]

    Returns
    -------
    Problem
        Ready to be fitted. [-]
    """
    return Problem.of([cell.prepared for cell in cells], [cell.measured_s for cell in cells], plan)


def predict_subset(
    cells: Sequence[MeasuredCell],
    *,
    subset: str,
    protocol: str,
    split: Callable[[Sequence[MeasuredCell]], list[Fold]] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> FittedSubset:
    """Fit inside every fold of a protocol, and predict what each fold holds out.

    Parameters
    ----------
    cells : sequence of MeasuredCell
        Cells of one subset. [-]
    subset : str
        Which decides the fit plan. [-]
    protocol : str
        Name of a protocol that fits. [-]
    split : callable or None
        Another way to split the cells than the protocol's own. [-]
    progress : callable or None
        Told how many folds are done, and of how many. [-]

    Returns
    -------
    FittedSubset
        Folds, fits and predictions.

    Raises
    ------
    CalibrationError
        If a fold has nothing to fit.
    """
    folds = folds_of(protocol, cells) if split is None else split(cells)
    plan = load_fit_plan(PLAN_OF_SUBSET[subset])
    problem = compiled(cells, plan)
    fits = _fits(problem, cells, folds, plan=plan, progress=progress)
    predicted: list[tuple[PredictedCell, ...]] = []
    sources: dict[int, SpecFile] = {}
    for fold, fit in zip(folds, fits, strict=True):
        of_fold = []
        for index in fold.scored:
            factors = factors_by_constant(problem.unknowns, fit.factors, cells[index].prepared.constant_names)
            cell, used = predict_cell(cells[index], factors, fold=fold.label)
            of_fold.append(cell)
            sources |= {id(spec): spec for spec in used}
        predicted.append(tuple(of_fold))
    return FittedSubset(
        folds=tuple(folds),
        fits=tuple(fits),
        problem=problem,
        cells=tuple(cells),
        predicted=tuple(predicted),
        sources=tuple(sources.values()),
    )


def content_key(cells: Sequence[MeasuredCell], *, plan: FitPlan, trained: Sequence[tuple[int, ...]]) -> str:
    """Return a fingerprint of everything that fits follow from.

    Parameters
    ----------
    cells : sequence of MeasuredCell
        Rows with their times and what ran. [-]
    plan : FitPlan
        What is free. [-]
    trained : sequence of tuple of int
        Cells of each fit. [1]

    Returns
    -------
    str
        Hexadecimal digits; another for other times, Runs, spec files, plans, splits or code. [-]
    """
    runs = {id(cell.prepared.subject): cell.prepared.subject for cell in cells}.values()
    return fingerprint(
        (
            plan,
            [(cell.row.cell_key, cell.row.step_s, cell.prepared.dtype) for cell in cells],
            [(run.graph.fingerprint, [getattr(run, fact) for fact in FACTS_OF_RUN]) for run in runs],
            [tuple(rows) for rows in trained],
        )
    )


def _fits(
    problem: Problem,
    cells: Sequence[MeasuredCell],
    folds: Sequence[Fold],
    *,
    plan: FitPlan,
    progress: Callable[[int, int], None] | None,
) -> list[Fit]:
    """Return the fit of every fold, from the cache where the same was fitted before."""
    trained = [fold.trained for fold in folds]
    key = content_key(cells, plan=plan, trained=trained)
    fits = kept_fits(key)
    if fits is not None and len(fits) == len(folds):
        if progress is not None:
            progress(len(folds), len(folds))
        return fits
    done = 0

    def told() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, len(folds))

    fits = fit_folds(problem, trained, progress=told)
    keep_fits(key, fits)
    return fits
