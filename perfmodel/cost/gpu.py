"""Time of a GPU's two kernel classes: tiled matrix products and streams.

A matrix product is cut into tiles, the tiles are dealt to the processor's units (streaming multiprocessors),
and the busiest unit decides. A library owns several tile shapes and can split the sum, so the fastest entry
of its menu is taken. A stream's time is that of its traffic, plus the time to bring the memory system up to speed.

Weights read across their layout in memory are fetched in short pieces of many rows; tensor cores are fed by loads of
16 B, so rows must start at multiples of 16 B.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from perfmodel.kernels import LOAD_BYTES
from perfmodel.numeric import ceil, ceil_ratio, exceeds, maximum, minimum, minimum_along_first_axis, where
from perfmodel.symbolic import Quantity

if TYPE_CHECKING:
    from numpy.typing import NDArray


SKINNY_EXTENT = 32
"""Largest extent of a matrix product's result that counts as skinny. [1]"""


class TileMenu(NamedTuple):
    """The tiles that a product chooses from, with quantities derived from them: see ``tile_menu``.

    Parameters
    ----------
    rows, columns, split : ndarray
        Extents of each entry's tile, a and b, and the parts into which it cuts the sum, s. [1]
    area_per_rate : ndarray
        Results of a tile divided by its rate relative to the largest tile, a b / e. [1]
    written_parts : ndarray
        Parts of the sum that pass through memory: none if the sum is not split. [1]
    """

    rows: NDArray[np.float64]
    columns: NDArray[np.float64]
    split: NDArray[np.float64]
    area_per_rate: NDArray[np.float64]
    written_parts: NDArray[np.float64]

    def before(self, axes: int) -> TileMenu:
        """Return the menu with axes of length one appended, as many as the product has."""
        if self.rows.ndim > axes:
            return self
        return TileMenu(*(_followed_by_axes(entries, axes + 1 - self.rows.ndim) for entries in self))


