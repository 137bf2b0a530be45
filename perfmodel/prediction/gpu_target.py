"""One GPU behind its host link, alone or as a worker's of a system, made into plain numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from perfmodel.framework.profile import FrameworkProfile, load_framework
from perfmodel.hardware.catalogue import load_device, load_link, load_machine
from perfmodel.hardware.cpu import Cpu
from perfmodel.hardware.file_changes import kept_while_unchanged
from perfmodel.hardware.gpu import Gpu
from perfmodel.hardware.library import LibrarySupport
from perfmodel.hardware.link import Link
from perfmodel.hardware.spec_files import folders_asked_for
from perfmodel.prediction.copies import NO_COPY, Copy
from perfmodel.prediction.gpu import gpu_numbers, product_dtype
from perfmodel.prediction.machine import Machine
from perfmodel.prediction.scaling import NO_FACTORS, Factors, host_constants, scaled
from perfmodel.prediction.target import Libraries, Target, own_libraries, staging_time
from perfmodel.records import ELEMENT_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from perfmodel.hardware.library import LibraryProfile
    from perfmodel.hardware.source import SpecFile
    from perfmodel.measurements.run import FeedItem
    from perfmodel.prediction.step_time import ProcessorNumbers


class _Files(NamedTuple):
    """What a step on a GPU by itself reads besides the device."""

    profile: FrameworkProfile
    libraries: Libraries
    link: Link


@kept_while_unchanged(folders_asked_for, names=(tuple,))
def _files_of(asked: Any) -> _Files:
    """Load a framework, its libraries for an architecture, and a link: whether they changed is looked up once."""
    framework, architecture, link = asked
    profile = load_framework(framework)
    return _Files(profile, own_libraries(profile, GpuTarget.roles, architecture=architecture), load_link(link))


class GpuTarget(Target):
    """One GPU behind its host link."""

    processor = "gpu"
    roles = ("gpu_blas", "gpu_dnn")

    def __init__(self, device: Gpu, *, host: Cpu | None = None, machine: Machine | None = None) -> None:
        self.device = device
        self.host = host
        self.machine = machine
        self._files: _Files | None = None
        self._plain: tuple[FrameworkProfile, Libraries, str, ProcessorNumbers] | None = None
        self.shared_bytes_per_s = math.inf if machine is None else machine.copy_bytes_per_s
        self.name = device.name if machine is None else machine.describe()
        self.threads = None
        self.architecture = device.architecture
        self.processor_spec = device
        self.bandwidth_bytes_per_s = device.memory_bandwidth_bytes_per_s

    @cached_property
    def link(self) -> Link:
        """The device's own link to the host."""
        machine = self.machine
        return load_link(self.device.host_link.link_name) if machine is None else machine.link_of(machine.names[0])

    @cached_property
    def copy_latency_s(self) -> Any:
        """Time before the first byte of a copy arrives. [s]"""
        return self.link.latency_s if self.machine is None else self.machine.copy_latency_s

    def profile_of(self, framework: str | Path | FrameworkProfile) -> FrameworkProfile:
        """Return the framework; of a name, its libraries and the link are loaded with it, as a step wants all."""
        if type(framework) is not str or self.machine is not None:
            return super().profile_of(framework)
        self._files = files = _files_of((framework, self.architecture, self.device.host_link.link_name))
        self.link = files.link
        return files.profile

    def libraries(self, profile: FrameworkProfile, override: str | Path | LibraryProfile | None) -> Libraries:
        """Return the libraries a framework uses here; see ``Target.libraries``."""
        if override is None and self._files is not None and self._files.profile is profile:
            return self._files.libraries
        return super().libraries(profile, override)

    @cached_property
    def specs_by_place(self) -> dict[str, SpecFile]:  # type: ignore[override]
        """The files of the hardware by kind folder and stem, the GPU's first."""
        host, machine = self.host, self.machine
        specs: dict[str, SpecFile] = {f"devices/{self.device.stem}": self.device}
        specs[f"links/{self.link.family.stem}"] = self.link.family
        if host is not None:
            specs[f"devices/{host.stem}"] = host
        if machine is not None:
            specs[f"systems/{machine.system.file.stem}"] = machine.system.file
        return specs

    @cached_property
    def capacity_bytes(self) -> float:  # type: ignore[override]
        """Memory that a program sees. [B]"""
        return self.device.usable_memory_bytes

    @cached_property
    def context_bytes(self) -> float:  # type: ignore[override]
        """Memory that a context takes. [B]"""
        return self.device.context_bytes

    def behind(self, hosts: Mapping[str, str]) -> Target:
        """Return the GPU in the machine that it stands in, if that is known of a device with the same content."""
        if self.machine is not None:
            return self
        alike = (host for name, host in hosts.items() if load_device(name).identity == self.device.identity)
        host = next(alike, None)
        return self if host is None else GpuTarget(self.device, host=load_machine(host).processor)

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
        return self if self.machine is None else self.on(self.machine.with_workers(worker_count))

    def on(self, machine: Machine) -> GpuTarget:
        """Return the same device as one of those of another job, which share the way to them.

        Parameters
        ----------
        machine : Machine
            The job's part of a system. [-]

        Returns
        -------
        GpuTarget
            The target. [-]
        """
        return GpuTarget(machine.device, host=self.host, machine=machine)

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
        if self.machine is not None:
            notes += (*self._of_board(self.machine), *self.machine.system.remarks)
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

    def _of_board(self, machine: Machine) -> tuple[str, ...]:
        """Return what sharing a board costs a die."""
        board = self.device.board
        if board is None or not machine.shares_boards:
            return ()
        clock = f"{board.shared_clock_fraction:.1%} of the clock of one alone"
        return (f"dies of a board work at once: each keeps {clock}, and all workers are taken to be that slow",)

    def numbers(
        self, profile: FrameworkProfile, libraries: Libraries, *, dtype: str, factors: Factors = NO_FACTORS
    ) -> ProcessorNumbers:
        """Return the plain numbers of the GPU, its libraries and the framework."""
        if factors is not NO_FACTORS:
            return self._numbers(profile, libraries, dtype=dtype, factors=factors)
        kept = self._plain
        if kept is None or kept[0] is not profile or kept[1] is not libraries or kept[2] != dtype:
            numbers = self._numbers(profile, libraries, dtype=dtype, factors=factors)
            self._plain = kept = profile, libraries, dtype, numbers
        return kept[3]

    def _numbers(
        self, profile: FrameworkProfile, libraries: Libraries, *, dtype: str, factors: Factors
    ) -> ProcessorNumbers:
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
            return NO_COPY
        stated = (
            {"typical_efficiency": self.link.effective_bandwidth_bytes_per_s}
            if pinned and profile.feed.pinned
            else {"pageable_efficiency": self.link.pageable_bandwidth_bytes_per_s}
        )
        (bandwidth,) = scaled(stated, place=f"links/{self.link.family.stem}/", factors=factors).values()
        staging_s = staging_time(profile, self.processor, items, batch_size=batch_size, factors=factors)
        return Copy(
            host_s=self.host_slowdown(factors) * staging_s,
            latency_s=len(items) * self.copy_latency_s,
            copied_bytes=batch_size * sum([item.bytes_per_sample for item in items]),
            bytes_per_s=bandwidth,
        )
