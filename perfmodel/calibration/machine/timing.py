"""How a kernel is timed: warmed up, repeated until the clock does not matter, the median of several repeats.

A clock that runs back-to-back launches on a device implements :class:`Clock`; :class:`HostClock` is the one of a CPU.
"""

from __future__ import annotations

import math
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from perfmodel.calibration.machine.benchmark import Run

SAMPLES: Final = 7
"""Repeats whose median is taken [1]."""

SHORTEST_SAMPLE_S: Final = 3e-4
"""Shortest time over which a host's clock is read, thousands of times what reading it takes [s]."""

ERROR_OF_MEDIAN: Final = 1.86
"""Standard error of a median over half the distance of the quartiles, times the root of the count: 1.2533 / 0.6745, of
normal noise [1]."""

LONG_RUN_S: Final = 0.02
"""A kernel that takes longer is repeated twice only [s]."""

SHORT_RUN_S: Final = 0.002
"""A kernel that takes longer is repeated three times, as more shapes tell more than more repeats [s]."""


@dataclass(frozen=True, slots=True)
class Timing:
    """A time and how sure it is.

    Parameters
    ----------
    seconds : float
        Median of the repeats. [s]
    spread : float
        Standard error of the median, as a share of it. [1]
    """

    seconds: float
    spread: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Timing:
        """Return median and spread of repeats [s].

        Examples
        --------
        >>> Timing.of([1.0, 1.2, 1.1, 9.0, 1.1]).seconds
        1.1
        """
        median = statistics.median(samples)
        if len(samples) < 4:  # quartiles of fewer are their ends
            return cls(median, (max(samples) - min(samples)) / 2 / median)
        low, _, high = statistics.quantiles(samples, n=4)
        return cls(median, ERROR_OF_MEDIAN * (high - low) / 2 / median / math.sqrt(len(samples)))


class Clock(ABC):
    """Times kernels on one device."""

    @abstractmethod
    def time(self, run: Run) -> Timing:
        """Return the time of a kernel whose operands are where its last run left them."""

    @abstractmethod
    def time_after(self, before: Run, run: Run, *, samples: int = 3) -> Timing:
        """Return the time of a kernel that runs once after another, which is not timed; ``samples`` [1] repeats."""


class HostClock(Clock):
    """Monotonic clock of the host, for kernels that have ended when their call returns.

    Parameters
    ----------
    now : callable
        The clock, in nanoseconds. [ns]
    """

    def __init__(self, now: Callable[[], int] = time.perf_counter_ns) -> None:
        self._now = now

    def _sample(self, run: Run, repeats: int) -> float:
        now = self._now
        start = now()
        for _ in range(repeats):
            run()
        return (now() - start) / repeats * 1e-9

    def time(self, run: Run) -> Timing:
        """Return the time of a kernel: the first run warms up, the second says how many make a sample."""
        first = self._sample(run, 1)
        once = first if first > LONG_RUN_S else self._sample(run, 1)
        if once > SHORT_RUN_S:
            return Timing.of([self._sample(run, 1) for _ in range(2 if once > LONG_RUN_S else 3)])
        repeats = max(1, round(SHORTEST_SAMPLE_S / max(once, 1e-9)))
        self._sample(run, min(repeats, 3))
        return Timing.of([self._sample(run, repeats) for _ in range(SAMPLES)])

    def time_after(self, before: Run, run: Run, *, samples: int = 3) -> Timing:
        """Return the time of single runs, each after a run of ``before``."""
        taken = []
        for _ in range(samples):
            before()
            taken.append(self._sample(run, 1))
        return Timing.of(taken)


DRIFT_LIMIT: Final = 0.10
"""Change of the reference kernel beyond which the points between two of its runs are taken again [1]."""

WINDOW_S: Final = 2.0
"""Time between two runs of the reference kernel [s]."""


class DriftWatch:
    """Runs one kernel again and again between the points, and tells when the machine has drifted.

    Parameters
    ----------
    time_reference : callable
        Times the reference kernel. [s]
    now : callable
        Monotonic clock. [s]
    window_s : float
        Time between two of its runs. [s]
    times : list of float or None
        Where its times are kept; those of an interrupted session are gone on from. [s]
    """

    def __init__(
        self,
        time_reference: Callable[[], float],
        *,
        now: Callable[[], float] = time.monotonic,
        window_s: float = WINDOW_S,
        times: list[float] | None = None,
    ) -> None:
        self._time_reference, self._now, self._window_s = time_reference, now, window_s
        self.times = [] if times is None else times
        self.times.append(time_reference())
        self._due = now() + window_s

    @property
    def window(self) -> int:
        """Number of the window that is open: its ends are the reference times of that number and the next. [1]"""
        return len(self.times) - 1

    def tick(self, *, forced: bool = False) -> bool:
        """Run the reference kernel if it is due, or ``forced`` [-]; tell whether a window was closed."""
        if not forced and self._now() < self._due:
            return False
        self.times.append(self._time_reference())
        self._due = self._now() + self._window_s
        return True

    def drifted(self) -> frozenset[int]:
        """Return the closed windows at one end of which the reference was off its median by more than the limit."""
        middle = statistics.median(self.times)
        off = [abs(seconds / middle - 1) > DRIFT_LIMIT for seconds in self.times]
        return frozenset(window for window in range(self.window) if off[window] or off[window + 1])

    @property
    def spread_percent(self) -> float:
        """Standard deviation of the reference over its mean. [%]"""
        if len(self.times) < 2:  # one alone does not spread
            return 0.0
        return 100 * statistics.stdev(self.times) / statistics.mean(self.times)

    @property
    def drift_percent(self) -> float:
        """Change of the reference from the first third of the session to the last. [%]"""
        third = max(1, len(self.times) // 3)
        first, last = statistics.median(self.times[:third]), statistics.median(self.times[-third:])
        return 100 * abs(last / first - 1)
