"""What ``print`` and a notebook show of a comparison, and its figure."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Final

from perfmodel.planning.asked_differently import InputChange
from perfmodel.planning.wording import signed_seconds_text
from perfmodel.prediction.report import configuration, title
from perfmodel.presentation.quantities import cell_text, percent_text, quantity_text, scale_of, seconds_text
from perfmodel.presentation.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from perfmodel.planning.comparison import Comparison

LAYERS_SHOWN: Final = 8
"""Operations that printing lists; ``layers`` has them all. [1]"""

SECONDS: Final = {"first_s": "first", "second_s": "second", "change_s": "change"}
"""Heading of each column of seconds."""

BYTES: Final = {"first_bytes": "first", "second_bytes": "second", "change_bytes": "change"}
"""Heading of each column of bytes."""

KERNELS: Final = {"first_kernel": "first kernel", "second_kernel": "second kernel"}
"""Heading of each column of names."""


def verdict(c: Comparison) -> str:
    """Say how much longer or shorter the second is, and what makes up most of the change.

    Parameters
    ----------
    c : Comparison
        The comparison. [-]

    Returns
    -------
    str
        Two sentences. [-]
    """
    total = c.total
    if not total.change_s:
        return f"Both take {seconds_text(total.first_s)} a {c.per}."
    times = f"{1 / c.ratio:.4g} times as fast" if c.ratio < 1 else f"{c.ratio:.4g} times as long"
    most = c.main_term
    return (
        f"From {seconds_text(total.first_s)} to {seconds_text(total.second_s)} a {c.per}: {times}. Most of the change "
        f"of {signed_seconds_text(total.change_s)} is {most.meaning}: {signed_seconds_text(most.change_s)} "
        f"({percent_text(most.change_s / total.change_s)})."
    )


def _heading(c: Comparison) -> str:
    both = (("first", c.first), ("second", c.second))
    return "\n".join(f"{which}: {title(p)} ({configuration(p)})" for which, p in both)


def _input_text(change: InputChange, value: Any) -> str:
    """Write a value with its unit, where the name of an argument tells it; fields of files tell theirs themselves."""
    scale = None if ":" in change.input else scale_of(change.input)
    return cell_text(value) if scale is None or not isinstance(value, float) else quantity_text(value, scale)


def _tables(c: Comparison) -> list[tuple[Table[Any], list[str]]]:
    """Return what is shown, with the columns."""
    texts = [InputChange(row.input, _input_text(row, row.first), _input_text(row, row.second)) for row in c.inputs]
    spent = [row for row in c.terms if row.first_s or row.second_s]
    where = {"meaning": f"where the time of a {c.per} goes"} | SECONDS
    changed = [row for row in c.layers if row.change_s]
    longest = f"{min(LAYERS_SHOWN, len(changed))} of {len(changed)} operations whose time changed, most first"
    kept = [row for row in c.memory if row.first_bytes or row.second_bytes]
    return [
        (Table(texts, title="what was asked differently", row_type=InputChange), ["input", "first", "second"]),
        (Table([*spent, c.total], headings=where, one_unit=tuple(SECONDS)), ["meaning", *SECONDS]),
        (
            Table(
                changed[:LAYERS_SHOWN],
                title=longest,
                headings=SECONDS | KERNELS,
                row_type=c.layers.row_type,
                one_unit=tuple(SECONDS),
            ),
            ["layer", "phase", "role", *KERNELS, *SECONDS],
        ),
        (Table(kept, headings={"holds": "memory"} | BYTES, one_unit=tuple(BYTES)), ["holds", *BYTES]),
    ]


def report(c: Comparison) -> str:
    """Return what ``print(comparison)`` shows: verdict, inputs, parts, operations, memory.

    Parameters
    ----------
    c : Comparison
        The comparison. [-]

    Returns
    -------
    str
        Several lines without colour. [-]
    """
    tables = [table.to_text(columns=columns) for table, columns in _tables(c)]
    return "\n\n".join([_heading(c), c.verdict, *tables])


def report_html(c: Comparison) -> str:
    """Return what a notebook shows: the same as headings and tables, without script or external asset.

    Parameters
    ----------
    c : Comparison
        The comparison. [-]

    Returns
    -------
    str
        HTML; every text is escaped. [-]
    """
    heading = html.escape(_heading(c)).replace("\n", "<br>")
    columns = "".join(
        f'<div style="margin-right:2em">{table.to_html(columns=columns)}</div>' for table, columns in _tables(c)
    )
    return (
        f"<div><p><b>{heading}</b></p><p>{html.escape(c.verdict)}</p>"
        f'<div style="display:flex;flex-wrap:wrap;align-items:flex-start">{columns}</div></div>'
    )


def figure_of(c: Comparison) -> Figure:
    """Draw the way from the first to the second, a bar for each part that changed.

    Parameters
    ----------
    c : Comparison
        The comparison. [-]

    Returns
    -------
    matplotlib.figure.Figure
        A waterfall. [-]
    """
    from perfmodel.presentation.figures import waterfall

    return waterfall(
        c.total.first_s,
        {row.meaning: row.change_s for row in c.terms if row.change_s},
        ends=(f"first, a {c.per}", f"second, a {c.per}"),
        title=f"{_heading(c)}\n{c.verdict.partition('. ')[0]}",
    )
