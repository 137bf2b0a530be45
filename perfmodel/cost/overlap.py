"""Messages sent while back-propagation still runs: when each ends, and which gradients share a bucket.

A layer's gradient is exchanged while those of the layers below it are computed. One channel carries the messages in
order, and gradients share one if waiting for the next costs less than another message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from perfmodel.numeric import maximum, minimum
from perfmodel.symbolic import Quantity, is_symbolic, named

Quantities = Sequence[Quantity] | NDArray[Any]


def ends(*, ready_s: Quantities, message_s: Quantities) -> tuple[Quantity, ...]:
    r"""Return the end of each of several messages that follow one another on one channel.

    .. math:: e_i = \max(f_i, e_{i-1}) + c_i

    Parameters
    ----------
    ready_s : sequence of float, ndarray or sympy.Expr
        When each message could leave, f, in the order in which they do. [s]
    message_s : sequence of float, ndarray or sympy.Expr
        What each takes by itself, c. [s]

    Returns
    -------
    tuple of float, ndarray or sympy.Expr
        Ends; on a next channel, each message could start then. [s]

    Notes
    -----
    Valid for: messages in the given order, one at a time. A recurrence over messages; times may be arrays or symbols.
    Ignores: that messages in flight slow computing down: see ``slowed_exchange``.

    Examples
    --------
    Backward phases of 10, 20 and 30 ms, whose gradients take 25, 15 and 5 ms; then the same in one message.

    >>> [float(end) for end in ends(ready_s=(10, 30, 60), message_s=(25, 15, 5))]
    [35.0, 50.0, 65.0]
    >>> [float(end) for end in ends(ready_s=(60,), message_s=(45,))]
    [105.0]

    References
    ----------
    .. [1] H. Zhang et al., Poseidon: an efficient communication architecture for distributed deep learning on GPU
       clusters, USENIX ATC 2017.
    """
    ends_s: list[Quantity] = []
    symbolic = is_symbolic(*ready_s, *message_s)
    larger = maximum if symbolic else np.maximum  # chosen once, not for every message
    for ready, taken in zip(ready_s, message_s, strict=True):
        end = (larger(ready, ends_s[-1]) if ends_s else ready) + taken
        ends_s.append(named(end, "end of message") if symbolic else end)
    return tuple(ends_s)


def last_end(*, ready_s: Quantities, message_s: Quantities) -> Quantity:
    r"""Return the end of the last of several messages that follow one another on one channel, as ``ends`` does.

    .. math:: e_n = \max_i \Big(f_i + \sum_{j \ge i} c_j\Big)

    Parameters
    ----------
    ready_s : sequence of float, ndarray or sympy.Expr
        When each message could leave, f, in the order in which they do. [s]
    message_s : sequence of float, ndarray or sympy.Expr
        What each takes by itself, c. [s]

    Returns
    -------
    float, ndarray or sympy.Expr
        End of the last one. [s]

    Notes
    -----
    Valid for: as ``ends``, of which it is the closed form; symbols take the recurrence, which stays shorter.

    Examples
    --------
    >>> float(last_end(ready_s=(10, 30, 60), message_s=(25, 15, 5)))
    65.0
    """
    ready, taken = np.asarray(ready_s), np.asarray(message_s)
    if ready.dtype == object or taken.dtype == object:
        return ends(ready_s=ready_s, message_s=message_s)[-1]
    left = np.cumsum(taken[::-1], axis=0)[::-1]
    if ready.ndim > left.ndim:
        left = left[:, None]
    elif ready.ndim < left.ndim:
        ready = ready[:, None]
    return (ready + left).max(axis=0)


def arrival_stall(*, wanted_s: Sequence[Quantity], arrival_s: Sequence[Quantity]) -> Quantity:
    r"""Extra time of a phase whose inputs arrive while it runs.

    .. math:: t = \max\Big(0, \max_i (a_i - w_i)\Big)

    Parameters
    ----------
    wanted_s : sequence of float, ndarray or sympy.Expr
        When each would be needed if no input were late, w. [s]
    arrival_s : sequence of float, ndarray or sympy.Expr
        When each arrives, a. [s]

    Returns
    -------
    float, ndarray or sympy.Expr
        Sum of all waits: each wait delays the need for all later inputs. [s]

    Notes
    -----
    Valid for: work in a fixed order, whose pieces keep their duration.

    Examples
    --------
    >>> float(arrival_stall(wanted_s=(0, 2, 5), arrival_s=(1, 2, 8)))
    3.0
    """
    late = [arrival - wanted for wanted, arrival in zip(wanted_s, arrival_s, strict=True)]
    return reduce(maximum, late, 0.0)


def exposed_exchange(*, last_end_s: Quantity, computed_s: Quantity) -> Quantity:
    """Return the time of the gradients' exchange that computing does not hide.

    Parameters
    ----------
    last_end_s : float, ndarray or sympy.Expr
        When the last message ends. [s]
    computed_s : float, ndarray or sympy.Expr
        When the last gradient is ready. [s]

    Returns
    -------
    float, ndarray or sympy.Expr
        Time that the update waits. [s]

    Notes
    -----
    Valid for: updates that begin when all gradients are there.

    Examples
    --------
    >>> float(exposed_exchange(last_end_s=0.065, computed_s=0.060))
    0.005
    """
    return maximum(last_end_s - computed_s, 0.0)


def slowed_exchange(
    *, ready_s: Quantities, message_s: Quantities, computed_s: Quantity, slowdown: Quantity
) -> Quantity:
    r"""Return the time that a hidden exchange adds to the computing it slows down.

    .. math:: w_i = \max(f_i, w_{i-1}) + (1 - \mu) c_i, \qquad
        T = \max(0, w_n - b) + \mu \sum_i c_i

    While a message is in flight, computing runs at (1 - mu) of its speed. Measured in work done, w, instead of time, a
    message is shorter by the work that computing loses; the lost time is added at the end.

    Parameters
    ----------
    ready_s : sequence of float, ndarray or sympy.Expr
        When each message could leave if none slowed the computing down, f, in the order in which they do. [s]
    message_s : sequence of float, ndarray or sympy.Expr
        What each takes by itself, c. [s]
    computed_s : float, ndarray or sympy.Expr
        When the last gradient would be ready, b. [s]
    slowdown : float, ndarray or sympy.Expr
        Share of the device that messages occupy, mu: from 0 to 1. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Time added to the step. [s]

    Notes
    -----
    Exact for one channel. Without slowdown it is the part that computing does not hide; with the whole device occupied
    it is the whole exchange. Valid for: all computing slowed by the same factor.

    Examples
    --------
    The messages of ``ends``, without slowdown and with a tenth of the device: 45 ms of messages cost 4.5 ms more work.

    >>> pieces = {"ready_s": (10, 30, 60), "message_s": (25, 15, 5), "computed_s": 60}
    >>> [float(slowed_exchange(slowdown=share, **pieces)) for share in (0, 0.1, 1)]
    [5.0, 9.0, 45.0]

    References
    ----------
    .. [1] S. Li et al., PyTorch distributed: experiences on accelerating data parallel training, PVLDB 13(12), 2020:
       computing and communication compete for the device.
    """
    if isinstance(slowdown, int | float) and not slowdown:
        return exposed_exchange(last_end_s=last_end(ready_s=ready_s, message_s=message_s), computed_s=computed_s)
    work = [(1 - slowdown) * taken for taken in message_s]
    hidden_until = last_end(ready_s=ready_s, message_s=work)
    lost = slowdown * sum(message_s[1:], message_s[0])
    return exposed_exchange(last_end_s=hidden_until, computed_s=computed_s) + lost


def turn_beside_messages(
    *, work_s: Quantity, left_s: Quantity, taken_s: Quantity, after_s: Quantity, slowdown: Quantity
) -> tuple[Quantity, Quantity]:
    r"""Return the time of a turn of a pipeline beside which messages are sent, and the time of those left at its end.

    .. math:: r = \max\left(r_0 + c - \frac{w}{1 - \mu}, \; a\right), \qquad t = w + \mu (r_0 + c - r)

    Parameters
    ----------
    work_s : float, ndarray or sympy.Expr
        What the turn takes without messages, w. [s]
    left_s : float, ndarray or sympy.Expr
        Messages of turns before that are still to be sent when it begins, r0. [s]
    taken_s : float, ndarray or sympy.Expr
        Messages that become ready during the turn, c. [s]
    after_s : float, ndarray or sympy.Expr
        Those of them left at its end if none were left before, a >= 0. [s]
    slowdown : float, ndarray or sympy.Expr
        Share of the device that messages occupy, mu: less than 1. [1]

    Returns
    -------
    tuple of 2 float, ndarray or sympy.Expr
        Duration of the turn, and messages left. [s]

    Notes
    -----
    Exact for one channel. A single turn, ``t + r - w``, takes the time that ``slowed_exchange`` adds.

    Examples
    --------
    The messages of ``slowed_exchange``: 45 ms with a tenth of the device, 5 of which are sent after 60 ms of work.

    >>> pieces = {"ready_s": (10, 30, 60), "message_s": (25, 15, 5), "computed_s": 60, "slowdown": 0.1}
    >>> turn_s, left_s = turn_beside_messages(work_s=60, left_s=0, taken_s=45, after_s=5, slowdown=0.1)
    >>> [float(seconds) for seconds in (turn_s, left_s, turn_s + left_s - 60, slowed_exchange(**pieces))]
    [64.0, 5.0, 9.0, 9.0]
    """
    remaining_s = maximum(left_s + taken_s - work_s / (1 - slowdown), after_s)
    return work_s + slowdown * (left_s + taken_s - remaining_s), remaining_s


def chained_exchange(
    *,
    ready_s: Quantities,
    message_s: tuple[Quantities, Quantities],
    computed_s: Quantity,
    slowdown: tuple[Quantity, Quantity],
    passes_s: Quantities | None = None,
    in_turn: bool = False,
) -> Quantity:
    r"""Return the time that messages add to computing if each is followed by another on a second channel.

    .. math:: s_i = \max(f_i, w_{i-1}), \quad
        p_i = \max\left(0, r_{i-1} - \frac{s_i - w_{i-1}}{1 - \nu}\right), \quad q_i = \max(0, p_i - a_i), \\
        w_i = s_i + (1 - \mu) c_i - \nu \min(q_i, c_i), \quad r_i = \max(0, q_i - c_i) + d_i, \\
        T = \max(0, w_n + (1 - \nu) r_n - b) + \sum_i (a_i + \mu c_i + \nu d_i - \nu (p_i - q_i))

    Ends w of the first messages are measured in work done, as in ``slowed_exchange``, and what the second channel still
    has to send, r, in its own time.

    Parameters
    ----------
    ready_s : sequence of float, ndarray or sympy.Expr
        When each message could leave if none slowed the computing down, f, in the order in which they do. [s]
    message_s : tuple of 2 sequences of float, ndarray or sympy.Expr
        Time of each by itself, c, and of the one that follows it, d. [s]
    computed_s : float, ndarray or sympy.Expr
        When the last gradient would be ready, b. [s]
    slowdown : tuple of 2 float, ndarray or sympy.Expr
        Share of the device that messages of either channel occupy, mu and nu: from 0 to less than 1. [1]
    passes_s : sequence of float, ndarray or sympy.Expr, or None
        Passes over what each message sends, a, just before it on the first channel; computing stands still meanwhile,
        and the second channel does not. None for none. [s]
    in_turn : bool
        Whether a message waits until the follower of the message before has ended, as on one channel. [-]

    Returns
    -------
    float, ndarray or sympy.Expr
        Time added to the step. [s]

    Notes
    -----
    Exact. Valid for: channels that share no link, and shares of the device that add up while both are busy. With
    nothing to follow it is ``slowed_exchange``.

    Examples
    --------
    Gradients are scattered in 25, 15 and 5 ms, and shares of them added up in 20, 10 and 10 ms, beside and in turn:

    >>> pieces = {"ready_s": (10, 30, 60), "message_s": ((25, 15, 5), (20, 10, 10)), "computed_s": 60}
    >>> [float(chained_exchange(slowdown=(0, 0), in_turn=in_turn, **pieces)) for in_turn in (False, True)]
    [15.0, 35.0]
    >>> float(chained_exchange(slowdown=(0.1, 0.05), **pieces))
    20.5

    References
    ----------
    .. [1] Y. Zhao et al., PyTorch FSDP: experiences on scaling fully sharded data parallel, VLDB 2023,
       arXiv:2304.11277, section 3.2.2 (hybrid sharding).
    """
    taken, following = slowdown
    lost: Quantity = 0
    end: Quantity = 0  # before that, nothing is ready
    left: Quantity = 0
    before_s = [0.0] * len(ready_s) if passes_s is None else passes_s
    for ready, passed_s, first_s, second_s in zip(ready_s, before_s, *message_s, strict=True):
        start = named(maximum(ready, end), "start of message")
        left = maximum(left - (start - end) / (1 - following), 0)
        if passes_s is not None:
            lost = lost + passed_s - following * minimum(left, passed_s)
            left = named(maximum(left - passed_s, 0), "messages to follow")
        end = named(start + (1 - taken) * first_s - following * minimum(left, first_s), "end of message")
        left = named(maximum(left - first_s, 0) + second_s, "messages to follow")
        lost = lost + taken * first_s + following * second_s
        if in_turn:
            end, left = named(end + (1 - following) * left, "end of both messages"), 0
    return exposed_exchange(last_end_s=end + (1 - following) * left, computed_s=computed_s) + lost


def buckets(sizes_bytes: Iterable[float], *, least_bytes: float) -> list[slice]:
    """Merge consecutive messages until each bucket holds at least a given size.

    Parameters
    ----------
    sizes_bytes : sequence of float
        Messages in the order in which they become ready. [B]
    least_bytes : float
        A bucket is full once it holds this; 0 keeps every message apart, infinity merges all. [B]

    Returns
    -------
    list of slice
        Messages of each bucket; the last may hold less. [-]

    Notes
    -----
    Valid for: whole messages, as frameworks put whole tensors into a bucket. Ignores: a first bucket of another size.

    Examples
    --------
    >>> buckets([10, 10, 30, 5], least_bytes=20)
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None)]

    References
    ----------
    .. [1] S. Li et al., PyTorch distributed: experiences on accelerating data parallel training, PVLDB 13(12), 2020.
    """
    messages, start, held, end = [], 0, 0.0, 0
    plain = sizes_bytes.tolist() if isinstance(sizes_bytes, np.ndarray) else sizes_bytes
    for end, size in enumerate(plain, start=1):
        held += size
        if held >= least_bytes:
            messages.append(slice(start, end))
            start, held = end, 0.0
    return [*messages, slice(start, end)] if start < end else messages


def bucket_sums(values: Any, slices: Sequence[slice]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the sum of each bucket's values.

    Parameters
    ----------
    values : array_like, shape (messages,)
        Sizes of messages. [B]
    slices : sequence of slice
        Messages of each bucket, one after the other. [-]

    Returns
    -------
    ndarray, shape (buckets,)
        Sizes of the buckets. [B]

    Notes
    -----
    Valid for: buckets that together hold every message once, in order.

    Examples
    --------
    >>> bucket_sums([10, 10, 30], [slice(0, 2), slice(2, 3)])
    array([20., 30.])
    """
    starts = np.array([part.start for part in slices], dtype=np.intp)
    sums: np.ndarray[Any, np.dtype[np.float64]] = np.add.reduceat(np.asarray(values, dtype=float), starts)
    return sums


