"""The scoreboard: every score on every table, as plain records that are committed, compared and made into pages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, get_args, get_origin, get_type_hints

from ablation import AblationRow
from perfmodel import __version__
from perfmodel.atomic_write import save_text
from perfmodel.errors import TableError
from perfmodel.fitting.fit import code_fingerprint, fingerprint
from perfmodel.validation.reports.own_tables import COLLECTIVES, MANY_DEVICES, NETWORKS, PRODUCTS
from perfmodel.validation.scores.table_report import FactorRow, ScoreRow

STEPS: Final = "steps"
KERNELS: Final = "kernels"
SYSTEMS: Final = "systems"

KINDS: Final = (STEPS, KERNELS, SYSTEMS, NETWORKS, PRODUCTS, COLLECTIVES, MANY_DEVICES)
"""Kinds of tables, in the order of the page: steps on one device that come with perfmodel; timed calls of kernels;
steps that do not come with it; steps of the networks of torch packages; fastest products; calls of collectives;
networks on several devices. [-]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardScore(ScoreRow):
    """One score."""

    table: str
    part: str = "all"
    protocol: str
    mape_low: float | None = None
    mape_high: float | None = None
    interval_coverage_percent: float | None = None
    interval_width: float | None = None
    interval_score: float | None = None
    constant_interval_score: float | None = None
    note: str = ""
    code: str = ""

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """Key of the score, unique on the board."""
        return self.table, self.subset, self.part, self.protocol, self.model


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredTable:
    """A table that was scored."""

    name: str
    kind: str
    is_shipped: bool
    sha256: str
    rows: int
    not_scored: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstCell:
    """One of the cells that are predicted worst."""

    table: str
    subset: str
    protocol: str
    cell: str
    measured_s: float
    predicted_s: float
    ratio: float
    explanation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioRange:
    """Lowest and highest predicted / measured of a network with a framework, nothing fitted."""

    table: str
    subset: str
    network: str
    framework: str
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorRange(FactorRow):
    """A factor that a fit to all cells puts on sourced constants, with its 80 % interval."""

    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOrder:
    """Share of pairs of frameworks on one network and device in the right order, nothing fitted."""

    table: str
    subset: str
    right_percent: float
    pairs: int
    feedforward_mape: float | None
    feedforward_cells: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TermScore(AblationRow):
    """Score of a protocol without one physical term."""

    table: str


FORMAT: Final = 1

DIGITS: Final = 3
"""Decimals that figures are kept with. [1]"""

FIRST: Final = ("table", "subset", "part", "protocol", "model", "cells", "fitted")
"""Figures of a record that a file begins with, so that lines can be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoreboard:
    """Scores of one version of the code on all tables."""

    version: str
    code: str
    tables: tuple[ScoredTable, ...] = ()
    scores: tuple[BoardScore, ...] = ()
    worst: tuple[WorstCell, ...] = ()
    ratios: tuple[RatioRange, ...] = ()
    factors: tuple[FactorRange, ...] = ()
    orders: tuple[PairOrder, ...] = ()
    terms: tuple[TermScore, ...] = ()

    def with_kept(self, kept: Scoreboard) -> Scoreboard:
        """Return this board with the tables and terms of another one that it lacks itself."""
        names = {table.name for table in self.tables}
        newer = {(row.table, row.subset, row.protocol) for row in self.terms}

        def is_kept(record: Any) -> bool:
            if isinstance(record, TermScore):
                return (record.table, record.subset, record.protocol) not in newer
            return _table_of(record) not in names

        merged: dict[str, Any] = {name: (*getattr(self, name), *filter(is_kept, getattr(kept, name))) for name in LISTS}
        place = {table.name: index for index, table in enumerate(kept.tables)}

        def order(record: Any) -> int:  # as the kept results have it, so that a change can be read
            return place.get(_table_of(record), len(place))

        merged = {name: tuple(sorted(records, key=order)) for name, records in merged.items()}
        return replace(self, **merged)

    def with_slow_scores(self, kept: Scoreboard) -> Scoreboard:
        """Return this board with the kept scores of its own tables under protocols that it has not computed."""
        newer: dict[tuple[str, str, str], list[BoardScore]] = {}
        for score in self.scores:
            newer.setdefault((score.table, score.subset, score.protocol), []).append(score)
        with_rows = {table.name for table in self.tables if table.rows}
        computed = set(newer)
        merged: list[BoardScore] = []
        for score in kept.scores:
            job = (score.table, score.subset, score.protocol)
            if score.table in with_rows:
                merged += newer.pop(job, []) if job in computed else [score]
        merged += [score for scores in newer.values() for score in scores]
        described = {(table.name, table.sha256): table for table in kept.tables}
        tables = tuple(
            described.get((table.name, table.sha256), table) if table.rows else table for table in self.tables
        )
        return replace(self, tables=tables, scores=tuple(merged))

    def of_table(self, name: str) -> Scoreboard:
        """Return the records of one table."""
        lists: dict[str, Any] = {
            key: tuple(row for row in getattr(self, key) if _table_of(row) == name) for key in LISTS
        }
        return replace(self, **lists)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, figures rounded, for a file."""
        lists = {name: [_rounded(asdict(row)) for row in getattr(self, name)] for name in LISTS}
        return {"format": FORMAT, "version": self.version, "code": self.code, **lists}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], *, file: str = "scoreboard") -> Scoreboard:
        """Return the board of plain values."""
        if content.get("format") != FORMAT:
            message = f"{file}: format must be {FORMAT}; compute the scoreboard again (got {content.get('format')!r})"
            raise TableError(message)
        try:
            lists = {name: tuple(kind(**row) for row in content.get(name, ())) for name, kind in LISTS.items()}
        except TypeError as error:
            message = f"{file}: {error}; compute it again"
            raise TableError(message) from error
        return cls(version=str(content["version"]), code=str(content["code"]), **lists)


