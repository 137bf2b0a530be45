"""The C allocator of this process, so set that memory once fetched is kept: else page faults make times bimodal.

A setting of the process that measures, never of the machine.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import time
from pathlib import Path
from typing import Final

TRIM_THRESHOLD: Final = -1
"""Parameter M_TRIM_THRESHOLD of mallopt [-]."""
MMAP_MAX: Final = -4
"""Parameter M_MMAP_MAX of mallopt [-]."""

KEPT: Final = "glibc, freed memory kept (mallopt: no trimming, no mapping of single blocks)"
AS_FOUND: Final = "as found: this C library has no mallopt"

PAGE_BYTES: Final = 4096

FRESH_BYTES: Final = 32 * 2**20
"""Fresh memory that is touched to time page faults [B]."""


def keep_freed_memory() -> str:
    """Tell the allocator to keep freed memory, where it can be told; return what was done, in words.

    Returns
    -------
    str
        How the allocator is set. [-]

    Notes
    -----
    glibc maps blocks above a threshold anew each time and gives the top of the heap back, so that the same kernel finds
    its result's pages there or not. Users of a predicted network see the same, unless they set
    ``MALLOC_TRIM_THRESHOLD_`` and ``MALLOC_MMAP_MAX_`` in its environment.
    """
    if not sys.platform.startswith("linux"):
        return AS_FOUND
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return AS_FOUND
    set_both = mallopt(TRIM_THRESHOLD, -1) and mallopt(MMAP_MAX, 0)
    return KEPT if set_both else AS_FOUND


def page_fault_s() -> float:
    """Return what the first touch of a page of memory takes [s]."""
    with mmap.mmap(-1, FRESH_BYTES) as block:
        times = []
        for _ in range(2):
            begin = time.perf_counter()
            for place in range(0, FRESH_BYTES, PAGE_BYTES):
                block[place] = 1
            times.append(time.perf_counter() - begin)
    return max(0.0, times[0] - times[1]) / (FRESH_BYTES // PAGE_BYTES)


THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Variables that tell libraries how many threads they may use."""


def child_environment(threads: int) -> dict[str, str]:
    """Return the environment of another process: threads fixed before any library is loaded, this package found.

    Parameters
    ----------
    threads : int
        Threads of its libraries. [1]

    Returns
    -------
    dict of str to str
        Values by name. [-]
    """
    found = [str(Path(__file__).resolve().parents[3]), os.environ.get("PYTHONPATH", "")]
    counts = {name: str(threads) for name in THREADS}
    return {**os.environ, **counts, "PYTHONPATH": os.pathsep.join(path for path in found if path)}
