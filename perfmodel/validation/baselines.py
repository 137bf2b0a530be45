"""Naive predictions that a model has to beat, on any device: pure functions of plain arrays.

Each returns a Baseline, which says what it was told. ``predicted_s`` is NaN where the rule has nothing to say
(no other device has the cell): scores are taken over ``covered`` rows only. No prediction is computed from
the row it predicts, except with ``folds=None``, which fits on every row and says so in ``trained_on``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.validation.columns import Floats, Labels, column_like, label_codes, mean_over, times_column
from perfmodel.validation.metrics import factor_of_least_log_error, factor_of_least_mape

FACTORS = {"mape": ("MAPE", factor_of_least_mape), "log": ("log error", factor_of_least_log_error)}
"""Error -> its name, and the factor on predictions that makes it smallest."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Baseline:
    """What a naive rule predicts, and what it was told.

    Parameters
    ----------
    name : str
        Short name for reports. [-]
    predicted_s : ndarray, shape (n,)
        Predicted times; NaN where the rule has nothing to say. [s]
    parameter_count : int
        Numbers fitted for one fold. [1]
    trained_on : str
        Which measured rows each prediction has seen. [-]
    """

    name: str
    predicted_s: Floats
    parameter_count: int
    trained_on: str

    @property
    def covered(self) -> NDArray[np.bool_]:
        """Rows the rule has a prediction for."""
        mask: NDArray[np.bool_] = np.isfinite(self.predicted_s)
        return mask


def roofline_one_efficiency(
    measured_s: ArrayLike,
    *,
    flop_count: ArrayLike,
    moved_bytes: ArrayLike,
    peak_flop_per_s: ArrayLike,
    bandwidth_bytes_per_s: ArrayLike,
    folds: Labels | None = None,
    fitted_for: str = "mape",
) -> Baseline:
    r"""Plain roofline of the whole step, divided by one fitted efficiency.

    .. math:: T = \frac{1}{e} \max\left(\frac{F}{P}, \frac{B}{W}\right), \qquad
              e = \arg\min \overline{\left|T / T_{measured} - 1\right|}

    Parameters
    ----------
    measured_s : array_like of float, shape (n,)
        Measured times. [s]
    flop_count : array_like of float, shape (n,)
        Arithmetic of a step, F. [FLOP]
    moved_bytes : array_like of float, shape (n,)
        Traffic of a step, B. [B]
    peak_flop_per_s : array_like of float, shape (n,)
        Peak of each row's device, P. [FLOP/s]
    bandwidth_bytes_per_s : array_like of float, shape (n,)
        Memory bandwidth of each row's device, W. [B/s]
    folds : sequence, length n, optional
        Label of each row's fold, e.g. its device: a row is fitted on the other folds. None fits on all rows. [-]

    fitted_for : str
        Error that the efficiency makes smallest: ``mape``, or ``log`` for the mean of |ln(T / measured)|. [-]

    Returns
    -------
    Baseline
        One fitted number. NaN where a fold has no other fold to learn from. [s]

    Examples
    --------
    >>> baseline = roofline_one_efficiency([2.0, 4.0], flop_count=[1e12, 2e12], moved_bytes=[1e9, 1e9],
    ...                                    peak_flop_per_s=[1e12, 1e12], bandwidth_bytes_per_s=[1e11, 1e11])
    >>> baseline.predicted_s
    array([2., 4.])
    """
    measured = times_column(measured_s)
    roofline_s = np.maximum(
        column_like(flop_count, measured, "flop_count") / column_like(peak_flop_per_s, measured, "peak_flop_per_s"),
        column_like(moved_bytes, measured, "moved_bytes")
        / column_like(bandwidth_bytes_per_s, measured, "bandwidth_bytes_per_s"),
    )
    return Baseline(
        name=f"roofline x one efficiency, best {FACTORS[fitted_for][0]}",
        predicted_s=_scaled(roofline_s, measured, groups=[0] * len(measured), folds=folds, fitted_for=fitted_for),
        parameter_count=1,
        trained_on=_trained_on(folds),
    )


