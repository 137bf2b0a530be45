"""numpy on the host's CPU: products through its BLAS and passes over arrays, on any machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np

from perfmodel.calibration import facts, families
from perfmodel.calibration.backends import numpy_kernels
from perfmodel.calibration.backends.base import Backend, Clock, HostClock, PeakRun
from perfmodel.calibration.benchmark import SEED, Benchmark, Prepare, Prepared, Run, Sizes
from perfmodel.calibration.facts import page_fault_s
from perfmodel.calibration.families import Family
from perfmodel.derived import derived_property
from perfmodel.errors import ArgumentError
from perfmodel.records import Operation, Role
from perfmodel.units import MIB

POOL: Final = 1 << 21
"""Random numbers that are drawn; larger arrays repeat them [1]."""

BLOCK: Final = 1 << 22
"""Numbers written in one call; Ctrl-C is handled between calls [1]."""


def _touched(count: int) -> Any:
    """Return an array whose pages exist."""
    large = np.empty(count, dtype=np.float32)
    for start in range(0, count, BLOCK):
        large[start : start + BLOCK] = 1
    return large


class NumpyTools:
    """Makes operands in a data type."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self._pool = np.random.default_rng(SEED).standard_normal(POOL).astype(np.float32).astype(dtype)
        self.restart()

    def restart(self) -> None:
        """Reset the generator, so that the same operands are drawn again."""
        self._generator = np.random.default_rng(SEED)
        self._shift = 0

    def normal(self, *shape: int) -> Any:
        """Return an array of random normal numbers [1] in its own memory."""
        self._shift = (self._shift + 9973) % (POOL // 2)
        return np.resize(self._pool[self._shift :], shape)

    def integers(self, high: int, *shape: int) -> Any:
        """Return an array of random whole numbers below ``high`` [1]."""
        return self._generator.integers(high, size=shape)


def _pass(stated: Mapping[str, Any], family: Family, phase: str) -> Prepare:
    """Return the maker of a pass of ``shapes.toml``: its function of numpy or of ``numpy_kernels``, with operands."""
    call = stated[phase]
    if isinstance(call, str):
        prepare: Prepare = getattr(numpy_kernels, call)
        return prepare
    name, *stated_operands = call
    run = getattr(numpy_kernels, name, None) or getattr(np, name)

    def prepare_call(tools: NumpyTools, sizes: Sizes, operation: Operation) -> Prepared:
        shape = family.tensor(sizes)
        operands = [tools.normal(*shape) if isinstance(entry, str) else entry for entry in stated_operands]
        return Prepared(partial(run, *operands), random=stated.get("random", False))

    return prepare_call


def numpy_benchmarks() -> Iterator[Benchmark]:
    """Yield the benchmarks of numpy."""
    kernels = numpy_kernels
    yield from families.role_benchmarks(
        families.by_role("gemm"),
        families.CONTRACTION_AXES,
        families.contraction,
        kernels.dense,
        point_count=28,
        weight=4,
    )
    batched = families.by_role("batched_gemm", (Role.OUTPUT, Role.INPUT_GRADIENT))
    yield from families.role_benchmarks(batched, families.BATCHED_AXES, families.batched_contraction, kernels.batched)
    yield from families.stated_passes("numpy", _pass)
    yield from families.role_benchmarks(families.GATHERS, families.GATHER_AXES, families.gather, kernels.gather)
    yield from families.update_benchmarks(kernels.UPDATES, kernels.update)


NUMPY_DTYPE: Final = {"fp32": np.float32, "fp64": np.float64}

BENCHMARKS: Final = (numpy_benchmarks,)


def blas_threads() -> int:
    """Return the threads of the BLAS: from its environment, else all physical cores [1]."""
    thread_count = next((os.environ[name] for name in facts.THREADS if os.environ.get(name, "").isdigit()), None)
    return min(int(thread_count), facts.physical_cores()) if thread_count else facts.physical_cores()


def _blas() -> str:
    config: Any = np.show_config(mode="dicts")
    blas = (config or {}).get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()


class NumpyBackend(Backend):
    """numpy."""

    name: ClassVar[str] = "numpy"

    def __init__(self, target: str) -> None:
        if target != "cpu":
            raise ArgumentError(argument="target", given=target, allowed="cpu for backend='numpy'")
        self._tools = {dtype: NumpyTools(kind) for dtype, kind in NUMPY_DTYPE.items()}

    @derived_property
    def clock(self) -> Clock:
        """The host's monotonic clock."""
        return HostClock()

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Single and double precision."""
        return ("fp32", "fp64")

    @property
    def default_dtypes(self) -> tuple[str, ...]:
        """Both, because double is numpy's default."""
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
        return {benchmark.name: benchmark for kind in BENCHMARKS for benchmark in kind()}

    def tools(self, dtype: str, *, small: bool = False) -> NumpyTools:
        """Return the maker of operands in a data type."""
        return self._tools[dtype]

    def array(self, result: Any) -> Any:
        """Return a result in double precision."""
        return np.asarray(result, dtype=np.float64)

    def settings(self, dtype: str) -> AbstractContextManager[None]:
        """Return a block that changes nothing."""
        return nullcontext()

    @derived_property
    def _large(self) -> Any:
        return _touched(int(1.25 * self.facts()["cache_mib"] * MIB / 4))

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
        target = _touched(self._large.size)
        product = PeakRun(lambda: left @ right, 2.0 * edge**3)
        return product, PeakRun(lambda: np.copyto(target, self._large), 2.0 * 4 * target.size)

    def overheads(self) -> dict[str, float]:
        """Return the time of fresh pages only: a numpy script has no other overheads [s]."""
        return {"page_fault_s": page_fault_s()}
