"""Independent operations beside each other: what a scheduler with several threads saves of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfmodel.numeric import maximum
from perfmodel.records import Phase, Role
from perfmodel.symbolic import named

if TYPE_CHECKING:
    from perfmodel.framework.kernel_table import KernelTable

Quantity = Any


def concurrent_time(table: KernelTable, group_s: Quantity, *, scheduler_threads: Quantity) -> Quantity:
    r"""Time of a step whose weight gradients and updates run beside the path through the layers.

    .. math:: T = \max\left( P, \; \max_l (p_l + w_l + u_l), \; \frac{1}{n} \sum_g t_g \right)

    P is the path forward through the layers and back by the gradients of their inputs, p_l the time at which it
    reaches the weight gradient of layer l on its way back, w_l and u_l its weight gradient and its update.

    Parameters
    ----------
    table : KernelTable
        The lowered graph, its operations in the order of the path. [-]
    group_s : ndarray, shape (groups,) or (groups, configurations)
        Time of each group of the table, by itself on one thread. [s]
    scheduler_threads : float
        Threads that take operations, n. [1]

    Returns
    -------
    float or ndarray
        Time of the kernels of one step. [s]

    Notes
    -----
    Valid for: operations that use one thread each. A layer with branches is on the path with all of them, so what
    branches save is left out. Ignores: memory bandwidth, which the threads share.

    References
    ----------
    .. [1] R. L. Graham, Bounds for certain multiprocessing anomalies, Bell System Technical Journal 45(9), 1966: a
       schedule ends no sooner than its longest path and its total work over the number of threads.
    """
    path: Quantity = 0.0
    beside: dict[str, Quantity] = {}
    for occurrence in table.occurrences:
        duration = group_s[occurrence.group]
        if occurrence.phase is Phase.UPDATE:
            beside[occurrence.layer] = beside.get(occurrence.layer, path) + duration
        elif occurrence.role is Role.WEIGHT_GRADIENT:
            beside[occurrence.layer] = maximum(beside.get(occurrence.layer, 0.0), path) + duration
        else:
            path = named(path + duration, "path")
    longest = path
    for end in beside.values():
        longest = maximum(longest, end)
    return maximum(longest, table.multiplicity @ group_s / scheduler_threads)
