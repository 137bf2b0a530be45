"""What it costs that preparing a mini-batch takes longer now and then, and how many fetched ahead make up for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from perfmodel.prediction.basis import Basis

NEGLIGIBLE: Final = 0.01
"""Share of a step below which what varying times cost is not worth fetching more ahead. [1]"""

MOST_AHEAD: Final = 4096
"""Mini-batches ahead that make up for any variation that is allowed, with much to spare. [1]"""


def jitter_cost(basis: Basis, *, prefetch: int) -> float:
    """Return by what share of itself a step is longer because preparing mini-batches takes times that vary.

    Parameters
    ----------
    basis : Basis
        The step that was predicted, with something fetched ahead. [-]
    prefetch : int
        Mini-batches fetched ahead instead, at least 1. [1]

    Returns
    -------
    float
        Share. [1]
    """
    prepared = basis.prepared
    assert prepared.data_path is not None
    varying = replace(prepared.data_path, prefetch=prefetch)
    steady = replace(varying, input_variation=0.0)
    varying_s, steady_s = (
        float(path.fed(basis.timed.parts, batch_size=prepared.batch_size, factors=basis.factors).step_s)
        for path in (varying, steady)
    )
    return varying_s / steady_s - 1


def enough_ahead(basis: Basis) -> int:
    """Return the fewest mini-batches fetched ahead with which varying times cost next to nothing.

    Parameters
    ----------
    basis : Basis
        The step that was predicted, with something fetched ahead. [-]

    Returns
    -------
    int
        The smallest depth with a cost below ``NEGLIGIBLE``. [1]

    Notes
    -----
    Found by bisection, as a depth never costs more than a smaller one.
    """
    too_few, enough = 0, MOST_AHEAD
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if jitter_cost(basis, prefetch=middle) < NEGLIGIBLE:
            enough = middle
        else:
            too_few = middle
    return enough
