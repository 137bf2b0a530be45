"""A table of records: a sequence that prints aligned, renders in a notebook and becomes a DataFrame."""

from __future__ import annotations

import copyreg
import html
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, make_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast, overload

from perfmodel.errors import ArgumentError, check_known, package_for
from perfmodel.numeric import is_real
from perfmodel.presentation.quantities import ABSENT, cell_text, column_texts, counted

if TYPE_CHECKING:
    import pandas as pd


Row = TypeVar("Row")
"""A frozen dataclass, or named tuple, whose field names carry their units."""

ROWS_SHOWN: Final = 60
"""Most rows that are printed; a line then gives the number of others."""

MOST_ROW_CLASSES: Final = 256
"""Row classes cached; the one used longest ago is dropped first. [1]"""

_NUMBER: Final = re.compile(r"<?[-+]?[\d,.]+(e[-+]?\d+)?( %)?|[-+]?inf|nan")


def _row_count(name: str, count: Any) -> int:
    """Check a number of rows."""
    if not is_real(count) or count < 0 or count % 1:
        raise ArgumentError(name, count, "a whole number >= 0")
    return int(count)


def pandas_for_frames() -> Any:
    """Return pandas, or say how to install what ``to_frame`` needs."""
    return package_for("pandas", "to_frame()", "frames")


@dataclass(frozen=True, slots=True)
class _Column:
    """A column as text; numbers are right-aligned."""

    heading: str
    texts: tuple[str, ...]

    @property
    def is_numeric(self) -> bool:
        present = [text for text in self.texts if text != ABSENT]
        return bool(present) and all(_NUMBER.fullmatch(text) for text in present)

    def aligned(self) -> list[str]:
        """Return heading, rule and cells, all of one width."""
        width = max(map(len, (self.heading, *self.texts)))
        align = ">" if self.is_numeric else "<"
        return [f"{text:{align}{width}}" for text in (self.heading, "-" * width, *self.texts)]

    def html_cell(self, tag: str, text: str) -> str:
        """Return one cell, escaped."""
        side = "right" if self.is_numeric else "left"
        return f'<{tag} style="text-align:{side}">{html.escape(text)}</{tag}>'


@lru_cache(maxsize=MOST_ROW_CLASSES)
def _fields_of(row_type: type) -> tuple[str, ...]:
    """Return the field names of a dataclass or named tuple."""
    if is_dataclass(row_type):
        return tuple(field.name for field in fields(row_type))
    if not issubclass(row_type, tuple) or not hasattr(row_type, "_fields"):
        raise ArgumentError("rows", row_type.__name__, "rows of a dataclass or named tuple")
    return cast("tuple[str, ...]", row_type._fields)


