"""Targets by what a caller names: a device, or a system whose GPUs or sockets work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.errors import ArgumentError
from perfmodel.hardware.catalogue import load_device, load_system
from perfmodel.hardware.cpu import Cpu
from perfmodel.hardware.device import Runnable
from perfmodel.hardware.gpu import Gpu
from perfmodel.hardware.source import SpecFile
from perfmodel.hardware.spec_files import folders_asked_for, kept_while_unchanged
from perfmodel.hardware.system import System
from perfmodel.hardware.wiring import Wired
from perfmodel.prediction.arguments.checks import whole_number
from perfmodel.prediction.device.cpu_target import CpuTarget
from perfmodel.prediction.device.gpu_target import GpuTarget
from perfmodel.prediction.device.machine import Machine
from perfmodel.prediction.device.target import Target

if TYPE_CHECKING:
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.prediction.job.job import Job


def _gpu_target(device: Runnable, threads: int | None) -> Target:
    if threads is not None:
        raise ArgumentError("threads", threads, f"None for a GPU ({device.name})")
    assert isinstance(device, Gpu)
    return GpuTarget(device)


def _cpu_target(device: Runnable, threads: int | None) -> Target:
    assert isinstance(device, Cpu)
    return CpuTarget(device, system=None, threads=threads)


def _measured_target(device: Runnable, threads: int | None) -> Target:
    from perfmodel.hardware.measured_machine import MeasuredMachine
    from perfmodel.prediction.device.measured_target import MeasuredTarget

    assert isinstance(device, MeasuredMachine)
    return MeasuredTarget(device, threads=threads)


TARGETS = {"gpu": _gpu_target, "cpu": _cpu_target, "measured": _measured_target}
"""Kind of device -> its target."""


def resolve_target(
    *,
    device: str | Path | Runnable | None,
    system: str | Path | Wired | None,
    threads: int | None,
    workers: int = 1,
) -> Target:
    """Return the target that a caller named."""
    if (device is None) == (system is None):
        given = None if device is None else (device, system)
        raise ArgumentError("device", given, "exactly one of device= and system=")
    workers = whole_number("workers", workers)
    if system is not None:
        return _target_of_system(system if isinstance(system, Wired) else load_system(system), threads, workers)
    if workers > 1:
        raise ArgumentError("workers", workers, "1 with device=; several need system=, whose devices they are")
    loaded = device if isinstance(device, Runnable) else _loaded(device)
    return TARGETS[loaded.kind](loaded, threads)


@kept_while_unchanged(folders_asked_for, names=(tuple,))
def resolve_by_name(asked: Any) -> tuple[Target, FrameworkProfile]:
    """Return the target and the profile for names of a device and a framework: their files are looked up once."""
    device, framework = asked
    target = resolve_target(device=device, system=None, threads=None)
    return target, target.profile_of(framework)


def _loaded(device: Any) -> Runnable:
    """Return a device by its name or path."""
    if isinstance(device, SpecFile):
        from perfmodel.hardware.fit_file import FitFile

        if isinstance(device, FitFile):
            allowed = "a device, or a measured machine; fitted factors are given as calibration="
            raise ArgumentError("device", device.name, allowed)
    return load_device(device)


def _target_of_system(system: Wired, threads: int | None, workers: int) -> Target:
    if system.devices:
        if threads is not None:
            raise ArgumentError("threads", threads, f"None for the GPUs of {system.name}")
        machine = Machine(system=system, worker_count=workers)
        return GpuTarget(machine.device, machine=machine)
    if workers > 1:
        raise ArgumentError("workers", workers, f"1 on {system.name}, which has no GPU; its sockets work together")
    if not isinstance(system, System):
        raise ArgumentError("system", system.name, "a machine, or a cluster with GPUs")
    return CpuTarget(system.processor, system=system, threads=threads)


def refuse_missing_devices(job: Job, system: Wired | None) -> None:
    """Raise if a system has fewer devices than a job wants; None for one device."""
    known = 1 if system is None or not system.devices else len(system.devices)
    if job.device_count > known:
        wanted = f"{job.workers} x {job.stages} x {job.tensor_size} = {job.device_count}"
        there = "1 with device=; several need system=" if system is None else f"at most {known}, as {system.name} has"
        argument = "workers x stages x tensor_size"
        raise ArgumentError(argument, wanted, there)
