"""Days, device-hours and price of a whole training run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.cost.money import hire_cost
from perfmodel.cost.run_totals import RunTime, run_time
from perfmodel.errors import ArgumentError
from perfmodel.numeric import plain
from perfmodel.prediction.arguments.checks import from_zero_to, positive, whole_number
from perfmodel.prediction.arguments.finite import finite_answer
from perfmodel.prediction.bill import paid_count
from perfmodel.prediction.utilisation import tokens_per_sample
from perfmodel.records import Phase
from perfmodel.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from perfmodel.symbolic import Quantity

MOST_FAILURES: Final = 1.0
"""Most failures of a device in a day; more is a typing error. [1/day]"""

LONGEST_PAUSE_S: Final = 30 * SECONDS_PER_DAY
"""Longest pause; more is a typing error. [s]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTotals:
    """What a training run takes. Made by ``p.training_totals()``; in a search, arrays over layouts.

    Parameters
    ----------
    step_count : int
        Updates. [1]
    days : float
        Time of the run. [days]
    device_hours : float
        Time of the run, of all devices. [h]
    usd : float
        Hire of all devices for the run; NaN if no price is known. [USD]
    steps_s, evaluation_s, checkpoint_s, lost_s : float
        Time of the run by cause: steps, evaluations, checkpoints, and what failures cost. [s]
    """

    step_count: int
    days: Quantity
    device_hours: Quantity
    usd: Quantity
    steps_s: Quantity
    evaluation_s: Quantity
    checkpoint_s: Quantity
    lost_s: Quantity

    def _numbers(self) -> Iterator[tuple[str, float]]:
        """Yield the totals; an unknown price is left out. [unit of each]"""
        return ((name, total) for name, total in self.to_dict().items() if name != "usd" or not np.isnan(total))

    def to_dict(self) -> dict[str, Any]:
        """Return all totals by name. [unit of each key]"""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """How long a run trains, and how often it pauses."""

    step_count: int
    pauses: Mapping[str, Any]

    def totals(self, step_s: Quantity, *, device_count: Quantity, usd_per_hour: Quantity) -> TrainingTotals:
        """Return the totals, given the time of a step [s] and the price of a device [USD/h]."""
        causes = run_time(step_s=step_s, step_count=self.step_count, device_count=device_count, **self.pauses)
        parts = RunTime(*map(plain, causes))
        total_s = parts.total_s
        return TrainingTotals(
            step_count=self.step_count,
            days=total_s / SECONDS_PER_DAY,
            device_hours=total_s * device_count / SECONDS_PER_HOUR,
            usd=hire_cost(duration_s=total_s, usd_per_hour=usd_per_hour, instance_count=device_count),
            **parts._asdict(),
        )


class Trained:
    """Totals of a run of a prediction: a method of :class:`Prediction`."""

    @finite_answer
    def training_totals(
        self: Any,
        *,
        tokens: float | None = None,
        samples: float | None = None,
        usd_per_hour: float | None = None,
        checkpoint_s: float = 0.0,
        checkpoint_every_s: float | None = None,
        failures_per_device_day: float = 0.0,
        restart_s: float = 0.0,
        evaluation_s: float = 0.0,
        evaluate_every: int | None = None,
    ) -> TrainingTotals:
        """Days, device-hours and USD of a training run.

        Parameters
        ----------
        tokens, samples : float or None
            Length of the run, either of them. [1]
        usd_per_hour : float or None
            Price of a GPU, or of a machine that computes on its cores; a server's own machine then counts as a device.
            None for the newest known on-demand price, divided among the GPUs of an instance. [USD/h]
        checkpoint_s : float
            Time that a checkpoint stops the run. [s]
        checkpoint_every_s : float or None
            Work between two checkpoints; None for what loses least, or for no checkpoints without failures. [s]
        failures_per_device_day : float
            Failures of a device in a day, each of which stops the run. [1/day]
        restart_s : float
            Time from a failure until work resumes. [s]
        evaluation_s : float
            Time of an evaluation. [s]
        evaluate_every : int or None
            Steps between two evaluations; None for none. [1]

        Returns
        -------
        TrainingTotals
            ``days``, ``device_hours``, ``usd`` and what they consist of. [as named]

        Raises
        ------
        ArgumentError
            If neither or both lengths are given, a number is not allowed, or the prediction is not of whole steps.
        """
        from perfmodel.prediction.device_prices import price_names, prices_of

        phase = self.basis.prepared.subject.phase
        if phase is not Phase.STEP:
            raise ArgumentError("phase", phase.value, "step: a training run consists of whole steps")
        pauses = {
            "checkpoint_s": checkpoint_s,
            "checkpoint_every_s": checkpoint_every_s,
            "failures_per_device_day": failures_per_device_day,
            "restart_s": restart_s,
            "evaluation_s": evaluation_s,
            "evaluate_every": evaluate_every,
        }
        run = checked_run(
            tokens=tokens,
            samples=samples,
            tokens_per_sample=tokens_per_sample(self.basis.prepared.subject.graph),
            global_batch_size=self.samples_per_update,
            pauses=pauses,
        )
        if run is None:
            raise ArgumentError("tokens", None, "a number of tokens, or samples= a number of samples")
        target = self.basis.prepared.target
        price = prices_of(usd_per_hour).of(*price_names(target))
        return run.totals(float(self.step_s), device_count=paid_count(target, self.agreement), usd_per_hour=price)


def checked_run(
    *,
    tokens: Any,
    samples: Any,
    tokens_per_sample: int | None,
    global_batch_size: int,
    pauses: Mapping[str, Any],
) -> TrainingRun | None:
    """Return a run of so many tokens or samples, checked; None if neither is given."""
    if tokens is None and samples is None:
        for name, value in pauses.items():
            if value:
                raise ArgumentError(name, value, "left out without tokens= or samples=, which say how long a run is")
        return None
    if tokens is not None and samples is not None:
        raise ArgumentError("samples", samples, "left out with tokens=")
    if tokens is not None:
        if tokens_per_sample is None:
            raise ArgumentError("tokens", tokens, "left out for a network that looks up no tokens; pass samples=")
        samples = positive("tokens", tokens) / tokens_per_sample
    step_count = int(np.ceil(positive("samples", samples) / global_batch_size))
    return TrainingRun(step_count=step_count, pauses=_checked_pauses(pauses))


def _checked_pauses(pauses: Mapping[str, Any]) -> dict[str, Any]:
    checked: dict[str, Any] = {
        name: from_zero_to(LONGEST_PAUSE_S, name, pauses[name])
        for name in ("checkpoint_s", "restart_s", "evaluation_s")
    }
    failures, every_s = pauses["failures_per_device_day"], pauses["checkpoint_every_s"]
    checked["failures_per_device_day"] = from_zero_to(MOST_FAILURES, "failures_per_device_day", failures)
    if failures and not (checked["checkpoint_s"] or every_s):
        allowed = "0 without checkpoint_s= or checkpoint_every_s=, which say how much work a failure loses"
        raise ArgumentError("failures_per_device_day", failures, allowed)
    checked["checkpoint_every_s"] = None if every_s is None else positive("checkpoint_every_s", every_s)
    every = pauses["evaluate_every"]
    if checked["evaluation_s"] and every is None:
        raise ArgumentError("evaluation_s", pauses["evaluation_s"], "0 without evaluate_every=, the steps between two")
    checked["evaluate_every"] = None if every is None else whole_number("evaluate_every", every)
    return checked
