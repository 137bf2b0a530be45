"""Workers that do not wait for all: cost of delay compensation, cost of a staleness bound, remaining progress.

Delay compensation is w <- w - eta (g + lambda g g (w - b_m)), element by element, where b_m is the copy that was sent
to worker m: arithmetic, memory traffic, operations and copies at the server, no message. Time per step does not give
the number of steps to a target, which depends on the task: the caller supplies every number for it, and defaults have
no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from perfmodel.numeric import exponential, logarithm, maximum, minimum, where
from perfmodel.symbolic import Quantity, named

FLOP_PER_PARAMETER: Final = 5
"""Difference, three products and a sum, besides the arithmetic of a plain update [1]_. [FLOP]

.. [1] S. Zheng et al., Asynchronous stochastic gradient descent with delay compensation, ICML 2017, algorithm 2.
"""

PASSES: Final = 3
"""Reads of the copy and the parameters, write of the copy, in units of the parameters' bytes [1]."""

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
        Time to issue an operation, divided by how many are issued at once, d. [s]

    Returns
    -------
    float, ndarray or sympy.Expr
        Seconds per update. [s]

    Notes
    -----
    Valid for: parameters larger than the caches, since five FLOP for twelve bytes are memory-bound anywhere. Ignores:
    cache traffic of intermediate results of unfused operations.

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


LEADERS_OF_TWO: Final = 0.5
"""Two workers with much slack: each waits c^2 / (2 s) of a step, a Brownian motion between two walls. [1]"""

LEADERS_PER_LOGARITHM: Final = 0.62
"""Added by each factor e more workers: simulated for 4 to 40 workers, four distributions, 20,000 steps each. [1]"""

_LEAST: Final = 1e-300


def bounded_staleness_excess(
    *, worker_count: Quantity, staleness_bound: Quantity, largest_excess: Quantity, variation: Quantity
) -> Quantity:
    r"""Share of a step that workers wait for slower ones because of the bound on staleness.

    .. math:: e = \left(\frac{1}{d} + \frac{s}{A c^2}\right)^{-1}, \qquad A = \frac{1}{2} + 0.62 \ln\frac{W}{2}

    Parameters
    ----------
    worker_count : float, ndarray or sympy.Expr
        Workers, W. [1]
    staleness_bound : float, ndarray or sympy.Expr
        Steps that a worker may be ahead of the slowest, s; 0 for steps that begin together. [1]
    largest_excess : float, ndarray or sympy.Expr
        Relative excess of the slowest worker's time for a step over the mean, d. [1]
    variation : float, ndarray or sympy.Expr
        Coefficient of variation of a step, c. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Waiting per step over its mean time. [1]

    Notes
    -----
    Exact for s = 0, where all wait for the slowest, and for two workers with many steps of slack; interpolated between.
    The time of a step, against 20,000 simulated ones of 2 to 40 workers with bounds of 1 to 8: within 0.2 % for normal
    times up to a variation of 0.2; too short by up to 2 % for log-normal ones with 0.3 and 7 % with 0.5, and by
    up to 9 % for shifted exponential ones, with many workers and a bound of 1: one long step then holds all others up.

    Valid for: times independent from step to step. Ignores: a worker that is always slow, which sets the pace whatever
    the bound.

    Examples
    --------
    Ten per cent of variation costs 40 workers 21.6 % if they step together, and 2 % if they may be one step apart:

    >>> tenth = {"worker_count": 40, "largest_excess": 0.2161, "variation": 0.1}
    >>> [round(float(bounded_staleness_excess(staleness_bound=bound, **tenth)), 4) for bound in (0, 1, 4)]
    [0.2161, 0.0213, 0.0057]

    References
    ----------
    .. [1] Q. Ho et al., More effective distributed ML via a stale synchronous parallel parameter server, NIPS 2013.
    """
    leaders = LEADERS_OF_TWO + LEADERS_PER_LOGARITHM * logarithm(worker_count / 2)
    spread = maximum(leaders, 0) * variation**2
    return largest_excess * spread / maximum(spread + staleness_bound * largest_excess, _LEAST)


def served_in_step_time(
    *,
    arrival_s: Sequence[Quantity],
    service_s: Quantity,
    worker_count: Quantity | None = None,
    server_count: Quantity = 1,
    service_variation: Quantity = 1.0,
) -> Quantity:
    r"""Return when a server has served the last of several workers that began together.

    .. math:: r_k = \frac{S}{n} + \max\left(w_k, S - \frac{S}{n}\right), \qquad
        w_k = c^2 r_{k-1} e^{-g_k / r_{k-1}} + (1 - c^2) \max(r_{k-1} - g_k, 0), \qquad t = a_W + r_W

    Parameters
    ----------
    arrival_s : sequence of float, ndarray or sympy.Expr
        Mean arrival times of the first, the second and so on, a_k; g_k are the gaps between them. [s]
    service_s : float, ndarray or sympy.Expr
        Service of each, S. [s]
    worker_count : int, ndarray or None
        How many of them there are, W; None for all. [1]
    server_count : float, ndarray or sympy.Expr
        Equal shards of the server, n. [1]
    service_variation : float, ndarray or sympy.Expr
        Coefficient of variation of the service, c. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Time since all began. [s]

    Notes
    -----
    The rest of the queue at the next arrival is taken as exponential if services are, and as its mean if they do not
    vary. Exact for workers that arrive together, and for a server that takes no time. Against 2,500 simulated steps of
    2 to 16 workers, six distributions and a load of up to 1.3 times the server's capacity: between 4 % too short and
    1 % too long.

    Valid for: services independent of one another. Ignores: that the gaps vary from step to step.

    Examples
    --------
    Three arrive at once, then three each of which finds the previous one nearly served:

    >>> [round(float(served_in_step_time(arrival_s=when, service_s=1.0)), 2) for when in ((0, 0, 0), (0, 2, 4))]
    [3.0, 5.2]
    """
    left: Quantity = service_s
    end_s: Quantity = arrival_s[0] + left
    smooth = minimum(service_variation**2, 1.0)
    for count, (before, now) in enumerate(pairwise(arrival_s), start=2):
        gap = now - before
        varying = left * exponential(-gap / maximum(left, _LEAST))
        waited = smooth * varying + (1 - smooth) * maximum(left - gap, 0)
        left = named(service_s / server_count + maximum(waited, service_s - service_s / server_count), "left to serve")
        ended = now + left
        end_s = ended if worker_count is None else where(np.asarray(worker_count) >= count, ended, end_s)
    return end_s


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
        Share of steps lost per update of staleness, c: supplied by the caller, otherwise zero. [1]

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
