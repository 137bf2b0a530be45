"""A GPU: one die, its dense peaks at the clock it sustains, its memory and its attachment to the host."""

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, field_validator

from perfmodel.errors import ArgumentError
from perfmodel.hardware import source as spec
from perfmodel.hardware.device import Device, check_listed
from perfmodel.numeric import is_real
from perfmodel.units import GIB, GIGA, MEGA, MIB, PICO, TERA

FLOP_PER_MULTIPLY_ADD: Final = 2

BUSY_MEMORY: Final = 0.2
"""Share of the memory bandwidth that large products use. [1]"""

MOST_OF_TDP: Final = 1.5
"""Highest power limit, over the thermal design power; above it is a typing error. [1]"""

STORAGE_TYPES: Final = ("fp16", "bf16", "fp8")
"""Types narrower than fp32 that kernels can store and widen at no cost."""


SPARSE_TENSOR_CORES: Final = dict.fromkeys(
    ("ampere", "ampere_ga102", "ada", "hopper", "blackwell", "blackwell_gb202"), ("fp16", "bf16", "int8")
)
"""Architecture -> the types in which its tensor cores skip the zeros of 2:4 weights, at twice the dense rate."""

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
    mxfp8: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(0.001, 50_000, "TFLOP/s"))] | None = None
    nvfp4: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(0.001, 50_000, "TFLOP/s"))] | None = None
    int8: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(0.001, 50_000, "TFLOP/s"))] | None = None


class Power(spec.SpecTable):
    """Energy per FLOP and per byte in large products at the boost clock, moving the operands included."""

    lanes_pj: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(0.01, 1_000, "pJ/FLOP"))]
    tensor_cores_pj: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(0.01, 1_000, "pJ/FLOP"))] | None = None
    memory_pj: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(1, 1_000, "pJ/B"))]


_ENERGIES: Final = {name: f"power.{name}" for name in Power.model_fields}
"""Energy in ``[power]`` -> its place in the file."""


EnergyVariation = Annotated[spec.NonNegativeNumber, AfterValidator(spec.InRange(0, 0.3, "of the mean"))]
"""Standard deviation of the energy of a FLOP among devices of one model, over its mean. [1]"""


class EveryGpu(spec.SpecFile):
    """What holds for every GPU whose own file states nothing else."""

    kind: Literal["every_gpu"]
    energy_variation: EnergyVariation


