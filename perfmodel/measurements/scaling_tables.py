"""Tables of what others measured, or said, of many devices: a CSV, and a TOML with its caveats."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from perfmodel.errors import UnknownNameError
from perfmodel.measurements.rows import read_lines, table_error

FOLDER: Final = Path(__file__).resolve().parent / "scaling"

SCHEMA_VERSION: Final = 1
"""Version of the formats of the TOML files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingTable:
    """Rows of several devices.

    Parameters
    ----------
    key, title : str
        Stem of the files; one line. [-]
    rows : tuple of mapping
        By column: text, or a number in the unit of the column's name. [-]
    source : mapping of str to str
        Where the numbers come from and how they were read. [-]
    stated : mapping
        What the source says of all rows. [-]
    caveats : tuple of str
        What to know before believing the rows. [-]
    """

    key: str
    title: str
    rows: tuple[Mapping[str, Any], ...]
    source: Mapping[str, str] = field(hash=False)
    stated: Mapping[str, Any] = field(hash=False)
    caveats: tuple[str, ...]


def scaling_names() -> tuple[str, ...]:
    """Return the keys of the tables of several devices that come with perfmodel.

    Examples
    --------
    >>> scaling_names()
    ('mullapudi2017', 'wuensche2018_multi_gpu')
    """
    return tuple(sorted(path.stem for path in FOLDER.glob("*.csv")))


def load_scaling(key: str) -> ScalingTable:
    """Load a table of several devices.

    Parameters
    ----------
    key : str
        One of ``scaling_names()``. [-]

    Returns
    -------
    ScalingTable
        Its rows and caveats.

    Raises
    ------
    UnknownNameError
        If there is no such table.
    TableError
        If a number is none; names row, column and value.

    Examples
    --------
    >>> table = load_scaling("mullapudi2017")
    >>> table.rows[0]["epoch_s"], len(table.caveats)
    (3.52, 6)
    """
    if key not in scaling_names():
        raise UnknownNameError(kind="table of several devices", name=key, known=scaling_names())
    path = FOLDER / f"{key}.csv"
    description = _description(path.with_suffix(".toml"))
    header, lines = read_lines(path)
    faults: list[str] = []
    rows = tuple(
        {
            column: _number(text, column, number, faults) if column in description["numbers"] else text
            for column, text in zip(header, values, strict=True)
        }
        for number, values in lines
    )
    if faults:
        raise table_error(path, faults)
    return ScalingTable(
        key=key,
        title=description["title"],
        rows=rows,
        source=description["source"],
        stated=description["stated"],
        caveats=tuple(each["text"] for each in description["caveat"]),
    )


def _description(path: Path) -> dict[str, Any]:
    """Return a TOML of the version that this code reads."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    if content["schema_version"] != SCHEMA_VERSION:
        raise table_error(path, [f"schema_version: {content['schema_version']!r} is not allowed: {SCHEMA_VERSION}"])
    return content


def _number(text: str, column: str, number: int, faults: list[str]) -> float:
    try:
        return float(text)
    except ValueError:
        faults.append(f"row {number}, column {column}: {text!r} is not allowed: a number")
        return 0.0


_FOLDER: Final = Path(__file__).parent / "speedups"


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
        raise UnknownNameError(kind="table of steps on several devices", name=key, known=speedup_names())
    path = _FOLDER / f"{key}.toml"
    told = _description(path)
    return SpeedupJob(
        **{name: value for name, value in told.items() if name not in ("schema_version", "other_systems", "caveat")},
        other_systems=tuple(told["other_systems"]),
        caveats=tuple(each["text"] for each in told["caveat"]),
    )
