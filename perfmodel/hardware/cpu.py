"""A CPU: one socket, its SIMD rates and clocks by active cores, its caches and its memory channels."""

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, field_validator

from perfmodel.errors import ArgumentError, check_known, is_one_of
from perfmodel.hardware.device import Device, check_listed
from perfmodel.hardware.source import (
    Constant,
    Count,
    Fraction,
    InRange,
    PositiveNumber,
    SpecTable,
    at_most,
    checks,
    invalid,
)
from perfmodel.presentation.quantities import counted
from perfmodel.units import GIGA, MEGA

MEMORY_CHANNEL_BYTES: Final = 8
"""Width of one DDR channel. [B per transfer]."""

Isa = Literal["sse", "avx", "avx2", "avx512"]
"""SIMD instruction sets, oldest first."""

TurboClocks = Annotated[
    tuple[Annotated[PositiveNumber, AfterValidator(InRange(0.1, 10, "GHz"))], ...], Field(min_length=1)
]
"""Clock by active cores: the first entry is for one active core. [GHz]."""


def _check_turbo(turbo: tuple[float, ...], base: float) -> None:
    """Raise unless clocks never rise with more active cores and are never below base."""
    if list(turbo) != sorted(turbo, reverse=True):
        invalid("must not rise with more active cores")
    if turbo[-1] < base:
        invalid(f"must be at least the base clock = {base:g}")


class SimdRates(SpecTable):
    """Work of one core in one clock cycle by instruction set; only sets that the chip has.

    Attributes
    ----------
    sse, avx, avx2, avx512 : float or None
        Both multiply and add ports busy; a fused multiply-add counts as two. [FLOP/cycle]
    """

    sse: Annotated[PositiveNumber, AfterValidator(InRange(1, 1_024, "FLOP/cycle"))]
    avx: Annotated[PositiveNumber, AfterValidator(InRange(1, 1_024, "FLOP/cycle"))] | None = None
    avx2: Annotated[PositiveNumber, AfterValidator(InRange(1, 1_024, "FLOP/cycle"))] | None = None
    avx512: Annotated[PositiveNumber, AfterValidator(InRange(1, 1_024, "FLOP/cycle"))] | None = None


class FlopPerCycle(SpecTable):
    """SIMD rates by data type.

    Attributes
    ----------
    fp32, fp64 : SimdRates
        Rates of one core. [FLOP/cycle]
    """

    fp32: SimdRates
    fp64: SimdRates

    @checks("fp64", beside=("fp32",))
    @staticmethod
    def _same_instruction_sets(fp64: SimdRates, fp32: SimdRates) -> None:
        if fp32.model_fields_set != fp64.model_fields_set:
            invalid(f"must list the same instruction sets as fp32: {', '.join(sorted(fp32.model_fields_set))}")


class WideSimdClock(SpecTable):
    """Lower clocks that some chips run under wide SIMD load.

    Attributes
    ----------
    isas : tuple of str
        Instruction sets that lower the clock. [-]
    base_ghz : float
        Base clock under such load. [GHz]
    turbo_ghz_by_active_cores : tuple of float
        Turbo clock under such load. [GHz]
    """

    isas: Annotated[tuple[Isa, ...], Field(min_length=1)]
    base_ghz: Annotated[PositiveNumber, AfterValidator(InRange(0.1, 10, "GHz"))]
    turbo_ghz_by_active_cores: TurboClocks

    _turbo_falls_to_base = checks("turbo_ghz_by_active_cores", beside=("base_ghz",))(_check_turbo)


class CpuCache(SpecTable):
    """Caches of a socket.

    Attributes
    ----------
    l2_kib : float
        Second-level cache of one core. [KiB]
    l3_mib : float
        Last-level cache that all cores share. [MiB]
    l3_bytes_per_cycle : float
        Bytes read and written that one core streams through the last-level cache. [B/cycle]
    """

    l2_kib: Annotated[PositiveNumber, AfterValidator(InRange(16, 65_536, "KiB"))]
    l3_mib: Annotated[PositiveNumber, AfterValidator(InRange(0.1, 4_096, "MiB"))]
    l3_bytes_per_cycle: Annotated[PositiveNumber, AfterValidator(InRange(0.5, 128, "B/cycle"))]


