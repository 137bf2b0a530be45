"""Scores of tables that are scored in a way of their own, as records of a scoreboard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Final

from perfmodel.measurements.kernel_tables import content_hash
from perfmodel.validation.collected import Collected
from perfmodel.validation.collective_scores import HELD_OUT
from perfmodel.validation.own_tables import OwnTable
from perfmodel.validation.protocols import NOTHING_FITTED
from perfmodel.validation.score_records import COLLECTIVES, PERFMODEL, BoardScore, ScoredTable

ONE_FITTED: Final = "one_row_fitted"
"""Protocol: some rows fix what the table does not state; the others are scored. [-]"""


def collect_own(
    table: OwnTable, collected: Collected, *, is_shipped: bool, tell: Callable[[str], None] | None = None
) -> None:
    """Score a table and add the records.

    Parameters
    ----------
    table : OwnTable
        With the path of its CSV. [-]
    collected : Collected
        What is known so far. [-]
    is_shipped : bool
        Whether it comes with perfmodel. [-]
    tell : callable or None
        Told when it is scored. [-]
    """
    report = table.report()
    rows = report.parts[0].score.cells if report.parts else 0
    files = (table.file, *(path for path in [table.file.with_suffix(".toml")] if path.is_file()))
    collected.add(
        "tables",
        ScoredTable(
            name=table.name,
            kind=table.kind,
            is_shipped=is_shipped,
            sha256=content_hash(*files),
            rows=rows,
            not_scored=report.not_scored,
        ),
    )
    unlike = HELD_OUT if table.kind == COLLECTIVES else ONE_FITTED
    fitted = any(each.score.fitted for each in report.parts if each.score.model == PERFMODEL)
    for each in report.parts:
        collected.add(
            "scores",
            BoardScore(
                table=table.name,
                part=each.part,
                protocol=unlike if fitted else NOTHING_FITTED,
                note=each.note,
                **asdict(each.score),
            ),
        )
    if tell is not None:
        tell(f"{table.name}: {len(report.parts)} scores")
