"""What a step runs on, as prediction sees it: hides whether that is a GPU or CPU sockets."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from perfmodel.errors import ArgumentError
from perfmodel.framework.profile import load_framework
from perfmodel.hardware.catalogue import load_libraries, load_library
from perfmodel.hardware.device import Runnable
from perfmodel.hardware.library import LibraryProfile, LibrarySupport
from perfmodel.prediction.device.copies import Copy
from perfmodel.prediction.device.factors import NO_FACTORS, Factors, framework_constant
from perfmodel.prediction.device.system_part import SystemPart

if TYPE_CHECKING:
    from perfmodel.framework.kernel_table import KernelTable
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.graph import LayerGraph
    from perfmodel.hardware.measured_machine import MeasuredMachine
    from perfmodel.hardware.source import SpecFile
    from perfmodel.measurements.table import FeedItem
    from perfmodel.prediction.device.step_time import ProcessorNumbers

Libraries = Mapping[str, LibraryProfile]
"""Libraries in use by the role they fill: ``gpu_blas``, ``gpu_dnn``, ``cpu_blas``."""


def own_libraries(profile: FrameworkProfile, roles: tuple[str, ...], *, architecture: str) -> Libraries:
    """Return the libraries that a framework names for some roles on an architecture."""
    names = [profile.library.name_of(role, architecture) for role in roles]
    return dict(zip(roles, load_libraries(tuple(names)), strict=True))


class Target(ABC):
    """What a step runs on: hides from prediction whether that is a GPU, CPU sockets, or a machine that was measured."""

    processor: str
    roles: ClassVar[tuple[str, ...]]
    name: str
    threads: int | None
    architecture: str
    processor_spec: Runnable
    specs_by_place: dict[str, SpecFile]
    capacity_bytes: float
    context_bytes: float
    bandwidth_bytes_per_s: float
    system_part: SystemPart | None = None
    measured: MeasuredMachine | None = None
    shared_bytes_per_s: float = math.inf
    socket_count: int = 1

    @property
    def specs(self) -> tuple[SpecFile, ...]:
        """The files of the hardware, the processor's first."""
        return tuple(self.specs_by_place.values())

    @property
    def lowered_for(self) -> str:
        """For what operations are lowered: the kind of processor, or ``measured``."""
        return self.processor

    @property
    def takes_parts(self) -> bool:
        """Whether parts of a network or of a mini-batch can be timed by themselves."""
        return True

    def framework(self, given: str | Path | FrameworkProfile) -> str | Path | FrameworkProfile:
        """Return the framework to use here: the one that was asked for, unless the target has its own."""
        return given

    def profile_of(self, framework: str | Path | FrameworkProfile) -> FrameworkProfile:
        """Return the profile of the framework to use here."""
        return load_framework(self.framework(framework))

    def software(self, profile: FrameworkProfile) -> str:
        """Return what runs the kernels, for people."""
        return profile.name

    def sources(self, profile: FrameworkProfile, libraries: Libraries) -> tuple[SpecFile, ...]:
        """Return the files whose numbers time a step here: framework, libraries and hardware."""
        return (profile, *libraries.values(), *self.specs)

    def in_step(
        self, numbers: ProcessorNumbers, table: KernelTable, graph: LayerGraph, *, batch_size: float
    ) -> ProcessorNumbers:
        """Return the numbers as they are in one step; where kernels do not depend on one another, the same ones."""
        del table, graph, batch_size
        return numbers

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

    def on(self, system_part: SystemPart) -> Target:
        """Return the target as one of other devices that share the way to them; itself where there is only one."""
        del system_part
        return self

    def host_slowdown(self, factors: Factors) -> Any:
        """Return how much longer the host code takes than on the hosts that framework files speak of. [1]"""
        del factors
        return 1.0

    def libraries(self, profile: FrameworkProfile, override: str | Path | LibraryProfile | None) -> Libraries:
        """Return the libraries a framework uses here, one of them replaced by ``override`` if given."""
        chosen = own_libraries(profile, self.roles, architecture=self.architecture)
        if override is None:
            return chosen
        library = override if isinstance(override, LibraryProfile) else load_library(override)
        role = f"{library.processor}_{library.kind}"
        if role not in self.roles:
            allowed = f"a library for a {self.processor.upper()} ({' or '.join(self.roles)}), not {role}"
            raise ArgumentError("library", library.name, allowed)
        return {**chosen, role: library}

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


def staging_time(
    profile: FrameworkProfile, processor: str, items: tuple[FeedItem, ...], *, batch_size: float, factors: Factors
) -> Any:
    """Return the time the host spends copying arrays of the script into the framework's own tensors."""
    rate = framework_constant(profile, processor, HOST_COPY, factors=factors)
    copied = sum([item.bytes_per_sample for item in items if item.origin == "interpreter"])
    return batch_size * copied / rate
