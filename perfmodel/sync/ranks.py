"""Numbers of ranks: how many halvings lead from them to one, and what does not fit a power of two."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from perfmodel.errors import ArgumentError
from perfmodel.symbolic import Quantity, is_symbolic


def check_rank_count(worker_count: Quantity) -> None:
    """Refuse what is no number of workers; symbols pass.

    Parameters
    ----------
    worker_count : int, ndarray or sympy.Expr
        Workers, p. [1]

    Raises
    ------
    ArgumentError
        If it is no whole number, or below 1.
    """
    if is_symbolic(worker_count):
        return
    counts = np.asarray(worker_count)
    if counts.dtype.kind not in "iuf" or not bool(np.all((counts >= 1) & (counts % 1 == 0))):
        raise ArgumentError("worker_count", worker_count, "a whole number of at least 1")


def levels(worker_count: Quantity) -> Quantity:
    r"""Return the rounds of doubling that reach all workers, :math:`\lceil \log_2 p \rceil`.

    Parameters
    ----------
    worker_count : int, ndarray or sympy.Expr
        Workers, p. [1]

    Returns
    -------
    int, ndarray or sympy.Expr
        Rounds, L. [1]

    Examples
    --------
    >>> [levels(count) for count in (1, 2, 5, 8)]
    [0, 1, 3, 3]
    """
    if is_symbolic(worker_count):
        return _of_symbol("ceiling", worker_count)
    if isinstance(worker_count, np.ndarray):
        return np.array([levels(int(count)) for count in worker_count.ravel()]).reshape(worker_count.shape)
    return (int(worker_count) - 1).bit_length()


def paired(worker_count: Quantity) -> tuple[Quantity, Quantity]:
    r"""Return how often the workers pair up, and whether some must fold theirs into others before.

    Parameters
    ----------
    worker_count : int, ndarray or sympy.Expr
        Workers, p. [1]

    Returns
    -------
    tuple of int, ndarray or sympy.Expr
        Doublings, :math:`\lfloor \log_2 p \rfloor`, and 1 where some must fold, else 0. [1, 1]

    Examples
    --------
    >>> paired(8), paired(40)
    ((3, 0), (5, 1))
    """
    if is_symbolic(worker_count):
        lower = _of_symbol("floor", worker_count)
        return lower, levels(worker_count) - lower
    upper = levels(worker_count)
    is_power = np.equal(2**upper, worker_count)
    folds = 1 - is_power.astype(int) if isinstance(worker_count, np.ndarray) else int(not is_power)
    return upper - folds, folds


def _of_symbol(rounding: str, worker_count: Quantity) -> Any:
    import sympy

    logarithm = sympy.log(worker_count, 2)
    return getattr(sympy, rounding)(logarithm)


def group_count(worker_count: Quantity, group_size: int | None) -> Quantity:
    """Return how many groups of a size the workers make.

    Parameters
    ----------
    worker_count : int, ndarray or sympy.Expr
        Workers, p. [1]
    group_size : int or None
        Workers of a group, g, e.g. the devices of a machine. [1]

    Returns
    -------
    int, ndarray or sympy.Expr
        Groups, p / g. [1]

    Raises
    ------
    ArgumentError
        If no size is given, or it does not divide the workers.

    Examples
    --------
    >>> group_count(32, 8)
    4
    """
    if group_size is None or group_size < 1 or group_size % 1:
        raise ArgumentError("group_size", group_size, "a whole number of at least 1 that divides worker_count")
    if is_symbolic(worker_count):
        return worker_count / group_size
    if np.any(np.asarray(worker_count) % group_size):
        nearest = [size for size in range(1, int(np.max(worker_count)) + 1) if not np.any(worker_count % size)]
        closest = min(nearest, key=lambda size: abs(math.log(size / group_size)))
        allowed = f"a divisor of worker_count={worker_count}; nearest: {closest}"
        raise ArgumentError("group_size", group_size, allowed)
    return worker_count // group_size
