"""What became of scores: two scoreboards compared, and what the changelog must name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from board_records import BoardScore, Scoreboard
from perfmodel.validation.scores.table_report import PERFMODEL

SAME: Final = 0.05
"""Difference between a committed figure and its recomputation that is rounding. [percentage points]"""

WORSE: Final = 0.5
"""Rise of an error from which on the changelog must name it. [percentage points]"""

COMPARED: Final = ("mape", "typical_factor_percent", "median_ape", "p90_ape")

CELLS: Final = "cells"
"""Column of how much was scored, which must not shrink."""

JUDGED: Final = {"kernels": ("median_ape",)}
"""Kind of table -> columns whose rise counts; means of the errors for others."""

HEADING: Final = "Predictions that changed"
"""Heading of the changelog's section that names what got worse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreChange:
    """A figure of a score that differs between two scoreboards.

    Parameters
    ----------
    score : BoardScore
        The newer one; the older where it is gone. [-]
    column : str
        Which figure. [-]
    before, after : float
        Its values: percent, or for ``cells`` a number of them, none where the score is gone. [%]
    """

    score: BoardScore
    column: str
    before: float
    after: float

    def __str__(self) -> str:
        of = self.score
        part = "" if of.part == "all" else f", {of.part}"
        if self.column == CELLS:
            change = f"{self.before:.0f} -> {self.after:.0f} cells{'' if self.after else ', the score is gone'}"
        else:
            change = f"{self.column} {self.before:.1f} -> {self.after:.1f} %"
        return f"{of.table}, {of.subset}{part}, {of.protocol}: {change}"


def _by_key(scores: Iterable[BoardScore]) -> dict[tuple[str, ...], BoardScore]:
    return {score.key: score for score in scores}


def differences(committed: Scoreboard, recomputed: Scoreboard) -> list[str]:
    """Return how a recomputation differs from committed scores.

    Parameters
    ----------
    committed, recomputed : Scoreboard
        What is on the page, and what the code gives now, perhaps of fewer protocols. [-]

    Returns
    -------
    list of str
        A line for each score that only one of them has, or that differs by more than rounding, and for each table of
        which another number of rows is scored. [-]
    """
    known = _by_key(committed.scores)
    found = [*_other_rows(committed, recomputed), *_no_longer_computed(committed, recomputed)]
    for score in recomputed.scores:
        old = known.get(score.key)
        if old is None:
            found.append(f"{', '.join(score.key)}: not on the committed scoreboard")
            continue
        if (old.cells, old.fitted) != (score.cells, score.fitted):
            found.append(
                f"{', '.join(score.key)}: {old.cells} cells, {old.fitted} constants -> {score.cells}, {score.fitted}"
            )
        for column in COMPARED:
            before, after = getattr(old, column), getattr(score, column)
            if abs(before - after) > SAME:
                found.append(str(ScoreChange(score=score, column=column, before=before, after=after)))
    return found


def _other_rows(committed: Scoreboard, recomputed: Scoreboard) -> list[str]:
    rows = {table.name: table.rows for table in committed.tables}
    return [
        f"{table.name}: {rows.get(table.name, 0)} rows scored -> {table.rows} {table.not_scored}".rstrip()
        for table in recomputed.tables
        if rows.get(table.name) != table.rows
    ]


def _no_longer_computed(committed: Scoreboard, recomputed: Scoreboard) -> list[str]:
    """Name committed scores that a recomputation of their table and protocol does not have."""
    tables = {table.name for table in recomputed.tables}
    jobs = {(score.subset, score.protocol) for score in recomputed.scores}
    there = _by_key(recomputed.scores)
    return [
        f"{', '.join(score.key)}: on the committed scoreboard and no longer computed"
        for score in committed.scores
        if score.table in tables and (score.subset, score.protocol) in jobs and score.key not in there
    ]


