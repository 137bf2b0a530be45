"""The record of a session beside its result: every point as it was timed, written whole again and again as it grows."""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final

from perfmodel.atomic_write import replacement_of
from perfmodel.calibration.machine.benchmark import Point
from perfmodel.errors import ArgumentError, PerfmodelWarning

VERSION: Final = 2
"""Of the record's layout [1]."""

SUFFIX: Final = ".points.json"
"""What replaces ``.toml`` in the name of a calibration to name its record."""


def journal_of(out: str | Path) -> Path:
    """Return where the record of a calibration lies: beside it.

    Examples
    --------
    >>> journal_of("my_machine.toml").name
    'my_machine.points.json'
    """
    path = Path(out).expanduser()
    return path.with_name(path.name.removesuffix(".toml") + SUFFIX)


def temporary_journal() -> Path:
    """Return where the record of this process lies if nothing was said of it."""
    return Path(tempfile.gettempdir()) / f"perfmodel_calibration_{os.getpid()}{SUFFIX}"


def set_aside(path: Path) -> None:
    """Rename the record of another session, if one is at ``path``, so that its points are kept; a warning tells it.

    Parameters
    ----------
    path : Path
        Where a new record shall be written. [-]

    Warns
    -----
    PerfmodelWarning
        Where the older record is now.
    """
    if not path.is_file() or _is_without_points(path):
        return
    kept = next(each for number in count(1) if not (each := path.with_name(f"{path.name}.{number}")).exists())
    try:
        path.rename(kept)
    except OSError as error:
        raise ArgumentError("out", str(path), f"a place whose record can be renamed ({error.strerror})") from error
    told = f"{path} had points of an earlier session: they are kept as {kept}, with which --resume goes on"
    warnings.warn(told, PerfmodelWarning, stacklevel=2)


def _is_without_points(path: Path) -> bool:
    try:
        return not read_journal(path)["points"]
    except ArgumentError:  # no record that we know: it is kept
        return False


def digest_of(points: Iterable[Point]) -> str:
    """Return what tells the points of one session from those of any other: sizes and times, in any order.

    Examples
    --------
    >>> first, second = (Point(name="relu", dtype="fp32", sizes={"n": 3}, seconds=each) for each in (1e-5, 2e-5))
    >>> digest_of([first, second]) == digest_of([second, first]) != digest_of([first, first])
    True
    """
    lines = sorted(json.dumps([each.name, each.dtype, each.sizes, each.seconds], sort_keys=True) for each in points)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


class Journal:
    """Points of a session, and what else was measured in it.

    Parameters
    ----------
    path : Path or None
        Where it is written; None keeps it in memory. [-]
    header : mapping
        What the session measures: target, backend, machine, software. [-]
    """

    def __init__(self, path: Path | None, header: Mapping[str, Any]) -> None:
        self.path = path
        self.header = dict(header)
        self.found: dict[str, Any] = {}
        self.points: list[Point] = []
        self.reference_s: list[float] = []
        self._own: set[Path] = set()
        self.seconds = 0.0

    def write(self) -> None:
        """Write all of it, in the place of what was there; if that place is full, in the folder of temporary files."""
        if self.path is None:
            return
        try:
            self._write(self.path)
        except ArgumentError:
            elsewhere = temporary_journal()
            if self.path == elsewhere:
                raise
            self.path = elsewhere
            self._write(elsewhere)

    def _write(self, path: Path) -> None:
        if path.resolve() not in self._own:
            set_aside(path)
            self._own.add(path.resolve())
        content = {
            "version": VERSION,
            "header": self.header,
            "seconds": self.seconds,
            "found": self.found,
            "reference_s": self.reference_s,
            "points": [point.to_dict() for point in self.points],
        }
        with replacement_of(path) as temporary:
            temporary.write_text(json.dumps(content), encoding="utf-8")

    def resume(self, path: Path) -> None:
        """Take over what an earlier session measured on the same machine with the same software.

        Parameters
        ----------
        path : Path
            Its record. [-]

        Raises
        ------
        ArgumentError
            If it is no record, or of another machine or other software.
        """
        content = read_journal(path)
        for key, value in self.header.items():
            if content["header"].get(key) != value:
                earlier, now = _differing(content["header"].get(key), value)
                allowed = f"a record of the same {key}: it was {earlier}, and is {now} now"
                raise ArgumentError(argument="resume", given=str(path), allowed=allowed)
        self.found = content["found"]
        self.seconds = content["seconds"]
        self.points = content["points"]
        self.reference_s = content["reference_s"]
        self._own.add(path.resolve())


def _differing(earlier: Any, now: Any) -> tuple[str, str]:
    """Return two values in words; of two tables only what differs."""
    if not (isinstance(earlier, Mapping) and isinstance(now, Mapping)):
        return _told(earlier), _told(now)
    keys = [key for key in {**earlier, **now} if earlier.get(key) != now.get(key)]
    texts = [", ".join(f"{key} {_told(table.get(key))}" for key in keys) for table in (earlier, now)]
    return texts[0], texts[1]


def _told(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "not told" if value is None else str(value)


def _point_of(content: Mapping[str, Any]) -> Point:
    """Return a point as it was written; refuse one that was not."""
    point = Point(**content)
    times = [point.seconds, *([] if point.cold_seconds is None else [point.cold_seconds])]
    if not all(isinstance(seconds, float) and 0 < seconds < math.inf for seconds in times):
        message = f"a point of {point.name} takes {point.seconds!r} s"
        raise ValueError(message)
    if not all(isinstance(size, int) for size in point.sizes.values()):
        message = f"sizes of {point.name} are no whole numbers"
        raise ValueError(message)
    return point


def read_journal(path: str | Path, *, argument: str = "resume") -> dict[str, Any]:
    """Return what a record holds, with its points as :class:`Point`.

    Parameters
    ----------
    path : str or Path
        The record. [-]
    argument : str
        For what it was given, to name in an error. [-]

    Returns
    -------
    dict
        ``header``, ``seconds`` [s], ``found``, ``points`` and ``reference_s`` [s]: the times of the reference kernel,
        by whose numbers the points name their windows. [-]

    Raises
    ------
    ArgumentError
        If there is none, or it is not one.
    """
    try:
        content = json.loads(Path(path).expanduser().read_text(encoding="utf-8"))
        known = content["version"] == VERSION
        content["points"] = [_point_of(point) for point in content["points"]]
        content = {
            "header": dict(content["header"]),
            "seconds": float(content["seconds"]),
            "found": dict(content["found"]),
            "reference_s": [float(seconds) for seconds in content["reference_s"]],
            "points": content["points"],
        }
    except OSError as error:
        raise ArgumentError(argument, str(path), f"a record that can be read ({error.strerror or error})") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else str(error)
        allowed = f"a record of points (.points.json) that a calibration wrote whole ({reason})"
        raise ArgumentError(argument, str(path), allowed) from error
    if not known:
        raise ArgumentError(argument, str(path), f"a record of version {VERSION}")
    return content
