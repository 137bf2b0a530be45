"""Execution of a sweep's tasks: in this process, or by an executor of concurrent.futures, with retries."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from perfmodel.errors import ArgumentError
from perfmodel.planning.sweeps.evaluation import Evaluated, Evaluation

if TYPE_CHECKING:
    from perfmodel.planning.sweeps.task import LayoutTask, SweepTask

    AnyTask = SweepTask | LayoutTask

AT_ONCE: Final = 64
"""Tasks that an executor has at once: enough for its workers, with few megabytes of columns. [1]"""

TRIES: Final = 3
"""Attempts on an executor before a task is evaluated here. [1]"""

_OPEN: dict[bytes, Evaluation] = {}
"""The evaluation of this process's present sweep, by its pickle, so that its tasks share caches."""


def evaluated(pickled: bytes, task: AnyTask) -> Evaluated:
    """Evaluate a task in a worker process."""
    found = _OPEN.get(pickled)
    if found is None:
        _OPEN.clear()
        found = _OPEN[pickled] = pickle.loads(pickled)  # made by this very library a moment ago
    return found.of(task)


def outcomes(
    evaluation: Evaluation, tasks: Iterator[AnyTask], *, executor: Executor | None
) -> Iterator[tuple[AnyTask, Evaluated]]:
    """Evaluate tasks, and yield each with its columns when it is done."""
    if executor is None:
        for task in tasks:
            yield task, evaluation.of(task)
        return
    yield from _Shared(evaluation, tasks, executor).done()


class _Shared:
    """Tasks of an executor: lost ones are retried, and those that keep failing are evaluated here."""

    def __init__(self, evaluation: Evaluation, tasks: Iterator[AnyTask], executor: Executor) -> None:
        self.evaluation, self.tasks, self.executor = evaluation, tasks, executor
        self.pickled = pickle.dumps(evaluation)
        self.running: dict[Future[Evaluated], tuple[AnyTask, int]] = {}
        self.left: deque[AnyTask] = deque()

    def done(self) -> Iterator[tuple[AnyTask, Evaluated]]:
        try:
            while self._fill() or self.running:
                for future in wait(self.running, return_when=FIRST_COMPLETED).done:
                    task, tries = self.running.pop(future)
                    if future.cancelled() or future.exception() is not None:
                        self._again(task, tries)
                    else:
                        yield task, future.result()
                while self.left:
                    task = self.left.popleft()
                    yield task, self.evaluation.of(task)
        finally:
            for future in self.running:
                future.cancel()

    def _fill(self) -> bool:
        """Submit tasks up to the limit; return whether any are running or left to evaluate here."""
        while len(self.running) < AT_ONCE and not self.left:
            task = next(self.tasks, None)
            if task is None:
                break
            self._again(task, 0)
        return bool(self.running or self.left)

    def _again(self, task: AnyTask, tries: int) -> None:
        """Submit a task once more; if that fails, or has failed too often, keep it to evaluate here."""
        if tries < TRIES:
            with suppress(Exception):  # an executor may fail in any way once its workers are gone
                future: Future[Evaluated] = self.executor.submit(evaluated, self.pickled, task)
                self.running[future] = (task, tries + 1)
                return
        self.left.append(task)


def check_executor(executor: Any) -> None:
    """Refuse anything that is not an executor of concurrent.futures."""
    submit: Callable[..., Any] | None = getattr(executor, "submit", None)
    if executor is not None and not (isinstance(executor, Executor) and callable(submit)):
        allowed = "an executor of concurrent.futures, e.g. ProcessPoolExecutor(), or client.get_executor() of dask"
        raise ArgumentError("executor", executor, allowed)