Times = NDArray[np.float64]

MOST_PLANS: Final = 50
"""Partial plans kept for each gradient: the most promising ones. [1]"""

MOST_COMPARED: Final = 200
"""Most partial plans that are compared with one another: the most promising ones. [1]"""

SAME: Final = 1e-12
"""Partial plans count as equal if they differ by at most this share of the longest time. [1]"""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Lane:
    r"""A resource that messages use one after the other, and when it becomes free.

    .. math:: x \leftarrow \max(x, f_{ij}) + c_{ij}

    Parameters
    ----------
    floor_s : ndarray, shape (layers, layers)
        When a message with the gradients i to j may begin there, f; only j >= i is used. [s]
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
    r"""Merge consecutive gradients so that the exchange costs the step least.

    .. math:: e_j = \min_{i \le j} \left[\max(f_j, e_{i-1}) + c_{ij}\right]

    Parameters
    ----------
    lanes : sequence of Lane
        Resources that messages pass in turn. [s]
    cost_s : callable
        Takes the ends of some plans on all lanes, shape (lanes, plans), and returns the cost of each plan, shape
        (plans,), which never falls if an end is later. [s]

    Returns
    -------
    list of slice
        Gradients of each message. [-]

    Notes
    -----
    A dynamic programme over the last gradient sent, in which a plan is dropped if another ends no later on any lane, or
    if it must cost more than a known one. With one lane, one plan is left for each gradient: the result is exact for
    any cost of a message, and the work grows with the square of the number of gradients. With more lanes several plans
    are left, each better than the others on one lane: exact up to ``MOST_PLANS`` plans; beyond that the most promising
    are kept, and the result is no worse than a single message or one per gradient. The rule of [1]_ merges a gradient
    with the next one if waiting for it costs less than the latency of another message; it holds for messages that cost
    a latency and their bytes, whereas any cost is allowed here.

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
    good_s, good = min(known, key=lambda plan: plan[0])
    # a plan dropped for an equal one may be cheaper by a rounding error for each gradient
    best_s, best = programme.solved(limit_s=good_s + (count + 1) * programme.within, most_plans=MOST_PLANS)
    return best if best_s <= good_s + (count + 1) * programme.within else good


