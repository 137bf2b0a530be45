"""Worker processes that Ctrl-C or an error ends at once and without output."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

from perfmodel.errors import WorkerError


@contextmanager
def worker_pool(count: int, *, context: Any = None) -> Iterator[ProcessPoolExecutor]:
    """Start processes for the block; they end with it, in the middle of their work if the block ends by an error."""
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_die_by_ctrl_c)
    try:
        with _without_interrupts():  # until they are started, workers would print a traceback
            pool.submit(int).result()
        yield pool
    except BaseException as error:
        for worker in set(multiprocessing.active_children()) - others:
            worker.terminate()
        if isinstance(error, BrokenExecutor):
            message = f"one of {count} worker processes died, perhaps for lack of memory: fewer processes need less"
            raise WorkerError(message) from error
        raise
    finally:
        pool.shutdown(cancel_futures=True)  # also waits for its thread, which would print when Python ends


def _die_by_ctrl_c() -> None:
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # where Ctrl-C is ignored, workers ignore it too
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Delay Ctrl-C to the end of the block, in this thread and in the processes that it starts."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
