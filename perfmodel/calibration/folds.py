"""Many fits of one problem, each to other rows: started together, on several processes, kept by content."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

from perfmodel.calibration.fit import Fit, fit_unknowns

if TYPE_CHECKING:
    from perfmodel.calibration.problem import Problem

FEW = 4
"""Folds up to which a second process would cost more than it saves. [1]"""

_SHARED: dict[str, Problem] = {}
"""The problem that forked workers inherit: it need not be sent to them."""


def fit_folds(
    problem: Problem,
    trained: Sequence[tuple[int, ...]],
    *,
    progress: Callable[[], None] | None = None,
    processes: int | None = None,
) -> list[Fit]:
    """Fit the unknowns to each set of rows.

    Parameters
    ----------
    problem : Problem
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
    Every fit starts at its priors. The minimum of a fit to all rows would be nearer, but it has seen the rows that a
    fold holds out, and a cost with kinks has several minima: the start would tell the fold of them.
    """
    fits = []
    for fit in _in_turn(problem, trained, processes=processes):
        fits.append(fit)
        if progress is not None:
            progress()
    return fits


def _in_turn(
    problem: Problem,
    trained: Sequence[tuple[int, ...]],
    *,
    processes: int | None,
) -> Iterator[Fit]:
    count = min(processes or os.cpu_count() or 1, len(trained))
    if count == 1 or len(trained) <= FEW or "fork" not in multiprocessing.get_all_start_methods():
        for rows in trained:
            yield fit_unknowns(problem, rows)
        return
    _SHARED["problem"] = problem
    try:
        with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("fork")) as pool:
            yield from pool.map(_fit_shared, trained)
    finally:
        _SHARED.clear()


def _fit_shared(rows: tuple[int, ...]) -> Fit:
    return fit_unknowns(_SHARED["problem"], rows)
