"""Facts of the machine: processor, cores, caches, memory, clock, versions. Read, never set."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from perfmodel.errors import SpecError
from perfmodel.files import MOST_SPEC_BYTES, file_bytes
from perfmodel.hardware import spec_files
from perfmodel.units import GIB, MIB

CPU_INFO: Final = Path("/proc/cpuinfo")
MEMORY_INFO: Final = Path("/proc/meminfo")
CPUS: Final = Path("/sys/devices/system/cpu")
UNKNOWN_CACHE_MIB: Final = 32.0
"""Last-level cache that is assumed if the system reports none [MiB]."""
UNKNOWN_NEAR_MIB: Final = 1.0
"""Cache of one core that is assumed if the system reports none [MiB]."""

VECTOR_LANES: Final = (("avx512f", 16), ("avx", 8), ("asimd", 4), ("sse2", 4))
"""Flag of a processor -> elements of single precision in its vectors, the widest first [1]."""


def _text(path: Path) -> str:
    try:
        return file_bytes(path, most_bytes=MOST_SPEC_BYTES).decode(errors="replace")
    except SpecError:
        return ""


def _first(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text, re.MULTILINE)
    return match.group(1).strip() if match else None


def usable_cpus() -> tuple[int, ...]:
    """Return the logical processors that this process may use [-]."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def physical_cores() -> int:
    """Return the cores behind the logical processors that this process may use [1]."""
    siblings = {
        _text(CPUS / f"cpu{cpu}" / "topology" / "thread_siblings_list").strip() or str(cpu) for cpu in usable_cpus()
    }
    return max(1, len(siblings))


def _cache_bytes() -> dict[int, dict[str, int]]:
    """Map level -> {processors that share a cache: its bytes}, for processors that this process may use."""
    by_level: dict[int, dict[str, int]] = {}
    for cpu in usable_cpus():
        for index in sorted((CPUS / f"cpu{cpu}" / "cache").glob("index*")):
            level, size = _text(index / "level").strip(), _text(index / "size").strip()
            is_data = _text(index / "type").strip() in ("Data", "Unified")
            if level.isdigit() and size.endswith("K") and is_data:
                shared = _text(index / "shared_cpu_list").strip()
                by_level.setdefault(int(level), {})[shared] = 1024 * int(size[:-1])
    return by_level


def caches_mib() -> tuple[float, float]:
    """Return the last-level cache, and the sum of all caches of the level before it [MiB]."""
    levels = _cache_bytes()
    if not levels:
        return UNKNOWN_CACHE_MIB, UNKNOWN_NEAR_MIB * physical_cores()
    last = max(levels)
    near = max((level for level in levels if level < last), default=last)
    return max(levels[last].values()) / MIB, sum(levels[near].values()) / MIB


def memory_gib() -> float:
    """Return the memory of the host, or of the group of processes where that is less [GiB]."""
    kib = _first(r"^MemTotal:\s+(\d+) kB", _text(MEMORY_INFO))
    total = int(kib) * 1024 if kib else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")):
        limit_bytes = _text(limit).strip()
        if limit_bytes.isdigit():
            total = min(total, int(limit_bytes))
    return total / GIB


def clock_mhz() -> float | None:
    """Return the mean clock of the processors now, where it can be read [MHz]."""
    clocks = [float(mhz) for mhz in re.findall(r"^cpu MHz\s+: ([\d.]+)", _text(CPU_INFO), re.MULTILINE)]
    return sum(clocks) / len(clocks) if clocks else None


