"""Fit of the interval scale: parameters of interval widths, from residuals of held-out rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

import numpy as np

from perfmodel.cost.interval_width import (
    REGIMES,
    WAYS_TO_EXTRAPOLATE,
    Exposure,
    SpreadParameters,
    log_half_width,
    log_spread,
    regime_of,
)
from perfmodel.errors import CalibrationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEVEL: Final = 0.8
"""Share of measured times that an interval should hold. [1]"""

USUAL_SPREAD: Final = 0.1
"""Prior median of each spread of ln(time), uncertain by a factor of e. [1]"""

DAMPING: Final = 0.75
"""Exponent of the spread in an interval's width: 0 makes all widths equal, 1 proportional to the spread. [1]"""

SLOPE_SPREAD: Final = 0.7
"""Prior standard deviation of ``other_slope``. [1]"""

ESTIMATED: Final[dict[str, float]] = {"dtype": 0.25, "architecture": 0.21}
"""Extrapolation -> spread it adds if no residual shows it, estimated as about that of a new framework. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedSpread:
    """Parameters of a spread with the quantile that calibrates them."""

    parameters: SpreadParameters
    quantile: Mapping[str, float]
    damping: float

    def log_half_width(self, exposure: Exposure) -> float:
        """Return half the width of the interval of ln(time) of one prediction. [1]"""
        spread = log_spread(exposure, parameters=self.parameters)
        return float(log_half_width(spread, quantile=self.quantile[regime_of(exposure)], damping=self.damping))


def stacked(exposures: Sequence[Exposure]) -> Exposure:
    """Return exposures as one exposure of arrays."""
    names = [field.name for field in fields(Exposure)]
    return Exposure(**{name: np.array([getattr(row, name) for row in exposures], dtype=float) for name in names})


def conformal_quantile(scores: NDArray[np.float64], *, level: float = LEVEL) -> float:
    r"""Return a bound for the next score that holds with a given probability, if all scores are exchangeable.

    The :math:`\lceil (n + 1) p \rceil`-th smallest score, at most the largest.

    >>> conformal_quantile(np.array([3.0, 1.0, 2.0, 4.0]), level=0.5)
    3.0

    References
    ----------
    .. [1] H. Papadopoulos et al., Inductive confidence machines for regression, ECML 2002.
    .. [2] J. Lei et al., Distribution-free predictive inference for regression, JASA 113, 2018, section 2.
    """
    place = min(int(np.ceil((len(scores) + 1) * level)), len(scores)) - 1
    return float(np.sort(scores)[place])


def fit_spread(exposures: Sequence[Exposure], log_ratios: NDArray[np.float64]) -> FittedSpread:
    r"""Fit the parameters of a spread to residuals: maximum likelihood of a Laplace law, with weak priors.

    .. math:: \min \sum_i \left(\ln \sigma_i + \frac{|r_i|}{\sigma_i}\right) + \text{priors}, \qquad
              q = \text{conformal quantile of } |r_i| / \sigma_i^\gamma \text{ in each regime}

    Notes
    -----
    The spread of an extrapolation that no row shows is its estimate in ``ESTIMATED``, or 0.
    Valid for: residuals that have similar distributions once divided by their spread. Ignores: that residuals of one
    fold are correlated, so coverage should be checked fold by fold.

    References
    ----------
    .. [1] J. Lei et al., Distribution-free predictive inference for regression, JASA 113, 2018, section 5.2: residuals
       divided by a model of their spread.
    .. [2] V. Vovk et al., Mondrian confidence machine, 2003: a quantile for each category.
    """
    from scipy.optimize import minimize  # scipy loads only when something is fitted

    if len(exposures) < FEWEST:
        message = f"{len(exposures)} residual(s) are too few for an interval; {FEWEST} are needed"
        raise CalibrationError(message)
    exposure, sizes = stacked(exposures), np.abs(log_ratios)
    ways = [way for way in WAYS_TO_EXTRAPOLATE if np.any(getattr(exposure, way))]
    mean_share = float(np.mean(exposure.other_share))

    def parameters(point: NDArray[np.float64]) -> SpreadParameters:
        unseen = {way: ESTIMATED.get(way, 0.0) for way in WAYS_TO_EXTRAPOLATE}
        unseen |= dict(zip(ways, np.exp(point[3:]).tolist(), strict=True))
        return SpreadParameters(
            structural=float(np.exp(point[0])),
            constants_weight=float(np.exp(point[1])),
            unseen=unseen,
            other_slope=float(point[2]),
            mean_other_share=mean_share,
        )

    def cost(point: NDArray[np.float64]) -> float:
        spread = log_spread(exposure, parameters=parameters(point))
        spreads = np.r_[point[0], point[3:]] - np.log(USUAL_SPREAD)
        priors = point[1] ** 2 + (point[2] / SLOPE_SPREAD) ** 2 + np.sum(spreads**2)
        return float(np.sum(np.log(spread) + sizes / spread) + priors / 2)

    start = np.log(np.array([max(float(np.mean(sizes)), 1e-3), 1.0, 1.0] + [USUAL_SPREAD] * len(ways)))
    fitted = parameters(minimize(cost, start, method="L-BFGS-B").x)
    scores = sizes / log_spread(exposure, parameters=fitted) ** DAMPING
    return FittedSpread(parameters=fitted, quantile=_quantiles(scores, exposures), damping=DAMPING)


def _quantiles(scores: NDArray[np.float64], exposures: Sequence[Exposure]) -> dict[str, float]:
    """Return the quantile of each regime; for extrapolations it is at least that of interpolations."""
    of_row = np.array([regime_of(exposure) for exposure in exposures])
    by_regime = {regime: scores[of_row == regime] for regime in REGIMES}
    quantiles = {key: conformal_quantile(some if len(some) >= FEWEST else scores) for key, some in by_regime.items()}
    return quantiles | {regime: max(quantiles[regime], quantiles["interpolated"]) for regime in REGIMES[2:]}


FEWEST: Final = 10
"""Fewest residuals from which an interval is found. [1]"""
