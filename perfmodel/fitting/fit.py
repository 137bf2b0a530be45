"""The fit: robust least squares on log times, with priors at the sourced constants."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.atomic_write import save_text
from perfmodel.errors import ArgumentError, CalibrationError, PerfmodelError
from perfmodel.files import MOST_DATA_BYTES, file_bytes, file_text, is_file, json_of
from perfmodel.hardware import spec_files
from perfmodel.hardware.fit_file import Z_80
from perfmodel.private_folders import cached_file
from perfmodel.worker_processes import worker_pool

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.fitting.problem import Problem


Stages = tuple[tuple[float, float], ...]
"""For each stage in turn: half width of the central differences in ln(factor), and relative change at which it ends."""

DESCENTS: Final[tuple[Stages, ...]] = (
    ((1e-4, 1e-4),),
    ((0.2, 1e-4), (0.1, 1e-4), (0.05, 1e-4), (0.02, 1e-4), (0.01, 1e-4)),
)
"""Stages of each descent from the priors. [1]"""

DESCENTS_FROM_START: Final[tuple[Stages, ...]] = (((0.4, 1e-3), (0.2, 1e-3), (0.05, 1e-3), (0.01, 1e-4)),)
"""Stages of a descent that starts near its end. [1]"""

MOST_EVALUATIONS: Final = 60
"""Evaluations after which an unconverged stage stops. [1]"""


@dataclass(frozen=True, eq=False, kw_only=True)
class Fit:
    """Fitted unknowns.

    ``parameter_count`` counts those that scale a constant of at least one fitted row, whether or not the constant is at
    a limit; the others follow from their prior and group. ``covariance`` is that of the logarithms, from the curvature
    of the cost.
    """

    names: tuple[str, ...]
    log_factors: NDArray[np.float64]
    covariance: NDArray[np.float64]
    parameter_count: int
    converged: bool
    mean_abs_log_ratio: float

    @property
    def spreads(self) -> NDArray[np.float64]:
        """Standard deviations of the logarithms, shape (unknowns,). [1]"""
        deviations: NDArray[np.float64] = np.sqrt(np.diag(self.covariance))
        return deviations

    @property
    def factors(self) -> dict[str, float]:
        """Factor of each unknown. [1]"""
        return dict(zip(self.names, np.exp(self.log_factors).tolist(), strict=True))

    def interval(self, name: str) -> tuple[float, float]:
        """Return the 80 % interval of a factor."""
        index = self.names.index(name)
        reach = Z_80 * self.spreads[index]
        low, high = np.exp([self.log_factors[index] - reach, self.log_factors[index] + reach])
        return float(low), float(high)


def fit_unknowns(problem: Problem, rows: Sequence[int], *, start: NDArray[np.float64] | None = None) -> Fit:
    r"""Fit the unknowns to some rows of a problem.

    .. math:: \min_x \sum_i \rho\!\left(\frac{\ln t_i(x) - \ln m_i}{s}\right) + \lVert W x \rVert^2, \qquad
              \rho(z) = 2 c^2 \left(\sqrt{1 + z^2 / c^2} - 1\right)

    Notes
    -----
    A step time has a kink at each change of bound (compute or memory, one core's bandwidth or all cores'), and a local
    gradient may lead a fit into a kink, where it stays. So a second descent takes central differences over steps that
    shrink from 20 to 1 %, each stage from the best point so far (implicit filtering): kinks narrower than the step do
    not stop it. The descent with the lower cost counts. Only rows are treated robustly: a prior is quadratic at any
    distance. A ``start`` must not come from a fit to a row that this fit must not see. Standard deviations come from
    the Gauss-Newton matrix at the minimum, so they hold for small errors.

    References
    ----------
    .. [1] B. Triggs et al., Bundle adjustment - a modern synthesis, 2000, section 4.3 (robustified least squares).
    .. [2] C. T. Kelley, Implicit filtering, SIAM, 2011, doi:10.1137/1.9781611971903.
    """
    if not rows or not problem.unknowns:
        message = f"nothing to fit: {len(rows)} row(s) and {len(problem.unknowns)} unknown(s) are left"
        raise CalibrationError(message)
    rows = tuple(rows)
    begin = np.zeros(len(problem.unknowns)) if start is None else start
    descents = DESCENTS if start is None else DESCENTS_FROM_START
    best = min((_descent(problem, rows, begin, stages=stages) for stages in descents), key=lambda end: end.cost)
    times, gradients = problem.log_times(best.log_factors, rows)
    residuals = (times - problem.log_measured[list(rows)]) / problem.plan.noise
    weights = np.ones(len(rows) + len(problem.unknowns))
    weights[: len(rows)] = robust_loss(residuals**2, row_count=len(rows), outlier=problem.plan.outlier)[1]
    jacobian = np.concatenate([gradients / problem.plan.noise, problem.prior_root()])
    covariance = np.linalg.inv(jacobian.T @ (weights[:, None] * jacobian))
    problem.forget(keep=best.log_factors if start is None else start)
    return Fit(
        names=tuple(unknown.name for unknown in problem.unknowns),
        log_factors=best.log_factors,
        covariance=covariance,
        parameter_count=len(problem.reached_by(rows)),
        converged=best.converged,
        mean_abs_log_ratio=float(problem.plan.noise * np.mean(np.abs(residuals))),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Stage:
    """End of one stage of a fit, its cost, and whether the cost stopped falling."""

    log_factors: NDArray[np.float64]
    cost: float
    converged: bool


def _descent(problem: Problem, rows: tuple[int, ...], begin: NDArray[np.float64], *, stages: Stages) -> _Stage:
    """Run stages one after another, each from the best point so far, and return the best."""
    best = _Stage(begin, np.inf, converged=False)
    for step, tolerance in stages:
        reached = _descend(problem, rows, best.log_factors, step=step, tolerance=tolerance)
        best = reached if reached.cost <= best.cost else best
    return best


def _descend(
    problem: Problem, rows: tuple[int, ...], begin: NDArray[np.float64], *, step: float, tolerance: float
) -> _Stage:
    """Minimise by robust least squares with gradients over one step."""
    from scipy.optimize import least_squares  # scipy loads only when something is fitted

    root, noise = problem.prior_root(), problem.plan.noise
    measured = problem.log_measured[list(rows)]

    def residuals(log_factors: NDArray[np.float64]) -> NDArray[np.float64]:
        times, _ = problem.log_times(log_factors, rows, step=step)
        return np.concatenate([(times - measured) / noise, root @ log_factors])

    def jacobian(log_factors: NDArray[np.float64]) -> NDArray[np.float64]:
        _, gradients = problem.log_times(log_factors, rows, step=step)
        return np.concatenate([gradients / noise, root])

    loss: Any = partial(robust_loss, row_count=len(rows), outlier=problem.plan.outlier)
    solved: Any = least_squares(
        residuals,
        begin,
        jac=jacobian,
        loss=loss,
        ftol=tolerance,
        xtol=tolerance,
        gtol=tolerance,
        max_nfev=MOST_EVALUATIONS,
    )
    return _Stage(solved.x, float(solved.cost), converged=bool(solved.status > 0))


def robust_loss(squared: NDArray[np.float64], *, row_count: int, outlier: float) -> NDArray[np.float64]:
    """Return the loss of squared residuals with its two derivatives, in scipy's form."""
    loss = np.stack([squared, np.ones_like(squared), np.zeros_like(squared)])
    of_rows = 1 + squared[:row_count] / outlier**2
    loss[0, :row_count] = 2 * outlier**2 * (np.sqrt(of_rows) - 1)
    loss[1, :row_count] = of_rows**-0.5
    loss[2, :row_count] = -0.5 * of_rows**-1.5 / outlier**2
    return loss


