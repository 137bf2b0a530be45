"""Unit factors: the only place where GB, GiB, GHz and their kin become numbers.

Inside the library every quantity is in base units (FLOP, B, s, Hz, W, USD); spec files carry the unit a data
sheet prints in the key, and ``hardware/`` multiplies by one of these factors once, on load.
"""

from functools import cache
from typing import Final

KILO: Final = 1e3
MEGA: Final = 1e6
GIGA: Final = 1e9
TERA: Final = 1e12

KIB: Final = 2**10
MIB: Final = 2**20
GIB: Final = 2**30

MILLISECOND: Final = 1e-3
MICROSECOND: Final = 1e-6
NANOSECOND: Final = 1e-9
PICO: Final = 1e-12

BITS_PER_BYTE: Final = 8
SECONDS_PER_HOUR: Final = 3600
SECONDS_PER_DAY: Final = 86_400

FACTOR_BY_SUFFIX: Final[dict[str, float]] = {
    "_tflop_per_s": TERA,
    "_gflop_per_s": GIGA,
    "_tb_per_s": TERA,
    "_gb_per_s": GIGA,
    "_mb_per_s": MEGA,
    "_mib_per_s": MIB,
    "_gbit_per_s": GIGA / BITS_PER_BYTE,
    "_gt_per_s": GIGA,
    "_mt_per_s": MEGA,
    "_gib": GIB,
    "_mib": MIB,
    "_kib": KIB,
    "_gb": GIGA,
    "_mb": MEGA,
    "_tb": TERA,
    "_ghz": GIGA,
    "_mhz": MEGA,
    "_ms": MILLISECOND,
    "_us": MICROSECOND,
    "_ns": NANOSECOND,
    "_s": 1.0,
    "_w": 1.0,
    "_kiops": KILO,
}
"""Factor to base units for each unit suffix that a spec-file key may carry."""


def to_base_units(key: str, number: float) -> float:
    """Convert a spec-file number to base units by the unit suffix of its key; a count or a fraction stays as it is.

    >>> to_base_units("bandwidth_gb_per_s", 320.0)
    320000000000.0
    >>> to_base_units("capacity_gib", 8)
    8589934592
    >>> to_base_units("core_count", 4)
    4
    """
    return number * factor if (factor := _factor_of(key)) is not None else number


@cache
def _factor_of(key: str) -> float | None:
    suffixes = [suffix for suffix in FACTOR_BY_SUFFIX if key.endswith(suffix)]
    return FACTOR_BY_SUFFIX[max(suffixes, key=len)] if suffixes else None
