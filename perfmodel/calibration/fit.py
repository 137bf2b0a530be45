"""The fit: robust least squares on log times, held near the sourced constants by their priors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from perfmodel.errors import CalibrationError
from perfmodel.hardware.calibration import Z_80

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.calibration.problem import KernelProblem, Problem

Stages = tuple[tuple[float, float], ...]
"""Reach of the central differences in ln(factor), and relative change at which a stage ends, one after the other."""

DESCENTS: Final[tuple[Stages, ...]] = (
    ((1e-4, 1e-4),),
    ((0.2, 1e-4), (0.1, 1e-4), (0.05, 1e-4), (0.02, 1e-4), (0.01, 1e-4)),
)
"""Stages of each descent from the priors. [1]"""

DESCENTS_FROM_START: Final[tuple[Stages, ...]] = (((0.4, 1e-3), (0.2, 1e-3), (0.05, 1e-3), (0.01, 1e-4)),)
"""The same where the fit starts near its end. [1]"""

MOST_EVALUATIONS: Final = 60
"""Evaluations after which a stage that has not converged stops. [1]"""


FitProblem: TypeAlias = "Problem | KernelProblem"
"""What a fit needs to know of its rows: steps one by one, or kernels board by board."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Fit:
    """Fitted unknowns.

    Parameters
    ----------
    names : tuple of str
        Names of the unknowns. [-]
    log_factors : ndarray, shape (unknowns,)
        Logarithms of the factors. [1]
    covariance : ndarray, shape (unknowns, unknowns)
        Of the logarithms, from the curvature of the cost. [1]
    parameter_count : int
        Unknowns that scale a constant of at least one row of the fit, at a limit of that constant or not; the others
        stay where their prior and group put them. [1]
    converged : bool
        Whether the cost stopped falling. [-]
    mean_abs_log_ratio : float
        Mean of abs ln(predicted / measured) over the fitted rows. [1]
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
        """Return the 80 % interval of a factor.

        Parameters
        ----------
        name : str
            Name of the unknown. [-]

        Returns
        -------
        low, high : float
            Ends of the interval. [1]
        """
        index = self.names.index(name)
        reach = Z_80 * self.spreads[index]
        low, high = np.exp([self.log_factors[index] - reach, self.log_factors[index] + reach])
        return float(low), float(high)


def fit_unknowns(problem: FitProblem, rows: Sequence[int], *, start: NDArray[np.float64] | None = None) -> Fit:
    r"""Fit the unknowns to some rows of a problem.

    .. math:: \min_x \sum_i \rho\!\left(\frac{\ln t_i(x) - \ln m_i}{s}\right) + \lVert W x \rVert^2, \qquad
              \rho(z) = 2 c^2 \left(\sqrt{1 + z^2 / c^2} - 1\right)

    Parameters
    ----------
    problem : FitProblem
        Compiled rows, with noise s, outlier c and prior root W. [-]
    rows : sequence of int
        Rows to fit. [1]
    start : ndarray, shape (unknowns,), or None
        Where to start, near the end; None for the priors. Never a fit that has seen a row which this one must
        not see. [1]

    Returns
    -------
    Fit
        Factors with their spreads.

    Raises
    ------
    CalibrationError
        If no row, or no unknown, is left to fit.

    Notes
    -----
    A step time has kinks wherever another bound takes over (compute or memory, one core's bandwidth or all cores'), and
    a local gradient may lead a fit into a kink, where it stays. So a second descent takes central differences over
    steps that shrink from 20 to 1 %, each stage from the best point so far (implicit filtering): kinks narrower than
    the step do not stop it. The lower end of the two counts. Only rows are treated robustly: a prior is quadratic
    however far it is strained. Standard deviations come from the Gauss-Newton matrix at the minimum, so they hold for
    small errors.

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
    """Where one stage of a fit ended, its cost and whether the cost stopped falling."""

    log_factors: NDArray[np.float64]
    cost: float
    converged: bool


def _descent(problem: FitProblem, rows: tuple[int, ...], begin: NDArray[np.float64], *, stages: Stages) -> _Stage:
    """Return the best point of stages that follow one another, each from the best point before it."""
    best = _Stage(begin, np.inf, converged=False)
    for step, tolerance in stages:
        reached = _descend(problem, rows, best.log_factors, step=step, tolerance=tolerance)
        best = reached if reached.cost <= best.cost else best
    return best


def _descend(
    problem: FitProblem, rows: tuple[int, ...], begin: NDArray[np.float64], *, step: float, tolerance: float
) -> _Stage:
    """Return where robust least squares end with gradients over one step."""
    from scipy.optimize import least_squares  # scipy loads only where something is fitted

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
    """Return the loss of squared residuals with its two derivatives, as scipy wants it.

    Parameters
    ----------
    squared : ndarray, shape (rows + unknowns,)
        Squared residuals: those of rows first, then those of the prior. [1]
    row_count : int
        How many belong to rows. [1]
    outlier : float
        Residual from which on a row counts linearly. [1]

    Returns
    -------
    ndarray, shape (3, rows + unknowns)
        Loss, first and second derivative by the squared residual: soft-L1 for rows, quadratic for the prior. [1]

    Examples
    --------
    >>> robust_loss(np.array([0.0, 8.0, 8.0]), row_count=2, outlier=1.0)[0]
    array([0., 4., 8.])
    """
    loss = np.stack([squared, np.ones_like(squared), np.zeros_like(squared)])
    of_rows = 1 + squared[:row_count] / outlier**2
    loss[0, :row_count] = 2 * outlier**2 * (np.sqrt(of_rows) - 1)
    loss[1, :row_count] = of_rows**-0.5
    loss[2, :row_count] = -0.5 * of_rows**-1.5 / outlier**2
    return loss
