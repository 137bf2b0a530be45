"""A prepared step, timed: a Prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.errors import ArgumentError
from perfmodel.prediction.basis import Basis
from perfmodel.prediction.prediction import Prediction
from perfmodel.prediction.scaling import NO_FACTORS, Factors

if TYPE_CHECKING:
    from perfmodel.hardware.calibration import CalibrationFile
    from perfmodel.prediction.job import Job
    from perfmodel.prediction.prepared import Prepared


def timed_prediction(
    prepared: Prepared,
    *,
    factors: Factors | None = None,
    calibration: CalibrationFile | None = None,
    job: Job | None = None,
) -> Prediction:
    """Time a prepared step, and keep what explains it.

    Parameters
    ----------
    prepared : Prepared
        The step. [-]
    factors : mapping of str to float or None
        Factors by name of constant in place of a calibration's, while one is being fitted. [1]
    calibration : CalibrationFile or None
        Fitted factors on the constants of the files. [-]
    job : Job or None
        What was asked; None where a step was prepared without one. [-]

    Returns
    -------
    Prediction
        Time, parts, memory and their reasons.
    """
    target, dtype = prepared.target, prepared.dtype
    if factors is None:
        factors = NO_FACTORS if calibration is None else _factors_of(calibration, prepared, target.name)
    timed = prepared.step(factors)
    shown = timed.shown
    return Prediction(
        subject=prepared.subject.name,
        target=target.name,
        framework=target.software(prepared.profile),
        batch_size=prepared.batch_size,
        phase=prepared.subject.phase.value,
        dtype=dtype,
        threads=target.threads,
        parts=timed.parts,
        table=shown.stage.plan.table,
        groups=shown.groups,
        launch_gap_s=shown.numbers.launch_s,
        step_overhead_s=shown.numbers.step_overhead_s,
        peak_flop_per_s=target.peak_flop_per_s(dtype),
        memory_bandwidth_bytes_per_s=target.bandwidth_bytes_per_s,
        basis=Basis(prepared=prepared, factors=factors, timed=timed, calibration=calibration, job=job),
    )


def _factors_of(calibration: CalibrationFile, prepared: Prepared, target: str) -> dict[str, float]:
    """Return a calibration's factors; one that changes nothing of a prediction was meant for another."""
    factors = calibration.factors_for(prepared.constant_names)
    if not factors:
        allowed = (
            f"one with a factor on a constant of {target}; this one was fitted on {calibration.fitted_on.subset} cells"
        )
        raise ArgumentError("calibration", calibration.name, allowed)
    return factors