LISTS: Final[dict[str, type[Any]]] = {
    name: get_args(kind)[0] for name, kind in get_type_hints(Scoreboard).items() if get_origin(kind) is tuple
}
"""Name of each list of a scoreboard -> the class of its records."""


def _table_of(record: Any) -> str:
    """Return the name of the table that a record is of."""
    return str(record.name if isinstance(record, ScoredTable) else record.table)


def _rounded(record: dict[str, Any]) -> dict[str, Any]:
    significant = {"measured_s", "predicted_s"}
    names = [*(name for name in FIRST if name in record), *(name for name in record if name not in FIRST)]
    return {
        name: (float(f"{value:.4g}") if name in significant else round(value, DIGITS))
        if isinstance(value, float)
        else value
        for name, value in ((name, record[name]) for name in names)
    }


def save_scoreboard(board: Scoreboard, path: str | Path) -> None:
    """Write a scoreboard as JSON, a record a line, so that a change of it can be read."""
    save_text(path, _json(board.to_dict()))


def _json(content: Mapping[str, Any]) -> str:
    parts = []
    for name, value in content.items():
        if isinstance(value, list):
            lines = ",\n".join(f"    {json.dumps(row, ensure_ascii=False)}" for row in value)
            parts.append(f"  {json.dumps(name)}: [\n{lines}\n  ]" if value else f"  {json.dumps(name)}: []")
        else:
            parts.append(f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def load_scoreboard(path: str | Path) -> Scoreboard:
    """Read a scoreboard."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        message = f"{path}: cannot be read as a scoreboard: {error}"
        raise TableError(message) from error
    return Scoreboard.from_dict(content, file=str(path))


FINGERPRINT_DIGITS: Final = 12


@dataclass(frozen=True, eq=False, kw_only=True)
class Picture:
    """A parity plot to be drawn."""

    name: str
    shown: Mapping[str, Any]


@dataclass(eq=False)
class Collected:
    """Records and pictures collected so far."""

    tell: Callable[[str], None] | None = None
    records: dict[str, list[Any]] = field(default_factory=dict)
    pictures: list[Picture] = field(default_factory=list)

    def add(self, *records: Any) -> None:
        """Add records to the lists of their kinds."""
        for record in records:
            name = next(name for name, kind in LISTS.items() if isinstance(record, kind))
            self.records.setdefault(name, []).append(record)

    def say(self, text: str) -> None:
        """Report progress in words."""
        if self.tell is not None:
            self.tell(text)

    def forget(self, table: str) -> None:
        """Drop all records of a table."""
        for records in self.records.values():
            records[:] = [record for record in records if _table_of(record) != table]

    def board(self) -> Scoreboard:
        """Return everything as a scoreboard of this version, each score with the fingerprint of its code."""
        lists = {name: tuple(records) for name, records in self.records.items()}
        follows_from = fingerprint(())[:FINGERPRINT_DIGITS]
        lists["scores"] = tuple(replace(score, code=follows_from) for score in lists.get("scores", ()))
        return Scoreboard(version=__version__, code=code_fingerprint()[:FINGERPRINT_DIGITS], **lists)
