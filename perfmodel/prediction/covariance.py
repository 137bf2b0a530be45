"""How uncertain constants hang together: before a fit by its plan, after it by what the rows told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.hardware.calibration import Unknown


def prior_covariance(unknowns: Sequence[Unknown]) -> NDArray[np.float64]:
    """Return the covariance of unknowns before any row is seen.

    Unknowns of one group share a common part, so that one without rows of its own moves with its group's mean.

    Parameters
    ----------
    unknowns : sequence of Unknown
        Free numbers: logarithms of factors. [1]

    Returns
    -------
    ndarray, shape (unknowns, unknowns)
        Covariance. [1]
    """
    groups = np.array([unknown.group for unknown in unknowns])
    shared = np.array([unknown.shared_spread for unknown in unknowns])
    own = np.array([unknown.spread for unknown in unknowns])
    together = groups[:, None] == groups[None, :]
    covariance: NDArray[np.float64] = np.diag(own**2) + together * shared[:, None] * shared[None, :]
    return covariance


def extended_covariance(
    fitted: Sequence[Unknown], covariance: NDArray[np.float64], *, further: Sequence[Unknown]
) -> NDArray[np.float64]:
    r"""Return the covariance of fitted unknowns and of further ones that the fit has not met.

    A further unknown keeps its own part and hears of its group's mean what the fit has learned of it:

    .. math:: x_f = A x + r, \quad A = P_{fk} P_{kk}^{-1}, \quad \operatorname{cov} x_f = A C A^T + P_{ff} - A P_{kf}

    Parameters
    ----------
    fitted : sequence of Unknown
        Unknowns of the fit. [-]
    covariance : ndarray, shape (fitted, fitted)
        Theirs after the fit, C. [1]
    further : sequence of Unknown
        Unknowns of constants that no fitted row used. [-]

    Returns
    -------
    ndarray, shape (fitted + further, fitted + further)
        Joint covariance. [1]
    """
    if not further:
        return covariance
    prior, count = prior_covariance((*fitted, *further)), len(fitted)
    follow = np.linalg.solve(prior[:count, :count], prior[:count, count:]).T
    across = follow @ covariance
    own = across @ follow.T + prior[count:, count:] - follow @ prior[:count, count:]
    joint: NDArray[np.float64] = np.block([[covariance, across.T], [across, own]])
    return joint
