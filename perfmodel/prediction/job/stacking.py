"""Records stacked into arrays over configurations, and taken apart again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any

import numpy as np


def stacked(records: Sequence[Any], counts: Sequence[int]) -> Any:
    """Stack several records into one that has an array for each number."""
    first = records[0]
    kind: Any = type(first)
    if names := _names(kind):
        return kind(**{name: stacked([getattr(value, name) for value in records], counts) for name in names})
    if isinstance(first, tuple):
        return tuple(stacked(value, counts) for value in zip(*records, strict=True))
    is_plain = not any(isinstance(value, np.ndarray) and value.ndim for value in records)
    if is_plain and all(value is first or value == first for value in records):
        return first
    return np.concatenate(
        [
            value if isinstance(value, np.ndarray) and value.ndim else np.full(count, value)
            for value, count in zip(records, counts, strict=True)
        ]
    )


def tabled(records: Sequence[Any], width: int) -> Any:
    """Stack records of at most ``width`` configurations into one with a table, one row for each, for each number."""
    first = records[0]
    kind: Any = type(first)
    if names := _names(kind):
        return kind(**{name: tabled([getattr(value, name) for value in records], width) for name in names})
    if isinstance(first, tuple):
        return tuple(tabled(value, width) for value in zip(*records, strict=True))
    lengths = [len(value) if isinstance(value, np.ndarray) and value.ndim else 0 for value in records]
    if not any(lengths) and all(value is first or value == first for value in records):
        return first
    table = np.zeros((len(records), width))
    for row, value, length in zip(table, records, lengths, strict=True):
        row[: length or width] = value
    return table


def taken(record: Any, places: Any) -> Any:
    """Take some configurations of a record."""
    return mapped(record, lambda values: values[places])


def mapped(record: Any, of_array: Callable[[Any], Any]) -> Any:
    """Apply a function to each array of a record; single values stay."""
    if isinstance(record, np.ndarray):
        return of_array(record) if record.ndim else record
    kind: Any = type(record)
    if names := _names(kind):
        return kind(**{name: mapped(getattr(record, name), of_array) for name in names})
    return tuple(mapped(value, of_array) for value in record) if isinstance(record, tuple) else record


@lru_cache(maxsize=64)
def _names(kind: Any) -> tuple[str, ...]:
    """Fields of a dataclass or named tuple; none for anything else."""
    return tuple(value.name for value in fields(kind)) if is_dataclass(kind) else getattr(kind, "_fields", ())
