"""One step of a resolved subject on a resolved target, as a Prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.errors import ArgumentError
from perfmodel.prediction.basis import Basis
from perfmodel.prediction.prediction import Prediction
from perfmodel.prediction.prepare import prepare
from perfmodel.prediction.scaling import NO_FACTORS, Factors

if TYPE_CHECKING:
    from pathlib import Path

    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.hardware.calibration import CalibrationFile
    from perfmodel.hardware.library import LibraryProfile
    from perfmodel.prediction.data_path import DataPath
    from perfmodel.prediction.job import Job
    from perfmodel.prediction.prepared import Prepared
    from perfmodel.prediction.subject import Subject
    from perfmodel.prediction.target import Target


def predict_subject(
    subject: Subject,
    *,
    target: Target,
    profile: FrameworkProfile,
    batch_size: int,
    dtype: str,
    library: str | Path | LibraryProfile | None,
    pinned: bool = True,
    calibration: CalibrationFile | None = None,
    factors: Factors | None = None,
    recompute: str | None = None,
    data_path: DataPath | None = None,
    job: Job | None = None,
) -> Prediction:
    """Predict one step of a resolved subject on a resolved target.

    Parameters
    ----------
    subject : Subject
        What runs. [-]
    target : Target
        On what, with how many threads. [-]
    profile : FrameworkProfile
        With what. [-]
    batch_size : int
        Samples per step. [samples]
    dtype : str
        Data type. [-]
    library : str, Path, LibraryProfile or None
        A library in place of the one of its kind that the framework names. [-]
    pinned : bool
        False forces pageable copies where the framework would pin its buffers. [-]
    calibration : CalibrationFile or None
        Fitted factors on the constants of the files. [-]
    factors : mapping of str to float or None
        Factors by name of constant in place of a calibration's, while one is being fitted. [1]
    recompute : str or None
        Where checkpoints lie; None where the graph marks them, if anywhere. [-]
    data_path : DataPath or None
        What brings the mini-batches; None for ones that are in host memory. [-]
    job : Job or None
        What was asked; None for one device by itself. [-]

    Returns
    -------
    Prediction
        Time, parts, memory and their reasons.
    """
    prepared = prepare(
        subject,
        target=target,
        profile=profile,
        batch_size=batch_size,
        dtype=dtype,
        library=library,
        pinned=pinned,
        recompute=recompute,
        data_path=data_path,
        job=job,
    )
    if factors is None:
        factors = NO_FACTORS if calibration is None else _factors_of(calibration, prepared, target.name)
    timed = prepared.step(factors)
    shown = timed.shown
    return Prediction(
        subject=subject.name,
        target=target.name,
        framework=target.software(profile),
        batch_size=batch_size,
        phase=subject.phase.value,
        dtype=dtype,
        threads=target.threads,
        parts=timed.parts,
        table=shown.stage.plan.table,
        groups=shown.groups,
        launch_gap_s=shown.numbers.launch_s,
        step_overhead_s=shown.numbers.step_overhead_s,
        peak_flop_per_s=target.peak_flop_per_s(dtype),
        memory_bandwidth_bytes_per_s=target.bandwidth_bytes_per_s,
        basis=Basis(
            prepared=prepared,
            factors=factors,
            timed=timed,
            calibration=calibration,
            job=job,
        ),
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
