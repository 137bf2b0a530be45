"""Time that shared parameters cost: gathering them unit by unit, and the framework's passes over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfmodel.numeric import exceeds, maximum, where
from perfmodel.prediction.job.beside import gathered_units
from perfmodel.records import ELEMENT_BYTES, SINGLE_BYTES, Phase
from perfmodel.symbolic import is_symbolic

if TYPE_CHECKING:
    from perfmodel.parallelism.base import Exchange
    from perfmodel.prediction.job.compose import DeviceWork
    from perfmodel.prediction.job.prepared import Prepared
    from perfmodel.prediction.job.stage import Stage
    from perfmodel.symbolic import Quantity


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Gather:
    """Times to gather and to compute each unit in a phase, where data-parallel workers share its parameters. [s]"""

    seconds: tuple[Quantity, ...]
    computed_s: tuple[Quantity, ...]
    """Including the framework's passes over the unit and over shares of the next one. [s]"""
    copied_s: Quantity = 0.0
    """All passes of the framework over parameters, before and after they are gathered. [s]"""
    meets_sums: bool = False
    """Whether gradients are sent over the same links meanwhile. [-]"""

    @property
    def total_s(self) -> Quantity:
        """Time to gather all units. [s]"""
        return sum(self.seconds)


def crowded_s(
    gather: Gather, device: DeviceWork, *, waited_s: Quantity, reduced_s: tuple[Quantity, Quantity], slowest: Quantity
) -> Quantity:
    """Time that gathers and sums of gradients add to a backward phase beside the waits for either. [s]

    They share links, so that it lasts at least as long as both. ``reduced_s`` is the time of the sums, with all passes,
    and the part of it that is waited for. Ignores: that sums among copies of the state may take links of their own.
    """
    if device.schedule is None:
        return 0.0
    sums_s, exposed_s = reduced_s
    sent_s = gather.total_s + sums_s - device.cast_s - device.joined_s
    return maximum(sent_s - (slowest * device.schedule.backward_s + waited_s + exposed_s), 0.0)


def gathered(prepared: Prepared, stage: Stage, times: Any, phase: Phase) -> Gather:
    """Time to gather and to compute each unit of a stage, in the order in which they compute. [s]"""
    known_s: dict[int, Any] = {0: 0.0}
    computed: dict[tuple[int, ...], Any] = {(): 0.0}
    gather_s: list[Any] = []
    computed_s: list[Any] = []
    exchanges, units = prepared.exchanges, gathered_units(stage, phase)
    all_bytes = sum(exchange.fixed_bytes for exchange, _ in units if exchange is not None)
    moved_share = _gathered_share(stage, [exchange for exchange, _ in units if exchange is not None])
    before_s = prepared.shared_share * moved_share * moved_s(prepared, times, "parameter_shares")
    after_s = moved_share * moved_s(prepared, times, "parameters")
    for exchange, groups in units:
        if groups not in computed:
            computed[groups] = times.operations_s(groups)
        if exchange is None and computed_s:  # its parameters are there already
            computed_s[-1] = computed_s[-1] + computed[groups]
            continue
        size_bytes = 0 if exchange is None else exchange.fixed_bytes
        if exchange is not None and exchanges is not None and size_bytes not in known_s:
            known_s[size_bytes] = exchanges(exchange, exchange.size_bytes(0), stage.placed)
        share = size_bytes / all_bytes if size_bytes else 0.0
        if computed_s:  # a pass over a unit's shares runs while the unit before it computes
            computed_s[-1] = computed_s[-1] + share * before_s
        gather_s.append(known_s[size_bytes])
        computed_s.append(computed[groups] + share * after_s)
    return Gather(
        seconds=tuple(gather_s),
        computed_s=tuple(computed_s),
        copied_s=before_s + after_s,
        meets_sums=phase is Phase.BACKWARD and prepared.layout.reduces_each,
    )


def _gathered_share(stage: Stage, gathers: list[Exchange]) -> float:
    """Share of a stage's parameters that these exchanges gather; the others have stayed since an earlier one. [1]"""
    from perfmodel.parallelism.units import sharded_units

    counts = {unit.layers[0]: unit.parameter_count for unit in sharded_units(stage.placed.graph)}
    return sum(counts[exchange.after_layer] for exchange in gathers) / sum(counts.values())


def moved_s(prepared: Prepared, times: Any, kind: str) -> Any:
    """Time of the framework's passes of a kind over all shared parameters of a stage, or their gradients. [s]"""
    lowering = getattr(prepared.profile, prepared.target.processor).lowering
    gathered_bytes = ELEMENT_BYTES[prepared.dtype]
    held_bytes = gathered_bytes if lowering.mixed(prepared.dtype) is None else SINGLE_BYTES
    sizes = {"held": held_bytes, "gathered": gathered_bytes, "exchanged": prepared.exchanged_bytes}
    seconds = times.moved_s(lowering.sharded_passes.bytes_per_parameter(kind, sizes))
    count = None if prepared.agreement is None else prepared.agreement.worker_count
    return where(exceeds(count, 1), seconds, 0.0) if is_symbolic(count) else seconds