FOLLOWING_FOLDERS: Final = frozenset({"calibrations", "fit_plans", "intervals"})
"""Folders of spec files that the fingerprint leaves out: no fit depends on them, or the caller's key has them."""


ASIDE: Final = (
    "cli/",
    "importers/",
    "presentation/",
    "validation/",
    "calibration/",
    "fitting/interval_scale_fit.py",
    "cost/interval_width.py",
    "hardware/interval_scale.py",
    "prediction/certainty/basis.py",
    "prediction/certainty/prediction_interval.py",
    "prediction/words/",
)
"""Parts of the package that no fit of shipped tables uses, except the modules of ``PREPARING``."""

PREPARING: Final = frozenset(
    f"validation/{module}.py" for module in ("protocols/cells", "protocols/protocols", "reports/speedup")
)
"""Modules of the validation that prepare the fitted rows; the others only score."""


@cache
def code_fingerprint() -> str:
    """Return a fingerprint of every module that a fit may use, because a changed formula changes the fit."""
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for path in sorted([*root.rglob("*.py"), *root.glob("measurements/formats/*.toml")]):
        name = path.relative_to(root).as_posix()
        if name in PREPARING or not name.startswith(ASIDE):
            digest.update(name.encode())
            digest.update(file_bytes(path, most_bytes=MOST_DATA_BYTES))
    return digest.hexdigest()


def fingerprint(parts: Iterable[object]) -> str:
    """Return a fingerprint of everything that a fit depends on: code, spec files, and the caller's own parts."""
    digest = hashlib.sha256(code_fingerprint().encode())
    for folder in sorted(spec_files.NOUN_BY_FOLDER.keys() - FOLLOWING_FOLDERS):
        for path in spec_files.files(folder):
            digest.update(f"{folder}/{path.name}".encode())
            digest.update(file_bytes(path, most_bytes=MOST_DATA_BYTES))
    for part in parts:
        digest.update(repr(part).encode())
    return digest.hexdigest()[:32]


