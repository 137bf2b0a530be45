"""Reads from a disk without its page cache, as far as the system allows; what was done is told."""

from __future__ import annotations

import mmap
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from perfmodel.calibration.machine.drawing import SEED

FILE_BYTES: Final = 48 * 2**20
"""Size of the temporary file [B]."""

BLOCK_BYTES: Final = 2**20
"""Bytes of a sequential read [B]."""

PAGE_BYTES: Final = 4096
"""Bytes of a random read, and what direct reads are aligned to [B]."""

RANDOM_READS: Final = 64
"""Random reads whose median is taken [1]."""


@contextmanager
def _temporary_file(folder: str | Path | None) -> Iterator[Path]:
    handle, name = tempfile.mkstemp(prefix="perfmodel_", suffix=".bin", dir=folder)
    path = Path(name)
    try:
        block = np.random.default_rng(SEED).bytes(BLOCK_BYTES)  # random, so that no file system compresses it away
        for _ in range(FILE_BYTES // BLOCK_BYTES):
            os.write(handle, block)
        os.fsync(handle)
        os.close(handle)
        yield path
    finally:
        with suppress(OSError):
            os.close(handle)
        path.unlink(missing_ok=True)


def _opened(path: Path) -> tuple[int, str]:
    """Return a file that is read past the page cache, and how that was done."""
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
    """Time sequential and random reads of a temporary file.

    Parameters
    ----------
    folder : str, Path or None
        Where the file lies; None for the folder of temporary files. [-]
    now : callable
        Clock. [s]

    Returns
    -------
    list of dict
        One table ``storage`` of a calibration file [B/s, s]; none where there is no space for the file.
    """
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
    kinds = {line.split()[1]: line.split()[2] for line in mounts.read_text(encoding="utf-8").splitlines()}
    above = [str(folder) for folder in path.resolve().parents if str(folder) in kinds]
    return not above or kinds[above[0]] not in ("tmpfs", "ramfs")
