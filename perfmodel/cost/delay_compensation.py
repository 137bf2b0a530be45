"""What delay compensation adds to an update at the server: arithmetic, memory traffic, operations, copies; no message.

w <- w - eta (g + lambda g g (w - b_m)), element by element, where b_m is the copy that was sent to worker m.
"""

from __future__ import annotations

from typing import Final

from perfmodel.symbolic import Quantity

FLOP_PER_PARAMETER: Final = 5
"""Difference, three products and a sum, besides those of a plain update [1]_. [FLOP]

.. [1] S. Zheng et al., Asynchronous stochastic gradient descent with delay compensation, ICML 2017, algorithm 2.
"""

PASSES: Final = 3
"""Reads of the copy and the parameters, write of the copy: times the parameters' bytes [1]."""

OPERATIONS_PER_VARIABLE: Final = 6
"""The five above, each an operation of its own, and the one that renews the copy [1]."""


def extra_flop_count(*, parameter_count: Quantity) -> Quantity:
    """Return the FLOP that compensation adds to one update.

    Parameters
    ----------
    parameter_count : float, ndarray or sympy.Expr
        Parameters of the network. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        FLOP. [FLOP]

    Notes
    -----
    Valid for: dense gradients.

    Examples
    --------
    >>> extra_flop_count(parameter_count=55_050)
    275250
    """
    return parameter_count * FLOP_PER_PARAMETER


def extra_service_time(
    *,
    parameter_bytes: Quantity,
    memory_bytes_per_s: Quantity,
    variable_count: Quantity = 0,
    dispatch_s: Quantity = 0.0,
) -> Quantity:
    r"""Time that compensation adds to one update at the server.

    .. math:: \Delta S = \frac{3 n}{B} + 6 v d

    Parameters
    ----------
    parameter_bytes : float, ndarray or sympy.Expr
        Bytes of all parameters, n. [B]
    memory_bytes_per_s : float, ndarray or sympy.Expr
        Bandwidth of the server's memory, B. [B/s]
    variable_count : float, ndarray or sympy.Expr
        Tensors that are updated one by one by a framework that does not fuse, v; 0 for one fused kernel. [1]
    dispatch_s : float, ndarray or sympy.Expr
        Time to issue an operation, over how many are issued at once, d. [s]

    Returns
    -------
    float, ndarray or sympy.Expr
        Seconds per update. [s]

    Notes
    -----
    Valid for: parameters larger than the caches, since five FLOP for twelve bytes are memory-bound anywhere. Ignores:
    what intermediate results of unfused operations write and read again in a cache.

    Examples
    --------
    >>> round(1e3 * extra_service_time(parameter_bytes=220_200, memory_bytes_per_s=22e9), 4)  # ms
    0.03
    """
    return PASSES * parameter_bytes / memory_bytes_per_s + OPERATIONS_PER_VARIABLE * variable_count * dispatch_s


def backup_bytes(*, parameter_bytes: Quantity, worker_count: Quantity) -> Quantity:
    """Return the server's memory for one copy of the parameters per worker.

    Parameters
    ----------
    parameter_bytes : float, ndarray or sympy.Expr
        Bytes of all parameters. [B]
    worker_count : float, ndarray or sympy.Expr
        Workers. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Bytes besides the parameters themselves. [B]

    Notes
    -----
    Valid for: one server or all shards together.

    Examples
    --------
    >>> [backup_bytes(parameter_bytes=n, worker_count=w) for n, w in ((220_200, 11), (102_228_128, 16))]
    [2422200, 1635650048]
    """
    return parameter_bytes * worker_count
