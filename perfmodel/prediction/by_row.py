"""Values that kernel rows look up by name, shaped to broadcast against the rows' columns."""

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
    """Return the distinct names of rows and the index of each row's name among them.

    Parameters
    ----------
    names : tuple of str
        Name of each row. [-]

    Returns
    -------
    tuple of str
        Each name once. [-]
    ndarray of int, shape (rows,)
        Index of each row's name. [1]

    Examples
    --------
    >>> distinct_names(("relu", "add", "relu"))
    (('relu', 'add'), array([0, 1, 0]))
    """
    once = tuple(dict.fromkeys(names))
    index = {name: code for code, name in enumerate(once)}
    return once, np.array([index[name] for name in names], dtype=np.intp)


class NamedRows(NamedTuple):
    """Rows that have one of some names.

    Parameters
    ----------
    rows : slice or ndarray of int, shape (chosen,)
        Which they are; a slice where they follow one another. [1]
    name_of_row : tuple of str
        Name of each of them. [-]
    names : tuple of str
        The names that they have, each once. [-]
    code_of_row : ndarray of int, shape (chosen,)
        Index of the name of each of them. [1]
    """

    rows: slice | NDArray[np.intp]
    name_of_row: tuple[str, ...]
    names: tuple[str, ...]
    code_of_row: NDArray[np.intp]


@lru_cache(maxsize=1024)
def rows_named(names: tuple[str, ...], known: tuple[str, ...]) -> NamedRows | None:
    """Return the rows whose name is known.

    Parameters
    ----------
    names : tuple of str
        Name of each row. [-]
    known : tuple of str
        Names that are looked for. [-]

    Returns
    -------
    NamedRows or None
        None where no row has any of them. [-]

    Examples
    --------
    >>> rows_named(("gemm", "relu", "gemm_transposed"), ("gemm", "gemm_transposed")).rows
    array([0, 2])
    >>> rows_named(("relu", "gemm", "gemm"), ("gemm",)).rows
    slice(1, 3, None)
    """
    wanted = frozenset(known)
    rows = np.array([row for row, name in enumerate(names) if name in wanted], dtype=np.intp)
    if not rows.size:
        return None
    first, last = int(rows[0]), int(rows[-1])
    chosen = slice(first, last + 1) if last - first + 1 == rows.size else rows
    name_of_row = tuple(names[row] for row in rows)
    return NamedRows(chosen, name_of_row, *distinct_names(name_of_row))


def by_row(of_name: Sequence[Quantity], code_of_row: NDArray[np.intp], *, axes: int) -> Any:
    """Return the value of each row, from one value per distinct name.

    Parameters
    ----------
    of_name : sequence of float, ndarray of shape (configurations,), or sympy.Expr
        Value of each distinct name. [any unit]
    code_of_row : ndarray of int, shape (rows,)
        Index of each row's name. [1]
    axes : int
        Axes of the columns of the same rows: 1 of shape (rows,), 2 of shape (rows, configurations). [1]

    Returns
    -------
    ndarray, shape (rows,), (rows, 1) or (rows, configurations)
        Values that broadcast against such columns. [unit of the values]

    Examples
    --------
    >>> by_row([0.5, 0.8], np.array([0, 1, 0]), axes=2)
    array([[0.5],
           [0.8],
           [0.5]])
    """
    over_configurations = np.ndarray in map(type, of_name)
    stacked = np.stack(np.broadcast_arrays(*of_name)) if over_configurations else np.array(of_name)
    of_row = stacked[code_of_row]
    return of_row[:, None] if of_row.ndim == 1 and axes == 2 else of_row
