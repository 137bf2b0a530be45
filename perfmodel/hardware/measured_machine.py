"""A measured machine: the cost of its kernels with one library and one framework, found by a calibration.

It represents device, libraries and framework together. It contains no vendor data, but may name the device file with
the processor's data sheet. Nothing in it comes from a whole network.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from perfmodel.atomic_write import save_text
from perfmodel.errors import nearest_hint
from perfmodel.hardware import source as spec
from perfmodel.hardware.device import Runnable
from perfmodel.hardware.spec_files import toml_document
from perfmodel.presentation.quantities import counted
from perfmodel.records import ELEMENT_BYTES
from perfmodel.units import MIB

CONSTANTS_OF_FAMILY: Final[dict[str, tuple[str, ...]]] = {
    "contraction": (
        "call_s", "s_per_flop", "s_per_left_byte", "s_per_right_byte", "s_per_result_byte", "s_per_far_byte",
    ),
    "convolution": ("call_s", "s_per_flop", "s_per_read_byte", "s_per_written_byte", "s_per_far_byte"),
    "stream": ("call_s", "s_per_byte", "s_per_far_byte", "s_per_flop", "s_per_serial_step"),
}  # fmt: skip
"""Family of kernel classes -> its constants, whose factors are in :mod:`perfmodel.cost.measured_kernel`."""


def _known_dtype(dtype: str) -> str:
    if dtype not in ELEMENT_BYTES:
        spec.invalid(f"must be one of {', '.join(ELEMENT_BYTES)}{nearest_hint(dtype, ELEMENT_BYTES)}")
    return dtype


DataType = Annotated[str, AfterValidator(_known_dtype)]

Range = tuple[spec.NonNegativeNumber, spec.NonNegativeNumber]

Seconds = Annotated[spec.NonNegativeNumber, AfterValidator(spec.InRange(0, 10, "s"))]
"""A time that one call may take, or a part of it."""


class MeasuredOn(spec.SpecTable):
    """The processor that was measured."""

    processor: Literal["cpu", "gpu"]
    model: spec.Text
    datasheet: spec.Identifier | None = None
    core_count: spec.Count
    threads: spec.Count | None = None
    memory_gib: spec.PositiveNumber
    cache_mib: spec.PositiveNumber
    near_cache_mib: spec.PositiveNumber
    reuse_mib: spec.PositiveNumber | None = None
    vector_lanes: spec.Count = 1

    def faults(self) -> Iterator[spec.Fault]:  # noqa: D102
        if (self.threads is None) == (self.processor == "cpu"):
            allowed = {"cpu": "must be the number of threads that were used", "gpu": "must not be given for a GPU"}
            yield ("threads",), self.threads, allowed[self.processor]

    @property
    def memory_bytes(self) -> float:
        """Memory of the device. [B]"""
        return self.in_base_units("memory_gib")

    @property
    def cache_bytes(self) -> float:
        """Last-level cache. [B]"""
        return self.cache_mib * MIB

    @property
    def near_cache_bytes(self) -> float:
        """Cache in which one kernel's operands stay. [B]"""
        return self.near_cache_mib * MIB

    @property
    def reuse_bytes(self) -> float:
        """Other traffic after which data has left the caches. [B]"""
        return (self.cache_mib if self.reuse_mib is None else self.reuse_mib) * MIB


class Software(spec.SpecTable):
    """Versions of the software that ran the kernels."""

    backend: Literal["torch", "numpy"]
    python: spec.Text | None = None
    numpy: spec.Text | None = None
    torch: spec.Text | None = None
    blas: spec.Text | None = None
    cuda: spec.Text | None = None
    cudnn: spec.Text | None = None
    driver: spec.Text | None = None
    operating_system: spec.Text | None = None


