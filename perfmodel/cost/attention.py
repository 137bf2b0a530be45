"""Time of fused attention on a GPU: blocks of queries, or of keys going back, dealt to the units.

Scores never leave the chip. Each block of rows loops over the other sequence; its tensor cores do the products of a
score while other lanes do its exponential and the rest of the softmax, which costs the same whatever the head size.
"""

from __future__ import annotations

from perfmodel.numeric import ceil_ratio, maximum, minimum
from perfmodel.symbolic import Quantity


def visible_scores(*, queries: Quantity, keys: Quantity, causal: Quantity, tile_rows: Quantity = 1.0) -> Quantity:
    r"""Count the scores of one head that a kernel computes: under a causal mask, those up to the diagonal's tiles.

    .. math:: s = \min\left(q k, \; \frac{g (g + a)}{2} + (q - g) k\right), \quad g = \min(q, k)

    Parameters
    ----------
    queries, keys : float, ndarray or sympy.Expr
        Query positions, q, and key positions, k. [1]
    causal : float or ndarray
        1 where a query sees only keys up to its own position, 0 where it sees all. [1]
    tile_rows : float, ndarray or sympy.Expr
        Extent of a tile, a: tiles on the diagonal are computed in full. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Scores. [1]

    Examples
    --------
    >>> [float(visible_scores(queries=q, keys=q, causal=1, tile_rows=a)) for q, a in ((4, 1), (256, 128))]
    [10.0, 49152.0]
    """
    whole = queries * keys
    growing = minimum(queries, keys)
    visible = minimum(whole, growing * (growing + tile_rows) / 2 + (queries - growing) * keys)
    return whole + causal * (visible - whole)


def keys_seen_in_all(*, queries: Quantity, visible: Quantity, causal: Quantity) -> Quantity:
    r"""Count the keys that some query sees, from the mean number that each sees.

    .. math:: k = \frac{2 q + 1 - \sqrt{(2 q + 1)^2 - 8 q n}}{2}

    Parameters
    ----------
    queries, visible : float, ndarray or sympy.Expr
        Query positions, q, and keys that one of them sees on average, n. [1]
    causal : float or ndarray
        1 where a query sees only keys up to its own position, 0 where it sees all. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Keys: the root of n q = k (k + 1) / 2 + (q - k) k under a causal mask, else n. [1]

    Examples
    --------
    >>> [float(keys_seen_in_all(queries=4, visible=n, causal=c)) for n, c in ((2.5, 1), (1.75, 1), (7, 0))]
    [4.0, 2.0, 7.0]
    """
    whole = 2 * queries + 1
    return (whole - (whole**2 - 8 * queries * visible * causal) ** 0.5) / 2 + (1 - causal) * visible


