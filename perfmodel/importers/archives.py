"""Configurations in untrusted archives and texts: read as data, within limits, nothing extracted."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from perfmodel.errors import SpecError, short_repr
from perfmodel.files import file_bytes, file_start, json_of, user_path
from perfmodel.plain_text import NO_CONTROL_CHARACTERS, is_plain_name

MOST_CONFIG_BYTES: Final = 64 * 2**20
"""Most bytes of a configuration, decompressed: 64 times the largest of ``keras.applications`` (EfficientNetV2L: 1 MB)
[B]."""
MOST_COMPRESSION: Final = 300
"""Largest ratio of a configuration's size to its compressed size; in ``keras.applications`` it is 18 to 47 [1]."""
MOST_MEMBERS: Final = 10_000
"""Most files in an archive: the few that the program writes, and assets such as vocabularies [1]."""
ZIP_SIGNATURE: Final = b"PK"
SIGNATURE_BYTES: Final = 8
"""First bytes of a file that tell its kind [B]."""
JSON_TEXT: Final = "JSON text"
"""Name in errors of a configuration that is passed as a text."""

TEXT_STARTS: Final = ("{", "[")
FILE_SUFFIXES: Final = (".json", ".keras", ".h5", ".hdf5", ".zip")


def is_json_text(text: str) -> bool:
    """Tell whether a text is JSON itself rather than a path, which may begin with a bracket too.

    >>> is_json_text('{"confs": []}'), is_json_text("[1]"), is_json_text("[1].json")
    (True, True, False)
    """
    start = text.lstrip()[:1]
    return start in TEXT_STARTS and (start == TEXT_STARTS[0] or not text.endswith(FILE_SUFFIXES))


def printable(where: str, kind: str, name: str) -> str:
    """Return a name of a configuration; raise SpecError where control characters would garble what is printed."""
    if not is_plain_name(name):
        raise SpecError(where, [f"{kind} {short_repr(name)}: {NO_CONTROL_CHARACTERS}"])
    return name


def _of_configuration(where: Path, faults: list[str]) -> SpecError:
    return SpecError(
        where, [f"its configuration {fault.replace('JSON:', 'JSON, or a truncated one:')}" for fault in faults]
    )


def parsed(where: str, text: str | bytes) -> dict[str, Any]:
    """Return the JSON object in a text."""
    if len(text) > MOST_CONFIG_BYTES:
        raise SpecError(where, [f"its configuration has {len(text):,} B: must have at most {MOST_CONFIG_BYTES:,} B"])
    content = json_of(where, text, refusal=_of_configuration)
    if not isinstance(content, dict):
        raise SpecError(where, ["its configuration must be a JSON object"])
    return content


def config_text(
    path: Path,
    member: str,
    *,
    readers: Mapping[bytes, Callable[[Path], str | bytes]] | None = None,
    binary_suffixes: Collection[str] = (),
) -> str | bytes:
    """Return the configuration's text in a file: an archive or the text itself, by its first bytes.

    ``readers`` read further kinds, by the signature; a file with one of the ``binary_suffixes`` is no text.
    """
    path = user_path(path)
    start = file_start(path, size_bytes=SIGNATURE_BYTES)
    try:
        for signature, read in (readers or {}).items():
            if start.startswith(signature):
                return read(path)
        if start.startswith(ZIP_SIGNATURE):
            return _text_in_zip(path, member)
    except OSError as error:
        raise SpecError(path, [f"cannot be read ({error.strerror or error})"]) from error
    if path.suffix in binary_suffixes:
        raise SpecError(path, [f"is no {path.suffix} file, or a damaged one"])
    return file_bytes(path, most_bytes=MOST_CONFIG_BYTES)


def _text_in_zip(path: Path, member: str) -> bytes:
    """Return one member of an archive, within limits; nothing is extracted."""
    try:
        with (
            zipfile.ZipFile(path) as archive,
            archive.open(_checked_entry(path, archive.infolist(), member)) as file,
        ):
            content = file.read(MOST_CONFIG_BYTES + 1)  # whatever size the entry claims
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise SpecError(path, [f"is no archive, or a truncated or damaged one ({error})"]) from error
    except Exception as error:  # the errors of the decompressor on damaged bytes (zlib.error, lzma.LZMAError)
        if isinstance(error, SpecError | OSError):
            raise
        raise SpecError(path, [f"its {member} is damaged ({error})"]) from error
    return content


def _checked_entry(path: Path, members: list[zipfile.ZipInfo], member: str) -> zipfile.ZipInfo:
    """Return the entry of a member; SpecError for too many members, or one outside the archive or too large."""
    if len(members) > MOST_MEMBERS:
        raise SpecError(path, [f"has {len(members):,} members: must have at most {MOST_MEMBERS:,}"])
    for entry in members:
        place = PurePosixPath(entry.filename.replace("\\", "/"))
        if place.is_absolute() or ".." in place.parts:
            raise SpecError(path, [f"its member {entry.filename!r} points outside the archive: must lie inside"])
    entry_of_member = next((entry for entry in members if entry.filename == member), None)
    if entry_of_member is None:
        raise SpecError(path, [f"has no {member}: must be a saved model"])
    _check_size(path, entry_of_member)
    return entry_of_member


def _check_size(path: Path, entry: zipfile.ZipInfo) -> None:
    """Raise SpecError for a configuration that is too large when decompressed."""
    if entry.file_size > MOST_CONFIG_BYTES or entry.file_size > MOST_COMPRESSION * max(entry.compress_size, 1):
        problem = (
            f"its {entry.filename} has {entry.compress_size:,} B and {entry.file_size:,} B decompressed: must have at "
            f"most {MOST_CONFIG_BYTES:,} B, and {MOST_COMPRESSION} times what it has compressed"
        )
        raise SpecError(path, [problem])
