"""Refreshing the memory of several devices over one host link while they compute: the question of a survey, three ways.

Each device computes for a while on what its memory holds, then wants all of it anew; the devices share one link, so
the copies follow one another. The readings differ in what a device may do during its own copy, and in whether that
copy is counted at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from perfmodel.numeric import maximum
from perfmodel.symbolic import Quantity


def survey_period(*, transfer_s: Quantity, compute_s: Quantity, device_count: Quantity) -> Quantity:
    r"""Time between two refreshes as a survey counts it: a device waits for the others' copies, its own is free.

    .. math:: P = \max(C, (n - 1) t)

    Parameters
    ----------
    transfer_s : float, ndarray or sympy.Expr
        Time to refresh one device, t. [s]
    compute_s : float, ndarray or sympy.Expr
        Time a device computes on one filling, C. [s]
    device_count : float, ndarray or sympy.Expr
        Devices on the link, n. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Period. [s]

    Notes
    -----
    Valid for: nothing real; it is one device better than ``double_buffer_period``. Kept because it is printed.

    Examples
    --------
    >>> period_s = survey_period(transfer_s=8 / 31.5, compute_s=0.5, device_count=4)
    >>> float(period_s - 0.5), float(0.5 / period_s)
    (0.261905, 0.65625)

    References
    ----------
    .. [1] J. Wünsche, Performance factors of deep learning and shallow neural network applications: a beginner's
       guide, section on transfers between host and GPUs.
    """
    return maximum(compute_s, (device_count - 1) * transfer_s)


def single_buffer_period(*, transfer_s: Quantity, compute_s: Quantity, device_count: Quantity) -> Quantity:
    r"""Time between two refreshes when a device cannot compute during its own: there is one buffer, its memory.

    .. math:: P = t + \max(C, (n - 1) t)

    Parameters
    ----------
    transfer_s : float, ndarray or sympy.Expr
        Time to refresh one device, t. [s]
    compute_s : float, ndarray or sympy.Expr
        Time a device computes on one filling, C. [s]
    device_count : float, ndarray or sympy.Expr
        Devices on the link, n. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Period. [s]

    Notes
    -----
    Valid for: devices in a steady round, one after the other. Its own copy and the computation take t + C at least;
    the link is busy for n t.

    Examples
    --------
    >>> float(0.5 / single_buffer_period(transfer_s=8 / 31.5, compute_s=0.5, device_count=4))
    0.492188
    """
    return transfer_s + maximum(compute_s, (device_count - 1) * transfer_s)


def double_buffer_period(*, transfer_s: Quantity, compute_s: Quantity, device_count: Quantity) -> Quantity:
    r"""Time between two refreshes when a device computes on one buffer while the other is filled.

    .. math:: P = \max(C, n t)

    Parameters
    ----------
    transfer_s : float, ndarray or sympy.Expr
        Time to refresh one device, t. [s]
    compute_s : float, ndarray or sympy.Expr
        Time a device computes on one filling, C. [s]
    device_count : float, ndarray or sympy.Expr
        Devices on the link, n. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Period. [s]

    Notes
    -----
    Valid for: two buffers of half the memory each, both filled once in a period: the bytes are the same.

    Examples
    --------
    >>> [float(0.5 / double_buffer_period(transfer_s=8 / 31.5, compute_s=0.5, device_count=n)) for n in (2, 4)]
    [0.984375, 0.492188]
    """
    return maximum(compute_s, device_count * transfer_s)


PERIOD_BY_READING: Final[Mapping[str, Callable[..., Quantity]]] = {
    "survey": survey_period,
    "single_buffer": single_buffer_period,
    "double_buffer": double_buffer_period,
}
"""What a reading is called -> its period."""
