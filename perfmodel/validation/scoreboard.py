"""The scoreboard: every score on every table, as plain records that are committed, compared and made into pages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from perfmodel.atomic_write import replacement_of
from perfmodel.errors import TableError
from perfmodel.validation.score_records import (
    BoardScore,
    FactorRange,
    PairOrder,
    RatioRange,
    ScoredTable,
    TermScore,
    WorstCell,
)

FORMAT: Final = 1
"""Version of the file's layout. [1]"""

DIGITS: Final = 3
"""Decimals that figures are kept with. [1]"""

LISTS: Final = {
    "tables": ScoredTable,
    "scores": BoardScore,
    "worst": WorstCell,
    "ratios": RatioRange,
    "factors": FactorRange,
    "orders": PairOrder,
    "terms": TermScore,
}
"""Name of each list of a scoreboard -> the class of its records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoreboard:
    """Scores of one version of the code on all tables.

    Parameters
    ----------
    version : str
        Version of perfmodel. [-]
    code : str
        Fingerprint of the code that computed the newest of it. [-]
    tables, scores, worst, ratios, factors, orders, terms : tuple
        Records by what they are. [-]
    """

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
        """Return this board with what another one has of tables, or of terms, that this one has not.

        Parameters
        ----------
        kept : Scoreboard
            Committed results. [-]

        Returns
        -------
        Scoreboard
            Everything. [-]
        """
        own = {table.name for table in self.tables}
        merged: dict[str, Any] = {}
        for name in LISTS:
            others = getattr(kept, name)
            if name == "terms":
                newer = {(row.table, row.subset, row.protocol) for row in self.terms}
                others = [row for row in others if (row.table, row.subset, row.protocol) not in newer]
            elif name == "tables":
                others = [table for table in others if table.name not in own]
            else:
                others = [row for row in others if row.table not in own]
            merged[name] = (*getattr(self, name), *others)
        place = {table.name: index for index, table in enumerate(kept.tables)}
        for name in LISTS:  # as the kept results have it, so that a change can be read
            merged[name] = tuple(sorted(merged[name], key=lambda row: place.get(_table_of(row), len(place))))
        return replace(self, **merged)

    def with_slow_scores(self, kept: Scoreboard) -> Scoreboard:
        """Return this board with the scores of its own tables under protocols that it has not computed.

        Parameters
        ----------
        kept : Scoreboard
            Committed results. [-]

        Returns
        -------
        Scoreboard
            In the order of the committed one, where it has a score; none of a table of which no row is scored. [-]
        """
        newer: dict[tuple[str, str, str], list[BoardScore]] = {}
        for score in self.scores:
            newer.setdefault((score.table, score.subset, score.protocol), []).append(score)
        own = {table.name for table in self.tables if table.rows}
        computed = set(newer)
        merged: list[BoardScore] = []
        for score in kept.scores:
            job = (score.table, score.subset, score.protocol)
            if score.table in own:
                merged += newer.pop(job, []) if job in computed else [score]
        merged += [score for scores in newer.values() for score in scores]
        described = {(table.name, table.sha256): table for table in kept.tables}
        tables = tuple(
            described.get((table.name, table.sha256), table) if table.rows else table for table in self.tables
        )
        return replace(self, tables=tables, scores=tuple(merged))

    def of_table(self, name: str) -> Scoreboard:
        """Return what is there of one table.

        Parameters
        ----------
        name : str
            Name of the table. [-]

        Returns
        -------
        Scoreboard
            The same records, fewer. [-]
        """
        kept: dict[str, Any] = {
            each: tuple(row for row in getattr(self, each) if getattr(row, "table", None) == name)
            for each in LISTS
            if each != "tables"
        }
        return replace(self, tables=tuple(table for table in self.tables if table.name == name), **kept)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, figures rounded, for a file."""
        lists = {name: [_rounded(asdict(row)) for row in getattr(self, name)] for name in LISTS}
        return {"format": FORMAT, "version": self.version, "code": self.code, **lists}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], *, file: str = "scoreboard") -> Scoreboard:
        """Return the board of plain values.

        Parameters
        ----------
        content : mapping
            As ``to_dict`` gives it. [-]
        file : str
            Where it comes from, for the error. [-]

        Returns
        -------
        Scoreboard
            The records. [-]

        Raises
        ------
        TableError
            If the layout is another version's, or a field is missing or unknown.
        """
        if content.get("format") != FORMAT:
            message = f"{file}: format {content.get('format')!r} is not allowed: {FORMAT}; compute it again"
            raise TableError(message)
        try:
            lists = {name: tuple(kind(**row) for row in content.get(name, ())) for name, kind in LISTS.items()}
        except TypeError as error:
            message = f"{file}: {error}; compute it again"
            raise TableError(message) from error
        return cls(version=str(content["version"]), code=str(content["code"]), **lists)


def _table_of(record: Any) -> str:
    """Return the name of the table that a record is of."""
    return str(record.name if isinstance(record, ScoredTable) else record.table)


def _rounded(record: dict[str, Any]) -> dict[str, Any]:
    significant = {"measured_s", "predicted_s"}
    return {
        name: (float(f"{value:.4g}") if name in significant else round(value, DIGITS))
        if isinstance(value, float)
        else value
        for name, value in record.items()
    }


def save_scoreboard(board: Scoreboard, path: str | Path) -> None:
    """Write a scoreboard as JSON, a record a line, so that a change of it can be read.

    Parameters
    ----------
    board : Scoreboard
        The board. [-]
    path : str or Path
        Where. [-]
    """
    with replacement_of(path) as temporary:
        temporary.write_text(_json(board.to_dict()), encoding="utf-8", newline="\n")


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
    """Read a scoreboard.

    Parameters
    ----------
    path : str or Path
        A file that ``save_scoreboard`` wrote. [-]

    Returns
    -------
    Scoreboard
        The board. [-]

    Raises
    ------
    TableError
        If it cannot be read.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        message = f"{path}: cannot be read as a scoreboard: {error}"
        raise TableError(message) from error
    return Scoreboard.from_dict(content, file=str(path))


def scores_by_key(scores: Iterable[BoardScore]) -> dict[tuple[str, ...], BoardScore]:
    """Return scores by what tells them apart.

    Parameters
    ----------
    scores : iterable of BoardScore
        Scores. [-]

    Returns
    -------
    dict
        Key to score. [-]
    """
    return {score.key: score for score in scores}
