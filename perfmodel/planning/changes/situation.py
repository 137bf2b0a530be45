"""What a change is made to: a job as it was asked, and what is predicted of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perfmodel.hardware import spec_files
from perfmodel.hardware.catalogue import load_library
from perfmodel.hardware.gpu import Gpu
from perfmodel.records import Phase

if TYPE_CHECKING:
    from perfmodel.hardware.library import LibraryProfile
    from perfmodel.hardware.wired import Wired
    from perfmodel.prediction.job import Job
    from perfmodel.prediction.machine import Machine
    from perfmodel.prediction.prediction import Prediction
    from perfmodel.prediction.prepared import Prepared
    from perfmodel.prediction.target import Target

NO_GPU: Final = "no GPU computes"


class NotApplicableError(Exception):
    """A change says nothing to a job; the message is the reason."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change of a job.

    Parameters
    ----------
    what : str
        In a few words. [-]
    changes : mapping of str to object
        Arguments of ``predict`` that it gives other values. [unit of each argument]
    presumes : str
        What must be there that a prediction does not check; empty for nothing. [-]
    """

    what: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    presumes: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Situation:
    """A job as it was asked, and what is predicted of it.

    Parameters
    ----------
    base : Prediction
        What is predicted. [-]
    """

    base: Prediction

    @property
    def job(self) -> Job:
        """The job as it was asked."""
        return self.base.job

    def __getitem__(self, argument: str) -> Any:
        """Return the value of an argument, its default where it was not given."""
        return getattr(self.job, argument)

    @cached_property
    def libraries(self) -> tuple[LibraryProfile, ...]:
        """All libraries that there is a file of."""
        return tuple(map(load_library, spec_files.names("libraries")))

    @property
    def prepared(self) -> Prepared:
        """What the prediction was made of."""
        assert self.base.basis is not None
        return self.base.basis.prepared

    @property
    def target(self) -> Target:
        """What the job runs on."""
        return self.prepared.target

    @property
    def phases(self) -> tuple[Phase, ...]:
        """What a step does."""
        return self.job.subject.phase.parts

    @property
    def machine(self) -> Machine | None:
        """The job's part of a system; None for a device by itself, or CPUs."""
        return self.target.machine

    @property
    def system(self) -> Wired:
        """The system whose GPUs work.

        Raises
        ------
        NotApplicableError
            If there is none.
        """
        if self.machine is None:
            alone = "needs system=, which says how devices are wired"
            reason = alone if self.target.processor == "gpu" else NO_GPU
            raise NotApplicableError(reason)
        return self.machine.system

    @property
    def folder(self) -> Path:
        """Folder of the system's file, where paths in it start."""
        given = self["system"]
        if isinstance(given, str | Path):
            return spec_files.find("systems", given).parent
        return spec_files.shipped_folder() / "systems"

    @property
    def gpu(self) -> Gpu:
        """The GPU that works, or each of them.

        Raises
        ------
        NotApplicableError
            If none does.
        """
        spec = self.target.processor_spec
        if not isinstance(spec, Gpu):
            raise NotApplicableError(NO_GPU)
        return spec

    def needs(self, condition: object, reason: str) -> None:
        """Raise unless something holds.

        Raises
        ------
        NotApplicableError
            With the reason.
        """
        if not condition:
            raise NotApplicableError(reason)

    def needs_training(self) -> None:
        """Raise unless there are gradients."""
        self.needs(Phase.BACKWARD in self.phases, "nothing is learnt in this phase")

    def needs_training_together(self) -> None:
        """Raise unless several workers agree on gradients."""
        self.needs_training()
        self.needs(self.base.worker_count > 1, "one worker exchanges nothing")
        self.needs(self["sync"] != "none", "the workers exchange nothing")
