"""Buckets: gradients that share a message, as frameworks put whole tensors into one until it is full."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np


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
