"""Which number of the hardware a step is worth more of: d log T / d log x, part by part."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perfmodel.planning.formulas.symbols import FREE, words_of
from perfmodel.prediction.step_time import PARTS

if TYPE_CHECKING:
    from perfmodel.planning.formulas.formula import Formula
    from perfmodel.planning.formulas.values import AtPoint

MORE = 0.1
"""By how much more of each number the sentences ask. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elasticity:
    """What one number is worth.

    Parameters
    ----------
    symbol : str
        Name of the number. [-]
    total : float
        d log T / d log x of the quantity: at -0.3, one per cent more of x takes 0.3 % off. [1]
    by_part : dict of str to float
        What each exclusive part adds to that of ``step_s``: d T_part / d log x over the step. [1]
    gain : float
        What a tenth more of x takes off the quantity, computed there, not extrapolated; below zero where it adds, not a
        number where there is no more of it. [1]
    sentence : str
        The same in words. [-]
    """

    symbol: str
    total: float
    by_part: Mapping[str, float]
    gain: float
    sentence: str


@dataclass(frozen=True, slots=True)
class Elasticities(Mapping[str, Elasticity]):
    """Elasticities by symbol, the largest first; printed as sentences. ``rows`` holds them. [1]"""

    rows: Mapping[str, Elasticity]

    def __getitem__(self, symbol: str) -> Elasticity:
        return self.rows[symbol]

    def __iter__(self):  # type: ignore[no-untyped-def]  # noqa: ANN204
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        return "\n".join(row.sentence for row in self.rows.values())


def elasticities(formula: Formula, at: Mapping[str, float] | None) -> Elasticities:
    """Return the elasticities of a formula at a point. [1]"""
    point = formula.point(at)
    value = point.value(formula.named_parts[formula.quantity])
    step_s = point.value(formula.named_parts["step_s"])
    slopes = point.gradient(formula.named_parts[formula.quantity])
    of_parts = {part: point.gradient(formula.named_parts[part]) for part in PARTS}
    found = {}
    for name, symbol in formula.symbols.items():
        here = point.at[symbol]
        gain = _gain(formula, point, name, value)
        shares = {part: here * slope[symbol] / step_s for part, slope in of_parts.items() if slope[symbol]}
        found[name] = Elasticity(
            symbol=name,
            total=here * slopes[symbol] / value if value else 0.0,
            by_part=shares,
            gain=gain,
            sentence=_sentence(formula, name, gain, shares),
        )
    return Elasticities(dict(sorted(found.items(), key=lambda item: -abs(item[1].total))))


def _gain(formula: Formula, point: AtPoint, name: str, value: float) -> float:
    """Return what a tenth more of a number takes off the quantity; not a number where there is no more of it. [1]"""
    more = {each: point.at[symbol] for each, symbol in formula.symbols.items()}
    more[name] *= 1 + MORE
    limits = formula.opened.ranges.get(name)
    if limits is not None and not limits.holds(np.array(more[name])):
        return math.nan
    return 1 - formula.point(more).value(formula.named_parts[formula.quantity]) / value if value else 0.0


def _sentence(formula: Formula, name: str, gain: float, shares: Mapping[str, float]) -> str:
    quantity = formula.quantity
    if math.isnan(gain):
        if name in FREE and FREE[name].whole:
            return f"there are no more {words_of(name)}"
        return f"{MORE:.0%} more {words_of(name)} is another step: {formula.opened.ranges[name].allowed}"
    what = "" if quantity == "step_s" else f" of {quantity}"
    # of a rate more is better, of a time less
    verb = "buys" if (gain <= 0 if quantity == "samples_per_s" else gain >= 0) else "costs"
    largest = max(shares, key=lambda part: abs(shares[part]), default=None)
    where = f", most of it in {largest}" if largest and quantity == "step_s" else ""
    return f"{MORE:.0%} more {words_of(name)} {verb} {abs(gain):.1%}{what}{where}"
