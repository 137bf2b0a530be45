"""Sequences that bound a step: recurrences whose kernels wait for one another, far below the peak rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from perfmodel.prediction.rows import pieces_of

if TYPE_CHECKING:
    from perfmodel.prediction.prediction import Prediction

IDLE_SHARE: Final = 0.25
"""Share of the peak rate below which waiting bounds a sequence, not arithmetic. [1]"""


class Sequence(NamedTuple):
    """Names of recurrent layers that take most of a step, and the share of the peak rate that they reach. [-], [1]"""

    layers: tuple[str, ...]
    reached: float


def bounding_sequence(p: Prediction) -> Sequence | None:
    """Find the recurrences that take most of a step on a GPU at a fraction of its peak rate; None if there are none.

    A CPU below its peak lacks threads or has too many of them, which sequences do not explain.
    """
    pieces = pieces_of(p.basis.prepared, p.basis.timed)
    if p.basis.prepared.target.processor != "gpu" or not any(
        "recurrence" in piece.table.operation_kinds for piece in pieces
    ):
        return None
    rows = [
        row
        for piece in pieces
        for row, kind in zip(piece.rows(), piece.classes(), strict=True)
        if kind == "recurrence" and row.role != "weight_gradient"  # whose steps do not wait for one another
    ]
    seconds = sum(row.seconds for row in rows)
    if 2 * seconds < p.step_s:
        return None
    reached = sum(row.flop_count for row in rows) / (seconds * p.peak_flop_per_s)
    return Sequence(tuple(dict.fromkeys(row.layer for row in rows)), reached) if reached < IDLE_SHARE else None
