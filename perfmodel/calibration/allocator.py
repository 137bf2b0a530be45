"""Memory that is freed stays with the process: what makes steps of a CPU's frameworks repeatable."""

from __future__ import annotations

import ctypes
import sys
from typing import Final

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
"""Parameters of glibc's mallopt: malloc.h, and for the last the manual page mallopt(3)."""

_KEPT_BYTES: Final = 2**31 - 1
"""Free bytes at the end of the heap that are given back: the largest value that mallopt takes [B]."""

_GROWTH_BYTES: Final = 64 * 2**20
"""By how much more than was asked for the heap grows at once [B]."""

KEPT: Final = "glibc, trimming off"
"""What ``keep_freed_memory`` says where it could."""


def keep_freed_memory() -> str:
    """Tell the C allocator of this process to keep what is freed, instead of giving it back to the system.

    Large tensors are otherwise mapped and unmapped, or the end of the heap is cut off and grown again, and every page
    of them is cleared by the system when it is next touched: a step on a CPU then takes up to 1.4 times as long, in
    some runs and not in others.

    Returns
    -------
    str
        What was done, for reports. [-]

    Notes
    -----
    Valid for: glibc; elsewhere nothing is changed and the text says so. It changes this process alone, and holds until
    it ends; heaps of further threads are not used, because each would keep its own.
    """
    if sys.platform != "linux":
        return f"unchanged: {sys.platform}"
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return "unchanged: not glibc"
    asked = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _KEPT_BYTES), (_TOP_PAD, _GROWTH_BYTES), (_ARENA_MAX, 1))
    refused = [parameter for parameter, value in asked if not mallopt(parameter, value)]
    return KEPT if not refused else "unchanged: mallopt refused"
