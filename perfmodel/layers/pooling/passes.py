"""The memory passes of poolings: of a maximum, which remembers where it was, and of an average."""

from __future__ import annotations

from typing import Any

from perfmodel.records import MemoryPass, Role

INDEX_BYTES = 4
"""Size of the index of a maximum [B]."""


def maximum_forward(inputs: Any, *, outputs: Any, taps: Any) -> MemoryPass:
    """Return the pass that reads maps and writes the maxima of windows and their indices.

    Parameters
    ----------
    inputs, outputs : int, ndarray or sympy.Expr
        Elements of input and output. [1]
    taps : int, ndarray or sympy.Expr
        Taps of all windows that lie on the maps; all but the first of a window are compared. [1]

    Returns
    -------
    MemoryPass
        The operation. [-]
    """
    return MemoryPass(
        name="max_pool",
        read_elements=inputs,
        written_elements=outputs,
        tensor_elements=inputs,
        flop_count=taps - outputs,
        written_index_bytes=INDEX_BYTES * outputs,
    )


def maximum_backward(inputs: Any, *, outputs: Any) -> MemoryPass:
    """Return the pass that adds each gradient at its index into a cleared input gradient.

    Parameters
    ----------
    inputs, outputs : int, ndarray or sympy.Expr
        Elements of input and output. [1]

    Returns
    -------
    MemoryPass
        The operation. [-]
    """
    return MemoryPass(
        name="max_pool",
        read_elements=outputs,
        written_elements=inputs,
        tensor_elements=inputs,
        flop_count=outputs,
        read_index_bytes=INDEX_BYTES * outputs,
        role=Role.INPUT_GRADIENT,
    )


def average_forward(inputs: Any, *, outputs: Any, taps: Any) -> MemoryPass:
    """Return the pass that reads maps and writes the averages of windows.

    Parameters
    ----------
    inputs, outputs : int, ndarray or sympy.Expr
        Elements of input and output. [1]
    taps : int, ndarray or sympy.Expr
        Taps of all windows that lie on the maps: an add each but the first of a window, which is divided. [1]

    Returns
    -------
    MemoryPass
        The operation. [-]
    """
    return MemoryPass(
        name="avg_pool", read_elements=inputs, written_elements=outputs, tensor_elements=inputs, flop_count=taps
    )


def average_backward(inputs: Any, *, outputs: Any, taps: Any) -> MemoryPass:
    """Return the pass that divides each gradient and adds it to all inputs of its window.

    Parameters
    ----------
    inputs, outputs : int, ndarray or sympy.Expr
        Elements of input and output. [1]
    taps : int, ndarray or sympy.Expr
        Taps of all windows that lie on the maps. [1]

    Returns
    -------
    MemoryPass
        The operation. [-]
    """
    return MemoryPass(
        name="avg_pool",
        read_elements=outputs,
        written_elements=inputs,
        tensor_elements=inputs,
        flop_count=taps + outputs,
        role=Role.INPUT_GRADIENT,
    )
