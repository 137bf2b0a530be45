"""Fits kept on disk by the content they follow from, so that asking again costs nothing and nothing can be stale."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Final

import numpy as np

from perfmodel.atomic_write import replacement_of
from perfmodel.calibration.fit import Fit, FitProblem, fit_unknowns
from perfmodel.hardware import spec_files

ENVIRONMENT_VARIABLE: Final = "PERFMODEL_CACHE"
"""Names the folder of kept fits; empty to keep none."""


def cache_folder() -> Path | None:
    """Return where fits are kept.

    Returns
    -------
    Path or None
        ``$PERFMODEL_CACHE``, else ``perfmodel`` in the user's cache folder; None where the variable is empty. [-]
    """
    given = os.environ.get(ENVIRONMENT_VARIABLE)
    if given is not None:
        return Path(given) if given else None
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "perfmodel" / "fits"


FOLLOWING_FOLDERS: Final = frozenset({"calibrations", "fits", "intervals"})
"""Kind folders of what follows from fits, and of fit plans, of which callers name the one in use."""


ASIDE: Final = (
    "cli/",
    "importers/",
    "presentation/",
    "validation/",
    "calibration/interval_fit.py",
    "cost/interval.py",
    "hardware/interval_scale.py",
    *(f"prediction/{module}.py" for module in ("doubt", "explanation", "interval", "provenance")),
)
"""Parts of the package that no fit of shipped tables passes through, but for the modules of ``PREPARING``."""

PREPARING: Final = frozenset(
    f"validation/{module}.py" for module in ("ablation", "cells", "kernel_scores", "protocols", "speedup_scores")
)
"""Modules of the validation that prepare what is fitted; the others only score what came out."""


@cache
def code_fingerprint() -> str:
    """Return a fingerprint of every module that a fit may pass through: another formula is another fit."""
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if name in PREPARING or not name.startswith(ASIDE):
            digest.update(name.encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def fingerprint(parts: Iterable[object]) -> str:
    """Return a fingerprint of what a fit follows from: the code, every spec file, and what the caller names.

    Parameters
    ----------
    parts : iterable of object
        Rows, runs, plan, protocol: anything whose ``repr`` tells its content. [-]

    Returns
    -------
    str
        Hexadecimal digits. [-]
    """
    digest = hashlib.sha256(code_fingerprint().encode())
    for folder in sorted(spec_files.NOUN_BY_FOLDER.keys() - FOLLOWING_FOLDERS):
        for path in spec_files.files(folder):
            digest.update(f"{folder}/{path.name}".encode())
            digest.update(path.read_bytes())
    for part in parts:
        digest.update(repr(part).encode())
    return digest.hexdigest()[:32]


def kept_fits(key: str) -> list[Fit] | None:
    """Return the fits kept under a key.

    Parameters
    ----------
    key : str
        Fingerprint. [-]

    Returns
    -------
    list of Fit or None
        None where there are none, or what is there cannot be read. [-]
    """
    folder = cache_folder()
    if folder is None:
        return None
    try:
        content = json.loads((folder / f"{key}.json").read_text(encoding="utf-8"))
        return [_fit_of(entry) for entry in content]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep_fits(key: str, fits: Iterable[Fit]) -> None:
    """Keep fits under a key; a folder that cannot be written is no fault.

    Parameters
    ----------
    key : str
        Fingerprint. [-]
    fits : iterable of Fit
        Fits in the order of their folds. [-]
    """
    folder = cache_folder()
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacement_of(folder / f"{key}.json") as path:
            path.write_text(json.dumps([asdict(fit) for fit in fits], default=np.ndarray.tolist), encoding="utf-8")
    except OSError:
        return


def _fit_of(entry: dict[str, Any]) -> Fit:
    arrays = {name: np.array(entry[name]) for name in ("log_factors", "covariance")}
    return Fit(**{**entry, "names": tuple(entry["names"]), **arrays})


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


def cached_fits(
    problem: FitProblem,
    trained: Sequence[tuple[int, ...]],
    key: str,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> list[Fit]:
    """Return the fit to each set of rows, from the cache where the same was fitted before.

    Parameters
    ----------
    problem : FitProblem
        Compiled rows. [-]
    trained : sequence of tuple of int
        Rows of each fit. [1]
    key : str
        Fingerprint of all that the fits follow from. [-]
    progress : callable or None
        Told how many fits are there, and of how many. [-]

    Returns
    -------
    list of Fit
        In the order of ``trained``.
    """
    told = progress or (lambda done, total: None)
    fits = kept_fits(key)
    if fits is None or len(fits) != len(trained):
        done = count(1)
        fits = fit_folds(problem, trained, progress=lambda: told(next(done), len(trained)))
        keep_fits(key, fits)
    else:
        told(len(trained), len(trained))
    return fits


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
    process_count = min(processes or os.cpu_count() or 1, len(jobs))
    if process_count == 1 or "fork" not in multiprocessing.get_all_start_methods():
        for job in jobs:
            yield _fits_of(problem, job)
        return
    _SHARED["problem"] = problem
    try:
        with ProcessPoolExecutor(process_count, mp_context=multiprocessing.get_context("fork")) as pool:
            yield from pool.map(_fits_shared, jobs)
    finally:
        _SHARED.clear()


def _fits_of(problem: FitProblem, job: _Job) -> list[Fit]:
    start = fit_unknowns(problem, job.common).log_factors if job.common else None
    return [fit_unknowns(problem, rows, start=start) for rows in job.trained]


def _fits_shared(job: _Job) -> list[Fit]:
    return _fits_of(_SHARED["problem"], job)
