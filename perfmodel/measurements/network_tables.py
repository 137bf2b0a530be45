"""Tables of steps of networks that a torch package defines: a CSV of others, and a TOML that says what ran."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from perfmodel.errors import check_known
from perfmodel.measurements.reading import CsvTable, Line

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
    csv_table = CsvTable(path)
    meanings: dict[str, dict[str, Mapping[str, Any]]] = {}
    for meaning in stated["meaning"]:
        meanings.setdefault(meaning["column"], {})[meaning["value"]] = meaning
    needed = ("device", "batch_size", *stated["columns"].values(), *meanings)
    missing = (name for name in needed if name not in csv_table.header)
    csv_table.faults.extend(f"row 1: column {name} is missing" for name in missing)
    csv_table.check()
    rows = [_row(line, stated=stated, meanings=meanings) for line in csv_table.lines]
    csv_table.check(rows)
    kept = ("key", "title", "zoo", "framework", "is_fed", "attention_in_training", "source")
    return NetworkTable(
        **{name: stated[name] for name in kept},
        rows=tuple(rows),
        caveats=tuple(caveat["text"] for caveat in stated["caveat"]),
    )


def _row(
    line: Line, *, stated: Mapping[str, Any], meanings: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> NetworkRow:
    columns, values = stated["columns"], line.values
    size = stated.get("image_size") or line.whole(columns["image_size"])
    seconds = line.seconds(columns["seconds"])
    arguments = dict(stated["arguments"])
    cell = []
    for column, known in meanings.items():
        value = values.get(column, "")
        if value in known:
            cell.append(known[value]["cell"])
            arguments |= known[value]["arguments"]
        else:
            line.refuse(column, f"one of {', '.join(known)}")
    return NetworkRow(
        row_number=line.number,
        network=values[columns["network"]],
        image_size=size,
        device=values["device"],
        cell=tuple(cell),
        batch_size=line.whole("batch_size"),
        measured_s=seconds,
        arguments=arguments,
    )
