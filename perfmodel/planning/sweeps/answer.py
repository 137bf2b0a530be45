"""The table of a sweep: result columns of all configurations, rankings and exports."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.atomic_write import replacement_of
from perfmodel.derived import derived_property
from perfmodel.errors import ArgumentError, UnknownNameError, is_one_of, package_for
from perfmodel.layers.checks import check_path
from perfmodel.numeric import is_real
from perfmodel.planning.sweeps.results import FITS, LARGER_IS_BETTER, REASON, check_ranked, front, short_reason
from perfmodel.prediction.arguments.checks import whole_number
from perfmodel.presentation.quantities import counted
from perfmodel.presentation.results import Result
from perfmodel.presentation.tables import ROWS_SHOWN, Table, pandas_for_frames, row_class

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from perfmodel.planning.sweeps.space import Space
    from perfmodel.prediction.prediction import Prediction


ROWS_AT_ONCE: Final = 100_000
"""Rows that are converted to text at once while a table is written. [1]"""

REASONS_SHOWN: Final = 6
"""Most reasons listed in a title. [1]"""


@dataclass(frozen=True, eq=False, repr=False)
class Sweep(Result):
    """Configurations and their predictions, as columns. Made by :func:`perfmodel.sweep`.

    Parameters
    ----------
    space : Space
        The configurations, stored as axes. [-]
    results : mapping of str to ndarray
        Results by column; ``reason`` holds codes. [as named]
    reasons : tuple of str
        Texts by code; the first is empty. [-]
    places : ndarray of int or None
        Row of each configuration in the space; None for all rows in order. [1]
    """

    space: Space
    results: Mapping[str, NDArray[Any]]
    reasons: tuple[str, ...]
    places: NDArray[np.int64] | None = field(default=None)

    _DICT_KEYS = ("title", "columns", "refused", "rows")

    def __len__(self) -> int:
        return self.space.size if self.places is None else len(self.places)

    @property
    def rows(self) -> Table[Any]:
        """All configurations as a table; for very many, ``chunks`` and ``to_frame`` are faster."""
        return self.to_table(len(self))

    def _numbers(self) -> Iterator[tuple[str, float]]:
        """Yield nothing: numbers were checked when computed, and a configuration that overflowed has a reason."""
        return iter(())

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns: arguments in the order given, then results."""
        return (*(axis.name for axis in self.space.axes), *self.results)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a column: numbers in base units, Booleans, or objects such as names."""
        if name in self.results and name != REASON:
            return self.results[name]
        codes, labels = self.codes(name)
        return labels[codes]

    def codes(self, name: str) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return an argument's column as integer codes and the value of each code, which takes less memory.

        Parameters
        ----------
        name : str
            An argument of the sweep, or ``reason``. [-]

        Returns
        -------
        tuple of ndarray
            Codes, one for each configuration, and values by code. [-]

        Raises
        ------
        UnknownNameError
            If there is no such column; names the nearest.
        """
        if isinstance(name, str) and name == REASON:
            return self.results[REASON], np.array(self.reasons, dtype=object)
        return self._codes(name, 0, len(self)), self.space.by_name[name].labels

    def _codes(self, name: str, start: int, stop: int) -> NDArray[np.int64]:
        if not is_one_of(name, self.space.by_name):
            raise UnknownNameError("column", name, self.columns)
        rows = np.arange(start, stop) if self.places is None else self.places[start:stop]
        return self.space.codes(name, rows)

    def taken(self, places: NDArray[Any]) -> Sweep:
        """Return some of the configurations, in a given order.

        Parameters
        ----------
        places : ndarray of int or bool
            Indices or a mask. [1]

        Returns
        -------
        Sweep
            The selected configurations. [-]
        """
        places = np.flatnonzero(places) if places.dtype == bool else places
        kept = places if self.places is None else self.places[places]
        return replace(self, places=kept, results={name: column[places] for name, column in self.results.items()})

    @property
    def feasible(self) -> Sweep:
        """The possible configurations that fit in memory."""
        return self.taken(self.results[FITS])

    @property
    def refused(self) -> dict[str, int]:
        """Number of impossible or too large configurations, by the argument at fault or the reason. [1]"""
        codes, counts = np.unique(self.results[REASON][~self.results[FITS]], return_counts=True)
        totals: Counter[str] = Counter()
        for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
            totals[short_reason(self.reasons[code])] += count
        return dict(totals.most_common())

    @derived_property
    def beyond(self) -> dict[str, int]:
        """Number of configurations predicted although their framework cannot run them, by the missing feature. [1]"""
        numbers = [column for name, column in self.results.items() if name not in (FITS, REASON)]
        return self._beyond_in(np.flatnonzero(np.isfinite(numbers[0]) if numbers else self.results[FITS]))

    def _beyond_in(self, places: NDArray[np.intp]) -> dict[str, int]:
        from perfmodel.planning.sweeps.beyond import rows_beyond

        return rows_beyond(self.space, places if self.places is None else self.places[places])

    def row(self, index: int) -> dict[str, Any]:
        """Return one configuration with its results.

        Parameters
        ----------
        index : int
            Which, from 0; below 0 from the end. [1]

        Returns
        -------
        dict of str to object
            Value by column. [as named]

        Raises
        ------
        ArgumentError
            If there is none.
        """
        index = self._place(index)
        row = {name: axis.labels[self._codes(name, index, index + 1)[0]] for name, axis in self.space.by_name.items()}
        row |= {name: column[index] for name, column in self.results.items()}
        row[REASON] = self.reasons[row[REASON]]
        return {name: value.item() if isinstance(value, np.generic) else value for name, value in row.items()}

    def _row_with_limits(self, index: int) -> dict[str, Any]:
        """Return ``row`` with the exceeded limits of its framework in front of its reason."""
        row = self.row(index)
        beyond = self._beyond_in(np.array([index])) if row[FITS] else {}
        row[REASON] = "; ".join([*(f"predicted although {what}" for what in beyond), *filter(None, [row[REASON]])])
        return row

    def _place(self, index: int) -> int:
        is_whole = is_real(index) and not isinstance(index, float | np.floating)
        if not is_whole or not -len(self) <= index < len(self):
            raise ArgumentError("index", index, f"a whole number from 0 to {len(self) - 1}, or below 0 from the end")
        return int(index) % len(self)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield every configuration with its results, as ``row`` does."""
        return map(self.row, range(len(self)))

    def prediction(self, index: int) -> Prediction:
        """Return the full prediction of a configuration, with its parts, memory and reasons.

        Parameters
        ----------
        index : int
            Which, from 0; below 0 from the end. [1]

        Returns
        -------
        Prediction
            As ``predict`` makes it. [-]

        Raises
        ------
        ArgumentError
            If there is none, or the configuration is impossible.
        """
        index = self._place(index)
        return self.space.predicted(index if self.places is None else int(self.places[index]))

    def _ranked(self, name: str) -> NDArray[np.float64]:
        """Return a column, negated if needed so that less is better; infinite if a configuration has no value."""
        check_ranked(name, self.results)
        signed = -self.results[name] if name in LARGER_IS_BETTER else self.results[name]
        return np.where(self.results[FITS] & np.isfinite(signed), signed, np.inf)

    def best(self, name: str = "step_s", *, count: int | None = None) -> Any:
        """Return the best configuration that is possible and fits, or the best few.

        Parameters
        ----------
        name : str
            Column to rank by: best is the largest ``samples_per_s``, the smallest of any other. [-]
        count : int or None
            Number of configurations, the best first; None for the best as a mapping. [1]

        Returns
        -------
        dict or Sweep
            The best by column, or a sweep of ``count`` configurations. One that its framework cannot run is ranked
            too; its ``reason`` says so, and ``beyond`` counts. [-]

        Raises
        ------
        UnknownNameError
            If there is no such column; names the nearest.
        ArgumentError
            If no configuration has a value.
        """
        ranked = self._ranked(name)
        most = min(1 if count is None else whole_number("count", count), len(self))
        among = np.flatnonzero(ranked <= np.partition(ranked, most - 1)[most - 1]) if most else np.empty(0, dtype=int)
        order = among[np.argsort(ranked[among], kind="stable")][:most]
        order = order[np.isfinite(ranked[order])]
        if not len(order):
            raise ArgumentError("name", name, f"a column with a value for a configuration that fits{self._excuse()}")
        return self._row_with_limits(int(order[0])) if count is None else self.taken(order)

    def _excuse(self) -> str:
        codes, counts = np.unique(self.results[REASON], return_counts=True)
        reason = self.reasons[codes[np.argmax(counts)]] if len(codes) else ""
        return f"; of most: {reason}" if reason else ""

    def pareto(self, *names: str) -> Sweep:
        """Return the configurations that no other beats in every given column.

        Parameters
        ----------
        *names : str
            Columns; less is better, except for ``samples_per_s``. [-]

        Returns
        -------
        Sweep
            The front, by rising first column; only the first of several equal ones. Configurations that do not fit
            or have no value are excluded. [-]

        Raises
        ------
        UnknownNameError
            If there is no such column; names the nearest.
        ArgumentError
            If no column is named, or configurations fit but none has a value in all of the columns.
        """
        if not names:
            raise ArgumentError("names", names, "at least one column, e.g. 'step_s', 'usd_per_epoch'")
        ranked = np.stack([self._ranked(name) for name in names])
        among = np.flatnonzero(np.isfinite(ranked).all(axis=0))
        if not len(among) and self.results[FITS].any():
            allowed = f"columns with values for a configuration that fits{self.feasible._excuse()}"
            raise ArgumentError("names", ", ".join(names), allowed)
        return self.taken(among[front(ranked[:, among])])

    def to_frame(self) -> pd.DataFrame:
        """Return all columns as a pandas DataFrame; needs the extra ``frames``.

        Returns
        -------
        pandas.DataFrame
            Arguments and reasons are categorical. [as named]

        Raises
        ------
        ImportError
            If pandas is not installed; says how to install it.
        """
        pandas = pandas_for_frames()
        columns: dict[str, Any] = {}
        for name in self.columns:
            is_coded = name == REASON or name not in self.results
            columns[name] = _categories(pandas, *self.codes(name)) if is_coded else self.results[name]
        frame: pd.DataFrame = pandas.DataFrame(columns, columns=list(columns))
        return frame

    def chunks(self, size: int = ROWS_AT_ONCE) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield all columns, some rows at a time.

        Parameters
        ----------
        size : int
            Rows. [1]

        Yields
        ------
        dict of str to ndarray
            Values by column. [as named]
        """
        for start in range(0, len(self), size):
            stop = min(start + size, len(self))
            arguments = {name: axis.labels[self._codes(name, start, stop)] for name, axis in self.space.by_name.items()}
            results = {name: column[start:stop] for name, column in self.results.items()}
            results[REASON] = np.array(self.reasons, dtype=object)[results[REASON]]
            yield arguments | results

    def to_csv(self, path: str | Path) -> None:
        """Write all rows as comma-separated values, in chunks; the file appears complete or not at all.

        Parameters
        ----------
        path : str or Path
            File to write. [-]

        Raises
        ------
        ArgumentError
            If it cannot be written.
        """
        check_path("path", path)
        with replacement_of(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(self.columns)
            for chunk in self.chunks():
                writer.writerows(zip(*(column.tolist() for column in chunk.values()), strict=True))

    def to_parquet(self, path: str | Path) -> None:
        """Write all rows as a Parquet file, in chunks; needs the extra ``frames``.

        Parameters
        ----------
        path : str or Path
            File to write; it appears complete or not at all. [-]

        Raises
        ------
        ImportError
            If pyarrow is not installed; says how to install it.
        ArgumentError
            If it cannot be written.
        """
        check_path("path", path)
        pa = package_for("pyarrow", "to_parquet()", "frames")
        import pyarrow.parquet as pq

        # the axes decide a column's type, because a chunk may lack some values
        types = {name: pa.array(_of_one_kind(axis.labels)).type for name, axis in self.space.by_name.items()}
        types |= {name: pa.from_numpy_dtype(column.dtype) for name, column in self.results.items()}
        schema = pa.schema(list((types | {REASON: pa.string()}).items()))
        texts = {name for name, kind in types.items() if pa.types.is_string(kind)}
        with replacement_of(path) as temporary, pq.ParquetWriter(temporary, schema) as writer:
            for chunk in self.chunks():
                columns = {name: _as_text(column) if name in texts else column for name, column in chunk.items()}
                writer.write_table(pa.table(columns, schema=schema))

    def plot(self, x: str, y: str = "step_s", *, by: str | None = None, path: str | Path | None = None) -> Figure:
        """Draw a column over an argument, with the best configuration at each point; or over a column, with the front.

        Parameters
        ----------
        x : str
            An argument, or a column of results. [-]
        y : str
            A column of results. [-]
        by : str or None
            An argument; each of its values gets a line or a colour. [-]
        path : str, Path or None
            File to save the picture to; None only returns the figure. [-]

        Raises
        ------
        UnknownNameError
            If there is no such column; names the nearest.
        ArgumentError
            If no configuration fits, or the picture cannot be written.
        """
        from perfmodel.planning.sweeps.sweep_figure import picture
        from perfmodel.presentation.figures import saved

        figure = picture(self, x=x, y=y, by=by)
        return saved(figure, path)

    def to_table(self, count: int = ROWS_SHOWN) -> Table[Any]:
        """Return the first rows as a table that prints aligned.

        Parameters
        ----------
        count : int
            Most rows. [1]

        Returns
        -------
        Table
            Rows. [-]
        """
        row_type = row_class("SweepRow", self.columns)
        first = range(len(self))[: whole_number("count", count, minimum=0)]
        rows = [row_type(**self._row_with_limits(index)) for index in first]
        return Table(rows, title=self.title, row_type=row_type)

    @property
    def title(self) -> str:
        """Number of configurations, how many of them fit, and why the others do not."""
        fitting = int(np.count_nonzero(self.results[FITS]))
        name = getattr(self.space.graph, "name", None) or getattr(self.space.graph, "network", "")
        title = f"{name}: {counted(len(self), 'configuration')}, {fitting:,} of which fit"
        refused = [f"{count:,} ({reason})" for reason, count in self.refused.items()]
        more = f", and {len(refused) - REASONS_SHOWN} more reasons" if len(refused) > REASONS_SHOWN else ""
        title = f"{title}; refused: {', '.join(refused[:REASONS_SHOWN])}{more}" if refused else title
        return "; ".join([title, *(f"{count:,} predicted although {what}" for what, count in self.beyond.items())])

    def __repr__(self) -> str:
        return f"<Sweep {self.title}>"

    def __str__(self) -> str:
        left = len(self) - ROWS_SHOWN
        hint = f"\n... and {counted(left, 'more row')}: .best(), .pareto(), .to_frame() and .to_csv() reach them"
        return f"{self.to_table()}{hint if left > 0 else ''}"

    def _shown(self) -> Table[Any]:
        return self.to_table()


def _categories(pd: Any, codes: NDArray[np.int64], labels: NDArray[Any]) -> Any:
    """Return an argument's column for pandas: numbers as they are, anything else as categories."""
    if labels.dtype != object:
        return labels[codes]
    place = {name: index for index, name in enumerate(dict.fromkeys(text for text in labels if text is not None))}
    place_of_code = np.array([place.get(text, -1) for text in labels])
    return pd.Categorical.from_codes(place_of_code[codes], categories=list(place))


def _of_one_kind(labels: NDArray[Any]) -> list[Any]:
    """Return the values of an argument; as text if their types differ."""
    kinds = {type(value) for value in labels.tolist() if value is not None}
    return labels.tolist() if len(kinds) <= 1 or kinds == {int, float} else _as_text(labels)


def _as_text(column: NDArray[Any]) -> list[Any]:
    return [None if value is None else str(value) for value in column.tolist()]
