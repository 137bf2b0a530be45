"""Time of the product with the recurrent matrix inside a DNN library's recurrent layer, step by step.

The product has only as many rows as the mini-batch has samples, and every time step waits for it. Three kernels serve
it: one for few rows, which reads every weight once; tiles of the result whose sum is not split; and one that keeps the
weights in registers over the whole sequence.
"""

from __future__ import annotations

from perfmodel.cost.gpu import TileMenu, stream_time, tiled_matmul_time
from perfmodel.numeric import exceeds, maximum, where
from perfmodel.symbolic import Quantity

THIN_ROWS = 16
"""Most rows (samples) that the kernel for thin products takes. [1]"""

NARROW_ROWS = 32
"""Most rows (samples) that one narrow tile covers. [1]"""


def recurrent_product_times(
    *,
    m: Quantity,
    n: Quantity,
    k: Quantity,
    moved_bytes: Quantity,
    peak_flop_per_s: Quantity,
    unit_count: Quantity,
    bandwidth_bytes_per_s: Quantity,
    menu: TileMenu,
    efficiency: Quantity,
    thin_efficiency: Quantity,
    latency_s: Quantity,
    narrow_latency_s: Quantity,
    ramp_steps: Quantity,
    bandwidth_fraction: Quantity,
    step_s: Quantity,
) -> tuple[Quantity, Quantity]:
    r"""Time of one time step's product of states with the recurrent matrix, by arithmetic and by traffic.

    .. math::

        t_c = \tau + \begin{cases} 2 m n k / (e_t F) & m \le 16 \\ t_\text{tiles}(\lambda_n) & 16 < m \le 32 \\
              t_\text{tiles}(\lambda) & m > 32 \end{cases}, \qquad t_m = \tau + \frac{b}{\epsilon B}

    Up to 16 rows, each weight is read once and multiplied with every row, at a small share of the peak; above, tiles
    are dealt to the units as in any product, but the sum is not split, so that its length times a latency is a floor.

    Parameters
    ----------
    m, n, k : float, ndarray or sympy.Expr
        Samples, columns of the result, length of the sum. [1]
    moved_bytes : float, ndarray or sympy.Expr
        Traffic of the product, b: the weights come from memory at every step. [B]
    peak_flop_per_s : float, ndarray or sympy.Expr
        Peak arithmetic rate, F. [FLOP/s]
    unit_count : float, ndarray or sympy.Expr
        Units (streaming multiprocessors). [1]
    bandwidth_bytes_per_s : float, ndarray or sympy.Expr
        Memory bandwidth, B. [B/s]
    menu : TileMenu
        The tiles, each with the whole sum. [1]
    efficiency, thin_efficiency : float, ndarray or sympy.Expr
        Fraction of peak inside the largest tile, and of thin products, e_t. [1]
    latency_s, narrow_latency_s : float, ndarray or sympy.Expr
        Latency that a unit cannot hide at each step of the sum, lambda, and with at most 32 rows, lambda_n. [s]
    ramp_steps : float, ndarray or sympy.Expr
        Steps of the sum that filling and draining a tile costs. [1]
    bandwidth_fraction : float, ndarray or sympy.Expr
        Fraction of memory bandwidth. [1]
    step_s : float, ndarray or sympy.Expr
        Time that a time step waits besides its kernels: events between streams, dependent launches. [s]

    Returns
    -------
    tuple of float, ndarray or sympy.Expr
        By arithmetic and by traffic; the longer counts. [s]

    Notes
    -----
    Valid for: cuDNN 5 and 6, single precision, 1 to 128 samples. Ignores: weights that stay in the L2, and the
    library's choice between kernels of like size, which leaves errors of 30 % on single shapes.

    Examples
    --------
    A time step of an LSTM with 2,048 units and 16 samples on a Titan X (Pascal), measured at 0.80 ms with its
    element-wise kernel:

    >>> from perfmodel.cost.gpu import tile_menu
    >>> compute_s, memory_s = recurrent_product_times(m=16, n=8192, k=2048, moved_bytes=67.8e6,
    ...     peak_flop_per_s=10.97e12, unit_count=28, bandwidth_bytes_per_s=480.4e9,
    ...     menu=tile_menu(tile_rows=[128], tile_columns=[128], tile_efficiency=[1.0], split_k=[1]),
    ...     efficiency=0.8, thin_efficiency=0.1, latency_s=25e-9, narrow_latency_s=77e-9, ramp_steps=32.0,
    ...     bandwidth_fraction=0.6, step_s=15e-6)
    >>> float(round(1e3 * compute_s, 2)), float(round(1e3 * memory_s, 2))
    (0.5, 0.25)

    References
    ----------
    .. [1] J. Appleyard, T. Kocisky, P. Blunsom, Optimizing performance of recurrent neural networks on GPUs,
       arXiv:1604.01946.
    .. [2] Baidu Research, DeepBench, 2016, github.com/baidu-research/DeepBench (recurrent layers).
    """
    tiled_s = tiled_matmul_time(
        m=m,
        n=n,
        k=k,
        peak_flop_per_s=peak_flop_per_s,
        unit_count=unit_count,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        menu=menu,
        efficiency=efficiency,
        latency_s=where(exceeds(m, NARROW_ROWS), latency_s, narrow_latency_s),
        ramp_steps=ramp_steps,
    )
    thin_s = 2 * m * n * k / (thin_efficiency * peak_flop_per_s)
    streamed_s = stream_time(
        moved_bytes=moved_bytes, bandwidth_bytes_per_s=bandwidth_bytes_per_s, efficiency=bandwidth_fraction
    )
    return where(exceeds(m, THIN_ROWS), tiled_s, thin_s) + step_s, streamed_s + step_s


