"""Files that a reader sees either unchanged or completely rewritten, never in part."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Final

from perfmodel.errors import ArgumentError
from perfmodel.files import MOST_NAME_BYTES, is_folder
from perfmodel.plain_text import NO_CONTROL_CHARACTERS, is_plain_path

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # as on Windows
    fcntl = None

SUFFIX: Final = ".part"
"""Ending of a file that is being written."""

_BESIDES_NAME: Final = 16
"""Most bytes that the name of a temporary file adds to the name of its target. [B]"""


@contextmanager
def replacement_of(path: str | Path) -> Iterator[Path]:
    """Yield an empty temporary file to write in the block; it replaces ``path`` once the block succeeds.

    A temporary file that a killed process left is removed by the next process that writes the same file.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with replacement_of(f"{folder}/notes.txt") as temporary:
    ...         characters = temporary.write_text("whole", encoding="utf-8")
    ...     Path(folder, "notes.txt").read_text(encoding="utf-8")
    'whole'
    """
    target = _target_of(path)
    temporary: Path | None = None
    handle: int | None = None
    try:
        temporary, handle = _created_beside(target)
        yield temporary
        _reach_the_disk(temporary)
        temporary.replace(target)
        temporary = None  # its name may be another writer's from now on
    except OSError as error:
        raise _cannot_be_written(path, error) from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        if handle is not None:
            os.close(handle)


def check_room(path: str | Path, *, size_bytes: int) -> None:
    """Raise ArgumentError where a file of this size cannot be written; the file itself is not touched."""
    with suppress(_EnoughError), replacement_of(path) as temporary:
        temporary.write_bytes(bytes(size_bytes))
        _reach_the_disk(temporary)
        raise _EnoughError


class _EnoughError(Exception):
    """Ends a check of room without replacing the file."""


def save_text(path: str | Path, text: str) -> None:
    """Write a text as the whole content of a file, escaping characters that UTF-8 cannot encode."""
    with replacement_of(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")


def _reach_the_disk(temporary: Path) -> None:
    """Wait until a file is on its disk, which may be full only now."""
    with temporary.open("r+b") as stream:
        os.fsync(stream.fileno())


def _created_beside(target: Path) -> tuple[Path, int]:
    """Create and lock the file that will replace a target; the lock lasts until the returned handle is closed."""
    name = target.name
    if len(os.fsencode(name)) > MOST_NAME_BYTES - _BESIDES_NAME:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    for number in count():
        of_process = f".{os.getpid()}.{threading.get_ident()}" if fcntl is None else ""
        temporary = target.with_name(f".{name}{of_process}{f'.{number}' if number else ''}{SUFFIX}")
        handle = _created(temporary)
        if handle is None and _removed_if_abandoned(temporary):
            handle = _created(temporary)
        if handle is not None:
            with suppress(OSError):  # keep the mode, so that a private file stays private
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            return temporary, handle
    raise AssertionError


def _created(temporary: Path) -> int | None:
    """Create and lock a file; None if it exists, or another process removes it as abandoned."""
    try:
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return None
    if _is_ours(handle, temporary, without_locks=True):
        return handle
    os.close(handle)
    return None


def _removed_if_abandoned(temporary: Path) -> bool:
    """Remove the file of a killed process; False if its writer still lives or another process took it."""
    try:
        handle = os.open(temporary, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return False
    try:
        if not _is_ours(handle, temporary, without_locks=False):
            return False
        temporary.unlink()
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(handle)


def _is_ours(handle: int, temporary: Path, *, without_locks: bool) -> bool:
    """Lock a file; tell whether that succeeded and the file still has its name."""
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif not without_locks:
            return False
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        if not without_locks:
            return False
    try:
        return os.path.samestat(os.fstat(handle), temporary.lstat())
    except FileNotFoundError:
        return False


def _target_of(path: str | Path) -> Path:
    """Return the file that a path resolves to, if one may be written there."""
    if not isinstance(path, str | Path):
        raise ArgumentError(argument="path", given=path, allowed="the path of a file")
    if not is_plain_path(str(path)):
        raise ArgumentError(argument="path", given=str(path), allowed=NO_CONTROL_CHARACTERS)
    try:
        target = Path(path).expanduser().resolve()
        is_regular = _is_regular_or_missing(target)
    except (OSError, RuntimeError, ValueError) as error:  # circular links, an unknown home, a NUL in the name
        raise _cannot_be_written(path, error) from error
    if not is_regular:
        raise ArgumentError(argument="path", given=str(path), allowed="must be a regular file or not exist yet")
    return target


def _is_regular_or_missing(target: Path) -> bool:
    """Ask once: between two questions another writer may create the file."""
    try:
        return stat.S_ISREG(target.lstat().st_mode)
    except FileNotFoundError:
        return True


def _cannot_be_written(path: str | Path, error: Exception) -> ArgumentError:
    folder = Path(path).parent
    reason = getattr(error, "strerror", None) or error
    if isinstance(error, FileNotFoundError):
        with suppress(RuntimeError):  # an unknown home
            if not is_folder(folder.expanduser()):
                reason = f"the folder {folder} does not exist"
    allowed = f"must be a path that can be written: {reason}"
    return ArgumentError(argument="path", given=str(path), allowed=allowed)
