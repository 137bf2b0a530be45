"""Target: the device or system that a step runs on, of any kind, and copies to it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from perfmodel.cost.transfer import copy_time
from perfmodel.derived import derived_property, record
from perfmodel.errors import ArgumentError
from perfmodel.framework.profile import FrameworkProfile, load_framework
from perfmodel.hardware.catalogue import load_libraries, load_library
from perfmodel.hardware.device import Runnable
from perfmodel.hardware.library import LibraryProfile, LibrarySupport
from perfmodel.numeric import minimum
from perfmodel.prediction.device.factors import NO_FACTORS, Factors, framework_constant
from perfmodel.prediction.device.system_part import SystemPart
from perfmodel.symbolic import Quantity

if TYPE_CHECKING:
    from perfmodel.framework.kernel_table import KernelTable
    from perfmodel.graph import LayerGraph
    from perfmodel.hardware.measured_machine import MeasuredMachine
    from perfmodel.hardware.source import SpecFile
    from perfmodel.measurements.table import FeedItem
    from perfmodel.prediction.device.step_time import ProcessorNumbers


class Copy(NamedTuple):
    """Arrays of a mini-batch on their way to a device."""

    host_s: Quantity = 0.0
    latency_s: float = 0.0
    copied_bytes: Quantity = 0.0
    bytes_per_s: Quantity = math.inf

    @property
    def is_empty(self) -> bool:
        """Whether nothing is staged or copied."""
        if self.latency_s:
            return False
        is_staged = not isinstance(self.host_s, float) or self.host_s
        return not (is_staged or np.any(self.copied_bytes))

    def repeated(self, count: int) -> Copy:
        """Join ``count`` such copies, one after the other, into one."""
        if count == 1 or self is NO_COPY:
            return self
        return Copy(
            host_s=count * self.host_s,
            latency_s=count * self.latency_s,
            copied_bytes=count * self.copied_bytes,
            bytes_per_s=self.bytes_per_s,
        )

    def time(self, *, shared_bytes_per_s: Quantity = math.inf) -> Quantity:
        """Duration; other copies may leave only a share of the bandwidth. [s]"""
        if self is NO_COPY or self.is_empty:
            return 0.0
        return self.host_s + copy_time(
            size_bytes=self.copied_bytes,
            bandwidth_bytes_per_s=minimum(self.bytes_per_s, shared_bytes_per_s),
            latency_s=self.latency_s,
        )


@record
class Feed:
    """Arrays of a mini-batch that are copied together."""

    items: tuple[FeedItem, ...]

    @derived_property
    def bytes_per_sample(self) -> int:
        """What is copied of each sample. [B]"""
        return sum([item.bytes_per_sample for item in self.items])

    @derived_property
    def staged_bytes_per_sample(self) -> int:
        """What the host first copies from arrays of the script into tensors of the framework. [B]"""
        return sum([item.bytes_per_sample for item in self.items if item.origin == "interpreter"])


NO_COPY = Copy()
"""Nothing is staged or copied."""


Libraries = Mapping[str, LibraryProfile]
"""Libraries in use by role: ``gpu_blas``, ``gpu_dnn``, ``gpu_attention``, ``gpu_attention_wide``, ``cpu_blas``."""


def own_libraries(profile: FrameworkProfile, roles: tuple[str, ...], *, architecture: str) -> Libraries:
    """Load the libraries that a framework names for some roles on an architecture."""
    names = {role: profile.library.name_of(role, architecture) for role in roles}
    filled = {role: name for role, name in names.items() if name is not None}
    return dict(zip(filled, load_libraries(tuple(filled.values())), strict=True))


class Target(ABC):
    """Device or system that a step runs on: a GPU, CPU sockets or a measured machine behind one interface."""

    processor: str
    roles: ClassVar[tuple[str, ...]]
    attention_roles: ClassVar[tuple[str, ...]] = ()
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
    copy_latency_s: Any = 0.0
    socket_count: int = 1
    core_count: int = 1

    @property
    def specs(self) -> tuple[SpecFile, ...]:
        """Files of the hardware, the processor's first."""
        return tuple(self.specs_by_place.values())

    @property
    def fed_part(self) -> SystemPart | None:
        """Part of a system whose storage and cores feed it; None without a system."""
        return self.system_part

    def beside_server(self) -> Target:
        """Return the same hardware for a job with a server, as part of its system if it has one."""
        return self

    @property
    def lowered_for(self) -> str:
        """Kernel set that operations are lowered to: the kind of processor, or ``measured``."""
        return self.processor

    @property
    def takes_parts(self) -> bool:
        """Whether parts of a network or mini-batch can be timed separately."""
        return True

    def framework(self, framework: str | Path | FrameworkProfile) -> str | Path | FrameworkProfile:
        """Framework to use: the requested one, unless the target has its own."""
        return framework

    def profile_of(self, framework: str | Path | FrameworkProfile) -> FrameworkProfile:
        """Load the profile of the framework in use."""
        return load_framework(self.framework(framework))

    def software(self, profile: FrameworkProfile) -> str:
        """Name of the software that runs the kernels."""
        return profile.name

    def sources(self, profile: FrameworkProfile, libraries: Libraries) -> tuple[SpecFile, ...]:
        """Files whose numbers time a step: framework, libraries and hardware."""
        return (profile, *libraries.values(), *self.specs)

    def in_step(
        self, numbers: ProcessorNumbers, table: KernelTable, graph: LayerGraph, *, batch_size: float
    ) -> ProcessorNumbers:
        """Numbers within one step; unchanged if kernels do not affect each other."""
        return numbers

    @property
    def is_oversubscribed(self) -> bool:
        """Whether there are more threads than physical cores; never on a GPU."""
        return False

    def subnormal_time(self, numbers: ProcessorNumbers, product_count: float) -> Any:
        """Extra time for subnormal numbers; none on GPUs, which multiply them at full speed. [s]"""
        return 0.0

    def scheduler_threads(self, profile: FrameworkProfile) -> int:
        """Independent operations that compute at the same time. [1]"""
        return 1

    def behind(self, hosts: Mapping[str, str]) -> Target:
        """Put the target in its usual machine, if known; CPUs are their own host."""
        return self

    def with_workers(self, worker_count: int) -> Target:
        """Return the same target in a job with another number of workers, which share links."""
        return self if self.system_part is None else self.on(self.system_part.with_workers(worker_count))

    def on(self, system_part: SystemPart) -> Target:
        """Return the same target in another part of the system."""
        return self

    def host_slowdown(self, factors: Factors) -> Any:
        """Ratio of the time of host code to that on the hosts for which framework files are written. [1]"""
        return 1.0

    def libraries(
        self, profile: FrameworkProfile, override: str | Path | LibraryProfile | None, *, attends: bool = False
    ) -> Libraries:
        """Libraries in use here, one replaced by ``override``; those of attention only if a network ``attends``."""
        roles = (*self.roles, *self.attention_roles) if attends else self.roles
        chosen = own_libraries(profile, roles, architecture=self.architecture)
        if override is None:
            return chosen
        library = override if isinstance(override, LibraryProfile) else load_library(override)
        role = f"{library.processor}_{library.kind}"
        allowed_roles = (*self.roles, *self.attention_roles[:1])
        if role not in allowed_roles:
            allowed = f"a library for a {self.processor.upper()} ({' or '.join(allowed_roles)}), not {role}"
            raise ArgumentError("library", library.name, allowed)
        return {**chosen, role: library}

    def own_remarks(self, profile: FrameworkProfile, libraries: Libraries, *, dtype: str) -> list[str]:
        """Remarks specific to this kind of target."""
        return []

    def energy_variation(self, factors: Factors) -> Quantity:
        """Deviation of the energy of a FLOP among devices of the model, over its mean; 0 if no power limit acts. [1]"""
        del factors
        return 0.0

    def drawing(self, energy_ratio: Any) -> Target:
        """Return a target of the same model that draws this much more for a FLOP; itself where no power limit acts."""
        del energy_ratio
        return self

    @property
    def slowest_clock(self) -> float:
        """Clock that its power limit leaves, over that of a device that draws what its file states. [1]"""
        return 1.0

    def support(self, profile: FrameworkProfile, libraries: Libraries, *, dtype: str) -> LibrarySupport:
        """DNN-library features for a data type; none without such a library."""
        return LibrarySupport()

    @abstractmethod
    def numbers(
        self, profile: FrameworkProfile, libraries: Libraries, *, dtype: str, factors: Factors = NO_FACTORS
    ) -> ProcessorNumbers:
        """Plain numbers that time a step."""

    @abstractmethod
    def peak_flop_per_s(self, dtype: str) -> float:
        """Peak rate in a data type. [FLOP/s]"""

    @abstractmethod
    def copy_of(
        self,
        profile: FrameworkProfile,
        feed: Feed,
        *,
        batch_size: float,
        pinned: bool,
        factors: Factors = NO_FACTORS,
    ) -> Copy:
        """Staging and copy of these arrays of a mini-batch to the device."""

    def exchange_remarks(self, *, by_library: bool, as_measured: bool) -> list[str]:
        """Remarks on which measured sums and links time the exchanges of a job."""
        return []

    def remarks(self, profile: FrameworkProfile, libraries: Libraries, *, dtype: str) -> tuple[str, ...]:
        """Return notes for the user on this device, framework and library set."""
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
"""Framework constant that staging depends on."""


def staging_time(profile: FrameworkProfile, processor: str, feed: Feed, *, batch_size: float, factors: Factors) -> Any:
    """Time for the host to copy arrays of the script into the framework's tensors. [s]"""
    rate = framework_constant(profile, processor, HOST_COPY, factors=factors)
    return batch_size * feed.staged_bytes_per_sample / rate
