"""What a prediction rests on: kept with it, so that interval, provenance and remarks are made only when asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from perfmodel.prediction.prepare import prepare
from perfmodel.prediction.prepared import Prepared
from perfmodel.presentation.quantities import bytes_text
from perfmodel.records import Phase

if TYPE_CHECKING:
    from perfmodel.hardware.calibration import CalibrationFile
    from perfmodel.prediction.job import Job
    from perfmodel.prediction.prepared import TimedStep
    from perfmodel.prediction.scaling import Factors


@dataclass(frozen=True, eq=False, kw_only=True)
class Basis:
    """The step of a prediction with the constants that timed it.

    Parameters
    ----------
    prepared : Prepared
        The step, lowered. [-]
    factors : mapping of str to float
        Factors on its constants by full name. [1]
    timed : TimedStep
        Its times. [s]
    calibration : CalibrationFile or None
        Where the factors come from; None where nothing was fitted. [-]
    job : Job or None
        What was asked; None where a step was timed without one. [-]
    """

    prepared: Prepared
    factors: Factors
    timed: TimedStep
    calibration: CalibrationFile | None = None
    job: Job | None = None

    @cached_property
    def remarks(self) -> tuple[str, ...]:
        """How far the step is from what was measured, and what checkpoints cost and are worth."""
        return (*self.prepared.target.step_remarks(self.prepared, self.timed), *self._on_checkpoints)

    @property
    def _on_checkpoints(self) -> tuple[str, ...]:
        """What checkpoints are worth: where the peak lies elsewhere they are only a cost."""
        prepared, job = self.prepared, self.job
        if (
            job is None
            or job.recompute is None
            or not prepared.layout.is_whole
            or Phase.BACKWARD not in prepared.subject.phase.parts
        ):
            return ()
        kept = prepare(
            prepared.subject,
            target=prepared.target,
            profile=prepared.profile,
            batch_size=prepared.batch_size,
            dtype=prepared.dtype,
            library=job.library,
            pinned=prepared.pinned,
        )
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
