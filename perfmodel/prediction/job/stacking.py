"""Records stacked into arrays over configurations, and taken apart again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any

import numpy as np


def stacked(records: Sequence[Any], counts: Sequence[int]) -> Any:
    """Stack several records into one that has an array for each number."""

    def in_a_row(values: Sequence[Any]) -> Any:
        return np.concatenate(
            [value if _is_array(value) else np.full(count, value) for value, count in zip(values, counts, strict=True)]
        )

    return _joined(records, in_a_row)


def tabled(records: Sequence[Any], width: int) -> Any:
    """Stack records of at most ``width`` configurations into one with a table, one row for each, for each number."""

    def in_a_table(values: Sequence[Any]) -> Any:
        table = np.zeros((len(values), width))
        for row, value in zip(table, values, strict=True):
            row[: len(value) if _is_array(value) else width] = value
        return table

    return _joined(records, in_a_table)


def _joined(records: Sequence[Any], of_values: Callable[[Sequence[Any]], Any]) -> Any:
    """Join like records number by number; a single value that all of them share stays."""
    first = records[0]
    if isinstance(first, tuple):
        return _tuple_like(first, [_joined(values, of_values) for values in zip(*records, strict=True)])
    kind: Any = type(first)
    if names := _names(kind):
        return kind(**{name: _joined([getattr(record, name) for record in records], of_values) for name in names})
    if not any(map(_is_array, records)) and all(value is first or value == first for value in records):
        return first
    return of_values(records)


def _tuple_like(record: Any, values: list[Any]) -> Any:
    """Return values as a tuple, or as a named tuple of the kind of a record."""
    return record._make(values) if hasattr(record, "_make") else tuple(values)


def _is_array(value: Any) -> bool:
    """Tell an array over configurations from a single value."""
    return isinstance(value, np.ndarray) and value.ndim > 0


def taken(record: Any, places: Any) -> Any:
    """Take some configurations of a record."""
    return mapped(record, lambda values: values[places])


def mapped(record: Any, of_array: Callable[[Any], Any]) -> Any:
    """Apply a function to each array of a record; single values stay."""
    if isinstance(record, np.ndarray):
        return of_array(record) if record.ndim else record
    if isinstance(record, tuple):
        return _tuple_like(record, [mapped(value, of_array) for value in record])
    kind: Any = type(record)
    names = _names(kind)
    return kind(**{name: mapped(getattr(record, name), of_array) for name in names}) if names else record


@lru_cache(maxsize=64)
def _names(kind: Any) -> tuple[str, ...]:
    """Fields of a dataclass; none for anything else."""
    return tuple([value.name for value in fields(kind)]) if is_dataclass(kind) else ()
