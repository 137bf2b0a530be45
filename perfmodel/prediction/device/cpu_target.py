"""CPU sockets, their BLAS and a framework as the plain numbers that time a step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from perfmodel.cost.cpu import (
    capped_efficiency,
    cpu_matmul_time,
    cpu_scalar_time,
    cpu_stream_time,
    numa_bandwidth,
    register_tiles,
    subnormal_assist_time,
)
from perfmodel.cost.threads import (
    effective_clock,
    fork_join_time,
    serial_below,
    serial_if_narrow,
    thread_speedup,
    usable_threads,
)
from perfmodel.derived import derived_property
from perfmodel.framework.profile import in_base_units
from perfmodel.hardware.computing_hosts import computing_on_hosts
from perfmodel.hardware.cpu import Cpu
from perfmodel.hardware.system import System
from perfmodel.numeric import exceeds, first_array_length, minimum, where
from perfmodel.prediction.arguments.checks import whole_number
from perfmodel.prediction.device.factors import (
    NO_FACTORS,
    Factors,
    device_constants,
    framework_constants,
    library_constants,
    scaled,
    scaled_constant,
)
from perfmodel.prediction.device.named_rows import by_row, distinct_names
from perfmodel.prediction.device.step_time import ProcessorNumbers
from perfmodel.prediction.device.system_part import SystemPart
from perfmodel.prediction.device.target import Copy, Feed, Libraries, Target, staging_time
from perfmodel.records import ELEMENT_BYTES
from perfmodel.symbolic import Quantity

if TYPE_CHECKING:
    from perfmodel.framework.profile import FrameworkProfile
    from perfmodel.hardware.link import Link


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuNumbers(ProcessorNumbers):
    """Plain numbers of CPU cores, a BLAS and a framework at one thread count."""

    threads: Quantity
    matmul_threads: Quantity
    clock_hz: Quantity
    core_bandwidth_bytes_per_s: Quantity
    total_bandwidth_bytes_per_s: Quantity
    cache_bytes: Quantity
    core_cache_bandwidth_bytes_per_s: Quantity
    of_products: Mapping[str, Quantity]
    """Numbers of matrix products, as :func:`cpu_matmul_time` takes them."""
    matmul_law: Mapping[str, Quantity]
    pass_law: Mapping[str, Quantity]
    physical_cores: Quantity
    smallest_parallel_product: Quantity
    smallest_side_per_thread: Quantity
    smallest_parallel_bytes: Quantity
    fork_join_s: Quantity
    cycles_per_flop: Mapping[str, Quantity]
    cycles_per_byte: Mapping[str, Quantity]
    element_bytes: int
    dispatch_s: Quantity
    step_overhead_s: Quantity
    pass_slowdown: Quantity = 1.0
    subnormal_assist_cycles: Quantity = 0.0
    launch_s: Quantity = 0.0
    library_issue_s: Quantity = 0.0
    overlap_exponent: float = 1.0

    @property
    def configuration_count(self) -> int | None:
        """Length of those numbers that are arrays over configurations; None if all are scalars. [1]"""
        return first_array_length(getattr(self, field.name) for field in fields(self))

    def matmul_times(self, columns: Mapping[str, Quantity], efficiency: tuple[str, ...]) -> tuple[Quantity, Quantity]:
        """Compute and memory seconds of one launch of each matmul row. [s]

        Packing is part of the compute time: it alternates with arithmetic on the same core.
        """
        m, n, k, count = (columns[name] for name in ("m", "n", "k", "count"))
        # Independent products share the threads, whatever their size.
        work = m * n * k * count
        tile_m, tile_n = self.of_products["tile_m"], self.of_products["tile_n"]
        tiles = register_tiles(m=m, n=n, count=count, tile_m=tile_m, tile_n=tile_n)
        threads = serial_if_narrow(
            threads=self.matmul_threads, m=m, n=n, count=count, smallest_side_per_thread=self.smallest_side_per_thread
        )
        threads = serial_below(
            threads=usable_threads(threads=threads, pieces=tiles),
            work=work,
            smallest_parallel_work=self.smallest_parallel_product,
        )
        speedup = thread_speedup(threads=threads, physical_cores=self.physical_cores, **self.matmul_law)
        compute_s = cpu_matmul_time(
            m=m,
            n=n,
            k=k,
            count=count,
            speedup=speedup,
            core_bandwidth_bytes_per_s=self.core_bandwidth_bytes_per_s,
            total_bandwidth_bytes_per_s=self.total_bandwidth_bytes_per_s,
            cache_bytes=self.cache_bytes,
            element_bytes=self.element_bytes,
            **self.of_products,
        )
        return compute_s + self._region_s(threads), 0.0

    def stream_times(self, columns: Mapping[str, Quantity], efficiency: tuple[str, ...]) -> tuple[Quantity, Quantity]:
        """Compute and memory seconds of one launch of each stream row. [s]"""
        moved_bytes = columns["read_bytes"] + columns["written_bytes"]
        names, code_of_row = distinct_names(efficiency)
        cycles_per_flop, cycles_per_byte = (
            by_row([cycles.get(name, cycles["default"]) for name in names], code_of_row, axes=moved_bytes.ndim)
            for cycles in (self.cycles_per_flop, self.cycles_per_byte)
        )
        threads = serial_below(
            threads=self.threads, work=moved_bytes, smallest_parallel_work=self.smallest_parallel_bytes
        )
        speedup = thread_speedup(threads=threads, physical_cores=self.physical_cores, **self.pass_law)
        compute_s = self.pass_slowdown * cpu_scalar_time(
            flop_count=columns["flop_count"],
            cycles_per_flop=cycles_per_flop,
            moved_bytes=moved_bytes,
            cycles_per_byte=cycles_per_byte,
            clock_hz=self.clock_hz,
            speedup=speedup,
        )
        memory_s = cpu_stream_time(
            moved_bytes=moved_bytes,
            speedup=speedup,
            core_bandwidth_bytes_per_s=self.core_bandwidth_bytes_per_s / self.pass_slowdown,
            total_bandwidth_bytes_per_s=self.total_bandwidth_bytes_per_s,
            cache_bytes=self.cache_bytes,
            core_cache_bandwidth_bytes_per_s=self.core_cache_bandwidth_bytes_per_s / self.pass_slowdown,
        )
        region_s = self._region_s(speedup)  # an unthreaded pass has a speed-up of one
        return compute_s + region_s, memory_s + region_s

    def subnormal_time(self, product_count: Quantity) -> Quantity:
        """Extra time of SIMD products with a subnormal operand or result. [s]"""
        return subnormal_assist_time(
            product_count=product_count,
            assist_cycles=self.subnormal_assist_cycles,
            clock_hz=self.clock_hz,
            speedup=thread_speedup(threads=self.threads, physical_cores=self.physical_cores, **self.matmul_law),
        )

    def _region_s(self, parallelism: Quantity) -> Quantity:
        """Fork and join time of one parallel region; zero on one thread. [s]"""
        return where(exceeds(parallelism, 1.0), self.fork_join_s, 0.0)


def _total_bandwidth(local: Quantity, system: System | None, *, active_sockets: int) -> Quantity:
    """Bandwidth of all active sockets together, from the local bandwidth of one socket. [B/s]"""
    remote = None if system is None else system.remote_memory_bandwidth_bytes_per_s
    if system is None or remote is None or active_sockets == 1:
        return local
    interleaved = active_sockets * numa_bandwidth(
        local_bytes_per_s=local, remote_bytes_per_s=remote, remote_share=system.remote_fraction
    )
    return minimum(interleaved, min(active_sockets, system.memory_socket_count) * local)


POLICY = ("smt_gain", "oversubscription_penalty")
"""Framework constants for more threads than cores: gain by SMT, loss by waiting."""


def _law(serial_fraction: Quantity, constants: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """Arguments of the thread law; beyond the core count they include SMT and oversubscription."""
    return {"serial_fraction": serial_fraction} | {name: constants[name] for name in POLICY if name in constants}


def _clock_hz(cpu: Cpu, isa: str | None, active_cores: float) -> float:
    """Clock of a socket with a given number of busy cores and an instruction set. [Hz]"""
    clocks = [cpu.clock_hz(active_cores=core + 1, isa=isa) for core in range(cpu.core_count)]
    return float(effective_clock(active_cores=active_cores, clock_hz_by_active_cores=clocks))


class CpuTarget(Target):
    """All sockets of a machine, or a single socket."""

    processor = "cpu"
    roles = ("cpu_blas",)
    threads: int

    def __init__(
        self, cpu: Cpu, *, system: System | None, threads: int | None, system_part: SystemPart | None = None
    ) -> None:
        self.cpu, self.system, self.system_part, self._asked_threads = cpu, system, system_part, threads
        machine: Cpu | System = cpu if system is None else system
        self.name, self.core_count = machine.name, machine.core_count
        if system_part is not None and system_part.system.node_count > 1:
            self.name = system_part.describe(machine.name)
        self.socket_count = 1 if system is None else system.socket_count
        self.threads = self.core_count
        if threads is not None:
            self.threads = whole_number("threads", threads, maximum=machine.thread_count)
        self.architecture = cpu.architecture
        self.processor_spec = cpu
        self.specs_by_place = {f"devices/{cpu.stem}": cpu}
        if system is not None:
            self.specs_by_place[f"systems/{system.file.stem}"] = system.file
        if system_part is not None:
            self.specs_by_place[f"systems/{system_part.system.file.stem}"] = system_part.system.file
        self.capacity_bytes = float("inf") if system is None else system.memory_capacity_bytes
        self.context_bytes = 0.0
        self.bandwidth_bytes_per_s = machine.memory_bandwidth_bytes_per_s

    def numbers(
        self, profile: FrameworkProfile, libraries: Libraries, *, dtype: str, factors: Factors = NO_FACTORS
    ) -> ProcessorNumbers:
        """Join the facts of cores and memory, the BLAS's constants and the framework's into plain numbers."""
        cpu, system, library = self.cpu, self.system, libraries["cpu_blas"]
        threads, cores = self.threads, self.core_count
        active_sockets = min(threads, self.socket_count)
        active_cores = min(threads / active_sockets, cpu.core_count)
        isa = [known for known in cpu.isas if known in library.isa][-1]  # the newest instruction set that both have
        blas = in_base_units(library_constants(library, cpu, factors=factors))
        unneeded = POLICY if threads <= cores else ()
        constants = framework_constants(profile, "cpu", factors=factors, unneeded=unneeded)
        memory = in_base_units(device_constants(cpu, factors=factors))
        cycles_per_flop, cycles_per_byte = (
            scaled(getattr(profile.cpu, table), place=f"frameworks/{profile.stem}/cpu.{table}", factors=factors)
            for table in ("cycles_per_flop", "cycles_per_byte")
        )
        clock = scaled_constant(1.0, f"devices/{cpu.stem}/clock_base_ghz", factors=factors)
        simd_clock_hz = clock * _clock_hz(cpu, isa, active_cores)
        of_dtype = blas["fp64_efficiency"] if dtype == "fp64" else 1.0
        return CpuNumbers(
            threads=threads,
            matmul_threads=minimum(threads, constants["blas_threads_per_core"] * cores),
            clock_hz=clock * _clock_hz(cpu, None, active_cores),
            core_bandwidth_bytes_per_s=memory["bandwidth_per_core_gb_per_s"],
            total_bandwidth_bytes_per_s=_total_bandwidth(
                cpu.memory_bandwidth_bytes_per_s * memory["efficiency"], system, active_sockets=active_sockets
            ),
            cache_bytes=active_sockets * cpu.l3_bytes,
            core_cache_bandwidth_bytes_per_s=cpu.cache.l3_bytes_per_cycle * clock * _clock_hz(cpu, None, active_cores),
            of_products={
                "peak_flop_per_s_per_core": cpu.flop_per_cycle(dtype, isa=isa) * simd_clock_hz,
                "efficiency": capped_efficiency(
                    efficiency=blas["gemm_efficiency"] * constants["blas_efficiency"] * of_dtype
                ),
                "packing_efficiency": blas["packing_efficiency"],
                "core_copy_bytes_per_s": blas["packing_bytes_per_cycle"] * simd_clock_hz,
                "tile_m": blas["register_tile_rows"],
                "tile_n": blas["register_tile_columns"],
                "result_passes": blas["result_passes"],
            },
            matmul_law=_law(minimum(blas["serial_fraction"] * constants["blas_serial_factor"], 1.0), constants),
            pass_law=_law(constants["pass_serial_fraction"], constants),
            physical_cores=cores,
            smallest_parallel_product=blas["smallest_parallel_product"],
            smallest_side_per_thread=blas["smallest_side_per_thread"],
            smallest_parallel_bytes=constants["smallest_parallel_bytes"],
            fork_join_s=fork_join_time(threads=min(threads, cores), barrier_s=blas["fork_join_us"]),
            cycles_per_flop=cycles_per_flop,
            cycles_per_byte=cycles_per_byte,
            element_bytes=ELEMENT_BYTES[dtype],
            pass_slowdown=constants["pass_slowdown"],
            subnormal_assist_cycles=cpu.subnormal_assist_cycles,
            dispatch_s=constants["dispatch_us"],
            step_overhead_s=constants["step_overhead_us"],
        )

    @derived_property
    def fed_part(self) -> SystemPart | None:
        """The machine itself, or its part of a cluster; None for a socket without a machine."""
        if self.system_part is not None or self.system is None:
            return self.system_part
        return SystemPart(system=computing_on_hosts(self.system), worker_count=1)

    def beside_server(self) -> CpuTarget:
        """Return the same machine as part of a system of one, so that its memory can hold a server."""
        part = self.fed_part
        return self if part is None or part is self.system_part else self.on(part)

    @derived_property
    def link(self) -> Link:
        """The link between a machine of a cluster and the network."""
        assert self.system_part is not None
        return self.system_part.network_link

    def on(self, system_part: SystemPart) -> CpuTarget:
        """Return the same machines in another part of the cluster."""
        return CpuTarget(self.cpu, system=system_part.machine, threads=self._asked_threads, system_part=system_part)

    @property
    def is_oversubscribed(self) -> bool:
        """Whether there are more threads than physical cores."""
        return self.threads > self.core_count

    def scheduler_threads(self, profile: FrameworkProfile) -> int:
        """Operations that compute at the same time: one per core if a scheduler runs each on one thread."""
        own_threads = self.threads == 1 and profile.cpu.in_base_units_by_name.get("scheduler_threads_per_core", 0) > 0
        return self.core_count if own_threads else 1

    def subnormal_time(self, numbers: ProcessorNumbers, product_count: float) -> Any:
        """Time of the microcode that handles products of subnormal numbers. [s]"""
        assert isinstance(numbers, CpuNumbers)
        return numbers.subnormal_time(product_count)

    def peak_flop_per_s(self, dtype: str) -> float:
        """SIMD peak of the cores in use. [FLOP/s]"""
        busy_sockets = min(self.threads, self.socket_count)
        cores_of_socket = min(self.threads / busy_sockets, self.cpu.core_count)
        of_socket = self.cpu.peak_flop_per_s(dtype, active_cores=math.ceil(cores_of_socket))
        return busy_sockets * of_socket * cores_of_socket / math.ceil(cores_of_socket)

    def copy_of(
        self,
        profile: FrameworkProfile,
        feed: Feed,
        *,
        batch_size: float,
        pinned: bool,
        factors: Factors = NO_FACTORS,
    ) -> Copy:
        """Staging of these arrays; they need no copy, because the host's memory is the device's."""
        return Copy(host_s=staging_time(profile, self.processor, feed, batch_size=batch_size, factors=factors))