def stale_scores(board: Scoreboard) -> list[str]:
    """Return where scores that must follow from one state of code and spec files do not.

    Scores of all tables of one kind that come with perfmodel are held against each other; those of another table, which
    only its owner can compute again, among themselves.

    Parameters
    ----------
    board : Scoreboard
        Committed results. [-]

    Returns
    -------
    list of str
        A line for each protocol of a table whose fingerprint is another than that of most scores, or is not kept. [-]
    """
    group_of = {table.name: table.kind if table.is_shipped else table.name for table in board.tables}
    groups: dict[str, Counter[str]] = {}
    for score in board.scores:
        groups.setdefault(group_of.get(score.table, score.table), Counter())[score.code] += 1
    found: dict[str, None] = {}
    for score in board.scores:
        counts = groups[group_of.get(score.table, score.table)]
        usual = max(filter(None, counts), key=lambda code: counts[code], default="")
        if not score.code:
            found[f"{score.table}, {score.subset}, {score.protocol}: what it was computed with is not kept"] = None
        elif score.code != usual:
            told = f"computed with {score.code}, most others with {usual}"
            found[f"{score.table}, {score.subset}, {score.protocol}: {told}"] = None
    return list(found)


def worse_scores(released: Scoreboard, committed: Scoreboard) -> list[ScoreChange]:
    """Return the scores of perfmodel that got worse since a release, score fewer cells, or are gone.

    Parameters
    ----------
    released, committed : Scoreboard
        Before, and now. [-]

    Returns
    -------
    list of ScoreChange
        Figures that rose by more than ``WORSE``, and numbers of cells that fell. [-]
    """
    known = _by_key(committed.scores)
    kinds = {table.name: table.kind for table in committed.tables}
    found = []
    for old in released.scores:
        if old.model != PERFMODEL:
            continue
        score = known.get(old.key)
        cells = 0 if score is None else score.cells
        if cells < old.cells:
            found.append(ScoreChange(score=score or old, column=CELLS, before=old.cells, after=cells))
        if score is None:
            continue
        for column in JUDGED.get(kinds.get(score.table, ""), ("mape", "typical_factor_percent")):
            before, after = getattr(old, column), getattr(score, column)
            if after > before + WORSE:
                found.append(ScoreChange(score=score, column=column, before=before, after=after))
    return found


def newest_section(changelog: str) -> str:
    r"""Return what the changelog's newest version says under ``Predictions that changed``.

    Parameters
    ----------
    changelog : str
        The file's text. [-]

    Returns
    -------
    str
        Text up to the next heading; empty where there is none. [-]

    Examples
    --------
    >>> newest_section("# Changelog\n## 2\n### Predictions that changed\n- a\n### Added\n- b\n## 1\n")
    '- a'
    """
    versions = re.split(r"^## ", changelog, flags=re.MULTILINE)
    newest = versions[1] if len(versions) > 1 else ""
    for section in re.split(r"^### ", newest, flags=re.MULTILINE)[1:]:
        heading, _, text = section.partition("\n")
        if heading.strip() == HEADING:
            return text.strip()
    return ""


def unnamed(changes: Iterable[ScoreChange], changelog: str) -> list[ScoreChange]:
    """Return the changes that the changelog does not name.

    Parameters
    ----------
    changes : iterable of ScoreChange
        Scores that got worse. [-]
    changelog : str
        The file's text. [-]

    Returns
    -------
    list of ScoreChange
        Those whose table, subset and protocol do not all stand in one entry of the newest section. [-]
    """
    entries = [" ".join(entry.split()) for entry in re.split(r"^- ", newest_section(changelog), flags=re.MULTILINE)]
    return [
        change
        for change in changes
        if not any(_names(entry, (change.score.table, change.score.subset, change.score.protocol)) for entry in entries)
    ]


def _names(entry: str, words: tuple[str, ...]) -> bool:
    return all(re.search(rf"(?<![\w]){re.escape(word)}(?![\w])", entry) for word in words)
