"""Tables of steps of networks that a torch package defines: a CSV of others, and a TOML that says what ran."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from perfmodel.errors import check_known
from perfmodel.measurements.reading import positive_seconds, read_lines, table_error, whole_number

_FOLDER: Final = Path(__file__).parent / "networks"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRow:
    """One measured step."""

    row_number: int
    network: str
    image_size: int
    device: str
    cell: tuple[str, ...]
    batch_size: int
    measured_s: float
    arguments: Mapping[str, Any] = field(hash=False)

    @property
    def is_training(self) -> bool:
        """Whether the step goes backward."""
        return bool(self.arguments["phase"] != "forward")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkTable:
    """Rows of one source, and what ran."""

    key: str
    title: str
    zoo: str
    framework: str
    is_fed: bool
    attention_in_training: str
    rows: tuple[NetworkRow, ...]
    source: Mapping[str, str] = field(hash=False)
    caveats: tuple[str, ...]


def network_table_names() -> tuple[str, ...]:
    """Return the tables of networks of torch packages for which perfmodel knows what ran.

    Examples
    --------
    >>> network_table_names()
    ('timm_rtx3090_amp', 'torchvision_batch12')
    """
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def read_network_table(path: Path) -> NetworkTable:
    """Read a table; its file's name identifies what ran.

    Raises
    ------
    UnknownNameError
        If nothing says what ran.
    TableError
        If a column is missing or a value is wrong; names every fault.
    """
    check_known("table of networks", path.stem, network_table_names())
    stated = tomllib.loads((_FOLDER / f"{path.stem}.toml").read_text(encoding="utf-8"))
    header, lines = read_lines(path)
    meanings: dict[str, dict[str, Mapping[str, Any]]] = {}
    for meaning in stated["meaning"]:
        meanings.setdefault(meaning["column"], {})[meaning["value"]] = meaning
    needed = ("device", "batch_size", *stated["columns"].values(), *meanings)
    faults = [f"row 1: column {name} is missing" for name in needed if name not in header]
    if faults:
        raise table_error(path, faults)
    rows = [
        _row(dict(zip(header, values, strict=False)), number, stated=stated, meanings=meanings, faults=faults)
        for number, values in lines
    ]
    if not rows:
        faults.append("no rows: at least one is needed below the header")
    if faults:
        raise table_error(path, faults)
    kept = ("key", "title", "zoo", "framework", "is_fed", "attention_in_training", "source")
    return NetworkTable(
        **{name: stated[name] for name in kept},
        rows=tuple(rows),
        caveats=tuple(caveat["text"] for caveat in stated["caveat"]),
    )


def _row(
    record: Mapping[str, str],
    number: int,
    *,
    stated: Mapping[str, Any],
    meanings: Mapping[str, Mapping[str, Mapping[str, Any]]],
    faults: list[str],
) -> NetworkRow:
    columns = stated["columns"]
    count = partial(whole_number, number=number, faults=faults)
    size = stated.get("image_size") or count(record.get(columns["image_size"], ""), column=columns["image_size"])
    seconds = positive_seconds(
        record.get(columns["seconds"], ""), column=columns["seconds"], number=number, faults=faults
    )
    arguments = dict(stated["arguments"])
    cell = []
    for column, known in meanings.items():
        value = record.get(column, "")
        if value in known:
            cell.append(known[value]["cell"])
            arguments |= known[value]["arguments"]
        else:
            faults.append(f"row {number}, column {column}: must be one of {', '.join(known)} (got {value!r})")
    return NetworkRow(
        row_number=number,
        network=record[columns["network"]],
        image_size=size or 0,
        device=record["device"],
        cell=tuple(cell),
        batch_size=count(record.get("batch_size", ""), column="batch_size") or 0,
        measured_s=seconds or 0.0,
        arguments=arguments,
    )
