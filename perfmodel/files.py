"""The one place where a file that a user names is opened: a regular file within limits, read as text, JSON or TOML.

Nothing else is read: no pipe, which waits for ever, no device, which never ends, no file larger than its kind can be.
Limits hold before a parser sees the text, so that neither deep nesting nor a number of 100,000 digits costs time.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

from perfmodel.errors import PerfmodelError, SpecError, short_repr
from perfmodel.plain_text import NO_CONTROL_CHARACTERS, is_plain, is_plain_path, plain

Refusal: TypeAlias = Callable[[Path, list[str]], PerfmodelError]
"""Makes the error of a file from its path and its fault."""

MOST_SPEC_BYTES: Final = 8 * 2**20
"""Largest TOML file, 80 times the largest that is shipped. [B]"""

MOST_DATA_BYTES: Final = 2**30
"""Largest graph file, table or record: some four million layers or ten million rows. [B]"""

MOST_DEPTH: Final = 300
"""Most tables, lists and objects within each other. [1]"""

MOST_LETTERS: Final = 2**20
"""Longest text in a file. [1]"""

_LONG_NUMBER: Final = re.compile(r"\d{309}")
"""More digits than a number of double precision has before its point."""

_LONG_KEY: Final = re.compile(rf"(?:\.\s*[\w\"'-]+\s*){{{MOST_DEPTH}}}")
"""A dotted key of TOML that is too deep; the pattern starts at a dot, which files have fewer of than letters."""


def user_path(path: str | Path, *, refusal: Refusal = SpecError) -> Path:
    """Return the path that a user gave, with the home folder in the place of ``~``, if any disk could hold it."""
    try:
        path = plain(path)
        expanded = Path(path).expanduser()
        os.access(expanded, os.F_OK)  # a NUL or half of a pair raises
        encoded = os.fsencode(expanded)
    except (ValueError, RuntimeError) as error:
        raise refusal(_shown(path), [f"must be the path of a file: {short_repr(path)} is none ({error})"]) from error
    if not is_plain_path(str(expanded)):
        raise refusal(_shown(path), [f"its name {NO_CONTROL_CHARACTERS}"])
    longest = max(map(len, encoded.split(os.fsencode(os.sep))))
    if len(encoded) > MOST_PATH_BYTES or longest > MOST_NAME_BYTES:
        raise refusal(_shown(path), [f"its name must have at most {MOST_NAME_BYTES} B, with folders {MOST_PATH_BYTES}"])
    return expanded


MOST_NAME_BYTES: Final = 255
"""Longest name that file systems take. [B]"""

MOST_PATH_BYTES: Final = 4095
"""Longest path that the system takes. [B]"""


def _shown(path: str | Path) -> Path:
    """Return a path as an error can print it."""
    return Path(str(path).encode(errors="backslashreplace").decode().replace("\0", "\\0"))


def is_file(path: Path) -> bool:
    """Tell whether there is a regular file; False too where nobody may look."""
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises where nobody may look


def is_folder(path: Path) -> bool:
    """Tell whether there is a folder; False too where nobody may look."""
    return os.path.isdir(path)  # noqa: PTH112 - likewise


def file_bytes(path: str | Path, *, most_bytes: int, refusal: Refusal = SpecError) -> bytes:
    """Return the content of a regular file of at most so many bytes."""
    expanded = user_path(path, refusal=refusal)
    content, size = _read(expanded, most_bytes + 1, refusal, refused_above=most_bytes)
    if size > most_bytes:
        raise refusal(expanded, [f"has {size:,} B: must have at most {most_bytes:,} B"])
    return content


def file_start(path: str | Path, *, size_bytes: int, refusal: Refusal = SpecError) -> bytes:
    """Return the first bytes of a regular file, by which programs tell its kind."""
    return _read(user_path(path, refusal=refusal), size_bytes, refusal, refused_above=math.inf)[0]


def _read(path: Path, most_bytes: int, refusal: Refusal, *, refused_above: float) -> tuple[bytes, int]:
    """Return the first bytes of a regular file, or none if it is too large, and its size."""
    try:
        status = os.stat(path)  # noqa: PTH116 - before it is opened: opening a pipe waits
        if not stat.S_ISREG(status.st_mode):
            what = "a folder" if stat.S_ISDIR(status.st_mode) else "a device or pipe"
            raise refusal(path, [f"cannot be read: must be a regular file, not {what}"])
        with path.open("rb") as file:
            content = b"" if status.st_size > refused_above else file.read(most_bytes)
    except FileNotFoundError:
        raise refusal(path, ["cannot be read: no such file"]) from None
    except OSError as error:
        raise refusal(path, [f"cannot be read ({error.strerror or error})"]) from error
    return content, max(status.st_size, len(content))  # files of /proc state no size


def file_text(path: str | Path, *, most_bytes: int, refusal: Refusal = SpecError, encoding: str = "utf-8") -> str:
    """Return the text of a file, with line ends as Python has them."""
    content = file_bytes(path, most_bytes=most_bytes, refusal=refusal)
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        where = f"{error.reason} at byte {error.start}"
        raise refusal(Path(path), [f"must be UTF-8 text: {where}"]) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def json_of(path: str | Path, text: str | bytes, *, refusal: Refusal = SpecError, finite: bool = False) -> Any:
    """Return the content of a JSON text."""
    where = Path(path)
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        _check_numbers(where, decoded, refusal)
        content = json.loads(decoded)
    except json.JSONDecodeError as error:
        problem = f"is not JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        raise refusal(where, [problem]) from error
    except RecursionError:
        raise refusal(where, [_TOO_DEEP]) from None
    except ValueError as error:
        raise refusal(where, [f"is not JSON: {error}"]) from error
    _check_content(where, content, refusal, finite=finite)
    return content


def toml_of(path: str | Path, text: str, *, refusal: Refusal = SpecError) -> dict[str, Any]:
    """Return the tables of a TOML text."""
    where = Path(path)
    _check_numbers(where, text, refusal)
    if _LONG_KEY.search(text):
        raise refusal(where, [_TOO_DEEP])
    try:
        content = tomllib.loads(text)
    except RecursionError:
        raise refusal(where, [_TOO_DEEP]) from None
    except ValueError as error:  # also of a date or a number beyond what Python has
        raise refusal(where, [f"not valid TOML: {error}"]) from error
    _check_content(where, content, refusal, finite=False)
    return content


def file_toml(path: str | Path, *, refusal: Refusal = SpecError) -> dict[str, Any]:
    """Return the tables of a TOML file."""
    return toml_of(path, file_text(path, most_bytes=MOST_SPEC_BYTES, refusal=refusal), refusal=refusal)


_TOO_DEEP: Final = f"is nested too deeply: must have at most {MOST_DEPTH} tables, lists and objects within each other"


def _check_numbers(where: Path, text: str, refusal: Refusal) -> None:
    if _LONG_NUMBER.search(text):
        raise refusal(where, ["must have no number of more than 308 digits"])


def _check_content(where: Path, content: Any, refusal: Refusal, *, finite: bool) -> None:
    """Raise for content that is nested too deeply, or holds a text without end."""
    level, depth = [content], 0
    while level:
        if depth > MOST_DEPTH:
            raise refusal(where, [_TOO_DEEP])
        inner: list[Any] = []
        for entry in level:
            kind = type(entry)
            if kind is dict:
                inner += entry.values()
                inner += entry
            elif kind is list:
                inner += entry
            elif kind is str and len(entry) > MOST_LETTERS:
                raise refusal(where, [f"must have no text of more than {MOST_LETTERS:,} letters (got {len(entry):,})"])
            elif kind is str and not is_plain(entry):
                raise refusal(where, [f"{NO_CONTROL_CHARACTERS}, as the text {short_repr(entry)} has"])
            elif finite and kind is float and not math.isfinite(entry):
                raise refusal(where, [f"{json.dumps(entry)} is not a finite number"])
        level, depth = inner, depth + 1
