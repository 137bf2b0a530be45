"""What a library must offer to be measured: benchmarks, a clock, facts, and the costs around its kernels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

from perfmodel.calibration.machine.benchmark import Benchmark, Prepared, Run, Sizes
from perfmodel.calibration.machine.timing import Clock
from perfmodel.errors import CalibrationError

TOLERANCE: dict[str, float] = {"fp64": 1e-9, "fp32": 1e-3, "tf32": 2e-2, "bf16": 6e-2, "fp16": 2e-2}
"""Data type -> largest distance of a result from its float64 reference, over the reference's length [1]."""


SMALLEST = 1e-300
"""Length of a reference that is zero, to divide by [1]."""


@dataclass(frozen=True, slots=True)
class PeakRun:
    """A kernel that shows what the machine reaches at best.

    Parameters
    ----------
    run : callable
        Runs it once. [-]
    amount : float
        Its arithmetic, or the bytes that it moves. [FLOP or B]
    """

    run: Run
    amount: float


class Backend(ABC):
    """A library on one device.

    A backend makes operands, tells its clock and its facts; which shapes are timed, in which order, and what is fitted,
    is the same for all.
    """

    name: ClassVar[str]
    """Name of the library. [-]"""

    @property
    @abstractmethod
    def clock(self) -> Clock:
        """What times its kernels."""

    @property
    @abstractmethod
    def dtypes(self) -> tuple[str, ...]:
        """Data types that it can measure, the usual one first."""

    @property
    @abstractmethod
    def default_dtypes(self) -> tuple[str, ...]:
        """Data types that are measured unless others are asked for."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return the table ``machine`` of a file."""

    @abstractmethod
    def software(self) -> dict[str, str]:
        """Return the table ``software`` of a file, without the backend's name."""

    @abstractmethod
    def clock_mhz(self) -> float | None:
        """Return the clock of the processor now, where it can be read [MHz]."""

    @abstractmethod
    def benchmarks(self, dtype: str) -> Mapping[str, Benchmark]:
        """Return the benchmarks in a data type, by kernel class."""

    @abstractmethod
    def prepare(self, benchmark: Benchmark, sizes: Sizes, *, dtype: str) -> Prepared:
        """Return a kernel with operands of random normal numbers in memory."""

    @abstractmethod
    def results(self, benchmark: Benchmark, sizes: Sizes, *, dtype: str) -> tuple[Any, Any, bool]:
        """Return what a kernel makes in a data type and in ``fp64``, of the same operands, as float64 arrays.

        The third tells whether it draws random numbers, so that the two differ.
        """

    @abstractmethod
    def settings(self, dtype: str) -> AbstractContextManager[None]:
        """Return a block in which the process computes as the data type says."""

    @property
    @abstractmethod
    def flush_bytes(self) -> float:
        """Memory that a whole flush reads [B]."""

    @abstractmethod
    def flush(self, share: float = 1.0) -> None:
        """Read so much memory that nothing else is left in any cache, or a ``share`` [1] of it."""

    @abstractmethod
    def copy_run(self, moved_bytes: float) -> Run:
        """Return a copy that moves so many bytes [B], to time it after flushes."""

    @abstractmethod
    def reference(self) -> Run:
        """Return the kernel that is run again and again to detect drift."""

    @abstractmethod
    def peak_runs(self, dtype: str) -> tuple[PeakRun, PeakRun]:
        """Return a large product and a copy out of memory, in a data type."""

    @abstractmethod
    def overheads(self) -> dict[str, float]:
        """Return the table ``overheads`` of a file [s]."""

    def allocator(self) -> str | None:
        """Return how the memory of a device is handed out, in words; None where it is the process's own."""
        return None

    def host_copies(self) -> list[dict[str, Any]]:
        """Return the tables ``host_copy`` of a file; none unless the device has memory of its own."""
        return []

    def all_reduces(self) -> list[dict[str, Any]]:
        """Return the tables ``all_reduce`` of a file; none unless the library sums over processes.

        Raises
        ------
        CalibrationError
            If the processes fail.
        """
        return []


def check_result(backend: Backend, benchmark: Benchmark, sizes: Sizes, *, dtype: str) -> None:
    """Check that a benchmark computes what it says, against a float64 reference.

    Parameters
    ----------
    backend : Backend
        Whose kernel. [-]
    benchmark : Benchmark
        Which. [-]
    sizes : mapping of str to int
        Small ones. [1]
    dtype : str
        Data type. [-]

    Raises
    ------
    CalibrationError
        If a result is zero throughout, not finite, or off the reference by more than the data type allows.
    """
    import numpy as np

    made, wanted, is_random = backend.results(benchmark, sizes, dtype=dtype)
    faults = {
        "is not finite": not np.isfinite(made).all(),
        "is zero throughout": not made.any(),
    }
    if not is_random and not any(faults.values()):
        distance = float(np.linalg.norm(made - wanted)) / max(float(np.linalg.norm(wanted)), SMALLEST)
        faults[f"is off its float64 reference by {distance:.1g} of its length"] = distance > TOLERANCE[dtype]
    for fault, holds in faults.items():
        if holds:
            message = f"{backend.name}: the result of {benchmark.name} in {dtype} {fault} (sizes {dict(sizes)})"
            raise CalibrationError(message)


def smallest_sizes(benchmark: Benchmark) -> Sizes:
    """Return the smallest sizes of a benchmark."""
    return {
        name: axis.values[0] if axis.values else max(axis.low, 3 if axis.rule == "odd" else 1)
        for name, axis in benchmark.axes.items()
    }


def share_of_chain(time_chain: Callable[[int], float], *, short: int = 20, long: int = 120) -> float:
    """Return the time of one link of a chain, from chains of two lengths, so that what both have once drops out.

    Parameters
    ----------
    time_chain : callable
        Length [1] to the time of a chain. [s]
    short, long : int
        The two lengths. [1]

    Returns
    -------
    float
        At least 0. [s]

    Examples
    --------
    >>> share_of_chain(lambda length: 0.5 + 0.25 * length)
    0.25
    """
    return max(0.0, (time_chain(long) - time_chain(short)) / (long - short))
