"""What an exchange between workers that takes longer or shorter than it should means for the time of a step."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np

from perfmodel.prediction.synchronous_agreement import AllReduced
from perfmodel.sync.library import LibraryCollective

if TYPE_CHECKING:
    from perfmodel.hardware.interval_scale import ExchangeSpreads
    from perfmodel.prediction.agreement import Agreement
    from perfmodel.prediction.gradients import GradientSchedule
    from perfmodel.prediction.prepared import Prepared, TimedStep
    from perfmodel.prediction.step_time import StepTime


def exchange_variance(prepared: Prepared, timed: TimedStep, *, spreads: ExchangeSpreads | None) -> float:
    """Return the variance of ln(step time) that comes from how long exchanges take.

    Parameters
    ----------
    prepared : Prepared
        The step. [-]
    timed : TimedStep
        Its times. [s]
    spreads : ExchangeSpreads or None
        Standard deviation of ln(exchange time); None where no collective was measured. [1]

    Returns
    -------
    float
        Square of half the change of ln(step time) from exchanges that are one spread shorter to one spread longer. [1]

    Notes
    -----
    Valid for: all exchanges of a step off by one factor. A hidden exchange that stays hidden adds nothing; one that
    would not counts with what it would expose. Ignores: workers with nothing to exchange, copies that would be hidden.
    """
    agreement = prepared.agreement
    if agreement is None or spreads is None:
        return 0.0
    in_library = isinstance(agreement, AllReduced) and isinstance(agreement.placed, LibraryCollective)
    spread = spreads.library if in_library else spreads.algorithm
    schedule = prepared.gradients(timed.groups, timed.numbers)
    logs = [np.log(_step_s(agreement, timed.parts, schedule, slower=float(np.exp(sign * spread)))) for sign in (-1, 1)]
    return float((logs[1] - logs[0]) / 2) ** 2


def _step_s(agreement: Agreement, parts: StepTime, schedule: GradientSchedule, *, slower: float) -> float:
    """Return the step's time with exchanges so many times as long.

    What an exchange adds is of the unit of the times that it follows from: with everything else that much shorter it is
    that much too short.
    """
    alone = replace(parts, exposed_sync_s=0.0, straggler_s=0.0, sync_s=0.0)
    shorter = replace(alone, **{field.name: getattr(alone, field.name) / slower for field in fields(alone)})
    times = ("ready_s", "wanted_s", "forward_s", "backward_s")
    shorter_schedule = replace(schedule, **{name: getattr(schedule, name) / slower for name in times})
    agreed = agreement.applied(shorter, shorter_schedule)
    return float(alone.step_s + slower * (agreed.exposed_sync_s + agreed.straggler_s))
