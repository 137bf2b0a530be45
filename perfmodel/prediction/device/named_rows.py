"""Rows of kernel tables by name: values given once for a name, spread over its rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.symbolic import Quantity


@lru_cache(maxsize=256)
def distinct_names(names: tuple[str, ...]) -> tuple[tuple[str, ...], NDArray[np.intp]]:
    """Distinct names of rows, and the index of each row's name among them.

    >>> distinct_names(("relu", "add", "relu"))
    (('relu', 'add'), array([0, 1, 0]))
    """
    once = tuple(dict.fromkeys(names))
    index = {name: code for code, name in enumerate(once)}
    return once, np.array([index[name] for name in names], dtype=np.intp)


class NamedRows(NamedTuple):
    """Rows with one of the listed names."""

    rows: slice | NDArray[np.intp]
    name_of_row: tuple[str, ...]
    names: tuple[str, ...]
    code_of_row: NDArray[np.intp]


@lru_cache(maxsize=1024)
def rows_named(names: tuple[str, ...], known: tuple[str, ...]) -> NamedRows | None:
    """Find the rows whose name is listed.

    >>> rows_named(("gemm", "relu", "gemm_transposed"), ("gemm", "gemm_transposed")).rows
    array([0, 2])
    >>> rows_named(("relu", "gemm", "gemm"), ("gemm",)).rows
    slice(1, 3, None)
    """
    wanted = frozenset(known)
    rows = [row for row, name in enumerate(names) if name in wanted]
    if not rows:
        return None
    name_of_row = tuple(names[row] for row in rows)
    return NamedRows(run_of(rows), name_of_row, *distinct_names(name_of_row))


def run_of(rows: Sequence[int]) -> slice | NDArray[np.intp]:
    """Turn rising indices into a slice if they are consecutive."""
    first, last = rows[0], rows[-1]
    return slice(first, last + 1) if last - first + 1 == len(rows) else np.array(rows, dtype=np.intp)


def by_row(of_name: Sequence[Quantity], code_of_row: Any, *, axes: int) -> Any:
    """Spread one value per distinct name over the rows.

    >>> by_row([0.5, 0.8], np.array([0, 1, 0]), axes=2)
    array([[0.5],
           [0.8],
           [0.5]])
    """
    over_configurations = np.ndarray in map(type, of_name)
    stacked = np.stack(np.broadcast_arrays(*of_name)) if over_configurations else np.array(of_name)
    of_row = stacked[code_of_row]
    return of_row[:, None] if of_row.ndim == 1 and axes == 2 else of_row
