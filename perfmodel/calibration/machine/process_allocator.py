"""The C allocator of this process, so set that memory once fetched is kept: else page faults make times bimodal.

A setting of the process that measures, never of the machine.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from typing import Final

TRIM_THRESHOLD: Final = -1
"""Parameter M_TRIM_THRESHOLD of mallopt [-]."""
MMAP_MAX: Final = -4
"""Parameter M_MMAP_MAX of mallopt [-]."""

KEPT: Final = "glibc, freed memory kept (mallopt: no trimming, no mapping of single blocks)"
AS_FOUND: Final = "as found: this C library has no mallopt"


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