class Table(Sequence[Row], Generic[Row]):
    """Rows of one dataclass or named tuple.

    Parameters
    ----------
    rows : iterable of dataclass or named tuple
        Rows of one class. [-]
    title : str
        What the table shows. [-]
    headings : mapping of str to str
        Heading by field name, if it differs from that name. [-]
    row_type : type or None
        The class of the rows; needed only if there may be no rows. [-]
    one_unit : sequence of str
        Fields that are written in one unit, so that they can be compared from column to column. [-]

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Part:
    ...     name: str
    ...     seconds: float
    >>> table = Table([Part("sync", 0.002), Part("compute", 0.0105)], title="parts of a step")
    >>> print(table.sorted_by("seconds"))
    parts of a step
    name     seconds [ms]
    -------  ------------
    compute        10.500
    sync            2.000
    """

    def __init__(
        self,
        rows: Iterable[Row],
        *,
        title: str = "",
        headings: Mapping[str, str] | None = None,
        row_type: type[Row] | None = None,
        one_unit: Sequence[str] = (),
    ) -> None:
        self.rows = tuple(rows)
        self.title = title
        self.headings = dict(headings or {})
        self.one_unit = tuple(one_unit)
        self.row_type = row_type or (type(self.rows[0]) if self.rows else None)
        self.columns = () if self.row_type is None else _fields_of(self.row_type)  # type: ignore[arg-type]
        astray = {*map(type, self.rows)} - {self.row_type}
        if astray:
            allowed = f"every row must be a {self.row_type.__name__}"  # type: ignore[union-attr]
            raise ArgumentError("rows", sorted(kind.__name__ for kind in astray), allowed)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Table[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Table[Row]:
        return self._with(self.rows[index]) if isinstance(index, slice) else self.rows[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self.rows == other.rows

    def __hash__(self) -> int:
        return hash(self.rows)

    def _with(self, rows: Iterable[Row]) -> Table[Row]:
        return Table(rows, title=self.title, headings=self.headings, row_type=self.row_type, one_unit=self.one_unit)

    def column(self, name: str) -> tuple[Any, ...]:
        """Return the values of one column.

        Parameters
        ----------
        name : str
            One of ``columns``. [-]

        Returns
        -------
        tuple
            One value per row. [unit of the field]

        Raises
        ------
        UnknownNameError
            If there is no such column; names the nearest.
        """
        check_known("column", name, self.columns)
        return tuple(getattr(row, name) for row in self.rows)

    def head(self, count: int = 5) -> Table[Row]:
        """Return the first rows.

        Parameters
        ----------
        count : int
            How many at most. [1]

        Returns
        -------
        Table
            The first ``count`` rows. [-]

        Raises
        ------
        ArgumentError
            If it is negative.
        """
        return self[: _row_count("count", count)]

    def sorted_by(self, name: str, *, descending: bool = True) -> Table[Row]:
        """Return the rows in the order of one column; rows that lack a value come last.

        Parameters
        ----------
        name : str
            One of ``columns``. [-]
        descending : bool
            Whether the largest comes first. [-]

        Raises
        ------
        UnknownNameError
            If there is no such column; names the nearest.
        """
        pairs = list(zip(self.column(name), self.rows, strict=True))
        present = [pair for pair in pairs if pair[0] is not None]
        present.sort(key=lambda pair: pair[0], reverse=descending)
        return self._with([row for _, row in present] + [row for value, row in pairs if value is None])

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries of field name to value.

        Returns
        -------
        list of dict
            One per row, in base units. [unit of each field]
        """
        return [{name: getattr(row, name) for name in self.columns} for row in self.rows]

    def to_frame(self) -> pd.DataFrame:
        """Return the rows as a pandas DataFrame; needs the extra ``frames``.

        Returns
        -------
        pandas.DataFrame
            One column per field, in base units. [unit of each field]

        Raises
        ------
        ImportError
            If pandas is not installed; says how to install it.
        """
        pandas = pandas_for_frames()
        columns = {name: list(self.column(name)) for name in self.columns}
        frame: pd.DataFrame = pandas.DataFrame(columns, columns=list(columns))
        return frame

    def _rendered(self, count: int, columns: Sequence[str] | None = None) -> list[_Column]:
        """Return columns of the first rows as text."""
        if columns is not None and (isinstance(columns, str) or not isinstance(columns, Sequence)):
            raise ArgumentError("columns", columns, f"a list of some of {', '.join(self.columns)}")
        rendered = []
        together = [value for name in self.one_unit for value in self.column(name)[:count]]
        for name in self.columns if columns is None else columns:
            values = self.column(name)[:count]
            unit, texts = column_texts(name, [*values, *together] if name in self.one_unit else values)
            heading = self.headings.get(name, name)
            rendered.append(_Column(f"{heading} [{unit}]" if unit else heading, tuple(texts[: len(values)])))
        return rendered

    def _rows_left_out(self, count: int) -> str:
        left = len(self) - count
        return f"... and {counted(left, 'more row')}: .head(n) and .to_frame() reach them" if left > 0 else ""

    def to_text(self, *, max_rows: int | None = None, columns: Sequence[str] | None = None) -> str:
        """Return the table as aligned text without colour.

        Parameters
        ----------
        max_rows : int or None
            Rows to show; None for all. [1]
        columns : sequence of str or None
            Columns to show; None for all. [-]

        Returns
        -------
        str
            Title, headings with units, rows. [-]
        """
        if not self:
            return f"{self.title}\n(no rows)".lstrip()
        count = len(self) if max_rows is None else _row_count("max_rows", max_rows)
        lines = zip(*(column.aligned() for column in self._rendered(count, columns)), strict=True)
        body = ["  ".join(cells).rstrip() for cells in lines]
        return "\n".join(line for line in [self.title, *body, self._rows_left_out(count)] if line)

    def __str__(self) -> str:
        return self.to_text(max_rows=ROWS_SHOWN)

    def __repr__(self) -> str:
        return f"<Table {self.title!r}: {counted(len(self), 'row')} of {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        return self.to_html()

    def to_html(self, *, columns: Sequence[str] | None = None) -> str:
        """Return the table as HTML without script or external asset.

        Parameters
        ----------
        columns : sequence of str or None
            Columns to show; None for all. [-]

        Returns
        -------
        str
            A table and a note on rows left out; every text is escaped. [-]
        """
        shown = self._rendered(ROWS_SHOWN, columns)
        head = "".join(column.html_cell("th", column.heading) for column in shown)
        lines = zip(*(column.texts for column in shown), strict=True)
        body = "".join(
            f"<tr>{''.join(column.html_cell('td', text) for column, text in cells)}</tr>"
            for cells in (zip(shown, line, strict=True) for line in lines)
        )
        caption = f"<caption>{html.escape(self.title)}</caption>" if self.title else ""
        left_out = html.escape(self._rows_left_out(ROWS_SHOWN))
        note = f"<p>{left_out}</p>" if left_out else ""
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


class _MadeRowType(type):
    """Type of a row class that is made of column names, by which it is pickled."""


class _MadeRow(metaclass=_MadeRowType):
    """Base of row classes that are made of column names."""


@lru_cache(maxsize=MOST_ROW_CLASSES)
def row_class(name: str, columns: tuple[str, ...]) -> type[Any]:
    """Return a class of rows with these columns; equal ones are the same class, also after pickling."""
    return make_dataclass(name, columns, bases=(_MadeRow,), frozen=True)


def _pickled_class(made: _MadeRowType) -> tuple[Callable[..., Any], tuple[str, tuple[str, ...]]]:
    return row_class, (made.__name__, _fields_of(made))


copyreg.pickle(_MadeRowType, _pickled_class)


def row_table(
    records: Sequence[Mapping[str, Any]], *, title: str, headings: Mapping[str, str] | None = None
) -> Table[Any]:
    """Return records of the same keys as a table with a column for each key.

    >>> print(row_table([{"cells": 63, "error": "18 %"}], title="scores"))
    scores
    cells  error
    -----  -----
       63   18 %
    """
    row_type = row_class("Row", tuple(records[0]) if records else ())
    return Table([row_type(**record) for record in records], title=title, headings=headings, row_type=row_type)


def facts_text(facts: Mapping[str, Any], *, width: int = 100) -> str:
    """Return named facts as aligned lines; a long one continues below its start."""
    start = max(map(len, facts), default=0) + 2
    return "\n".join(
        textwrap.fill(f"{name:<{start}}{cell_text(value)}", width, subsequent_indent=" " * start)
        for name, value in facts.items()
    )
