"""Gradients in the messages that carry them: layer by layer, in buckets of a size, or merged for the shortest step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perfmodel.cost.merging import Lane, cheapest_messages, spans
from perfmodel.cost.overlap import bucket_sums
from perfmodel.numeric import minima_of_runs
from perfmodel.prediction.arguments.table import MERGED as MERGED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perfmodel.prediction.gradients import GradientSchedule


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Buckets:
    """Gradients in the messages that carry them, in the order in which they become ready.

    Parameters
    ----------
    sizes_bytes : ndarray, shape (buckets,)
        Messages. [B]
    ready_s, wanted_s : ndarray, shape (buckets,) or (buckets, configurations)
        When each is ready in the backward phase, and wanted in the next forward phase. [s]
    """

    sizes_bytes: NDArray[np.float64]
    ready_s: NDArray[np.float64]
    wanted_s: NDArray[np.float64]

    @classmethod
    def of(cls, schedule: GradientSchedule, slices: Sequence[slice]) -> Buckets:
        """Put gradients in messages.

        Parameters
        ----------
        schedule : GradientSchedule
            When they are ready and wanted. [s]
        slices : sequence of slice
            Gradients of each message. [-]

        Returns
        -------
        Buckets
            A message is ready with its last gradient, and wanted with the first weights that it brings. [-]
        """
        if len(slices) == len(schedule.layers):  # every layer by itself
            return cls(sizes_bytes=schedule.sizes_bytes, ready_s=schedule.ready_s, wanted_s=schedule.wanted_s)
        starts = np.array([each.start for each in slices], dtype=np.intp)
        return cls(
            sizes_bytes=bucket_sums(schedule.sizes_bytes, slices),
            ready_s=schedule.ready_s[[each.stop - 1 for each in slices]],
            wanted_s=minima_of_runs(schedule.wanted_s, starts),
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Stretches:
    """Every message that gradients which follow one another could share; of configurations, at their mean times.

    Parameters
    ----------
    sizes_bytes : ndarray, shape (layers, layers)
        Message with the gradients i to j; only j >= i counts. [B]
    ready_s, wanted_s : ndarray, shape (layers, layers)
        When each is ready, and wanted. [s]
    backward_s : float
        When the last gradient is ready. [s]
    """

    sizes_bytes: NDArray[np.float64]
    ready_s: NDArray[np.float64]
    wanted_s: NDArray[np.float64]
    backward_s: float

    @classmethod
    def of(cls, schedule: GradientSchedule) -> Stretches:
        """Return those of a step's gradients."""
        count = len(schedule.layers)
        ready_s, wanted_s = (
            np.broadcast_to(each.reshape(count, -1).mean(axis=1), (count, count))
            for each in (schedule.ready_s, schedule.wanted_s)
        )
        from_first_on = np.where(np.tri(count, k=-1, dtype=bool), np.inf, wanted_s)
        first_wanted_s = np.minimum.accumulate(from_first_on, axis=1)
        return cls(
            sizes_bytes=spans(schedule.sizes_bytes),
            ready_s=ready_s,
            wanted_s=np.where(np.isfinite(first_wanted_s), first_wanted_s, 0.0),
            backward_s=float(np.mean(schedule.backward_s)),
        )


def merged_reduced(stretches: Stretches, *, message_s: NDArray[np.float64], slowdown: float) -> list[slice]:
    """Merge gradients that workers add up among themselves.

    Parameters
    ----------
    stretches : Stretches
        All messages there may be. [-]
    message_s : ndarray, shape (layers, layers)
        What each takes. [s]
    slowdown : float
        Share of a device that messages keep from computing; 1 where nothing is computed meanwhile. [1]

    Returns
    -------
    list of slice
        Gradients of each message. [-]
    """
    sent = Lane(floor_s=stretches.ready_s, taken_s=(1 - slowdown) * message_s)
    lost = Lane(floor_s=np.zeros_like(message_s), taken_s=slowdown * message_s)
    if slowdown in (0, 1):
        return cheapest_messages([lost if slowdown else sent], cost_s=lambda until: until[0])
    return cheapest_messages([sent, lost], cost_s=lambda until: np.maximum(until[0], stretches.backward_s) + until[1])


def merged_served(
    stretches: Stretches,
    *,
    push_s: NDArray[np.float64],
    serve_s: NDArray[np.float64],
    pull_s: NDArray[np.float64],
    overlap: bool,
) -> list[slice]:
    """Merge gradients that go through a server, whose parameters come back last message first.

    Parameters
    ----------
    stretches : Stretches
        All messages there may be. [-]
    push_s, serve_s, pull_s : ndarray, shape (layers, layers)
        What each takes there, at the server, and back. [s]
    overlap : bool
        Whether workers compute meanwhile. [-]

    Returns
    -------
    list of slice
        Gradients of each message. [-]
    """
    idle = np.zeros_like(push_s)
    if not overlap:
        return cheapest_messages([Lane(floor_s=idle, taken_s=push_s + serve_s + pull_s)], cost_s=lambda until: until[0])
    lanes = [
        Lane(floor_s=stretches.ready_s, taken_s=push_s),
        Lane(floor_s=idle, taken_s=serve_s, after_the_one_before=True),
        # how late the next forward phase is: parameters of a message come after those of all later ones
        Lane(floor_s=-stretches.wanted_s, taken_s=pull_s),
    ]
    return cheapest_messages(
        lanes, cost_s=lambda until: np.maximum(until[1], stretches.backward_s) + np.maximum(until[2], 0.0)
    )