def _followed_by_axes(entries: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Append axes of length one."""
    return entries.reshape(*entries.shape, *(1,) * count)


def tile_menu(*, tile_rows: Any, tile_columns: Any, tile_efficiency: Any, split_k: Any) -> TileMenu:
    """Return the tiles that a product chooses from.

    Parameters
    ----------
    tile_rows, tile_columns : sequence of float, shape (menu,)
        Extents of each entry's tile, a and b. [1]
    tile_efficiency : sequence of float, shape (menu,) or (menu, rows)
        Rate inside each entry's tile relative to the largest tile, e; by row where rows choose from different
        menus (an entry that is not offered to a row has a very small one). [1]
    split_k : sequence of float, shape (menu,)
        Parts into which each entry cuts the sum, s >= 1. All four may instead have any menu axes that broadcast, such
        as (tiles, 1) and (1, splits), followed by the axes of the products. [1]

    Returns
    -------
    TileMenu
        For ``tiled_matmul_time``. [-]

    Examples
    --------
    >>> tile_menu(tile_rows=[128, 64], tile_columns=[64, 64], tile_efficiency=[1.0, 0.5], split_k=[1, 4]).written_parts
    array([0., 4.])
    """
    entries = [np.asarray(column, dtype=float) for column in (tile_rows, tile_columns, tile_efficiency, split_k)]
    axes = max(column.ndim for column in entries)
    a, b, e, s = (_followed_by_axes(column, axes - column.ndim) for column in entries)
    return TileMenu(a, b, s, a * b / e, (s > 1) * s)


def tiled_matmul_time(
    *,
    m: Quantity,
    n: Quantity,
    k: Quantity,
    count: Quantity = 1,
    peak_flop_per_s: Quantity,
    unit_count: Quantity,
    bandwidth_bytes_per_s: Quantity,
    menu: TileMenu,
    efficiency: Quantity = 1.0,
    element_bytes: int = 4,
    latency_s: Quantity = 0.0,
    ramp_steps: Quantity = 0.0,
    shortest_part: Quantity = 0.0,
) -> Quantity:
    r"""Time of the arithmetic of ``count`` matrix products in one launch, by the best entry of a tile menu.

    .. math::

        t = \min_{(a, b, e, s)} \left[ \frac{1}{\eta} \left(k_s + k_0\right)
            \left( \frac{2 U}{F} \left\lceil \frac{c\, s \lceil m/a \rceil \lceil n/b \rceil}{U} \right\rceil
            \frac{a b}{e} + \tau \right) + [s > 1] \frac{2\, s\, c\, m n\, z}{B} \right], \quad
        k_s = \max\left(\frac{k}{s}, \min(k, q \max(m, n))\right)

    The first ceiling pads the result to whole tiles, the second deals the tiles to U units: the busiest unit
    sets the pace (wave quantisation per unit). Tiles that share a unit share its lanes, so they take turns
    whether or not they are resident together; what residency hides is the latency of each step of the sum,
    which L gives once per unit. Splitting the sum s ways makes s times the tiles, for partial results that
    are written and read once more. A library that splits only sums far longer than the result's extents leaves no
    part shorter than q times the longer of them; sums below that are not split.

    Parameters
    ----------
    m, n, k : float, ndarray or sympy.Expr
        Rows and columns of one result, and length of the sum. [1]
    count : float, ndarray or sympy.Expr
        Independent products in the launch, c. [1]
    peak_flop_per_s : float, ndarray or sympy.Expr
        Peak arithmetic rate of the device, F. [FLOP/s]
    unit_count : float, ndarray or sympy.Expr
        Units (streaming multiprocessors) of the device, U. [1]
    bandwidth_bytes_per_s : float, ndarray or sympy.Expr
        Memory bandwidth, B. [B/s]
    menu : TileMenu
        A result of ``tile_menu``; its last axes are those of m, n and k, or broadcast against them. [1]
    efficiency : float, ndarray or sympy.Expr
        Fraction of peak inside the largest tile for this shape class, eta. [1]
    element_bytes : int
        Size of one element, z. [B]
    latency_s : float, ndarray or sympy.Expr
        Latency that a unit cannot hide at each step of the sum, tau. [s]
    ramp_steps : float, ndarray or sympy.Expr
        Steps of the sum that filling and draining a tile costs, k_0. [1]
    shortest_part : float, ndarray or sympy.Expr
        Length of the shortest part of a split sum, over the longer extent of the result, q. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Compute time, of the broadcast shape of m, n, k, count and the device's numbers. [s] Never less than
        2 c m n k / (eta F) when no tile efficiency exceeds 1.

    Notes
    -----
    Valid for: dense products from a tiled library (cuBLAS, cuDNN), n and m above about 32. Ignores:
    operand layout (see :mod:`perfmodel.cost.gpu`), L2 capacity, power throttling, a library heuristic that
    picks a slower entry.

    Examples
    --------
    A 64 x 1000 product with one 128 x 128 tile shape fills 8 of a GTX 1080's 20 units, each half: 0.1953 of
    peak (with 64 of 128 rows and 1000 of 1024 columns in use).

    >>> seconds = tiled_matmul_time(
    ...     m=64, n=1000, k=4096, peak_flop_per_s=8.873e12, unit_count=20, bandwidth_bytes_per_s=320e9,
    ...     menu=tile_menu(tile_rows=[128], tile_columns=[128], tile_efficiency=[1.0], split_k=[1]))
    >>> float(round(2 * 64 * 1000 * 4096 / 8.873e12 / seconds, 4))
    0.1953

    References
    ----------
    .. [1] NVIDIA, Matrix Multiplication Background User's Guide, sections 2 and 3 (tile and wave
       quantisation).
    .. [2] S. Gray, maxas SGEMM notes, github.com/NervanaSystems/maxas/wiki/SGEMM (tile shapes, latency).
    """
    elements, multiply_add_s = count * m * n, 2 * unit_count / peak_flop_per_s
    axes = max([getattr(quantity, "ndim", 0) for quantity in (elements, k, multiply_add_s, efficiency)])
    a, b, s, area_per_rate, written_parts = menu.before(axes)
    results = ceil_ratio(ceil_ratio(m, a) * ceil_ratio(n, b) * (s * count), unit_count) * area_per_rate
    if (
        len(s) == 1 < results.ndim - axes
    ):  # every tile offers the same splits: in each, the tile that leaves a unit least to do is best
        results, s, written_parts = minimum_along_first_axis(results), s[0], written_parts[0]
    part = k / s
    if (
        getattr(shortest_part, "ndim", 0) or shortest_part != 0
    ):  # without a split the only part is the whole sum, even below the shortest
        part = maximum(part, minimum(k, shortest_part * maximum(m, n)))
    written_s = written_parts * (elements * (2 * element_bytes / bandwidth_bytes_per_s))
    step_s = results * multiply_add_s + latency_s
    seconds = (part + ramp_steps) / efficiency * step_s + written_s
    if seconds.ndim > axes + 1:
        seconds = seconds.reshape(-1, *seconds.shape[seconds.ndim - axes :])
    return minimum_along_first_axis(seconds)


def stream_time(
    *,
    moved_bytes: Quantity,
    bandwidth_bytes_per_s: Quantity,
    efficiency: Quantity = 1.0,
) -> Quantity:
    r"""Time to move bytes through device memory.

    .. math:: t = \frac{n}{\epsilon B}

    Parameters
    ----------
    moved_bytes : float, ndarray or sympy.Expr
        Bytes read plus bytes written, n. [B]
    bandwidth_bytes_per_s : float, ndarray or sympy.Expr
        Peak memory bandwidth, B. [B/s]
    efficiency : float, ndarray or sympy.Expr
        Fraction of it that a long pass of this kind sustains. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Memory time. [s] Zero when nothing is moved.

    Notes
    -----
    Valid for: coalesced streams. Ignores: caches (a pass over less than the L2's capacity can be 2-4 times
    faster), partition camping.

    Examples
    --------
    ReLU on 32 x 64 x 112 x 112 fp32 values on a GTX 1080 at 80 % of its bandwidth:

    >>> stream_time(moved_bytes=205.52e6, bandwidth_bytes_per_s=320.32e9, efficiency=0.8)
    0.00080201

    References
    ----------
    .. [1] V. Volkov, Understanding latency hiding on GPUs, PhD thesis, UC Berkeley, 2016 (UCB/EECS-2016-143).
    """
    return moved_bytes / (efficiency * bandwidth_bytes_per_s)


def matmul_memory_time(
    *,
    m: Quantity,
    n: Quantity,
    k: Quantity,
    count: Quantity = 1,
    moved_bytes: Quantity,
    bandwidth_bytes_per_s: Quantity,
    efficiency: Quantity,
    skinny_efficiency: Quantity,
    element_bytes: int = 4,
) -> Quantity:
    r"""Time of a matrix product's memory traffic: never less than that of the same product with 32 rows or columns.

    .. math:: t = \max\left( \frac{n}{\epsilon_0 B}, \; \frac{z c (r k + k l + r l)}{\epsilon_s B} \right), \quad
              r = \min(m, n, 32), \; l = \max(m, n)

    A product with few rows runs on mostly empty tiles, with too few loads in flight: 16 rows take as long as 64.

    Parameters
    ----------
    m, n, k : float, ndarray or sympy.Expr
        Rows and columns of the result, and length of the sum. [1]
    count : float, ndarray or sympy.Expr
        Independent products in the launch, c. [1]
    moved_bytes : float, ndarray or sympy.Expr
        Traffic of the launch. [B]
    bandwidth_bytes_per_s : float, ndarray or sympy.Expr
        Peak memory bandwidth, B. [B/s]
    efficiency, skinny_efficiency : float, ndarray or sympy.Expr
        Fraction of it reached by products in general, and by those with at most 32 rows or columns. [1]
    element_bytes : int
        Size of one element, z. [B]

    Returns
    -------
    float, ndarray or sympy.Expr
        Memory time. [s]

    Notes
    -----
    Valid for: cuBLAS 7.5 and later. Ignores: the library's choice of kernel between 8 and 32 columns, which leaves
    errors of 10 to 35 %.

    Examples
    --------
    Sixteen and sixty-four columns cost about the same, as measured (0.75 and 0.66 to 0.84 ms on a Titan X):

    >>> titan_x = {"bandwidth_bytes_per_s": 336.6e9, "efficiency": 0.8, "skinny_efficiency": 0.28}
    >>> [float(round(1e3 * matmul_memory_time(m=4096, n=n, k=4096, moved_bytes=4 * (4096 * 4096 + 2 * 4096 * n),
    ...     **titan_x), 2)) for n in (16, 64)]
    [0.72, 0.72]

    References
    ----------
    .. [1] Baidu Research, DeepBench, 2016, github.com/baidu-research/DeepBench (rows with N = 16, 32 and 64).
    """
    streamed_s = stream_time(
        moved_bytes=moved_bytes, bandwidth_bytes_per_s=bandwidth_bytes_per_s, efficiency=efficiency
    )
    short, long = minimum(minimum(m, n), SKINNY_EXTENT), maximum(m, n)
    skinny_bytes = element_bytes * count * (k * (short + long) + short * long)
    skinny_s = stream_time(
        moved_bytes=skinny_bytes, bandwidth_bytes_per_s=bandwidth_bytes_per_s, efficiency=skinny_efficiency
    )
    return maximum(streamed_s, skinny_s)


def write_out_steps(
    *, peak_flop_per_s: Quantity, bandwidth_bytes_per_s: Quantity, element_bytes: Quantity = 4
) -> Quantity:
    r"""Return the steps of the sum that a unit could do while it writes a finished tile.

    .. math:: k_0 = \frac{a b z U / B}{2 a b U / F} = \frac{z F}{2 B}

    A tile's sum stays in registers until it is complete; then each of the U units writes its a x b elements at its
    share of the memory bandwidth, and only then begins the next tile. The tile's extents and the units cancel, which
    leaves the machine's balance: with more arithmetic per byte, the same kernels lose more of a short sum.

    Parameters
    ----------
    peak_flop_per_s : float, ndarray or sympy.Expr
        Peak arithmetic rate of the data type, F. [FLOP/s]
    bandwidth_bytes_per_s : float, ndarray or sympy.Expr
        Memory bandwidth, B. [B/s]
    element_bytes : int
        Size of one element of the result, z. [B]

    Returns
    -------
    float, ndarray or sympy.Expr
        Steps of the sum, k_0, to add to its length. [1]

    Notes
    -----
    Valid for: tiles that are not overlapped with the next one's sum: cuDNN 4 to 7. Ignores: results that stay in the L2
    cache.

    Examples
    --------
    In fp32 a Titan X (Maxwell) and a P100 lose 39 and 26 steps; a T4's tensor cores in fp16 203, so that a 1 x 1
    convolution of 64 channels cannot reach a quarter of their peak:

    >>> [round(write_out_steps(peak_flop_per_s=peak, bandwidth_bytes_per_s=bandwidth, element_bytes=size))
    ...  for peak, bandwidth, size in ((6.605e12, 336.6e9, 4), (9.34e12, 732e9, 4), (65.1e12, 320e9, 2))]
    [39, 26, 203]

    References
    ----------
    .. [1] S. Gray, maxas SGEMM notes, github.com/NervanaSystems/maxas/wiki/SGEMM (results are written once the
       loop over the sum has ended).
    """
    return element_bytes * peak_flop_per_s / (2 * bandwidth_bytes_per_s)


PANEL_EXTENT = 128.0
"""Rows or columns of the result that one pass over an operand's panel serves. [1]"""