class CpuMemory(SpecTable):
    """Memory channels of a socket; the system states the capacity.

    Attributes
    ----------
    channel_count : int
        Channels. [1]
    transfer_rate_mt_per_s : float
        Transfers of one channel, of 8 B each. [MT/s]
    bandwidth_gb_per_s : float
        Peak of all channels of the socket. [GB/s]
    efficiency : float
        Share of the peak that a stream over all cores reaches. [1]
    bandwidth_per_core_gb_per_s : float
        Bandwidth that one thread can stream. [GB/s]
    """

    channel_count: Count
    transfer_rate_mt_per_s: Annotated[PositiveNumber, AfterValidator(InRange(100, 50_000, "MT/s"))]
    bandwidth_gb_per_s: Annotated[PositiveNumber, AfterValidator(InRange(1, 5_000, "GB/s"))]
    efficiency: Fraction
    bandwidth_per_core_gb_per_s: Annotated[PositiveNumber, AfterValidator(InRange(0.1, 1_000, "GB/s"))]

    @checks("bandwidth_gb_per_s", beside=("channel_count", "transfer_rate_mt_per_s"))
    @staticmethod
    def _bandwidth_matches_channels(bandwidth: float, channels: int, rate: float) -> None:
        computed = channels * rate * MEGA * MEMORY_CHANNEL_BYTES / GIGA
        check_listed(bandwidth, computed, formula="channel_count * transfer_rate_mt_per_s * 8 B")

    _a_core_is_not_faster_than_the_socket = field_validator("bandwidth_per_core_gb_per_s")(
        at_most("bandwidth_gb_per_s")
    )

    @property
    def constant(self) -> dict[str, Constant]:
        """Unit, meaning and range of the fields that are not from a data sheet, so that a fit may scale them."""
        return {
            "bandwidth_per_core_gb_per_s": Constant(
                unit="GB/s",
                meaning="memory bandwidth that one thread can stream",
                valid_min=0.1,
                valid_max=self.bandwidth_gb_per_s,
            ),
            "efficiency": Constant(
                unit="1",
                meaning="share of the peak of all memory channels that a stream over all cores reaches",
                valid_min=0.05,
                valid_max=1.0,
            ),
        }


_CALL_SLOWDOWN: Final = Constant(
    unit="1",
    meaning="time of host code and driver on one thread over that of the hosts that dispatch is stated for",
    valid_min=0.1,
    valid_max=10.0,
)


