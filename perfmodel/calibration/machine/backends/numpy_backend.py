"""numpy on the host's CPU: products through its BLAS and passes over arrays, on any machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np

from perfmodel.calibration.machine import facts
from perfmodel.calibration.machine.backends import numpy_kernels
from perfmodel.calibration.machine.backends.base import Backend, PeakRun
from perfmodel.calibration.machine.backends.numpy_kernels import NumpyTools
from perfmodel.calibration.machine.benchmark import Benchmark, Prepared, Run, Sizes
from perfmodel.calibration.machine.process_allocator import page_fault_s
from perfmodel.calibration.machine.timing import Clock, HostClock
from perfmodel.errors import ArgumentError
from perfmodel.units import MIB

NUMPY_DTYPE: Final = {"fp32": np.float32, "fp64": np.float64}
"""Data type -> that of arrays."""

BENCHMARKS: Final = (numpy_kernels.benchmarks,)
"""What yields the benchmarks of numpy."""

THREADS: Final = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
"""Variables that tell a BLAS how many threads it may use."""


def blas_threads() -> int:
    """Return the threads of the BLAS: as its environment tells, else all physical cores [1]."""
    given = next((os.environ[name] for name in THREADS if os.environ.get(name, "").isdigit()), None)
    return min(int(given), facts.physical_cores()) if given else facts.physical_cores()


def _blas() -> str:
    found: Any = np.show_config(mode="dicts")
    blas = (found or {}).get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()


class NumpyBackend(Backend):
    """numpy.

    Parameters
    ----------
    target : str
        ``cpu``. [-]

    Raises
    ------
    ArgumentError
        If it is another.
    """

    name: ClassVar[str] = "numpy"

    def __init__(self, target: str) -> None:
        if target != "cpu":
            raise ArgumentError(argument="target", given=target, allowed="cpu for backend='numpy'")
        self._tools = {dtype: NumpyTools(kind) for dtype, kind in NUMPY_DTYPE.items()}

    @cached_property
    def clock(self) -> Clock:
        """The host's monotonic clock."""
        return HostClock()

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Single and double precision."""
        return ("fp32", "fp64")

    @property
    def default_dtypes(self) -> tuple[str, ...]:
        """Both: numpy's own is double."""
        return self.dtypes

    def facts(self) -> dict[str, Any]:
        """Return the table ``machine``."""
        return facts.cpu_facts(blas_threads())

    def software(self) -> dict[str, str]:
        """Return the versions of numpy and its BLAS."""
        return facts.host_software() | {"blas": _blas()}

    def clock_mhz(self) -> float | None:
        """Return the clock of the processor now."""
        return facts.clock_mhz()

    def benchmarks(self, dtype: str) -> Mapping[str, Benchmark]:
        """Return all benchmarks of numpy, the same in every data type."""
        del dtype
        return {each.name: each for kind in BENCHMARKS for each in kind()}

    def prepare(self, benchmark: Benchmark, sizes: Sizes, *, dtype: str) -> Prepared:
        """Return a kernel with its operands."""
        return benchmark.prepare(self._tools[dtype], sizes, benchmark.operation(sizes))

    def results(self, benchmark: Benchmark, sizes: Sizes, *, dtype: str) -> tuple[Any, Any, bool]:
        """Return what a kernel makes, in both data types from the same random numbers."""
        made, is_random = [], False
        for each in (dtype, "fp64"):
            self._tools[each].restart()
            prepared = self.prepare(benchmark, sizes, dtype=each)
            made.append(np.asarray(prepared.run(), dtype=np.float64))
            is_random = prepared.random
        return made[0], made[1], is_random

    def settings(self, dtype: str) -> AbstractContextManager[None]:
        """Return a block that changes nothing."""
        del dtype
        return nullcontext()

    @cached_property
    def _large(self) -> Any:
        return np.ones(int(1.25 * self.facts()["cache_mib"] * MIB / 4), dtype=np.float32)

    @property
    def flush_bytes(self) -> float:
        """Size of the array that a flush reads [B]."""
        return float(self._large.nbytes)

    def flush(self, share: float = 1.0) -> None:
        """Read an array larger than the last cache, or a part of it."""
        self._large[: int(share * self._large.size)].sum()

    def copy_run(self, moved_bytes: float) -> Run:
        """Return the copy of one array to another."""
        source = self._tools["fp32"].normal(int(moved_bytes / 8))
        target = np.empty_like(source)
        return lambda: np.copyto(target, source)

    def reference(self) -> Run:
        """Return a product and a pass of moderate size."""
        left, right = (self._tools["fp32"].normal(400, 400) for _ in range(2))
        return lambda: np.maximum(left @ right, 0)

    def peak_runs(self, dtype: str) -> tuple[PeakRun, PeakRun]:
        """Return a square product, and a copy of an array larger than the last cache."""
        edge = 1280
        left, right = (self._tools[dtype].normal(edge, edge) for _ in range(2))
        target = np.empty_like(self._large)
        product = PeakRun(lambda: left @ right, 2.0 * edge**3)
        return product, PeakRun(lambda: np.copyto(target, self._large), 2.0 * 4 * target.size)

    def overheads(self) -> dict[str, float]:
        """Return fresh pages alone: a script of numpy calls kernels and nothing else [s]."""
        return {"page_fault_s": page_fault_s()}
