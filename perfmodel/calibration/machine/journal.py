"""The record of a session beside its result: every point as it was timed, written whole again and again as it grows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from perfmodel.atomic_write import replacement_of
from perfmodel.calibration.machine.benchmark import Point
from perfmodel.errors import ArgumentError

VERSION: Final = 1
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
        self.seconds = 0.0

    def write(self) -> None:
        """Write all of it, in the place of what was there."""
        if self.path is None:
            return
        content = {
            "version": VERSION,
            "header": self.header,
            "seconds": self.seconds,
            "found": self.found,
            "points": [point.to_dict() for point in self.points],
        }
        with replacement_of(self.path) as temporary:
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
                earlier = content["header"].get(key)
                allowed = f"a record of the same {key}: it was {_told(earlier)}, and is {_told(value)} now"
                raise ArgumentError(argument="resume", given=str(path), allowed=allowed)
        self.found = content["found"]
        self.seconds = float(content["seconds"])
        self.points = content["points"]


def _told(value: Any) -> str:
    return ", ".join(f"{key} {each}" for key, each in value.items()) if isinstance(value, Mapping) else str(value)


def read_journal(path: str | Path) -> dict[str, Any]:
    """Return what a record holds, with its points as :class:`Point`.

    Parameters
    ----------
    path : str or Path
        The record. [-]

    Returns
    -------
    dict
        ``header``, ``seconds`` [s], ``found`` and ``points``. [-]

    Raises
    ------
    ArgumentError
        If there is none, or it is not one.
    """
    try:
        content = json.loads(Path(path).expanduser().read_text(encoding="utf-8"))
        known = content["version"] == VERSION
        content["points"] = [Point(**point) for point in content["points"]]
        content = {key: content[key] for key in ("header", "seconds", "found", "points")}
    except OSError as error:
        raise ArgumentError("resume", str(path), f"a record that can be read ({error.strerror or error})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ArgumentError("resume", str(path), f"a record of points that a calibration wrote ({error})") from error
    if not known:
        raise ArgumentError("resume", str(path), f"a record of version {VERSION}")
    return content
