"""Folders that only the user may write: for cached files, and for points of an interrupted calibration."""

from __future__ import annotations

import os
import stat
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Final

from perfmodel.errors import PerfmodelError, PerfmodelWarning
from perfmodel.files import user_path

ENVIRONMENT_VARIABLE: Final = "PERFMODEL_CACHE"
"""Environment variable that names the cache folder; empty to cache nothing."""

MODE: Final = 0o700
"""Mode of a new folder."""

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def cache_folder(of: str) -> Path | None:
    """Return the cache folder of one kind of file, whether or not it exists; None if nothing is cached."""
    stated = os.environ.get(ENVIRONMENT_VARIABLE)
    if stated is not None:
        return user_path(stated) if stated else None
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return user_path(base) / "perfmodel" / of


def cached_file(name: str, *, of: str) -> Path | None:
    """Return the path of a cached file, after making its folder; None if nothing is cached."""
    with suppress(OSError, RuntimeError, PerfmodelError):  # e.g. a file in its place, or no home
        folder = cache_folder(of)
        if folder is None:
            return None
        folder.mkdir(mode=MODE, parents=True, exist_ok=True)
        if fault := fault_of_owner(folder):
            warnings.warn(f"nothing is cached in {folder}: {fault}", PerfmodelWarning, stacklevel=3)
            return None
        return folder / name
    return None


def temporary_file(name: str) -> Path:
    """Return a path in the user's private folder of temporary files, after making the folder."""
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "")
    folder = Path(tempfile.gettempdir()) / f"perfmodel_{user}"
    with suppress(OSError):
        folder.mkdir(mode=MODE, exist_ok=True)
        if not folder.is_symlink() and not fault_of_owner(folder):
            return folder / name
    return Path(tempfile.mkdtemp(prefix="perfmodel_")) / name


def fault_of_owner(folder: Path) -> str:
    """Reason why a user other than the administrator may write to a folder; empty if none may."""
    if not hasattr(os, "getuid"):  # Windows has no modes
        return ""
    status = folder.stat()
    if status.st_uid not in (os.getuid(), 0):
        return f"it must belong to you, not to user {status.st_uid}"
    if status.st_mode & _OTHERS_WRITE:
        return f"nobody else may write to it (chmod 700 {folder})"
    return ""
