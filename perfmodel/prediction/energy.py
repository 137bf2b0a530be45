"""Energy of a step: of devices at rest, of their arithmetic and of their memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from perfmodel.cost.power import POWER_EXPONENT, work_energy
from perfmodel.derived import derived
from perfmodel.hardware.gpu import Gpu
from perfmodel.prediction.device.factors import NO_FACTORS, library_constants
from perfmodel.prediction.device.gpu_attention import busy_shares
from perfmodel.prediction.device.gpu_clock import BUSY_IN_CONVOLUTIONS, BUSY_IN_PRODUCTS, clock_ratio, fed_share
from perfmodel.prediction.device.gpu_target import attention_role, product_dtype
from perfmodel.prediction.rows import totals_of_alternatives
from perfmodel.records import Phase, Role
from perfmodel.symbolic import Quantity
from perfmodel.units import PICO

if TYPE_CHECKING:
    from perfmodel.prediction.job.prepared import Prepared
    from perfmodel.prediction.job.stage import TimedStage, TimedStep
    from perfmodel.prediction.prediction import Prediction

PRODUCTS: Final = {
    "contraction": ("gpu_blas", BUSY_IN_PRODUCTS),
    "attention": ("gpu_blas", BUSY_IN_CONVOLUTIONS),
    "recurrence": ("gpu_dnn", BUSY_IN_CONVOLUTIONS),
    "convolution": ("gpu_dnn", BUSY_IN_CONVOLUTIONS),
}
"""Kind of operation with products -> library that runs it, share of the peak it keeps busy in either direction."""

ON_CHIP_SHARE: Final = 1.5
"""Energy of a byte in caches, on wires and in waiting units, as a multiple of its energy in the memory. [1]"""


AT_LIMIT: Final = 1e-9
"""Relative difference from the power limit below which devices are at it. [1]"""


class Draws(NamedTuple):
    """Power of a device at rest and at its limit. [W]"""

    idle_w: Quantity
    limit_w: Quantity


class BoardPower(NamedTuple):
    """Power of a device at rest and at its limit [W]; its energy of a FLOP, by kind of operation, and of a byte [J].

    For products: a FLOP of the output, and one of gradients.
    """

    idle_w: float
    limit_w: float
    lanes_j: float = 0.0
    products_j: tuple[tuple[str, tuple[float, float]], ...] = ()
    byte_j: float = 0.0


class StageEnergy(NamedTuple):
    """Energy of the work of a stage: of one micro-batch, forward and backward, and of one update. [J]"""

    arithmetic_j: Quantity
    memory_j: Quantity
    update_arithmetic_j: Quantity
    update_memory_j: Quantity

    def in_step(self, *, parts: Quantity, update_share: Quantity) -> tuple[Quantity, Quantity]:
        """Energy of arithmetic and of memory traffic in a step of several micro-batches. [J]"""
        return (
            parts * self.arithmetic_j + update_share * self.update_arithmetic_j,
            parts * self.memory_j + update_share * self.update_memory_j,
        )


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
    """Return the energy of the mean device; None if its file states no energy of work.

    Parts are cut in proportion where they exceed what the power limit allows in the time of the step.
    """
    prepared, timed = p.basis.prepared, p.basis.timed
    board = board_power(prepared)
    if not board.products_j:
        return None
    idle_j = board.idle_w * float(p.step_s)
    devices = []
    for arithmetic_j, memory_j in step_work(
        [stage_energy(stage, board) for stage in timed.stages],
        [stage.stage.placed.device for stage in timed.stages],
        parts=prepared.layout.parts,
        update_share=prepared.layout.update_share,
    ):
        working_j = float(arithmetic_j + memory_j)
        allowed_j = device_energy(board, step_s=float(p.step_s), arithmetic_j=arithmetic_j, memory_j=memory_j)
        share = 1.0 if working_j == 0 else (float(allowed_j) - idle_j) / working_j
        devices.append((share * float(arithmetic_j), share * float(memory_j)))
    return StepEnergy(idle_j, *(sum(parts) / len(devices) for parts in zip(*devices, strict=True)))


def time_share(p: Prediction) -> float:
    """Return d ln(energy) / d ln(step time). [1]

    Idle power is drawn for the whole step, and so is the power of a device at its limit; the energy of work is fixed.
    """
    energy, board = step_energy(p), board_power(p.basis.prepared)
    if energy is None or energy.total >= (1 - AT_LIMIT) * board.limit_w * float(p.step_s):
        return 1.0
    return energy.idle / energy.total


def board_power(prepared: Prepared) -> BoardPower:
    """Return what a device of a job draws; without energies in its file, its thermal design power all the time."""
    device = prepared.target.processor_spec
    if not isinstance(device, Gpu) or device.power is None:
        bound_w = float(getattr(device, "tdp_w", None) or math.nan)
        return BoardPower(bound_w, bound_w)
    known = device.power_constants()
    return BoardPower(
        idle_w=known["idle_w"],
        limit_w=float(known.get("power_limit_w", device.tdp_w)),
        lanes_j=_flop_j(device, "fp32", BUSY_IN_CONVOLUTIONS),
        products_j=tuple(
            [
                (kind, _flops_j(prepared, device, kind, role, busy_share))
                for kind, (role, busy_share) in PRODUCTS.items()
            ]
        ),
        byte_j=(1 + ON_CHIP_SHARE) * PICO * known["power.memory_pj"],
    )


def _flops_j(prepared: Prepared, device: Gpu, kind: str, role: str, busy_share: float) -> tuple[float, float]:
    """Energy of one FLOP of products of a kind, forward and backward; attention may have a library of its own. [J]"""
    profile, libraries, dtype = prepared.profile, prepared.libraries, prepared.dtype
    fused = attention_role(device, profile, libraries, dtype=dtype) if kind == "attention" else None
    if fused is None:
        computed_in = product_dtype(device, profile, libraries, role, dtype=dtype)
        constants = library_constants(libraries[role], device, factors=NO_FACTORS, dtype=computed_in)
        fed = fed_share(device, computed_in, constants, NO_FACTORS)
        flop_j = _flop_j(device, computed_in, busy_share * float(fed))
        return flop_j, flop_j
    role, computed_in = fused
    constants = library_constants(libraries[role], device, factors=NO_FACTORS, dtype=computed_in)
    forward, backward = busy_shares(constants)
    return _flop_j(device, computed_in, forward), _flop_j(device, computed_in, backward)


def _flop_j(device: Gpu, dtype: str, busy_share: float) -> float:
    """Energy of one FLOP in a type, at the clock that it sustains. [J]"""
    arithmetic = device.arithmetic_of(dtype)
    if arithmetic not in device.powered_types:
        return 0.0
    of_type = device.peak_flop_per_s(device.powered_types[arithmetic]) / device.product_peak_flop_per_s(dtype)
    clock = clock_ratio(device, arithmetic, busy_share=busy_share)
    return float(PICO * device.power_constants()[f"power.{arithmetic}_pj"] * of_type * clock ** (POWER_EXPONENT - 1))


def device_energy(
    board: BoardPower | Draws, *, step_s: Quantity, arithmetic_j: Quantity, memory_j: Quantity
) -> Quantity:
    """Energy of one device in a step. [J]"""
    return work_energy(
        duration_s=step_s,
        idle_w=board.idle_w,
        arithmetic_j=arithmetic_j,
        memory_j=memory_j,
        limit_w=board.limit_w,
    )


def step_work(
    stages: Sequence[StageEnergy], devices: Sequence[int], *, parts: Quantity, update_share: Quantity
) -> list[tuple[Quantity, Quantity]]:
    """Energy of arithmetic and memory traffic of each device of a worker, given the device of each stage. [J]"""
    of_devices: dict[int, tuple[Quantity, Quantity]] = {}
    for device, stage in zip(devices, stages, strict=True):
        before_j = of_devices.get(device, (0.0, 0.0))
        work_j = stage.in_step(parts=parts, update_share=update_share)
        of_devices[device] = before_j[0] + work_j[0], before_j[1] + work_j[1]
    return list(of_devices.values())


def stage_energy(timed: TimedStage, board: BoardPower) -> StageEnergy:
    """Energy of the work of a stage, once for all stages of the same structure. [J]"""
    energy: StageEnergy = _stage_energy(timed if timed.alike is None else timed.alike, board)
    return energy


@derived
def _stage_energy(timed: TimedStage, board: BoardPower) -> StageEnergy:
    table, chosen = timed.stage.lowered.table, timed.groups.chosen
    products_j, on_lanes_j = dict(board.products_j), (board.lanes_j, board.lanes_j)
    gradients = {kernel.group for kernel in table.occurrences if kernel.role is not Role.OUTPUT}
    kinds = enumerate(table.operation_kinds)
    per_flop_j = np.array([products_j.get(kind, on_lanes_j)[group in gradients] for group, kind in kinds])
    weights_of = {phase: table.phase_weights(phase).every for phase in Phase.STEP.parts}
    micro, update = weights_of[Phase.FORWARD] + weights_of[Phase.BACKWARD], weights_of[Phase.UPDATE]
    totals = totals_of_alternatives(timed)
    flop_count, moved_bytes = (_chosen_totals(of_alternatives, chosen) for of_alternatives in totals)
    return StageEnergy(
        arithmetic_j=(micro * per_flop_j) @ flop_count,
        memory_j=board.byte_j * (micro @ moved_bytes),
        update_arithmetic_j=(update * per_flop_j) @ flop_count,
        update_memory_j=board.byte_j * (update @ moved_bytes),
    )


def _chosen_totals(totals: Any, chosen: Any) -> Any:
    """Take the total of each group's alternative, which may be another one in each configuration."""
    return totals[chosen] if chosen.ndim == 1 else np.take_along_axis(totals, chosen, axis=0)


def worker_draws(prepared: Prepared, timed: TimedStep) -> tuple[Quantity, Quantity, Quantity, Quantity]:
    """Power of a whole network's device at rest and at its limit [W]; energy of its arithmetic and its memory [J]."""
    board = board_power(prepared)
    return board.idle_w, board.limit_w, *stage_energy(timed.stages[0], board).in_step(parts=1, update_share=1)


def energy_of_all(
    board: BoardPower | Draws, works: Sequence[Sequence[Quantity]], *, step_s: Quantity, count: Quantity
) -> Quantity:
    """Energy of ``count`` devices [1], equally many in each place of a worker, given the work of each place. [J]"""
    of_places = [
        device_energy(board, step_s=step_s, arithmetic_j=arithmetic_j, memory_j=memory_j)
        for arithmetic_j, memory_j in works
    ]
    return count * sum(of_places) / len(of_places)
