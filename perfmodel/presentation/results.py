"""Methods of every result: show its rows, convert to a frame, a dictionary or JSON, and draw."""

from __future__ import annotations

import html
import json
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from perfmodel.atomic_write import save_text
from perfmodel.presentation.tables import Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

WIDTH: Final = 100
"""Columns to which prose is wrapped. [1]"""


def plain(value: Any, *, as_argument: bool = False) -> Any:
    """Return a value in JSON types: records as dictionaries, other objects by name, null if not finite.

    As an argument that a user gave, a record is shown by its name too, and an infinite number as text.

    >>> shown = {"path": Path("my_gpu.toml"), "sizes": (1, 2.5), "time_s": float("inf")}
    >>> plain(shown)
    {'path': 'my_gpu.toml', 'sizes': [1, 2.5], 'time_s': None}
    >>> plain(shown, as_argument=True)
    {'path': 'my_gpu.toml', 'sizes': [1, 2.5], 'time_s': 'inf'}
    """
    inner = partial(plain, as_argument=as_argument)
    if isinstance(value, Table):
        return inner(value.to_dicts())
    if is_dataclass(value) and not isinstance(value, type) and not as_argument:
        return {field.name: inner(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): inner(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [inner(entry) for entry in value]
    if hasattr(value, "tolist"):  # a numpy value
        return inner(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value) if as_argument else None
    return value if value is None or isinstance(value, str | int | float) else str(getattr(value, "name", value))


def json_text(content: Any) -> str:
    """Return content as indented JSON."""
    return json.dumps(plain(content), indent=2, ensure_ascii=False)


class Result:
    """An answer with rows. A subclass defines ``rows``, and overrides the methods that show it differently."""

    __slots__ = ()

    _DICT_KEYS: ClassVar[tuple[str, ...]] = ()
    """Attributes that ``to_dict`` returns; empty for all fields."""

    if TYPE_CHECKING:

        @property
        def rows(self) -> Table[Any]:
            """The main table of the answer."""

    def _numbers(self) -> Iterator[tuple[str, float]]:
        """Yield the numbers that a verb answers, with their names: those of the rows. [unit of each field]"""
        for row in self.rows:
            for field in fields(row):
                value = getattr(row, field.name)
                if isinstance(value, float):
                    yield field.name, value

    def to_frame(self) -> pd.DataFrame:
        """Return the rows as a pandas DataFrame; needs the extra ``frames``.

        Returns
        -------
        pandas.DataFrame
            One column per field of a row, in base units. [unit of each field]

        Raises
        ------
        ImportError
            If pandas is not installed; says how to install it.
        """
        return self.rows.to_frame()

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain values: numbers in base units, text, lists and dictionaries.

        Returns
        -------
        dict of str to object
            The content of ``to_json``. [unit of each key]
        """
        names = self._DICT_KEYS or tuple(field.name for field in fields(self))  # type: ignore[arg-type]
        return {name: plain(getattr(self, name)) for name in names}

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the answer as JSON, and write it to a file if a path is given.

        Parameters
        ----------
        path : str, Path or None
            File to write; it is replaced as a whole. [-]

        Returns
        -------
        str
            ``to_dict()`` as text; a number that is not finite is null. [-]

        Raises
        ------
        ArgumentError
            If the path cannot be written.
        """
        text = json_text(self.to_dict())
        if path is not None:
            save_text(path, f"{text}\n")
        return text

    def _shown(self) -> Table[Any]:
        """Return the rows as they are printed."""
        return self.rows

    def _lines(self) -> Sequence[str]:
        """Return the sentences below the rows."""
        return ()

    def __str__(self) -> str:
        return "\n".join([str(self._shown()), *self._lines()])

    def _report(self, heading: str, table: str) -> str:
        """Join a heading, a table as text and the wrapped sentences below it, with empty lines between."""
        below = "\n".join(textwrap.fill(line, WIDTH, subsequent_indent="  ") for line in self._lines())
        return f"{heading}\n\n{table}\n\n{below}"

    def _repr_html_(self) -> str:
        lines = "".join(f"<li>{html.escape(line)}</li>" for line in self._lines())
        return self._shown().to_html() + (f"<ul>{lines}</ul>" if lines else "")


class Drawn(Result):
    """An answer with rows and a picture, which a subclass makes in ``_figure``."""

    __slots__ = ()

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw the answer, and save the picture if a path is given.

        Parameters
        ----------
        path : str, Path or None
            File that ends in .png, .pdf or .svg; None only returns the figure. [-]

        Returns
        -------
        matplotlib.figure.Figure
            The picture; ``docs/results.md`` describes it. [-]

        Raises
        ------
        ArgumentError
            If there is nothing to draw, or the path cannot be written.
        """
        from perfmodel.presentation.figures import saved

        return saved(self._figure(), path)

    def _figure(self) -> Figure:
        """Return the picture."""
        raise NotImplementedError
