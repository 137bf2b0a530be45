"""The clock that a GPU sustains: what its power limit leaves for a kind of arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from perfmodel.cost.power import clock_under_power
from perfmodel.derived import derived
from perfmodel.hardware.catalogue import load_default
from perfmodel.hardware.gpu import STORAGE_TYPES, EveryGpu, Gpu
from perfmodel.numeric import maximum, minimum
from perfmodel.prediction.device.factors import NO_FACTORS, Factors, device_constant, scaled, scaled_constant
from perfmodel.symbolic import Quantity
from perfmodel.units import PICO

BUSY_IN_PRODUCTS: Final = 0.9
"""Share of the peak that large products keep busy. [1]"""

BUSY_IN_CONVOLUTIONS: Final = 0.6
"""Share of the peak that convolutions keep busy, the usual efficiency of a library's classes. [1]"""


class Load(NamedTuple):
    """Power of a board whose units all do one kind of arithmetic at the boost clock. [W]"""

    limit_w: Quantity
    resting_w: Quantity
    arithmetic_w: Quantity


def clock_ratio(
    device: Gpu, kind: str, *, busy_share: float = BUSY_IN_PRODUCTS, loads: Mapping[str, Load] | None = None
) -> Quantity:
    """Return the clock that a kind of arithmetic sustains, over the boost clock. [1]

    ``loads`` are the device's :func:`loads_of`, if they are known.
    """
    load = (loads_of(device, NO_FACTORS) if loads is None else loads).get(kind)
    highest = device.highest_clock_ratio
    if load is None:
        return highest
    limit_w, resting_w, arithmetic_w = load
    return clock_under_power(
        limit_w=limit_w, resting_w=resting_w, arithmetic_w=busy_share * arithmetic_w, highest=highest
    )


def loads_of(device: Gpu, factors: Factors, *, energy_ratio: Quantity = 1.0) -> dict[str, Load]:
    """Power of each kind of arithmetic, with ``energy_ratio`` times the mean device's for a FLOP; none if unknown."""
    stated = device.power_constants()
    known = stated if factors is NO_FACTORS else scaled(stated, place=f"devices/{device.stem}/", factors=factors)
    peaks = {kind: _listed_peak(device, dtype, factors) for kind, dtype in device.powered_types.items()}
    memory = device_constant(1.0, device, "memory.bandwidth_gb_per_s", factors=factors)
    if not known:
        return {}
    memory = memory * known["power.memory_pj"] / stated["power.memory_pj"]
    resting_w = known["idle_w"] + memory * device.memory_w_in_products
    limit_w = known["power_limit_w"] if "power_limit_w" in known else known["tdp_w"]
    return {
        kind: Load(limit_w, resting_w, energy_ratio * PICO * known[f"power.{kind}_pj"] * device.issue_limit * peak)
        for kind, peak in peaks.items()
    }


def energy_variation(device: Gpu, factors: Factors) -> Quantity:
    """Deviation of the energy of a FLOP among devices of the model, over its mean; 0 if no power limit acts. [1]"""
    if device.power is None:
        return 0.0
    place, stated = variation_file(device)
    return scaled_constant(stated.energy_variation, f"{place}/energy_variation", factors=factors)


def variation_file(device: Gpu) -> tuple[str, Gpu | EveryGpu]:
    """Place and content of the file that states how much devices of a model differ: its own, or that of every GPU."""
    if device.energy_variation is not None:
        return f"devices/{device.stem}", device
    return "defaults/every_gpu", load_default("every_gpu")


@derived
def slowest_clock(device: Gpu, energy_ratio: float) -> float:
    """Lowest clock, over that of the mean device, of large products on one that draws this much more for a FLOP. [1]"""
    loads = loads_of(device, NO_FACTORS, energy_ratio=energy_ratio)
    return min([float(clock_ratio(device, kind, loads=loads) / clock_ratio(device, kind)) for kind in loads], default=1)


def boost_peaks(device: Gpu, dtypes: Sequence[str], factors: Factors) -> dict[str, Quantity]:
    """Peak rates by data type, and of the plain lanes, that the schedulers can issue at the boost clock. [FLOP/s]

    Factors apply to the peaks that the file lists; they do not affect the type in which products are computed.
    """
    peaks = {name: _listed_peak(device, name, factors) for name in dict.fromkeys((*dtypes, "fp32"))}
    issue_limit, lanes = device.issue_limit, peaks["fp32"]
    for name, peak in peaks.items():
        peaks[name] = issue_limit * (maximum(peak, lanes) if name in STORAGE_TYPES else peak)
    return peaks


def sustained_peaks(device: Gpu, at_boost: Mapping[str, Quantity], loads: Mapping[str, Load]) -> dict[str, Quantity]:
    """Return the peak rates of data types at the clocks that large products sustain. [FLOP/s]"""
    return {
        name: peak * clock_ratio(device, device.arithmetic_of(name), loads=loads) for name, peak in at_boost.items()
    }


def fed_share(device: Gpu, dtype: str, dnn: Mapping[str, Any], factors: Factors) -> Quantity:
    """Share of the convolution rate that the feed of tensor cores allows; 1 if no limit is stated. [1]"""
    fed = dnn.get("fed_flop_per_clock")
    if fed is None:
        return 1.0
    of_unit = dnn["architecture_factor"] * _listed_peak(device, dtype, factors) / (device.unit_count * device.clock_hz)
    return minimum(1.0, fed / of_unit)


def _listed_peak(device: Gpu, dtype: str, factors: Factors) -> Quantity:
    """Scale the peak rate that a device's file lists. [FLOP/s]"""
    return device_constant(device.peak_flop_per_s(dtype), device, f"peak_tflop_per_s.{dtype}", factors=factors)


def sustained_clocks_mhz(device: Gpu) -> dict[str, float]:
    """Return the clock that large products of each kind of arithmetic sustain. [MHz]"""
    kinds = dict.fromkeys(device.arithmetic_of(dtype) for dtype in device.dtypes)
    return {kind: device.clock_boost_mhz * clock_ratio(device, kind) for kind in kinds}


def sustained_peak_flop_per_s(device: Gpu, dtype: str = "fp32") -> float:
    """Return the rate at which the board can issue large products of a data type. [FLOP/s]"""
    peak = device.product_peak_flop_per_s(dtype)
    return float(peak * device.issue_limit * clock_ratio(device, device.arithmetic_of(dtype)))
