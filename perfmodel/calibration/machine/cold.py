"""What a byte costs that is in no cache, and after how much other traffic data has left it.

The first is told by kernels that were timed hot and after a flush, the second by one copy that was timed after reading
more and more other memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from perfmodel.cost.measured_kernel import cold_share

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEWEST: Final = 4
"""Kernels below which a line through their times tells nothing, and one through the origin has to do [1]."""

DISTANCES: Final = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
"""Shares of the memory that a flush reads, after which the copy is timed [1]."""

TRIED: Final = 64
"""Capacities that are tried [1]."""

WIDEST: Final = 4.0
"""Largest of them over the largest distance: beyond, the curve is a straight line and tells no capacity [1]."""

CLEAR_SHARE: Final = 0.1
"""Slowing of the copy, over its time, below which nothing is told of what has left the caches [1]."""

COPY_SPREAD: Final = 0.5
"""How far the slope of kernels may lie from that of one copy, as a standard deviation [1]."""

NOISE_SHARE: Final = 0.2
"""Noise of a kernel's time after a flush, as a share of its time before [1]."""

HALF_OF_SPREAD: Final = 0.74
"""Half of a standard deviation over the median distance from the median [1]."""

LEAST_NOISE_S: Final = 1e-6
"""Noise of a time that is there at least [s]."""


def flushed_bytes(moved_bytes: Sequence[float] | NDArray[np.float64], *, reuse_bytes: float) -> NDArray[np.float64]:
    r"""Return the bytes that a flush puts out of the caches: those that a kernel run over and over finds in one.

    Parameters
    ----------
    moved_bytes : sequence of float or ndarray
        Traffic of kernels, B. [B]
    reuse_bytes : float
        Other traffic after which data has left the caches, C. [B]

    Returns
    -------
    ndarray
        :math:`B e^{-(B / C)^2}`. [B]

    Examples
    --------
    >>> flushed_bytes([1e6, 1e8], reuse_bytes=1e8).round(-4).tolist()
    [1000000.0, 36790000.0]
    """
    moved = np.asarray(moved_bytes, dtype=np.float64)
    kept: NDArray[np.float64] = moved * (1 - cold_share(distance_bytes=moved, cache_bytes=reuse_bytes))
    return kept


def cold_rate(
    hot_s: Sequence[float],
    flushed_s: Sequence[float],
    moved_bytes: Sequence[float],
    *,
    reuse_bytes: float,
    of_copy: float | None = None,
) -> float:
    r"""Return the time that a byte takes longer which is in no cache.

    Parameters
    ----------
    hot_s, flushed_s : sequence of float
        Times of the same kernels run over and over, and run once after the caches were flushed. [s]
    moved_bytes : sequence of float
        Their traffic, B. [B]
    reuse_bytes : float
        Other traffic after which data has left the caches, C. [B]
    of_copy : float or None
        What one copy, timed again and again, says of it: the slope is drawn to it. [s/B]

    Returns
    -------
    float
        Slope r of :math:`t_\text{flushed} - t_\text{hot} = a + r B e^{-(B / C)^2}`, with a and r at least 0. [s/B]

    Notes
    -----
    A flush also drives the kernel's instructions and the library's tables out of the caches. That takes a time for
    each kernel, a, whatever its size: small kernels would have it look like a price of many bytes. No step pays it
    anew, as its kernels come again and again; so it is fitted beside the slope, and dropped.

    What a flush adds to a kernel differs from one to the next by half of what it adds, and a long kernel's times differ
    by a share of themselves: a kernel counts by both, and one that is far off the line counts less (soft L1). Those
    that move more than C are left out: of their data a flush finds little in a cache, and B exp(-(B / C)^2) falls while
    they grow.

    Examples
    --------
    Half of a gigabyte per second and 20 us for each kernel:

    >>> moved = [1e5, 3e5, 1e6, 3e6]
    >>> flushed = [1e-4 + 2e-5 + 2e-9 * each for each in flushed_bytes(moved, reuse_bytes=1e7)]
    >>> cold_rate([1e-4] * 4, flushed, moved, reuse_bytes=1e7)
    2e-09
    """
    hot, flushed = np.asarray(hot_s, dtype=np.float64), np.asarray(flushed_s, dtype=np.float64)
    moved = np.asarray(moved_bytes, dtype=np.float64)
    told = moved <= reuse_bytes
    if not told.any():
        return of_copy or 0.0
    extra, hot = (flushed - hot)[told], hot[told]
    gone = flushed_bytes(moved[told], reuse_bytes=reuse_bytes)
    through_origin = max(float(extra.sum() / gone.sum()), 0.0)
    rough = of_copy or through_origin
    if len(extra) < FEWEST or rough == 0:
        return rough
    scattered = HALF_OF_SPREAD * float(np.median(np.abs(extra - np.median(extra))))
    noise = np.hypot(NOISE_SHARE * hot, scattered) + LEAST_NOISE_S
    return _slope(gone, extra, noise=noise, rough=rough, drawn_to=of_copy)


