"""Max-min fair sharing of channels among flows: a pure function of capacities and of who uses what."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from perfmodel.errors import ArgumentError
from perfmodel.numeric import maximum
from perfmodel.symbolic import Quantity

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

TIE: Final = 1e-12
"""Levels this close to one another are one: channels that fill up together do so in one round. [1]"""


def max_min_rates(*, capacity: ArrayLike, uses: ArrayLike, weights: ArrayLike | None = None) -> NDArray[np.float64]:
    r"""Rates of flows that share channels max-min fairly, by progressive filling.

    The rates of all flows rise together until a channel is full; the flows over it keep what they have, the others go
    on rising. In the end

    .. math:: \sum_f u_{fc} r_f \le B_c

    for every channel c, and every flow has a full channel on which no other flow has a larger :math:`r_f / w_f`, which
    only one set of rates fulfils.

    Parameters
    ----------
    capacity : array_like, shape (channels,)
        What each channel carries, B; positive. [B/s]
    uses : array_like, shape (flows, channels)
        Bytes on a channel for every byte of a flow, u: 0 where a flow does not pass, 1 where it does, 2 where it
        passes twice. A row may also stand for n equal flows, with n times their uses; its rate is then that of one
        of them. [1]
    weights : array_like, shape (flows,), or None
        How much of a full channel flows get in relation to one another, w; positive; None for equal ones. [1]

    Returns
    -------
    ndarray, shape (flows,)
        Rate of each flow, r. [B/s]

    Raises
    ------
    ArgumentError
        If shapes do not fit, a capacity or a weight is not positive, a use is negative, or a flow uses no channel.

    Notes
    -----
    Valid for: flows long against a round trip, arbiters that serve their inputs in turn. Ignores: what a switch loses
    where it is full, unequal packet sizes. Each round fills at least one channel, and is a few products of arrays.

    Examples
    --------
    Two flows over a root of 10 B/s, one of which has a link of 2 B/s of its own:

    >>> max_min_rates(capacity=[10.0, 2.0], uses=[[1, 0], [1, 1]])
    array([8., 2.])

    References
    ----------
    .. [1] D. Bertsekas and R. Gallager, Data Networks, 2nd edition, 1992, section 6.5.2.
    """
    capacity, uses = np.asarray(capacity, dtype=float), np.asarray(uses, dtype=float)
    weight = np.ones(uses.shape[:1]) if weights is None else np.asarray(weights, dtype=float)
    _check(capacity, uses, weight)
    rates = np.zeros(len(uses))
    rising = np.ones(len(uses), dtype=bool)
    level = 0.0
    while rising.any():
        load = (weight * rising) @ uses
        left = np.maximum(capacity - rates @ uses, 0.0)
        levels = np.full(len(capacity), np.inf)
        np.divide(left, load, out=levels, where=load > 0)
        level = max(level, float(levels.min()))  # rounding alone could lower it
        full = levels <= level * (1 + TIE)
        stopped = rising & (uses[:, full] > 0).any(axis=1)
        rates[stopped] = level * weight[stopped]
        rising &= ~stopped
    return rates


def longest_byte_time(*, capacity: Sequence[Quantity], flow_counts: Sequence[int]) -> Quantity:
    r"""Time of a byte of a flow that has an even share of every channel it passes.

    .. math:: \beta = \max_c \frac{k_c}{B_c}

    Parameters
    ----------
    capacity : sequence of float or sympy.Expr
        What each of its channels carries, B. [B/s]
    flow_counts : sequence of int
        Flows over each, k; one that passes it twice counts twice. [1]

    Returns
    -------
    float or sympy.Expr
        Inverse of the rate. [s/B]

    Notes
    -----
    Exact under max-min fairness for the slowest of all flows, whose channel fills up first. Ignores: what flows that
    are bound elsewhere leave to the others.

    Examples
    --------
    >>> import sympy
    >>> rate = sympy.Symbol("B", positive=True)
    >>> longest_byte_time(capacity=[rate, 2 * rate, 10.0], flow_counts=[1, 4, 2])
    Max(0.2, 2/B)
    """
    import sympy

    crowds: dict[Any, Any] = {}
    for bandwidth, count in zip(capacity, flow_counts, strict=True):
        coefficient, rest = sympy.sympify(1 / bandwidth).as_coeff_Mul()
        crowds[rest] = max(crowds.get(rest, 0), count * coefficient)
    return reduce(maximum, [coefficient * rest for rest, coefficient in crowds.items() if coefficient])


def _check(capacity: NDArray[np.float64], uses: NDArray[np.float64], weight: NDArray[np.float64]) -> None:
    """Raise on what has no fair rates."""
    if capacity.ndim != 1 or uses.ndim != 2 or uses.shape[1] != len(capacity):
        allowed = f"one row a flow, one column for each of {capacity.size} channels"
        raise ArgumentError(argument="uses", given=f"shape {uses.shape}", allowed=allowed)
    if weight.shape != uses.shape[:1]:
        raise ArgumentError(argument="weights", given=f"shape {weight.shape}", allowed=f"one for each of {len(uses)}")
    for name, values in (("capacity", capacity), ("weights", weight)):
        wrong = values[~((values > 0) & (values < np.inf))]
        if wrong.size:
            raise ArgumentError(argument=name, given=float(wrong[0]), allowed="finite and above 0")
    wrong = uses[~((uses >= 0) & (uses < np.inf))]
    if wrong.size:
        raise ArgumentError(argument="uses", given=float(wrong[0]), allowed="finite and not below 0")
    without = np.flatnonzero(~(uses > 0).any(axis=1))
    if without.size:
        raise ArgumentError(argument="uses", given=f"flow {without[0]} without a channel", allowed="at least one each")