def percent_of_peak(
    measured_s: ArrayLike,
    *,
    flop_count: ArrayLike,
    peak_flop_per_s: ArrayLike,
    frameworks: Labels,
    folds: Labels | None = None,
) -> Baseline:
    r"""One fitted percent of peak per framework, as Paleo has it.

    .. math:: T = \frac{F}{e_f P}, \qquad e_f = \arg\min \overline{\left|T / T_{measured} - 1\right|}

    Parameters
    ----------
    measured_s : array_like of float, shape (n,)
        Measured times. [s]
    flop_count : array_like of float, shape (n,)
        Arithmetic of a step, F. [FLOP]
    peak_flop_per_s : array_like of float, shape (n,)
        Peak of each row's device, P. [FLOP/s]
    frameworks : sequence, length n
        Framework of each row, f. [-]
    folds : sequence, length n, optional
        Label of each row's fold: a row's percentage is fitted on the other folds. None fits on all rows. [-]

    Returns
    -------
    Baseline
        One fitted number for each framework; a framework that the other folds do not have gets
        the number of all their rows. [s]

    References
    ----------
    .. [1] Qi, Sparks, Talwalkar, Paleo: A Performance Model for Deep Neural Networks, ICLR 2017, section 3
       (platform percent of peak).

    Examples
    --------
    >>> percent_of_peak([2.0, 4.0], flop_count=[1e12, 1e12], peak_flop_per_s=[1e12, 1e12],
    ...                 frameworks=["caffe", "torch"]).predicted_s
    array([2., 4.])
    """
    measured = times_column(measured_s)
    at_peak_s = column_like(flop_count, measured, "flop_count") / column_like(
        peak_flop_per_s, measured, "peak_flop_per_s"
    )
    return Baseline(
        name="percent of peak (Paleo)",
        predicted_s=_scaled(at_peak_s, measured, groups=frameworks, folds=folds),
        parameter_count=len(set(frameworks)),
        trained_on=_trained_on(folds),
    )


def device_scaling(
    measured_s: ArrayLike,
    *,
    items: Labels,
    devices: Labels,
    peak_flop_per_s: ArrayLike,
    bandwidth_bytes_per_s: ArrayLike,
) -> Baseline:
    r"""Geometric mean of the other devices' times, each scaled by sqrt(FLOP/s x bandwidth).

    .. math:: T_d = \exp\left(\overline{\ln\left(T_o \sqrt{\frac{P_o W_o}{P_d W_d}}\right)}\right)_{o \ne d}

    Parameters
    ----------
    measured_s : array_like of float, shape (n,)
        Measured times. [s]
    items : sequence, length n
        What each row ran, e.g. (framework, network). [-]
    devices : sequence, length n
        Device of each row. [-]
    peak_flop_per_s : array_like of float, shape (n,)
        Peak of each row's device. A K80 die does best at its issue limit, 0.667 x 4.368 = 2.91 TFLOP/s.
        [FLOP/s]
    bandwidth_bytes_per_s : array_like of float, shape (n,)
        Memory bandwidth of each row's device. [B/s]

    Returns
    -------
    Baseline
        Nothing fitted; NaN where no other device ran the item. [s]
    """
    measured = times_column(measured_s)
    speed = np.sqrt(
        column_like(peak_flop_per_s, measured, "peak_flop_per_s")
        * column_like(bandwidth_bytes_per_s, measured, "bandwidth_bytes_per_s")
    )
    item, device = label_codes(items, measured, "items"), label_codes(devices, measured, "devices")
    others = (item[:, None] == item[None, :]) & (device[:, None] != device[None, :])
    predicted = np.exp(mean_over(np.log(measured * speed), others)) / speed
    return Baseline(
        name="sqrt(FLOP/s x bandwidth) scaling",
        predicted_s=predicted,
        parameter_count=0,
        trained_on="the same framework and network on every other device",
    )


def _scaled(
    model_s: Floats, measured: Floats, *, groups: Labels, folds: Labels | None, fitted_for: str = "mape"
) -> Floats:
    """Scale model times by the factor of least error on the training rows of the group."""
    group = label_codes(groups, measured, "groups")
    training = np.ones((len(measured), len(measured)), dtype=bool)
    if folds is not None:
        fold = label_codes(folds, measured, "folds")
        training = fold[:, None] != fold[None, :]
    same_group = training & (group[:, None] == group[None, :])
    factors = np.full_like(measured, np.nan)
    for cell, (own, other) in enumerate(zip(same_group, training, strict=True)):
        rows = own if own.any() else other
        if rows.any():
            factors[cell] = FACTORS[fitted_for][1](model_s[rows], measured=measured[rows])
    scaled: Floats = model_s * factors
    return scaled


def _trained_on(folds: Labels | None) -> str:
    return "every row, the predicted one too" if folds is None else "every row of the other folds"
