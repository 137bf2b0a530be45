"""Files that a reader sees either unchanged or completely rewritten, never in part."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from perfmodel.errors import ArgumentError


@contextmanager
def replacement_of(path: str | Path) -> Iterator[Path]:
    """Yield a temporary file to write in the block; it replaces ``path`` once the block succeeds.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with replacement_of(f"{folder}/notes.txt") as temporary:
    ...         characters = temporary.write_text("whole", encoding="utf-8")
    ...     Path(folder, "notes.txt").read_text(encoding="utf-8")
    'whole'
    """
    target = _target_of(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        yield temporary
        with temporary.open("r+b") as stream:
            os.fsync(stream.fileno())
        temporary.replace(target)
    except OSError as error:
        raise _cannot_be_written(path, error) from error
    finally:
        with suppress(OSError):  # e.g. its folder does not exist, which the error above reports
            temporary.unlink(missing_ok=True)


def _target_of(path: str | Path) -> Path:
    """Return the file that a path resolves to, if one may be written there."""
    if not isinstance(path, str | Path):
        raise ArgumentError(argument="path", given=path, allowed="the path of a file")
    try:
        target = Path(path).expanduser().resolve()
        is_regular = target.is_file() or not os.path.lexists(target)
    except (OSError, RuntimeError, ValueError) as error:  # circular links, an unknown home, a NUL in the name
        raise _cannot_be_written(path, error) from error
    if not is_regular:
        raise ArgumentError(argument="path", given=str(path), allowed="must be a regular file or not exist yet")
    return target


def _cannot_be_written(path: str | Path, error: Exception) -> ArgumentError:
    folder = Path(path).parent
    reason = getattr(error, "strerror", None) or error
    if isinstance(error, FileNotFoundError) and not folder.expanduser().is_dir():
        reason = f"the folder {folder} does not exist"
    allowed = f"must be a path that can be written: {reason}"
    return ArgumentError(argument="path", given=str(path), allowed=allowed)
