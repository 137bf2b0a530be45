"""What it costs a unit of a GPU that a finished tile leaves it before the next one starts."""

from __future__ import annotations

from perfmodel.symbolic import Quantity


def write_out_steps(
    *, peak_flop_per_s: Quantity, bandwidth_bytes_per_s: Quantity, element_bytes: Quantity = 4
) -> Quantity:
    r"""Return the steps of the sum that a unit could do while a finished tile leaves it.

    .. math:: k_0 = \frac{a b z U / B}{2 a b U / F} = \frac{z F}{2 B}

    A tile's sum stays in registers until it is complete; then each of the U units writes its a x b elements at its
    share of the memory bandwidth, and only then begins the next tile. The tile's extents and the units cancel: what is
    left is the machine's balance: the same kernels waste more of a short sum where there is more arithmetic per byte.

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