def attention_time(
    *,
    queries: Quantity,
    keys: Quantity,
    summed: Quantity,
    count: Quantity,
    causal: Quantity,
    backward: Quantity,
    peak_flop_per_s: Quantity,
    unit_count: Quantity,
    exponentials_per_s: Quantity,
    instructions_per_s: Quantity,
    efficiency: Quantity,
    softmax_instructions: Quantity,
    tile_rows: Quantity,
    block_rows: Quantity,
    ramp_rows: Quantity,
    most_splits: Quantity = 1.0,
) -> Quantity:
    r"""Time of the arithmetic of fused attention, or of all its gradients, in one launch.

    .. math::

        t &= r \left(\left\lceil \frac{c \lceil x / b \rceil}{U} \right\rceil \left(\frac{y}{p} + y_0\right) +
             (y_\text{last} - y)\right) \tau \\
        \tau &= U \sqrt{\left(\frac{2 d}{\eta F}\right)^2 + \left(\frac{1}{E} + \frac{n}{I}\right)^2}

    x is the sequence whose rows are dealt to blocks (queries forward, keys backward), y the mean length of the
    other that a row meets, r the rows of a block in whole tiles. Under a causal mask, y counts tiles up to the diagonal
    and the longest block ends last. Products and softmax of different warps overlap in part: between a sum and a
    maximum. A launch with fewer blocks than units divides the loop among p times as many.

    Parameters
    ----------
    queries, keys : float, ndarray or sympy.Expr
        Query positions and key positions. [1]
    summed : float, ndarray or sympy.Expr
        Multiply-adds of a score: features of keys and values forward, of all five products backward, d. [1]
    count : float, ndarray or sympy.Expr
        Samples times heads, c. [1]
    causal, backward : float or ndarray
        1 where scores above the diagonal are masked, or where gradients are computed, else 0. [1]
    peak_flop_per_s : float, ndarray or sympy.Expr
        Peak arithmetic rate of the products, F. [FLOP/s]
    unit_count : float, ndarray or sympy.Expr
        Units (streaming multiprocessors), U. [1]
    exponentials_per_s, instructions_per_s : float, ndarray or sympy.Expr
        Exponentials, E, and other instructions of single lanes, I, of the whole device. [1/s]
    efficiency : float, ndarray or sympy.Expr
        Fraction of peak of the products inside the loop, eta. [1]
    softmax_instructions : float, ndarray or sympy.Expr
        Instructions for each score besides products and exponential, n. [1]
    tile_rows, block_rows : float, ndarray or sympy.Expr
        Rows of a tile, and rows that a block works through, b: a whole sequence where blocks are heads. [1]
    ramp_rows : float, ndarray or sympy.Expr
        Passes of the loop, in rows of the other sequence, that a block's prologue and epilogue cost, y_0. [1]
    most_splits : float, ndarray or sympy.Expr
        Most parts of a loop. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Compute time. [s]

    Notes
    -----
    Valid for: FlashAttention and its relatives, heads of 32 to 128 features. Ignores: registers that spill with larger
    heads, features padded to a multiple of 32, gradients of keys that several heads share.

    Examples
    --------
    On an A100, 16 heads of 64 features over 16,384 positions reach 0.61 of the peak, those of 128 features 0.72:

    >>> a100 = {"peak_flop_per_s": 312e12, "unit_count": 108, "exponentials_per_s": 16 * 108 * 1.41e9,
    ...         "instructions_per_s": 64 * 108 * 1.41e9, "efficiency": 0.78, "softmax_instructions": 4,
    ...         "tile_rows": 128, "block_rows": 128, "ramp_rows": 64}
    >>> [float(round(4 * 16 * 16384**2 * d / 312e12 / attention_time(queries=16384, keys=16384, summed=2 * d, count=16,
    ...     causal=0, backward=0, **a100), 2)) for d in (64, 128)]
    [0.61, 0.72]

    References
    ----------
    .. [1] Dao, FlashAttention-2: Faster attention with better parallelism and work partitioning, arXiv:2307.08691.
    .. [2] Shah et al., FlashAttention-3, arXiv:2407.08608, section 3 (exponentials beside products).
    """
    dealt, looped = queries + backward * (keys - queries), keys + backward * (queries - keys)
    visible_keys = visible_scores(queries=queries, keys=keys, causal=causal, tile_rows=tile_rows) / dealt
    tiles = ceil_ratio(dealt, tile_rows)
    blocks_per_head = ceil_ratio(dealt, maximum(block_rows, tile_rows))
    rows = tile_rows * tiles / blocks_per_head
    blocks = count * blocks_per_head
    # the longest block loops over the whole other sequence, except for part of its own rows
    later = causal * maximum(looped - (rows - tile_rows) / 2 - visible_keys, 0)
    splits = maximum(minimum(minimum(most_splits, unit_count / blocks), looped / tile_rows), 1)
    passes = ceil_ratio(blocks, unit_count) * (visible_keys / splits + ramp_rows) + later / splits
    products_s = 2 * summed / (efficiency * peak_flop_per_s)
    softmax_s = 1 / exponentials_per_s + softmax_instructions / instructions_per_s
    return rows * passes * unit_count * (products_s**2 + softmax_s**2) ** 0.5