class Session(spec.SpecTable):
    """Facts of the measuring session."""

    measured_at: datetime
    seconds: spec.NonNegativeNumber
    point_count: spec.Count
    retaken: Annotated[int, Field(ge=0, strict=True)] = 0
    points_digest: spec.Text | None = None
    reference_spread_percent: spec.NonNegativeNumber
    drift_percent: spec.NonNegativeNumber = 0.0
    repeat_spread_percent: spec.NonNegativeNumber | None = None
    clock_mhz: spec.PositiveNumber | None = None
    allocator: spec.Text | None = None
    notes: tuple[spec.Text, ...] = ()
    complete: bool = False
    short_class_count: Annotated[int, Field(ge=0, strict=True)] = 0

    def faults(self) -> Iterator[spec.Fault]:  # noqa: D102
        if self.complete and self.short_class_count:
            yield ("short_class_count",), self.short_class_count, "must be 0 if complete = true"

    @property
    def ended_early(self) -> str | None:
        """Remark that the time budget ended too early; None if it sufficed."""
        if self.complete:
            return None
        few = {0: "some classes have", 1: "1 class has"}.get(
            self.short_class_count, f"{self.short_class_count} classes have"
        )
        return f"the budget ended before every class had its points: {few} fewer"


class Peaks(spec.SpecTable):
    """The naive baseline: the best that products and streams reached."""

    gemm_flop_per_s: Annotated[dict[DataType, spec.PositiveNumber], Field(min_length=1)]
    stream_bytes_per_s: spec.PositiveNumber


class KernelClass(spec.SpecTable):
    """The curve of one class of kernels in one data type."""

    name: spec.Identifier
    dtype: DataType
    family: Literal["contraction", "convolution", "stream"]
    constants: dict[str, spec.NonNegativeNumber]
    low: dict[str, spec.NonNegativeNumber] = Field(default_factory=dict)
    high: dict[str, spec.NonNegativeNumber] = Field(default_factory=dict)
    cold_s_per_byte: spec.NonNegativeNumber = 0.0
    point_count: Annotated[int, Field(ge=0, strict=True)]
    residual_percent: spec.NonNegativeNumber
    flop_range: Range
    byte_range: Range

    @spec.checks("constants", beside=("family",))
    @staticmethod
    def _constants_are_the_familys(constants: dict[str, float], family: str) -> None:
        allowed = CONSTANTS_OF_FAMILY.get(family, ())
        for name in constants:
            if allowed and name not in allowed:
                among = f"{', '.join(allowed)}{nearest_hint(name, allowed)}"
                spec.invalid(f"{name!r} is not a constant of a {family}: must be among {among}")
        if not any(constants.values()):
            spec.invalid("at least one constant must be above zero, or the kernel takes no time")

    @spec.checks("flop_range", "byte_range")
    @staticmethod
    def _range_rises(ends: tuple[float, float]) -> None:
        if ends[0] > ends[1]:
            spec.invalid("must be the smaller end, then the larger")

    def faults(self) -> Iterator[spec.Fault]:  # noqa: D102
        for field in ("low", "high"):
            for name, end in getattr(self, field).items():
                if name not in self.constants:
                    yield (field, name), end, f"must be among the constants: {', '.join(self.constants)}"
        for name, value in self.constants.items():
            low, high = self.low.get(name, value), self.high.get(name, value)
            if not low <= value <= high:
                message = f"low, value and high must rise, but are {low:g}, {value:g}, {high:g}"
                yield ("constants", name), value, message


class Overheads(spec.SpecTable):
    """Times that the framework takes beyond its kernels. [s]"""

    grad_forward_s: Seconds = 0.0
    backward_s: Seconds = 0.0
    parameter_s: Seconds = 0.0
    step_s: Seconds = 0.0
    dispatch_s: Seconds = 0.0
    page_fault_s: Seconds = 0.0


class HostCopy(spec.SpecTable):
    """Copies between host and device of a GPU."""

    direction: Literal["to_device", "to_host"]
    pinned: bool = False
    latency_s: Seconds
    bytes_per_s: spec.PositiveNumber


class AllReduce(spec.SpecTable):
    """The sum of a tensor over processes of one machine."""

    library: Literal["gloo", "nccl"]
    process_count: Annotated[int, Field(ge=2, strict=True)]
    latency_s: Seconds
    bytes_per_s: spec.PositiveNumber


class MeasuredStorage(spec.SpecTable):
    """Reads from a disk."""

    sequential_bytes_per_s: spec.PositiveNumber
    random_read_s: Seconds
    note: spec.Text


