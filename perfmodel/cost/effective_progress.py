"""How much of a step is progress: batch size and staleness against the number of steps. Off unless asked for.

Time per step says nothing of how many steps a target takes. What does depends on the task, so every number here is the
caller's own; none has a default but that of no effect.
"""

from __future__ import annotations

from perfmodel.symbolic import Quantity


def steps_to_target(
    *,
    least_steps: Quantity,
    critical_batch: Quantity,
    global_batch_size: Quantity,
    staleness: Quantity = 0.0,
    staleness_penalty: Quantity = 0.0,
) -> Quantity:
    r"""Return the updates that reach a target, by batch size and staleness.

    .. math:: S = S_{min} \left(1 + \frac{B_c}{b}\right) (1 + c \tau)

    Parameters
    ----------
    least_steps : float, ndarray or sympy.Expr
        Steps with any batch, however large, S_min. [1]
    critical_batch : float, ndarray or sympy.Expr
        Batch size at which twice the least steps and twice the least examples are needed, B_c. [samples]
    global_batch_size : float, ndarray or sympy.Expr
        Samples of one update, b. [samples]
    staleness : float, ndarray or sympy.Expr
        Mean staleness, tau. [1]
    staleness_penalty : float, ndarray or sympy.Expr
        Share of steps lost per update of staleness, c: the caller's own, none unless given. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Updates. [1]

    Notes
    -----
    Valid for: a learning rate tuned for each batch size. The factor of staleness is linear because nothing more is
    known; published runs range from no loss to divergence.

    Examples
    --------
    >>> [steps_to_target(least_steps=1000, critical_batch=1000, global_batch_size=b) for b in (1000, 4000)]
    [2000.0, 1250.0]

    References
    ----------
    .. [1] S. McCandlish et al., An empirical model of large-batch training, arXiv:1812.06162, 2018.
    .. [2] C. J. Shallue et al., Measuring the effects of data parallelism on neural network training, JMLR 20, 2019.
    """
    return least_steps * (1 + critical_batch / global_batch_size) * (1 + staleness_penalty * staleness)
