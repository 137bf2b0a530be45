"""Messages that leave while back-propagation still runs: when each is through, and which share a bucket.

A layer's gradient is ready before those of the layers below it, and can be exchanged while they are computed. One
channel carries the messages in the order in which their gradients become ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from perfmodel.numeric import maximum
from perfmodel.symbolic import Quantity, is_symbolic, named


def ends(*, ready_s: Sequence[Quantity], message_s: Sequence[Quantity]) -> tuple[Quantity, ...]:
    r"""When each of some messages is through that follow one another on one channel.

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
        Ends, which may be when the next channel could take each. [s]

    Notes
    -----
    Valid for: messages in the given order, one at a time. A recurrence over messages; times may be arrays or symbols.
    Ignores: that messages slow the computing down while they pass: see ``slowed_exchange``.

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
    found: list[Quantity] = []
    symbolic = is_symbolic(*ready_s, *message_s)
    larger = maximum if symbolic else np.maximum  # asked once, not of every message
    for ready, taken in zip(ready_s, message_s, strict=True):
        end = (larger(ready, found[-1]) if found else ready) + taken
        found.append(named(end, "end of message") if symbolic else end)
    return tuple(found)


def arrival_stall(*, wanted_s: Sequence[Quantity], arrival_s: Sequence[Quantity]) -> Quantity:
    r"""How much longer a phase takes that wants things which arrive while it runs.

    .. math:: t = \max\Big(0, \max_i (a_i - w_i)\Big)

    Parameters
    ----------
    wanted_s : sequence of float, ndarray or sympy.Expr
        When each would be wanted if nothing were waited for, w. [s]
    arrival_s : sequence of float, ndarray or sympy.Expr
        When each arrives, a. [s]

    Returns
    -------
    float, ndarray or sympy.Expr
        All waits together: what is wanted after one is wanted that much later. [s]

    Notes
    -----
    Valid for: work in one order, whose pieces keep their length.

    Examples
    --------
    >>> float(arrival_stall(wanted_s=(0, 2, 5), arrival_s=(1, 2, 8)))
    3.0
    """
    late = [arrival - wanted for wanted, arrival in zip(wanted_s, arrival_s, strict=True)]
    return reduce(maximum, late, 0.0)


def exposed_exchange(*, last_end_s: Quantity, computed_s: Quantity) -> Quantity:
    """Return what computing does not hide of the exchange of gradients.

    Parameters
    ----------
    last_end_s : float, ndarray or sympy.Expr
        When the last message is through. [s]
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
    *, ready_s: Sequence[Quantity], message_s: Sequence[Quantity], computed_s: Quantity, slowdown: Quantity
) -> Quantity:
    r"""Return what an exchange adds to computing that it hides behind and slows down.

    .. math:: w_i = \max(f_i, w_{i-1}) + (1 - \mu) c_i, \qquad
        T = \max(0, w_n - b) + \mu \sum_i c_i

    While a message is on the way computing runs (1 - mu) as fast. Counted in the work that is done, w, not in time, a
    message is shorter by what computing loses; the time that was lost comes on top.

    Parameters
    ----------
    ready_s : sequence of float, ndarray or sympy.Expr
        When each message could leave if none slowed the computing down, f, in the order in which they do. [s]
    message_s : sequence of float, ndarray or sympy.Expr
        What each takes by itself, c. [s]
    computed_s : float, ndarray or sympy.Expr
        When the last gradient would be ready, b. [s]
    slowdown : float, ndarray or sympy.Expr
        Share of the device that messages keep from the computing, mu: from 0 to 1. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Time that the step is longer. [s]

    Notes
    -----
    Exact for one channel. Without slowdown it is what computing does not hide; with all of the device taken it is the
    whole exchange. Valid for: computing that is slowed alike, whatever it does.

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
        return exposed_exchange(last_end_s=ends(ready_s=ready_s, message_s=message_s)[-1], computed_s=computed_s)
    work = [(1 - slowdown) * taken for taken in message_s]
    hidden_until = ends(ready_s=ready_s, message_s=work)[-1]
    lost = slowdown * sum(message_s[1:], message_s[0])
    return exposed_exchange(last_end_s=hidden_until, computed_s=computed_s) + lost


def buckets(sizes_bytes: Iterable[float], *, least_bytes: float) -> list[slice]:
    """Merge messages that follow one another until each bucket holds as many bytes as asked.

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
    found, start, held, end = [], 0, 0.0, 0
    plain = sizes_bytes.tolist() if isinstance(sizes_bytes, np.ndarray) else sizes_bytes
    for end, size in enumerate(plain, start=1):
        held += size
        if held >= least_bytes:
            found.append(slice(start, end))
            start, held = end, 0.0
    return [*found, slice(start, end)] if start < end else found


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
