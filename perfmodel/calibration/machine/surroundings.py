"""What surrounds kernels: the best rates, when data leaves the caches, calls, copies, disk and all-reduces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from perfmodel.calibration.machine.cold import DISTANCES, reuse_of
from perfmodel.calibration.machine.storage import measure_storage
from perfmodel.errors import CalibrationError

if TYPE_CHECKING:
    from perfmodel.calibration.machine.backends.base import Backend
    from perfmodel.calibration.machine.columns import Machine

REUSE_SHARE: Final = 0.05
"""Largest share of the budget that measuring the reuse of data may take [1]."""

REUSE_BUDGET_S: Final = 15.0
"""Budget from which on the reuse of data is measured; with less the last cache's size stands for it [s]."""

PROCESSES_BUDGET_S: Final = 30.0
"""Budget below which no processes are started for an all-reduce: importing torch takes them some seconds [s]."""


def measure_surroundings(
    backend: Backend,
    found: dict[str, Any],
    *,
    dtypes: Sequence[str],
    machine: Machine,
    budget_s: float,
    now: Callable[[], float],
) -> list[str]:
    """Measure what is not found yet.

    Parameters
    ----------
    backend : Backend
        What runs it. [-]
    found : dict
        What an earlier session found, to which the rest is added: ``peaks``, ``reuse``, ``overheads``, ``host_copy``,
        ``storage``, ``clock_mhz``, ``all_reduce``. [-]
    dtypes : sequence of str
        Data types. [-]
    machine : Machine
        Its caches. [-]
    budget_s : float
        Time of the whole session. [s]
    now : callable
        Monotonic clock. [s]

    Returns
    -------
    list of str
        What could not be measured, and why. [-]
    """
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
        if name not in found:
            found[name] = measure()
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


def _reuse(backend: Backend, machine: Machine, *, time_s: float, now: Callable[[], float]) -> Mapping[str, Any]:
    """Time one copy after more and more other traffic, from memory just read to a whole flush."""
    clock, end_s = backend.clock, now() + time_s
    # more than stays in a kernel's own cache, and so little that it leaves the last one by the traffic of others
    moved = min(max(2 * machine.near_cache_bytes, machine.cache_bytes / 32), machine.cache_bytes / 4)
    copy = backend.copy_run(moved)
    backend.flush()
    hot_s = clock.time(copy).seconds
    after: dict[float, float] = {}
    for share in DISTANCES:
        if now() < end_s:
            after[share] = clock.time_after(partial(backend.flush, share), copy, samples=5).seconds
    distances, seconds = [share * backend.flush_bytes for share in after], list(after.values())
    found = None
    if len(after) == len(DISTANCES):
        found = reuse_of(distances, seconds, hot_s=hot_s, moved_bytes=moved)
    told = {"moved_bytes": moved, "hot_s": hot_s, "distances": distances, "seconds": seconds}
    return told | ({} if found is None else asdict(found))


def _all_reduces(backend: Backend, notes: list[str]) -> list[dict[str, Any]]:
    try:
        return backend.all_reduces()
    except CalibrationError as error:
        notes.append(f"no all-reduce: {error}")
        return []