class Cpu(Device):
    """One CPU socket.

    Attributes
    ----------
    core_count : int
        Physical cores. [1]
    threads_per_core : int
        Hardware threads of a core. [1]
    clock_base_ghz : float
        Base clock. [GHz]
    turbo_ghz_by_active_cores : tuple of float
        Turbo clock; the first entry is for one active core. [GHz]
    wide_simd_clock : WideSimdClock or None
        Lower clocks under wide SIMD load, if the chip has them. [-]
    flop_per_cycle_per_core : FlopPerCycle
        SIMD rates. [FLOP/cycle]
    cache : CpuCache
        Caches. [-]
    memory : CpuMemory
        Memory channels. [-]
    subnormal_assist_cycles : float
        Cycles that microcode takes for a product with a subnormal operand or result; 0 if there is no assist.
        [cycle]
    call_slowdown : float
        Time that one thread takes to run a framework's host code and the GPU's driver, divided by that on the hosts for
        which framework files state their dispatch. [1]
    """

    kind: Literal["cpu"]
    scope: Literal["one socket"]
    core_count: Count
    threads_per_core: Count
    clock_base_ghz: Annotated[PositiveNumber, AfterValidator(InRange(0.1, 10, "GHz"))]
    turbo_ghz_by_active_cores: TurboClocks
    wide_simd_clock: WideSimdClock | None = None
    flop_per_cycle_per_core: FlopPerCycle
    cache: CpuCache
    memory: CpuMemory
    subnormal_assist_cycles: Annotated[float, Field(ge=0, le=1000, strict=True)] = 0.0
    call_slowdown: Annotated[PositiveNumber, AfterValidator(InRange(0.1, 10, "times"))] = 1.0

    @checks("turbo_ghz_by_active_cores", beside=("clock_base_ghz", "core_count"))
    @staticmethod
    def _turbo_fits_cores(turbo: tuple[float, ...], base: float, core_count: int) -> None:
        if len(turbo) != core_count:
            invalid(f"must have core_count = {core_count} entries, one per number of active cores")
        _check_turbo(turbo, base)

    @checks("wide_simd_clock", beside=("turbo_ghz_by_active_cores", "clock_base_ghz"))
    @staticmethod
    def _wide_clock_is_lower(wide: WideSimdClock | None, turbo: tuple[float, ...], base: float) -> None:
        if wide is None:
            return
        if len(wide.turbo_ghz_by_active_cores) != len(turbo):
            invalid(f"turbo_ghz_by_active_cores must have core_count = {len(turbo)} entries")
        pairs = [(wide.base_ghz, base), *zip(wide.turbo_ghz_by_active_cores, turbo, strict=True)]
        if any(lower > upper for lower, upper in pairs):
            invalid("must not exceed the clocks without wide SIMD load")

    @property
    def constant(self) -> dict[str, Constant]:
        """Unit, meaning and range of the field that is not from a data sheet, so that a fit may scale it."""
        return {"call_slowdown": _CALL_SLOWDOWN}

    @property
    def identity(self) -> str:
        """Cores, clock and memory, which distinguish sockets."""
        cores = f"{self.core_count} cores at {self.clock_base_ghz:g} GHz"
        return f"{self.architecture}, {cores}, {self.memory.bandwidth_gb_per_s:g} GB/s"

    @property
    def thread_count(self) -> int:
        """Hardware threads of the socket. [1]."""
        return self.core_count * self.threads_per_core

    @property
    def isas(self) -> tuple[str, ...]:
        """Instruction sets the chip has, oldest first."""
        return tuple(isa for isa, rate in self.flop_per_cycle_per_core.fp32 if rate is not None)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Data types that the SIMD rates cover."""
        return tuple(dtype for dtype, _ in self.flop_per_cycle_per_core)

    def flop_per_cycle(self, dtype: str = "fp32", *, isa: str | None = None) -> float:
        """Return the work of one core in one clock cycle. [FLOP/cycle]

        Raises
        ------
        UnknownNameError
            If the chip lacks the data type or the instruction set.
        """
        if not is_one_of(dtype, self.dtypes):
            raise self.refused(dtype)
        isa = self.isas[-1] if isa is None else isa
        check_known(f"instruction set of {self.name}", isa, self.isas)
        return float(getattr(getattr(self.flop_per_cycle_per_core, dtype), isa))

    def clock_hz(self, *, active_cores: int, isa: str | None = None) -> float:
        """Return the turbo clock with a number of active cores. [Hz]

        Raises
        ------
        ArgumentError
            If the socket has fewer cores.
        """
        if not 1 <= active_cores <= self.core_count:
            allowed = f"from 1 to {self.core_count}, the cores of {self.name}"
            raise ArgumentError("active_cores", active_cores, allowed)
        wide = self.wide_simd_clock
        slowed = wide is not None and isa in wide.isas
        clocks = wide.turbo_ghz_by_active_cores if wide and slowed else self.turbo_ghz_by_active_cores
        return clocks[active_cores - 1] * GIGA

    def peak_flop_per_s(self, dtype: str = "fp32", *, active_cores: int | None = None, isa: str | None = None) -> float:
        """Return the peak rate of the active cores at their turbo clock. [FLOP/s]"""
        active_cores = self.core_count if active_cores is None else active_cores
        isa = self.isas[-1] if isa is None else isa
        per_cycle = self.flop_per_cycle(dtype, isa=isa)
        return active_cores * per_cycle * self.clock_hz(active_cores=active_cores, isa=isa)

    @property
    def memory_bandwidth_bytes_per_s(self) -> float:
        """Peak bandwidth of all memory channels of the socket. [B/s]."""
        return self.memory.in_base_units("bandwidth_gb_per_s")

    @property
    def sustained_memory_bandwidth_bytes_per_s(self) -> float:
        """Bandwidth that the memory channels of the socket sustain. [B/s]."""
        return self.memory_bandwidth_bytes_per_s * self.memory.efficiency

    @property
    def streamed_bytes_per_s(self) -> float:
        """Bytes that all cores of the socket read and write at most, however fast the memory is. [B/s]."""
        return self.core_count * self.memory.in_base_units("bandwidth_per_core_gb_per_s")

    @property
    def l2_bytes(self) -> float:
        """Second-level cache of one core. [B]."""
        return self.cache.in_base_units("l2_kib")

    @property
    def l3_bytes(self) -> float:
        """Last-level cache of the socket. [B]."""
        return self.cache.in_base_units("l3_mib")

    def describe(self) -> str:
        """Return the device in one line."""
        clocks = f"{self.clock_base_ghz:g} to {self.turbo_ghz_by_active_cores[0]:g} GHz"
        memory = f"{self.memory.bandwidth_gb_per_s:g} GB/s"
        cores = counted(self.core_count, "core")
        return f"CPU, {self.architecture}, {cores} at {clocks}, {self.isas[-1]}, {memory}"
