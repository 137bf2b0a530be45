"""What machines, storage and electricity cost for a time; all amounts before tax, in USD."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.numeric import ceil, maximum, minimum
from perfmodel.symbolic import Quantity
from perfmodel.units import GIGA, KILO, SECONDS_PER_HOUR


def hire_cost(*, duration_s: Quantity, usd_per_hour: Quantity, instance_count: Quantity = 1) -> Quantity:
    r"""Price of hired machines for a time, paid by the second.

    .. math:: C = n p \frac{T}{3600}

    Parameters
    ----------
    duration_s : float, ndarray or sympy.Expr
        How long they are hired, T. [s]
    usd_per_hour : float, ndarray or sympy.Expr
        Price of one machine, p. [USD/h]
    instance_count : int, ndarray or sympy.Expr
        Machines, n. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Cost. [USD]

    Notes
    -----
    Valid for: clouds that bill by the second. Ignores: the least time that is billed, tax, traffic.

    Examples
    --------
    Twelve machines at 0.19 USD an hour for 20 epochs of 3.55 s [1]_.

    >>> hire_cost(duration_s=20 * 3.55, usd_per_hour=0.19, instance_count=12)
    0.04497

    References
    ----------
    .. [1] V. S. Mullapudi, Distributed Deep Neural Networks, University of Texas at Austin, 2017, tables 1 and 2.
    """
    return instance_count * usd_per_hour * duration_s / SECONDS_PER_HOUR


def sustained_use_hours(
    *, used_hours: Quantity, tier_multipliers: Sequence[float], hours_per_month: Quantity
) -> Quantity:
    r"""Hours at the full price that a sustained use is billed as: ever later parts of a month cost ever less.

    .. math:: B(h) = \left\lfloor \tfrac{h}{H} \right\rfloor H \bar{m}
        + \sum_k m_k \min\left(\max(r - (k - 1) q, 0), q\right), \quad q = H / K, \; r = h \bmod H

    Parameters
    ----------
    used_hours : float, ndarray or sympy.Expr
        Hours that one machine runs without a pause, from the first of a month, h. [h]
    tier_multipliers : sequence of float
        Share of the full price in each of the equal parts of a month, m; one entry of 1 for no discount. [1]
    hours_per_month : float, ndarray or sympy.Expr
        Hours of a month, H. [h]

    Returns
    -------
    float, ndarray or sympy.Expr
        Hours at the full price. [h]

    Notes
    -----
    Valid for: machines that begin on the first of a month; one that begins later reaches fewer of the cheap hours.

    Examples
    --------
    Four quarters at 1, 0.8, 0.6 and 0.4: a whole month costs 0.7 of its hours, a quarter of one the full price.

    >>> rule = {"tier_multipliers": (1.0, 0.8, 0.6, 0.4), "hours_per_month": 730}
    >>> [float(sustained_use_hours(used_hours=hours, **rule)) for hours in (730, 182.5, 8760)]
    [511.0, 182.5, 6132.0]
    """
    tiers = len(tier_multipliers)
    quarter = hours_per_month / tiers
    whole_months = -ceil(-used_hours / hours_per_month)
    rest = used_hours - whole_months * hours_per_month
    billed = whole_months * quarter * sum(tier_multipliers)
    for index, multiplier in enumerate(tier_multipliers):
        billed = billed + multiplier * minimum(maximum(rest - index * quarter, 0.0), quarter)
    return billed


def storage_cost(
    *, size_bytes: Quantity, duration_s: Quantity, usd_per_gb_month: Quantity, hours_per_month: Quantity
) -> Quantity:
    r"""Price of storage that is kept for a time.

    .. math:: C = p \frac{n}{10^9} \frac{T}{3600 H}

    Parameters
    ----------
    size_bytes : float, ndarray or sympy.Expr
        What is reserved, n. [B]
    duration_s : float, ndarray or sympy.Expr
        How long, T. [s]
    usd_per_gb_month : float, ndarray or sympy.Expr
        Price, p. [USD per GB and month]
    hours_per_month : float, ndarray or sympy.Expr
        Hours of a month, H. [h]

    Returns
    -------
    float, ndarray or sympy.Expr
        Cost. [USD]

    Notes
    -----
    Valid for: storage that is paid by its size. Ignores: requests, and traffic out of the cloud.

    Examples
    --------
    375 GB at 0.218 USD for a month of 730 hours.

    >>> storage_cost(size_bytes=375e9, duration_s=730 * 3600, usd_per_gb_month=0.218, hours_per_month=730)
    81.75
    """
    return usd_per_gb_month * (size_bytes / GIGA) * duration_s / (SECONDS_PER_HOUR * hours_per_month)


def energy(
    *,
    duration_s: Quantity,
    busy_w: Quantity,
    idle_w: Quantity = 0.0,
    utilisation: Quantity = 1.0,
    device_count: Quantity = 1,
    power_usage_effectiveness: Quantity = 1.0,
) -> Quantity:
    r"""Energy of devices that are busy for a share of a time.

    .. math:: E = \eta n \left(P_i + u (P_b - P_i)\right) T

    Parameters
    ----------
    duration_s : float, ndarray or sympy.Expr
        Time, T. [s]
    busy_w, idle_w : float, ndarray or sympy.Expr
        Power of one device at work, P_b, and at rest, P_i. [W]
    utilisation : float, ndarray or sympy.Expr
        Share of the time that it works, u. [1]
    device_count : int, ndarray or sympy.Expr
        Devices, n. [1]
    power_usage_effectiveness : float, ndarray or sympy.Expr
        What the building draws over what its machines draw, eta. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Energy. [J]

    Notes
    -----
    Valid for: power that is linear in utilisation. Ignores: hosts, fans and switches, unless their power is added; a
    device at its thermal design power draws the most it may, so that the energy is an upper bound.

    Examples
    --------
    A machine of 3,200 W for a year: 28,032 kWh. A GPU of 180 W that trains on 1,333 images a second: J per image.

    >>> energy(duration_s=8760 * 3600, busy_w=3200) / 3.6e6
    28032.0
    >>> energy(duration_s=1 / 1333, busy_w=180)
    0.135
    """
    power_w = idle_w + utilisation * (busy_w - idle_w)
    return power_usage_effectiveness * device_count * power_w * duration_s


def energy_cost(*, energy_j: Quantity, usd_per_kwh: Quantity) -> Quantity:
    r"""Price of electricity.

    .. math:: C = p \frac{E}{3.6 \cdot 10^6}

    Parameters
    ----------
    energy_j : float, ndarray or sympy.Expr
        Energy, E. [J]
    usd_per_kwh : float, ndarray or sympy.Expr
        Price, p. [USD/kWh]

    Returns
    -------
    float, ndarray or sympy.Expr
        Cost. [USD]

    Examples
    --------
    >>> energy_cost(energy_j=28_032 * 3.6e6, usd_per_kwh=0.12)
    3363.84
    """
    return usd_per_kwh * energy_j / (KILO * SECONDS_PER_HOUR)
