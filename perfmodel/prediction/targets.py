"""Targets: a device or a system, resolved, with the libraries a framework uses on it, made into plain numbers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from perfmodel.errors import ArgumentError
from perfmodel.hardware.catalogue import load_device, load_library, load_link, load_machine, load_system
from perfmodel.hardware.cpu import Cpu
from perfmodel.hardware.device import Device
from perfmodel.hardware.gpu import Gpu
from perfmodel.hardware.library import LibraryProfile, LibrarySupport
from perfmodel.hardware.system import System
from perfmodel.hardware.wired import Wired
from perfmodel.prediction.arguments import whole_number
from perfmodel.prediction.copies import Copy
from perfmodel.prediction.cpu import CpuNumbers, cpu_numbers
from perfmodel.prediction.gpu import gpu_numbers, product_dtype
from perfmodel.prediction.machine import Machine
from perfmodel.prediction.scaling import NO_FACTORS, Factors, framework_constants, host_constants, scaled
from perfmodel.records import ELEMENT_BYTES

if TYPE_CHECKING:
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.hardware.source import SpecFile
    from perfmodel.measurements.run import FeedItem
    from perfmodel.prediction.step_time import ProcessorNumbers

Libraries = Mapping[str, LibraryProfile]
"""Libraries in use by the role they fill: ``gpu_blas``, ``gpu_dnn``, ``cpu_blas``."""


class Target(ABC):
    """What a step runs on: hides from prediction whether that is a GPU or CPU sockets."""

    processor: ClassVar[str]
    roles: ClassVar[tuple[str, ...]]
    name: str
    threads: int | None
    architecture: str
    processor_spec: Device
    specs_by_place: dict[str, SpecFile]
    capacity_bytes: float
    context_bytes: float
    bandwidth_bytes_per_s: float
    machine: Machine | None = None
    shared_bytes_per_s: float = math.inf

    @property
    def specs(self) -> tuple[SpecFile, ...]:
        """The files of the hardware, the processor's first."""
        return tuple(self.specs_by_place.values())

    @property
    def is_oversubscribed(self) -> bool:
        """Whether more threads than physical cores are asked for; never on a GPU."""
        return False

    def subnormal_time(self, numbers: ProcessorNumbers, product_count: float) -> Any:
        """Return what subnormal numbers cost; GPUs multiply them at full speed. [s]"""
        del numbers, product_count
        return 0.0

    def scheduler_threads(self, profile: FrameworkProfile) -> int:
        """Return how many independent operations compute beside each other. [1]"""
        del profile
        return 1

    def behind(self, hosts: Mapping[str, str]) -> Target:
        """Return the target in the machine that it stands in, if that is known; CPUs are their own host."""
        del hosts
        return self

    def with_workers(self, worker_count: int) -> Target:
        """Return the target as one of another number of workers; itself where there is only one."""
        del worker_count
        return self

    def host_slowdown(self, factors: Factors) -> Any:
        """Return how much longer the host code takes than on the hosts that framework files speak of. [1]"""
        del factors
        return 1.0

    def libraries(self, profile: FrameworkProfile, override: str | Path | LibraryProfile | None) -> Libraries:
        """Return the libraries a framework uses here, one of them replaced by ``override`` if given.

        Raises
        ------
        ArgumentError
            If the override is a library for another kind of processor.
        """
        chosen = {role: load_library(profile.library.name_of(role, self.architecture)) for role in self.roles}
        if override is None:
            return chosen
        library = override if isinstance(override, LibraryProfile) else load_library(override)
        role = f"{library.processor}_{library.kind}"
        if role not in self.roles:
            allowed = f"a library for a {self.processor.upper()} ({' or '.join(self.roles)}), not {role}"
            raise ArgumentError("library", library.name, allowed)
        return chosen | {role: library}

    def own_remarks(self, profile: FrameworkProfile, libraries: Libraries, *, dtype: str) -> list[str]:
        """Return remarks that this kind of target alone has: none on CPUs."""
        del profile, libraries, dtype
        return []

    def support(self, profile: FrameworkProfile, libraries: Libraries, *, dtype: str) -> LibrarySupport:
        """Return what the DNN library offers for a data type here; nothing without such a library."""
        del profile, libraries, dtype
        return LibrarySupport()

    @abstractmethod
    def numbers(
        self, profile: FrameworkProfile, libraries: Libraries, *, dtype: str, factors: Factors = NO_FACTORS
    ) -> ProcessorNumbers:
        """Return the plain numbers of the step's path."""

    @abstractmethod
    def peak_flop_per_s(self, dtype: str) -> float:
        """Return the peak rate in a data type. [FLOP/s]"""

    @abstractmethod
    def copy_of(
        self,
        profile: FrameworkProfile,
        items: tuple[FeedItem, ...],
        *,
        batch_size: float,
        pinned: bool,
        factors: Factors = NO_FACTORS,
    ) -> Copy:
        """Return what bringing these arrays of a mini-batch to the device takes."""

    def remarks(self, profile: FrameworkProfile, libraries: Libraries, *, dtype: str) -> tuple[str, ...]:
        """Return what the user should know about this combination."""
        notes = self.own_remarks(profile, libraries, dtype=dtype)
        for library in libraries.values():
            if self.architecture not in library.architecture:
                notes.append(
                    f"{library.name} has no values of its own for {self.architecture}: this extrapolates from other "
                    "architectures"
                )
            if not library.is_native(self.architecture):
                notes.append(f"{library.name} has no native kernels for {self.architecture}: it runs translated ones")
        return tuple(notes)