def gpu_clock_mhz(uuid: str) -> float | None:
    """Return the present clock of an NVIDIA GPU's multiprocessors, from its driver's program."""
    which = f"GPU-{uuid.removeprefix('GPU-')}" if uuid else "0"
    command = ["nvidia-smi", f"--id={which}", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
        return float(output.strip()) or None
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def vector_lanes() -> int:
    """Return the elements of single precision that one vector instruction handles [1]."""
    flags = set((_first(r"^(?:flags|Features)\s*:(.*)$", _text(CPU_INFO)) or "").split())
    return next((lanes for flag, lanes in VECTOR_LANES if flag in flags), 4)


FORM_FACTORS: Final = frozenset({"sxm", "sxm2", "sxm5", "pcie", "gcd"})
"""Words of a device file's name that a driver may leave out of a GPU's."""

SAYS_NOTHING: Final = frozenset(
    {"nvidia", "geforce", "tesla", "amd", "instinct", "intel", "core", "cpu", "gpu", "processor"}
)
"""Words of a processor's name that a device file may leave out; other words may mark another model."""


def datasheet_of(model: str) -> str | None:
    """Return the device file whose name has the words of the processor's name, if there is exactly one.

    >>> datasheet_of("NVIDIA GeForce GTX 1080 Ti"), datasheet_of("NVIDIA GeForce GTX 1070 Ti")
    ('gtx_1080_ti', None)
    """
    plain = re.sub(
        r"\((?:r|tm)\)|\d+-core\b|@.*", " ", model.lower()
    )  # trademarks, cores and clock do not identify a model
    words = frozenset(re.findall(r"[a-z0-9]+", plain)) - SAYS_NOTHING
    matches = [name for name in spec_files.names("devices") if _is_named(name, words)]
    return matches[0] if len(matches) == 1 else None


def _is_named(name: str, words: frozenset[str]) -> bool:
    """Tell whether a processor's name and a device file's name have the same words."""
    matching: set[str] = set()
    for part in name.split("_"):
        ways = {part, f"{part}gb"} | ({f"sxm{version}" for version in range(2, 7)} if part == "sxm" else set())
        if not ways & words and part not in FORM_FACTORS | SAYS_NOTHING:
            return False
        matching |= ways
    memory = {word for word in words - matching if re.fullmatch(r"\d+gb", word)}
    return words <= matching | memory and (not memory or memory == {_memory_word(name)})


def _memory_word(name: str) -> str:
    """Write the memory of a device file in the form that drivers use."""
    stated = spec_files.read_toml(spec_files.find("devices", name)).get("memory", {})
    return f"{stated.get('capacity_gib', 0):g}gb"


def cpu_facts(threads: int) -> dict[str, Any]:
    """Return the table ``machine`` of a file for the host's CPU."""
    last, near = caches_mib()
    model = _first(r"^model name\s*: (.*)$", _text(CPU_INFO)) or platform.processor() or platform.machine()
    return {
        "processor": "cpu",
        "model": model,
        "datasheet": datasheet_of(model),
        "core_count": physical_cores(),
        "threads": threads,
        "memory_gib": round(memory_gib(), 2),
        "cache_mib": round(last, 3),
        "near_cache_mib": round(near, 3),
        "vector_lanes": vector_lanes(),
    }


def host_software() -> dict[str, str]:
    """Return the versions that every backend records."""
    import numpy as np

    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "operating_system": f"{platform.system()} {platform.release()}".strip() or sys.platform,
    }


TRIM_THRESHOLD, MMAP_MAX = -1, -4
"""Parameters M_TRIM_THRESHOLD and M_MMAP_MAX of mallopt. [-]"""
KEPT_BY: Final = {TRIM_THRESHOLD: -1, MMAP_MAX: 0}
"""Values that let glibc keep freed memory: no trimming, no mapping of single blocks. [-]"""
PARAMETERS: Final = (("MALLOC_TRIM_THRESHOLD_", TRIM_THRESHOLD, 128 * 1024), ("MALLOC_MMAP_MAX_", MMAP_MAX, 65536))
"""Environment variable, parameter and glibc's default of each. [-]"""

KEPT: Final = "glibc, freed memory kept (mallopt: no trimming, no mapping of single blocks)"
AS_FOUND: Final = "as found: this C library has no mallopt"

PAGE_BYTES: Final = 4096

FRESH_BYTES: Final = 32 * 2**20
"""Fresh memory that is touched to time page faults [B]."""


@contextmanager
def freed_memory_kept() -> Iterator[str]:
    """Let the allocator keep freed memory in the block, if it can, and yield a description of that.

    By default glibc maps large blocks anew each time and returns the top of the heap, so that the pages of a kernel's
    result may or may not be present. A predicted network runs like that too, unless its environment sets
    ``MALLOC_TRIM_THRESHOLD_`` and ``MALLOC_MMAP_MAX_``. After the block, free memory is returned.
    """
    library = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
    if library is None or not hasattr(library, "mallopt"):
        yield AS_FOUND
        return
    stated = {number: os.environ.get(name, "") for name, number, _ in PARAMETERS}
    usual = {
        number: int(stated[number]) if stated[number].removeprefix("-").isdecimal() else default
        for _, number, default in PARAMETERS
    }
    set_both = all(library.mallopt(number, kept) for number, kept in KEPT_BY.items())
    try:
        yield KEPT if set_both else AS_FOUND
    finally:
        for number, value in usual.items():
            library.mallopt(number, value)
        library.malloc_trim(0)


def page_fault_s() -> float:
    """Time the first touch of a page of memory [s]."""
    with mmap.mmap(-1, FRESH_BYTES) as block:
        times = []
        for _ in range(2):
            begin = time.perf_counter()
            for place in range(0, FRESH_BYTES, PAGE_BYTES):
                block[place] = 1
            times.append(time.perf_counter() - begin)
    return max(0.0, times[0] - times[1]) / (FRESH_BYTES // PAGE_BYTES)


THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
"""Environment variables for the number of threads, in the order in which a BLAS prefers them."""


def child_environment(threads: int) -> dict[str, str]:
    """Return the environment of another process, with a fixed number of threads and the path of this package."""
    folders = [str(Path(__file__).resolve().parents[3]), os.environ.get("PYTHONPATH", "")]
    counts = {name: str(threads) for name in THREADS}
    return {**os.environ, **counts, "PYTHONPATH": os.pathsep.join(path for path in folders if path)}
