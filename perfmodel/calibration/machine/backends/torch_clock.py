"""Time of CUDA kernels by events around back-to-back launches that wait in a full queue."""

from __future__ import annotations

import time
from typing import Any, Final

from perfmodel.calibration.machine.benchmark import Run
from perfmodel.calibration.machine.timing import Clock, Timing

LAUNCHES: Final = 20
"""Back-to-back launches between two events [1]."""

LONG_RUN_S: Final = 0.02
"""A kernel that takes longer is launched fewer times [s]."""

CYCLES_PER_S: Final = 1.5e9
"""Clock by which the waiting kernel counts, as most GPUs have it; only how long the queue is held depends on it
[1/s]."""


class CudaClock(Clock):
    """Device time of kernels.

    Parameters
    ----------
    torch : module
        The library. [-]
    device : torch.device
        Which GPU. [-]

    Notes
    -----
    A kernel that only waits is launched first, so that the host is ahead with all launches before the first of them
    starts: what is timed is the device, not the host that feeds it.
    """

    def __init__(self, torch: Any, device: Any) -> None:
        self._torch, self._device = torch, device

    def _event(self) -> Any:
        return self._torch.cuda.Event(enable_timing=True)

    def _hold_queue(self, seconds: float) -> None:
        self._torch.cuda._sleep(int(seconds * CYCLES_PER_S))

    def _batch(self, run: Run, launches: int, *, hold_s: float) -> float:
        start, end = self._event(), self._event()
        self._hold_queue(hold_s)
        start.record()
        for _ in range(launches):
            run()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / launches

    def _host_s(self, run: Run) -> float:
        """Return how long the host takes to launch a kernel [s]."""
        self._torch.cuda.synchronize(self._device)
        begin = time.perf_counter()
        run()
        launched = time.perf_counter() - begin
        self._torch.cuda.synchronize(self._device)
        return launched

    def time(self, run: Run) -> Timing:
        """Return the device time of a kernel: warmed up, then events around several batches of launches."""
        for _ in range(3):
            run()
        hold_s = min(0.05, 1.5 * LAUNCHES * self._host_s(run) + 1e-4)
        once = self._batch(run, 1, hold_s=hold_s / LAUNCHES)
        launches, batches = (LAUNCHES, 3) if once < LONG_RUN_S else (3, 1)
        return Timing.of([self._batch(run, launches, hold_s=hold_s) for _ in range(batches)])

    def time_after(self, before: Run, run: Run, *, samples: int = 3) -> Timing:
        """Return the device time of single launches, each after a run of ``before``."""
        run()
        taken = []
        for _ in range(samples):
            start, end = self._event(), self._event()
            self._hold_queue(2e-4)
            before()
            start.record()
            run()
            end.record()
            end.synchronize()
            taken.append(max(float(start.elapsed_time(end)) * 1e-3, 1e-9))
        return Timing.of(taken)
