"""Time of CUDA kernels by events around back-to-back launches that wait in a full queue."""

from __future__ import annotations

import math
import time
from typing import Any, Final

from perfmodel.calibration.machine.backends.base import Clock, Timing
from perfmodel.calibration.machine.benchmark import Run

POOL: Final = 1 << 22
"""Random numbers that are drawn; larger tensors repeat them [1]."""


class TorchTools:
    """Makes operands on a device in a data type.

    Parameters
    ----------
    torch : module
        The library. [-]
    device : str
        ``cpu`` or ``cuda:N``. [-]
    dtype : str
        Name of a data type of torch, e.g. ``float32``. [-]
    seed : int
        Of the random numbers. [1]
    pool : int
        Random numbers that are drawn. [1]
    """

    def __init__(self, torch: Any, *, device: str, dtype: str, seed: int, pool: int = POOL) -> None:
        self.torch = torch
        self.device = torch.device(device)
        self.dtype = getattr(torch, dtype)
        self._seed = seed
        self._generator = torch.Generator(device=self.device).manual_seed(seed)
        self._pool = torch.randn(pool, generator=self._generator, device=self.device).to(self.dtype)
        self._shift = 0

    def restart(self) -> None:
        """Begin again, so that the same operands come as the first time."""
        self._generator.manual_seed(self._seed)
        self.torch.manual_seed(self._seed)
        self._shift = 0

    @property
    def on_gpu(self) -> bool:
        """Whether kernels run on a GPU."""
        return bool(self.device.type == "cuda")

    def normal(self, *shape: int, grad: bool = False) -> Any:
        """Return a tensor of random normal numbers [1] in its own memory, that wants a gradient or not."""
        count = math.prod(shape)
        self._shift = (self._shift + 9973) % (len(self._pool) // 2)
        tensor = self.torch.empty(count, dtype=self.dtype, device=self.device)
        start = self._shift
        for first in range(0, count, len(self._pool) - start):
            piece = tensor[first : first + len(self._pool) - start]
            piece.copy_(self._pool[start : start + piece.numel()])
        return tensor.view(shape).requires_grad_(grad)

    def integers(self, high: int, *shape: int) -> Any:
        """Return a tensor of random whole numbers below ``high`` [1]."""
        return self.torch.randint(high, shape, generator=self._generator, device=self.device)

    def full(self, value: float, *shape: int) -> Any:
        """Return a tensor of one value [1]."""
        return self.torch.full(shape, value, dtype=self.dtype, device=self.device)


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
