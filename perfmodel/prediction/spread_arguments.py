"""How many devices a job wants, held against those there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.errors import ArgumentError

if TYPE_CHECKING:
    from perfmodel.hardware.wired import Wired
    from perfmodel.prediction.job import Job


def refuse_missing_devices(job: Job, system: Wired | None) -> None:
    """Raise if a system has fewer devices than a job wants; None for one device."""
    known = 1 if system is None or not system.devices else len(system.devices)
    if job.device_count > known:
        wanted = f"{job.workers} x {job.stages} x {job.tensor_size} = {job.device_count}"
        there = "1 with device=; several need system=" if system is None else f"at most {known}, as {system.name} has"
        argument = "workers x stages x tensor_size"
        raise ArgumentError(argument, wanted, there)
