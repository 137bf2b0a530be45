"""What an exchange between workers that takes longer or shorter than it should means for the time of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from perfmodel.hardware.interval_scale import ExchangeSpreads
    from perfmodel.prediction.prepared import Prepared, TimedStep


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
    would not counts with what it would expose. Of a network that is spread as much stays hidden as is. Ignores: copies
    that would be hidden.
    """
    if spreads is None or not timed.parts.sync_s:
        return 0.0
    spread = spreads.library if prepared.exchanges_by_library else spreads.algorithm
    logs = [np.log(prepared.step_with_exchanges(timed, slower=float(np.exp(sign * spread)))) for sign in (-1, 1)]
    return float((logs[1] - logs[0]) / 2) ** 2
