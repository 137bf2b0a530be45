"""The basis of a prediction, kept with it so that interval, provenance and remarks are computed when read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from perfmodel.derived import derived_property, record
from perfmodel.errors import ArgumentError
from perfmodel.framework.narrow import base_dtype
from perfmodel.prediction.device.factors import NO_FACTORS, Factors
from perfmodel.prediction.job.prepared import Prepared
from perfmodel.prediction.job.stage import TimedStep
from perfmodel.prediction.prediction import Prediction
from perfmodel.presentation.quantities import bytes_text, percent_text
from perfmodel.records import Phase

if TYPE_CHECKING:
    from perfmodel.graph import LayerGraph
    from perfmodel.hardware.fit_file import FitFile
    from perfmodel.prediction.certainty.prediction_interval import Interval
    from perfmodel.prediction.device.step_time import StepTime
    from perfmodel.prediction.job.job import Job


@record
class Basis:
    """A timed step and the constants that timed it."""

    prepared: Prepared
    factors: Factors
    timed: TimedStep
    calibration: FitFile | None = None
    job: Job | None = None

    @derived_property
    def interval(self) -> Interval:
        """The 80 % interval of the step time; on a measured machine it follows from the scatter of its kernels."""
        machine = self.prepared.target.measured
        if machine is None:
            from perfmodel.prediction.certainty.prediction_interval import interval_of

            return interval_of(self)
        from perfmodel.prediction.certainty.measured_machine_interval import measured_interval

        return measured_interval(machine, self)

    @derived_property
    def remarks(self) -> tuple[str, ...]:
        """Notes on extrapolation, on weights that stay dense, and on the cost and gain of checkpoints."""
        machine, notes = self.prepared.target.measured, (*self.on_stored_weights, *self._on_checkpoints)
        if machine is None:
            return notes
        from perfmodel.prediction.certainty.measured_machine_interval import extrapolation_remarks

        return (*extrapolation_remarks(machine, self.prepared, self.timed), *notes)

    @derived_property
    def on_stored_weights(self) -> tuple[str, ...]:
        """Note on layers that keep dense weights where others are quantised or pruned."""
        job, graph = self.job, self.prepared.subject.graph
        is_asked = job is not None and job.weight_dtype is not None
        if not (is_asked or any(node.usage.weight_format for node in graph.layers)):
            return ()
        dense = graph.dense_layers
        if not dense:
            return ()
        more = f" and {len(dense) - 1} more" if len(dense) > 1 else ""
        share = percent_text(sum(graph.parameter_counts[name] for name in dense) / graph.parameter_count)
        dtype = base_dtype(self.prepared.dtype)
        return (
            f"weights of {dense[0]}{more} ({share} of all) stay in {dtype} and are not pruned: "
            "weight_dtype and pruned() store those of dense layers, convolutions and attention, not of recurrences and "
            "embeddings",
        )

    @property
    def _on_checkpoints(self) -> tuple[str, ...]:
        """Notes on checkpoints, which only cost time if memory peaks elsewhere."""
        prepared, job = self.prepared, self.job
        if (
            job is None
            or job.recompute is None
            or not prepared.layout.is_whole
            or Phase.BACKWARD not in prepared.subject.phase.parts
        ):
            return ()
        kept = job.replace(recompute=None).prepared
        without = kept.footprint(kept.step(self.factors)).total_bytes
        spared_bytes = float(without) - float(prepared.footprint(self.timed).total_bytes)
        worth = (
            f"saves {bytes_text(spared_bytes)}"
            if spared_bytes > 0
            else "saves no memory here: the peak does not lie where activations are kept"
        )
        return (
            "activations between checkpoints are computed a second time in the backward phase "
            f"(recompute={job.recompute!r}), which {worth}",
        )


def timed_prediction(
    prepared: Prepared,
    *,
    factors: Factors | None = None,
    calibration: FitFile | None = None,
    job: Job | None = None,
) -> Prediction:
    """Time a prepared step and keep its basis."""
    if factors is None:
        factors = NO_FACTORS if calibration is None else _factors_of(calibration, prepared, prepared.target.name)
    timed = prepared.step(factors)
    _check_times(timed.parts, prepared)
    return Prediction(
        basis=Basis(prepared=prepared, factors=factors, timed=timed, calibration=calibration, job=job),
    )


ROUNDING: Final = 1e-9
"""Share of a step by which rounding alone may bring one of its times below zero. [1]"""


def _check_times(parts: StepTime, prepared: Prepared) -> None:
    """Raise unless every time is finite and not negative; a prediction's answers are checked only here."""
    fault = fault_of_times(parts, batch_size=prepared.batch_size, graph=prepared.subject.graph)
    if fault is not None:
        raise fault


def fault_of_times(parts: StepTime, *, batch_size: float, graph: LayerGraph) -> ArgumentError | None:
    """Return the refusal of a step unless every time is finite and not negative."""
    lowest = -ROUNDING * parts.step_s
    waits_less = (
        parts._replace(straggler_s=0.0) if parts.straggler_s < 0 else parts
    )  # backups end a wait before the mean
    if lowest <= 0 and lowest <= min(waits_less) and sum(parts) < math.inf:  # a sum with NaN is not < inf
        return None
    least = lowest if -math.inf < lowest <= 0 else 0.0
    wrong = ((name, time_s) for name, time_s in waits_less._asdict().items() if not least <= time_s < math.inf)
    name, seconds = next(wrong, ("their sum", sum(parts)))
    allowed = f"small enough, on this hardware, for finite times of at least 0 s; {name} is {seconds} s"
    return (
        ArgumentError("batch_size", batch_size, allowed) if batch_size > 1 else ArgumentError("graph", graph, allowed)
    )


def _factors_of(calibration: FitFile, prepared: Prepared, target: str) -> dict[str, float]:
    """Factors of a calibration; raise if none applies, since the calibration is then for other hardware."""
    factors = calibration.factors_for(prepared.constant_names)
    if not factors:
        allowed = (
            f"one with a factor on a constant of {target}; this one was fitted on {calibration.fitted_on.subset} cells"
        )
        raise ArgumentError("calibration", calibration.name, allowed)
    return factors
