"""What became of scores: two scoreboards compared, and what the changelog must name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from perfmodel.validation.score_records import PERFMODEL, BoardScore
from perfmodel.validation.scoreboard import Scoreboard, scores_by_key

SAME: Final = 0.05
"""Difference between a committed figure and its recomputation that is rounding. [percentage points]"""

WORSE: Final = 0.5
"""Rise of an error from which on the changelog must name it. [percentage points]"""

COMPARED: Final = ("mape", "typical_factor_percent", "median_ape", "p90_ape")
"""Columns that are compared with a recomputation."""

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
        The newer one. [-]
    column : str
        Which figure. [-]
    before, after : float
        Its values. [%]
    """

    score: BoardScore
    column: str
    before: float
    after: float

    def __str__(self) -> str:
        of = self.score
        part = "" if of.part == "all" else f", {of.part}"
        return f"{of.table}, {of.subset}{part}, {of.protocol}: {self.column} {self.before:.1f} -> {self.after:.1f} %"


def differences(committed: Scoreboard, recomputed: Scoreboard) -> list[str]:
    """Return how a recomputation differs from committed scores.

    Parameters
    ----------
    committed, recomputed : Scoreboard
        What is on the page, and what the code gives now, perhaps of fewer protocols. [-]

    Returns
    -------
    list of str
        A line for each score that is missing, or differs by more than rounding. [-]
    """
    known = scores_by_key(committed.scores)
    found = []
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


def worse_scores(released: Scoreboard, committed: Scoreboard) -> list[ScoreChange]:
    """Return the scores of perfmodel that got worse since a release.

    Parameters
    ----------
    released, committed : Scoreboard
        Before, and now. [-]

    Returns
    -------
    list of ScoreChange
        Figures that rose by more than ``WORSE``. [-]
    """
    known = scores_by_key(released.scores)
    kinds = {table.name: table.kind for table in committed.tables}
    found = []
    for score in committed.scores:
        old = known.get(score.key)
        if old is None or score.model != PERFMODEL:
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
