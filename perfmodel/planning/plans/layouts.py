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
    """Return the prediction of the best layout on the same devices and that layout in words, if one is searched.

    The search keeps the layout arguments that the job states. If nothing fits, it gives the layout of least memory.
    """
    from perfmodel.planning.search.of_job import search_of_job, text_of, why_not_searched

    is_wanted = layouts == ALWAYS or (layouts == WHEN_NEEDED and p.memory.fits is False)
    if not is_wanted or why_not_searched(p):
        return p, None
    try:
        search = search_of_job(p, keeps_layout=True)
    except ArgumentError:  # the stated arguments allow no layout
        return p, None
    layout = search.best if len(search) else search.smallest
    return (p, None) if layout is None else (layout.prediction, text_of(layout.job))
