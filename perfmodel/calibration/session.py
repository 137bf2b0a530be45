"""One measuring session: it chooses the next kernel and its time, and keeps all points if it ends early."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from perfmodel.calibration.backends.base import Backend, DriftWatch, Timing, check_result, smallest_sizes
from perfmodel.calibration.benchmark import Benchmark, Point, Sizes, most_telling, shapes
from perfmodel.calibration.classes import FittedCurve, columns_of, fit_curve
from perfmodel.calibration.journal import Journal
from perfmodel.calibration.surroundings import measure_surroundings
from perfmodel.hardware.measured_machine import MeasuredOn
from perfmodel.records import ELEMENT_BYTES, Operation
from perfmodel.units import MIB

LONGEST_POINT_S: Final = 0.15
"""Longest time that a kernel is expected to take [s]."""

SHORTEST_LIMIT_S: Final = 0.002
"""Longest expected time of a kernel if the budget is small [s]."""

ROUGH_POINTS: Final = 6
"""Points of a class that are spread evenly, before a fit chooses the next [1]."""

CANDIDATES: Final = 12
"""Shapes among which a fit chooses [1]."""

LONG_EVERY: Final = 6
"""Every sixth point of a class may be longer than the others, by :data:`LONG_FACTOR` [1]."""

LONG_FACTOR: Final = 5.0

COLD_POINTS: Final = 3
"""Points of a class that are also timed after the caches were flushed [1]."""

COLD_SHARE: Final = 0.15
"""Largest share of the time of all points that flushing may take [1]."""

COLD_LEAST_BYTES: Final = 131072
"""Traffic below which a flushed kernel shows only the cost of its call [B]."""

RETAKE_SHARE: Final = 0.13
"""Share of the budget for repeated points: after drift, and to measure the spread of times [1]."""

REPEATS: Final = 60
"""Points that are timed once more at the end, to measure the spread of times [1]."""

REPEAT_SHARE: Final = 0.03
"""Largest share of the budget for these repeats [1]."""

MOST_BEYOND_S: Final = 4.0
"""Longest time for kernels beyond a budget that the other measurements used up [s]."""

RUNS_OF_POINT: Final = 6
"""Runs of a long kernel for one point, including those after a flush [1]."""

MEMORY_SHARE: Final = 0.05
"""Largest share of the memory that a kernel's operands may take [1]."""

PRIOR_OF_DESIGN: Final = 0.05
"""Weight of the prior of a constant when the next point is chosen, as a fraction of a point [1]."""

ROUGH_SHARE: Final = 0.3
"""Assumed share of the best rates that a kernel reaches, before its class has points [1]."""

ROUGH_CALL_S: Final = 1e-5
"""Assumed time of a call, before there are points [s]."""


@dataclass(eq=False)
class _Class:
    """Points and fit of one benchmark in one data type so far."""

    benchmark: Benchmark
    dtype: str
    shapes: Iterator[Sizes]
    operations: list[Operation] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    waiting: list[Sizes] = field(default_factory=list)
    curve: FittedCurve | None = None
    exhausted: bool = False

    @property
    def is_done(self) -> bool:
        return self.exhausted or len(self.points) >= self.benchmark.point_count

    @property
    def turn(self) -> float:
        """Points of the class over its number by weight; the class with the smallest ratio is next."""
        return len(self.points) / (self.benchmark.point_count * math.sqrt(self.benchmark.weight))


