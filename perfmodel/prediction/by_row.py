"""Values that kernel rows look up by name, shaped to broadcast against the rows' columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.numeric import Quantity


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


def by_row(of_name: Sequence[Quantity], code_of_row: NDArray[np.intp], *, like: Quantity) -> Any:
    """Return the value of each row, from one value per distinct name.

    Parameters
    ----------
    of_name : sequence of float, ndarray of shape (configurations,), or sympy.Expr
        Value of each distinct name. [any unit]
    code_of_row : ndarray of int, shape (rows,)
        Index of each row's name. [1]
    like : ndarray, shape (rows,) or (rows, configurations)
        A column of the same rows. [any unit]

    Returns
    -------
    ndarray, shape (rows,), (rows, 1) or (rows, configurations)
        Values that broadcast against ``like``. [unit of the values]

    Examples
    --------
    >>> by_row([0.5, 0.8], np.array([0, 1, 0]), like=np.ones((3, 2)))
    array([[0.5],
           [0.8],
           [0.5]])
    """
    over_configurations = any(isinstance(value, np.ndarray) for value in of_name)
    stacked = np.stack(np.broadcast_arrays(*of_name)) if over_configurations else np.array(of_name)
    of_row = stacked[code_of_row]
    return of_row[:, None] if np.ndim(like) == 2 and of_row.ndim == 1 else of_row