_TABLES: Final = ("machine", "software", "session", "peaks", "overheads")
_LISTS: Final = ("kernel", "host_copy", "all_reduce", "storage", "source")


class MeasuredMachine(Runnable):
    """A machine and its software, measured kernel by kernel: a device for predict that needs no framework.

    Attributes
    ----------
    kind : str
        ``measured``. [-]
    machine, software, session, peaks, overheads : SpecTable
        Measured hardware, software, measuring session, naive baseline, and the framework's overheads. [-]
    kernel : tuple of KernelClass
        Curves by class and data type. [-]
    host_copy : tuple of HostCopy
        Copies between a GPU and its host. [-]
    all_reduce : tuple of AllReduce
        Sums over processes of the machine. [-]
    storage : tuple of MeasuredStorage
        Reads from a disk. [-]
    """

    kind: Literal["measured"]
    machine: MeasuredOn
    software: Software
    session: Session
    peaks: Peaks
    kernel: Annotated[tuple[KernelClass, ...], Field(min_length=1)]
    overheads: Overheads = Field(default_factory=Overheads)  # an object here would build its class at import
    host_copy: tuple[HostCopy, ...] = ()
    all_reduce: tuple[AllReduce, ...] = ()
    storage: tuple[MeasuredStorage, ...] = ()

    @spec.checks("kernel")
    @staticmethod
    def _classes_differ(kernel: tuple[KernelClass, ...]) -> None:
        (name, dtype), times = Counter((entry.name, entry.dtype) for entry in kernel).most_common(1)[0]
        if times > 1:
            spec.invalid(f"names must differ within a data type, but {name!r} occurs {times} times in {dtype}")

    def faults(self) -> Iterator[spec.Fault]:  # noqa: D102
        peaks = self.peaks.gemm_flop_per_s
        lacking = [dtype for dtype in self.dtypes if dtype not in peaks]
        if lacking:
            message = f"must have the rate in every data type of a kernel; {', '.join(lacking)} is missing"
            yield ("peaks", "gemm_flop_per_s"), peaks, message

    @property
    def processor_kind(self) -> str:
        """What computes: ``gpu`` or ``cpu``. [-]"""
        return self.machine.processor

    @property
    def card(self) -> Runnable | None:
        """The device whose data sheet the machine's file names; None if it names none."""
        from perfmodel.hardware.part_catalogue import load_device

        return None if self.machine.datasheet is None else load_device(self.machine.datasheet)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Data types in which kernels were measured, in the order of the file."""
        return tuple(dict.fromkeys(entry.dtype for entry in self.kernel))

    def classes(self, dtype: str) -> dict[str, KernelClass]:
        """Return the measured classes of a data type by name."""
        return {entry.name: entry for entry in self.kernel if entry.dtype == dtype}

    def describe(self) -> str:
        """Return the machine, its software and its calibration in one line."""
        on, session, versions = self.machine, self.session, self.software
        backend = f"{versions.backend} {getattr(versions, versions.backend) or ''}".strip()
        threads = "" if on.threads is None else f", {counted(on.threads, 'thread')}"
        until = "" if session.ended_early is None else f"; {session.ended_early}"
        return (
            f"{on.model} ({on.processor.upper()}{threads}) with {backend}: {len(self.kernel)} classes of kernels "
            f"({', '.join(self.dtypes)}) from {session.point_count:,} points measured on "
            f"{session.measured_at:%Y-%m-%d %H:%M}{until}"
        )

    def save(self, path: str | Path) -> None:
        """Write the machine as a TOML that ``load_calibration`` and ``load_device`` read.

        Raises
        ------
        ArgumentError
            If it cannot be written there.
        """
        save_text(path, measured_text(self))


Calibration = MeasuredMachine
"""Public name of a measured machine: the result of ``pm.calibrate``, and a device of predict."""


def measured_text(machine: MeasuredMachine) -> str:
    """Return the text of a measured machine's file."""
    return toml_document(machine.model_dump(mode="python"), tables=_TABLES, lists=_LISTS)
