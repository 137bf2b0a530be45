"""Where a difference first has another sign: certain, as nothing before it is left out unproven.

The difference is tried at places. Between two places of one sign bounds of the difference, or of its slope, prove that
it does not turn in between; where they do not, the cell is split and tried again, down to a width of nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from perfmodel.planning.formulas.bounds import Bounds

SAME: Final = 1e-13
"""Two numbers this close are equal: what is left is rounding. [1]"""

NARROW: Final = 1e-9
"""Cells this narrow are not split, over where they lie. [1]"""

PIECES: Final = 64
"""Into how many pieces a cell is split at most. [1]"""

AT_ONCE: Final = 1024
"""Cells that are bounded in one go. [1]"""

MOST_CELLS: Final = 16 * AT_ONCE
"""Cells that are bounded before a search goes on without proof. [1]"""


class Turn(NamedTuple):
    """Between which two places a difference has another sign for the first time.

    ``low`` and ``high`` are next to one another, and ``one_turn`` the ends of a wider stretch with no other turn in it
    [unit of the symbol]; ``certain`` tells whether it is proven that there is none before [-].
    """

    low: float
    high: float
    one_turn: tuple[float, float]
    certain: bool


@dataclass(kw_only=True)
class Search:
    """A search for turns of a difference.

    Parameters
    ----------
    difference : callable
        Returns differences at values of the symbol, and what each is small against. [unit of the quantity]
    bounds : callable
        Returns bounds of the difference over intervals. [unit of the quantity]
    unit : float
        What values of the symbol are whole multiples of; 0 where it may be any number. [unit of the symbol]
    certain : bool
        Whether the last search proved that it left nothing out. [-]
    """

    difference: Callable[[Any], tuple[Any, Any]]
    bounds: Callable[[Any, Any], Bounds]
    unit: float
    certain: bool = field(default=True, init=False)

    def signs(self, places: Any) -> Any:
        """Return the sign of the difference at places; 0 where only rounding is left of it. [1]"""
        found, scale = self.difference(places)
        return np.where(np.abs(found) <= SAME * scale, 0.0, np.sign(found))

    def first_turn(self, places: Any) -> Turn | None:
        """Return where the sign is first another one than at the first place."""
        start, self.certain = float(self.signs(places[:1])[0]), True
        lows, highs, turn = self._up_to_turn(places[:-1], places[1:], start)
        bounded, rounds = 0, 0
        while True:
            wide = ~self._is_narrow(lows, highs)
            lows, highs = lows[wide], highs[wide]
            if bounded + len(lows) > MOST_CELLS:
                self.certain, lows, highs = False, lows[:0], highs[:0]
            elif start == 0 and rounds:
                # two that are equal at every place of a cell are taken for equal all over it
                lows, highs = lows[:0], highs[:0]
            bounded += len(lows)
            open_still = ~self._proven(lows, highs, start)
            lows, highs = lows[open_still], highs[open_still]
            is_single = turn is None or self._turns_once(*turn)
            if not len(lows) and is_single:
                break
            count = max(2, min(PIECES, AT_ONCE // (len(lows) + 1)))
            if turn is not None and not is_single:
                lows, highs = np.append(lows, turn[0]), np.append(highs, turn[1])
            lows, highs, earlier = self._up_to_turn(*self._split(lows, highs, count), start)
            turn, rounds = earlier or turn, rounds + 1
        return None if turn is None else Turn(*self._narrowed(*turn, start), turn, self.certain)

    def _up_to_turn(self, lows: Any, highs: Any, start: float) -> tuple[Any, Any, tuple[float, float] | None]:
        """Return the cells before the first whose upper end has another sign, and that one."""
        turned = np.flatnonzero(self.signs(highs) != start)
        if not len(turned):
            return lows, highs, None
        first = turned[0]
        return lows[:first], highs[:first], (float(lows[first]), float(highs[first]))

    def _is_narrow(self, low: Any, high: Any) -> Any:
        return high - low <= (self.unit or NARROW * low)

    def _proven(self, low: Any, high: Any, start: float) -> Any:
        """Tell which cells have no turn inside, with the starting sign at both ends."""
        found = np.zeros(len(low), dtype=bool)
        for first in range(0, len(low), AT_ONCE):
            part = slice(first, first + AT_ONCE)
            found[part] = self._stays(low[part], high[part], start)
        return found

    def _stays(self, low: Any, high: Any, start: float) -> Any:
        bounds = self.bounds(low, high)
        if start == 0:
            return (bounds.low == 0) & (bounds.high == 0)
        if start < 0:
            bounds = -bounds
        smooth = ~bounds.jumps.astype(bool)
        at_ends = [np.abs(self.difference(end)[0]) for end in (low, high)]
        monotone = (bounds.slope_low >= 0) | (bounds.slope_high <= 0)
        with np.errstate(invalid="ignore"):
            from_low = at_ends[0] + np.minimum(bounds.slope_low, 0) * (high - low) > 0
            from_high = at_ends[1] - np.maximum(bounds.slope_high, 0) * (high - low) > 0
        return (bounds.low > 0) | (smooth & (monotone | from_low | from_high))

    def _turns_once(self, low: float, high: float) -> bool:
        if bool(self._is_narrow(low, high)):
            return True
        bounds = self.bounds(np.array([low]), np.array([high]))
        rises = bool(bounds.slope_low[0] >= 0) or bool(bounds.slope_high[0] <= 0)
        return rises and not bool(bounds.jumps[0])

    def _split(self, lows: Any, highs: Any, count: int) -> tuple[Any, Any]:
        """Return each cell in so many pieces, of multiples of the unit in as many as there are."""
        if not self.unit:
            ends = np.geomspace(lows, highs, count + 1)
            ends[0], ends[-1] = lows, highs
            return ends[:-1].T.ravel(), ends[1:].T.ravel()
        ends = self.unit * np.round(np.linspace(lows, highs, count + 1) / self.unit)
        below, above = ends[:-1].T.ravel(), ends[1:].T.ravel()
        return below[above > below], above[above > below]

    def _narrowed(self, low: float, high: float, start: float) -> tuple[float, float]:
        """Return neighbouring numbers around the turn between two."""
        while True:
            inner, outer = self._split(np.array([low]), np.array([high]), PIECES)
            keep = (outer > inner) & (inner >= low) & (outer <= high)
            _, _, turn = self._up_to_turn(inner[keep], outer[keep], start)
            if turn is None or turn == (low, high):
                return low, high
            low, high = turn