def persistent_product_times(
    *,
    m: Quantity,
    n: Quantity,
    k: Quantity,
    steps: Quantity,
    moved_bytes: Quantity,
    peak_flop_per_s: Quantity,
    bandwidth_bytes_per_s: Quantity,
    efficiency: Quantity,
    barrier_s: Quantity,
    bandwidth_fraction: Quantity,
) -> tuple[Quantity, Quantity]:
    r"""Time of all time steps of a recurrence in one launch that keeps the weights in registers.

    .. math:: t_c = T \max\left(\frac{2 m n k}{e F}, \; \beta\right), \qquad t_m = \frac{b}{\epsilon B}

    Parameters
    ----------
    m, n, k : float, ndarray or sympy.Expr
        Samples, columns of the result, length of the sum, of one time step. [1]
    steps : float, ndarray or sympy.Expr
        Time steps, T. [1]
    moved_bytes : float, ndarray or sympy.Expr
        Traffic of the launch, b: the weights once, states at every step. [B]
    peak_flop_per_s : float, ndarray or sympy.Expr
        Peak arithmetic rate, F. [FLOP/s]
    bandwidth_bytes_per_s : float, ndarray or sympy.Expr
        Memory bandwidth, B. [B/s]
    efficiency : float, ndarray or sympy.Expr
        Fraction of peak, e. [1]
    barrier_s : float, ndarray or sympy.Expr
        Shortest time step, in which all units wait for one another, beta. [s]
    bandwidth_fraction : float, ndarray or sympy.Expr
        Fraction of memory bandwidth. [1]

    Returns
    -------
    tuple of float, ndarray or sympy.Expr
        By arithmetic and by traffic; the longer counts. [s]

    Notes
    -----
    Valid for: weights that fit the registers of the device. One published point gives both constants, so the cost of a
    barrier beside much arithmetic is not known.

    Examples
    --------
    The published kernel: 1,152 units and 4 samples on a Titan X (Maxwell) at 2.8 TFLOP/s.

    >>> compute_s, _ = persistent_product_times(m=4, n=1152, k=1152, steps=1, moved_bytes=5.3e6, peak_flop_per_s=6.6e12,
    ...     bandwidth_bytes_per_s=336e9, efficiency=0.45, barrier_s=3.8e-6, bandwidth_fraction=0.8)
    >>> float(round(2 * 4 * 1152**2 / compute_s / 1e12, 1))
    2.8

    References
    ----------
    .. [1] G. Diamos et al., Persistent RNNs: stashing recurrent weights on-chip, ICML 2016,
       proceedings.mlr.press/v48/diamos16.html.
    """
    compute_s = steps * maximum(2 * m * n * k / (efficiency * peak_flop_per_s), barrier_s)
    return compute_s, stream_time(
        moved_bytes=moved_bytes, bandwidth_bytes_per_s=bandwidth_bytes_per_s, efficiency=bandwidth_fraction
    )
