"""What a byte costs that is in no cache, from kernels that were timed hot and after a flush."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

FEWEST: Final = 4
"""Kernels below which a line through their times tells nothing, and one through the origin has to do [1]."""

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
        :math:`B e^{-B / C}`. [B]

    Examples
    --------
    >>> flushed_bytes([1e6, 1e8], reuse_bytes=1e8).round(-4).tolist()
    [990000.0, 36790000.0]
    """
    moved = np.asarray(moved_bytes, dtype=np.float64)
    kept: NDArray[np.float64] = moved * np.exp(-moved / reuse_bytes)
    return kept


def cold_rate(
    hot_s: Sequence[float], flushed_s: Sequence[float], moved_bytes: Sequence[float], *, reuse_bytes: float
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

    Returns
    -------
    float
        Slope r of :math:`t_\text{flushed} - t_\text{hot} = a + r B e^{-B / C}`, with a and r at least 0. [s/B]

    Notes
    -----
    A flush also drives the kernel's instructions and the library's tables out of the caches. That takes a time for
    each kernel, a, whatever its size: small kernels would have it look like a price of many bytes. No step pays it
    anew, as its kernels come again and again; so it is fitted beside the slope, and dropped.

    A long kernel's times differ by more than the flush adds, so each kernel counts by its own time; and one that is
    far off the line counts less (soft L1). Those that move more than C are left out: of their data a flush finds
    little in a cache, and B exp(-B / C) falls while they grow.

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
        return 0.0
    extra, hot = (flushed - hot)[told], hot[told]
    gone = flushed_bytes(moved[told], reuse_bytes=reuse_bytes)
    through_origin = max(float(extra.sum() / gone.sum()), 0.0)
    if len(extra) < FEWEST or through_origin == 0:
        return through_origin
    return _slope(gone, extra, noise=hot + LEAST_NOISE_S, rough=through_origin)


def _slope(gone: NDArray[np.float64], extra: NDArray[np.float64], *, noise: NDArray[np.float64], rough: float) -> float:
    """Return the slope of a robust line whose ends are not below zero; ``rough`` is its size."""
    from scipy.optimize import least_squares

    scale = np.array([rough * float(gone.mean()), rough])
    line = np.stack([np.full_like(gone, scale[0]), gone * scale[1]], axis=1)

    def off(at: NDArray[np.float64]) -> NDArray[np.float64]:
        distance: NDArray[np.float64] = (line @ at - extra) / noise
        return distance

    found = least_squares(off, [0.5, 0.5], bounds=(0, np.inf), loss="soft_l1")
    return float(found.x[1] * rough)
