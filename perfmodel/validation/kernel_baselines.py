"""The naive rule that measured kernels are held against: a roofline with every freedom that it can use."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import least_squares

ROOFLINE_OF_KERNELS: Final = "roofline x two efficiencies + a launch, best log error"
"""Name of the rule."""

PARAMETER_COUNT: Final = 3
START: Final = (0.6, 0.6, 4e-6)
LOWEST: Final = (1e-3, 1e-3, 1e-7)
HIGHEST: Final = (3.0, 3.0, 1e-3)


def roofline_of_kernels(
    measured_s: ArrayLike,
    *,
    flop_count: ArrayLike,
    moved_bytes: ArrayLike,
    peak_flop_per_s: ArrayLike,
    bandwidth_bytes_per_s: ArrayLike,
    folds: Sequence[Hashable] | None = None,
) -> NDArray[np.float64]:
    r"""Roofline of each kernel with a fitted share of the peak, a fitted share of the bandwidth, and a fitted launch.

    .. math:: T = \max\left(\frac{F}{e_c P}, \frac{B}{e_m W}\right) + t_0, \qquad
              e_c, e_m, t_0 = \arg\min \overline{\left|\ln(T / T_{measured})\right|}

    Parameters
    ----------
    measured_s : array_like of float, shape (n,)
        Measured times. [s]
    flop_count, moved_bytes : array_like of float, shape (n,)
        Arithmetic F and traffic B of each kernel. [FLOP], [B]
    peak_flop_per_s, bandwidth_bytes_per_s : array_like of float, shape (n,)
        Peak P and memory bandwidth W of each row's board. [FLOP/s], [B/s]
    folds : sequence of hashable, length n, optional
        Label of each row's fold: a row is predicted from the other folds. None fits on all rows. [-]

    Returns
    -------
    ndarray, shape (n,)
        Predicted times; NaN where a fold has no other fold to learn from. [s]

    Notes
    -----
    The mean of absolute logarithms is approached by a soft one, so that a few odd rows do not decide.

    Examples
    --------
    >>> times = roofline_of_kernels([2.0, 4.0], flop_count=[1e12, 2e12], moved_bytes=[1e9, 1e9],
    ...                             peak_flop_per_s=[1e12, 1e12], bandwidth_bytes_per_s=[1e11, 1e11])
    >>> times.round(2)
    array([2., 4.])
    """
    measured = np.asarray(measured_s, dtype=float)
    arithmetic_s = np.asarray(flop_count, dtype=float) / np.asarray(peak_flop_per_s, dtype=float)
    traffic_s = np.asarray(moved_bytes, dtype=float) / np.asarray(bandwidth_bytes_per_s, dtype=float)

    def times(log_unknowns: NDArray[np.float64], rows: NDArray[np.bool_]) -> NDArray[np.float64]:
        of_peak, of_bandwidth, launch_s = np.exp(log_unknowns)
        return np.asarray(np.maximum(arithmetic_s[rows] / of_peak, traffic_s[rows] / of_bandwidth) + launch_s)

    def fitted(rows: NDArray[np.bool_]) -> NDArray[np.float64]:
        def residuals(log_unknowns: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.asarray(np.log(times(log_unknowns, rows) / measured[rows]))

        found = least_squares(
            residuals,
            np.log(START),
            bounds=(np.log(LOWEST), np.log(HIGHEST)),
            loss="soft_l1",
            f_scale=0.05,
            diff_step=[0.01] * PARAMETER_COUNT,
        )
        return np.asarray(found.x)

    everything = np.ones(len(measured), dtype=bool)
    if folds is None:
        return times(fitted(everything), everything)
    predicted_s = np.full(len(measured), np.nan)
    for fold in dict.fromkeys(folds):
        held_out = np.array([label == fold for label in folds])
        if not held_out.all():
            predicted_s[held_out] = times(fitted(~held_out), held_out)
    return predicted_s