HOST_COPY = "host_copy_gb_per_s"
"""Constant of a framework that staging arrays depends on."""


def _staging_time(
    profile: FrameworkProfile, processor: str, items: tuple[FeedItem, ...], *, batch_size: float, factors: Factors
) -> Any:
    """Time the host spends copying arrays of the script into the framework's own tensors. [s]"""
    others = getattr(profile, processor).constants.keys() - {HOST_COPY}
    rate = framework_constants(profile, processor, factors=factors, unneeded=others)[HOST_COPY]
    copied = sum(item.bytes_per_sample for item in items if item.origin == "interpreter")
    return batch_size * copied / rate


class GpuTarget(Target):
    """One GPU behind its host link."""

    processor = "gpu"
    roles = ("gpu_blas", "gpu_dnn")

    def __init__(self, device: Gpu, *, host: Cpu | None = None, machine: Machine | None = None) -> None:
        self.device = device
        self.host = host
        self.machine = machine
        self.link = load_link(device.host_link.link_name) if machine is None else machine.link_of(machine.names[0])
        self.copy_latency_s = self.link.latency_s if machine is None else machine.copy_latency_s
        self.shared_bytes_per_s = math.inf if machine is None else machine.copy_bytes_per_s
        self.name = device.name if machine is None else machine.describe()
        self.threads = None
        self.architecture = device.architecture
        self.processor_spec = device
        self.specs_by_place = {f"devices/{device.stem}": device, f"links/{self.link.family.stem}": self.link.family}
        if host is not None:
            self.specs_by_place[f"devices/{host.stem}"] = host
        if machine is not None:
            self.specs_by_place[f"systems/{machine.system.file.stem}"] = machine.system.file
        self.capacity_bytes = device.usable_memory_bytes
        self.context_bytes = device.context_bytes
        self.bandwidth_bytes_per_s = device.memory_bandwidth_bytes_per_s

    def behind(self, hosts: Mapping[str, str]) -> Target:
        """Return the GPU in the machine that it stands in, if that is known."""
        host = hosts.get(self.device.stem)
        if host is None or self.machine is not None:
            return self
        return GpuTarget(self.device, host=load_machine(host).processor)

    def with_workers(self, worker_count: int) -> GpuTarget:
        """Return the same device as one of another number of workers, which share the way to it.

        Parameters
        ----------
        worker_count : int
            Workers. [1]

        Returns
        -------
        GpuTarget
            The target; itself without a system. [-]
        """
        if self.machine is None:
            return self
        return GpuTarget(self.device, host=self.host, machine=self.machine.with_workers(worker_count))

    def host_slowdown(self, factors: Factors) -> Any:
        """Return how much longer the host code takes than on the hosts that framework files speak of. [1]"""
        return 1.0 if self.host is None else host_constants(self.host, factors=factors)["call_slowdown"]

    def support(self, profile: FrameworkProfile, libraries: Libraries, *, dtype: str) -> LibrarySupport:
        """Return what the DNN library offers for the type in which it computes, on this architecture."""
        computed_in = product_dtype(self.device, profile, libraries, "gpu_dnn", dtype=dtype)
        return libraries["gpu_dnn"].support_for(self.architecture, dtype=computed_in)

    def own_remarks(self, profile: FrameworkProfile, libraries: Libraries, *, dtype: str) -> list[str]:
        """Return in which types libraries compute, and which libraries stand in for those of the framework."""
        computed_in = [
            (library, product_dtype(self.device, profile, libraries, role, dtype=dtype))
            for role, library in libraries.items()
        ]
        rounding = [library.name for library, of_library in computed_in if of_library == "tf32" != dtype]
        told = "round fp32 operands to TF32 on this device: with dtype='fp32' they run on tensor cores"
        notes = [f"{profile.name} lets {' and '.join(rounding)} {told}"] if rounding else []
        for library, of_library in computed_in:
            if dtype not in ("fp32", of_library):
                lacking = f"has no {dtype} kernels for the tensor cores of {self.architecture}"
                notes.append(f"{library.name} {lacking}: it computes in {of_library}")
            elif dtype != "fp32" and not library.on_tensor_cores(self.architecture, dtype=dtype):
                notes.append(f"the constants of {library.name} were fitted in fp32: {dtype} extrapolates")
        notes += () if self.machine is None else self.machine.system.remarks
        if profile.library.by_architecture.get(self.architecture, {}).keys() >= {*self.roles}:
            calls, usual = (
                " and ".join(names)
                for names in (
                    [library.name for library in libraries.values()],
                    [getattr(profile.library, role) for role in self.roles],
                )
            )
            notes.append(f"on {self.architecture}, {calls} stand in for {usual}, which {profile.name} was built with")
        return notes

    def numbers(
        self, profile: FrameworkProfile, libraries: Libraries, *, dtype: str, factors: Factors = NO_FACTORS
    ) -> ProcessorNumbers:
        """Return the plain numbers of the GPU, its libraries and the framework."""
        return gpu_numbers(
            self.device,
            profile,
            libraries,
            dtype=dtype,
            element_bytes=ELEMENT_BYTES[dtype],
            host_slowdown=self.host_slowdown(factors),
            factors=factors,
        )

    def peak_flop_per_s(self, dtype: str) -> float:
        """Return the peak rate that the schedulers can issue. [FLOP/s]"""
        return self.device.sustained_peak_flop_per_s(dtype)

    def copy_of(
        self,
        profile: FrameworkProfile,
        items: tuple[FeedItem, ...],
        *,
        batch_size: float,
        pinned: bool,
        factors: Factors = NO_FACTORS,
    ) -> Copy:
        """Return what staging these arrays on the host and copying them over the host link takes."""
        if not items:
            return Copy()
        stated = (
            {"typical_efficiency": self.link.effective_bandwidth_bytes_per_s}
            if pinned and profile.feed.pinned
            else {"pageable_efficiency": self.link.pageable_bandwidth_bytes_per_s}
        )
        (bandwidth,) = scaled(stated, place=f"links/{self.link.family.stem}/", factors=factors).values()
        staging_s = _staging_time(profile, self.processor, items, batch_size=batch_size, factors=factors)
        return Copy(
            host_s=self.host_slowdown(factors) * staging_s,
            latency_s=len(items) * self.copy_latency_s,
            copied_bytes=batch_size * sum(item.bytes_per_sample for item in items),
            bytes_per_s=bandwidth,
        )


