"""What the layout of a matrix product's operands in memory costs on a GPU.

Weights that a product reads against the way they lie are fetched in short pieces of many rows; tensor cores are fed by
loads of 16 B, which need rows that start at multiples of that.
"""

from __future__ import annotations

from perfmodel.cost.gpu import SKINNY_EXTENT
from perfmodel.numeric import ceil, ceil_ratio, exceeds, maximum, minimum, where
from perfmodel.symbolic import Quantity

PANEL_EXTENT = 128
"""Rows or columns of the result that one pass over an operand's panel serves. [1]"""

PAGE_BYTES = 4096
"""Length of an operand's rows at whose multiples strided loads are faster. [B]"""

STRIDED_EXPONENT = 3
"""How far the arithmetic of a product hides its strided loads, and they it: 1 not at all, infinity fully. [1]"""

LOAD_BYTES = 16
"""Widest load of one thread. [B]"""


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
    r"""Time of the strided loads of weights that lie transposed in memory, 0 where they are read as they lie.

    .. math:: t = c\, q(k)\, \frac{\max(0, z n k - C)}{\epsilon B}
        \left\lceil \frac{\lceil m/128 \rceil}{h} \right\rceil, \quad
        h = \max\left(1, \left\lfloor \frac{r U}{\lceil n/128 \rceil} \right\rfloor \right), \quad
        q(k) = \begin{cases} q & 4096 \mid z k \\ 1 & \text{else} \end{cases}

    At each step of the sum the threads of a tile read 32 B of each of 128 distant rows, and most of what the memory
    fetches is not used before it is evicted. Each panel of 128 rows of the result passes over the whole operand; the L2
    cache spares what it holds, and tiles that run together share a pass if the library numbers them that way.

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
        Tiles of a unit that run together and share a pass, r; 0 where none do. [1]
    aligned_share : float, ndarray or sympy.Expr
        Share of the time that is left where the operand's rows are whole pages long, q. [1]
    element_bytes : int
        Size of one element, z. [B]

    Returns
    -------
    float, ndarray or sympy.Expr
        Memory time. [s] Zero for at most 32 rows or columns, whose kernels do not mind.

    Notes
    -----
    Valid for: cuBLAS 7.5 to 10.1, single precision. Ignores: the other operand, read with long strides in every layout
    but one, because its panels are few at a time; the narrower tiles of results with 64 rows.

    Examples
    --------
    7680 x 2560 weights for 24,000 samples took 287 ms on a Titan X (Pascal), 92 ms as they lie: 188 passes over 79 MB:

    >>> titan_x = {"unit_count": 28, "bandwidth_bytes_per_s": 480.4e9, "l2_bytes": 3 * 2**20, "resident_tiles": 2}
    >>> round(float(strided_time(m=24_000, n=7680, k=2560, efficiency=0.103, **titan_x)), 3)
    0.287

    References
    ----------
    .. [1] Baidu Research, DeepBench, 2016, github.com/baidu-research/DeepBench (the same shapes with and without
       a transposed first operand).
    """
    row_pages = element_bytes * k / PAGE_BYTES
    share = where(exceeds(ceil(row_pages), row_pages), 1.0, aligned_share)
    passes = ceil_ratio(m, PANEL_EXTENT)
    if getattr(resident_tiles, "ndim", 0) or resident_tiles != 0:
        together = maximum(-ceil_ratio(-resident_tiles * unit_count, ceil_ratio(n, PANEL_EXTENT)), 1.0)
        passes = ceil_ratio(passes, together)
    fetched_bytes = maximum(element_bytes * n * k - l2_bytes, 0.0) * count
    seconds = share * passes * fetched_bytes / (efficiency * bandwidth_bytes_per_s)
    return where(exceeds(minimum(m, n), SKINNY_EXTENT), seconds, 0.0)


def with_strided_loads(*, compute_s: Quantity, strided_s: Quantity) -> Quantity:
    r"""Time of a product's arithmetic and its strided loads together, which hide each other in part.

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
    r"""Share of a library's usual rate that is left where rows of the operands do not start at multiples of 16 B.

    .. math:: e = \begin{cases} 1 & 16 \mid z n \text{ and } 16 \mid z k \\ q & \text{else} \end{cases}

    Tensor cores are fed by loads of 16 B.

    Parameters
    ----------
    n, k : float, ndarray or sympy.Expr
        Columns (features) of the result, and length of the sum. [1]
    share : float, ndarray or sympy.Expr
        Share of the rate that is left, q. [1]
    element_bytes : int
        Size of one element, z. [B]

    Returns
    -------
    float, ndarray or sympy.Expr
        Factor on the efficiency. [1]

    Notes
    -----
    Valid for: products on tensor cores. Ignores: the number of rows, which is a batch in most products and then no
    row's length; that longer multiples (128 B on A100) are faster still.

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
