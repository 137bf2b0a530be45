"""How wide an interval about a predicted time is: pure functions of numbers, floats or arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

Quantity = Any

WAYS_TO_EXTRAPOLATE: Final = ("device", "framework", "operations", "dtype", "architecture", "oversubscription")
"""What a prediction may meet that no measured row did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """What makes a prediction more or less certain than others.

    Parameters
    ----------
    constants_variance : float or ndarray, shape (predictions,)
        Variance of ln(time) from uncertain constants: sensitivities J of ln(time) to ln(constant), covariance S. [1]
    pass_share : float or ndarray, shape (predictions,)
        Share of the step in passes over memory, update and exposed copies, whose kernels no table times. [1]
    residual_ratio : float or ndarray, shape (predictions,)
        Residual of the fit over that of the fits which the scale was found with; 1 where nothing was fitted. [1]
    device, framework, operations, dtype, architecture, oversubscription : float or ndarray, shape (predictions,)
        How far each is new: 0 for seen, 1 for never seen. [1]
    """

    constants_variance: Quantity
    pass_share: Quantity
    residual_ratio: Quantity = 1.0
    device: Quantity = 0.0
    framework: Quantity = 0.0
    operations: Quantity = 0.0
    dtype: Quantity = 0.0
    architecture: Quantity = 0.0
    oversubscription: Quantity = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadParameters:
    """What each part of an exposure adds.

    Parameters
    ----------
    structural : float
        Spread of ln(measured / predicted) that uncertain constants do not explain, tau. [1]
    constants_weight : float
        How far stated spreads of constants were found too narrow or too wide, as a factor on their variance, kappa. [1]
    unseen : mapping of str to float
        Spread that each of ``WAYS_TO_EXTRAPOLATE`` adds, u. [1]
    pass_slope, mean_pass_share : float
        Change of the spread's logarithm with the share of passes, beta, and their mean share. [1]
    """

    structural: float
    constants_weight: float
    unseen: Mapping[str, float]
    pass_slope: float = 0.0
    mean_pass_share: float = 0.0


def variance_parts(exposure: Exposure, *, parameters: SpreadParameters) -> dict[str, Quantity]:
    """Return the variance of ln(measured / predicted) by cause, but for the share of passes.

    Parameters
    ----------
    exposure : Exposure
        Of one prediction or many. [1]
    parameters : SpreadParameters
        What each part adds. [1]

    Returns
    -------
    dict of str to float or ndarray, shape (predictions,)
        ``physics``, ``constants``, and the ways to extrapolate. [1]
    """
    unseen = {way: (parameters.unseen[way] * getattr(exposure, way)) ** 2 for way in WAYS_TO_EXTRAPOLATE}
    physics = (parameters.structural * exposure.residual_ratio) ** 2
    return {"physics": physics, "constants": parameters.constants_weight * exposure.constants_variance} | unseen


def log_spread(exposure: Exposure, *, parameters: SpreadParameters) -> Quantity:
    r"""Return the spread of ln(measured / predicted).

    .. math:: \sigma = \sqrt{(\rho \tau)^2 + \kappa \, J S J^T + \sum_j (u_j n_j)^2} \; e^{\beta (w - \bar w)}

    Parameters
    ----------
    exposure : Exposure
        Residual ratio rho, variance of the constants J S J^T, novelties n, share of passes w. [1]
    parameters : SpreadParameters
        The Greek letters and u. [1]

    Returns
    -------
    float or ndarray, shape (predictions,)
        Standard deviation of the logarithm, up to the quantile that calibrates it. [1]

    Notes
    -----
    Valid for: errors small enough that ln(time) is about linear in ln(constant). Ignores: errors that predictions
    share, so it is the interval of one prediction, not of a comparison of two.

    References
    ----------
    .. [1] Propagation of uncertainty: JCGM 100:2008, GUM, equation 13.

    Examples
    --------
    >>> new_device = dict.fromkeys(WAYS_TO_EXTRAPOLATE, 0.0) | {"device": 0.15}
    >>> parameters = SpreadParameters(structural=0.12, constants_weight=1.0, unseen=new_device)
    >>> log_spread(Exposure(constants_variance=0.0064, pass_share=0.3, device=1.0), parameters=parameters)
    0.208
    """
    variance = sum(variance_parts(exposure, parameters=parameters).values())
    slope = parameters.pass_slope * (exposure.pass_share - parameters.mean_pass_share)
    return np.sqrt(variance) * np.exp(slope)


def interval_ends(time_s: Quantity, *, spread: Quantity, quantile: Quantity) -> tuple[Quantity, Quantity]:
    """Return the ends of an interval that is as far below a time as above it, as a ratio.

    Parameters
    ----------
    time_s : float or ndarray, shape (predictions,)
        Predicted time. [s]
    spread : float or ndarray, shape (predictions,)
        Spread of its logarithm. [1]
    quantile : float
        Spreads to either side that hold the wanted share of errors. [1]

    Returns
    -------
    low, high : float or ndarray, shape (predictions,)
        Ends. [s]

    Notes
    -----
    Valid for: predictions without a bias that is known; one that is known belongs into a constant.

    Examples
    --------
    >>> low, high = interval_ends(10.0, spread=0.2, quantile=1.0)
    >>> round(float(low * high), 6)
    100.0
    """
    ratio = np.exp(quantile * spread)
    return time_s / ratio, time_s * ratio