def kept_fits(key: str) -> list[Fit] | None:
    """Read the fits that are cached under a key."""
    path = cached_file(f"{key}.json", of="fits")
    if path is None or not is_file(path):
        return None
    try:
        content = json_of(path, file_text(path, most_bytes=MOST_DATA_BYTES))
        return [_fit_of(entry) for entry in content]
    except (PerfmodelError, ValueError, KeyError, TypeError):
        return None


def keep_fits(key: str, fits: Iterable[Fit]) -> None:
    """Cache fits under a key; ignore a folder that cannot be written."""
    path = cached_file(f"{key}.json", of="fits")
    if path is not None:
        with suppress(ArgumentError):  # e.g. a full disk
            save_text(path, json.dumps([asdict(fit) for fit in fits], default=np.ndarray.tolist))


def _fit_of(entry: dict[str, Any]) -> Fit:
    arrays = {name: np.array(entry[name]) for name in ("log_factors", "covariance")}
    return Fit(**{**entry, "names": tuple(entry["names"]), **arrays})


FEW = 80
"""Folds up to which every fit starts at its priors. [1]"""

GROUPS = 8
"""Groups of many folds; the folds of a group start from a fit without the rows that any of them holds out. [1]"""

_SHARED: dict[str, Problem] = {}
"""The problem that forked workers inherit, so that it need not be sent to them."""


def fit_folds(
    problem: Problem,
    trained: Sequence[tuple[int, ...]],
    *,
    progress: Callable[[], None] | None = None,
    processes: int | None = None,
) -> list[Fit]:
    """Fit the unknowns to each set of rows.

    Every fit starts at its priors or, if there are many folds, from the fit of a group of folds. The minimum of a fit
    to all rows would be nearer, but that fit has seen the rows that a fold holds out, and a cost with kinks has several
    minima: the start would leak held-out rows into the fold. The fit of a group excludes the rows that any of its folds
    holds out.
    """
    jobs = _jobs(trained)
    fits: list[Fit | None] = [None] * len(trained)
    for job, fits_of_job in zip(jobs, _in_turn(problem, jobs, processes=processes), strict=True):
        for place, fit in zip(job.places, fits_of_job, strict=True):
            fits[place] = fit
            if progress is not None:
                progress()
    return [fit for fit in fits if fit is not None]


def cached_fits(
    problem: Problem,
    trained: Sequence[tuple[int, ...]],
    key: str,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> list[Fit]:
    """Return the fit to each set of rows, from the cache if the same fit was made before."""
    report_progress = progress or (lambda done, total: None)
    fits = kept_fits(key)
    if fits is None or len(fits) != len(trained):
        done = count(1)
        fits = fit_folds(problem, trained, progress=lambda: report_progress(next(done), len(trained)))
        keep_fits(key, fits)
    else:
        report_progress(len(trained), len(trained))
    return fits


@dataclass(frozen=True, slots=True)
class _Job:
    """Folds that one process fits one after another."""

    places: tuple[int, ...]
    trained: tuple[tuple[int, ...], ...]
    common: tuple[int, ...]


def _jobs(trained: Sequence[tuple[int, ...]]) -> list[_Job]:
    """Deal folds to jobs: one fold each if there are few, groups of folds if there are many."""
    if len(trained) <= FEW:
        return [_Job((place,), (rows,), ()) for place, rows in enumerate(trained)]
    jobs = []
    for group in range(GROUPS):
        places = tuple(range(group, len(trained), GROUPS))
        common = set(trained[places[0]]).intersection(*(trained[place] for place in places))
        jobs.append(_Job(places, tuple(trained[place] for place in places), tuple(sorted(common))))
    return jobs


def _in_turn(problem: Problem, jobs: Sequence[_Job], *, processes: int | None) -> Iterator[list[Fit]]:
    process_count = min(processes or os.cpu_count() or 1, len(jobs))
    if process_count == 1 or "fork" not in multiprocessing.get_all_start_methods():
        for job in jobs:
            yield _fits_of(problem, job)
        return
    _SHARED["problem"] = problem
    try:
        with worker_pool(process_count, context=multiprocessing.get_context("fork")) as pool:
            yield from pool.map(_fits_shared, jobs)
    finally:
        _SHARED.clear()


def _fits_of(problem: Problem, job: _Job) -> list[Fit]:
    start = fit_unknowns(problem, job.common).log_factors if job.common else None
    return [fit_unknowns(problem, rows, start=start) for rows in job.trained]


def _fits_shared(job: _Job) -> list[Fit]:
    return _fits_of(_SHARED["problem"], job)
