"""Pipelines of stages fed with micro-batches: closed forms of their time, and where these are bounds.

The order in which devices work is that of ``perfmodel/cost/pipeline_order.py``, whose longest path is exact
for stages of any length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Final

from perfmodel.numeric import maximum
from perfmodel.symbolic import Quantity


def bubble_fraction(*, stage_count: Quantity, micro_batch_count: Quantity, interleave: Quantity = 1) -> Quantity:
    r"""Share of a step in which a device of a pipeline of equal stages waits.

    .. math:: \frac{p - 1}{v m + p - 1}

    Parameters
    ----------
    stage_count : float, ndarray or sympy.Expr
        Devices in a row, p. [1]
    micro_batch_count : float, ndarray or sympy.Expr
        Parts of the mini-batch that follow one another, m. [1]
    interleave : float, ndarray or sympy.Expr
        Chunks of layers on each device, v. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Share of the step. [1]

    Notes
    -----
    Valid for: equal stages, transfers that take no time; the same for GPipe and 1F1B, and with several chunks for the
    interleaved schedule where p divides m. Ignores: the update.

    Examples
    --------
    >>> bubble_fraction(stage_count=4, micro_batch_count=8), bubble_fraction(
    ...     stage_count=4, micro_batch_count=8, interleave=2)
    (0.27272727272727271, 0.15789473684210525)

    References
    ----------
    .. [1] Huang et al., GPipe, NeurIPS 2019, arXiv:1811.06965, section 2.3.
    .. [2] Narayanan et al., Efficient large-scale language model training on GPU clusters using Megatron-LM, SC 2021,
       arXiv:2104.04473, section 2.2.
    """
    idle = stage_count - 1
    return idle / (interleave * micro_batch_count + idle)


def _largest(values: Sequence[Quantity]) -> Quantity:
    return reduce(maximum, values)


def gpipe_time(
    *,
    forward_s: Sequence[Quantity],
    backward_s: Sequence[Quantity],
    forward_send_s: Sequence[Quantity] = (),
    backward_send_s: Sequence[Quantity] = (),
    micro_batch_count: Quantity,
) -> Quantity:
    r"""Time of all micro-batches where every forward phase comes before the first backward phase (GPipe).

    .. math:: T = \sum_i (f_i + b_i) + \sum_i (c_i + c'_i)
        + (m - 1) \left(\max_i \{f_i, c_i\} + \max_i \{b_i, c'_i\}\right)

    Parameters
    ----------
    forward_s, backward_s : sequence of float, ndarray or sympy.Expr
        Of one micro-batch in each stage, f and b. [s]
    forward_send_s, backward_send_s : sequence of float, ndarray or sympy.Expr
        Of one micro-batch between each stage and the next, c, and back, c'; empty for transfers without time. [s]
    micro_batch_count : float, ndarray or sympy.Expr
        Micro-batches, m. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        From the first forward to the last backward phase. [s]

    Notes
    -----
    Exact for stages and transfers of any length: either half is a flow shop of equal jobs, and no stage is still busy
    with the first half where the last one begins the second. Valid for: a link of its own between two stages, one
    transfer at a time. Ignores: the update.

    Examples
    --------
    >>> float(gpipe_time(forward_s=[1, 1, 1, 1], backward_s=[2, 2, 2, 2], micro_batch_count=8))
    33.0

    References
    ----------
    .. [1] Huang et al., GPipe, NeurIPS 2019, arXiv:1811.06965.
    """
    once = sum([*forward_s, *backward_s, *forward_send_s, *backward_send_s])
    again = _largest([*forward_s, *forward_send_s]) + _largest([*backward_s, *backward_send_s])
    return once + (micro_batch_count - 1) * again


def one_forward_one_backward_bound(
    *, forward_s: Sequence[Quantity], backward_s: Sequence[Quantity], micro_batch_count: Quantity
) -> Quantity:
    r"""Return what 1F1B, or any schedule, takes at least: a stage's work, what comes before it and what follows.

    .. math:: T \ge \max_i \left(\sum_{j < i} (f_j + b_j) + m (f_i + b_i)\right)

    Parameters
    ----------
    forward_s, backward_s : sequence of float, ndarray or sympy.Expr
        Of one micro-batch in each stage. [s]
    micro_batch_count : float, ndarray or sympy.Expr
        Micro-batches. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Lower bound. [s]

    Notes
    -----
    Valid for: any order of work. Ignores: transfers.

    Examples
    --------
    >>> float(one_forward_one_backward_bound(forward_s=[1, 3], backward_s=[2, 3], micro_batch_count=8))
    51.0
    """
    works = [first + second for first, second in zip(forward_s, backward_s, strict=True)]
    return _largest([sum(works[:place]) + micro_batch_count * work for place, work in enumerate(works)])


def interleaved_time(
    *,
    forward_s: Quantity,
    backward_s: Quantity,
    stage_count: Quantity,
    micro_batch_count: Quantity,
    interleave: Quantity,
) -> Quantity:
    r"""Time of all micro-batches where each device has several chunks of layers (interleaved 1F1B).

    .. math:: T = \left(m + \frac{p - 1}{v}\right) (f + b)

    Parameters
    ----------
    forward_s, backward_s : float, ndarray or sympy.Expr
        Of one micro-batch in all chunks of a device together, f and b. [s]
    stage_count : float, ndarray or sympy.Expr
        Devices, p. [1]
    micro_batch_count : float, ndarray or sympy.Expr
        Micro-batches, a multiple of p, m. [1]
    interleave : float, ndarray or sympy.Expr
        Chunks on each device, v. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        From the first forward to the last backward phase. [s]

    Notes
    -----
    Exact for equal chunks and transfers without time; a lower bound with transfers. Ignores: the update.

    Examples
    --------
    >>> interleaved_time(forward_s=1, backward_s=2, stage_count=4, micro_batch_count=8, interleave=2)
    28.5

    References
    ----------
    .. [1] Narayanan et al., SC 2021, arXiv:2104.04473, section 2.2.2.
    """
    return (micro_batch_count + (stage_count - 1) / interleave) * (forward_s + backward_s)


Times = Sequence[Quantity]


def _gpipe_bounds(forward_s: Times, backward_s: Times, count: Quantity, stage_count: int) -> tuple[Quantity, Quantity]:
    exact_s = gpipe_time(forward_s=forward_s, backward_s=backward_s, micro_batch_count=count)
    return exact_s, exact_s


def _in_turn_bounds(
    forward_s: Times, backward_s: Times, count: Quantity, stage_count: int
) -> tuple[Quantity, Quantity]:
    least_s = one_forward_one_backward_bound(forward_s=forward_s, backward_s=backward_s, micro_batch_count=count)
    return least_s, _longest_chunks_time(forward_s, backward_s, count, stage_count)


def _interleaved_bounds(
    forward_s: Times, backward_s: Times, count: Quantity, stage_count: int
) -> tuple[Quantity, Quantity]:
    works = [first + second for first, second in zip(forward_s, backward_s, strict=True)]
    of_devices = [sum(works[device::stage_count]) for device in range(stage_count)]
    if len(works) == stage_count:
        return _in_turn_bounds(forward_s, backward_s, count, stage_count)
    return count * _largest(of_devices), _longest_chunks_time(forward_s, backward_s, count, stage_count)


def _longest_chunks_time(forward_s: Times, backward_s: Times, count: Quantity, stage_count: int) -> Quantity:
    """Return the time if every chunk were as long as the longest: no path grows shorter by that. [s]"""
    interleave = len(forward_s) // stage_count
    return interleaved_time(
        forward_s=interleave * _largest(forward_s),
        backward_s=interleave * _largest(backward_s),
        stage_count=stage_count,
        micro_batch_count=count,
        interleave=interleave,
    )


_BOUNDS: Final[Mapping[str, Callable[[Times, Times, Quantity, int], tuple[Quantity, Quantity]]]] = {
    "gpipe": _gpipe_bounds,
    "1f1b": _in_turn_bounds,
    "interleaved": _interleaved_bounds,
}


def schedule_bounds(
    schedule: str, *, forward_s: Times, backward_s: Times, stage_count: int, micro_batch_count: Quantity
) -> tuple[Quantity, Quantity]:
    """Return what the micro-batches take at least and at most by the closed forms, without transfers.

    Parameters
    ----------
    schedule : str
        ``gpipe``, ``1f1b`` or ``interleaved``. [-]
    forward_s, backward_s : sequence of float, ndarray or sympy.Expr
        Of one micro-batch in each chunk; chunk k is on device k modulo the devices. [s]
    stage_count : int
        Devices. [1]
    micro_batch_count : float, ndarray or sympy.Expr
        Micro-batches. [1]

    Returns
    -------
    tuple of float, ndarray or sympy.Expr
        Lower and upper bound. [s] Both are the time with ``gpipe``; the upper one is where chunks are equal.

    Notes
    -----
    Valid for: transfers without time. Ignores: the update.

    Examples
    --------
    >>> tuple(map(float, schedule_bounds("1f1b", forward_s=[10, 1], backward_s=[10, 1], stage_count=2,
    ...     micro_batch_count=5)))
    (100.0, 120.0)
    """
    return _BOUNDS[schedule](forward_s, backward_s, micro_batch_count, stage_count)
