"""Cost of machines, storage and electricity, before tax in USD; work on machines that may be interrupted."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.numeric import ceil, exceeds, exponential_less_one, maximum, minimum, where
from perfmodel.symbolic import Quantity
from perfmodel.units import GIGA, KILO, SECONDS_PER_HOUR


def hire_cost(*, duration_s: Quantity, usd_per_hour: Quantity, instance_count: Quantity = 1) -> Quantity:
    r"""Price of hired machines for a time, paid by the second.

    .. math:: C = n p \frac{T}{3600}

    Parameters
    ----------
    duration_s : float, ndarray or sympy.Expr
        Duration of the hire, T. [s]
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
    Valid for: clouds that bill by the second. Ignores: the minimum time that is billed, tax, traffic.

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
    r"""Hours at the full price that sustained use is billed as: each later part of a month costs less.

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
    Valid for: machines that start on the first of a month; one that starts later reaches fewer of the cheap hours.

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
        Size reserved, n. [B]
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
        Power of the building divided by that of its machines, eta. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Energy. [J]

    Notes
    -----
    Valid for: power that is linear in utilisation. Ignores: hosts, fans and switches, unless their power is added; a
    thermal design power is the most that a device may draw, so the energy is then an upper bound.

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


def young_interval(*, checkpoint_s: Quantity, mean_uptime_s: Quantity) -> Quantity:
    r"""Work between two checkpoints that minimises lost time, to first order.

    .. math:: \tau = \sqrt{2 \delta M}

    Parameters
    ----------
    checkpoint_s : float, ndarray or sympy.Expr
        Time of writing a checkpoint, delta. [s]
    mean_uptime_s : float, ndarray or sympy.Expr
        Mean time between interruptions of the job, M. [s]

    Returns
    -------
    float, ndarray or sympy.Expr
        Interval of work. [s]

    Notes
    -----
    Valid for: checkpoints that take a small part of the mean time between interruptions.

    Examples
    --------
    >>> young_interval(checkpoint_s=2.0, mean_uptime_s=10_000.0)
    200.0

    References
    ----------
    .. [1] J. W. Young, A first order approximation to the optimum checkpoint interval, Comm. ACM 17(9), 1974,
       doi:10.1145/361147.361115.
    """
    return (2 * checkpoint_s * mean_uptime_s) ** 0.5


def daly_interval(*, checkpoint_s: Quantity, mean_uptime_s: Quantity) -> Quantity:
    r"""Work between two checkpoints that minimises lost time, to higher order.

    .. math:: \tau = \sqrt{2 \delta M} \left(1 + \tfrac{1}{3} \sqrt{\tfrac{\delta}{2 M}}
        + \tfrac{1}{9} \tfrac{\delta}{2 M}\right) - \delta \;\; (\delta < 2 M), \qquad M \;\; \text{else}

    Parameters
    ----------
    checkpoint_s : float, ndarray or sympy.Expr
        Time of writing a checkpoint, delta. [s]
    mean_uptime_s : float, ndarray or sympy.Expr
        Mean time between interruptions of the job, M. [s]

    Returns
    -------
    float, ndarray or sympy.Expr
        Interval of work. [s]

    Notes
    -----
    Valid for: interruptions at a constant rate.

    Examples
    --------
    >>> [float(daly_interval(checkpoint_s=delta, mean_uptime_s=M)) for delta, M in ((300.0, 86_400.0), (9.0, 4.0))]
    [7001.39, 4.0]

    References
    ----------
    .. [1] J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future Generation
       Computer Systems 22(3), 2006, equation 37, doi:10.1016/j.future.2004.11.016.
    """
    share = checkpoint_s / (2 * mean_uptime_s)
    interval = young_interval(checkpoint_s=checkpoint_s, mean_uptime_s=mean_uptime_s)
    return where(exceeds(1, share), interval * (1 + share**0.5 / 3 + share / 9) - checkpoint_s, mean_uptime_s)


def interrupted_time(
    *,
    work_s: Quantity,
    interval_s: Quantity,
    checkpoint_s: Quantity,
    restart_s: Quantity,
    mean_uptime_s: Quantity,
) -> Quantity:
    r"""Return the mean time of work that is interrupted at a constant rate and goes on from its last checkpoint.

    .. math:: T = M e^{R / M} \left(e^{(\tau + \delta) / M} - 1\right) \frac{W}{\tau}, \quad \tau = \min(\tau_0, W)

    Parameters
    ----------
    work_s : float, ndarray or sympy.Expr
        Work to be done, W. [s]
    interval_s : float, ndarray or sympy.Expr
        Work between two checkpoints, tau_0; a shorter job writes one, at its end. [s]
    checkpoint_s : float, ndarray or sympy.Expr
        Time of writing a checkpoint, delta. [s]
    restart_s : float, ndarray or sympy.Expr
        Time from an interruption until work resumes, R, which may be interrupted too. [s]
    mean_uptime_s : float, ndarray or sympy.Expr
        Mean time between interruptions of the job, M. [s]

    Returns
    -------
    float, ndarray or sympy.Expr
        Expected time. [s]

    Notes
    -----
    Valid for: interruptions at a constant rate, each of which stops the whole job; checkpoints that stop it while they
    are written; a last interval that counts by its share. Ignores: waiting for a new machine, unless ``restart_s``
    includes it.

    Examples
    --------
    A day of work, interrupted every six hours: without a loss, and with a minute per checkpoint and five to restart.

    >>> every = {"interval_s": 1550.0, "checkpoint_s": 60.0, "restart_s": 300.0, "mean_uptime_s": 21_600.0}
    >>> float(interrupted_time(work_s=86_400.0, **every))
    94476.94
    >>> calm = every | {"checkpoint_s": 0.0, "mean_uptime_s": 1e12}
    >>> float(interrupted_time(work_s=86_400.0, **calm))
    86400.0

    References
    ----------
    .. [1] J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future Generation
       Computer Systems 22(3), 2006, equation 20, doi:10.1016/j.future.2004.11.016.
    """
    interval_s = minimum(interval_s, work_s)
    # M e^(R/M) (e^x - 1) of an interval; e^(R/M) as 1 + (e^(R/M) - 1), which is exact for rare interruptions too
    once_s = mean_uptime_s * exponential_less_one((interval_s + checkpoint_s) / mean_uptime_s)
    return (1 + exponential_less_one(restart_s / mean_uptime_s)) * once_s * work_s / interval_s