class CpuTarget(Target):
    """All sockets of a machine, or one socket by itself."""

    processor = "cpu"
    roles = ("cpu_blas",)

    def __init__(self, cpu: Cpu, *, system: System | None, threads: int | None) -> None:
        self.cpu, self.system = cpu, system
        hardware_threads = cpu.thread_count if system is None else system.thread_count
        cores = cpu.core_count if system is None else system.core_count
        self.core_count = cores
        self.name = cpu.name if system is None else system.name
        self.thread_count = cores if threads is None else whole_number("threads", threads, maximum=hardware_threads)
        self.threads = self.thread_count
        self.architecture = cpu.architecture
        self.processor_spec = cpu
        self.specs_by_place = {f"devices/{cpu.stem}": cpu}
        if system is not None:
            self.specs_by_place[f"systems/{system.file.stem}"] = system.file
        self.capacity_bytes = float("inf") if system is None else system.memory_capacity_bytes
        self.context_bytes = 0.0
        self.bandwidth_bytes_per_s = (1 if system is None else system.socket_count) * cpu.memory_bandwidth_bytes_per_s

    def numbers(
        self, profile: FrameworkProfile, libraries: Libraries, *, dtype: str, factors: Factors = NO_FACTORS
    ) -> ProcessorNumbers:
        """Return the plain numbers of the cores, their memory, the BLAS and the framework."""
        return cpu_numbers(
            self.cpu,
            profile,
            libraries["cpu_blas"],
            system=self.system,
            threads=self.thread_count,
            dtype=dtype,
            element_bytes=ELEMENT_BYTES[dtype],
            factors=factors,
        )

    @property
    def is_oversubscribed(self) -> bool:
        """Whether more threads than physical cores are asked for."""
        return self.thread_count > self.core_count

    def scheduler_threads(self, profile: FrameworkProfile) -> int:
        """Return how many operations compute beside each other; a pool of one thread leaves them to their callers."""
        own_threads = (
            self.thread_count == 1 and profile.cpu.in_base_units_by_name.get("scheduler_threads_per_core", 0) > 0
        )
        return self.core_count if own_threads else 1

    def subnormal_time(self, numbers: ProcessorNumbers, product_count: float) -> Any:
        """Return the time of the microcode that handles products of subnormal numbers. [s]"""
        assert isinstance(numbers, CpuNumbers)
        return numbers.subnormal_time(product_count)

    def peak_flop_per_s(self, dtype: str) -> float:
        """Return the SIMD peak of the cores that the threads occupy. [FLOP/s]"""
        sockets = 1 if self.system is None else self.system.socket_count
        busy_sockets = min(self.thread_count, sockets)
        cores_of_socket = min(self.thread_count / busy_sockets, self.cpu.core_count)
        of_socket = self.cpu.peak_flop_per_s(dtype, active_cores=math.ceil(cores_of_socket))
        return busy_sockets * of_socket * cores_of_socket / math.ceil(cores_of_socket)

    def copy_of(
        self,
        profile: FrameworkProfile,
        items: tuple[FeedItem, ...],
        *,
        batch_size: float,
        pinned: bool,
        factors: Factors = NO_FACTORS,
    ) -> Copy:
        """Return what staging these arrays takes; they are in the device's memory already."""
        del pinned
        return Copy(host_s=_staging_time(profile, self.processor, items, batch_size=batch_size, factors=factors))


