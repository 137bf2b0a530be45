"""torch on a CPU or a CUDA GPU: the kernels that networks really run there."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from perfmodel.calibration import facts
from perfmodel.calibration.backends.base import Backend, Clock, HostClock, PeakRun, smallest_sizes
from perfmodel.calibration.backends.torch_overheads import all_reduces, host_copies, overheads
from perfmodel.calibration.backends.torch_passes import POOL, CudaClock, TorchTools, pass_benchmarks, product_benchmarks
from perfmodel.calibration.benchmark import SEED, Benchmark, Run
from perfmodel.derived import derived_property
from perfmodel.errors import ArgumentError, package_for
from perfmodel.units import GIB, MIB

TORCH_DTYPE: Final = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp64": "float64"}

BENCHMARKS: Final = (product_benchmarks, pass_benchmarks)

SMALL_POOL: Final = 1 << 16
"""Random numbers for the small operands of a check [1]."""

LARGER: Final = {False: 1.25, True: 4.0}
"""Whether on a GPU -> bytes that a flush reads over the last cache's size; a GPU's cache keeps part of a stream [1]."""

LOAD_S: Final = 0.5
"""Time for which a GPU multiplies matrices while its clock is read [s]."""

TENSOR_CORE_MAJOR: Final = 8
"""First compute capability with tf32 and bf16 [1]."""


def _checked_device(torch: Any, target: str) -> str:
    """Return the device of a target; raise if torch or the machine does not have it."""
    if target == "cpu":
        return target
    match = re.fullmatch(r"cuda(?::(\d+))?", target)
    if match is None:
        raise ArgumentError(argument="target", given=target, allowed="cpu, or cuda:N for the GPU of that number")
    if not torch.cuda.is_available():
        built = "" if torch.version.cuda else f"; torch {torch.__version__} is built without CUDA"
        raise ArgumentError(argument="target", given=target, allowed=f"cpu, as torch finds no CUDA GPU here{built}")
    index, count = int(match.group(1) or 0), torch.cuda.device_count()
    if index >= count:
        names = ", ".join(f"cuda:{number} ({torch.cuda.get_device_name(number)})" for number in range(count))
        raise ArgumentError(argument="target", given=target, allowed=f"one of {names}, or cpu")
    return f"cuda:{index}"


def _has_products(benchmark: Benchmark) -> bool:
    """Tell whether kernels of a class multiply matrices: products, convolutions, recurrent layers, attention."""
    return bool(benchmark.operation(smallest_sizes(benchmark)).product_flop_count)


class TorchBackend(Backend):
    """torch on one device."""

    name: ClassVar[str] = "torch"

    def __init__(self, target: str) -> None:
        self.torch = package_for("torch", "calibrating with backend='torch'", "torch")
        self.target = _checked_device(self.torch, target)
        self._tools: dict[tuple[str, bool], TorchTools] = {}
        if self._on_gpu:
            self.torch.cuda.set_device(self.target)

    @property
    def _on_gpu(self) -> bool:
        return self.target != "cpu"

    @derived_property
    def clock(self) -> Clock:
        """Events on a GPU, the host's monotonic clock on a CPU."""
        return CudaClock(self.torch, self.target) if self._on_gpu else HostClock()

    @derived_property
    def _properties(self) -> Any:
        return self.torch.cuda.get_device_properties(self.target)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Single precision, and halves; tf32 on the GPUs that have it."""
        if not self._on_gpu:
            return ("fp32", "bf16", "fp16")
        return ("fp32", "tf32", "bf16", "fp16") if self._properties.major >= TENSOR_CORE_MAJOR else ("fp32", "fp16")

    @property
    def default_dtypes(self) -> tuple[str, ...]:
        """fp32 on a CPU; tf32 and bf16 too on a GPU that has them."""
        return self.dtypes[:1] if not self._on_gpu else self.dtypes[:3]

    def facts(self) -> dict[str, Any]:
        """Return the table ``machine``."""
        if not self._on_gpu:
            return facts.cpu_facts(self.torch.get_num_threads())
        gpu = self._properties
        cache_mib = getattr(gpu, "L2_cache_size", 0) / MIB or facts.UNKNOWN_CACHE_MIB
        return {
            "processor": "gpu",
            "model": gpu.name,
            "datasheet": facts.datasheet_of(gpu.name),
            "core_count": gpu.multi_processor_count,
            "memory_gib": round(gpu.total_memory / GIB, 2),
            "cache_mib": round(cache_mib, 3),
            "near_cache_mib": round(cache_mib, 3),
            "vector_lanes": 1,
        }

    def software(self) -> dict[str, str]:
        """Return the versions of torch and its libraries."""
        torch = self.torch
        versions = facts.host_software() | {"torch": torch.__version__}
        blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
        if blas:
            versions["blas"] = blas.group(1)
        if self._on_gpu:
            versions["cuda"] = str(torch.version.cuda)
            if torch.backends.cudnn.is_available():
                versions["cudnn"] = str(torch.backends.cudnn.version())
            driver = getattr(torch._C, "_cuda_getDriverVersion", None)
            if driver is not None:
                versions["driver"] = str(driver())
        return versions

    def clock_mhz(self) -> float | None:
        """Return the clock of the processor now: of a GPU while it multiplies matrices, as an idle one slows down."""
        if not self._on_gpu:
            return facts.clock_mhz()
        product, _ = self.peak_runs("fp32")
        times = math.ceil(LOAD_S / max(self.clock.time(product.run).seconds, 1e-6))
        for _ in range(times):
            product.run()
        mhz = facts.gpu_clock_mhz(str(getattr(self._properties, "uuid", "")))
        if mhz is None:
            try:
                mhz = float(self.torch.cuda.clock_rate(self.target)) or None
            except Exception:  # needs the driver's management library, which raises its own errors
                mhz = None
        self.torch.cuda.synchronize(self.target)
        return mhz

    def benchmarks(self, dtype: str) -> Mapping[str, Benchmark]:
        """Return all benchmarks of torch; in tf32 only those with products, as the others equal fp32."""
        made = {benchmark.name: benchmark for kind in BENCHMARKS for benchmark in kind()}
        return made if dtype != "tf32" else {name: timed for name, timed in made.items() if _has_products(timed)}

    def tools(self, dtype: str, *, small: bool = False) -> TorchTools:
        """Return the maker of operands in a data type; ``small`` ones use few random numbers."""
        name = TORCH_DTYPE[dtype]
        if (name, small) not in self._tools:
            pool = SMALL_POOL if small else POOL
            self._tools[name, small] = TorchTools(self.torch, device=self.target, dtype=name, seed=SEED, pool=pool)
        return self._tools[name, small]

    def array(self, result: Any) -> Any:
        """Return the first tensor of a result."""
        while isinstance(result, list | tuple):
            result = next(part for part in result if part is not None)
        return result.detach().double().cpu().numpy()

    @contextmanager
    def settings(self, dtype: str) -> Iterator[None]:
        """Allow tf32 in products and convolutions only for that data type, and restore the setting afterwards."""
        switches = (self.torch.backends.cuda.matmul, self.torch.backends.cudnn)
        before = [switch.allow_tf32 for switch in switches]
        for switch in switches:
            switch.allow_tf32 = dtype == "tf32"
        try:
            yield
        finally:
            for switch, allowed in zip(switches, before, strict=True):
                switch.allow_tf32 = allowed

    @derived_property
    def _large(self) -> Any:
        """A tensor larger than the last cache: it evicts all other data, and its copy goes through memory."""
        elements = int(LARGER[self._on_gpu] * self.facts()["cache_mib"] * MIB / 4)
        return self.tools("fp32").normal(elements)

    def copy_run(self, moved_bytes: float) -> Run:
        """Return the copy of one tensor to another."""
        source = self.tools("fp32").normal(int(moved_bytes / 8))
        target = self.torch.empty_like(source)
        return lambda: target.copy_(source)

    def reference(self) -> Run:
        """Return a product and a pass of moderate size."""
        tools = self.tools("fp32")
        edge = 1500 if self._on_gpu else 400
        left, right, torch = tools.normal(edge, edge), tools.normal(edge, edge), self.torch
        return lambda: torch.relu(torch.mm(left, right))

    def peak_runs(self, dtype: str) -> tuple[PeakRun, PeakRun]:
        """Return a square product, and a copy of a tensor larger than the last cache."""
        tools = self.tools(dtype)
        edge = 4096 if self._on_gpu else 1280
        left, right, torch = tools.normal(edge, edge), tools.normal(edge, edge), self.torch
        target = torch.empty_like(self._large)
        product = PeakRun(lambda: torch.mm(left, right), 2.0 * edge**3)
        return product, PeakRun(lambda: target.copy_(self._large), 2.0 * 4 * target.numel())

    def overheads(self) -> dict[str, float]:
        """Time autograd, modules and optimizers beyond their kernels [s]."""
        return overheads(self.tools("fp32"))

    def allocator(self) -> str | None:
        """Describe torch's own allocator of a GPU's memory."""
        if not self._on_gpu:
            return None
        setting = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF")
        return f"on the GPU torch's {self.torch.cuda.get_allocator_backend()}" + (f" ({setting})" if setting else "")

    def host_copies(self) -> list[dict[str, Any]]:
        """Return copies both ways, from pinned and pageable memory, of a GPU."""
        return host_copies(self.tools("fp32")) if self._on_gpu else []

    def all_reduces(self) -> list[dict[str, Any]]:
        """Return an all-reduce between all GPUs of the box, or between two processes on a CPU of several cores."""
        distributed = self.torch.distributed
        if not distributed.is_available():
            return []
        library = "nccl" if self._on_gpu else "gloo"
        count = self.torch.cuda.device_count() if self._on_gpu else min(2, len(facts.usable_cpus()))
        if count < 2 or not getattr(distributed, f"is_{library}_available")():
            return []
        threads = max(1, self.torch.get_num_threads() // count)
        return all_reduces(library=library, process_count=count, threads=threads)
