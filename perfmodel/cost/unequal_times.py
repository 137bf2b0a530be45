"""Workers of unequal speed: each takes its own time in every step, which lasts and is not drawn anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from perfmodel.cost.given_numbers import checked_times
from perfmodel.cost.order_statistics import RelativeTimes, checked_ranks
from perfmodel.errors import ArgumentError
from perfmodel.symbolic import Quantity

if TYPE_CHECKING:
    from numpy.typing import NDArray

AS_PREDICTED: Final = 1.0
"""Relative time of a worker that takes as long as was predicted for its device. [1]"""


@dataclass(frozen=True)
class Unequal(RelativeTimes):
    """One lasting time for each worker, relative to what was predicted for its device.

    Parameters
    ----------
    times : sequence of float
        In the order of the workers, above zero: 2.0 is a worker twice as slow as predicted. Their mean is not made
        1. [1]

    Examples
    --------
    >>> times = Unequal([1.0, 1.0, 2.0, 1.5])
    >>> [times.order_statistic(rank=rank, count=4) for rank in (4, 3)]
    [2.0, 1.5]
    >>> times.kinds(worker_count=4, group_size=2)  # groups of neighbours, as slow as the slowest in each
    ((1, 1.0), (1, 2.0))
    """

    name = "unequal"
    times: Sequence[float]

    def __post_init__(self) -> None:
        given = checked_times(self.times, allowed="a list of numbers above zero, one for each worker")
        object.__setattr__(self, "times", given)

    @property
    def variation(self) -> float:
        """Coefficient of variation of one worker's time from step to step: none. [1]"""
        return 0.0

    @property
    def lasting_count(self) -> int:
        """Workers that there are times of. [1]"""
        return len(self.times)

    def of_first(self, worker_count: int) -> Unequal:
        """Return the times of the first workers; all where there are no more."""
        return Unequal(self.times[:worker_count])

    def order_statistic(self, *, rank: Quantity, count: Quantity) -> Quantity:
        """Return the rank-th smallest of the times of all workers."""
        ranks, counts = checked_ranks(rank, count)
        if np.any(counts != len(self.times)):
            raise ArgumentError("times", self.times, f"one time for each of the {count} workers")
        ordered = np.sort(np.asarray(self.times))[ranks - 1]
        return ordered if ranks.ndim else float(ordered)

    def kinds(self, *, worker_count: Quantity, group_size: int) -> tuple[tuple[Quantity, Quantity], ...]:
        """Return how many groups there are of each speed, the fastest first: a group waits for its slowest."""
        if worker_count != len(self.times):
            raise ArgumentError("times", self.times, f"one time for each of the {worker_count} workers")
        slowest = np.asarray(self.times).reshape(-1, group_size).max(axis=1)
        return tuple((count, relative) for relative, count in sorted(Counter(slowest.tolist()).items()))

    def draw(self, count: int, *, generator: np.random.Generator) -> NDArray[np.float64]:
        """Return the times of all workers, step after step; nothing is drawn."""
        return np.resize(np.asarray(self.times), count)
