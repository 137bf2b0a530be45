"""Devices of a job that take mini-batches where not all do: the first stage of a pipeline, one of each group."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perfmodel.prediction.machine import Machine

if TYPE_CHECKING:
    from perfmodel.hardware.wired import Wired


@dataclass(frozen=True, eq=False, kw_only=True)
class ReadingDevices(Machine):
    """The part of a system that takes mini-batches: some of a job's devices, in the order of the job.

    Parameters
    ----------
    given : tuple of str
        Nodes of these devices. [-]
    """

    given: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Nodes of the devices that take mini-batches."""
        return self.given[: self.worker_count]

    def with_workers(self, worker_count: int) -> ReadingDevices:
        """Return the first of them, so many.

        Parameters
        ----------
        worker_count : int
            Devices that take mini-batches. [1]

        Returns
        -------
        ReadingDevices
            The job there. [-]
        """
        return replace(self, worker_count=worker_count)


def reading_devices(system: Wired, names: tuple[str, ...]) -> ReadingDevices:
    """Return the part of a system that some devices are.

    Parameters
    ----------
    system : System or Cluster
        The system. [-]
    names : tuple of str
        Nodes of devices. [-]

    Returns
    -------
    ReadingDevices
        As a job whose workers these are. [-]
    """
    return ReadingDevices(system=system, worker_count=len(names), given=names)
