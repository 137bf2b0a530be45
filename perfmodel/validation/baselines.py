"""Naive predictions that a model has to beat: pure functions of plain arrays.

Each returns a Baseline, which says what it was told. ``predicted_s`` is NaN where the rule has nothing to say
(no other device has the cell): scores are taken over ``covered`` rows only. No prediction is computed from
the row it predicts, except with ``folds=None``, which fits on every row and says so in ``trained_on``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.errors import ArgumentError
from perfmodel.validation.metrics import factor_of_least_mape

Floats = NDArray[np.float64]
Labels = Sequence[Hashable]


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
    measured = _times(measured_s)
    roofline_s = np.maximum(
        _like(flop_count, measured, "flop_count") / _like(peak_flop_per_s, measured, "peak_flop_per_s"),
        _like(moved_bytes, measured, "moved_bytes") / _like(bandwidth_bytes_per_s, measured, "bandwidth_bytes_per_s"),
    )
    return Baseline(
        name="roofline x one efficiency",
        predicted_s=_scaled(roofline_s, measured, groups=[0] * len(measured), folds=folds),
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
    measured = _times(measured_s)
    at_peak_s = _like(flop_count, measured, "flop_count") / _like(peak_flop_per_s, measured, "peak_flop_per_s")
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
    measured = _times(measured_s)
    speed = np.sqrt(
        _like(peak_flop_per_s, measured, "peak_flop_per_s")
        * _like(bandwidth_bytes_per_s, measured, "bandwidth_bytes_per_s")
    )
    item, device = _codes(items, measured, "items"), _codes(devices, measured, "devices")
    others = (item[:, None] == item[None, :]) & (device[:, None] != device[None, :])
    predicted = np.exp(_mean_over(np.log(measured * speed), others)) / speed
    return Baseline(
        name="sqrt(FLOP/s x bandwidth) scaling",
        predicted_s=predicted,
        parameter_count=0,
        trained_on="the same framework and network on every other device",
    )


def same_as_other_cpu(
    measured_s: ArrayLike, *, items: Labels, devices: Labels, threads: ArrayLike
) -> tuple[Baseline, NDArray[np.bool_]]:
    """Predict the other CPU's time at the same thread count, or at its most threads below that.

    Parameters
    ----------
    measured_s : array_like of float, shape (n,)
        Measured times. [s]
    items : sequence, length n
        What each row ran, e.g. (framework, network). [-]
    devices : sequence, length n
        CPU of each row. [-]
    threads : array_like of int, shape (n,)
        CPU threads of each row. [1]

    Returns
    -------
    baseline : Baseline
        Nothing fitted; NaN where no other CPU ran the item with as few threads. With several other CPUs, the
        geometric mean of those that have the nearest thread count. [s]
    same_count : ndarray of bool, shape (n,)
        True where the other CPU has the item with the same thread count; the other covered rows carry a time
        from fewer threads. [-]

    Examples
    --------
    >>> baseline, same_count = same_as_other_cpu([1.0, 2.0, 1.5], items=["a"] * 3, devices=["x", "y", "y"],
    ...                                       threads=[4, 4, 8])
    >>> baseline.predicted_s, same_count
    (array([2., 1., 1.]), array([ True,  True, False]))
    """
    measured = _times(measured_s)
    counts = _like(threads, measured, "threads")
    item, device = _codes(items, measured, "items"), _codes(devices, measured, "devices")
    others = (item[:, None] == item[None, :]) & (device[:, None] != device[None, :])
    predicted, used = _nearest_below(measured, counts, others & (counts[None, :] <= counts[:, None]))
    baseline = Baseline(
        name="same time as the other CPU",
        predicted_s=predicted,
        parameter_count=0,
        trained_on="the same framework and network on the other CPU, threads up to the same count",
    )
    return baseline, used == counts


def same_as_all_cores(
    measured_s: ArrayLike,
    *,
    items: Labels,
    devices: Labels,
    threads: ArrayLike,
    physical_cores: Mapping[str, int],
) -> Baseline:
    """Predict, for more threads than cores, the time of as many threads as cores.

    Parameters
    ----------
    measured_s : array_like of float, shape (n,)
        Measured times, those with threads up to the cores among them. [s]
    items : sequence, length n
        What each row ran, e.g. (framework, network). [-]
    devices : sequence, length n
        CPU of each row. [-]
    threads : array_like of int, shape (n,)
        CPU threads of each row. [1]
    physical_cores : mapping of str to int
        Physical cores of each CPU. [1]

    Returns
    -------
    Baseline
        Nothing fitted; NaN for rows that are not over-subscribed, and where no row has at most as many
        threads as cores. [s]
    """
    measured = _times(measured_s)
    counts = _like(threads, measured, "threads")
    try:
        cores = np.array([physical_cores[str(device)] for device in devices], dtype=np.float64)
    except KeyError as error:
        allowed = "the cores of every CPU in the rows"
        raise ArgumentError(argument="physical_cores", given=dict(physical_cores), allowed=allowed) from error
    item, device = _codes(items, measured, "items"), _codes(devices, measured, "devices")
    same_row = (item[:, None] == item[None, :]) & (device[:, None] == device[None, :])
    predicted, _ = _nearest_below(measured, counts, same_row & (counts <= cores)[None, :])
    return Baseline(
        name="same as all physical cores",
        predicted_s=np.where(counts > cores, predicted, np.nan),
        parameter_count=0,
        trained_on="the same framework, network and CPU with as many threads as cores",
    )


def amdahl_log(measured_s: ArrayLike, *, rows: Labels, threads: ArrayLike) -> Baseline:
    r"""Amdahl's law with a logarithmic overhead, fitted to the other thread counts of the same row.

    .. math:: T(k) = a + \frac{b}{k} + c \ln k, \qquad a, b, c \ge 0

    fitted by least squares on relative errors: it interpolates a measured row, and knows nothing of any other.

    Parameters
    ----------
    measured_s : array_like of float, shape (n,)
        Measured times. [s]
    rows : sequence, length n
        Row of each cell: (framework, network, CPU). [-]
    threads : array_like of int, shape (n,)
        CPU threads of each cell, k. [1]

    Returns
    -------
    Baseline
        Three fitted numbers per row and thread count; NaN in rows of a single cell. [s]

    Examples
    --------
    >>> times = [0.1 + 0.8 / threads for threads in (1, 2, 4, 8)]
    >>> amdahl_log(times, rows=["a"] * 4, threads=[1, 2, 4, 8]).predicted_s - times < 1e-12
    array([ True,  True,  True,  True])
    """
    from scipy.optimize import nnls  # scipy loads only where something is fitted

    measured = _times(measured_s)
    counts = _like(threads, measured, "threads")
    row = _codes(rows, measured, "rows")
    terms = np.stack([np.ones_like(counts), 1 / counts, np.log(counts)], axis=1)
    predicted = np.full_like(measured, np.nan)
    for cell in range(len(measured)):
        seen = (row == row[cell]) & (counts != counts[cell])
        if seen.any():
            constants, _ = nnls(terms[seen] / measured[seen, None], np.ones(int(seen.sum())))
            predicted[cell] = terms[cell] @ constants
    predicted[predicted <= 0] = np.nan
    return Baseline(
        name="Amdahl + log per row",
        predicted_s=predicted,
        parameter_count=3 * len(set(rows)),
        trained_on="the same framework, network and CPU at every other thread count",
    )


def _scaled(model_s: Floats, measured: Floats, *, groups: Labels, folds: Labels | None) -> Floats:
    """Scale model times by the factor of least MAPE, the headline score, on the training rows of the group."""
    group = _codes(groups, measured, "groups")
    training = np.ones((len(measured), len(measured)), dtype=bool)
    if folds is not None:
        fold = _codes(folds, measured, "folds")
        training = fold[:, None] != fold[None, :]
    same_group = training & (group[:, None] == group[None, :])
    factors = np.full_like(measured, np.nan)
    for cell, (own, other) in enumerate(zip(same_group, training, strict=True)):
        rows = own if own.any() else other
        if rows.any():
            factors[cell] = factor_of_least_mape(model_s[rows], measured=measured[rows])
    scaled: Floats = model_s * factors
    return scaled


def _mean_over(values: Floats, mask: NDArray[np.bool_]) -> Floats:
    """Mean of the values that each row of the mask selects; NaN where it selects none."""
    count = mask.sum(axis=1)
    means: Floats = np.where(count > 0, mask @ values / np.maximum(count, 1), np.nan)
    return means


def _nearest_below(measured: Floats, counts: Floats, allowed: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Geometric mean of the allowed times with the most threads, and that thread count, for each row."""
    used = np.max(np.where(allowed, counts[None, :], -np.inf), axis=1)
    chosen = allowed & (counts[None, :] == used[:, None])
    return np.exp(_mean_over(np.log(measured), chosen)), used


def _trained_on(folds: Labels | None) -> str:
    return "every row, the predicted one too" if folds is None else "every row of the other folds"


def _times(measured_s: ArrayLike) -> Floats:
    measured = np.atleast_1d(np.asarray(measured_s, dtype=np.float64))
    return _like(measured, measured, "measured_s")


def _like(values: ArrayLike, measured: Floats, argument: str) -> Floats:
    """Return positive finite values, one for each measured time."""
    numbers = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if numbers.shape != measured.shape or numbers.ndim != 1 or not np.all(np.isfinite(numbers) & (numbers > 0)):
        allowed = f"a list of {measured.size} positive finite numbers"
        raise ArgumentError(argument=argument, given=values, allowed=allowed)
    return numbers


def _codes(labels: Labels, measured: Floats, argument: str) -> NDArray[np.int64]:
    """Return labels as whole numbers, one for each measured time."""
    if len(labels) != len(measured):
        allowed = f"one label for each of the {len(measured)} rows"
        raise ArgumentError(argument=argument, given=f"{len(labels)} labels", allowed=allowed)
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(label, len(numbers)) for label in labels], dtype=np.int64)
