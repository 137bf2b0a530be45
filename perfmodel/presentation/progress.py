"""A progress bar on the error stream."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the parts that are done and the number of all parts."""


@contextmanager
def progress_bar(
    description: str, *, shown: bool | None, patience_s: float = 0.0, vanishes: bool = False
) -> Iterator[Progress]:
    """Show a progress bar while the block runs: if ``shown`` is true, or None and the error stream is a terminal.

    It appears once ``patience_s`` has passed, and ``vanishes`` from a terminal at the end if asked.
    """
    if not (sys.stderr.isatty() if shown is None else shown):
        yield lambda done, total: None
        return
    due_s = time.monotonic() + patience_s
    update: Progress | None = None
    with ExitStack() as stack:

        def show(done: int, total: int | None) -> None:
            nonlocal update
            if update is None and time.monotonic() >= due_s:
                update = stack.enter_context(_bar(description, vanishes=vanishes))
            if update is not None and total is not None:
                update(done, total)

        show(0, None)
        yield show


@contextmanager
def _bar(description: str, *, vanishes: bool) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=vanishes and console.is_terminal) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