class GpuMemory(spec.SpecTable):
    """Memory of a GPU."""

    capacity_gib: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(0.25, 4_096, "GiB"))]
    usable_gib: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(0.25, 4_096, "GiB"))] | None = None
    bandwidth_gb_per_s: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(1, 50_000, "GB/s"))]
    ecc_bandwidth_fraction: spec.Fraction = 1.0
    l2_mib: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(0.01, 1_024, "MiB"))]

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
    clock_max_mhz : float or None
        Clock that it keeps under load while power allows; None for the boost clock. [MHz]
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
    power : Power or None
        Energy per operation; None if unknown, then power never lowers the clock. [-]
    power_limit_w : float or None
        Power limit; None for the thermal design power. [W]
    energy_variation : float or None
        Standard deviation of the energy of a FLOP among devices of the model, over its mean; None for that of every
        GPU. [1]
    context_mib : float
        Device memory that a context takes before any tensor. [MiB]
    board : Board or None
        The board that it shares with other dies; None for a die alone on its board. [-]
    bridge : Bridge or None
        Connector between two of its cards; None if it has none, or the file states none. [-]
    peer_protocol : str or None
        Protocol of the links that join it to other devices in its slot; None for a card without them. [-]
    """

    kind: Literal["gpu"]
    scope: Literal["one die"]
    compute_capability: Annotated[str, Field(pattern=r"^\d+\.\d+$")]
    unit_count: spec.Count
    lanes_per_unit: spec.Count
    clock_base_mhz: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(50, 10_000, "MHz"))] | None = None
    clock_boost_mhz: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(50, 10_000, "MHz"))]
    clock_max_mhz: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(50, 10_000, "MHz"))] | None = None
    peak_basis: Literal["boost"]
    issue_limit: spec.Fraction = 1.0
    peak_tflop_per_s: GpuPeak
    memory: GpuMemory
    host_link: HostLink
    launch: KernelLaunch
    context_mib: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(1, 10_000, "MiB"))]
    board: Board | None = None
    bridge: Bridge | None = None
    peer_protocol: spec.Identifier | None = None
    power: Power | None = None
    power_limit_w: Annotated[spec.PositiveNumber, AfterValidator(spec.InRange(0.5, 5_000, "W"))] | None = None
    energy_variation: EnergyVariation | None = None

    _boost_is_at_least_base = field_validator("clock_boost_mhz")(spec.at_least("clock_base_mhz"))
    _highest_is_at_least_boost = field_validator("clock_max_mhz")(spec.at_least("clock_boost_mhz"))

    @spec.checks("peak_tflop_per_s", beside=("unit_count", "lanes_per_unit", "clock_boost_mhz"))
    @staticmethod
    def _peak_matches_lanes(peak: GpuPeak, units: int, lanes: int, boost_mhz: float) -> None:
        computed = FLOP_PER_MULTIPLY_ADD * units * lanes * boost_mhz * MEGA / TERA
        try:
            check_listed(peak.fp32, computed, formula="fp32 = 2 * unit_count * lanes_per_unit * clock_boost_mhz")
        except ValueError as error:
            raise spec.fault_at(("fp32",), peak.fp32, str(error)) from error

    @property
    def identity(self) -> str:
        """Facts that tell boards apart and stay the same while other dies are busy: chip, memory, power limit."""
        memory = f"{self.memory.capacity_gib:g} GiB at {self.memory.bandwidth_gb_per_s:g} GB/s"
        power = f"{self.power_limit_w or self.tdp_w:g} W"
        return f"{self.architecture}, {self.unit_count} x {self.lanes_per_unit} lanes, {memory}, {power}"

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Data types whose peak the file lists."""
        return tuple(self.peak_tflop_per_s.stated())

    def peak_flop_per_s(self, dtype: str = "fp32") -> float:
        """Return the dense peak rate at the boost clock. [FLOP/s]

        Raises
        ------
        UnknownNameError
            If the device lists no peak for the data type.
        """
        listed = getattr(self.peak_tflop_per_s, dtype, None)
        if not isinstance(listed, float | int):
            raise self.refused(dtype)
        return float(listed) * TERA

    def product_peak_flop_per_s(self, dtype: str = "fp32") -> float:
        """Return the dense peak at which products of a data type run, at the boost clock. [FLOP/s]

        If a narrow type's own arithmetic is slower than fp32 (fp16 on most of Pascal), data is stored in it but
        computed in fp32, as in cuDNN.
        """
        peak = self.peak_flop_per_s(dtype)
        return max(peak, self.peak_flop_per_s("fp32")) if dtype in STORAGE_TYPES else peak

    def needs_tensor_cores(self, dtype: str) -> bool:
        """Return whether a data type reaches its listed peak on tensor cores."""
        if dtype in ("fp32", "fp64"):
            return False
        on_lanes = dtype == "fp16" and self.peak_flop_per_s("fp16") <= FASTEST_LANES * self.peak_flop_per_s("fp32")
        return not on_lanes or "bf16" in self.dtypes

    def arithmetic_of(self, dtype: str) -> str:
        """Return the kind of arithmetic that products of a data type use."""
        return "tensor_cores" if self.needs_tensor_cores(dtype) else "lanes"

    @property
    def highest_clock_ratio(self) -> float:
        """Highest clock under load divided by the boost clock. [1]"""
        return 1.0 if self.clock_max_mhz is None else self.clock_max_mhz / self.clock_boost_mhz

    def power_constants(self) -> dict[str, float]:
        """Constants that decide the clock under power, by place in the file; empty if the file has no ``[power]``."""
        if self.power is None:
            return {}
        name, limit_w = ("tdp_w", self.tdp_w) if self.power_limit_w is None else ("power_limit_w", self.power_limit_w)
        constants = {name: float(limit_w), "idle_w": 0.0 if self.idle_w is None else self.idle_w}
        for field, energy in self.power.__dict__.items():
            if energy is not None:
                constants[_ENERGIES[field]] = energy
        return constants

    @property
    def memory_w_in_products(self) -> float:
        """Power of the memory under large products. [W]"""
        return (
            0.0 if self.power is None else PICO * self.power.memory_pj * BUSY_MEMORY * self.memory_bandwidth_bytes_per_s
        )

    @property
    def powered_types(self) -> dict[str, str]:
        """Data type for which each energy in ``[power]`` is stated: fp32 on lanes, 16 bit on tensor cores."""
        power, peaks = self.power, self.peak_tflop_per_s
        types = {} if power is None else {"lanes": "fp32"}
        if power is not None and power.tensor_cores_pj is not None:
            types["tensor_cores"] = "bf16" if peaks.bf16 is not None else "fp32" if peaks.fp16 is None else "fp16"
        return types

    def with_power_limit(self, power_limit_w: float) -> Self:
        """Return the device limited to a power.

        Parameters
        ----------
        power_limit_w : float
            Power limit of the board, as its driver sets it. [W]

        Raises
        ------
        ArgumentError
            If no clock keeps the board below the limit, or its file states no energies.
        """
        known = self.power_constants()
        if not known:
            raise ArgumentError("device", self.name, "one whose file has [power]: no clock follows from a limit")
        least_w = known["idle_w"] + self.memory_w_in_products
        if not is_real(power_limit_w) or not least_w < power_limit_w <= MOST_OF_TDP * self.tdp_w:
            allowed = f"a number above {least_w:.0f} W, what {self.name} draws without arithmetic"
            most = f"{MOST_OF_TDP * self.tdp_w:g} W, {MOST_OF_TDP:g} times its TDP"
            raise ArgumentError("power_limit_w", power_limit_w, f"{allowed}, and at most {most}")
        return self.model_copy(update={"power_limit_w": float(power_limit_w)})

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
        peaks = {name: slower * peak for name, peak in self.peak_tflop_per_s.stated().items()}
        return self.model_copy(
            update={
                "clock_boost_mhz": slower * self.clock_boost_mhz,
                "clock_max_mhz": None if self.clock_max_mhz is None else slower * self.clock_max_mhz,
                "peak_tflop_per_s": self.peak_tflop_per_s.model_copy(update=peaks),
                "launch": self.launch.model_copy(update={"latency_us": self.launch.latency_us / slower}),
            }
        )

    @property
    def clock_hz(self) -> float:
        """Boost clock, the basis of the peaks. [Hz]."""
        return self.clock_boost_mhz * MEGA

    @property
    def memory_bandwidth_bytes_per_s(self) -> float:
        """Peak bandwidth to the device memory. [B/s]."""
        return self.memory.bandwidth_gb_per_s * GIGA

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
        memory = self.memory
        return (memory.capacity_gib if memory.usable_gib is None else memory.usable_gib) * GIB

    @property
    def context_bytes(self) -> float:
        """Device memory that a context takes. [B]."""
        return self.context_mib * MIB

    @property
    def l2_bytes(self) -> float:
        """Capacity of the L2 cache. [B]."""
        return self.memory.l2_mib * MIB

    @property
    def launch_latency_s(self) -> float:
        """Time of one kernel launch, back to back. [s]."""
        return self.launch.in_base_units("latency_us")

    def describe(self) -> str:
        """Return the device in one line."""
        memory = f"{self.memory.capacity_gib:g} GiB at {self.memory.bandwidth_gb_per_s:g} GB/s"
        peak = f"{self.peak_tflop_per_s.fp32:g} TFLOP/s fp32"
        return f"GPU, {self.architecture}, {self.unit_count} SM, {peak}, {memory}"
