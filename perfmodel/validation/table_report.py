"""What a table comes to that is scored in a way of its own: rows beside predictions, scores beside naive rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from perfmodel.presentation.tables import Table
from perfmodel.validation.scoreboard import PERFMODEL
from perfmodel.validation.scores import ScoreRow, score
from perfmodel.validation.text import Columns, printed

if TYPE_CHECKING:
    from perfmodel.validation.mullapudi import Illustration

EVERY_ROW: Final = "all"

MOST_PRINTED: Final = 60
"""Rows up to which a report prints each of them. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartScore:
    """A score on a part of the rows of a table.

    Parameters
    ----------
    part : str
        Which rows: all, an operation, a number of devices. [-]
    score : ScoreRow
        The score; its subset says on which systems or devices. [-]
    note : str
        What must be known beside it; mostly empty. [-]
    protocol : str
        What was fitted on what; empty where the table has one way only. [-]
    """

    part: str
    score: ScoreRow
    note: str = ""
    protocol: str = ""


OwnReport: TypeAlias = "RowReport | Illustration"
"""What a table that is scored in a way of its own comes to: prints as text, has rows, scores and an error."""


def compared(
    subset: str,
    predictions: Mapping[str, Sequence[float]],
    *,
    measured: Sequence[float],
    fitted: Mapping[str, int],
    part: str = EVERY_ROW,
    note: str = "",
) -> tuple[PartScore, ...]:
    """Score perfmodel and naive rules on the same rows.

    Parameters
    ----------
    subset : str
        On which systems or devices the rows ran. [-]
    predictions : mapping of str to sequence of float, each of shape (rows,)
        Name of a model to what it predicts. [as measured]
    measured : sequence of float, shape (rows,)
        What was measured: times [s] or ratios [1].
    fitted : mapping of str to int
        Numbers that a model took from the table; 0 where it is not named. [1]
    part : str
        Which rows these are. [-]
    note : str
        What must be known beside the score of perfmodel. [-]

    Returns
    -------
    tuple of PartScore
        One for each model.
    """
    return tuple(
        PartScore(
            part=part,
            score=score(subset, model, predicted, measured_s=measured, fitted=fitted.get(model, 0)),
            note=note if model == PERFMODEL else "",
        )
        for model, predicted in predictions.items()
    )


def mean_error(parts: Sequence[PartScore]) -> float | None:
    """Return the mean absolute error of perfmodel over all rows; None where nothing is scored [%]."""
    own = [each for each in parts if each.score.model == PERFMODEL and each.part == EVERY_ROW]
    return own[0].score.mape if own else None


PARTS: Final[Columns] = {
    "cells of": "{0.score.subset}",
    "part": "{.part}",
    "model": "{0.score.model}",
    "cells": "{0.score.cells}",
    "constants": "{0.score.fitted}",
    "MAPE [%]": "{0.score.mape:.1f}",
    "median [%]": "{0.score.median_ape:.1f}",
    "p90 [%]": "{0.score.p90_ape:.1f}",
    "bias": "{0.score.geometric_mean_ratio:.2f}",
    "percent_within_10": "{0.score.percent_within_10:.1f}",
    "percent_within_25": "{0.score.percent_within_25:.1f}",
}


def parts_text(parts: Sequence[PartScore], *, title: str) -> str:
    """Return scores as text, a line for each part and model."""
    return printed(parts, PARTS, title=title).to_text()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowReport:
    """Rows beside their predictions, and scores beside naive rules.

    Parameters
    ----------
    table : str
        Name of the table. [-]
    rows : Table
        Each row beside its prediction; printed where there are few. [-]
    parts : tuple of PartScore
        Scores of perfmodel and of naive rules, all rows first; empty where nothing is scored. [-]
    not_scored : str
        What of the table is not scored, and why; may be empty. [-]
    caveats : tuple of str
        What to know before believing it. [-]
    """

    table: str
    rows: Table[Any]
    parts: tuple[PartScore, ...]
    not_scored: str = ""
    caveats: tuple[str, ...] = ()

    @property
    def mape(self) -> float | None:
        """Mean absolute error of perfmodel over the scored rows; None where nothing is scored [%]."""
        return mean_error(self.parts)

    def __str__(self) -> str:
        blocks = [self.rows.to_text()] if len(self.rows) <= MOST_PRINTED else []
        if self.parts:
            aside = f" (not scored: {self.not_scored})" if self.not_scored else ""
            blocks.append(parts_text(self.parts, title=f"{self.table}: scores{aside}"))
        notes = [f"{self.table}: {each.note}" for each in self.parts if each.note]
        notes += [] if self.parts else [f"{self.table}: nothing is scored: {self.not_scored}"]
        notes += [f"- {text}" for text in self.caveats]
        return "\n\n".join([*blocks, "\n".join(notes)] if notes else blocks)

    def to_dict(self) -> dict[str, Any]:
        """Return name, error, scores, rows and caveats as plain values."""
        return {
            "table": self.table,
            "mape_percent": self.mape,
            "scores": [{"part": each.part, **asdict(each.score), "note": each.note} for each in self.parts],
            "rows": [asdict(row) for row in self.rows],
            "not_scored": self.not_scored,
            "caveats": list(self.caveats),
        }
