"""What ``print`` and a notebook show of an advice: the best change of each kind, what gains nothing, what cannot be."""

from __future__ import annotations

import html
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from perfmodel.prediction.report import WIDTH, configuration, fit_sentence, title
from perfmodel.presentation.quantities import seconds_text
from perfmodel.presentation.tables import Table

if TYPE_CHECKING:
    from perfmodel.planning.advice import Advice, AdviceRow, Rejected

HEADINGS: Final = {"samples_per_s": "throughput", "step_s": "step"}
"""Heading of a column by field, where it is another."""

SLIGHT: Final = 1.005
"""Speed-up up to which a change gains next to nothing. [1]"""


REASON_LETTERS: Final = 160
"""Most letters of a reason that is printed. [1]"""

NO_ROOM: Final = "It does not fit"
"""Beginning of what is said of a job without enough memory."""


@dataclass(frozen=True, slots=True)
class ShownRow:
    """A change as it is shown.

    Parameters
    ----------
    change : str
        In a few words. [-]
    speedup : str
        Throughput with it over that without. [1]
    samples_per_s : float
        With it. [samples/s]
    step_s : float
        With it. [s]
    why : str
        Part that changed most, and what bounds the step. [-]
    """

    change: str
    speedup: str
    samples_per_s: float
    step_s: float
    why: str


def _shown(row: AdviceRow) -> ShownRow:
    return ShownRow(row.change, f"{row.speedup:.3f}", row.samples_per_s, row.step_s, row.reason)


def _heading(a: Advice) -> list[str]:
    p = a.base
    job = f"{title(p)} ({configuration(p)}): {p.samples_per_s:,.4g} samples/s, {seconds_text(p.step_s)} a step, "
    lines = [f"{job}bottleneck {p.bottleneck}"]
    if p.memory.fits is False:
        lines.append(f"{fit_sentence(p)} Gains are over what it would take.")
    return lines


def _is_worth_showing(a: Advice, row: AdviceRow) -> bool:
    """Tell whether a change gains something, or makes a job fit that does not."""
    return row.speedup >= SLIGHT or a.base.memory.fits is False


def _little_gains(a: Advice) -> list[str]:
    """Return lines of the kinds whose best change is not worth a row, those of one reason together."""
    reasons: dict[str, list[AdviceRow]] = {}
    for row in a.best_of_each_kind:
        if not _is_worth_showing(a, row):
            reasons.setdefault(row.reason, []).append(row)
    return [
        f"gains little or nothing: {'; '.join(f'{row.kind} ({row.change}: {row.speedup:.3f})' for row in rows)}: {reason}"
        for reason, rows in reasons.items()
    ]


def _rejections(a: Advice) -> list[str]:
    """Return lines of what cannot be, those of one reason together; the reasons themselves are in ``rejected``."""
    reasons: dict[str, list[Rejected]] = {}
    for entry in a.rejected:
        same, refused, _ = entry.reason.partition(" is not allowed")
        key = NO_ROOM if entry.reason.startswith(NO_ROOM) else same if refused else entry.reason
        reasons.setdefault(key, []).append(entry)
    lines = []
    for key, entries in reasons.items():
        which = ", ".join(entry.change or entry.kind for entry in entries)
        reason = NO_ROOM if key == NO_ROOM else textwrap.shorten(entries[0].reason, REASON_LETTERS, placeholder=" ...")
        lines.append(f"cannot be: {which}: {reason}")
    return lines


def _blocks(a: Advice, shown: int | None) -> tuple[Table[ShownRow], list[str]]:
    """Return the table of what gains, and lines for the rest."""
    found = a.best_of_each_kind if shown is None else a.rows[:shown]
    good = [row for row in found if _is_worth_showing(a, row)]
    heading = "the best change of each kind" if shown is None else f"the {len(good)} best changes"
    table = Table([_shown(row) for row in good], title=heading, headings=HEADINGS, row_type=ShownRow)
    lines = [f"beware of {row.change}: {row.beware}" for row in good if row.beware]
    lines += _little_gains(a)
    faster = sum(row.speedup >= SLIGHT for row in a.rows)
    counts = f"{len(a.rows)} changes tried that can be, {faster} of them faster, {len(a.rejected)} that cannot"
    return table, [*lines, *_rejections(a), f"{counts}; .rows and .rejected have all"]


def report(a: Advice, *, shown: int | None = None) -> str:
    """Return what ``print(advice)`` shows.

    Parameters
    ----------
    a : Advice
        The advice. [-]
    shown : int or None
        Changes to list, of whatever kind; None for the best of each kind. [1]

    Returns
    -------
    str
        Several lines without colour. [-]
    """
    table, lines = _blocks(a, shown)
    below = "\n".join(textwrap.fill(line, WIDTH, subsequent_indent="  ") for line in lines)
    return "\n\n".join(["\n".join(_heading(a)), table.to_text(), below])


def report_html(a: Advice) -> str:
    """Return what a notebook shows: the same as headings and tables, without script or external asset.

    Parameters
    ----------
    a : Advice
        The advice. [-]

    Returns
    -------
    str
        HTML; every text is escaped. [-]
    """
    table, lines = _blocks(a, None)
    below = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    heading = html.escape(" ".join(_heading(a)))
    return f"<div><p><b>{heading}</b></p>{table.to_html()}<ul>{below}</ul></div>"
