"""What ran behind tables of steps on several devices that do not come with perfmodel: a TOML for each, by its name."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from perfmodel.errors import UnknownNameError
from perfmodel.measurements.rows import table_error

_FOLDER: Final = Path(__file__).parent / "speedups"

SCHEMA_VERSION: Final = 1
"""Version of the TOML's format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupJob:
    """Where and how the rows of a table ran.

    Parameters
    ----------
    key, title : str
        Stem of the files; one line. [-]
    system : str
        The machine. [-]
    other_systems : tuple of str
        The same machine, wired as it may be too. [-]
    sync : str
        How workers agree. [-]
    dataset, input_from : str
        What rows of real data read, and from where. [-]
    decode_cores : int
        Cores that decode it. [1]
    source : mapping of str to str
        Where the numbers come from and how they were read. [-]
    caveats : tuple of str
        What to know before believing a score. [-]
    """

    key: str
    title: str
    system: str
    other_systems: tuple[str, ...]
    sync: str
    dataset: str
    input_from: str
    decode_cores: int
    source: Mapping[str, str] = field(hash=False)
    caveats: tuple[str, ...]


def speedup_names() -> tuple[str, ...]:
    """Return the tables of steps on several devices of which perfmodel knows what ran.

    Examples
    --------
    >>> speedup_names()
    ('tensorflow_docs_2017_gce_k80',)
    """
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def load_speedup_job(key: str) -> SpeedupJob:
    """Load what ran behind a table.

    Parameters
    ----------
    key : str
        One of ``speedup_names()``. [-]

    Returns
    -------
    SpeedupJob
        System, strategy, data and caveats.

    Raises
    ------
    UnknownNameError
        If there is no such table.
    TableError
        If its description is of another version.

    Examples
    --------
    >>> load_speedup_job("tensorflow_docs_2017_gce_k80").sync
    'parameter_server'
    """
    if key not in speedup_names():
        kind = "table of steps on several devices"
        raise UnknownNameError(kind, key, speedup_names())
    path = _FOLDER / f"{key}.toml"
    told = tomllib.loads(path.read_text(encoding="utf-8"))
    if told["schema_version"] != SCHEMA_VERSION:
        fault = f"schema_version: {told['schema_version']!r} is not allowed: {SCHEMA_VERSION}"
        raise table_error(path, [fault])
    return SpeedupJob(
        **{name: value for name, value in told.items() if name not in ("schema_version", "other_systems", "caveat")},
        other_systems=tuple(told["other_systems"]),
        caveats=tuple(each["text"] for each in told["caveat"]),
    )
