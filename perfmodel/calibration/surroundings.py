"""Measurements other than kernels: best rates, cache capacity, calls, copies, disk and all-reduces."""

from __future__ import annotations

import mmap
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.calibration.benchmark import SEED
from perfmodel.cost.measured_kernel import cold_share
from perfmodel.errors import CalibrationError
from perfmodel.files import MOST_SPEC_BYTES, file_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.calibration.backends.base import Backend
    from perfmodel.hardware.measured_machine import MeasuredOn


FEWEST: Final = 4
"""Fewest kernels of a line with an intercept; fewer are fitted through the origin [1]."""

DISTANCES: Final = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
"""Shares of the memory that a flush reads, after which the copy is timed [1]."""

TRIED: Final = 64
"""Capacities that are tried [1]."""

WIDEST: Final = 4.0
"""Largest tried capacity over the largest distance: beyond, the curve is a straight line for any capacity [1]."""

CLEAR_SHARE: Final = 0.1
"""Relative slowing of the copy below which nothing is known about the caches [1]."""

COPY_SPREAD: Final = 0.5
"""Standard deviation of the slope of kernels around that of one copy [1]."""

NOISE_SHARE: Final = 0.2
"""Noise of a kernel's time after a flush, as a share of its time before [1]."""

HALF_OF_SPREAD: Final = 0.74
"""Half of a standard deviation over the median absolute deviation, for normal noise [1]."""

LEAST_NOISE_S: Final = 1e-6
"""Least noise of a time [s]."""


def flushed_bytes(moved_bytes: Sequence[float] | NDArray[np.float64], *, reuse_bytes: float) -> NDArray[np.float64]:
    """Return the bytes that a repeated kernel finds in the caches, and a flush drives out."""
    moved = np.asarray(moved_bytes, dtype=np.float64)
    kept: NDArray[np.float64] = moved * (1 - cold_share(distance_bytes=moved, cache_bytes=reuse_bytes))
    return kept


def cold_rate(
    hot_s: Sequence[float],
    flushed_s: Sequence[float],
    moved_bytes: Sequence[float],
    *,
    reuse_bytes: float,
    of_copy: float | None = None,
) -> float:
    r"""Return the extra time of a byte that is not in any cache.

    A flush also drives the kernel's instructions and the library's tables out of the caches. That costs every kernel a
    time a, for any size, which in small kernels would look like a cost of bytes. A step does not pay it, because its
    kernels recur; so a is fitted together with the slope, and dropped.

    The time that a flush adds differs between kernels by half of its value, and a long kernel's times scatter by a
    share of their value: both set a kernel's weight, and a kernel far off the line counts less (soft L1). Kernels that
    move more than C are excluded: a flush finds little of their data in a cache, and B exp(-(B / C)^2) falls as they
    grow.
    """
    hot, flushed = np.asarray(hot_s, dtype=np.float64), np.asarray(flushed_s, dtype=np.float64)
    moved = np.asarray(moved_bytes, dtype=np.float64)
    fits = moved <= reuse_bytes
    if not fits.any():
        return of_copy or 0.0
    extra, hot = (flushed - hot)[fits], hot[fits]
    gone = flushed_bytes(moved[fits], reuse_bytes=reuse_bytes)
    through_origin = max(float(extra.sum() / gone.sum()), 0.0)
    rough = of_copy or through_origin
    if len(extra) < FEWEST or rough == 0:
        return rough
    scattered = HALF_OF_SPREAD * float(np.median(np.abs(extra - np.median(extra))))
    noise = np.hypot(NOISE_SHARE * hot, scattered) + LEAST_NOISE_S
    return _slope(gone, extra, noise=noise, rough=rough, drawn_to=of_copy)


@dataclass(frozen=True, slots=True)
class Reuse:
    """Traffic that drives data out of the caches, and the cost of its bytes then, measured on one copy."""

    capacity_bytes: float
    cold_s_per_byte: float


