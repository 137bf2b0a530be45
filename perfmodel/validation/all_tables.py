"""Every score on every table: those that come with perfmodel, and those of a folder that do not."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from perfmodel import measurements
from perfmodel.errors import CalibrationError
from perfmodel.measurements.kernel_tables import content_hash
from perfmodel.measurements.table import SET_ASIDE, SUBSETS
from perfmodel.validation.collected import Collected
from perfmodel.validation.own_scores import collect_own
from perfmodel.validation.own_tables import OWN_TABLES
from perfmodel.validation.protocols import ALL_FITTED, NOTHING_FITTED
from perfmodel.validation.score_records import KINDS, STEPS, ScoredTable, TermScore
from perfmodel.validation.step_scores import Protocols, score_steps
from perfmodel.validation.validate import checked_table

if TYPE_CHECKING:
    from perfmodel.measurements.table import MeasurementTable

Progress = Callable[[int, int], None]
Tell = Callable[[str], None]

QUICK: Final = {
    "gpu": (NOTHING_FITTED, ALL_FITTED, "leave_one_device_out", "leave_one_family_out"),
    "cpu": (NOTHING_FITTED, ALL_FITTED),
    "cpu_oversubscribed": (NOTHING_FITTED, ALL_FITTED),
}
"""Subset -> protocols that take about a minute together: what continuous integration computes again."""

FITTED: Final = ("shi2016", "wuensche2018")
"""Tables that are fitted under protocols; what the others are worth is that nothing is ever fitted on them. [-]"""

UNFITTED: Final[Protocols] = dict.fromkeys(SUBSETS, (NOTHING_FITTED,))
"""Protocols of the other tables, by subset."""

ABLATED: Final = {
    "gpu": (NOTHING_FITTED, "leave_one_device_out"),
    "cpu": (NOTHING_FITTED, "leave_one_thread_count_out"),
    "cpu_oversubscribed": (NOTHING_FITTED,),
}
"""Subset -> protocols whose terms are left out one by one."""


def score_shipped(
    *, protocols: Protocols | None = None, progress: Progress | None = None, tell: Tell | None = None
) -> Collected:
    """Score every table that comes with perfmodel.

    Parameters
    ----------
    protocols : mapping of str to sequence of str, or None
        Protocols by subset; None for all that leave every fold something to fit. [-]
    progress : callable or None
        Told how much is done, and of how much. [-]
    tell : callable or None
        Told each score as it is there. [-]

    Returns
    -------
    Collected
        Scores, worst cells, pictures.
    """
    collected = Collected()
    names = measurements.names()
    for done, name in enumerate(names):

        def told(part: int, whole: int, before: int = done) -> None:
            if progress is not None:
                progress(1000 * before + round(1000 * part / whole), 1000 * len(names))

        table = checked_table(name)
        assert table.path is not None
        description = table.path.with_suffix(".toml")
        entry = ScoredTable(
            name=name,
            kind=STEPS,
            is_shipped=True,
            sha256=content_hash(table.path, description),
            rows=sum(row.status == "measured" for row in table.rows),
            not_scored=_set_aside_text(table),
        )
        asked = protocols if name in FITTED else UNFITTED
        try:
            score_steps(table, entry, collected, protocols=asked, progress=told, tell=tell)
        except CalibrationError as error:
            refused = ScoredTable(**{**asdict(entry), "rows": 0, "not_scored": f"all of it: {error}"})
            collected.forget(name)
            collected.add("tables", refused)
    return collected


def score_shipped_own(*, kinds: Collection[str] = KINDS, tell: Tell | None = None) -> Collected:
    """Score every table that comes with perfmodel and is scored in a way of its own: of several devices.

    Parameters
    ----------
    kinds : collection of str
        Kinds of tables that are wanted. [-]
    tell : callable or None
        Told each score as it is there. [-]

    Returns
    -------
    Collected
        Scores. [-]
    """
    collected = Collected()
    for table in OWN_TABLES.values():
        if table.is_shipped and table.kind in kinds:
            collect_own(table, collected, is_shipped=True, tell=tell)
    return collected


def _set_aside_text(table: MeasurementTable) -> str:
    aside = [row for row in table.rows if row.status in SET_ASIDE]
    missing = sum(row.status == "missing" for row in table.rows)
    texts = [f"{row.network}, {row.framework}, {row.device}: {row.status}. {row.note}" for row in aside]
    return " ".join([*texts, f"{missing} missing." if missing else ""]).strip()


def score_terms(
    *, table: str = "shi2016", progress: Progress | None = None, tell: Tell | None = None
) -> tuple[TermScore, ...]:
    """Score the headline protocols without each physical term.

    Parameters
    ----------
    table : str
        A shipped table. [-]
    progress : callable or None
        Told how much is done, and of how much. [-]
    tell : callable or None
        Told each subset as it is done. [-]

    Returns
    -------
    tuple of TermScore
        For each protocol all terms first, then without each of them. [-]
    """
    from perfmodel.validation.ablation import ablation

    found: list[TermScore] = []
    for done, (subset, protocols) in enumerate(ABLATED.items()):

        def told(part: int, whole: int, before: int = done) -> None:
            if progress is not None:
                progress(1000 * before + round(1000 * part / whole), 1000 * len(ABLATED))

        rows = ablation(table, protocols=protocols, only=subset, progress=told)
        found += [TermScore(table=table, **asdict(row)) for row in rows]
        if tell is not None:
            tell(f"{table}, {subset}: {len(rows) - 1} terms left out, one by one")
    return tuple(found)
