"""Time of CUDA kernels by events around back-to-back launches that wait in a full queue."""

from __future__ import annotations

import math
import time
from typing import Any, Final

from perfmodel.calibration.machine.benchmark import Run
from perfmodel.calibration.machine.timing import Clock, Timing

LAUNCHES: Final = 20
"""Back-to-back launches between two events, of kernels that are not long [1]."""

BATCHES: Final = 3
"""Pairs of events whose median is taken [1]."""

BATCH_S: Final = 0.02
"""Time after which a batch of long kernels may end: thousands of times what an event resolves [s]."""

FEWEST_LAUNCHES: Final = 3
"""Launches of a kernel however long [1]."""

LONG_RUN_S: Final = 0.02
"""A kernel that takes longer is timed in one batch [s]."""

AHEAD: Final = 2.0
"""Times that the host needs for its launches during which the queue is held, in case it falters [1]."""

LONGEST_HOLD_S: Final = 0.1
"""Longest time for which the queue is held [s]."""

HOLD_CYCLES: Final = 2_000_000
"""Cycles of the waiting kernel by which its clock is learnt [1]."""


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
    starts: what is timed is the device, not the host that feeds it. A run that launches more kernels than a queue has
    room for, or that waits for the device itself, is timed as the host feeds it.
    """

    def __init__(self, torch: Any, device: Any) -> None:
        self._torch, self._device = torch, device
        self._cycles_per_s: float | None = None

    def _event(self) -> Any:
        return self._torch.cuda.Event(enable_timing=True)

    def _learnt_cycles_per_s(self) -> float:
        """Return the clock by which the waiting kernel counts [1/s]."""
        start, end = self._event(), self._event()
        self._torch.cuda._sleep(HOLD_CYCLES)  # the first one loads it
        start.record()
        self._torch.cuda._sleep(HOLD_CYCLES)
        end.record()
        end.synchronize()
        return HOLD_CYCLES / max(float(start.elapsed_time(end)) * 1e-3, 1e-9)

    def hold_queue(self, seconds: float) -> None:
        """Let the device wait, so that what is launched meanwhile queues up; at most a tenth of a second [s]."""
        if self._cycles_per_s is None:
            self._cycles_per_s = self._learnt_cycles_per_s()
        self._torch.cuda._sleep(int(min(seconds, LONGEST_HOLD_S) * self._cycles_per_s))

    def _batch(self, run: Run, launches: int, *, hold_s: float) -> float:
        start, end = self._event(), self._event()
        self.hold_queue(hold_s)
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
        host_s = self._host_s(run)
        once = self._batch(run, 1, hold_s=AHEAD * host_s + 1e-4)
        enough = math.ceil(BATCH_S / max(once, 1e-9))
        launches = min(LAUNCHES, max(FEWEST_LAUNCHES, enough))
        batches = BATCHES if once < LONG_RUN_S else 1
        hold_s = AHEAD * launches * host_s + 1e-4
        return Timing.of([self._batch(run, launches, hold_s=hold_s) for _ in range(batches)])

    def time_after(self, before: Run, run: Run, *, samples: int = 3) -> Timing:
        """Return the device time of single launches, each after a run of ``before``."""
        run()
        hold_s = AHEAD * (self._host_s(before) + self._host_s(run)) + 1e-4
        taken = []
        for _ in range(samples):
            start, end = self._event(), self._event()
            self.hold_queue(hold_s)
            before()
            start.record()
            run()
            end.record()
            end.synchronize()
            taken.append(max(float(start.elapsed_time(end)) * 1e-3, 1e-9))
        return Timing.of(taken)