class _Programme:
    """The dynamic programme, and a lower bound on the rest of any plan from each gradient on."""

    def __init__(self, lanes: Sequence[Lane], *, cost_s: Callable[[Times], Times], within: float) -> None:
        self.lanes, self.cost_s, self.within = lanes, cost_s, within
        self.count = len(lanes[0].floor_s)
        self.free = np.array([[np.min(lane.floor_s[i, i:]) for i in range(self.count)] for lane in lanes])
        self.left = np.array([_least_left(lane.taken_s) for lane in lanes])

    def cost(self, plan: Sequence[slice]) -> float:
        """Return the time of a plan of messages. [s]"""
        ends = self.free[:, :1]
        for message in plan:
            ends = self._passed(ends, np.array([message.start]), message.stop - 1)
        return float(self.cost_s(ends)[0])

    def solved(self, *, limit_s: float, most_plans: int) -> tuple[float, list[slice]]:
        """Return the cost of the cheapest plan that costs no more than a limit [s], and its messages.

        With few plans kept for each gradient it need not be the cheapest, but others can be compared with it.
        """
        ends = self.free[:, :1]
        starts, parents = (
            np.zeros(1, dtype=int),
            np.full(1, -1),
        )  # of each plan: its next gradient, the plan it extends
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
        """Return the time up to which each lane is surely idle before a message that begins with this gradient. [s]"""
        lanes = zip(self.lanes, self.free[:, first], strict=True)
        return np.array([-np.inf if lane.after_the_one_before else free for lane, free in lanes])

    def _passed(self, ends: Times, starts: NDArray[np.int_], last: int) -> Times:
        """Return the ends of all plans after one more message with all gradients up to a given last one."""
        ends_s: list[Times] = []
        for lane, busy in zip(self.lanes, ends, strict=True):
            begin = np.maximum(busy, lane.floor_s[starts, last])
            if lane.after_the_one_before:
                begin = np.maximum(begin, ends_s[-1])
            ends_s.append(begin + lane.taken_s[starts, last])
        return np.array(ends_s)


def _least_left(taken_s: Times) -> Times:
    """Return a lower bound on the time of all gradients from each one on, for any messages; zero after the last. [s]"""
    count = len(taken_s)
    left = np.zeros(count + 1)
    for first in reversed(range(count)):
        left[first] = np.min(taken_s[first, first:] + left[first + 1 :])
    return left


def _best(ends: Times, *, within: float) -> NDArray[np.int_]:
    """Return the positions of plans that no other matches on every lane; of equal plans, that of the first."""
    as_good = np.all(ends[:, :, None] <= ends[:, None, :] + within, axis=0)
    # of two equal plans the first stays
    beaten = as_good & (~as_good.T | np.triu(np.ones_like(as_good), k=1))
    return np.flatnonzero(~np.any(beaten, axis=0))


def _traced(starts: NDArray[np.int_], parents: NDArray[np.int_]) -> list[slice]:
    """Return the messages of the last plan found."""
    messages = []
    plan = len(starts) - 1
    while parents[plan] >= 0:
        messages.append(slice(int(starts[parents[plan]]), int(starts[plan])))
        plan = int(parents[plan])
    return messages[::-1]
