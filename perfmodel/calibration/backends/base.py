"""Interface of a library that is measured: benchmarks, a clock, facts, and costs around its kernels."""

from __future__ import annotations

import math
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from perfmodel.calibration.benchmark import Benchmark, Prepared, Run, Sizes
from perfmodel.errors import CalibrationError

SAMPLES: Final = 7
"""Repeats whose median is taken [1]."""

SHORTEST_SAMPLE_S: Final = 3e-4
"""Shortest interval between two readings of a host's clock: thousands of times the duration of a reading [s]."""

ERROR_OF_MEDIAN: Final = 1.86
"""Standard error of a median, times the root of the count, over half the distance of the quartiles: 1.2533 / 0.6745 for
normal noise [1]."""

LONG_RUN_S: Final = 0.02
"""A kernel that takes longer is repeated twice only [s]."""

SHORT_RUN_S: Final = 0.002
"""A kernel that takes longer is repeated three times: more shapes are worth more than more repeats [s]."""


@dataclass(frozen=True, slots=True)
class Timing:
    """A time and its uncertainty."""

    seconds: float
    spread: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Timing:
        """Return median and spread of repeats [s].

        >>> Timing.of([1.0, 1.2, 1.1, 9.0, 1.1]).seconds
        1.1
        """
        median = statistics.median(samples)
        if len(samples) < 4:  # with fewer samples the quartiles are their ends
            return cls(median, (max(samples) - min(samples)) / 2 / median)
        low, _, high = statistics.quantiles(samples, n=4)
        return cls(median, ERROR_OF_MEDIAN * (high - low) / 2 / median / math.sqrt(len(samples)))


class Clock(ABC):
    """Times kernels on one device."""

    @abstractmethod
    def time(self, run: Run) -> Timing:
        """Return the time of a kernel whose operands are where its last run left them."""

    @abstractmethod
    def time_after(self, before: Run, run: Run, *, samples: int = 3) -> Timing:
        """Return the time of one run of a kernel after an untimed run of ``before``, repeated ``samples`` [1] times."""


class HostClock(Clock):
    """Monotonic clock of the host, for kernels that have ended when their call returns."""

    def __init__(self, now: Callable[[], int] = time.perf_counter_ns) -> None:
        self._now = now

    def _sample(self, run: Run, repeats: int) -> float:
        now = self._now
        start = now()
        for _ in range(repeats):
            run()
        return (now() - start) / repeats * 1e-9

    def time(self, run: Run) -> Timing:
        """Return the time of a kernel: the first run warms up, the second sets the number of runs in a sample."""
        first = self._sample(run, 1)
        once = first if first > LONG_RUN_S else self._sample(run, 1)
        if once > SHORT_RUN_S:
            return Timing.of([self._sample(run, 1) for _ in range(2 if once > LONG_RUN_S else 3)])
        repeats = max(1, round(SHORTEST_SAMPLE_S / max(once, 1e-9)))
        self._sample(run, min(repeats, 3))
        return Timing.of([self._sample(run, repeats) for _ in range(SAMPLES)])

    def time_after(self, before: Run, run: Run, *, samples: int = 3) -> Timing:
        """Return the time of single runs, each after a run of ``before``."""
        taken = []
        for _ in range(samples):
            before()
            taken.append(self._sample(run, 1))
        return Timing.of(taken)


DRIFT_LIMIT: Final = 0.10
"""Change of the reference kernel beyond which points between two of its runs are measured again [1]."""

WINDOW_S: Final = 2.0
"""Time between two runs of the reference kernel [s]."""


