"""Run every command of docs/sources.md, and write its output and the distance of that from the claim.

Run:  python tools/generate_sources.py

Columns ``place``, ``claim`` and ``command``, and the reason after a verdict, are written by hand; ``prints`` and the
verdict in bold are written here. Rows whose verdict changes are listed: read their reasons again. tests/test_pages.py
holds the page.
"""

from __future__ import annotations

import ast
import contextlib
import io
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

from perfmodel.cli.app import run
from perfmodel.errors import PerfmodelError

PAGE = Path(__file__).parent.parent / "docs" / "sources.md"
HEADER = "| place | claim | command | prints | verdict |"
NO_COMMAND = "-"
AGREES_WITHIN = 1.01
NEAR_WITHIN = 1.25
DIGITS = 4
TEXT_LENGTH = 200


class Row(NamedTuple):
    """One claim, as the page has it."""

    place: str
    claim: str
    command: str
    prints: str
    verdict: str

    @property
    def line(self) -> str:
        """The row of the page."""
        return f"| {' | '.join(self)} |"

    @property
    def reason(self) -> str:
        """Text after the bold verdict."""
        return re.sub(r"^\*\*.*?\*\*(, [\d.]+ times| by [\d.]+)?", "", self.verdict)


def rows(page: str) -> list[Row]:
    """Return the claims of a page."""
    tables = page.split(HEADER)[1:]
    lines = (line for table in tables for line in table.split("\n\n")[0].splitlines()[2:])
    return [Row(*line.removeprefix("| ").removesuffix(" |").split(" | ")) for line in lines]


def namespace(page: str) -> dict[str, Any]:
    """Return the names that the Python block of a page defines for its commands."""
    names: dict[str, Any] = {}
    exec("".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), names)
    return names


def answered(row: Row, names: dict[str, Any]) -> Row:
    """Return a row with what its command prints now, and the verdict on that."""
    if row.command == NO_COMMAND:
        return row
    command = row.command.strip("`")
    if command.startswith("perfmodel "):
        return row._replace(prints=f"`{_line_like(row.prints.strip('`'), _output(command))}`")
    try:
        value = eval(command, names)
    except PerfmodelError as error:
        return row._replace(prints=f"`{_text(f'{type(error).__name__}: {error}')}`", verdict=f"**refused**{row.reason}")
    figures = re.findall(r"`([^`]+)`", row.claim)
    verdict = _verdict(value, ast.literal_eval(figures[-1]) if figures else None)
    return row._replace(prints=f"`{_text(value)}`", verdict=f"{verdict}{row.reason}")


def _verdict(value: Any, claimed: Any) -> str:
    """Judge by the member that is furthest off: of what was claimed, or True and False of a claim without a figure."""
    if claimed is None:
        yes_or_no = "**holds**" if value else "**does not hold**"
        return yes_or_no if isinstance(value, bool) else "**answered**"
    pairs = zip(_members(value), _members(claimed), strict=True)
    ratios = [1.0 if number == claim else number / claim if claim else math.inf for number, claim in pairs]
    worst = max(ratios, key=lambda ratio: abs(math.log(ratio)) if ratio > 0 else math.inf)
    distance = max(worst, 1 / worst) if worst > 0 else math.inf
    if distance <= AGREES_WITHIN:
        return "**agrees**"
    word = "near" if distance <= NEAR_WITHIN else "differs"
    return f"**{word}**, {worst:.3g} times" if 0 < worst < math.inf else f"**{word}**"


def _members(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]


def _text(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"({', '.join(_text(member) for member in value)})"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 10**DIGITS else f"{value:.{DIGITS}g}"
    return shorten(str(value), TEXT_LENGTH, placeholder=" ...")


def _output(command: str) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        run(shlex.split(command)[1:])
    return output.getvalue()


def _line_like(before: str, output: str) -> str:
    """Return the line of an output that begins with the same words as the one on the page."""
    lines = [" ".join(line.split()) for line in output.splitlines()]
    words = re.split(r"\d", before)[0].strip()
    return next((line for line in lines if line.startswith(words)), lines[0])


def page(before: str) -> str:
    """Return a page with its commands run anew, and its verdicts counted."""
    names = namespace(before)
    after = before
    for row in rows(before):
        after = after.replace(row.line, answered(row, names).line, 1)
    counts = Counter(row.verdict.split("**")[1] for row in rows(after))
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    return re.sub(r"^Of \d+ rows: .*$", f"Of {counts.total()} rows: {verdicts}.", after, flags=re.MULTILINE)


if __name__ == "__main__":
    before = PAGE.read_text(encoding="utf-8")
    after = page(before)
    PAGE.write_text(after, encoding="utf-8")
    for old, new in zip(rows(before), rows(after), strict=True):
        if old.verdict != new.verdict:
            print(f"{old.place}: {old.claim}\n  was {old.verdict}\n  now {new.verdict}")  # noqa: T201
