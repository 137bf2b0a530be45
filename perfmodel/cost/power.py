"""Power of a board: the clock that its limit leaves for arithmetic, and the energy of work at that clock."""

from __future__ import annotations

from typing import Final

from perfmodel.numeric import maximum, minimum
from perfmodel.symbolic import Quantity

POWER_EXPONENT: Final = 3
"""Dynamic power goes with f V^2, and V with f near the boost clock: power with the clock to this exponent. [1]"""
LEAST_SHARE = 0.1
"""Least share of its power limit that a board leaves to arithmetic, whatever its memory would draw. [1]"""


def clock_under_power(
    *, limit_w: Quantity, resting_w: Quantity, arithmetic_w: Quantity, highest: Quantity = 1.0
) -> Quantity:
    r"""Clock that a power limit leaves for arithmetic, over the boost clock.

    .. math:: \frac{f}{f_b} = \min\left(h, \left(\frac{\max(P - P_0, P / 10)}{P_a}\right)^{1/3}\right)

    Parameters
    ----------
    limit_w : float, ndarray or sympy.Expr
        Power limit of the board, P. [W]
    resting_w : float, ndarray or sympy.Expr
        Power that does not follow the clock of the units: the board at rest and its memory, P_0. [W]
    arithmetic_w : float, ndarray or sympy.Expr
        Power of the arithmetic at the boost clock, P_a. [W]
    highest : float, ndarray or sympy.Expr
        Highest clock over the boost clock, h. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Clock over the boost clock. [1]

    Notes
    -----
    Valid for: clocks from about half of the boost clock up, where voltage rises with the clock. Ignores: the lowest
    voltage, below which power falls only with the clock; leakage, which rises with temperature; limits of current.
    A GTX 1080 holds 1,696 MHz at 0.825 V and 2,038 at 1.060, f V^2 with an exponent of 3.7 [1]_; boards of one
    chip with two limits give 2.1 (CDNA 3) to 8 (Blackwell), so 3 stands between.

    Examples
    --------
    Products of an A100 in 16 bit would draw 406 W at 1,410 MHz, of which 315 are left at 400 W:

    >>> round(1410 * clock_under_power(limit_w=400, resting_w=85, arithmetic_w=406))
    1296

    References
    ----------
    .. [1] TechPowerUp, Gigabyte GTX 1080 Aorus Xtreme Edition, clock profiles,
       techpowerup.com/reviews/Gigabyte/GTX_1080_Aorus_Xtreme_Edition/34.html
    """
    left_w = maximum(limit_w - resting_w, LEAST_SHARE * limit_w)
    return minimum(highest, (left_w / arithmetic_w) ** (1 / POWER_EXPONENT))


def energy_ratio(*, rank: Quantity, count: Quantity, each: int = 1, variation: Quantity) -> Quantity:
    r"""Energy of a FLOP on one of several devices of one model, over that of the mean device.

    .. math:: e = 1 + 4.91 v (q^{0.14} - (1 - q)^{0.14}), \quad q = \left(\frac{r - 3/8}{n + 1/4}\right)^{1 / m}

    Parameters
    ----------
    rank : int, ndarray or sympy.Expr
        Rank of the device by its energy of a FLOP, r: ``count`` for the one that draws most, and so is slowest. [1]
    count : int, ndarray or sympy.Expr
        Devices, n. [1]
    each : int
        Devices that stand for each one that is ranked, m, if it is as slow as its own slowest. [1]
    variation : float, ndarray or sympy.Expr
        Standard deviation of the energy over its mean, v. [1]

    Returns
    -------
    float, ndarray or sympy.Expr
        Ratio of the energies; 1 for a device alone. [1]

    Notes
    -----
    Valid for: devices chosen without regard to their speed. At a power limit the clock falls with the third root of
    the energy (:func:`clock_under_power`), so a device that draws 3 % more is 1 % slower; at the highest clock devices
    do not differ. Ignores: devices that are hot or broken, up to 1.5 times as slow as others [1]_.

    The quantile is that of Tukey's lambda distribution, nearly normal but bounded [2]_, at Blom's plotting position.

    Examples
    --------
    >>> [round(energy_ratio(rank=count, count=count, variation=0.045), 3) for count in (1, 8, 1024)]
    [1.0, 1.065, 1.143]

    References
    ----------
    .. [1] P. Sinha et al., Not All GPUs Are Created Equal: Characterizing Variability in Large-Scale, Accelerator-Rich
       Systems, SC 2022, arxiv.org/abs/2208.11035
    .. [2] B. L. Joiner, J. R. Rosenblatt, Some Properties of the Range in Samples from Tukey's Symmetric Lambda
       Distributions, Journal of the American Statistical Association 66, 1971
    """
    below = ((rank - 3 / 8) / (count + 1 / 4)) ** (1 / each)
    return 1 + 4.91 * variation * (below**0.14 - (1 - below) ** 0.14)


def work_energy(
    *,
    duration_s: Quantity,
    idle_w: Quantity,
    arithmetic_j: Quantity,
    memory_j: Quantity,
    limit_w: Quantity,
) -> Quantity:
    r"""Energy of a board by what works: at rest, its arithmetic, its memory; no more than the limit allows.

    .. math:: E = \min(P T, P_i T + E_a + E_m)

    Parameters
    ----------
    duration_s : float, ndarray or sympy.Expr
        Time, T. [s]
    idle_w : float, ndarray or sympy.Expr
        Power at rest, P_i. [W]
    arithmetic_j, memory_j : float, ndarray or sympy.Expr
        Energy of the arithmetic and of the memory's traffic, E_a and E_m. [J]
    limit_w : float, ndarray or sympy.Expr
        Power limit, P. [W]

    Returns
    -------
    float, ndarray or sympy.Expr
        Energy. [J]

    Notes
    -----
    Valid for: one board over many kernels. Ignores: waiting at a high clock, which draws more than rest; fans.

    Examples
    --------
    >>> work_energy(duration_s=0.1, idle_w=50, arithmetic_j=12.0, memory_j=5.0, limit_w=400)
    22.0
    """
    return minimum(limit_w * duration_s, idle_w * duration_s + arithmetic_j + memory_j)