def reuse_of(distances: Sequence[float], seconds: Sequence[float], *, hot_s: float, moved_bytes: float) -> Reuse | None:
    r"""Fit the traffic that drives data out of the caches, and the cost of its bytes then.

    >>> distances = [2e6, 4e6, 8e6, 16e6, 32e6, 64e6]
    >>> seconds = [1e-3 + 2e-5 + 1e-3 * (1 - np.exp(-((distance / 16e6) ** 2))) for distance in distances]
    >>> reuse = reuse_of(distances, seconds, hot_s=1e-3, moved_bytes=1e6)
    >>> round(reuse.capacity_bytes / 1e6), round(reuse.cold_s_per_byte * 1e9, 2)
    (16, 1.0)
    """
    from scipy.optimize import nnls

    apart, extra = np.asarray(distances, dtype=np.float64), np.asarray(seconds, dtype=np.float64) - hot_s
    if extra.max() - extra.min() < CLEAR_SHARE * hot_s:
        return None
    best = (np.inf, 0.0, 0.0)
    for capacity in np.geomspace(apart.min(), WIDEST * apart.max(), TRIED):
        shape = np.stack([np.ones_like(apart), cold_share(distance_bytes=apart, cache_bytes=capacity)], axis=1)
        parts, off = nnls(shape, np.maximum(extra, 0.0))
        best = min(best, (float(off), float(capacity), float(parts[1])))
    _, capacity, whole_s = best
    gone_bytes = float(flushed_bytes([moved_bytes], reuse_bytes=capacity)[0])
    return Reuse(capacity, whole_s / gone_bytes) if gone_bytes else None  # noise alone has slowed a copy that fits


def _slope(
    gone: NDArray[np.float64],
    extra: NDArray[np.float64],
    *,
    noise: NDArray[np.float64],
    rough: float,
    drawn_to: float | None,
) -> float:
    """Return the slope of a robust line whose ends are not below zero; ``rough`` is its size."""
    from scipy.optimize import least_squares

    scale = np.array([rough * float(gone.mean()), rough])
    line = np.stack([np.full_like(gone, scale[0]), gone * scale[1]], axis=1)

    def off(at: NDArray[np.float64]) -> NDArray[np.float64]:
        distance: NDArray[np.float64] = (line @ at - extra) / noise
        if drawn_to:
            distance = np.append(distance, (at[1] * rough / drawn_to - 1) / COPY_SPREAD)
        return distance

    solution = least_squares(off, [0.5, 0.5], bounds=(0, np.inf), loss="soft_l1")
    return float(solution.x[1] * rough)


FILE_BYTES: Final = 48 * 2**20

BLOCK_BYTES: Final = 2**20

PAGE_BYTES: Final = 4096
"""Bytes of a random read, and the alignment of direct reads [B]."""

RANDOM_READS: Final = 64
"""Random reads whose median is taken [1]."""


