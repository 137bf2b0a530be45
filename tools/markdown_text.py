"""Markdown of the project's own pages; a table's text never becomes markup."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from perfmodel.files import file_toml
from perfmodel.plain_text import escaped

TEXTS: Final[dict[str, Any]] = file_toml(Path(__file__).with_name("page_texts.toml"))
"""Page -> its prose."""

_TAG: Final = re.compile(r"<(?=[A-Za-z/!?])")
"""Begins a tag, a comment or an address in Markdown; "< 4" does not."""


def shown(text: str) -> str:
    """Return a text in which no tag begins and no control character is hidden."""
    return _TAG.sub("&lt;", escaped(text))


def grid(head: Iterable[str], rows: Iterable[Iterable[str]], *, strong: Collection[int] = ()) -> str:
    """Return a table; the first cells of strong rows are bold.

    >>> print(grid(("cells", "MAPE"), [("63", "18.3")]))
    | cells | MAPE |
    |---|---|
    | 63 | 18.3 |
    """
    names = [*map(_cell, head)]
    lines = [_line(names), "|" + "---|" * len(names)]
    for place, row in enumerate(rows):
        cells = [*map(_cell, row)]
        lines.append(_line([f"**{cells[0]}**", *cells[1:]] if place in strong else cells))
    return "\n".join(lines)


def _cell(text: str) -> str:
    return shown(" ".join(text.split("\n"))).replace("|", "\\|")


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def page_of(blocks: Sequence[str]) -> str:
    """Return a page of headings, paragraphs, lists and tables."""
    return shown("\n\n".join(blocks)) + "\n"


def with_block(text: str, name: str, block: str) -> str:
    """Return the text of a page with another block between the marks of its name."""
    start, end = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
    before, rest = text.split(start)
    _, after = rest.split(end)
    return f"{before}{start}\n{block}\n{end}{after}"
