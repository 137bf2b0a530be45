"""Memory of weights, gradients and optimizer state, and how data-parallel workers may share it."""

from __future__ import annotations

from perfmodel.symbolic import Quantity


def model_state_bytes(
    *,
    weights_bytes: Quantity,
    gradients_bytes: Quantity,
    optimizer_bytes: Quantity,
    shard_stage: int,
    worker_count: Quantity,
) -> tuple[Quantity, Quantity, Quantity]:
    r"""Weights, gradients and optimizer state on one of several data-parallel workers.

    .. math:: \left(\frac{w}{N_3}, \frac{g}{N_2}, \frac{o}{N_1}\right), \quad N_k = N \;(s \ge k), \; 1 \;(s < k)

    Parameters
    ----------
    weights_bytes, gradients_bytes, optimizer_bytes : float, ndarray or sympy.Expr
        Sizes for the whole network, w, g and o. [B]
    shard_stage : int
        What the workers share, s: 0 nothing, 1 optimizer state, 2 gradients too, 3 weights too. [1]
    worker_count : float, ndarray or sympy.Expr
        Workers, N. [1]

    Returns
    -------
    tuple of float, ndarray or sympy.Expr
        Weights, gradients and optimizer state. [B]

    Notes
    -----
    Valid for: parameters that the workers divide evenly. Ignores: the layer in use, which stage 3 gathers; buffers of
    the exchange.

    Examples
    --------
    7.5 billion parameters in half precision with Adam, 64 workers [1]_: 120, 31.4, 16.6 and 1.9 GB.

    >>> for stage in range(4):
    ...     parts = model_state_bytes(weights_bytes=15e9, gradients_bytes=15e9, optimizer_bytes=90e9,
    ...         shard_stage=stage, worker_count=64)
    ...     sum(parts) / 1e9
    120.0
    31.40625
    16.640625
    1.875

    References
    ----------
    .. [1] Rajbhandari, Rasley, Ruwase, He, ZeRO, SC 2020, arXiv:1910.02054, figure 1.
    """
    sizes = (weights_bytes, gradients_bytes, optimizer_bytes)
    needed = (3, 2, 1)
    weights, gradients, optimizer = (
        size / worker_count if shard_stage >= stage else size for size, stage in zip(sizes, needed, strict=True)
    )
    return weights, gradients, optimizer


def leaves_free(needed_bytes: Quantity, *, capacity_bytes: Quantity, reserve: float = 0.0) -> Quantity:
    r"""Tell whether what a device needs leaves a share of its memory free.

    .. math:: M \le (1 - r) C

    Parameters
    ----------
    needed_bytes : float or ndarray
        What the device keeps at the peak, with its driver's context, M. [B]
    capacity_bytes : float or ndarray
        Its memory, C. [B]
    reserve : float
        Share to leave free, r. [1]

    Returns
    -------
    bool or ndarray
        Whether it does. [-]

    Notes
    -----
    Valid for: what a prediction counts: tensors, the gaps of an allocator where a framework states them, and the
    driver's context. Ignores: buffers of libraries of collectives, other programs: they are what a reserve is for.

    Examples
    --------
    >>> leaves_free(79e9, capacity_bytes=85.9e9), leaves_free(79e9, capacity_bytes=85.9e9, reserve=0.1)
    (True, False)
    """
    return needed_bytes <= (1 - reserve) * capacity_bytes
