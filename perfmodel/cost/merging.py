"""Which gradients that follow one another share a message: waiting for the next against a message of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]

MOST_PLANS: Final = 50
"""Partial plans that are kept for each gradient, those that promise to cost least. [1]"""

MOST_COMPARED: Final = 200
"""Partial plans that are held against one another at most, those that promise to cost least. [1]"""

SAME: Final = 1e-12
"""Share of the longest time by which two partial plans may differ and count as one. [1]"""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Lane:
    r"""Something that messages pass one after the other, and until when it is busy.

    .. math:: x \leftarrow \max(x, f_{ij}) + c_{ij}

    Parameters
    ----------
    floor_s : ndarray, shape (layers, layers)
        When a message with the gradients i to j may begin there, f; only j >= i counts. [s]
    taken_s : ndarray, shape (layers, layers)
        How long it takes there, c. [s]
    after_the_one_before : bool
        Whether it must have passed the lane before as well. [-]
    """

    floor_s: Times
    taken_s: Times
    after_the_one_before: bool = False


def spans(values: Times) -> Times:
    """Return the sum of every stretch of values.

    Parameters
    ----------
    values : ndarray, shape (layers,)
        Sizes of gradients. [B]

    Returns
    -------
    ndarray, shape (layers, layers)
        Sum of i to j for j >= i, else 0. [B]

    Notes
    -----
    Valid for: numbers.

    Examples
    --------
    >>> spans(np.array([1.0, 2.0, 4.0]))
    array([[1., 3., 7.],
           [0., 2., 6.],
           [0., 0., 4.]])
    """
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return np.triu(sums[None, 1:] - sums[:-1, None])


def cheapest_messages(lanes: Sequence[Lane], *, cost_s: Callable[[Times], Times]) -> list[slice]:
    r"""Merge gradients that follow one another so that the exchange costs the step least.

    .. math:: e_j = \min_{i \le j} \left[\max(f_j, e_{i-1}) + c_{ij}\right]

    Parameters
    ----------
    lanes : sequence of Lane
        What messages pass. [s]
    cost_s : callable
        Takes the ends on all lanes of some plans, shape (lanes, plans), and returns what each plan costs, shape
        (plans,); never less where an end is later. [s]

    Returns
    -------
    list of slice
        Gradients of each message. [-]

    Notes
    -----
    A dynamic programme over the last gradient sent, in which a plan is dropped if another ends no later on any lane, or
    if it must cost more than one that is known. With one lane one plan is left for each gradient: it is exact, for
    whatever a message costs, and takes the square of their number. With more lanes several are left, each better than
    the others on one of them: exact as long as there are no more than ``MOST_PLANS``; beyond that those are kept that
    promise most, and what is found is no worse than one message or one for each gradient. The rule of [1]_ merges a
    gradient with the next one where waiting for it costs less than the latency of another message; that is for messages
    that cost a latency and their bytes, here any cost will do.

    Valid for: messages in the order in which gradients become ready. Ignores: cutting a gradient in two.

    Examples
    --------
    Gradients ready after 1, 2 and 3 s, of 0.1 s each besides the 0.5 s of any message; the last two share one:

    >>> ready, sizes = np.array([1.0, 2.0, 3.0]), spans(np.array([0.1, 0.1, 0.1]))
    >>> channel = Lane(floor_s=np.tile(ready, (3, 1)), taken_s=0.5 + sizes)
    >>> cheapest_messages([channel], cost_s=lambda ends: ends[0])
    [slice(0, 2, None), slice(2, 3, None)]

    References
    ----------
    .. [1] S. Shi, X. Chu, B. Li, MG-WFBP: efficient data communication for distributed synchronous SGD algorithms,
       INFOCOM 2019.
    """
    count = len(lanes[0].floor_s)
    scale_s = max(float(np.max(np.abs(lane.floor_s)) + np.trace(lane.taken_s)) for lane in lanes)
    programme = _Programme(lanes, cost_s=cost_s, within=SAME * scale_s)
    simple = ([slice(0, count)], [slice(place, place + 1) for place in range(count)])
    known = [programme.solved(limit_s=np.inf, most_plans=1), *((programme.cost(plan), plan) for plan in simple)]
    good_s, good = min(known, key=lambda found: found[0])
    # a plan that is left out for one as good costs as much up to rounding, once for each gradient
    best_s, best = programme.solved(limit_s=good_s + (count + 1) * programme.within, most_plans=MOST_PLANS)
    return best if best_s <= good_s + (count + 1) * programme.within else good


class _Programme:
    """The dynamic programme, and what no plan can fall below from each gradient on."""

    def __init__(self, lanes: Sequence[Lane], *, cost_s: Callable[[Times], Times], within: float) -> None:
        self.lanes, self.cost_s, self.within = lanes, cost_s, within
        self.count = len(lanes[0].floor_s)
        self.free = np.array([[np.min(lane.floor_s[i, i:]) for i in range(self.count)] for lane in lanes])
        self.left = np.array([_least_left(lane.taken_s) for lane in lanes])

    def cost(self, plan: Sequence[slice]) -> float:
        """Return what a plan costs. [s]"""
        ends = self.free[:, :1]
        for message in plan:
            ends = self._passed(ends, np.array([message.start]), message.stop - 1)
        return float(self.cost_s(ends)[0])

    def solved(self, *, limit_s: float, most_plans: int) -> tuple[float, list[slice]]:
        """Return the cost of the cheapest plan that costs no more than a limit [s], and its messages.

        With few plans kept for each gradient it need not be the cheapest, but is one that others can be held against.
        """
        ends = self.free[:, :1]
        starts, parents = (
            np.zeros(1, dtype=int),
            np.full(1, -1),
        )  # of each plan: its next gradient, what it goes on from
        for last in range(self.count):
            passed = self._passed(ends, starts, last)
            if last + 1 < self.count:
                passed = np.maximum(passed, self._waits(last + 1)[:, None])
            least_s = self.cost_s(passed + self.left[:, last + 1, None])
            kept = np.lexsort((passed.sum(axis=0), least_s))
            kept = kept[least_s[kept] <= limit_s][: MOST_COMPARED if last + 1 < self.count else 1]
            kept = kept[_best(passed[:, kept], within=self.within)][:most_plans]
            ends = np.concatenate([ends, passed[:, kept]], axis=1)
            starts = np.concatenate([starts, np.full(len(kept), last + 1)])
            parents = np.concatenate([parents, kept])
        if starts[-1] < self.count:
            return np.inf, []
        return float(self.cost_s(ends[:, -1:])[0]), _traced(starts, parents)

    def _waits(self, first: int) -> Times:
        """Return until when each lane is idle anyway before any message that begins with a gradient. [s]"""
        lanes = zip(self.lanes, self.free[:, first], strict=True)
        return np.array([-np.inf if lane.after_the_one_before else free for lane, free in lanes])

    def _passed(self, ends: Times, starts: NDArray[np.int_], last: int) -> Times:
        """Return the ends of all plans once each has sent all gradients up to the last one in one more message."""
        found: list[Times] = []
        for lane, busy in zip(self.lanes, ends, strict=True):
            begin = np.maximum(busy, lane.floor_s[starts, last])
            if lane.after_the_one_before:
                begin = np.maximum(begin, found[-1])
            found.append(begin + lane.taken_s[starts, last])
        return np.array(found)


def _least_left(taken_s: Times) -> Times:
    """Return the least time that the gradients from each on take, in whichever messages; zero after the last. [s]"""
    count = len(taken_s)
    left = np.zeros(count + 1)
    for first in reversed(range(count)):
        left[first] = np.min(taken_s[first, first:] + left[first + 1 :])
    return left


def _best(ends: Times, *, within: float) -> NDArray[np.int_]:
    """Return the places of plans that no other is as good as on every lane; of equal ones that of the first."""
    as_good = np.all(ends[:, :, None] <= ends[:, None, :] + within, axis=0)
    # of two that are as good as each other the first stays
    beaten = as_good & (~as_good.T | np.triu(np.ones_like(as_good), k=1))
    return np.flatnonzero(~np.any(beaten, axis=0))


def _traced(starts: NDArray[np.int_], parents: NDArray[np.int_]) -> list[slice]:
    """Return the messages of the plan that was found last."""
    found = []
    plan = len(starts) - 1
    while parents[plan] >= 0:
        found.append(slice(int(starts[parents[plan]]), int(starts[plan])))
        plan = int(parents[plan])
    return found[::-1]
