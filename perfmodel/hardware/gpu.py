"""A GPU: one die, its dense peaks at the clock it sustains, its memory and its attachment to the host."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from perfmodel.errors import UnknownNameError
from perfmodel.hardware import source as spec
from perfmodel.hardware.device import Device, check_listed
from perfmodel.units import MEGA, TERA

FLOP_PER_MULTIPLY_ADD: Final = 2

STORAGE_TYPES: Final = ("fp16", "bf16", "fp8")
"""Data types narrower than fp32, from which values can be widened for arithmetic at no cost."""


FASTEST_LANES: Final = 2.05
"""Highest rate of plain lanes in a narrower type, over fp32: two values side by side, as listed. [1]"""


class GpuPeak(spec.SpecTable):
    """Dense peak rates of a GPU by data type, at the clock that ``peak_basis`` names."""

    fp32: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(0.001, 1_000, "TFLOP/s"))]
    fp64: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(0.001, 1_000, "TFLOP/s"))] | None = None
    tf32: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(0.001, 50_000, "TFLOP/s"))] | None = None
    fp16: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(0.001, 50_000, "TFLOP/s"))] | None = None
    bf16: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(0.001, 50_000, "TFLOP/s"))] | None = None
    fp8: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(0.001, 50_000, "TFLOP/s"))] | None = None


class SustainedClock(spec.SpecTable):
    """Clocks that a board sustains under one kind of arithmetic, if they are not the boost clock."""

    lanes: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(50, 10_000, "MHz"))] | None = None
    tensor_cores: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(50, 10_000, "MHz"))] | None = None


class GpuMemory(spec.SpecTable):
    """Memory of a GPU."""

    capacity_gib: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(0.25, 4_096, "GiB"))]
    usable_gib: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(0.25, 4_096, "GiB"))] | None = None
    bandwidth_gb_per_s: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(1, 50_000, "GB/s"))]
    ecc_bandwidth_fraction: spec.Fraction = 1.0
    l2_mib: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(0.01, 1_024, "MiB"))]
    l2_bandwidth_gb_per_s: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(1, 100_000, "GB/s"))] | None = (
        None
    )

    _usable_is_at_most_nominal = field_validator("usable_gib")(spec.at_most("capacity_gib"))


class HostLink(spec.SpecTable):
    """Link between a device and its host."""

    type: Literal["pcie"]
    generation: Annotated[int, Field(ge=1, le=6, strict=True)]
    width: Annotated[int, Field(ge=1, le=16, strict=True)]
    copy_engine_count: spec.Count

    @property
    def link_name(self) -> str:
        """Name of the link for ``load_link``, e.g. ``pcie_3_x16``."""
        return f"{self.type}_{self.generation}_x{self.width}"


class KernelLaunch(spec.SpecTable):
    """Cost of starting a kernel on the device."""

    latency_us: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(0.1, 1_000, "us"))]


class Board(spec.SpecTable):
    """A board with several dies, which share its power and its cooling."""

    dies: Annotated[int, Field(ge=2, le=16, strict=True)]
    shared_clock_fraction: spec.Fraction


class Bridge(spec.SpecTable):
    """The connector by which a card is joined to one other card of its kind."""

    link: spec.Text


class Gpu(Device):
    """One GPU die.

    Attributes
    ----------
    compute_capability : str
        CUDA compute capability, e.g. ``6.1``. [-]
    unit_count : int
        Streaming multiprocessors. [1]
    lanes_per_unit : int
        fp32 lanes of one multiprocessor. [1]
    clock_base_mhz : float or None
        Base clock; None if the vendor publishes none. [MHz]
    clock_boost_mhz : float
        Boost clock. [MHz]
    sustained_clock_mhz : SustainedClock
        Clocks that its power limit leaves under load, by kind of arithmetic. [MHz]
    peak_basis : str
        Clock at which the listed peaks hold. [-]
    issue_limit : float
        Share of the lanes that the schedulers can fill. [1]
    peak_tflop_per_s : GpuPeak
        Dense peak rates. [TFLOP/s]
    memory : GpuMemory
        Device memory and L2. [-]
    host_link : HostLink
        Attachment to the host. [-]
    launch : KernelLaunch
        Cost of a launch. [-]
    context_mib : float
        Device memory that a context takes before any tensor. [MiB]
    board : Board or None
        The board that it shares with other dies; None for a die alone on its board. [-]
    bridge : Bridge or None
        Connector between two of its cards; None if it has none, or the file states none. [-]
    """

    kind: Literal["gpu"]
    scope: Literal["one die"]
    compute_capability: Annotated[str, Field(pattern=r"^\d+\.\d+$")]
    unit_count: spec.Count
    lanes_per_unit: spec.Count
    clock_base_mhz: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(50, 10_000, "MHz"))] | None = None
    clock_boost_mhz: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(50, 10_000, "MHz"))]
    sustained_clock_mhz: SustainedClock = SustainedClock()
    peak_basis: Literal["boost"]
    issue_limit: spec.Fraction = 1.0
    peak_tflop_per_s: GpuPeak
    memory: GpuMemory
    host_link: HostLink
    launch: KernelLaunch
    context_mib: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(1, 10_000, "MiB"))]
    board: Board | None = None
    bridge: Bridge | None = None

    _boost_is_at_least_base = field_validator("clock_boost_mhz")(spec.at_least("clock_base_mhz"))

    @field_validator("peak_tflop_per_s")
    @classmethod
    def _peak_matches_lanes(cls, peak: GpuPeak, info: ValidationInfo) -> GpuPeak:
        if {"unit_count", "lanes_per_unit", "clock_boost_mhz"} <= info.data.keys():
            lanes = info.data["unit_count"] * info.data["lanes_per_unit"]
            computed = FLOP_PER_MULTIPLY_ADD * lanes * info.data["clock_boost_mhz"] * MEGA / TERA
            try:
                check_listed(peak.fp32, computed, formula="fp32 = 2 * unit_count * lanes_per_unit * clock_boost_mhz")
            except ValueError as error:
                raise spec.fault_at(("fp32",), peak.fp32, str(error)) from error
        return peak

    @property
    def identity(self) -> str:
        """Chip, memory and power, which distinguish boards and do not change while other dies of the board work."""
        memory = f"{self.memory.capacity_gib:g} GiB at {self.memory.bandwidth_gb_per_s:g} GB/s"
        return f"{self.architecture}, {self.unit_count} x {self.lanes_per_unit} lanes, {memory}, {self.tdp_w:g} W"

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Data types whose peak the file lists."""
        return tuple(dtype for dtype, listed in self.peak_tflop_per_s if listed is not None)

    def peak_flop_per_s(self, dtype: str = "fp32") -> float:
        """Return the dense peak rate at the boost clock. [FLOP/s]

        Raises
        ------
        UnknownNameError
            If the device lists no peak for the data type.
        """
        listed = getattr(self.peak_tflop_per_s, dtype, None)
        if not isinstance(listed, float | int):
            raise UnknownNameError(kind=f"dtype of {self.name}", name=dtype, known=self.dtypes)
        return float(listed) * TERA

    def needs_tensor_cores(self, dtype: str) -> bool:
        """Tell whether the listed peak of a data type is that of tensor cores."""
        if dtype in ("fp32", "fp64"):
            return False
        on_lanes = dtype == "fp16" and self.peak_flop_per_s("fp16") <= FASTEST_LANES * self.peak_flop_per_s("fp32")
        return not on_lanes or "bf16" in self.dtypes

    def arithmetic_of(self, dtype: str) -> str:
        """Return the kind of arithmetic that products of a data type use."""
        return "tensor_cores" if self.needs_tensor_cores(dtype) else "lanes"

    @property
    def sustained_clocks_mhz(self) -> dict[str, float]:
        """Clock that each kind of arithmetic sustains, if it is not the boost clock. [MHz]"""
        return {name: clock for name, clock in vars(self.sustained_clock_mhz).items() if clock is not None}

    def sustained_peak_flop_per_s(self, dtype: str = "fp32") -> float:
        """Return the rate at which the board can issue arithmetic on tensors of a data type, at the clock it sustains.

        Parameters
        ----------
        dtype : str
            Data type of the tensors, one of ``dtypes``. [-]

        Returns
        -------
        float
            Peak times the issue limit and the share of the boost clock that is sustained. If a narrow type's own
            arithmetic is slower than fp32 (fp16 on most of Pascal), data is stored in it but computed in fp32, as in
            cuDNN. [FLOP/s]
        """
        peak = self.peak_flop_per_s(dtype)
        if dtype in STORAGE_TYPES:
            peak = max(peak, self.peak_flop_per_s("fp32"))
        clock_mhz = self.sustained_clocks_mhz.get(self.arithmetic_of(dtype), self.clock_boost_mhz)
        return peak * self.issue_limit * (clock_mhz / self.clock_boost_mhz)

    def beside_working_dies(self) -> Self:
        """Return the device at the clock that it keeps while the other dies of its board work.

        Returns
        -------
        Gpu
            The same file with everything that depends on the clock slower: clock, peaks, level-2 cache, launch. Memory
            bandwidth is unchanged. Without a board, the device itself. [-]
        """
        if self.board is None:
            return self
        slower = self.board.shared_clock_fraction
        peaks = {name: slower * peak for name, peak in self.peak_tflop_per_s if peak is not None}
        clocks = {name: slower * clock for name, clock in self.sustained_clocks_mhz.items()}
        cache = self.memory.l2_bandwidth_gb_per_s
        return self.model_copy(
            update={
                "clock_boost_mhz": slower * self.clock_boost_mhz,
                "sustained_clock_mhz": self.sustained_clock_mhz.model_copy(update=clocks),
                "peak_tflop_per_s": self.peak_tflop_per_s.model_copy(update=peaks),
                "memory": self.memory.model_copy(
                    update={"l2_bandwidth_gb_per_s": None if cache is None else slower * cache}
                ),
                "launch": self.launch.model_copy(update={"latency_us": self.launch.latency_us / slower}),
            }
        )

    @property
    def clock_hz(self) -> float:
        """Boost clock, the basis of the peaks. [Hz]."""
        return self.in_base_units("clock_boost_mhz")

    @property
    def memory_bandwidth_bytes_per_s(self) -> float:
        """Peak bandwidth to the device memory. [B/s]."""
        return self.memory.in_base_units("bandwidth_gb_per_s")

    @property
    def sustained_memory_bandwidth_bytes_per_s(self) -> float:
        """Peak bandwidth less the share that error correction takes. [B/s]."""
        return self.memory_bandwidth_bytes_per_s * self.memory.ecc_bandwidth_fraction

    @property
    def memory_capacity_bytes(self) -> float:
        """Nominal capacity of the device memory. [B]."""
        return self.memory.in_base_units("capacity_gib")

    @property
    def usable_memory_bytes(self) -> float:
        """Capacity that a program sees: what the driver reports, else the nominal one. [B]."""
        key = "capacity_gib" if self.memory.usable_gib is None else "usable_gib"
        return self.memory.in_base_units(key)

    @property
    def context_bytes(self) -> float:
        """Device memory that a context takes. [B]."""
        return self.in_base_units("context_mib")

    @property
    def l2_bytes(self) -> float:
        """Capacity of the L2 cache. [B]."""
        return self.memory.in_base_units("l2_mib")

    @property
    def launch_latency_s(self) -> float:
        """Time of one kernel launch, back to back. [s]."""
        return self.launch.in_base_units("latency_us")

    def describe(self) -> str:
        """Return the device in one line."""
        memory = f"{self.memory.capacity_gib:g} GiB at {self.memory.bandwidth_gb_per_s:g} GB/s"
        peak = f"{self.peak_tflop_per_s.fp32:g} TFLOP/s fp32"
        return f"GPU, {self.architecture}, {self.unit_count} SM, {peak}, {memory}"
