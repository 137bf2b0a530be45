"""Quantities as text: seconds, bytes, FLOP, rates and shares in units that are easy to read.

Prefixes are decimal throughout: 1 GB is 10**9 B (a card of "8 GB" holds 8 GiB = 8.59 GB).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Final

from perfmodel.numeric import is_real
from perfmodel.symbolic import is_symbolic
from perfmodel.units import GIGA, KILO, MEGA, MICROSECOND, MILLISECOND, TERA

ABSENT: Final = "-"
"""Text for a missing value."""

DECIMALS: Final = 3
"""Decimals of a column that shares one unit."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Units of one kind of quantity, largest first."""

    units: tuple[tuple[float, str], ...]

    def unit_for(self, magnitude: float) -> tuple[float, str]:
        """Return factor and symbol of the largest unit not above a magnitude."""
        return next((unit for unit in self.units if unit[0] <= magnitude), self.units[-1])


SECONDS: Final = Scale(((1.0, "s"), (MILLISECOND, "ms"), (MICROSECOND, "µs")))
BYTES: Final = Scale(((TERA, "TB"), (GIGA, "GB"), (MEGA, "MB"), (KILO, "kB"), (1.0, "B")))
FLOP: Final = Scale(((TERA, "TFLOP"), (GIGA, "GFLOP"), (MEGA, "MFLOP"), (KILO, "kFLOP"), (1.0, "FLOP")))
PERCENT: Final = Scale(((0.01, "%"),))


def _per_second(scale: Scale) -> Scale:
    return Scale(tuple((factor, f"{symbol}/s") for factor, symbol in scale.units))


SCALE_BY_SUFFIX: Final[dict[str, Scale]] = {
    "seconds": SECONDS,
    "_s": SECONDS,
    "flop_per_s": _per_second(FLOP),
    "bytes_per_s": _per_second(BYTES),
    "samples_per_s": Scale(((1.0, "samples/s"),)),
    "flop_count": FLOP,
    "bytes": BYTES,
    "share": PERCENT,
    "percent": Scale(((1.0, "%"),)),
}
"""Scale of a column by the ending of its name, which carries its unit; the longest ending wins."""


def scale_of(name: str) -> Scale | None:
    """Return the scale of a field by its name, or None if the name carries no unit.

    >>> scale_of("achieved_flop_per_s").units[0][1], scale_of("threads")
    ('TFLOP/s', None)
    """
    endings = [ending for ending in SCALE_BY_SUFFIX if name.endswith(ending)]
    return SCALE_BY_SUFFIX[max(endings, key=len)] if endings else None


def quantity_text(value: float, scale: Scale) -> str:
    """Write a quantity with four significant digits in the unit that suits it.

    >>> quantity_text(0.0123456, SECONDS), quantity_text(float("inf"), BYTES)
    ('12.35 ms', 'unlimited')
    """
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "unlimited"
    if value == 0:
        return f"0 {next(symbol for factor, symbol in scale.units if factor == 1.0)}"
    factor, symbol = scale.unit_for(abs(value))
    scaled = value / factor
    if abs(scaled) < MILLISECOND:
        return f"{scaled:.3g} {symbol}"
    places = max(3 - math.floor(math.log10(abs(scaled))), 0)
    return f"{scaled:,.{places}f} {symbol}"


def usd_text(usd: float) -> str:
    """Write an amount of money to the cent, or with three significant digits if it is below a dollar.

    >>> usd_text(1234.5), usd_text(0.0065889), usd_text(0.0)
    ('1,234.50', '0.00659', '0.00')
    """
    return f"{usd:,.2f}" if usd == 0 or abs(usd) >= 1 else f"{usd:.3g}"


def seconds_text(seconds: float) -> str:
    """Write a duration.

    >>> seconds_text(0.181), seconds_text(2.5e-6)
    ('181.0 ms', '2.500 µs')
    """
    return quantity_text(seconds, SECONDS)


