"""The stages of a network on several devices, as a prediction lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from perfmodel.presentation.tables import Table
from perfmodel.records import Phase

if TYPE_CHECKING:
    from perfmodel.parallelism import Exchange, Layout
    from perfmodel.prediction.prepared import Prepared, TimedStep
    from perfmodel.prediction.stage import Stage


@dataclass(frozen=True, slots=True)
class StageRow:
    """A stage of a network on several devices.

    Parameters
    ----------
    stage : int
        In the order of the network. [1]
    devices : str
        Those of the first data-parallel worker; the others have the same. [-]
    layers : int
        Layers. [1]
    computing_s : float
        Forward and backward phases of all micro-batches on one device. [s]
    memory_bytes : float
        What such a device keeps, of all its stages. [B]
    sent_bytes : float
        What such a device sends in a step for this stage. [B]
    """

    stage: int
    devices: str
    layers: int
    computing_s: float
    memory_bytes: float
    sent_bytes: float


NO_STAGES: Final[Table[StageRow]] = Table((), row_type=StageRow)
"""Stages of a prediction whose workers have the whole network each."""


def stage_rows(prepared: Prepared, timed: TimedStep) -> Table[StageRow]:
    """Return all stages with what each computes, keeps and sends.

    Parameters
    ----------
    prepared : Prepared
        The job. [-]
    timed : TimedStep
        Its step. [s]

    Returns
    -------
    Table of StageRow
        In the order of the network. [-]
    """
    layout, memory = prepared.layout, prepared.footprints(timed)
    rows = []
    for index, (stage, work) in enumerate(zip(prepared.stages, timed.composed.stages, strict=True)):
        placed = stage.placed
        width = layout.tensor_size * placed.batch_factor
        first = placed.device * layout.tensor_size
        rows.append(
            StageRow(
                stage=index,
                devices=", ".join(prepared.names[first : first + width]),
                layers=len(placed.graph.layers),
                computing_s=layout.parts * float(work.times.forward.step_s + work.times.backward.step_s),
                memory_bytes=float(memory[placed.device].total_bytes),
                sent_bytes=_sent_bytes(prepared, stage),
            )
        )
    headings = {"computing_s": "computing", "memory_bytes": "memory of the device", "sent_bytes": "sent"}
    return Table(rows, headings=headings, row_type=StageRow)


def _sent_bytes(prepared: Prepared, stage: Stage) -> float:
    """Return what a device sends in a step for a stage. [B]"""
    return sum(
        _count(exchange, prepared.layout) * prepared.sent_bytes(exchange, stage) for exchange in stage.placed.exchanges
    )


def _count(exchange: Exchange, layout: Layout) -> int:
    """Return how often a step has an exchange: of samples, and of shared parameters, for every micro-batch."""
    if exchange.phase is Phase.UPDATE or (exchange.group == "data" and exchange.kind != "all_gather"):
        return 1
    return layout.parts