class Session:
    """Times kernels of a backend until each class has its points or the budget is spent."""

    def __init__(
        self,
        backend: Backend,
        *,
        dtypes: Collection[str],
        budget_s: float,
        journal: Journal,
        progress: Callable[[int, int], None] | None = None,
        already_s: float = 0.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.backend, self.budget_s, self.journal = backend, budget_s, journal
        self.machine = MeasuredOn.model_validate(backend.facts())
        self.notes: list[str] = []
        self._now, self._begin, self._progress = now, now() - already_s, progress
        self._earlier_s = journal.seconds
        self._cold_s = self._points_from_s = 0.0
        self._watch: DriftWatch | None = None
        self.resumed_count = len(journal.points)
        self.classes = [
            self._class_of(benchmark, dtype) for dtype in dtypes for benchmark in backend.benchmarks(dtype).values()
        ]

    @property
    def _spent_s(self) -> float:
        return self._now() - self._begin

    @property
    def watch(self) -> DriftWatch:
        """Watches the machine while points are taken."""
        if self._watch is None:
            reference = self.backend.reference()
            # windows continue those of an interrupted session, whose points may have drifted too
            self._watch = DriftWatch(
                lambda: self.backend.clock.time(reference).seconds, now=self._now, times=self.journal.reference_s
            )
        return self._watch

    @property
    def short_class_count(self) -> int:
        """Classes with too few points, because the budget ended before. [1]"""
        return sum(not kernels.is_done for kernels in self.classes)

    def _class_of(self, benchmark: Benchmark, dtype: str) -> _Class:
        """Return a class with the points that an earlier session took of it."""
        points = [point for point in self.journal.points if (point.name, point.dtype) == (benchmark.name, dtype)]
        return _Class(
            benchmark=benchmark,
            dtype=dtype,
            shapes=shapes(
                benchmark,
                allowed=self._allows(benchmark, dtype),
                taken=[point.sizes for point in points],
            ),
            points=points,
            operations=[benchmark.operation(point.sizes) for point in points],
        )

    def run(self) -> None:
        """Measure peaks, overheads and all points, and then again the points that drift spoilt.

        An interrupt is raised only after the journal is written.
        """
        try:
            self._surroundings()
            self._check()
            self._points()
            self._repeat()
            self._retake()
        finally:
            self.journal.seconds = self._earlier_s + self._spent_s
            self.journal.write()

    def _surroundings(self) -> None:
        """Make the measurements other than kernels that no earlier session made."""
        surroundings = self.journal.surroundings
        self.notes += measure_surroundings(
            self.backend,
            surroundings,
            dtypes=tuple(dict.fromkeys(kernels.dtype for kernels in self.classes)),
            machine=self.machine,
            budget_s=self.budget_s,
            now=self._now,
        )
        capacity = surroundings.get("reuse", {}).get("capacity_bytes")
        if capacity is not None:
            self.machine = self.machine.model_copy(update={"reuse_mib": capacity / MIB})
        self.journal.write()

    def _check(self) -> None:
        """Check one kernel of each class; leave out those that the library does not have in a data type."""
        self.classes = [kernels for kernels in self.classes if kernels.points or self._exists(kernels)]

    def _exists(self, kernels: _Class) -> bool:
        """Check the smallest kernel of a class, and note it if the library does not have it in a data type."""
        benchmark, dtype = kernels.benchmark, kernels.dtype
        try:
            with self.backend.settings(dtype):
                check_result(self.backend, benchmark, smallest_sizes(benchmark), dtype=dtype)
        except RuntimeError as error:  # torch raises it for a kernel that does not exist in a data type
            self.notes.append(f"{benchmark.name} in {dtype} left out: {str(error).splitlines()[0]}")
            return False
        return True

    def _allows(self, benchmark: Benchmark, dtype: str) -> Callable[[Operation], bool]:
        """Return a check that an operation fits in memory and time."""
        key = (benchmark.name, dtype)

        def allowed(operation: Operation) -> bool:
            work = operation.work(element_bytes=ELEMENT_BYTES[dtype])
            if work.moved_bytes > MEMORY_SHARE * self.machine.memory_bytes:
                return False
            kernels = next(one for one in self.classes if (one.benchmark.name, one.dtype) == key)
            return self._expected_s(kernels, operation) <= self._limit_s(kernels)

        return allowed

    def _limit_s(self, kernels: _Class) -> float:
        """Return the longest time that the next point of a class may be expected to take [s]."""
        points = sum(one.benchmark.point_count for one in self.classes)
        limit = max(SHORTEST_LIMIT_S, self.budget_s / points * 1.2)
        long = len(kernels.points) % LONG_EVERY == LONG_EVERY - 1
        return min(LONGEST_POINT_S, limit * (LONG_FACTOR if long else 1.0))

    def _expected_s(self, kernels: _Class, operation: Operation) -> float:
        if kernels.curve is not None:
            return float(kernels.curve.times(columns_of([operation], dtype=kernels.dtype, machine=self.machine))[0])
        peaks = self.journal.surroundings["peaks"]
        work = operation.work(element_bytes=ELEMENT_BYTES[kernels.dtype])
        flop_s = float(operation.product_flop_count) / peaks["gemm_flop_per_s"][kernels.dtype]
        streamed_s = float(work.moved_bytes) / peaks["stream_bytes_per_s"]
        return float(ROUGH_CALL_S + (flop_s + streamed_s) / ROUGH_SHARE)

    def _points(self) -> None:
        self._points_from_s = self._spent_s
        # with a short budget, kernels get half of the rest after their surroundings, but not many seconds
        beyond_s = min(self.budget_s / 2, MOST_BEYOND_S)
        deadline = max((1 - RETAKE_SHARE) * self.budget_s, self._spent_s + beyond_s)
        total = sum(kernels.benchmark.point_count for kernels in self.classes)
        while self._spent_s < deadline:
            open_classes = [kernels for kernels in self.classes if not kernels.is_done]
            if not open_classes:
                break
            kernels = min(open_classes, key=lambda one: one.turn)
            sizes = self._next_sizes(kernels)
            if sizes is None:
                kernels.exhausted = True
                continue
            try:
                self._take(kernels, sizes)
            except (RuntimeError, MemoryError) as error:  # torch raises it where another program holds the memory
                kernels.exhausted = True
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                self.notes.append(f"{kernels.benchmark.name} in {kernels.dtype} ended at {dict(sizes)}: {reason}")
                continue
            if self.watch.tick():
                self.journal.seconds = self._earlier_s + self._spent_s
                self.journal.write()
            if self._progress is not None:
                done = sum(len(one.points) for one in self.classes)
                by_time = round(total * self._spent_s / deadline)  # the earlier of both ends it
                self._progress(min(total, max(done, by_time)), total)
        self.watch.tick(forced=True)
        if self._progress is not None:
            self._progress(total, total)

    def _next_sizes(self, kernels: _Class) -> Sizes | None:
        """Return the sizes of the next point: evenly spread at first, then where the fit is least certain."""
        count = len(kernels.points)
        if count < ROUGH_POINTS:
            return next(kernels.shapes, None)
        if count % 4 == ROUGH_POINTS % 4 or kernels.curve is None:
            columns = columns_of(kernels.operations, dtype=kernels.dtype, machine=self.machine)
            seconds, spread = zip(*((point.seconds, point.spread) for point in kernels.points), strict=True)
            kernels.curve = fit_curve(columns, seconds, spread=spread)
        kernels.waiting += islice(kernels.shapes, CANDIDATES - len(kernels.waiting))
        if not kernels.waiting:
            return None
        operations = [kernels.benchmark.operation(sizes) for sizes in kernels.waiting]
        known = kernels.curve.sensitivities(columns_of(kernels.operations, dtype=kernels.dtype, machine=self.machine))
        offered = kernels.curve.sensitivities(columns_of(operations, dtype=kernels.dtype, machine=self.machine))
        return kernels.waiting.pop(most_telling(known, offered, prior=PRIOR_OF_DESIGN))

    def _timed(self, kernels: _Class, sizes: Sizes, *, cold: bool) -> tuple[Timing, float | None]:
        with self.backend.settings(kernels.dtype):
            prepared = self.backend.prepare(kernels.benchmark, sizes, dtype=kernels.dtype)
            timing = self.backend.clock.time(prepared.run)
            cold_s = None
            if cold:
                begin = self._now()
                after = self.backend.clock.time_after(self.backend.flush, prepared.run, samples=2)
                cold_s = after.seconds * prepared.share
                self._cold_s += self._now() - begin
        return replace(timing, seconds=timing.seconds * prepared.share), cold_s

    def _wants_cold(self, kernels: _Class, operation: Operation) -> bool:
        moved = operation.work(element_bytes=ELEMENT_BYTES[kernels.dtype]).moved_bytes
        taken = sum(point.cold_seconds is not None for point in kernels.points)
        is_telling = COLD_LEAST_BYTES <= moved <= self.machine.cache_bytes / 2
        return is_telling and taken < COLD_POINTS and self._cold_s <= COLD_SHARE * (self._spent_s - self._points_from_s)

    def _take(self, kernels: _Class, sizes: Sizes) -> None:
        operation = kernels.benchmark.operation(sizes)
        window = self.watch.window
        timing, cold_s = self._timed(kernels, sizes, cold=self._wants_cold(kernels, operation))
        point = Point(
            name=kernels.benchmark.name,
            dtype=kernels.dtype,
            sizes=dict(sizes),
            seconds=timing.seconds,
            spread=timing.spread,
            cold_seconds=cold_s,
            window=window,
        )
        kernels.points.append(point)
        kernels.operations.append(operation)
        self.journal.points.append(point)

    def _repeat(self) -> None:
        """Time some points again, across classes and the session, within their share of the budget."""
        end_s = min(self._spent_s + REPEAT_SHARE * self.budget_s, self.budget_s)
        taken = [(kernels, index) for kernels in self.classes for index in range(len(kernels.points))]
        chosen = taken[:: max(1, len(taken) // REPEATS)]
        for kernels, index in chosen:
            point = kernels.points[index]
            if self._spent_s >= end_s:
                return
            timing, _ = self._timed(kernels, point.sizes, cold=False)
            self._replace(kernels, index, point.model_copy(update={"again_seconds": timing.seconds}))

    def _replace(self, kernels: _Class, index: int, point: Point) -> None:
        self.journal.points[self.journal.points.index(kernels.points[index])] = point
        kernels.points[index] = point

    def _retake(self) -> None:
        """Time the points of drifted windows again, within the budget."""
        drifted = self.watch.drifted()
        for kernels in self.classes:
            for index, point in enumerate(kernels.points):
                if self._spent_s >= self.budget_s:
                    return
                if point.window not in drifted or point.retaken:
                    continue
                if self._spent_s + RUNS_OF_POINT * point.seconds >= self.budget_s:
                    continue  # a shorter one may still fit
                timing, cold_s = self._timed(kernels, point.sizes, cold=point.cold_seconds is not None)
                taken = {"seconds": timing.seconds, "spread": timing.spread, "cold_seconds": cold_s, "retaken": True}
                self._replace(kernels, index, point.model_copy(update=taken))
