"""How far an import is, shown once it takes longer than a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

Progress = Callable[[], None]
"""Called for each part of the work that begins."""

PATIENCE_S: Final = 1.0
"""How long an import runs before its progress is shown [s]."""


@contextmanager
def import_progress(description: str, total: int, *, shown: bool | None) -> Iterator[Progress]:
    """Show on the error stream how far a block is.

    Parameters
    ----------
    description : str
        What is going on. [-]
    total : int
        Parts of the work, about. [1]
    shown : bool or None
        Whether to show it; None: on a terminal, after a second. [-]

    Yields
    ------
    callable
        To be called for each part that begins. [-]
    """
    if shown is False or (shown is None and not sys.stderr.isatty()):
        yield lambda: None
        return
    with ExitStack() as stack:
        yield _Display(description, total, stack, patience_s=0.0 if shown else PATIENCE_S).advance


class _Display:
    """A bar that appears when patience is over."""

    def __init__(self, description: str, total: int, stack: ExitStack, *, patience_s: float) -> None:
        self.description, self.total, self.done = description, total, 0
        self._stack = stack
        self._due = time.monotonic() + patience_s
        self._show: Callable[[int], None] | None = None

    def advance(self) -> None:
        self.done += 1
        if self._show is None and time.monotonic() >= self._due:
            self._show = self._begun()
        if self._show is not None:
            self._show(min(self.done, self.total))

    def _begun(self) -> Callable[[int], None]:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        console = Console(stderr=True)
        bar = self._stack.enter_context(Progress(*columns, console=console, transient=console.is_terminal))
        task = bar.add_task(self.description, total=self.total)
        return lambda done: bar.update(task, completed=done)
