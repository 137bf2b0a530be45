"""Naive predictions that a model has to beat, on any device: pure functions of plain arrays.

Each returns a Baseline, which says what it was told. ``predicted_s`` is NaN where the rule has nothing to say
(no other device has the cell): scores are taken over ``covered`` rows only. No prediction is computed from
the row it predicts, except with ``folds=None``, which fits on every row and says so in ``trained_on``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


def log_additive(
    measured_s: ArrayLike, *, terms: Sequence[Labels], folds: Labels | None = None, ridge: float = 0.1
) -> Baseline:
    r"""Fill in a table: the logarithm of a time as a sum of one number for each label of each term.

    .. math:: \ln T_i = \mu + \sum_t a_{t, l_t(i)}, \qquad
              a = \arg\min \sum_i \left(\ln T_i - \ln T_{measured, i}\right)^2 + \lambda \lVert a \rVert^2

    With (framework, network) and (network, device) as terms it is what one who knows no hardware would fill a missing
    cell with.

    Parameters
    ----------
    measured_s : array_like of float, shape (n,)
        Measured times. [s]
    terms : sequence of sequences, each of length n
        Labels of the rows, one sequence for each term. [-]
    folds : sequence, length n, optional
        Label of each row's fold: a row is fitted on the other folds. None fits on all rows. [-]
    ridge : float
        Weight of the squares of the numbers, lambda. [1]

    Returns
    -------
    Baseline
        One fitted number for each label. NaN where the other folds lack one of a row's labels. [s]

    Examples
    --------
    >>> log_additive([1.0, 2.0, 3.0, 6.0], terms=["aabb", "cdcd"], ridge=1e-9).predicted_s
    array([1., 2., 3., 6.])
    """
    measured = times_column(measured_s)
    codes = [label_codes(labels, measured, "terms") for labels in terms]
    design = np.hstack([code[:, None] == np.arange(code.max() + 1) for code in codes]).astype(np.float64)
    log_s, predicted = np.log(measured), np.full_like(measured, np.nan)
    for asked, known in _splits(folds, measured):
        seen = design[known]
        mean = log_s[known].mean() if known.any() else np.nan
        normal = seen.T @ seen + ridge * np.eye(design.shape[1])
        numbers = np.linalg.solve(normal, seen.T @ (log_s[known] - mean))
        filled = asked & ((design @ (seen.sum(axis=0) > 0)) == len(codes))
        predicted[filled] = np.exp(mean + design[filled] @ numbers)
    return Baseline(
        name="log-additive",
        predicted_s=predicted,
        parameter_count=1 + design.shape[1],
        trained_on=_trained_on(folds),
    )


def nearest_work(
    measured_s: ArrayLike,
    *,
    items: Labels,
    networks: Labels,
    flop_count: ArrayLike,
    moved_bytes: ArrayLike,
    folds: Labels | None = None,
) -> Baseline:
    r"""Time of the network that is most alike, on the same device with the same framework, by its FLOP.

    .. math:: T = T_o \frac{F}{F_o}, \qquad o = \arg\min \left|\ln\frac{F / B}{F_o / B_o}\right|

    Parameters
    ----------
    measured_s : array_like of float, shape (n,)
        Measured times. [s]
    items : sequence, length n
        What two rows must share, e.g. (framework, device, threads). [-]
    networks : sequence, length n
        What two rows must differ in. [-]
    flop_count : array_like of float, shape (n,)
        Arithmetic of a step, F. [FLOP]
    moved_bytes : array_like of float, shape (n,)
        Traffic of a step, B; two networks of like arithmetic intensity are alike. [B]
    folds : sequence, length n, optional
        Label of each row's fold: a row looks among the other folds only. None looks among all rows. [-]

    Returns
    -------
    Baseline
        Nothing fitted; NaN where no other network was measured. [s]

    Examples
    --------
    >>> nearest_work([1.0, 2.0], items=["gtx", "gtx"], networks=["fcn5", "fcn8"], flop_count=[1e9, 3e9],
    ...              moved_bytes=[1e6, 3e6]).predicted_s
    array([0.66666667, 3.        ])
    """
    measured = times_column(measured_s)
    flop = column_like(flop_count, measured, "flop_count")
    intensity = np.log(flop / column_like(moved_bytes, measured, "moved_bytes"))
    item, network = label_codes(items, measured, "items"), label_codes(networks, measured, "networks")
    predicted = np.full_like(measured, np.nan)
    for asked, known in _splits(folds, measured):
        for row in np.flatnonzero(asked):
            others = np.flatnonzero(known & (item == item[row]) & (network != network[row]))
            if len(others):
                other = others[np.argmin(np.abs(intensity[others] - intensity[row]))]
                predicted[row] = measured[other] * flop[row] / flop[other]
    return Baseline(
        name="most alike network, by its FLOP",
        predicted_s=predicted,
        parameter_count=0,
        trained_on="the same framework and device with another network",
    )


def _splits(folds: Labels | None, measured: Floats) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Yield the rows of each fold, and those of the others; all rows and all rows without folds."""
    if folds is None:
        everything = np.ones(len(measured), dtype=bool)
        yield everything, everything
        return
    fold = label_codes(folds, measured, "folds")
    for own in range(fold.max() + 1):
        yield fold == own, fold != own


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
