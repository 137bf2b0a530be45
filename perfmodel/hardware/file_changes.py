"""What was made of files is kept while every file that was looked for on the way stays as it was."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar, cast

Name: TypeAlias = Any
Loader = TypeVar("Loader", bound=Callable[[Name], Any])

MISSING: Final = -1
"""Time of change of a file that does not exist, or cannot be looked at. [ns]"""

_MOST_KEPT: Final = 256
"""Things that one loader keeps; each is small."""

_looked_for: ContextVar[dict[str, int] | None] = ContextVar("_looked_for", default=None)
"""Files that the loading under way has looked for, with their times of change; None where nothing is being loaded."""


def changed_ns(path: Path) -> int:
    """Return when a file last changed, and note that it was looked for. [ns]"""
    found = _now_ns(path)
    if (files := _looked_for.get()) is not None:
        files[str(path.absolute())] = found
    return found


def _now_ns(path: str | Path) -> int:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 - asked of each file in each prediction, in half the time
    except (OSError, ValueError):
        return MISSING  # whoever reads it says what is wrong


def kept_while_unchanged(
    depends_on: Callable[[], Hashable], *, names: tuple[type, ...] = (str, Path)
) -> Callable[[Loader], Loader]:
    """Return a decorator: a loader gives the same object again while no file that it looked for has changed.

    Parameters
    ----------
    depends_on : callable
        Returns what else decides which files are looked for; called each time. [-]
    names : tuple of type
        Types of what the loader takes: a name or path, or names of several files that it loads together. [-]

    Returns
    -------
    callable
        The decorator, of a function that loads something immutable by name or path. A file that appears where one was
        looked for in vain counts as a change; errors are not kept. [-]
    """

    def keeping(load: Loader) -> Loader:
        kept: dict[Hashable, tuple[Any, dict[str, int]]] = {}

        @wraps(load)
        def kept_or_loaded(name_or_path: Name) -> Any:
            if not isinstance(name_or_path, names):
                return load(name_or_path)  # which says what it takes
            key = (name_or_path, _here(), depends_on())
            found = kept.get(key)
            if found is None or not _unchanged(found[1]):
                found = kept[key] = _loaded(load, name_or_path)
                if len(kept) > _MOST_KEPT:
                    kept.pop(next(iter(kept)), None)
            if (around := _looked_for.get()) is not None:
                around.update(found[1])
            return found[0]

        return cast("Loader", kept_or_loaded)

    return keeping


def _unchanged(files: dict[str, int]) -> bool:
    for path, then_ns in files.items():
        # of a file that was missing it is quicker to ask whether it is there than to be told that it is not
        if os.access(path, os.F_OK) if then_ns == MISSING else _now_ns(path) != then_ns:
            return False
    return True


def _here() -> str | None:
    """Return the working folder, at which relative paths start; None where it is gone."""
    try:
        return os.getcwd()  # noqa: PTH109 - a key, not a path to walk
    except OSError:
        return None


def _loaded(load: Callable[[Name], Any], name_or_path: Name) -> tuple[Any, dict[str, int]]:
    """Return what a loader loads, and the files that it looked for."""
    files: dict[str, int] = {}
    token = _looked_for.set(files)
    try:
        return load(name_or_path), files
    finally:
        _looked_for.reset(token)
