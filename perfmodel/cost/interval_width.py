"""Width of the interval around a predicted time: pure functions of floats or arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfmodel.symbolic import Quantity

WAYS_TO_EXTRAPOLATE: Final = (
    "unfitted",
    "device",
    "framework",
    "operations",
    "dtype",
    "architecture",
    "oversubscription",
)
"""What may be new in a prediction compared with the fitted rows; ``unfitted`` if no whole step was fitted."""

REGIMES: Final = ("unfitted", "interpolated", "new_device", "new_framework", "new_operations")
"""Nothing fitted; fitted, and nothing new; fitted, and the device, the framework, or the mix of operations is new."""

SHARED: Final = "shared_attention"
"""Regime beside these: nothing fitted, and devices share the training of a network with attention in 16 bit."""

NEW: Final = 0.5
"""Novelty of a device, framework or mix of operations at or above which a prediction extrapolates. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """Traits of a prediction that its certainty depends on.

    Parameters
    ----------
    constants_variance : float or ndarray, shape (predictions,)
        Variance of ln(time) from uncertain constants: sensitivities J of ln(time) to ln(constant), covariance S. [1]
    other_share : float or ndarray, shape (predictions,)
        Share of the step that arithmetic does not bound: memory, launches, dispatch, update, copies. Tables of measured
        kernels mainly describe products and convolutions. [1]
    residual_ratio : float or ndarray, shape (predictions,)
        Residual of the fit over that of the fits used to find the scale; 1 if nothing was fitted. [1]
    exchange_variance : float or ndarray, shape (predictions,)
        Variance of ln(time) from the time of exchanges between workers. [1]
    unfitted, device, framework, operations, dtype, architecture, oversubscription : float or ndarray
        Novelty of each, shape (predictions,): 0 for seen, 1 for never seen. [1]
    shared_attention : float or ndarray, shape (predictions,)
        1 where devices share the training of a network with attention in 16 bit, as of language models. [1]
    """

    constants_variance: Quantity
    other_share: Quantity
    residual_ratio: Quantity = 1.0
    exchange_variance: Quantity = 0.0
    unfitted: Quantity = 0.0
    device: Quantity = 0.0
    framework: Quantity = 0.0
    operations: Quantity = 0.0
    dtype: Quantity = 0.0
    architecture: Quantity = 0.0
    oversubscription: Quantity = 0.0
    shared_attention: Quantity = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadParameters:
    """Variance that each part of an exposure adds.

    Parameters
    ----------
    structural : float
        Spread of ln(measured / predicted) that uncertain constants do not explain, tau. [1]
    constants_weight : float
        Factor on the variance of constants that corrects their stated spreads, kappa. [1]
    unseen : mapping of str to float
        Spread that each of ``WAYS_TO_EXTRAPOLATE`` adds, u. [1]
    other_slope, mean_other_share : float
        Change of the spread's logarithm with the share that arithmetic does not bound, beta, and its mean. [1]
    """

    structural: float
    constants_weight: float
    unseen: Mapping[str, float]
    other_slope: float = 0.0
    mean_other_share: float = 0.0


def variance_parts(exposure: Exposure, *, parameters: SpreadParameters) -> dict[str, Quantity]:
    """Return the variance of ln(measured / predicted) by cause.

    Parameters
    ----------
    exposure : Exposure
        Of one prediction or many. [1]
    parameters : SpreadParameters
        What each part adds. [1]

    Returns
    -------
    dict of str to float or ndarray, shape (predictions,)
        ``physics``, ``constants``, ``exchange``, and the ways to extrapolate. [1]
    """
    unseen = {way: (parameters.unseen[way] * getattr(exposure, way)) ** 2 for way in WAYS_TO_EXTRAPOLATE}
    of_share = np.exp(2 * parameters.other_slope * (exposure.other_share - parameters.mean_other_share))
    physics = (parameters.structural * exposure.residual_ratio) ** 2
    constants = parameters.constants_weight * exposure.constants_variance
    base = {"physics": of_share * physics, "constants": of_share * constants, "exchange": exposure.exchange_variance}
    return base | unseen


def log_spread(exposure: Exposure, *, parameters: SpreadParameters) -> Quantity:
    r"""Return the spread of ln(measured / predicted).

    .. math:: \sigma = \sqrt{\left((\rho \tau)^2 + \kappa \, J S J^T\right) e^{2 \beta (w - \bar w)}
              + e + \sum_j (u_j n_j)^2}

    Parameters
    ----------
    exposure : Exposure
        Residual ratio rho, variances of the constants J S J^T and of exchanges e, novelties n, share w. [1]
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
    >>> log_spread(Exposure(constants_variance=0.0064, other_share=0.3, device=1.0), parameters=parameters)
    np.float64(0.2081)
    """
    return np.sqrt(sum(variance_parts(exposure, parameters=parameters).values()))


def regime_of(exposure: Exposure) -> str:
    """Return the regime of one prediction.

    Parameters
    ----------
    exposure : Exposure
        Of a single prediction. [1]

    Returns
    -------
    str
        One of ``REGIMES`` or ``SHARED``, each with a quantile of its own. [-]

    Examples
    --------
    >>> regime_of(Exposure(constants_variance=0.01, other_share=0.3, framework=1.0))
    'new_framework'
    """
    if exposure.unfitted:
        return SHARED if exposure.shared_attention else "unfitted"
    news = ("operations", "framework", "device")  # the largest contribution first
    return next((f"new_{way}" for way in news if getattr(exposure, way) >= NEW), "interpolated")


def log_half_width(spread: Quantity, *, quantile: Quantity, damping: Quantity) -> Quantity:
    r"""Return half the width of an interval of ln(time).

    .. math:: h = q \, \sigma^\gamma

    Parameters
    ----------
    spread : float or ndarray, shape (predictions,)
        Spread of ln(measured / predicted), sigma. [1]
    quantile : float
        Number of damped spreads to either side that contain the requested share of errors, q. [1]
    damping : float
        How far widths follow spreads, gamma: 0 for the same width everywhere, 1 for proportional widths. [1]

    Returns
    -------
    float or ndarray, shape (predictions,)
        Half width. [1]

    Notes
    -----
    Valid for: spreads that are themselves uncertain. With gamma between 0 and 1 the width shrinks towards the mean, as
    does an estimate from few rows.

    Examples
    --------
    >>> round(log_half_width(0.16, quantile=0.5, damping=0.5), 3)
    0.2
    """
    return quantile * spread**damping


def interval_ends(time_s: Quantity, *, half_width: Quantity) -> tuple[Quantity, Quantity]:
    """Return the ends of an interval that reach the same ratio below and above a time.

    Parameters
    ----------
    time_s : float or ndarray, shape (predictions,)
        Predicted time. [s]
    half_width : float or ndarray, shape (predictions,)
        Half the width of the interval of its logarithm. [1]

    Returns
    -------
    low, high : float or ndarray, shape (predictions,)
        Ends. [s]

    Notes
    -----
    Valid for: predictions without a known bias; a known one belongs in a constant.

    Examples
    --------
    >>> low, high = interval_ends(10.0, half_width=0.2)
    >>> round(float(low * high), 6)
    100.0
    """
    ratio = np.exp(half_width)
    return time_s / ratio, time_s * ratio
