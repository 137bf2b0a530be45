"""The clock that a GPU sustains: what its power limit leaves for a kind of arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from perfmodel.cost.power import clock_under_power
from perfmodel.derived import derived
from perfmodel.hardware.gpu import STORAGE_TYPES
from perfmodel.prediction.device.factors import NO_FACTORS, Factors, scaled
from perfmodel.units import PICO

if TYPE_CHECKING:
    from perfmodel.hardware.gpu import Gpu

Quantity = Any

BUSY_IN_PRODUCTS: Final = 0.9
"""Share of the peak that large products keep busy. [1]"""

BUSY_IN_CONVOLUTIONS: Final = 0.6
"""Share of the peak that convolutions keep busy, the usual efficiency of a library's classes. [1]"""


def clock_ratios(
    device: Gpu, *, busy_share: float = BUSY_IN_PRODUCTS, factors: Factors = NO_FACTORS
) -> Mapping[str, Quantity]:
    """Return the clock that each kind of arithmetic sustains, over the boost clock. [1]"""
    if factors is NO_FACTORS:
        return _stated_ratios(device, busy_share)
    place = f"devices/{device.stem}"
    known = scaled(device.power_constants(), place=f"{place}/", factors=factors)
    peaks = scaled(_powered_peaks(device), place=f"{place}/peak_tflop_per_s", factors=factors)
    memory = scaled({"bandwidth_gb_per_s": 1.0}, place=f"{place}/memory", factors=factors)
    return _ratios(device, busy_share, known, peaks, memory_speed=memory["bandwidth_gb_per_s"])


def _powered_peaks(device: Gpu) -> dict[str, float]:
    """Peaks to which the energies belong, by data type. [FLOP/s]"""
    return {dtype: device.peak_flop_per_s(dtype) for dtype in device.powered_types.values()}


@derived
def _stated_ratios(device: Gpu, busy_share: float) -> dict[str, float]:
    found = _ratios(device, busy_share, device.power_constants(), _powered_peaks(device))
    return {kind: float(ratio) for kind, ratio in found.items()}


def _ratios(
    device: Gpu,
    busy_share: float,
    known: Mapping[str, Quantity],
    peaks: Mapping[str, Quantity],
    *,
    memory_speed: Quantity = 1.0,
) -> dict[str, Quantity]:
    highest = device.highest_clock_ratio
    unlimited = dict.fromkeys(("lanes", "tensor_cores"), highest)
    if not known:
        return unlimited
    energy = known["power.memory_pj"] / device.power_constants()["power.memory_pj"]
    memory_w = memory_speed * energy * device.memory_w_in_products
    limit_w = known["power_limit_w"] if "power_limit_w" in known else known["tdp_w"]
    return unlimited | {
        kind: clock_under_power(
            limit_w=limit_w,
            resting_w=known["idle_w"] + memory_w,
            arithmetic_w=PICO * known[f"power.{kind}_pj"] * busy_share * device.issue_limit * peaks[dtype],
            highest=highest,
        )
        for kind, dtype in device.powered_types.items()
    }


def sustained_clocks_mhz(device: Gpu) -> dict[str, float]:
    """Return the clock that large products of each kind of arithmetic sustain. [MHz]

    Examples
    --------
    >>> from perfmodel.hardware.catalogue import load_device
    >>> {kind: round(clock) for kind, clock in sustained_clocks_mhz(load_device("t4")).items()}
    {'lanes': 884, 'tensor_cores': 1216}
    """
    ratios = clock_ratios(device)
    kinds = dict.fromkeys(device.arithmetic_of(dtype) for dtype in device.dtypes)
    return {kind: device.clock_boost_mhz * ratios[kind] for kind in kinds}


def sustained_peak_flop_per_s(device: Gpu, dtype: str = "fp32") -> float:
    """Return the rate at which the board can issue large products of a data type. [FLOP/s]

    If a narrow type's own arithmetic is slower than fp32 (fp16 on most of Pascal), data is stored in it but computed in
    fp32, as in cuDNN.
    """
    peak = device.peak_flop_per_s(dtype)
    if dtype in STORAGE_TYPES:
        peak = max(peak, device.peak_flop_per_s("fp32"))
    return float(peak * device.issue_limit * clock_ratios(device)[device.arithmetic_of(dtype)])