PAGE_BYTES = 4096
"""Strided loads are faster if an operand's rows are a multiple of this length. [B]"""

STRIDED_EXPONENT = 3
"""How far a product's arithmetic and its strided loads hide each other: 1 not at all, infinity fully. [1]"""


def strided_time(
    *,
    m: Quantity,
    n: Quantity,
    k: Quantity,
    count: Quantity = 1,
    unit_count: Quantity,
    bandwidth_bytes_per_s: Quantity,
    efficiency: Quantity,
    l2_bytes: Quantity,
    resident_tiles: float = 0.0,
    aligned_share: Quantity = 1.0,
    element_bytes: int = 4,
) -> Quantity:
    r"""Time of the strided loads of weights that lie transposed in memory; 0 for weights read in their own order.

    .. math:: t = c\, q(k)\, \frac{\max(0, z n k - C)}{\epsilon B}
        \left\lceil \frac{\lceil m/128 \rceil}{h} \right\rceil, \quad
        h = \max\left(1, \left\lfloor \frac{r U}{\lceil n/128 \rceil} \right\rfloor \right), \quad
        q(k) = \begin{cases} q & 4096 \mid z k \\ 1 & \text{else} \end{cases}

    At each step of the sum the threads of a tile read 32 B of each of 128 distant rows, and most of what the memory
    fetches is evicted before it is used. Each panel of 128 rows of the result passes over the whole operand, except the
    part that the L2 cache holds; tiles that run together share a pass if the library numbers them that way.

    Parameters
    ----------
    m, n, k : float, ndarray or sympy.Expr
        Rows (samples) and columns (features) of the result, and length of the sum: the weights are n rows of k. [1]
    count : float, ndarray or sympy.Expr
        Independent products in the launch, c. [1]
    unit_count : float, ndarray or sympy.Expr
        Units (streaming multiprocessors) of the device, U. [1]
    bandwidth_bytes_per_s : float, ndarray or sympy.Expr
        Peak memory bandwidth, B. [B/s]
    efficiency : float, ndarray or sympy.Expr
        Fraction of it that strided loads reach, epsilon. [1]
    l2_bytes : float, ndarray or sympy.Expr
        Capacity of the L2 cache, C. [B]
    resident_tiles : float
        Tiles of a unit that run together and share a pass, r; 0 if none do. [1]
    aligned_share : float, ndarray or sympy.Expr
        Share of the time that is left where the operand's rows are whole pages long, q. [1]
    element_bytes : int
        Size of one element, z. [B]

    Returns
    -------
    float, ndarray or sympy.Expr
        Memory time. [s] Zero for at most 32 rows or columns, whose kernels are not affected.

    Notes
    -----
    Valid for: cuBLAS 7.5 to 10.1, single precision. Ignores: the other operand, which every layout but one reads with
    long strides, because few of its panels are in use at a time; the narrower tiles of results with 64 rows.

    Examples
    --------
    7680 x 2560 weights for 24,000 samples took 287 ms on a Titan X (Pascal), 92 ms in their own order: 188 passes of
    79 MB:

    >>> titan_x = {"unit_count": 28, "bandwidth_bytes_per_s": 480.4e9, "l2_bytes": 3 * 2**20, "resident_tiles": 2}
    >>> round(float(strided_time(m=24_000, n=7680, k=2560, efficiency=0.103, **titan_x)), 3)
    0.287

    References
    ----------
    .. [1] Baidu Research, DeepBench, 2016, github.com/baidu-research/DeepBench (the same shapes with and without
       a transposed first operand).
    """
    passes = ceil_ratio(m, PANEL_EXTENT)
    if getattr(resident_tiles, "ndim", 0) or resident_tiles != 0:
        together = maximum(-ceil_ratio(-resident_tiles * unit_count, ceil_ratio(n, PANEL_EXTENT)), 1.0)
        passes = ceil_ratio(passes, together)
    if getattr(aligned_share, "ndim", 0) or aligned_share != 1:
        row_pages = element_bytes * k / PAGE_BYTES
        passes = passes * where(exceeds(ceil(row_pages), row_pages), 1.0, aligned_share)
    fetched_bytes = maximum(element_bytes * n * k - l2_bytes, 0.0) * count
    seconds = passes * fetched_bytes / (efficiency * bandwidth_bytes_per_s)
    return where(exceeds(minimum(m, n), SKINNY_EXTENT), seconds, 0.0)