@contextmanager
def _temporary_file(folder: str | Path | None) -> Iterator[Path]:
    with tempfile.NamedTemporaryFile(prefix="perfmodel_", suffix=".bin", dir=folder) as file:
        block = np.random.default_rng(SEED).bytes(BLOCK_BYTES)  # random, so that file systems cannot compress it
        for _ in range(FILE_BYTES // BLOCK_BYTES):
            os.write(file.fileno(), block)
        os.fsync(file.fileno())
        yield Path(file.name)


def _opened(path: Path) -> tuple[int, str]:
    """Open a file so that reads avoid the page cache, and say how."""
    direct = getattr(os, "O_DIRECT", 0)
    if direct:
        with suppress(OSError):
            return os.open(path, os.O_RDONLY | direct), "page cache avoided by O_DIRECT"
    handle = os.open(path, os.O_RDONLY)
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        return handle, "page cache dropped by posix_fadvise, which the system may ignore"
    return handle, "page cache not avoided: this system offers no way, so that rates may be those of memory"


def measure_storage(
    folder: str | Path | None = None, *, now: Callable[[], float] = time.perf_counter
) -> list[dict[str, Any]]:
    """Time sequential and random reads of a temporary file."""
    try:
        with _temporary_file(folder) as path:
            return [_timed_reads(path, now)]
    except OSError:
        return []


def _timed_reads(path: Path, now: Callable[[], float]) -> dict[str, Any]:
    handle, note = _opened(path)
    try:
        with mmap.mmap(-1, BLOCK_BYTES) as buffer:  # page-aligned, as direct reads need it
            begin = now()
            for place in range(0, FILE_BYTES, BLOCK_BYTES):
                os.preadv(handle, [buffer], place)
            sequential_s = now() - begin
        places = np.random.default_rng(SEED).integers(0, FILE_BYTES // PAGE_BYTES, RANDOM_READS)
        times = []
        with mmap.mmap(-1, PAGE_BYTES) as page:
            for place in places.tolist():
                begin = now()
                os.preadv(handle, [page], place * PAGE_BYTES)
                times.append(now() - begin)
    finally:
        os.close(handle)
    shared = "" if folder_is_on_disk(path) else "; the folder of temporary files lies in memory"
    return {
        "sequential_bytes_per_s": FILE_BYTES / max(sequential_s, 1e-9),
        "random_read_s": statistics.median(times),
        "note": f"a file of {FILE_BYTES // 2**20} MiB; {note}{shared}",
    }


def folder_is_on_disk(path: Path) -> bool:
    """Tell whether a file lies on a file system that is not in memory."""
    mounts = Path("/proc/mounts")
    if not mounts.is_file():
        return True
    kinds = {line.split()[1]: line.split()[2] for line in file_text(mounts, most_bytes=MOST_SPEC_BYTES).splitlines()}
    above = [str(folder) for folder in path.resolve().parents if str(folder) in kinds]
    return not above or kinds[above[0]] not in ("tmpfs", "ramfs")


REUSE_SHARE: Final = 0.05
"""Largest share of the budget that measuring the reuse of data may take [1]."""

REUSE_BUDGET_S: Final = 15.0
"""Smallest budget with which the reuse of data is measured; below it the last cache's size is used [s]."""

PROCESSES_BUDGET_S: Final = 30.0
"""Budget below which no all-reduce is timed, because its processes need seconds to import torch [s]."""


def measure_surroundings(
    backend: Backend,
    costs: dict[str, Any],
    *,
    dtypes: Sequence[str],
    machine: MeasuredOn,
    budget_s: float,
    now: Callable[[], float],
) -> list[str]:
    """Make the measurements that are still missing."""
    notes: list[str] = []
    steps: dict[str, Callable[[], Any]] = {
        "peaks": partial(_peaks, backend, dtypes),
        "overheads": backend.overheads,
        "host_copy": backend.host_copies,
        "storage": measure_storage,
        "clock_mhz": backend.clock_mhz,
    }
    if budget_s >= REUSE_BUDGET_S:
        steps["reuse"] = partial(_reuse, backend, machine, time_s=REUSE_SHARE * budget_s, now=now)
    if budget_s >= PROCESSES_BUDGET_S:
        steps["all_reduce"] = partial(_all_reduces, backend, notes)
    for name, measure in steps.items():
        if name not in costs:
            costs[name] = measure()
    return notes


def _peaks(backend: Backend, dtypes: Sequence[str]) -> Mapping[str, Any]:
    rates: dict[str, float] = {}
    stream = 0.0
    for dtype in dtypes:
        with backend.settings(dtype):
            product, copy = backend.peak_runs(dtype)
            rates[dtype] = product.amount / backend.clock.time(product.run).seconds
            stream = max(stream, copy.amount / backend.clock.time(copy.run).seconds)
    return {"gemm_flop_per_s": rates, "stream_bytes_per_s": stream}


def _reuse(backend: Backend, machine: MeasuredOn, *, time_s: float, now: Callable[[], float]) -> Mapping[str, Any]:
    """Time one copy after increasing amounts of other traffic, up to a whole flush."""
    clock, end_s = backend.clock, now() + time_s
    # larger than the near cache, but small enough to stay in the last one until other traffic evicts it
    moved = min(max(2 * machine.near_cache_bytes, machine.cache_bytes / 32), machine.cache_bytes / 4)
    copy = backend.copy_run(moved)
    backend.flush()
    hot_s = clock.time(copy).seconds
    after: dict[float, float] = {}
    for share in DISTANCES:
        if now() < end_s:
            after[share] = clock.time_after(partial(backend.flush, share), copy, samples=5).seconds
    distances, seconds = [share * backend.flush_bytes for share in after], list(after.values())
    reuse = None
    if len(after) == len(DISTANCES):
        reuse = reuse_of(distances, seconds, hot_s=hot_s, moved_bytes=moved)
    measured = {"moved_bytes": moved, "hot_s": hot_s, "distances": distances, "seconds": seconds}
    return measured | ({} if reuse is None else asdict(reuse))


def _all_reduces(backend: Backend, notes: list[str]) -> list[dict[str, Any]]:
    try:
        return backend.all_reduces()
    except CalibrationError as error:
        notes.append(f"no all-reduce: {error}")
        return []
