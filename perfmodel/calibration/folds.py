"""Many fits of one problem, each to other rows: started together, on several processes, kept by content."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from perfmodel.calibration.fit import Fit, FitProblem, fit_unknowns

FEW = 80
"""Folds up to which every fit starts at its priors. [1]"""

GROUPS = 8
"""Groups of many folds; the folds of one start from a fit that has seen no row that any of them holds out. [1]"""

_SHARED: dict[str, FitProblem] = {}
"""The problem that forked workers inherit: it need not be sent to them."""


def fit_folds(
    problem: FitProblem,
    trained: Sequence[tuple[int, ...]],
    *,
    progress: Callable[[], None] | None = None,
    processes: int | None = None,
) -> list[Fit]:
    """Fit the unknowns to each set of rows.

    Parameters
    ----------
    problem : FitProblem
        Compiled rows. [-]
    trained : sequence of tuple of int
        Rows of each fit. [1]
    progress : callable or None
        Called after each fit. [-]
    processes : int or None
        Processes to use; None for one per processor. [1]

    Returns
    -------
    list of Fit
        In the order of ``trained``.

    Raises
    ------
    CalibrationError
        If a fit has nothing to fit.

    Notes
    -----
    Every fit starts at its priors, or, where there are many, from the fit of a group of folds. The minimum of a fit to
    all rows would be nearer, but it has seen the rows that a fold holds out, and a cost with kinks has several minima:
    the start would tell the fold of them. The fit of a group is made without the rows that any fold of it holds out.
    """
    jobs = _jobs(trained)
    fits: list[Fit | None] = [None] * len(trained)
    for job, found in zip(jobs, _in_turn(problem, jobs, processes=processes), strict=True):
        for place, fit in zip(job.places, found, strict=True):
            fits[place] = fit
            if progress is not None:
                progress()
    return [fit for fit in fits if fit is not None]


@dataclass(frozen=True, slots=True)
class _Job:
    """Folds that one process fits one after the other.

    Parameters
    ----------
    places : tuple of int
        Places of the folds among all. [1]
    trained : tuple of tuple of int
        Rows of each. [1]
    common : tuple of int
        Rows that all of them fit; empty where each starts at its priors. [1]
    """

    places: tuple[int, ...]
    trained: tuple[tuple[int, ...], ...]
    common: tuple[int, ...]


def _jobs(trained: Sequence[tuple[int, ...]]) -> list[_Job]:
    """Deal folds to jobs: one each where there are few, groups where there are many."""
    if len(trained) <= FEW:
        return [_Job((place,), (rows,), ()) for place, rows in enumerate(trained)]
    jobs = []
    for group in range(GROUPS):
        places = tuple(range(group, len(trained), GROUPS))
        common = set(trained[places[0]]).intersection(*(trained[place] for place in places))
        jobs.append(_Job(places, tuple(trained[place] for place in places), tuple(sorted(common))))
    return jobs


def _in_turn(problem: FitProblem, jobs: Sequence[_Job], *, processes: int | None) -> Iterator[list[Fit]]:
    count = min(processes or os.cpu_count() or 1, len(jobs))
    if count == 1 or "fork" not in multiprocessing.get_all_start_methods():
        for job in jobs:
            yield _fits_of(problem, job)
        return
    _SHARED["problem"] = problem
    try:
        with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("fork")) as pool:
            yield from pool.map(_fits_shared, jobs)
    finally:
        _SHARED.clear()


def _fits_of(problem: FitProblem, job: _Job) -> list[Fit]:
    start = fit_unknowns(problem, job.common).log_factors if job.common else None
    return [fit_unknowns(problem, rows, start=start) for rows in job.trained]


def _fits_shared(job: _Job) -> list[Fit]:
    return _fits_of(_SHARED["problem"], job)
