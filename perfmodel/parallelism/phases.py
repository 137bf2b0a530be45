"""What of a placement's exchanges happens where only part of a step runs: inference, or gradients without an update."""

from __future__ import annotations

from dataclasses import replace

from perfmodel.parallelism.base import Exchange, Placement
from perfmodel.records import Phase


def placement_of_phase(placement: Placement, phase: Phase) -> Placement:
    """Return a placement with the exchanges of one phase."""
    if phase is Phase.STEP:
        return placement

    def happens(exchange: Exchange) -> bool:
        if exchange.phase is Phase.UPDATE:  # sums of tied tables' gradients are no part of an update's own work
            return Phase.BACKWARD in phase.parts and exchange.kind != "all_gather"
        return exchange.phase in phase.parts

    stages = tuple(
        replace(stage, exchanges=tuple(each for each in stage.exchanges if happens(each))) for stage in placement.stages
    )
    return replace(placement, stages=stages)