@dataclass(frozen=True, slots=True)
class Reuse:
    """When data leaves the caches, and what it costs then, as one copy shows it.

    Parameters
    ----------
    capacity_bytes : float
        Other traffic after which data has left, all but 1/e of it. [B]
    cold_s_per_byte : float
        Time that a byte takes longer then. [s/B]
    """

    capacity_bytes: float
    cold_s_per_byte: float


def reuse_of(distances: Sequence[float], seconds: Sequence[float], *, hot_s: float, moved_bytes: float) -> Reuse | None:
    r"""Return after how much other traffic data has left the caches, and what it costs.

    Parameters
    ----------
    distances : sequence of float
        Other traffic between two runs of one copy, D. [B]
    seconds : sequence of float
        Its time after each. [s]
    hot_s : float
        Its time when it is run over and over. [s]
    moved_bytes : float
        Its own traffic, B. [B]

    Returns
    -------
    Reuse or None
        C and r of :math:`t = t_\text{hot} + a + r B e^{-(B / C)^2} (1 - e^{-(D / C)^2})`, with a and r at least 0, by
        least squares; None where the copy is hardly slower after any distance. [-]

    Examples
    --------
    >>> distances = [2e6, 4e6, 8e6, 16e6, 32e6, 64e6]
    >>> seconds = [1e-3 + 2e-5 + 1e-3 * (1 - np.exp(-((each / 16e6) ** 2))) for each in distances]
    >>> found = reuse_of(distances, seconds, hot_s=1e-3, moved_bytes=1e6)
    >>> round(found.capacity_bytes / 1e6), round(found.cold_s_per_byte * 1e9, 2)
    (16, 1.0)
    """
    from scipy.optimize import nnls

    apart, extra = np.asarray(distances, dtype=np.float64), np.asarray(seconds, dtype=np.float64) - hot_s
    if extra.max() - extra.min() < CLEAR_SHARE * hot_s:
        return None
    best = (np.inf, 0.0, 0.0)
    for capacity in np.geomspace(apart.min(), WIDEST * apart.max(), TRIED):
        shape = np.stack([np.ones_like(apart), cold_share(distance_bytes=apart, cache_bytes=capacity)], axis=1)
        parts, off = nnls(shape, np.maximum(extra, 0.0))
        best = min(best, (float(off), float(capacity), float(parts[1])))
    _, capacity, whole_s = best
    return Reuse(capacity, whole_s / float(flushed_bytes([moved_bytes], reuse_bytes=capacity)[0]))


def _slope(
    gone: NDArray[np.float64],
    extra: NDArray[np.float64],
    *,
    noise: NDArray[np.float64],
    rough: float,
    drawn_to: float | None,
) -> float:
    """Return the slope of a robust line whose ends are not below zero; ``rough`` is its size."""
    from scipy.optimize import least_squares

    scale = np.array([rough * float(gone.mean()), rough])
    line = np.stack([np.full_like(gone, scale[0]), gone * scale[1]], axis=1)

    def off(at: NDArray[np.float64]) -> NDArray[np.float64]:
        distance: NDArray[np.float64] = (line @ at - extra) / noise
        if drawn_to:
            distance = np.append(distance, (at[1] * rough / drawn_to - 1) / COPY_SPREAD)
        return distance

    found = least_squares(off, [0.5, 0.5], bounds=(0, np.inf), loss="soft_l1")
    return float(found.x[1] * rough)