def with_strided_loads(*, compute_s: Quantity, strided_s: Quantity) -> Quantity:
    r"""Time of a product's arithmetic and its strided loads, which partly hide each other.

    .. math:: t = (t_c^3 + t_s^3)^{1/3}

    Parameters
    ----------
    compute_s, strided_s : float, ndarray or sympy.Expr
        Time of the arithmetic and of the strided loads, each alone. [s]

    Returns
    -------
    float, ndarray or sympy.Expr
        Time of both. [s] Never less than the longer, at most 1.26 times it.

    Notes
    -----
    Valid for: loads issued by the threads that compute. Ignores: how many tiles a unit holds.

    Examples
    --------
    >>> float(round(with_strided_loads(compute_s=1.0, strided_s=1.0), 3))
    1.26
    """
    return (compute_s**STRIDED_EXPONENT + strided_s**STRIDED_EXPONENT) ** (1 / STRIDED_EXPONENT)


def unaligned_efficiency(*, n: Quantity, k: Quantity, share: Quantity, element_bytes: int) -> Quantity:
    r"""Share of a library's usual rate that remains if the operands' rows do not start at multiples of 16 B.

    .. math:: e = \begin{cases} 1 & 16 \mid z n \text{ and } 16 \mid z k \\ q & \text{else} \end{cases}

    Tensor cores are fed by loads of 16 B.

    Parameters
    ----------
    n, k : float, ndarray or sympy.Expr
        Columns (features) of the result, and length of the sum. [1]
    share : float, ndarray or sympy.Expr
        Share of the rate that remains, q. [1]
    element_bytes : int
        Size of one element, z. [B]

    Returns
    -------
    float, ndarray or sympy.Expr
        Factor on the efficiency. [1]

    Notes
    -----
    Valid for: products on tensor cores. Ignores: the number of rows, usually a batch size and not the length of a row;
    that longer multiples (128 B on A100) are faster still.

    Examples
    --------
    The vocabulary of GPT-2, 50,257 words, in 16 bit:

    >>> float(unaligned_efficiency(n=50257, k=768, share=0.5, element_bytes=2))
    0.5

    References
    ----------
    .. [1] NVIDIA, Matrix Multiplication Background User's Guide, section 2.2 (tensor core requirements).
    """
    pieces_n, pieces_k = (element_bytes * extent / LOAD_BYTES for extent in (n, k))
    apart = (ceil(pieces_n) - pieces_n) + (ceil(pieces_k) - pieces_k)
    return where(exceeds(apart, 0.0), share, 1.0)
