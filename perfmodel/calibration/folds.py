"""Many fits of one problem, each to other rows: started together, on several processes, kept by content."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

from perfmodel.calibration.fit import Fit, fit_unknowns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from perfmodel.calibration.problem import Problem

FEW = 4
"""Folds up to which a second process would cost more than it saves. [1]"""

_SHARED: dict[str, tuple[Problem, NDArray[np.float64] | None]] = {}
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
    Every fit minimises its own cost to its own tolerance. Where there are many, they start from the minimum of one fit
    to all their rows, which is near theirs: that decides how long they take, not where they end (a test starts some
    at their priors).
    """
    rows = sorted({row for fold in trained for row in fold})
    start = fit_unknowns(problem, rows).log_factors if len(trained) > FEW else None
    fits = []
    for fit in _in_turn(problem, trained, start=start, processes=processes):
        fits.append(fit)
        if progress is not None:
            progress()
    return fits


def _in_turn(
    problem: Problem,
    trained: Sequence[tuple[int, ...]],
    *,
    start: NDArray[np.float64] | None,
    processes: int | None,
) -> Iterator[Fit]:
    count = min(processes or os.cpu_count() or 1, len(trained))
    if count == 1 or len(trained) <= FEW or "fork" not in multiprocessing.get_all_start_methods():
        for rows in trained:
            yield fit_unknowns(problem, rows, start=start)
        return
    _SHARED["problem"] = (problem, start)
    try:
        with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("fork")) as pool:
            yield from pool.map(_fit_shared, trained)
    finally:
        _SHARED.clear()


def _fit_shared(rows: tuple[int, ...]) -> Fit:
    problem, start = _SHARED["problem"]
    return fit_unknowns(problem, rows, start=start)