class DriftWatch:
    """Runs one kernel again and again between the points, to detect drift of the machine."""

    def __init__(
        self,
        time_reference: Callable[[], float],
        *,
        now: Callable[[], float] = time.monotonic,
        window_s: float = WINDOW_S,
        times: list[float] | None = None,
    ) -> None:
        self._time_reference, self._now, self._window_s = time_reference, now, window_s
        self.times = [] if times is None else times
        self.times.append(time_reference())
        self._due = now() + window_s

    @property
    def window(self) -> int:
        """Number n of the open window, which lies between the reference times n and n + 1. [1]"""
        return len(self.times) - 1

    def tick(self, *, forced: bool = False) -> bool:
        """Run the reference kernel if it is due, or ``forced`` [-]; tell whether a window was closed."""
        if not forced and self._now() < self._due:
            return False
        self.times.append(self._time_reference())
        self._due = self._now() + self._window_s
        return True

    def drifted(self) -> frozenset[int]:
        """Return the closed windows that begin or end with a reference time too far from the median."""
        middle = statistics.median(self.times)
        off = [abs(seconds / middle - 1) > DRIFT_LIMIT for seconds in self.times]
        return frozenset(window for window in range(self.window) if off[window] or off[window + 1])

    @property
    def spread_percent(self) -> float:
        """Standard deviation of the reference over its mean. [%]"""
        if len(self.times) < 2:  # a single time has no spread
            return 0.0
        return 100 * statistics.stdev(self.times) / statistics.mean(self.times)

    @property
    def drift_percent(self) -> float:
        """Change of the reference from the first third of the session to the last. [%]"""
        third = max(1, len(self.times) // 3)
        first, last = statistics.median(self.times[:third]), statistics.median(self.times[-third:])
        return 100 * abs(last / first - 1)


TOLERANCE: dict[str, float] = {"fp64": 1e-9, "fp32": 1e-3, "tf32": 2e-2, "bf16": 6e-2, "fp16": 2e-2}
"""Data type -> largest distance of a result from its float64 reference, over the reference's length [1]."""


SMALLEST = 1e-300
"""Length of a reference that is zero, to divide by [1]."""


@dataclass(frozen=True, slots=True)
class PeakRun:
    """A kernel that shows the best rate of the machine."""

    run: Run
    amount: float


class Backend(ABC):
    """A library on one device.

    A backend makes operands and states its clock and facts. The choice and order of shapes and the fit are the same for
    all backends.
    """

    name: ClassVar[str]

    @property
    @abstractmethod
    def clock(self) -> Clock:
        """The clock that times its kernels."""

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

    def tools(self, dtype: str, *, small: bool = False) -> Any:
        """Return the maker of operands in a data type; ``small`` ones use few random numbers."""
        raise NotImplementedError

    def array(self, result: Any) -> Any:
        """Return the result of a kernel as a float64 array."""
        raise NotImplementedError

    def prepare(self, benchmark: Benchmark, sizes: Sizes, *, dtype: str) -> Prepared:
        """Return a kernel with operands of random normal numbers in memory."""
        return benchmark.prepare(self.tools(dtype), sizes, benchmark.operation(sizes))

    def results(self, benchmark: Benchmark, sizes: Sizes, *, dtype: str) -> tuple[Any, Any, bool]:
        """Run a kernel on the same operands in a data type and in ``fp64``; return float64 arrays.

        The third result tells whether it draws random numbers, which makes the two arrays differ.
        """
        arrays, is_random = [], False
        for precision in (dtype, "fp64"):
            tools = self.tools(precision, small=True)
            tools.restart()
            prepared = benchmark.prepare(tools, sizes, benchmark.operation(sizes))
            arrays.append(self.array(prepared.run()))
            is_random = prepared.random
        return arrays[0], arrays[1], is_random

    @abstractmethod
    def settings(self, dtype: str) -> AbstractContextManager[None]:
        """Return a context in which the process computes in the data type."""

    _large: Any
    """An array larger than the last cache: it evicts all other data, and its copy goes through memory."""

    @property
    def flush_bytes(self) -> float:
        """Memory that a whole flush reads [B]."""
        return float(self._large.nbytes)

    def flush(self, share: float = 1.0) -> None:
        """Read enough memory to evict all other data from every cache, or a ``share`` [1] of it."""
        self._large[: int(share * len(self._large))].sum()

    @abstractmethod
    def copy_run(self, moved_bytes: float) -> Run:
        """Return a copy that moves this many bytes [B], to time it after flushes."""

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
        """Describe the allocator of a device; None if it is the process's own."""
        return None

    def host_copies(self) -> list[dict[str, Any]]:
        """Return the tables ``host_copy`` of a file, for a device with its own memory."""
        return []

    def all_reduces(self) -> list[dict[str, Any]]:
        """Return the tables ``all_reduce`` of a file, for a library that sums over processes."""
        return []


def check_result(backend: Backend, benchmark: Benchmark, sizes: Sizes, *, dtype: str) -> None:
    """Check the result of a benchmark against a float64 reference."""
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
    """Return the time of one link of a chain, from chains of two lengths, so that constant parts cancel.

    >>> share_of_chain(lambda length: 0.5 + 0.25 * length)
    0.25
    """
    return max(0.0, (time_chain(long) - time_chain(short)) / (long - short))
