"""Naive predictions for CPUs: from the other CPU, from other thread counts. Pure functions of plain arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.errors import ArgumentError
from perfmodel.validation.baselines import Baseline
from perfmodel.validation.columns import Floats, Labels, column_like, label_codes, mean_over, times_column


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
    measured = times_column(measured_s)
    counts = column_like(threads, measured, "threads")
    item, device = label_codes(items, measured, "items"), label_codes(devices, measured, "devices")
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
    measured = times_column(measured_s)
    counts = column_like(threads, measured, "threads")
    try:
        cores = np.array([physical_cores[str(device)] for device in devices], dtype=np.float64)
    except KeyError as error:
        allowed = "the cores of every CPU in the rows"
        raise ArgumentError(argument="physical_cores", given=dict(physical_cores), allowed=allowed) from error
    item, device = label_codes(items, measured, "items"), label_codes(devices, measured, "devices")
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

    measured = times_column(measured_s)
    counts = column_like(threads, measured, "threads")
    row = label_codes(rows, measured, "rows")
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


def _nearest_below(measured: Floats, counts: Floats, allowed: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Geometric mean of the allowed times with the most threads, and that thread count, for each row."""
    used = np.max(np.where(allowed, counts[None, :], -np.inf), axis=1)
    chosen = allowed & (counts[None, :] == used[:, None])
    return np.exp(mean_over(np.log(measured), chosen)), used
