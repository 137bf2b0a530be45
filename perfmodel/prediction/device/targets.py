"""Targets by name: a device, or a system with its GPUs or sockets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perfmodel.derived import derived, kept
from perfmodel.errors import ArgumentError
from perfmodel.hardware.catalogue import load_device, load_system
from perfmodel.hardware.computing_hosts import computing_on_hosts
from perfmodel.hardware.cpu import Cpu
from perfmodel.hardware.device import Runnable
from perfmodel.hardware.gpu import Gpu
from perfmodel.hardware.source import SpecFile
from perfmodel.hardware.spec_files import folders_asked_for, kept_while_unchanged
from perfmodel.hardware.system import System
from perfmodel.hardware.wiring import Wired
from perfmodel.prediction.arguments.checks import whole_number
from perfmodel.prediction.device.gpu_target import GpuTarget
from perfmodel.prediction.device.system_part import SystemPart
from perfmodel.prediction.device.target import Target

if TYPE_CHECKING:
    from perfmodel.framework.profile import FrameworkProfile


def _gpu_target(device: Runnable, threads: int | None) -> Target:
    if threads is not None:
        raise ArgumentError("threads", threads, f"left out for a GPU ({device.name}); pass a CPU as device= to set it")
    assert isinstance(device, Gpu)
    return GpuTarget(device)


def _cpu_target(device: Runnable, threads: int | None) -> Target:
    from perfmodel.prediction.device.cpu_target import CpuTarget

    assert isinstance(device, Cpu)
    return CpuTarget(device, system=None, threads=threads)


def _measured_target(device: Runnable, threads: int | None) -> Target:
    from perfmodel.hardware.measured_machine import MeasuredMachine
    from perfmodel.prediction.device.measured_target import MeasuredTarget

    assert isinstance(device, MeasuredMachine)
    return MeasuredTarget(device, threads=threads)


def _target_of_card(device: Runnable, system: Wired, threads: int | None, workers: int) -> Target:
    del device  # it is in the slots
    return _target_of_system(system, threads, workers)


def _measured_in_system(device: Runnable, system: Wired, threads: int | None, workers: int) -> Target:
    from perfmodel.hardware.measured_machine import MeasuredMachine
    from perfmodel.prediction.device.measured_target import MeasuredTarget, on_measured_hosts

    assert isinstance(device, MeasuredMachine)
    if not system.devices:
        _check_alone(system, workers)
        system = on_measured_hosts(system, device)
    return MeasuredTarget(device, threads=threads, system_part=SystemPart(system=system, worker_count=workers))


TARGETS = {"gpu": _gpu_target, "cpu": _cpu_target, "measured": _measured_target}
"""Kind of device -> function that makes its target."""

IN_SYSTEM = {"measured": _measured_in_system}
"""Kind of device -> function that makes its target in a system; devices of other kinds are cards in its slots."""

MOST_FITTED: Final = 64
"""Devices whose system is kept, for each system. [1]"""


def resolve_target(
    *,
    device: str | Path | Runnable | None,
    system: str | Path | Wired | None,
    threads: int | None,
    workers: int = 1,
) -> Target:
    """Load the target that a caller named."""
    if device is None and system is None:
        raise ArgumentError("device", None, "set; or pass system=, or both")
    workers = whole_number("workers", workers)
    loaded = device if device is None or type(device) is Gpu or isinstance(device, Runnable) else _loaded(device)
    if system is not None:
        wired = system if isinstance(system, Wired) else load_system(system)
        if loaded is None:
            return _target_of_system(wired, threads, workers)
        fitted = _fitted(wired, loaded, named=device if isinstance(device, str | Path) else None)
        return IN_SYSTEM.get(loaded.kind, _target_of_card)(loaded, fitted, threads, workers)
    if workers > 1:
        raise ArgumentError("workers", workers, "1 with device=; pass system= to use several devices")
    assert loaded is not None
    return TARGETS[loaded.kind](loaded, threads)


@kept_while_unchanged(folders_asked_for, names=(tuple,))
def resolve_by_name(asked: Any) -> tuple[Target, FrameworkProfile]:
    """Load target and framework profile by name; finds their files once."""
    device, framework = asked
    target = resolve_target(device=device, system=None, threads=None)
    return target, target.profile_of(framework)


def _loaded(device: Any) -> Runnable:
    """Load a device by name or path."""
    if isinstance(device, SpecFile):
        from perfmodel.hardware.fit_file import FitFile

        if isinstance(device, FitFile):
            allowed = "a device or a measured machine; pass fitted factors as calibration="
            raise ArgumentError("device", device.name, allowed)
    return load_device(device)


@derived
def _fittings(system: Wired) -> dict[Any, tuple[Runnable, Wired]]:
    """Start the cache of a system's variants with another device in the slots."""
    del system
    return {}


def _fitted(system: Wired, device: Runnable, *, named: str | Path | None) -> Wired:
    """Return a system with a device in every slot, made once; caching the device too keeps its id from being reused."""
    from perfmodel.hardware.cluster import system_with

    def made() -> tuple[Runnable, Wired]:
        return device, system_with(system, device=device if named is None else named)

    fitted: tuple[Runnable, Wired] = kept(_fittings(system), (id(device), named), made, most=MOST_FITTED)
    return fitted[1]


def _host_of(system: Wired) -> Cpu | None:
    """Processor that issues the kernels of a system's GPUs; None if no file describes the machine."""
    machines = [machine for _, machine in getattr(system, "machines", ())]
    host: Cpu | None = getattr(machines[0] if machines else system, "processor", None)
    return host


def _target_of_system(system: Wired, threads: int | None, workers: int) -> Target:
    if system.devices and not system.computes_on_hosts:
        if threads is not None:
            raise ArgumentError("threads", threads, f"left out for the GPUs of {system.name}")
        system_part = SystemPart(system=system, worker_count=workers)
        return GpuTarget(system_part.device, host=_host_of(system), system_part=system_part)
    from perfmodel.prediction.device.cpu_target import CpuTarget

    if not isinstance(system, System):
        system_part = SystemPart(system=computing_on_hosts(system), worker_count=workers)
        return CpuTarget(system_part.device, system=system_part.machine, threads=threads, system_part=system_part)
    _check_alone(system, workers)
    return CpuTarget(system.processor, system=system, threads=threads)


def _check_alone(system: Wired, workers: int) -> None:
    """Reject several workers on one machine without GPUs."""
    if workers > 1 and isinstance(system, System):
        allowed = f"1 on {system.name}, which has no GPU; its sockets work together. Pass a cluster, or machines="
        raise ArgumentError("workers", workers, allowed)
