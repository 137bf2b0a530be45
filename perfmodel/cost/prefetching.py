"""Parameters that are gathered ahead of the unit that computes, as far as a limit lets them."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.numeric import maximum
from perfmodel.symbolic import Quantity, named


def gather_stall(*, gather_s: Sequence[Quantity], computed_s: Sequence[Quantity], ahead: int | None) -> Quantity:
    r"""Time for which units wait for their parameters.

    .. math:: a_i = \max(a_{i-1}, e_{i-1-k}) + g_i, \quad e_i = \max(e_{i-1}, a_i) + c_i, \quad T = e_n - \sum_i c_i

    Parameters
    ----------
    gather_s : sequence of float, ndarray or sympy.Expr
        Time to gather each unit, g, in the order in which they compute. [s]
    computed_s : sequence of float, ndarray or sympy.Expr
        Time that each unit computes, c. [s]
    ahead : int or None
        Units gathered ahead of the one that computes, k; None if all may be. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Time that no computing hides. [s]

    Notes
    -----
    Valid for: gathers one after the other, none before the phase begins, on links of their own.

    Examples
    --------
    Without prefetching everything is exposed; one unit ahead, the first, and what a unit before does not hide.

    >>> [int(gather_stall(gather_s=(2, 5, 1), computed_s=(4, 3, 3), ahead=ahead)) for ahead in (0, 1, 2)]
    [8, 3, 3]
    >>> [int(gather_stall(gather_s=(1, 1, 9), computed_s=(4, 3, 3), ahead=ahead)) for ahead in (0, 1, 2, None)]
    [11, 7, 4, 4]

    References
    ----------
    .. [1] Y. Zhao et al., PyTorch FSDP: experiences on scaling fully sharded data parallel, VLDB 2023,
       arXiv:2304.11277, sections 3.3.2 (prefetching) and 3.4 (rate limiter).
    """
    if ahead == 0:
        return sum(gather_s)
    ended: list[Quantity] = []
    arrived: Quantity = 0
    computing: Quantity = 0
    for place, (seconds, unit_s) in enumerate(zip(gather_s, computed_s, strict=True)):
        if ahead is not None and place > ahead:
            arrived = named(maximum(arrived, ended[place - 1 - ahead]), "start of a gather")
        arrived = arrived + seconds
        before: Quantity = ended[-1] if ended else 0
        ended.append(named(maximum(before, arrived), "start of a unit") + unit_s)
        computing = computing + unit_s
    return ended[-1] - computing if ended else 0
