"""Layouts of a plan's rows: those that a search finds on the same devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perfmodel.errors import ArgumentError

if TYPE_CHECKING:
    from perfmodel.prediction.prediction import Prediction

WHEN_NEEDED: Final = "when_needed"
ALWAYS: Final = "always"
NEVER: Final = "never"
LAYOUTS: Final = (WHEN_NEEDED, ALWAYS, NEVER)
"""Candidates for which layouts are searched: those that lack memory for the job as given, all, or none."""


def laid_out(p: Prediction, *, layouts: str) -> tuple[Prediction, str | None]:
    """Return the prediction of the best layout on the same devices and the layout in words, where one is wanted.

    What the job states of it is kept. If nothing fits, the layout that needs least memory shows what is missing.
    """
    from perfmodel.planning.search.of_job import search_of_job, text_of, why_not_searched

    is_wanted = layouts == ALWAYS or (layouts == WHEN_NEEDED and p.memory.fits is False)
    if not is_wanted or why_not_searched(p):
        return p, None
    try:
        found = search_of_job(p, keeps_layout=True)
    except ArgumentError:  # what is stated leaves no layout
        return p, None
    layout = found.best if len(found) else found.smallest
    return (p, None) if layout is None else (layout.prediction, text_of(layout.job))