def _gpu_target(device: Device, threads: int | None) -> Target:
    if threads is not None:
        raise ArgumentError("threads", threads, f"None for a GPU ({device.name})")
    assert isinstance(device, Gpu)
    return GpuTarget(device)


def _cpu_target(device: Device, threads: int | None) -> Target:
    assert isinstance(device, Cpu)
    return CpuTarget(device, system=None, threads=threads)


TARGETS = {"gpu": _gpu_target, "cpu": _cpu_target}
"""Kind of device -> its target."""


def resolve_target(
    *,
    device: str | Path | Device | None,
    system: str | Path | Wired | None,
    threads: int | None,
    workers: int = 1,
) -> Target:
    """Return the target that a caller named.

    Parameters
    ----------
    device : str, Path, Device or None
        One GPU or one CPU socket. [-]
    system : str, Path, System, Cluster or None
        A machine or a cluster; one of the two must be given. Its GPUs work where it has any, else its sockets. [-]
    threads : int or None
        CPU threads; None for one per physical core. [1]
    workers : int
        GPUs of the system that work, one worker each. [1]

    Returns
    -------
    Target
        A GPU, or CPU sockets with their threads.

    Raises
    ------
    ArgumentError
        If neither or both are given, or ``threads`` or ``workers`` do not fit.
    UnknownNameError, SpecError
        If a name or a file is wrong.
    """
    if (device is None) == (system is None):
        given = None if device is None else (device, system)
        raise ArgumentError("device", given, "exactly one of device= and system=")
    workers = whole_number("workers", workers)
    if system is not None:
        return _target_of_system(system if isinstance(system, Wired) else load_system(system), threads, workers)
    if workers > 1:
        raise ArgumentError("workers", workers, "1 with device=; several need system=, whose devices they are")
    loaded = device if isinstance(device, Device) else load_device(device)  # type: ignore[arg-type]
    return TARGETS[loaded.kind](loaded, threads)


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
