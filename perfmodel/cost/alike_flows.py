"""Max-min fair rates of very many flows: those that share channels alike are one row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perfmodel.cost.transfer import max_min_rates

Integers = NDArray[np.int64]


def alike_rates(
    *, capacity: Sequence[float], passed: Sequence[Sequence[int]], weights: Sequence[float] | None = None
) -> NDArray[np.float64]:
    """Rates of flows that share channels max-min fairly, found once for flows that are alike.

    Two flows are alike if they have the same weight and pass channels of the same kinds, and two channels if they have
    the same capacity and flows of the same kinds pass them: the coarsest such kinds are found by refining. Max-min
    fairness gives alike flows one rate, so that one channel of each kind, with what passes it, says it.

    Parameters
    ----------
    capacity : sequence of float, shape (channels,)
        Capacity of each channel; positive. [B/s]
    passed : sequence of sequence of int, shape (flows,)
        Channels that each flow passes, once for every time. [1]
    weights : sequence of float, shape (flows,), or None
        Relative shares of a full channel that flows get; None for equal shares. [1]

    Returns
    -------
    ndarray, shape (flows,)
        Rate of each flow. [B/s]

    Raises
    ------
    ArgumentError
        If a capacity or weight is not positive, or a flow passes no channel.

    Notes
    -----
    Valid for: what ``max_min_rates`` is valid for, to rounding. Ignores: nothing.

    Examples
    --------
    Three flows over a root of 9 B/s, one of which has a link of 2 B/s of its own:

    >>> alike_rates(capacity=[9.0, 2.0], passed=[[0], [0, 1], [0]])
    array([3.5, 2. , 3.5])
    """
    flow = np.repeat(np.arange(len(passed)), [len(channels) for channels in passed])
    channel = np.fromiter((index for channels in passed for index in channels), dtype=np.int64, count=len(flow))
    weight = np.ones(len(passed)) if weights is None else np.asarray(weights, dtype=float)
    of_flow, of_channel = _kinds(flow, channel, weight, np.asarray(capacity, dtype=float))
    kinds, first = np.unique(of_channel, return_index=True)
    stands = np.zeros(len(of_channel), dtype=bool)
    stands[first] = True
    shown = stands[channel]
    uses = np.zeros((int(of_flow.max(initial=-1)) + 1, len(kinds)))
    np.add.at(uses, (of_flow[flow[shown]], of_channel[channel[shown]]), 1)
    weight_of_kind = weight[np.unique(of_flow, return_index=True)[1]]
    rates = max_min_rates(capacity=np.asarray(capacity, dtype=float)[first], uses=uses, weights=weight_of_kind)
    return rates[of_flow]


def _kinds(
    flow: Integers, channel: Integers, weight: NDArray[np.float64], capacity: NDArray[np.float64]
) -> tuple[Integers, Integers]:
    """Return the kind of each flow and channel, refined until those of a kind meet the same kinds. [1]"""
    of_flow = np.unique(weight.round(9), return_inverse=True)[1]
    of_channel = np.unique(capacity, return_inverse=True)[1]
    random = np.random.default_rng(0)
    count, before = 0, -1
    while count != before:
        of_flow = _refined(of_flow, flow, of_channel[channel], random)
        of_channel = _refined(of_channel, channel, of_flow[flow], random)
        count, before = int(of_flow.max(initial=0) + of_channel.max(initial=0)), count
    return of_flow, of_channel


def _refined(kind: Integers, at: Integers, met: Integers, random: np.random.Generator) -> Integers:
    """Return the kinds told apart by the kinds that each meets, as often as it meets them. [1]"""
    marks = random.integers(0, 2**63, size=int(met.max(initial=0)) + 1, dtype=np.uint64)
    sums = np.zeros(len(kind), dtype=np.uint64)
    np.add.at(sums, at, marks[met])  # a sum does not depend on the order of those that are met
    number = np.unique(sums, return_inverse=True)[1]
    refined: Integers = np.unique(kind * (int(number.max(initial=0)) + 1) + number, return_inverse=True)[1]
    return refined