def bytes_text(size_bytes: float) -> str:
    """Write a size in memory, with decimal prefixes.

    >>> bytes_text(8 * 2**30)
    '8.590 GB'
    """
    return quantity_text(size_bytes, BYTES)


def flop_text(flop_count: float) -> str:
    """Write an amount of arithmetic.

    >>> flop_text(375.1e9)
    '375.1 GFLOP'
    """
    return quantity_text(flop_count, FLOP)


def flop_rate_text(flop_per_s: float) -> str:
    """Write a rate of arithmetic.

    >>> flop_rate_text(8.873e12)
    '8.873 TFLOP/s'
    """
    return quantity_text(flop_per_s, SCALE_BY_SUFFIX["flop_per_s"])


def byte_rate_text(bytes_per_s: float) -> str:
    """Write a bandwidth, with decimal prefixes.

    >>> byte_rate_text(320e9)
    '320.0 GB/s'
    """
    return quantity_text(bytes_per_s, SCALE_BY_SUFFIX["bytes_per_s"])


def percent_text(share: float) -> str:
    """Write a share of a whole.

    >>> percent_text(0.6634), percent_text(0.0001)
    ('66.3 %', '< 0.1 %')
    """
    if 0 < share < 0.0005:  # would round to 0.0
        return "< 0.1 %"
    return f"{100 * share:.1f} %"


def count_text(count: float) -> str:
    """Write a count with thousands separated.

    >>> count_text(25_557_032), count_text(1203.0)
    ('25,557,032', '1,203')
    """
    return f"{count:,.0f}" if float(count).is_integer() else f"{count:,.4g}"


def counted(count: int, one: str) -> str:
    """Write a number of things, in the plural unless there is one.

    >>> counted(1, "worker"), counted(4096, "worker")
    ('1 worker', '4,096 workers')
    """
    return f"{count:,} {one}{'s' * (count != 1)}"


def cell_text(value: Any) -> str:
    """Write one value of a table, of any type.

    >>> cell_text(True), cell_text(None), cell_text(("a", 2)), cell_text(0.123456)
    ('yes', '-', 'a, 2', '0.1235')
    """
    if value is None or value == "":
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Integral):
        return count_text(int(value))
    if isinstance(value, Real):
        number = float(value)
        if math.isnan(number):  # what nobody states
            return ABSENT
        return count_text(number) if number.is_integer() and abs(number) < TERA else f"{number:.4g}"
    if isinstance(value, tuple | list):
        return ", ".join(cell_text(entry) for entry in value)
    return " ".join(str(value).split())


def column_texts(name: str, values: Sequence[Any]) -> tuple[str, list[str]]:
    """Write a column in one unit, so that its numbers can be compared by eye.

    The unit suits the largest value and goes to the heading; every cell has three decimals. A column that holds
    expressions of symbols is in its base unit.

    >>> column_texts("seconds", [0.0123, 4.5e-7, None])
    ('ms', ['12.300', '<0.001', '-'])
    """
    scale = scale_of(name)
    if scale is not None and any(map(is_symbolic, values)):
        symbol = next((symbol for factor, symbol in scale.units if factor == 1.0), "")
        return symbol, [cell_text(value) for value in values]
    if scale is None or not any(is_real(value) for value in values):
        return "", [cell_text(value) for value in values]
    magnitudes = [abs(float(value)) for value in values if is_real(value) and math.isfinite(value)]
    factor, symbol = scale.unit_for(max(magnitudes, default=0.0))
    decimals = 1 if symbol == "%" else DECIMALS
    return symbol, [_scaled_text(value, factor, decimals) for value in values]


def _scaled_text(value: Any, factor: float, decimals: int) -> str:
    if not is_real(value) or not math.isfinite(value):
        return cell_text(value)
    scaled = float(value) / factor
    smallest = 10.0**-decimals
    if scaled and abs(scaled) < smallest / 2:  # a nonzero cell must not look like zero
        return f"{'<' if scaled > 0 else '>-'}{smallest:.{decimals}f}"
    return f"{scaled:,.{decimals}f}"
