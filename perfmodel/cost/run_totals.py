"""Time of a whole training run: steps, checkpoints, evaluations and what failures cost."""

from __future__ import annotations

from typing import NamedTuple

from perfmodel.cost.money import daly_interval, interrupted_time
from perfmodel.numeric import ceil
from perfmodel.symbolic import Quantity
from perfmodel.units import SECONDS_PER_DAY


class RunTime(NamedTuple):
    """Time of a run by cause; the parts add up to ``total_s``. [s]"""

    steps_s: Quantity
    evaluation_s: Quantity
    checkpoint_s: Quantity
    lost_s: Quantity

    @property
    def total_s(self) -> Quantity:
        """The whole. [s]"""
        return sum(self)


def run_time(
    *,
    step_s: Quantity,
    step_count: Quantity,
    device_count: Quantity,
    checkpoint_s: float = 0.0,
    checkpoint_every_s: float | None = None,
    failures_per_device_day: float = 0.0,
    restart_s: float = 0.0,
    evaluation_s: float = 0.0,
    evaluate_every: int | None = None,
) -> RunTime:
    r"""Return the mean time of a training run.

    .. math:: W = n t + \left\lceil \tfrac{n}{k} - 1 \right\rceil e, \quad M = \frac{86400}{f d}, \quad
        T = M e^{R / M} \left(e^{(\tau + \delta) / M} - 1\right) \frac{W}{\tau}

    Parameters
    ----------
    step_s : float, ndarray or sympy.Expr
        Time of a step, t. [s]
    step_count : int, ndarray or sympy.Expr
        Steps, n. [1]
    device_count : int, ndarray or sympy.Expr
        Devices, d. [1]
    checkpoint_s : float
        Time that a checkpoint stops the run, delta. [s]
    checkpoint_every_s : float or None
        Work between two checkpoints, tau; None for what loses least [1]_, or for no checkpoints without failures. [s]
    failures_per_device_day : float
        Failures of a device in a day that stop the run, f. [1/day]
    restart_s : float
        Time from a failure until work resumes, R. [s]
    evaluation_s : float
        Time of an evaluation, e. [s]
    evaluate_every : int or None
        Steps between two evaluations, k; None for none. [1]

    Returns
    -------
    RunTime
        Steps, evaluations, checkpoints, and the work and restarts that failures cost. [s]

    Notes
    -----
    Valid for: failures at a constant rate, each of which stops the whole run, which goes on from its last checkpoint.
    Ignores: checkpoints that are written while the run goes on, except for the time that they stop it.

    Examples
    --------
    A million steps of a second on 1,000 devices, each of which fails every 500 days; checkpoints of a minute.

    >>> t = run_time(step_s=1.0, step_count=10**6, device_count=1000, checkpoint_s=60.0,
    ...              failures_per_device_day=0.002, restart_s=600.0)
    >>> [round(float(part)) for part in t]
    [1000000, 0, 26821, 42539]

    References
    ----------
    .. [1] J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future Generation
       Computer Systems 22(3), 2006, equations 20 and 37, doi:10.1016/j.future.2004.11.016.
    """
    steps_s = step_count * step_s
    # none after the last step, which a checkpoint ends
    evaluations_s = 0.0 * steps_s if evaluate_every is None else ceil(step_count / evaluate_every - 1) * evaluation_s
    work_s = steps_s + evaluations_s
    every_s = checkpoint_every_s
    if not failures_per_device_day:
        checkpoints_s = 0.0 * steps_s if every_s is None else work_s / every_s * checkpoint_s
        return RunTime(steps_s, evaluations_s, checkpoints_s, 0.0 * steps_s)
    uptime_s = SECONDS_PER_DAY / (failures_per_device_day * device_count)
    between_s: Quantity = (
        daly_interval(checkpoint_s=checkpoint_s, mean_uptime_s=uptime_s) if every_s is None else every_s
    )
    total_s = interrupted_time(
        work_s=work_s,
        interval_s=between_s,
        checkpoint_s=checkpoint_s,
        restart_s=restart_s,
        mean_uptime_s=uptime_s,
    )
    checkpoints_s = work_s / between_s * checkpoint_s
    return RunTime(steps_s, evaluations_s, checkpoints_s, total_s - work_s - checkpoints_s)
