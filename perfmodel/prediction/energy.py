"""Energy of a step: of devices at rest, of their arithmetic and of their memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from perfmodel.cost.power import POWER_EXPONENT, work_energy
from perfmodel.hardware.gpu import Gpu
from perfmodel.prediction.device.gpu_clock import BUSY_IN_CONVOLUTIONS, BUSY_IN_PRODUCTS, clock_ratios
from perfmodel.prediction.device.gpu_target import product_dtype
from perfmodel.prediction.rows import pieces_of
from perfmodel.units import PICO

if TYPE_CHECKING:
    from perfmodel.prediction.prediction import Prediction

PRODUCTS = {"contraction": ("gpu_blas", BUSY_IN_PRODUCTS), "recurrence": ("gpu_dnn", BUSY_IN_CONVOLUTIONS)}
"""Kind of operation with products -> library that runs it, share of the peak that it keeps busy."""

ON_CHIP_SHARE = 1.5
"""Energy of a byte in caches, on wires and in waiting units, as a multiple of its energy in the memory. [1]"""

CONVOLUTIONS = ("gpu_dnn", BUSY_IN_CONVOLUTIONS)


class StepEnergy(NamedTuple):
    """Energy of one device in a step, in parts that sum to the total. [J]"""

    idle: float
    arithmetic: float
    memory: float

    @property
    def total(self) -> float:
        """Energy of the device. [J]"""
        return sum(self)


def step_energy(p: Prediction) -> StepEnergy | None:
    """Return the energy of the device that works longest; None if its file states no energy of work.

    Parts are cut in proportion where they exceed what the power limit allows in the time of the step.
    """
    prepared = p.basis.prepared
    device = prepared.target.processor_spec
    if not isinstance(device, Gpu) or device.power is None:
        return None
    known = device.power_constants()
    per_flop: dict[str, float] = {}
    arithmetic_j = memory_j = 0.0
    for piece in pieces_of(prepared, p.basis.timed):
        for kind, row in zip(piece.classes(), piece.rows(), strict=True):
            if kind not in per_flop:
                per_flop[kind] = _flop_j(p, device, kind)
            arithmetic_j += per_flop[kind] * row.flop_count
            memory_j += (1 + ON_CHIP_SHARE) * PICO * known["power.memory_pj"] * row.bytes
    idle_w, limit_w = known["idle_w"], known.get("power_limit_w", device.tdp_w)
    step_s = float(p.step_s)
    allowed_j = work_energy(
        duration_s=step_s, idle_w=idle_w, arithmetic_j=arithmetic_j, memory_j=memory_j, limit_w=limit_w
    )
    working_j = arithmetic_j + memory_j
    share = 1.0 if working_j == 0 else (allowed_j - idle_w * step_s) / working_j
    return StepEnergy(idle_w * step_s, share * arithmetic_j, share * memory_j)


def _flop_j(p: Prediction, device: Gpu, kind: str) -> float:
    """Energy of one FLOP of a kind of operation, at the clock that it sustains. [J]"""
    prepared = p.basis.prepared
    role, busy_share = PRODUCTS.get(kind, CONVOLUTIONS)
    on_lanes = kind not in PRODUCTS and kind != "convolution"
    dtype = (
        "fp32" if on_lanes else product_dtype(device, prepared.profile, prepared.libraries, role, dtype=prepared.dtype)
    )
    arithmetic = device.arithmetic_of(dtype)
    if arithmetic not in device.powered_types:
        return 0.0
    of_type = device.peak_flop_per_s(device.powered_types[arithmetic]) / device.peak_flop_per_s(dtype)
    clock = clock_ratios(device, busy_share=busy_share)[arithmetic]
    return float(PICO * device.power_constants()[f"power.{arithmetic}_pj"] * of_type * clock ** (POWER_EXPONENT - 1))
