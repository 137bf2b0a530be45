"""How long a job takes on machines that may be taken away, and how often it had better write a checkpoint."""

from __future__ import annotations

from perfmodel.numeric import exceeds, exponential_less_one, minimum, where
from perfmodel.symbolic import Quantity


def young_interval(*, checkpoint_s: Quantity, mean_uptime_s: Quantity) -> Quantity:
    r"""Work between two checkpoints that loses least, to first order.

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
    Valid for: checkpoints that are written in a small part of the mean time between interruptions.

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
    r"""Work between two checkpoints that loses least, to higher order.

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
        Work between two checkpoints, tau_0; a job that is shorter writes one, at its end. [s]
    checkpoint_s : float, ndarray or sympy.Expr
        Time of writing a checkpoint, delta. [s]
    restart_s : float, ndarray or sympy.Expr
        From an interruption until work goes on, which may be interrupted too, R. [s]
    mean_uptime_s : float, ndarray or sympy.Expr
        Mean time between interruptions of the job, M. [s]

    Returns
    -------
    float, ndarray or sympy.Expr
        Expected time. [s]

    Notes
    -----
    Valid for: interruptions at a constant rate, of which each stops the whole job; checkpoints that stop it while they
    are written; a last interval that is in proportion. Ignores: waiting for a new machine, unless ``restart_s`` has it.

    Examples
    --------
    A day of work, interrupted every six hours: without a loss, and with checkpoints of a minute and five to come back.

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
