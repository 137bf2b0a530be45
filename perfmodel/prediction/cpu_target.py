"""CPU sockets with their threads, made into plain numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from perfmodel.hardware.cpu import Cpu
from perfmodel.hardware.system import System
from perfmodel.prediction.arguments import whole_number
from perfmodel.prediction.copies import Copy
from perfmodel.prediction.cpu import CpuNumbers, cpu_numbers
from perfmodel.prediction.scaling import NO_FACTORS, Factors
from perfmodel.prediction.target import Libraries, Target, staging_time
from perfmodel.records import ELEMENT_BYTES

if TYPE_CHECKING:
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.measurements.run import FeedItem
    from perfmodel.prediction.step_time import ProcessorNumbers


class CpuTarget(Target):
    """All sockets of a machine, or one socket by itself."""

    processor = "cpu"
    roles = ("cpu_blas",)

    def __init__(self, cpu: Cpu, *, system: System | None, threads: int | None) -> None:
        self.cpu, self.system = cpu, system
        hardware_threads = cpu.thread_count if system is None else system.thread_count
        cores = cpu.core_count if system is None else system.core_count
        self.core_count = cores
        self.socket_count = 1 if system is None else system.socket_count
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
        self.bandwidth_bytes_per_s = (cpu if system is None else system).memory_bandwidth_bytes_per_s

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
        return Copy(host_s=staging_time(profile, self.processor, items, batch_size=batch_size, factors=factors))
