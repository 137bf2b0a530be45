"""Pages of headings, paragraphs, tables and pictures, as Markdown and as HTML."""

from __future__ import annotations

import html
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.2; margin-top: 2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; margin: 0.8rem 0; }
th, td { border-bottom: 1px solid #ddd; padding: 0.25rem 0.6rem; text-align: left; vertical-align: top; }
th { border-bottom: 2px solid #888; white-space: nowrap; }
td.number { text-align: right; white-space: nowrap; }
tr.strong td { font-weight: 600; }
figure { display: inline-block; margin: 0.5rem 1rem 0.5rem 0; }
figure img { max-width: 32rem; width: 100%; }
li { margin: 0.4rem 0; }
"""


class Block(ABC):
    """A part of a page."""

    @abstractmethod
    def markdown(self) -> str:
        """Return it as Markdown."""

    @abstractmethod
    def html(self) -> str:
        """Return it as HTML."""


@final
@dataclass(frozen=True, slots=True)
class Heading(Block):
    """A heading.

    Parameters
    ----------
    text : str
        Its words. [-]
    level : int
        1 for the page's own. [1]
    """

    text: str
    level: int = 2

    def markdown(self) -> str:
        """Return it as Markdown."""
        return f"{'#' * self.level} {self.text}"

    def html(self) -> str:
        """Return it as HTML."""
        return f"<h{self.level}>{html.escape(self.text)}</h{self.level}>"


@final
@dataclass(frozen=True, slots=True)
class Paragraph(Block):
    """Words.

    Parameters
    ----------
    text : str
        Plain text; backticks enclose code, links are as in Markdown. [-]
    """

    text: str

    def markdown(self) -> str:
        """Return it as Markdown."""
        return self.text

    def html(self) -> str:
        """Return it as HTML."""
        return f"<p>{_inline(self.text)}</p>"


@final
@dataclass(frozen=True, slots=True)
class Bullets(Block):
    """A list.

    Parameters
    ----------
    items : tuple of str
        Plain text; backticks enclose code, links are as in Markdown. [-]
    numbered : bool
        Whether the order counts. [-]
    """

    items: tuple[str, ...]
    numbered: bool = False

    def markdown(self) -> str:
        """Return it as Markdown."""
        marks = [f"{place}." for place in range(1, len(self.items) + 1)] if self.numbered else ["-"] * len(self.items)
        return "\n".join(f"{mark} {item}" for mark, item in zip(marks, self.items, strict=True))

    def html(self) -> str:
        """Return it as HTML."""
        tag = "ol" if self.numbered else "ul"
        items = "\n".join(f"<li>{_inline(item)}</li>" for item in self.items)
        return f"<{tag}>\n{items}\n</{tag}>"


@final
@dataclass(frozen=True, slots=True)
class Grid(Block):
    """A table of text; what reads as a number stands at the right.

    Parameters
    ----------
    head : tuple of str
        Heading of each column. [-]
    rows : sequence of tuple of str
        Cells, as many in each row as the head has. [-]
    strong : frozenset of int
        Rows that stand out. [1]
    """

    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    strong: frozenset[int] = frozenset()

    def markdown(self) -> str:
        """Return it as Markdown."""
        lines = [_line([cell.replace("|", "\\|") for cell in self.head]), "|" + "---|" * len(self.head)]
        for place, row in enumerate(self.rows):
            cells = [cell.replace("|", "\\|") for cell in row]
            lines.append(_line([f"**{cells[0]}**", *cells[1:]] if place in self.strong else cells))
        return "\n".join(lines)

    def html(self) -> str:
        """Return it as HTML."""
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in self.head)
        rows = []
        for place, row in enumerate(self.rows):
            mark = ' class="strong"' if place in self.strong else ""
            cells = "".join(f"<td{_side(cell)}>{_inline(cell)}</td>" for cell in row)
            rows.append(f"<tr{mark}>{cells}</tr>")
        body = "\n".join(rows)
        return f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'


@final
@dataclass(frozen=True, slots=True)
class Picture(Block):
    """A picture beside the page.

    Parameters
    ----------
    path, text : str
        Path from the page, and what it shows. [-]
    """

    path: str
    text: str

    def markdown(self) -> str:
        """Return it as Markdown."""
        return f"![{self.text}]({self.path})"

    def html(self) -> str:
        """Return it as HTML."""
        text = html.escape(self.text, quote=True)
        return f'<figure><img src="{html.escape(self.path, quote=True)}" alt="{text}"></figure>'


_LINK: Final = re.compile(r"\[([^\]]+)\]\(([\w./#-]+)\)")
"""A link to a page or an address without a scheme."""


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _side(cell: str) -> str:
    bare = cell.strip("*").replace(" %", "").replace(",", "").replace("+", "").removeprefix("-")
    return ' class="number"' if bare.replace(".", "", 1).isdigit() else ""


def _inline(text: str) -> str:
    """Return text with what backticks enclose as code, what double asterisks enclose as strong, and its links."""
    escaped = _LINK.sub(r'<a href="\2">\1</a>', html.escape(text))
    for mark, tag in (("`", "code"), ("**", "strong")):
        parts = escaped.split(mark)
        if len(parts) % 2:
            escaped = "".join(f"<{tag}>{part}</{tag}>" if place % 2 else part for place, part in enumerate(parts))
    return escaped


def markdown_page(blocks: Sequence[Block]) -> str:
    """Return a page as Markdown.

    Parameters
    ----------
    blocks : sequence of Block
        Its parts. [-]

    Returns
    -------
    str
        The text. [-]

    Examples
    --------
    >>> print(markdown_page([Heading("Scores", 1), Grid(("cells", "MAPE"), [("63", "18.3")])]))
    # Scores
    <BLANKLINE>
    | cells | MAPE |
    |---|---|
    | 63 | 18.3 |
    <BLANKLINE>
    """
    return "\n\n".join(block.markdown() for block in blocks) + "\n"


def html_page(blocks: Sequence[Block], *, title: str) -> str:
    """Return a page as HTML that needs nothing but its pictures.

    Parameters
    ----------
    blocks : sequence of Block
        Its parts. [-]
    title : str
        Of the window. [-]

    Returns
    -------
    str
        The document. [-]
    """
    body = "\n".join(block.html() for block in blocks)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )
